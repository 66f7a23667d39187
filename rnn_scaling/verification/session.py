"""A run of the trainer that `certifier` watches; it prints the certificate instead of a rate."""

import functools
from typing import Any

from rnn_scaling import entry, registry
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.training.session import Session
from rnn_scaling.training.state import Watch
from rnn_scaling.verification import certificates


def _watch(
    config: RunConfig, engine: Any, step: Any, checks_machine: bool = False
) -> Watch:
    """What watches a run; each loads TensorFlow."""
    if checks_machine:
        from rnn_scaling.verification.machine import MachineCheck

        return MachineCheck(config, engine, step)
    if (
        registry.VARIABLE_UPDATES[config.update.variable_update].has_coordinator
        and engine.strategy is not None
    ):
        from rnn_scaling.verification.asynchronous import AsynchronousCertifier

        return AsynchronousCertifier(config, engine, step)
    from rnn_scaling.verification.certifier import Certifier

    return Certifier(config, engine, step)


class VerifySession(Session):
    """As `Session`; its exit status is 1 where the mode does not do what it promises."""

    def __init__(
        self,
        config: RunConfig,
        started: float,
        launch: Launch | None,
        checks_machine: bool = False,
    ) -> None:
        watch = functools.partial(_watch, checks_machine=checks_machine)
        # Nothing of a step that is verified is timed or counted.
        super().__init__(
            config, started, lambda config, step, state: None, launch, watch=watch
        )
        self._holds = False

    def run(self) -> int:
        status = super().run()
        is_judge = self._cluster.rank == 0
        return (
            entry.EXIT_FAILED
            if is_judge and status == entry.EXIT_OK and not self._holds
            else status
        )

    def _tell(self, result: RunRecord) -> None:
        certificate = result.certificate
        self._holds = certificate is not None and certificate.holds
        self._table = certificates.table(certificate) if certificate else ""
