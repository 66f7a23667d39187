"""Certify workers that do not wait for each other.

The certificate covers that each gradient is applied once, to first order. The weights
at which a gradient is computed depend on the order of the workers, so no serial run
must be equal. But with a small learning rate every gradient is nearly the gradient at
the first weights, and their sum is the change of the variables.

`session` chooses it for modes with a coordinator; it has the methods of `Certifier`.
"""

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workload import make_first_values
from rnn_scaling.records.certificate import Certificate, CertifiedBatch, Check
from rnn_scaling.system import entry
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.towers import StepResult, TrainStep
from rnn_scaling.verification import certificates
from rnn_scaling.verification.certificates import Conclusion, finite_or_none
from rnn_scaling.verification.gradients import SerialGradients, sum_gradients
from rnn_scaling.verification.replicas import weights_by_tower
from rnn_scaling.verification.rule import SerialUpdateRule, length

# Share of the smallest change of a step. A lost or repeated step differs by four times
# as much.
_TOLERANCE = 0.25


class AsynchronousCertifier:
    """Watches the batches and compares the variables once, after the last step.

    See `session.Watch`.
    """

    def __init__(self, config: RunConfig, engine: Engine, step: TrainStep) -> None:
        self._config = config
        self._step = step
        self._gradients = SerialGradients(config, engine)
        self._first = make_first_values(self._gradients.specs, config.training.seed)
        self._losses: list[float] = []

    def batch(self, result: StepResult) -> None:
        """Keep the loss; the variables change at any time."""
        self._losses.append(result.loss)
        if self._config.output.progress:
            entry.note(f"batch {len(self._losses) - 1}: loss {result.loss:.6f}")

    def end(self) -> Certificate:
        """Compare the change of the variables with the sum of all serial updates."""
        steps = self._step.finished_steps
        staleness = [step.staleness for step in steps]
        changes = self._compute_serial_changes({step.number for step in steps})
        expected = sum_gradients(changes)
        (variables,) = weights_by_tower(self._step).values()
        change = {name: array - self._first[name] for name, array in variables.items()}
        errors = {name: array - expected[name] for name, array in change.items()}
        difference = length(errors) / length(expected)
        smallest = min(map(length, changes)) / length(expected)
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
        rule = SerialUpdateRule(config.training, scales_loss, config.num_towers)
        changes = []
        # A data source gives its batches in order, so unfinished steps draw batches.
        for number in range(max(steps) + 1):
            towers = self._gradients.towers(number)
            if number in steps:
                part = self._gradients.part(
                    self._first, towers.batches[0], 1 / towers.loss_items[0], number
                )
                changes.append(rule.update(part.gradient, self._first))
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
