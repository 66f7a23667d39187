"""This suite's trainer in a sweep: `ranks.Starter` starts its processes, and it writes its own record."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import early_checks, failure, folder, ranks
from rnn_scaling.sweeps.estimate import TIMES, Estimator, Limit, rough_s
from rnn_scaling.sweeps.plan import Run
from rnn_scaling.sweeps.ranks import TRAINER, Starter
from rnn_scaling.sweeps.runs import Trainer
from rnn_scaling.system.machine.cores import available_cores
from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.early_start import EarlyProcess
from rnn_scaling.system.processes.process import Ended, OnLine

MOST_LOADING_S = 60.0  # that a process which starts early may load before it is ended, and started in its turn


class SuiteTrainer(Trainer[Run]):
    def __init__(self, command: Sequence[str] = TRAINER, launch: str = "") -> None:
        """launch: a launcher with its flags, which starts the processes; empty: they start on this machine."""
        self._starter = Starter(command, launch)
        self._next: EarlyProcess | None = None  # the process of the next run

    def run(
        self,
        run: Run,
        result_file: Path,
        limit: Limit,
        on_line: OnLine,
        following: tuple[Run, Path] | None = None,
    ) -> Ended:
        is_alive = failure.PROGRESS.match if limit.is_rough else None
        present, self._next = self._next, None
        command, next_command = (
            self._command(run, result_file),
            following and self._command(*following),
        )
        if present is None and command and next_command:
            present = EarlyProcess(command)
        if present is None:
            return self._starter.run(
                run.config, run.arguments(result_file), limit.seconds, on_line, is_alive
            )
        self._next = present.begin(next_command)
        latest = time.monotonic() + min(
            MOST_LOADING_S, limit.seconds / TIMES or MOST_LOADING_S
        )

        def watch(line: str | None) -> None:
            if (
                self._next is not None
                and time.monotonic() > latest
                and self._next.is_loading()
            ):
                self.close()  # it hangs, and this run would wait for it
            on_line(line)

        return process.run_together([present.child], limit.seconds, watch, is_alive)

    def _command(self, run: Run, result_file: Path) -> list[str] | None:
        return self._starter.early_command(run.config, run.arguments(result_file))

    def close(self) -> None:
        if self._next is not None:
            self._next.close()
            self._next = None

    def shown(self, run: Run, result_file: Path) -> str:
        return self._starter.shown(run.config, run.arguments(result_file))

    def result(
        self, run: Run, result_file: Path, written: RunRecord | None, ended: Ended
    ) -> RunRecord | None:
        """The record; that of a failed run with several ranks also names the rank that was killed."""
        if not folder.is_result(written):
            return None
        if written.error and (cause := ranks.killed(ended, run.config)):
            error = dataclasses.replace(
                written.error, message=f"{written.error.message} ({cause})"
            )
            return dataclasses.replace(written, error=error)
        return written

    def reason(self, run: Run, ended: Ended, limit: Limit) -> RunError:
        return ranks.reason(ended, run.config, limit)

    def estimator(self) -> Estimator:
        rough = functools.partial(
            rough_s,
            num_cores=len(available_cores()),
            workers_share=not self._starter.launch,
        )
        return Estimator(rough)

    def warnings(self, runs: Sequence[Run], dry_run: bool) -> list[str]:
        if self._starter.launch:  # the runs are on other machines
            return []
        configs = [run.config for run in runs]
        crowding = early_checks.crowding(configs, len(available_cores()))
        return [*crowding, *([] if dry_run else early_checks.load_now())]
