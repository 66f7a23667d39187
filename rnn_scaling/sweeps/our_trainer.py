"""This suite's trainer as a sweep runs it: processes by ranks.Starter, and a record that the trainer writes itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.models.kernels import KERNELS
from rnn_scaling.processes.process import Ended, OnLine
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.read_when import is_read
from rnn_scaling.sweeps import failure, folder, forewarning, ranks
from rnn_scaling.sweeps.estimate import Estimator
from rnn_scaling.sweeps.limit import Limit
from rnn_scaling.sweeps.plan import Run
from rnn_scaling.sweeps.ranks import TRAINER, Starter
from rnn_scaling.sweeps.runs import AnyRun, Trainer


class OurTrainer(Trainer):
    """Makes runs of `plan`."""

    def __init__(self, command: Sequence[str] = TRAINER, launch: str = "") -> None:
        """launch: a launcher and its own flags, which starts the processes; empty: they are started here."""
        self._starter = Starter(command, launch)

    def run(self, run: AnyRun, result_file: Path, limit: Limit, on_line: OnLine) -> Ended:
        ours = _ours(run)
        is_alive = failure.PROGRESS.match if limit.is_rough else None
        return self._starter.run(ours.config, ours.arguments(result_file), limit.seconds, on_line, is_alive)

    def shown(self, run: AnyRun, result_file: Path) -> str:
        ours = _ours(run)
        return self._starter.shown(ours.config, ours.arguments(result_file))

    def result(self, run: AnyRun, result_file: Path, written: RunRecord | None, ended: Ended) -> RunRecord | None:
        """The record that it wrote; of several ranks a failed one also says which was killed.

        Arguments as in `runs.Trainer.result`.
        """
        if not folder.is_result(written):
            return None
        if written.error and (cause := ranks.killed(ended, _ours(run).config)):
            error = dataclasses.replace(written.error, message=f"{written.error.message} ({cause})")
            return dataclasses.replace(written, error=error)
        return written

    def reason(self, run: AnyRun, ended: Ended, limit: Limit) -> RunError:
        return ranks.reason(ended, _ours(run).config, limit)

    def estimator(self) -> Estimator:
        return Estimator(workers_share=not self._starter.launch)

    def forewarnings(self, runs: Sequence[AnyRun], dry_run: bool) -> list[str]:
        return forewarning.before([_ours(run).config for run in runs], dry_run, bool(self._starter.launch))

    def remarks(self, runs: Sequence[AnyRun]) -> list[str]:
        """What a kernel for GPUs is on CPUs."""
        configs = [_ours(run).config for run in runs]
        on_cpus = {c.model.encoder_type for c in configs if c.devices.device == "cpu" and is_read(c, "encoder_type")}
        kernels = {name: kernel for name, kernel in KERNELS.items() if name in on_cpus and kernel.cpu != kernel.gpu}
        return [f"{name} is {kernel.help}" for name, kernel in kernels.items()]


def _ours(run: AnyRun) -> Run:
    assert isinstance(run, Run)  # a sweep is of runs of one kind
    return run
