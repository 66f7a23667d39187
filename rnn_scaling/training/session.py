"""One run of the trainer: outputs opened, cores bound, the run in a thread, its record written whatever happens.

TensorFlow loads inside the thread; Ctrl-C is answered while a step is busy on the devices.
"""

import contextlib
import dataclasses
import os
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis import learning
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.data import corpus
from rnn_scaling.entry import EXIT_FAILED, EXIT_USAGE
from rnn_scaling.files.output_files import RECORD_IN_LOG_DIR, write_text
from rnn_scaling.files.terminal import tell
from rnn_scaling.machine.gpus import DeviceError
from rnn_scaling.processes import early_start
from rnn_scaling.records import record
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.workers import sharing_a_core
from rnn_scaling.registry import DATA_SOURCES, TEXT_FILES, either, has_servers
from rnn_scaling.reports import mlperf_log, table
from rnn_scaling.settings.conditions import is_read
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.training import checkpoint_folder
from rnn_scaling.training import cluster as clusters
from rnn_scaling.training.acceptance import NotFiniteError
from rnn_scaling.training.checkpoint_folder import CheckpointError
from rnn_scaling.training.native_log import NativeLog
from rnn_scaling.training.preparation import loading, prepare_process
from rnn_scaling.training.recording import killed
from rnn_scaling.training.state import RunState, StartWatch

TICK_S = 0.1  # how often the main thread looks for an interruption or another process's failure
TRACE_FLAG = "--trace_batches"
ONE_LAYOUT = re.compile(
    "only supports (the )?NHWC"
)  # what operators on CPUs say, but for oneDNN's
LookInside = Callable[[RunConfig, Any, RunState], None]


class Session:
    def __init__(
        self,
        config: RunConfig,
        started: float,
        look_inside: LookInside,
        launch: Launch | None,
        watch: StartWatch | None = None,
    ) -> None:
        """started: `time.perf_counter()` when the program started.
        look_inside: fills the state's `graph` and `trace` from the step that was run; called where the user asked.
        launch: which of several processes this is; None: it is alone.
        watch: begins to watch the run's batches; None: they are not watched.
        """
        self._watch = watch
        self._config, self._state = (
            _of_rank(config, launch),
            RunState(config, started=started),
        )
        self._cluster, self._launch = clusters.of(launch, config), launch
        self._look_inside = look_inside
        self._exit_status = EXIT_FAILED
        self._table = ""
        self._signal = ""
        self._is_recorded = False
        self._another_rank_failed = False
        self._num_lost = 0  # lost ranks that were reported
        self._state.files = _data_files(config)
        self._stamps = {path: corpus.stamp(path) for path in self._state.files}
        self._held = contextlib.ExitStack()  # until the process ends
        self._interrupted = threading.Event()
        self._finished = threading.Event()

    def run(self) -> int:
        """Runs to the end or the interruption; returns the exit status."""
        if was_early := early_start.is_early():
            self._load_early()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        if self._cluster.rank:
            entry.be_quiet()
        if not self._open_outputs():
            return EXIT_USAGE
        if not was_early:
            self._prepare()
        self._cluster.start()  # the others are looked for while TensorFlow loads
        threading.Thread(target=self._work, daemon=True).start()
        while not self._finished.wait(TICK_S):
            # Before the signal: launchers end the other ranks with one.
            if failure := self._cluster.failure:
                return self._give_up(failure)
            if self._interrupted.is_set():
                return self._interrupt()
            self._cluster.report(self._state)
            self._tell_of_losses()
        self._tell_of_losses()  # the last may have been found since
        if self._another_rank_failed:
            failure = self._cluster.failure
            assert failure is not None  # `wait_for_failure` saw it
            return self._give_up(failure)
        if self._table:
            tell(self._table)
        return self._exit_status

    def _prepare(self) -> None:
        prepare_process(self._config, self._state, self._launch)
        self._native_log = NativeLog()

    def _load_early(self) -> None:
        """Loads TensorFlow and waits for this process's turn; until then it writes nothing, and any signal ends it."""
        self._state.variables = dict(os.environ)
        self._prepare()
        with (
            contextlib.suppress(Exception),
            loading(),
        ):  # it fails again in its turn, which reports it
            from rnn_scaling.training import benchmark  # noqa: F401
        self._state.wait_for_turn()
        self._stamps = {path: corpus.stamp(path) for path in self._stamps}

    def _tell_of_losses(self) -> None:
        for line in self._cluster.lost()[self._num_lost :]:
            self._num_lost += 1
            entry.warn(f"{line}; the run goes on without it")

    def _open_outputs(self) -> bool:
        """Writes to the outputs now, so that what cannot be written is found out before the run and not after it."""
        if not self._find_checkpoint():
            return False
        if not self._save(
            self._record("failed", killed())
        ):  # this record stays when the process is killed
            return False
        log_dir = self._config.output.log_dir
        try:
            if log_dir:
                os.makedirs(log_dir, exist_ok=True)
                tempfile.TemporaryFile(dir=log_dir).close()
        except OSError as e:
            entry.fail(f"--log_dir={log_dir}: {e.strerror or e}; name another folder")
            return False
        return True

    def _find_checkpoint(self) -> bool:
        """Whether the run can go on from its last checkpoint, or has none."""
        directory, rank = self._config.output.checkpoint_dir, self._cluster.rank
        if not directory or (
            rank and has_servers(self._config.update.variable_update)
        ):  # rank 0 runs all steps
            return True
        try:
            if not self._config.model.trains:
                self._state.weights = checkpoint_folder.trained(directory, self._config)
                return True
            if rank == 0:
                self._held.enter_context(checkpoint_folder.held(directory))
            checkpoint = checkpoint_folder.newest(
                directory, self._config, self._state.files, rank
            )
        except CheckpointError as e:
            entry.fail(str(e))
            return False
        if checkpoint is not None:
            self._state.resume_from(checkpoint)
        return True

    def _work(self) -> None:
        try:
            self._exit_status = self._run_and_report()
        finally:
            self._finished.set()

    def _run_and_report(self) -> int:
        try:
            with loading():
                from rnn_scaling.training import benchmark  # loads TensorFlow

            step = benchmark.run(self._config, self._state, self._cluster, self._watch)
        except Exception as e:
            if self._is_caused_by_another_rank(e):
                return EXIT_FAILED
            reason = corpus.change(self._stamps) or _fault_of_data(self._config, e)
            return self._fail(corpus.DataError(reason) if reason else e)
        if change := corpus.change(self._stamps):
            entry.warn(change)
        result = self._record("ok")
        if self._cluster.rank == 0:
            self._tell(result)
        self._is_recorded = self._save(result)
        if step is not None and self._config.output.trace_batches:
            result = self._trace(step, result)
            if self._another_rank_failed:
                return EXIT_FAILED
        if step is not None:
            self._write_logs(step, result)
        try:
            if step is None and self._config.output.trace_batches:
                self._cluster.barrier(clusters.TRACED)  # serves the traced steps too
            self._cluster.leave()
        except ClusterError as e:
            return entry.fail(str(e))
        return 0 if self._is_recorded else EXIT_FAILED

    def _is_caused_by_another_rank(self, error: Exception) -> bool:
        """Return whether the end of another rank explains an error.

        Its failure is then reported instead.
        """
        kinds = (
            "ClusterError",
            "UnavailableError",
            "AbortedError",
            "CancelledError",
            "DeadlineExceededError",
        )
        messages = ("Collective ops is aborted", "Horovod has been shut down")
        is_likely = type(error).__name__ in kinds or any(
            message in str(error) for message in messages
        )
        self._another_rank_failed = is_likely and self._cluster.wait_for_failure()
        return self._another_rank_failed

    def _tell(self, result: record.RunRecord) -> None:
        if caution := self._state.load_caution():
            entry.warn(caution)
        if result.steady_state:
            entry.note(result.steady_state.text)
        if grown := learning.loss_growth(result.batches.loss):
            entry.warn(f"the loss grew {grown:,.3g}-fold: {learning.REMEDY}")
        if result.workers and (shared := clusters.shared_cores(result.workers)):
            entry.warn(shared)
        self._table = table.render_runs(
            [result]
        )  # also when the record cannot be written

    def _trace(self, step: Any, result: record.RunRecord) -> record.RunRecord:
        """The record with the inside of the step, or with the reason why it is not there."""
        output = self._config.output
        try:
            if (
                output.log_dir and self._cluster.rank == 0
            ):  # stays when the trace is interrupted or fails
                record.write(result, Path(output.log_dir) / RECORD_IN_LOG_DIR)
            self._look_inside(self._config, step, self._state)
            self._cluster.barrier(clusters.TRACED)
            result = self._record("ok")
            self._save(result)
        except Exception as e:
            if self._is_caused_by_another_rank(e):
                return result
            line = f"{TRACE_FLAG}={output.trace_batches}: {entry.first_line(e)}"
            result = self._lacking(line, result)
            self._cluster.abort(line, FailureKind.TRACE)
        return result

    def _lacking(self, line: str, result: record.RunRecord) -> record.RunRecord:
        """The record of a finished run that says which output besides its numbers is missing; warns of it."""
        entry.warn(f"{line}; the record keeps the run's numbers")
        known = [result.missing_output] if result.missing_output else []
        result = dataclasses.replace(
            result, missing_output=entry.plain("; ".join([*known, line]))
        )
        self._save(result)
        return result

    def _write_logs(self, step: Any, result: record.RunRecord) -> None:
        from rnn_scaling.reports.tensorboard import event_files  # loads TensorFlow

        log_dir = self._config.output.log_dir
        try:
            if log_dir and self._cluster.rank == 0:
                record.write(result, Path(log_dir) / RECORD_IN_LOG_DIR)
                event_files.write(log_dir, step.graph(), result)
        except Exception as e:
            self._lacking(f"--log_dir={log_dir}: {entry.first_line(e)}", result)

    def _fail(self, error: Exception) -> int:
        kind, message, expected = describe(error, self._config)
        if not expected:
            traceback.print_exception(error)
            print(self._native_log.tail(), file=sys.stderr)
        entry.fail(message)
        self._cluster.report(self._state, finished=True)
        self._cluster.abort(message)
        self._save(self._record("failed", RunError(type=kind, message=message)))
        return EXIT_FAILED

    def _give_up(self, failure: Failure) -> int:
        """End together with the other ranks after one of them has failed."""
        lacks_only_trace = self._is_recorded and failure.kind is FailureKind.TRACE
        if lacks_only_trace and self._cluster.rank == 0:
            self._lacking(failure.message, self._record("ok"))
        elif not lacks_only_trace and self._reports(failure):
            entry.fail(failure.message)
        self._cluster.report(self._state, finished=True)
        # Rank 0 waits a moment for what the others still report.
        self._cluster.leave()
        if not self._is_recorded:
            self._save(self._failed_record(failure))
        if self._table:
            tell(self._table)
        if lacks_only_trace:
            return entry.EXIT_OK
        if failure.kind is FailureKind.INTERRUPTED:
            return entry.EXIT_INTERRUPTED
        return EXIT_FAILED

    def _reports(self, failure: Failure) -> bool:
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

    def _failed_record(self, failure: Failure) -> record.RunRecord:
        """Return the record of a run that another rank ended."""
        if failure.kind is FailureKind.INTERRUPTED:
            error = RunError(type="Interrupted", message=failure.message)
            return self._record("interrupted", error)
        error = RunError(type="ClusterError", message=failure.message)
        return self._record("failed", error)

    def _record(self, status: str, error: RunError | None = None) -> record.RunRecord:
        workers = self._cluster.workers(self._state)
        sharing = sharing_a_core(workers) if workers else set()
        if sharing:
            self._state.resolved["oversubscribed"] = True
        if self._cluster.rank in sharing:
            self._state.load = None  # it took the other ranks for load
        return self._state.record(status, error, workers)

    def _on_signal(self, number: int, _frame: object) -> None:
        self._signal = signal.Signals(number).name
        self._interrupted.set()

    def _interrupt(self) -> int:
        message = f"interrupted by {self._signal}"
        entry.note(f"\n{message}")
        if not self._is_recorded:  # a finished run stays one
            self._save(
                self._record(
                    "interrupted", RunError(type="Interrupted", message=message)
                )
            )
        self._cluster.abort(message, FailureKind.INTERRUPTED)
        sys.stderr.flush()
        if self._table:  # interrupted while it traced
            tell(self._table)
        return (
            entry.EXIT_INTERRUPTED
        )  # the busy thread cannot be stopped, so the process leaves at once

    def _save(self, result: record.RunRecord) -> bool:
        """Writes the record and the MLPerf log, which is rank 0's to do."""
        output = self._config.output
        return self._write(
            "result_file",
            output.result_file,
            "record",
            lambda path: record.write(result, path),
        ) and (
            self._write(
                "mlperf_log",
                output.mlperf_log,
                "log",
                lambda path: write_text(mlperf_log.text(result), path),
            )
        )

    def _write(
        self, flag: str, path: str, what: str, write: Callable[[str], None]
    ) -> bool:
        """Writes an output that is asked for; says where it cannot be."""
        try:
            if path:
                write(path)
        except OSError as e:
            reason = f"--{flag}={path}: {e.strerror or e}"
            if self._is_recorded:
                entry.warn(
                    f"{reason}; the {what} there has the run's numbers and no more"
                )
            else:
                entry.fail(f"{reason}; the {what} was not written")
            return False
        return True


def _of_rank(config: RunConfig, launch: Launch | None) -> RunConfig:
    """The configuration with the outputs of this rank: those of rank 0 are the run's, others keep traces alone."""
    if launch is None or launch.rank == 0:
        return config
    output = config.output
    log_dir = (
        os.path.join(output.log_dir, f"rank_{launch.rank}")
        if output.log_dir and output.trace_batches
        else ""
    )
    return dataclasses.replace(
        config,
        output=dataclasses.replace(
            output, result_file="", mlperf_log="", log_dir=log_dir
        ),
    )


def _data_files(config: RunConfig) -> list[str]:
    """The files that the run reads text and vocabularies, or images, from."""
    texts = [getattr(config.data, name) for name in TEXT_FILES if is_read(config, name)]
    if not is_read(config, "data_dir"):
        return texts
    return [
        str(path) for path in Path(config.data.data_dir).glob(config.data.file_pattern)
    ]


_QUOTES_RECORD = "Could not parse example input"


def _fault_of_data(config: RunConfig, error: Exception) -> str:
    """Return the fault of the data that ended the run, or an empty text.

    It is looked for if the error comes from the input pipeline of a source of images.
    """
    find = getattr(
        sys.modules.get(DATA_SOURCES[config.data.data_source].module),
        "find_fault",
        None,
    )
    # TensorFlow quotes a record that is not an Example. It cuts the message at the first
    # zero byte, and Python cannot read a message that is not UTF-8.
    message = str(error)
    is_quoted = isinstance(error, UnicodeDecodeError) or _QUOTES_RECORD in message
    if find is None or not (is_quoted or "IteratorGetNext" in message):
        return ""
    entry.note(f"looking for the record in {config.data.data_dir} that ended the run")
    return str(find(config.data, error))


def describe(error: Exception, config: RunConfig) -> tuple[str, str, bool]:
    """(type, one line for a person, whether this kind of failure is expected) of what ended a run."""
    kind, first_line = type(error).__name__, entry.first_line(error)
    if kind in ("ResourceExhaustedError", "MemoryError") and "No space left" not in str(
        error
    ):
        names = [
            f"--{name}"
            for name in ("src_max_len", "tgt_max_len", "num_units")
            if is_read(config, name)
        ]
        smaller = [f"--batch_size={config.training.batch_size}", *names]
        vocabularies = ["the vocabularies"] if is_read(config, "tgt_vocab_size") else []
        remedy = f"lower {either([*smaller, *vocabularies])}, or use --compute_dtype=bfloat16"
        return kind, f"out of memory: {remedy} ({first_line[:200]})", True
    refusals = [
        line.strip() for line in str(error).splitlines() if ONE_LAYOUT.search(line)
    ]
    if refusals and config.model.data_format != "NHWC":
        remedy = "use --data_format=NHWC, or float32 with oneDNN on (TF_ENABLE_ONEDNN_OPTS=1)"
        cause = refusals[0][:200].rstrip(".")
        return (
            kind,
            f"--data_format={config.model.data_format}: unsupported here ({cause}); {remedy}",
            True,
        )
    kinds = (NotFiniteError, DeviceError, OSError, ClusterError, CheckpointError)
    expected = isinstance(error, kinds) or kind == "DataError"
    return kind, first_line if expected else f"{kind}: {first_line[:500]}", expected
