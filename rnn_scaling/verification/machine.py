"""What a new machine must do before its speeds are believed: kernels, sums, and a step of its own."""

import dataclasses
from collections.abc import Callable, Iterator

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records.certificate import Certificate, Check
from rnn_scaling.system import entry
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.towers import TrainStep
from rnn_scaling.verification import kernel_checks
from rnn_scaling.verification.certifier import Certifier

StepCheck = Callable[[TrainStep, Engine], Iterator[Check]]


class MachineCheck(Certifier):
    """A `Certifier`, and at the end the machine's checks; the step must have collected its graphs."""

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        step: TrainStep,
        check_step: StepCheck,
    ) -> None:
        super().__init__(config, engine, step)
        self._check_step = check_step

    def end(self) -> Certificate:
        """The certificate, with what came of each check."""
        certificate = super().end()
        checks = (*certificate.checks, *self._machine_checks())
        wrong = [
            check for check in checks[len(certificate.checks) :] if check.holds is False
        ]
        if not wrong:
            return dataclasses.replace(certificate, checks=checks)
        fault = Statement(
            "verify-wrong-machine",
            "machine",
            {"checks": [f"{c.name}: {c.text}" for c in wrong]},
        )
        return dataclasses.replace(
            certificate,
            verdict=fault.subject,
            holds=False,
            statements=(fault.data(), *certificate.statements),
            checks=checks,
        )

    def _machine_checks(self) -> Iterator[Check]:
        entry.note("checking kernels, all-reduces, placement and the clock")
        engine = self._engine
        yield from kernel_checks.kernels_on(engine.devices[0], engine.device_type)
        yield from kernel_checks.all_reduces_on(engine)
        yield from self._check_step(self._step, engine)
