"""Certify workers that do not wait for each other.

The certificate shows that each gradient was applied exactly once, as far as a
comparison to first order can tell. The weights at which a gradient is computed depend
on the order of the workers, so no serial run has to give equal weights. But with a
small learning rate, every gradient is close to the gradient at the first weights. So
the sum of the gradients at the first weights must be the total change of the variables.

`session` creates `AsynchronousCertifier` for modes with a coordinator.
"""

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workload import make_first_values
from rnn_scaling.records.certificate import Certificate, CertifiedBatch, Check
from rnn_scaling.system import entry
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.train_step import StepResult, TrainStep
from rnn_scaling.verification import certificates
from rnn_scaling.verification.certificates import Conclusion, finite_or_none
from rnn_scaling.verification.gradients import SerialGradients, sum_gradients
from rnn_scaling.verification.replicas import weights_by_tower
from rnn_scaling.verification.rule import SerialUpdateRule, total_norm

# The total change may differ from the sum by this share of the smallest change of a
# step. A lost or repeated step would differ by four times as much.
_TOLERANCE = 0.25


class AsynchronousCertifier:
    """Compare the variables once, after the last step.

    It implements `session.Watch`.
    """

    def __init__(self, config: RunConfig, engine: Engine, step: TrainStep) -> None:
        self._config = config
        self._train_step = step
        self._gradients = SerialGradients(config, engine)
        self._first_weights = make_first_values(
            self._gradients.specs, config.training.seed
        )
        self._losses: list[float] = []

    def check_batch(self, result: StepResult) -> None:
        """Only keep the loss.

        The variables change at any time, so `make_certificate` compares them.
        """
        self._losses.append(result.loss)
        if self._config.output.progress:
            entry.note(f"batch {len(self._losses) - 1}: loss {result.loss:.6f}")

    def make_certificate(self) -> Certificate:
        """Compare the change of the variables with the sum of all serial updates."""
        steps = self._train_step.finished_steps
        staleness = [step.staleness for step in steps]
        changes = self._compute_serial_changes({step.number for step in steps})
        expected = sum_gradients(changes)
        # There is one entry, because all towers share the variables.
        (variables,) = weights_by_tower(self._train_step).values()
        change = {}
        deviations = {}
        for name, array in variables.items():
            change[name] = array - self._first_weights[name]
            deviations[name] = change[name] - expected[name]
        difference = total_norm(deviations) / total_norm(expected)
        smallest = min(map(total_norm, changes)) / total_norm(expected)
        tolerance = _TOLERANCE * smallest
        holds = difference <= tolerance
        values = {
            "steps": len(steps),
            "off": difference,
            "smallest": smallest,
            "least": min(staleness),
            "most": max(staleness),
        }
        check = Check(
            name="first order",
            holds=holds,
            text="sum of the gradients at the first weights against the change of "
            "the variables, relative",
            difference=finite_or_none(difference),
            tolerance=finite_or_none(tolerance),
        )
        batches = [
            CertifiedBatch(
                loss_serial=None, loss_parallel=loss, weights_difference=None
            )
            for loss in self._losses
        ]
        return certificates.certificate(
            self._make_conclusion(holds, values),
            checks=(check,),
            compared=certificates.describe_comparison(self._config, len(batches)),
            tolerance=tolerance,
            weights_moved=max(float(np.abs(array).max()) for array in change.values()),
            batches=tuple(batches),
        )

    def _compute_serial_changes(self, steps: set[int]) -> list[dict[str, np.ndarray]]:
        """Return the update of each step, computed at the first weights."""
        config = self._config
        scales_loss = config.model.compute_dtype == "float16"
        rule = SerialUpdateRule(
            config.training,
            scales_loss=scales_loss,
            num_towers=config.num_towers,
        )
        changes = []
        # Batches must be drawn in order, so batches of unfinished steps are drawn, too.
        for number in range(max(steps) + 1):
            towers = self._gradients.towers(number)
            if number in steps:
                serial = self._gradients.part(
                    self._first_weights,
                    towers.batches[0],
                    1 / towers.loss_items[0],
                    number,
                )
                changes.append(rule.update(serial.gradient, self._first_weights))
        return changes

    def _make_conclusion(self, holds: bool, values: dict[str, float]) -> Conclusion:
        if holds:
            statement = Statement("verify-first-order", values=values)
            return Conclusion("equal to first order", True, [statement])
        optimizer = self._config.training.optimizer
        if optimizer == "sgd":
            statement = Statement("verify-not-first-order", values=values)
            return Conclusion("unequal", False, [statement])
        statement = Statement("verify-order-counts", values={"optimizer": optimizer})
        return Conclusion("cannot tell", False, [statement])
