"""A run of the trainer that is verified; it has a certificate instead of a rate.

The command `verify` calls `verify`, like `train` calls `training.run`. The observer
`Verification` passes each batch to a certifier, which is a `Watch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rnn_scaling.cluster.launch import Launch
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records.certificate import Certificate
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import print_fitted
from rnn_scaling.training import run as training
from rnn_scaling.training.observers import Batch, Observer, Observers, RunView
from rnn_scaling.training.progress import ProgressLine
from rnn_scaling.verification import certificates

if TYPE_CHECKING:
    from rnn_scaling.verification.machine import StepCheck


class Watch(Protocol):
    """Compares each batch of a run with serial training."""

    def check_batch(self, result: Any) -> None:
        """Compare a batch that has ended, before the next one begins."""

    def make_certificate(self) -> Certificate:
        """Return the certificate, once the last step has ended."""


class Verification(Observer):
    """Watches the batches of a run and writes the certificate into its record."""

    def __init__(self, check_step: StepCheck | None) -> None:
        self._check_step = check_step
        self._run: RunView | None = None
        self._watch: Watch | None = None

    def begin(self, run: RunView) -> None:
        self._run = run
        self._watch = _make_watch(run, self._check_step)

    def end_batch(self, batch: Batch) -> bool:
        assert self._watch is not None
        self._watch.check_batch(batch.result)
        return False

    def finish(self) -> None:
        assert self._run is not None
        assert self._watch is not None
        self._run.state.certificate = self._watch.make_certificate()


def verify(
    config: RunConfig,
    launch: Launch | None,
    observers: Sequence[Observer],
    started: float,
    check_step: StepCheck | None = None,
) -> int:
    """Verify one run and print its certificate at rank 0.

    Args:
      config: The options of the run.
      launch: This process's place in a job, or None for a single process.
      observers: Write the record and print notices.
      started: `time.perf_counter()` when the program started.
      check_step: Checks the step on its devices; None unless --machine is given.

    Returns:
      The exit status: 1 if the mode does not keep its promise.
    """
    observers = [*observers, ProgressLine(), Verification(check_step)]
    try:
        result = training.run(config, launch, Observers(observers), started)
    except training.NotStartedError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)
    is_first = launch is None or launch.rank == 0
    if not is_first or result.record.status != "ok":
        return result.exit_status
    certificate = result.record.certificate
    if certificate is None:
        return entry.EXIT_FAILED
    print_fitted(certificates.table(certificate))
    if result.exit_status == entry.EXIT_OK and not certificate.holds:
        return entry.EXIT_FAILED
    return result.exit_status


def _make_watch(run: RunView, check_step: StepCheck | None) -> Watch:
    """Return the watch that fits a run; each of them loads TensorFlow."""
    if check_step is not None:
        from rnn_scaling.verification.machine import MachineCheck

        return MachineCheck(run.config, run.engine, run.step, check_step)
    if run.config.mode.has_coordinator and run.engine.strategy is not None:
        from rnn_scaling.verification.asynchronous import AsynchronousCertifier

        return AsynchronousCertifier(run.config, run.engine, run.step)
    from rnn_scaling.verification.certifier import Certifier

    return Certifier(run.config, run.engine, run.step)
