"""What can be certified of workers that do not wait for each other: that each gradient is applied once, to first order.

Which weights a gradient was computed at depends on who came first, so there is no serial run that it must equal. But
with a small learning rate every gradient is nearly that at the first weights, and all add up to what the variables did.
"""

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workload import first_values
from rnn_scaling.records.certificate import Certificate, CertifiedBatch, Check
from rnn_scaling.system import entry
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.towers import StepResult, TrainStep
from rnn_scaling.verification import certificates
from rnn_scaling.verification.certificates import Conclusion, finite
from rnn_scaling.verification.certifier import weights_by_tower
from rnn_scaling.verification.gradients import SerialGradients, summed
from rnn_scaling.verification.rule import UpdateRule, length

ALLOWED = 0.25  # of what the smallest step does: one that is lost, or counts twice, is four times as much


class AsynchronousCertifier:
    """A watch; see `benchmark.Watch`. It looks at the variables once, when all steps have ended."""

    def __init__(self, config: RunConfig, engine: Engine, step: TrainStep) -> None:
        self._config = config
        self._step = step
        self._gradients = SerialGradients(config, engine)
        self._first = first_values(self._gradients.specs, config.training.seed)
        self._losses: list[float] = []

    def batch(self, result: StepResult) -> None:
        """Keeps the loss: nothing else stands still."""
        self._losses.append(result.loss)
        if self._config.output.progress:
            entry.note(f"batch {len(self._losses) - 1}: loss {result.loss:.6f}")

    def end(self) -> Certificate:
        done = sorted(self._step.finished_steps, key=lambda step: step.number)
        numbers = [step.number for step in done]
        staleness = [step.staleness for step in done]
        scales_loss = self._config.model.compute_dtype == "float16"
        rule = UpdateRule(self._config.training, scales_loss, self._config.num_towers)
        changes = []
        for number in range(
            max(numbers) + 1
        ):  # a data source gives its batches in order
            towers = self._gradients.towers(number)
            if number in numbers:
                part = self._gradients.part(
                    self._first, towers.batches[0], 1 / towers.loss_items[0], number
                )
                changes.append(rule.update(part.gradient, self._first))
        expected = summed(changes)
        (variables,) = weights_by_tower(self._step).values()
        change = {name: array - self._first[name] for name, array in variables.items()}
        off = length(
            {name: array - expected[name] for name, array in change.items()}
        ) / length(expected)
        smallest = min(map(length, changes)) / length(expected)
        moved = max(float(np.abs(array).max()) for array in change.values())
        holds = off <= ALLOWED * smallest
        values = {"steps": len(done), "off": off, "smallest": smallest}
        values |= {"least": min(staleness), "most": max(staleness)}
        optimizer = self._config.training.optimizer
        if holds:
            conclusion = Conclusion(
                "equal to first order",
                True,
                [Statement("verify-first-order", values=values)],
            )
        elif optimizer == "sgd":
            conclusion = Conclusion(
                "unequal", False, [Statement("verify-not-first-order", values=values)]
            )
        else:
            statement = Statement(
                "verify-order-counts", values={"optimizer": optimizer}
            )
            conclusion = Conclusion("cannot tell", False, [statement])
        text = "sum of the gradients at the first weights against the change of the variables, relative"
        allowed = finite(ALLOWED * smallest)
        check = Check(
            name="first order",
            holds=holds,
            text=text,
            difference=finite(off),
            tolerance=allowed,
        )
        return certificates.certificate(
            conclusion,
            checks=(check,),
            compared=certificates.compared(self._config, len(self._losses)),
            tolerance=ALLOWED * smallest,
            weights_moved=moved,
            batches=tuple(
                CertifiedBatch(
                    loss_serial=None, loss_parallel=loss, weights_difference=None
                )
                for loss in self._losses
            ),
        )
