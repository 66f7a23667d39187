"""One run of the trainer: `run` trains, and returns the record whatever happens.

Two threads share a run. The *working thread* loads TensorFlow, trains and saves the
record. The *main thread* waits for it, so that Ctrl-C and the failure of another rank
are answered while a step keeps the devices busy. Python cannot stop the working thread:
after an interruption the main thread returns, and the program must exit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.config.conditions import is_read
from rnn_scaling.config.registry import DATA_SOURCES, TEXT_FILES, join_with_or
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data import corpus
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import find_ranks_sharing_cores
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import DeviceError
from rnn_scaling.system.processes import early_start
from rnn_scaling.training import checkpoint_folder
from rnn_scaling.training import cluster as clusters
from rnn_scaling.training.acceptance import NotFiniteError
from rnn_scaling.training.checkpoint_folder import CheckpointError
from rnn_scaling.training.native_log import NativeLog
from rnn_scaling.training.observers import Observer, OutputError
from rnn_scaling.training.preparation import prepare_process, speed_up_loading
from rnn_scaling.training.recording import make_killed_error
from rnn_scaling.training.state import RunState

# How often the main thread checks for an interruption or a failed rank.
TICK_S = 0.1
# TensorFlow's error for CPU operators without an NCHW kernel; oneDNN has such kernels.
_NHWC_ONLY_ERROR = re.compile("only supports (the )?NHWC")
# Errors of TensorFlow and Horovod at a rank that has lost another one.
_PEER_ERROR_TYPES = (
    "ClusterError",
    "UnavailableError",
    "AbortedError",
    "CancelledError",
    "DeadlineExceededError",
)
_PEER_ERROR_TEXTS = ("Collective ops is aborted", "Horovod has been shut down")
# Errors that their own message explains completely.
_EXPECTED_ERRORS = (
    NotFiniteError,
    DeviceError,
    OSError,
    ClusterError,
    CheckpointError,
    corpus.DataError,
)


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


class Run:
    """One run, shared by the main thread and the working thread.

    `run` and `_wait` belong to the main thread, and so do `_interrupt` and
    `_end_with`, which end the run early. `measure` and `fail` belong to the working
    thread.

    Both threads save records. Only `_save_finished` and `_save_unless_finished` may do
    so while both run; they decide under `_record_lock` whose record is kept. `_failure`
    is written by the thread that ends the run. The main thread reads what the working
    thread wrote only after `_finished` is set.
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
        # Guards `_record`, `_is_recorded` and `_ended_early`, and all writing of
        # records.
        self._record_lock = threading.Lock()
        self._record: RunRecord | None = None
        # Whether the record of the finished run is saved. No failure replaces it.
        self._is_recorded = False
        # Whether the run was recorded as failed or interrupted. It cannot finish then.
        self._ended_early = False
        self._failure: Failure | None = None
        self._another_rank_failed = False
        self._num_lost_ranks_reported = 0
        self._signal_name = ""
        self._interrupted = threading.Event()
        self._finished = threading.Event()

    def run(self) -> RunResult:
        """Run to the end, the first failure or an interruption."""
        was_early = early_start.is_early()
        if was_early:
            self._load_early()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._handle_signal)
        if self._cluster.rank:
            entry.be_quiet()
        try:
            self._find_checkpoint()
            # This record is kept if the process is killed.
            self._record = self._make_record("failed", make_killed_error())
            self._observer.save(self._record)
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
        assert self._record is not None
        return RunResult(
            self._record, self._failure, self._is_recorded, self._list_cautions()
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
        self._save_finished(self._measured_record())
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
        kind, message, is_expected = describe(error, self.config)
        if not is_expected:
            traceback.print_exception(error)
            if self._native_log is not None:
                print(self._native_log.tail(), file=sys.stderr)
        entry.fail(message)
        self._cluster.report(self.state, finished=True)
        self._cluster.abort(message)
        self._failure = self._make_own_failure(message)
        error_fields = RunError(type=kind, message=message)
        self._save_unless_finished(self._make_record("failed", error_fields))

    def _send_notice(self, kind: str, **values: Any) -> None:
        self._observer.notice(Statement(kind, values=values))

    def _prepare(self) -> None:
        choices = prepare_process(self.config, self.state, self._launch)
        for statement in choices:
            self._observer.notice(statement)
        self._native_log = NativeLog()

    def _load_early(self) -> None:
        """Load TensorFlow, then wait for this process's turn.

        Until then it writes nothing, and any signal ends it.
        """
        self.state.program.variables = dict(os.environ)
        self._prepare()
        # An error comes again in the process's turn, and is reported then.
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
            if self._interrupted.is_set():
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
        self._cluster.cut_off_lost_ranks()
        lines = self._cluster.lost_ranks
        for line in lines[self._num_lost_ranks_reported :]:
            self._send_notice("warn-lost-rank", text=line)
        self._num_lost_ranks_reported = len(lines)

    def _list_cautions(self) -> list[str]:
        """Return the reasons why this machine was slower than usual."""
        assert self._record is not None
        cautions = [self.state.machine.describe_disturbance(self._record)]
        if self._record.workers:
            cautions.append(clusters.shared_cores_warning(self._record.workers))
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
        if _is_peer_error(error) and self._cluster.wait_for_failure():
            self._another_rank_failed = True
        return self._another_rank_failed

    def _measured_record(self) -> RunRecord:
        """Return the record of a measured run, before its trace.

        It states that the trace is missing, which a killed process could not add.
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
                self._save_finished(self._make_record("ok"))
        except Exception as e:
            if self._wait_for_failed_rank(e):
                return False
            line = f"--trace_batches={num_batches}: {entry.first_line(e)}"
            self._record_missing_output(self._make_record("ok"), line)
            self._cluster.abort(line, FailureKind.TRACE)
        return True

    def _conclude(self) -> None:
        """Let observers write their last outputs."""
        assert self._record is not None
        try:
            self._observer.conclude(self._record)
        except OutputError as e:
            self._record_missing_output(self._record, str(e))

    def _record_missing_output(self, record: RunRecord, line: str) -> None:
        """Save the record again with one more reason for a missing output."""
        self._send_notice("warn-missing-output", text=line)
        lines = [record.missing_output] if record.missing_output else []
        lines.append(line)
        missing_output = entry.make_plain("; ".join(lines))
        self._save_finished(dataclasses.replace(record, missing_output=missing_output))

    def _end_with(self, failure: Failure) -> None:
        """End together with the other ranks after one of them has failed."""
        lacks_only_trace = self._is_recorded and failure.kind is FailureKind.TRACE
        if lacks_only_trace:
            if self._cluster.rank == 0:
                record = self._make_record("ok")
                self._record_missing_output(record, failure.message)
        elif self._must_report(failure):
            entry.fail(failure.message)
        self._cluster.report(self.state, finished=True)
        # Rank 0 waits a moment for the reports of the other ranks.
        self._cluster.leave()
        self._save_unless_finished(self._failed_record(failure))
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

    def _failed_record(self, failure: Failure) -> RunRecord:
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
        workers = self._cluster.workers(self.state)
        ranks_that_share = find_ranks_sharing_cores(workers) if workers else set()
        if ranks_that_share:
            self.state.resolved["oversubscribed"] = True
        if self._cluster.rank in ranks_that_share:
            # The meter counted the other ranks of this run as other programs.
            self.state.machine.load = None
        return self.state.make_record(status, error, workers)

    def _handle_signal(self, number: int, _frame: object) -> None:
        self._signal_name = signal.Signals(number).name
        self._interrupted.set()

    def _interrupt(self) -> None:
        """End the run; the caller must exit, because the thread cannot be stopped."""
        message = f"interrupted by {self._signal_name}"
        entry.note(f"\n{message}")
        error = RunError(type="Interrupted", message=message)
        self._save_unless_finished(self._make_record("interrupted", error))
        self._cluster.abort(message, FailureKind.INTERRUPTED)
        self._failure = Failure(FailureKind.INTERRUPTED, self._cluster.rank, message)
        sys.stderr.flush()

    def _save_finished(self, record: RunRecord) -> None:
        """Save the record of a run whose batches have all been measured.

        From now on, no failure and no interruption replaces it. If the run has already
        been recorded as ended early, that record stays, because the end was reported.
        """
        with self._record_lock:
            if not self._ended_early:
                is_saved = self._save(record)
                # If a later addition cannot be saved, the first record is still there.
                self._is_recorded = self._is_recorded or is_saved

    def _save_unless_finished(self, record: RunRecord) -> None:
        """Save the record of a run that ended early, unless it is recorded already."""
        with self._record_lock:
            if not self._is_recorded and not self._ended_early:
                self._ended_early = True
                self._save(record)

    def _save(self, record: RunRecord) -> bool:
        """Let the observers save a record; report an error of one of them.

        The caller must hold `_record_lock`.
        """
        self._record = record
        try:
            self._observer.save(record)
        except OutputError as e:
            if self._is_recorded:
                self._send_notice("warn-older-output", text=str(e), content=e.content)
            else:
                entry.fail(e.message_of_new_output)
            return False
        return True


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


def _is_peer_error(error: Exception) -> bool:
    """Return whether a rank may have this error because another rank has ended."""
    if type(error).__name__ in _PEER_ERROR_TYPES:
        return True
    return any(text in str(error) for text in _PEER_ERROR_TEXTS)


class DescribedError(NamedTuple):
    """An error that ended a run.

    Attributes:
      kind: The name of its type, which the record contains.
      message: One line for a person.
      is_expected: Whether errors of this kind happen to users, so that no traceback is
        needed.
    """

    kind: str
    message: str
    is_expected: bool


def describe(error: Exception, config: RunConfig) -> DescribedError:
    """Describe the error that ended a run."""
    kind = type(error).__name__
    first_line = entry.first_line(error)
    if isinstance(error, ImportError) and (
        line := entry.explain_missing_package(error)
    ):
        return DescribedError(kind, line, is_expected=True)
    is_memory = kind in ("ResourceExhaustedError", "MemoryError")
    if is_memory and "No space left" not in str(error):
        line = f"out of memory: {_find_memory_remedy(config)} ({first_line[:200]})"
        return DescribedError(kind, line, is_expected=True)
    if line := _explain_data_format(error, config.model.data_format):
        return DescribedError(kind, line, is_expected=True)
    if isinstance(error, _EXPECTED_ERRORS):
        return DescribedError(kind, first_line, is_expected=True)
    message = f"{kind}: {first_line[:500]}"
    return DescribedError(kind, message, is_expected=False)


def _explain_data_format(error: Exception, data_format: str) -> str:
    """Return a line about an operator without a kernel for `data_format`, or ""."""
    if data_format == "NHWC":
        return ""
    for line in str(error).splitlines():
        if _NHWC_ONLY_ERROR.search(line):
            cause = line.strip()[:200].rstrip(".")
            return (
                f"--data_format={data_format} is not supported here ({cause}); use "
                "--data_format=NHWC, or float32 with oneDNN on "
                "(TF_ENABLE_ONEDNN_OPTS=1)"
            )
    return ""


def _find_memory_remedy(config: RunConfig) -> str:
    choices = [f"--batch_size={config.training.batch_size}"]
    for name in ("src_max_len", "tgt_max_len", "num_units"):
        if is_read(config, name):
            choices.append(f"--{name}")
    if is_read(config, "tgt_vocab_size"):
        choices.append("the vocabularies")
    return f"lower {join_with_or(choices)}, or use --compute_dtype=bfloat16"
