"""Run this suite's trainer in a sweep; it writes its own records.

It implements `runs.Trainer`; `conduct` calls it.
"""

import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import early_checks, failure, folder, ranks
from rnn_scaling.sweeps.command_lines import TRAINER, CommandLine
from rnn_scaling.sweeps.estimate import LIMIT_FACTOR, Estimator, Limit, estimate_rough_s
from rnn_scaling.sweeps.plan import Run
from rnn_scaling.sweeps.ranks import Starter
from rnn_scaling.sweeps.runs import Trainer
from rnn_scaling.system.machine.cores import list_available_cores
from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.early_start import EarlyProcess
from rnn_scaling.system.processes.process import OnLine, ProcessOutcome

# A process that starts early and loads for longer is ended, and starts in its turn.
_MAX_LOADING_S = 60.0


class SuiteTrainer(Trainer[Run]):
    """Makes runs of this suite's trainer; the next process loads during a run."""

    def __init__(self, command: Sequence[str] = TRAINER, launch: str = "") -> None:
        """Make a trainer.

        Args:
          command: The command of one rank, without its flags.
          launch: A launcher with its flags; empty if the ranks start on this machine.
        """
        self._starter = Starter(command, launch)
        self._next_process: EarlyProcess | None = None

    def build_command(self, run: Run, result_file: Path) -> CommandLine:
        return self._starter.build_command(run.config, run.list_arguments(result_file))

    def run(
        self,
        run: Run,
        result_file: Path,
        limit: Limit,
        on_line: OnLine,
        following: tuple[Run, Path] | None = None,
    ) -> ProcessOutcome:
        """Run the trainer's ranks; start the next run early if possible."""
        is_progress = failure.PROGRESS.match if limit.is_rough else None
        words = self._make_early_command(run, result_file)
        next_words = self._make_early_command(*following) if following else None
        present = self._next_process
        self._next_process = None
        if present is None and words and next_words:
            present = EarlyProcess(words)
        if present is None:
            flags = run.list_arguments(result_file)
            return self._starter.run(
                run.config, flags, limit.seconds, on_line, is_progress
            )

        self._next_process = present.begin(next_words)
        loading_s = min(_MAX_LOADING_S, limit.seconds / LIMIT_FACTOR or _MAX_LOADING_S)
        latest_s = time.monotonic() + loading_s

        def watch(line: str | None) -> None:
            next_process = self._next_process
            is_late = time.monotonic() > latest_s
            # If it hangs, this run would wait for it.
            if next_process is not None and is_late and next_process.is_loading():
                self.close()
            on_line(line)

        return process.run_together([present.child], limit.seconds, watch, is_progress)

    def _make_early_command(self, run: Run, result_file: Path) -> list[str] | None:
        """Return the command of a run whose process can start early, or None."""
        if not self._starter.can_start_early(run.config):
            return None
        return list(self.build_command(run, result_file).words)

    def close(self) -> None:
        if self._next_process is not None:
            self._next_process.close()
            self._next_process = None

    def judge(
        self,
        run: Run,
        result_file: Path,
        written: RunRecord | None,
        outcome: ProcessOutcome,
    ) -> RunRecord | None:
        """Return the record that the trainer has written.

        If the run failed because a rank was killed, the record also names this rank.
        """
        if not folder.is_result(written):
            return None
        cause = ranks.describe_killed_rank(outcome, run.config)
        if not written.error or not cause:
            return written
        message = f"{written.error.message} ({cause})"
        error = dataclasses.replace(written.error, message=message)
        return dataclasses.replace(written, error=error)

    def explain(self, run: Run, outcome: ProcessOutcome, limit: Limit) -> RunError:
        return ranks.explain(outcome, run.config, limit)

    def make_estimator(self) -> Estimator:
        rough = functools.partial(
            estimate_rough_s,
            num_cores=len(list_available_cores()),
            workers_share=not self._starter.launch,
        )
        return Estimator(rough)

    def list_warnings(self, runs: Sequence[Run], dry_run: bool) -> list[str]:
        if self._starter.launch:  # the runs are on other machines
            return []
        configs = [run.config for run in runs]
        lines = early_checks.check_cores(configs, len(list_available_cores()))
        if not dry_run:
            lines += early_checks.check_load()
        return lines
