"""One run of the trainer: `run` trains, and returns the record even if training fails.

Two threads share a run. The *working thread* loads TensorFlow, trains and saves the
record. The *main thread* waits for it, so that Ctrl-C and the failure of another rank
are answered while a step keeps the devices busy. Python cannot stop the working thread:
after an interruption the main thread returns, and the program must exit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.registry import DATA_SOURCES, TEXT_FILES
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data import corpus
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import find_ranks_sharing_cores
from rnn_scaling.system import entry
from rnn_scaling.system.processes import early_start
from rnn_scaling.training import checkpoint_folder
from rnn_scaling.training import cluster as clusters
from rnn_scaling.training.checkpoint_folder import CheckpointError
from rnn_scaling.training.native_log import NativeLog
from rnn_scaling.training.observers import Observer, OutputError
from rnn_scaling.training.preparation import prepare_process, speed_up_loading
from rnn_scaling.training.record_keeper import RecordKeeper
from rnn_scaling.training.recording import make_killed_error
from rnn_scaling.training.run_errors import describe_error, may_come_from_another_rank
from rnn_scaling.training.state import RunState

# How often the main thread checks for an interruption or a failed rank.
TICK_S = 0.1


class NotStartedError(Exception):
    """The run could not start; nothing was measured."""


@dataclasses.dataclass(frozen=True)
class RunResult:
    """How a run ended.

    Attributes:
      record: The measured batches, even if the run failed.
      failure: Why the run ended early, or None if it succeeded.
      is_saved: Whether all observers could save the record.
      cautions: Why this machine was slower than usual, one line per reason.
    """

    record: RunRecord
    failure: Failure | None
    is_saved: bool
    cautions: Sequence[str]

    @property
    def exit_status(self) -> int:
        """The exit status of a command that made this run."""
        if self.failure is not None:
            if self.failure.kind is FailureKind.INTERRUPTED:
                return entry.EXIT_INTERRUPTED
            return entry.EXIT_FAILED
        return entry.EXIT_OK if self.is_saved else entry.EXIT_FAILED


def run(
    config: RunConfig, launch: Launch | None, observer: Observer, started: float
) -> RunResult:
    """Train with the options of `config`.

    Args:
      config: The options.
      launch: The rank and size that a launcher gave this process, or None for a
        single process.
      observer: Receives each event of the run.
      started: `time.perf_counter()` when the program started.

    Returns:
      The record and how the run ended. Errors of the run itself are reported on
      stderr and in the record.

    Raises:
      NotStartedError: If an output cannot be written, or if the run cannot continue
        from its checkpoint.
    """
    return Run(config, launch, observer, started).run()


class _Interruption:
    """The signals that end this process: Ctrl-C, and the signals of launchers.

    Attributes:
      happened: Set by the first signal.
      message: "interrupted by" and the name of the signal.
    """

    def __init__(self) -> None:
        self.happened = threading.Event()
        self.message = ""

    def watch(self) -> None:
        """Handle the signals from now on, instead of ending the process."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: object) -> None:
        self.message = f"interrupted by {signal.Signals(number).name}"
        self.happened.set()


class Run:
    """One run, shared by the main thread and the working thread.

    `run` and `_wait` belong to the main thread, and so do `_interrupt` and
    `_end_with`, which end the run early. `measure` and `fail` belong to the working
    thread.

    Both threads save records with `_keeper`. `_failure` is written by the thread that
    ends the run. The main thread may read `state` and `_keeper` at any time, because the
    working thread only adds to them.
    """

    def __init__(
        self,
        config: RunConfig,
        launch: Launch | None,
        observer: Observer,
        started: float,
    ) -> None:
        self.config = make_rank_config(config, launch)
        self.state = RunState(config, started=started)
        self.state.files = _list_data_files(config)
        self._launch = launch
        self._observer = observer
        self._cluster = clusters.join_run(launch, config)
        self._native_log: NativeLog | None = None
        # Size and time of each data file, to notice a file that changes meanwhile.
        self._stamps = {path: corpus.read_stamp(path) for path in self.state.files}
        # Locks that the process holds until it ends.
        self._locks = contextlib.ExitStack()
        self._keeper = RecordKeeper(observer)
        self._failure: Failure | None = None
        self._another_rank_failed = False
        self._interruption = _Interruption()
        self._finished = threading.Event()

    def run(self) -> RunResult:
        """Run to the end, the first failure or an interruption."""
        was_early = early_start.is_early()
        if was_early:
            self._load_early()
        self._interruption.watch()
        if self._cluster.rank:
            entry.be_quiet()
        try:
            self._find_checkpoint()
            # This record is kept if the process is killed.
            self._keeper.save_first(self._make_record("failed", make_killed_error()))
        except CheckpointError as e:
            raise NotStartedError(str(e)) from e
        except OutputError as e:
            raise NotStartedError(e.message_of_new_output) from e
        if not was_early:
            self._prepare()
        # The ranks look for each other while TensorFlow loads.
        self._cluster.start()
        threading.Thread(target=self._measure_and_finish, daemon=True).start()
        self._wait()
        record = self._keeper.record
        return RunResult(
            record, self._failure, self._keeper.is_finished, self._list_cautions(record)
        )

    def measure(self) -> None:
        """Load TensorFlow, train, and save the record."""
        try:
            with speed_up_loading():
                from rnn_scaling.training import benchmark  # loads TensorFlow

            step = benchmark.run(self.config, self.state, self._cluster, self._observer)
        except Exception as e:
            if not self._wait_for_failed_rank(e):
                self.fail(self._explain_error(e))
            return
        if change := corpus.describe_changes(self._stamps):
            self._send_notice("warn-changed-data", text=change)
        self._keeper.save_finished(self._make_measured_record())
        if not self._inspect(step):
            return
        if step is not None:
            self._conclude()
        try:
            self._cluster.leave()
        except ClusterError as e:
            entry.fail(str(e))
            self._failure = e.failure or self._make_own_failure(str(e))

    def fail(self, error: Exception) -> None:
        """End the run at all ranks because of an error at this rank."""
        kind, message, is_expected = describe_error(error, self.config)
        if not is_expected:
            traceback.print_exception(error)
            if self._native_log is not None:
                print(self._native_log.read_tail(), file=sys.stderr)
        entry.fail(message)
        self._cluster.report(self.state, finished=True)
        self._cluster.abort(message)
        self._failure = self._make_own_failure(message)
        error_fields = RunError(type=kind, message=message)
        self._keeper.save_unless_finished(self._make_record("failed", error_fields))

    def _send_notice(self, kind: str, **values: Any) -> None:
        self._observer.notice(Statement(kind, values=values))

    def _prepare(self) -> None:
        """Choose what must be set before TensorFlow loads, and report the choices."""
        choices = prepare_process(self.config, self.state, self._launch)
        for statement in choices:
            self._observer.notice(statement)
        self._native_log = NativeLog()

    def _load_early(self) -> None:
        """Load TensorFlow, then wait for this process's turn.

        Until then it writes no record, and any signal ends it.
        """
        self.state.program.variables = dict(os.environ)
        self._prepare()
        # An error occurs again in `measure`, which reports it.
        with contextlib.suppress(Exception), speed_up_loading():
            from rnn_scaling.training import benchmark  # noqa: F401
        self.state.wait_for_turn()
        self._stamps = {path: corpus.read_stamp(path) for path in self._stamps}

    def _wait(self) -> None:
        """Wait for the other thread, an interruption or the failure of a rank."""
        while not self._finished.wait(TICK_S):
            # Before the signal: launchers end the other ranks with one.
            if failure := self._cluster.failure:
                self._end_with(failure)
                return
            if self._interruption.happened.is_set():
                self._interrupt()
                return
            self._cluster.report(self.state)
            self._drop_lost_ranks()
        self._drop_lost_ranks()
        if self._another_rank_failed:
            failure = self._cluster.failure
            assert failure is not None  # `_wait_for_failed_rank` saw it
            self._end_with(failure)

    def _drop_lost_ranks(self) -> None:
        """Cut off the lost ranks, and warn about each of them once."""
        for line in self._cluster.cut_off_lost_ranks():
            self._send_notice("warn-lost-rank", text=line)

    def _list_cautions(self, record: RunRecord) -> list[str]:
        """Return the reasons why this machine was slower than usual."""
        cautions = [self.state.machine.describe_disturbance(record)]
        if record.workers:
            cautions.append(clusters.warn_about_shared_cores(record.workers))
        return [caution for caution in cautions if caution]

    def _find_checkpoint(self) -> None:
        """Find the checkpoint from which the run continues, if it has one.

        Raises:
          CheckpointError: If the run cannot continue from the last checkpoint.
        """
        directory = self.config.output.checkpoint_dir
        rank = self._cluster.rank
        if not directory:
            return
        if rank and self.config.mode.has_servers:
            return  # rank 0 runs all steps
        if not self.config.model.trains:
            self.state.weights = checkpoint_folder.find_trained(directory, self.config)
            return
        if rank == 0:
            self._locks.enter_context(checkpoint_folder.lock_folder(directory))
        checkpoint = checkpoint_folder.read_newest(
            directory, self.config, self.state.files, rank
        )
        if checkpoint is not None:
            self.state.resume_from(checkpoint)

    def _measure_and_finish(self) -> None:
        """Measure, then wake the main thread, even after an error."""
        try:
            self.measure()
        finally:
            self._finished.set()

    def _explain_error(self, error: Exception) -> Exception:
        """Return the error, or the fault of the data that caused it."""
        reason = corpus.describe_changes(self._stamps) or self._find_data_fault(error)
        return corpus.DataError(reason) if reason else error

    def _find_data_fault(self, error: Exception) -> str:
        """Return the fault of the data that ended the run, or ""."""
        data = self.config.data
        module = sys.modules.get(DATA_SOURCES[data.data_source].module)
        is_pipeline_error = getattr(module, "is_pipeline_error", None)
        if is_pipeline_error is None or not is_pipeline_error(error):
            return ""
        self._send_notice("run-looks-for-record", folder=data.data_dir)
        return str(module.find_fault(data, error))  # type: ignore[union-attr]

    def _wait_for_failed_rank(self, error: Exception) -> bool:
        """Wait for the failure of another rank if it may explain an error here.

        The main thread then reports that failure instead of this error. The error often
        arrives first, so this may take as long as a lost rank is noticed.

        Returns:
          Whether another rank failed.
        """
        if may_come_from_another_rank(error) and self._cluster.wait_for_failure():
            self._another_rank_failed = True
        return self._another_rank_failed

    def _make_measured_record(self) -> RunRecord:
        """Return the record of a measured run, before its trace.

        It says that the trace is missing, because a process that is killed while it
        reads the trace could not add that.
        """
        record = self._make_record("ok")
        num_batches = self.config.output.trace_batches
        if num_batches:
            line = (
                f"--trace_batches={num_batches}: the run ended before the trace "
                "was complete"
            )
            record = dataclasses.replace(record, missing_output=line)
        return record

    def _inspect(self, step: Any) -> bool:
        """Inspect the step if the user asked for it; the measured numbers are kept.

        Args:
          step: The step that ran, or None if this process has no towers.

        Returns:
          Whether the run continues. If not, another rank has failed.
        """
        num_batches = self.config.output.trace_batches
        if not num_batches:
            return True
        try:
            if step is not None:
                self._observer.inspect()
            # Processes without towers also serve the traced steps.
            self._cluster.barrier(clusters.TRACED)
            if step is not None:
                self._keeper.save_finished(self._make_record("ok"))
        except Exception as e:
            if self._wait_for_failed_rank(e):
                return False
            line = f"--trace_batches={num_batches}: {entry.find_first_line(e)}"
            self._record_missing_output(self._make_record("ok"), line)
            self._cluster.abort(line, FailureKind.TRACE)
        return True

    def _conclude(self) -> None:
        """Let observers write their last outputs."""
        record = self._keeper.record
        try:
            self._observer.conclude(record)
        except OutputError as e:
            self._record_missing_output(record, str(e))

    def _record_missing_output(self, record: RunRecord, line: str) -> None:
        """Save the record again with one more reason for a missing output."""
        self._send_notice("warn-missing-output", text=line)
        lines = [record.missing_output] if record.missing_output else []
        lines.append(line)
        missing_output = entry.make_plain("; ".join(lines))
        self._keeper.save_finished(
            dataclasses.replace(record, missing_output=missing_output)
        )

    def _end_with(self, failure: Failure) -> None:
        """End together with the other ranks after one of them has failed."""
        lacks_only_trace = (
            self._keeper.is_finished and failure.kind is FailureKind.TRACE
        )
        if lacks_only_trace:
            if self._cluster.rank == 0:
                record = self._make_record("ok")
                self._record_missing_output(record, failure.message)
        elif self._must_report(failure):
            entry.fail(failure.message)
        self._cluster.report(self.state, finished=True)
        # Rank 0 waits a moment for the reports of the other ranks.
        self._cluster.leave()
        self._keeper.save_unless_finished(self._make_failed_record(failure))
        if not lacks_only_trace:
            self._failure = failure

    def _must_report(self, failure: Failure) -> bool:
        """Return whether this rank prints a failure.

        Rank 0 does, once for all. The others do if rank 0 is gone, or if they could
        not reach it.
        """
        if self._cluster.rank == 0 or failure.rank == 0:
            return True
        return (
            failure.kind is FailureKind.NOT_JOINED
            and failure.rank == self._cluster.rank
        )

    def _make_failed_record(self, failure: Failure) -> RunRecord:
        """Return the record of a run that another rank ended."""
        if failure.kind is FailureKind.INTERRUPTED:
            error = RunError(type="Interrupted", message=failure.message)
            return self._make_record("interrupted", error)
        error = RunError(type="ClusterError", message=failure.message)
        return self._make_record("failed", error)

    def _make_own_failure(self, message: str) -> Failure:
        return Failure(FailureKind.ERROR, self._cluster.rank, message)

    def _make_record(self, status: str, error: RunError | None = None) -> RunRecord:
        """Return the record as of now."""
        workers = self._cluster.make_workers(self.state)
        ranks_that_share = find_ranks_sharing_cores(workers) if workers else set()
        if ranks_that_share:
            self.state.resolved["oversubscribed"] = True
        if self._cluster.rank in ranks_that_share:
            # The meter counted the other ranks of this run as other programs.
            self.state.machine.load = None
        return self.state.make_record(status, error, workers)

    def _interrupt(self) -> None:
        """End the run; the caller must exit, because the thread cannot be stopped."""
        message = self._interruption.message
        entry.note(f"\n{message}")
        error = RunError(type="Interrupted", message=message)
        self._keeper.save_unless_finished(self._make_record("interrupted", error))
        self._cluster.abort(message, FailureKind.INTERRUPTED)
        self._failure = Failure(FailureKind.INTERRUPTED, self._cluster.rank, message)
        sys.stderr.flush()


def make_rank_config(config: RunConfig, launch: Launch | None) -> RunConfig:
    """Return the options with the outputs of this rank.

    Rank 0 writes the outputs of the run. Other ranks write only their traces.
    """
    if launch is None or launch.rank == 0:
        return config
    output = config.output
    log_dir = ""
    if output.log_dir and output.trace_batches:
        log_dir = os.path.join(output.log_dir, f"rank_{launch.rank}")
    output = dataclasses.replace(output, result_file="", mlperf_log="", log_dir=log_dir)
    return dataclasses.replace(config, output=output)


def _list_data_files(config: RunConfig) -> list[str]:
    """Return the files that the run reads: texts and vocabularies, or images."""
    if is_read(config, "data_dir"):
        folder = Path(config.data.data_dir)
        return [str(path) for path in folder.glob(config.data.file_pattern)]
    return [getattr(config.data, name) for name in TEXT_FILES if is_read(config, name)]
