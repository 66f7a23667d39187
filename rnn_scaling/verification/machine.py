"""Check a new machine before it is measured: kernels, all-reduces and a step.

`verify --machine` adds it to the session.
"""

import dataclasses
from collections.abc import Callable, Iterator

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records.certificate import Certificate, Check
from rnn_scaling.system import entry
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.train_step import TrainStep
from rnn_scaling.verification import kernel_checks
from rnn_scaling.verification.certifier import Certifier

StepCheck = Callable[[TrainStep, Engine], Iterator[Check]]


class MachineCheck(Certifier):
    """A `Certifier` that also checks the machine at the end.

    The step must have collected its graphs.
    """

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        step: TrainStep,
        check_step: StepCheck,
    ) -> None:
        super().__init__(config, engine, step)
        self._check_step = check_step

    def make_certificate(self) -> Certificate:
        """Return the certificate with the machine's checks."""
        certificate = super().make_certificate()
        machine_checks = tuple(self._check_machine())
        checks = certificate.checks + machine_checks
        failures = [
            f"{check.name}: {check.text}"
            for check in machine_checks
            if check.holds is False
        ]
        if not failures:
            return dataclasses.replace(certificate, checks=checks)
        fault = Statement("verify-wrong-machine", "machine", {"checks": failures})
        return dataclasses.replace(
            certificate,
            verdict=fault.subject,
            holds=False,
            statements=(fault.data(), *certificate.statements),
            checks=checks,
        )

    def _check_machine(self) -> Iterator[Check]:
        entry.note("checking kernels, all-reduces, placement and the clock")
        engine = self._engine
        yield from kernel_checks.check_kernels(engine.devices[0], engine.device_type)
        yield from kernel_checks.check_all_reduces(engine)
        yield from self._check_step(self._step, engine)
