"""Time the steps of any training loop and write a run record.

`Recorder` is the public interface for users' programs, for Keras and for the trainers
of other frameworks: its arguments and methods stay compatible. Everything else in this
module is private to it.
"""

import dataclasses
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from rnn_scaling.analysis import stalls
from rnn_scaling.cluster import launch
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records import early_steps
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Resolved
from rnn_scaling.records.parts import EarlySteps, RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import (
    WINDOW,
    Rank,
    Workers,
    drop_load_of_each_other,
    find_ranks_sharing_cores,
)
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import PROGRESS
from rnn_scaling.system.machine import load
from rnn_scaling.system.machine.cores import list_available_cores
from rnn_scaling.training import acceptance
from rnn_scaling.training.progress import Progress
from rnn_scaling.training.rank_meeting import RankMeeting
from rnn_scaling.training.rank_report import RankReport
from rnn_scaling.training.record_file import RecordFile
from rnn_scaling.training.recording import Recording, make_killed_error

_EARLY_STEPS_REMEDY = (
    "Pass the loss to step(), which waits for it, or synchronise before step(); call "
    "resume() after a pause."
)


class _Updates:
    """Keeps the learning rate and the gradient norm of each step for the record."""

    def __init__(self) -> None:
        self._values: list[tuple[float | None, float | None]] = []

    def add(self, learning_rate: float | None, grad_norm: float | None) -> None:
        self._values.append((learning_rate, grad_norm))

    def make_columns(self, num_steps: int) -> dict[str, Any]:
        """Return fields of a `records.parts.Batches`; None if no step has a value.

        Args:
          num_steps: Steps of the record. A step may be ending in another thread, or
            another rank has fewer steps.
        """
        values = self._values[:num_steps]
        values += [(None, None)] * (num_steps - len(values))
        return {
            "learning_rate": _none_if_all_missing([rate for rate, _ in values]),
            "grad_norm": _none_if_all_missing([norm for _, norm in values]),
        }


class Recorder:
    """Times the steps of a user's training loop and writes the record of the run.

    The user's program, or one of the suite's trainers, creates it and calls it. It
    needs only the standard library.

        with Recorder("run.json", unit="images", num_devices=2) as recorder:
            for batch in batches:
                loss = train_step(batch)
                recorder.step(items=len(batch), loss=loss)

    The seconds of a step run from the end of the step before it, and those of the first
    step from the start of the `with`. A step has ended when the devices have finished
    it, which may be later than Python continues. These calls wait for the devices:

        PyTorch      `step` with a loss, which it reads (`loss.item()`), or
                     `torch.cuda.synchronize()`
        JAX          `jax.block_until_ready(state)`; a loss may be ready before the
                     new weights
        TensorFlow   `step` with a loss, if the step is one `tf.function`

    If a program has several processes, each has a Recorder with the same result file
    and reports its own items. All begin the first step together, and the first step
    after the warm-up. Rank 0 writes the record of all ranks.

    The record is written at the end of the `with`, even after an exception. Until then
    the file contains a record of a run that has not ended. A record has one Recorder
    at a time and gets no step after its end.
    """

    def __init__(
        self,
        result_file: str | os.PathLike[str],
        *,
        unit: str = "items",
        num_devices: int = 1,
        trainer: str = "",
        num_warmup_batches: int = 10,
        device_type: str = "CPU",
        options: Mapping[str, Any] | None = None,
        rank: int | None = None,
        num_ranks: int | None = None,
        timeout_s: float = 300.0,
        flops_per_item: float | None = None,
        progress: bool | None = None,
        num_steps: int = 0,
        config: Mapping[str, Any] | None = None,
        started: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Start the record of a run.

        Args:
          result_file: The record; no other Recorder may have it open.
          unit: The unit of the items, in the plural: "images", "tokens".
          num_devices: Devices that this process uses.
          trainer: The program's name in reports; by default the name of its file.
          num_warmup_batches: Steps at the beginning that are not measured.
          device_type: "CPU" or "GPU".
          options: Further options that distinguish this run: single values by name. A
            name of one of the suite's options has the same meaning.
          rank: Number of this process; None to read it from the variables of the
            launcher (torchrun, mpirun, srun).
          num_ranks: Number of processes that record the run together; None to read it
            from the launcher, or 1 without one.
          timeout_s: Seconds for which ranks wait for each other at a barrier, and rank
            0 for the others at the end.
          flops_per_item: Floating-point operations of forward and backward per item;
            None if unknown.
          progress: Whether to print the progress on stderr every few seconds; None to
            read the variable RNN_SCALING_PROGRESS.
          num_steps: Number of steps with the warm-up, for the progress; 0 if unknown.
          config: All options of one of the suite's trainers, instead of trainer,
            num_devices, num_warmup_batches and options.
          started: The clock's reading when the program started; None for now.
          clock: Returns seconds.

        Raises:
          ValueError: If an argument cannot be in a record, or if another Recorder has
            not closed `result_file` yet.
        """
        timeout_s = acceptance.require_finite("timeout_s", timeout_s, is_positive=True)
        num_steps = acceptance.require_whole("num_steps", num_steps, minimum=0)
        if started is not None:
            started = acceptance.require_finite("started", started)
        options = config or _flatten_options(
            trainer, num_devices, num_warmup_batches, options or {}
        )
        # The unfinished record. The suite's trainers fill its `resolved` and
        # `parameters`.
        self.recording = _make_recording(
            options,
            unit=unit,
            device_type=device_type,
            flops_per_item=flops_per_item,
            clock=clock,
            started=started,
        )
        self._file = RecordFile(result_file)
        self._place = _detect_rank(rank, num_ranks)
        self.recording.clients = self._place.size
        if self._place.rank == 0:
            self._file.require_free()
        self._meeting: RankMeeting | None = None
        if self._place.size > 1:
            self._meeting = RankMeeting(
                self._file.path,
                rank=self._place.rank,
                num_ranks=self._place.size,
                timeout_s=timeout_s,
                warmup=options["num_warmup_batches"],
            )
        # A forked child inherits the Recorder, but must not write the record.
        self._process = os.getpid()
        self._num_items = 0
        self._updates = _Updates()
        self._early_steps: EarlySteps | None = None
        self._result: RunRecord | None = None
        self._display: Progress | None = None
        if self._place.rank == 0:
            if _shows_progress(progress):
                scope = " at rank 0" if self._place.size > 1 else ""
                self._display = Progress(
                    enabled=True,
                    total=num_steps,
                    warmup=num_warmup_batches,
                    unit=unit,
                    scope=scope,
                )
            self._file.open(self._unfinished_record())

    def __enter__(self) -> "Recorder":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(error)

    def start(self) -> None:
        """Read the clock before the first step. A `with` calls this.

        Raises:
          ClusterError: If another rank does not join.
          RuntimeError: If the record is already written.
        """
        self._require_open("start")
        # The process may be a child of the one that created this object.
        self._process = os.getpid()
        if self._meeting is not None:
            self.recording.phases.enter("cluster")
            try:
                self._meeting.join()
            except ClusterError as e:
                self.close(e)
                raise
        self.recording.phases.enter("batches")
        is_rank_0 = self._place.rank == 0
        self.recording.watch_machine(is_rank_0, load.sample_with_descendants)
        if not self.recording.timer.warmup_steps:
            self.recording.machine.start_measuring()
        self.recording.timer.start()

    def resume(self) -> None:
        """Leave the time since the last step out of the clock.

        Call it after a validation or a checkpoint. If one rank calls it, all ranks
        must, because the others wait for that rank in their next step.

        Raises:
          RuntimeError: If the record is already written.
        """
        self._require_open("resume")
        self.recording.machine.end_window()
        self.recording.timer.resume()

    def step(
        self,
        items: Any,
        loss: Any = math.nan,
        *,
        grad_norm: Any = None,
        learning_rate: Any = None,
    ) -> float:
        """Record that a step has ended on all devices.

        Args:
          items: Items of the step, at least one.
          loss: The loss; reading it waits until the devices have finished the step.
          grad_norm: Norm of the gradient of all devices, after the exchange and before
            clipping; None if unknown. A norm that is not finite is recorded as unknown.
          learning_rate: Learning rate of the update, a finite number; None if unknown.
            Of several ranks, the record has the rates and norms of rank 0.

        Returns:
          The seconds of the step.

        Raises:
          ValueError: If an argument is not a number, or a record may not contain the
            step; the step is then left out.
          ClusterError: If another rank does not reach the end of the warm-up.
          RuntimeError: If the record is already written.
        """
        self._require_open("step")
        timer = self.recording.timer
        unit = self.recording.unit
        number = len(timer.step_s)
        loss = acceptance.read_loss(number, loss)
        count = acceptance.read_items(number, items, unit, self._num_items)
        learning_rate = acceptance.read_learning_rate(number, learning_rate)
        grad_norm = acceptance.read_grad_norm(number, grad_norm)
        seconds = timer.end_step(count, loss)
        if fault := acceptance.find_time_fault(seconds, count, unit):
            timer.remove_last()
            raise ValueError(f"step {number}: {fault}")
        self._num_items += count
        self._updates.add(learning_rate, grad_norm)
        if self._display is not None:
            self._display.show_batch(seconds, count, loss)
        self._end_window()
        return seconds

    def _end_window(self) -> None:
        """Read the meters after a step if it is time; no step contains the reading."""
        timer = self.recording.timer
        if len(timer.step_s) == timer.warmup_steps:
            if self._meeting is not None:
                self._meeting.barrier(f"after {timer.warmup_steps} steps")
            self.recording.machine.start_measuring()
            timer.resume()
        elif self.recording.machine.end_window():
            timer.resume()

    @property
    def step_s(self) -> list[float]:
        """Seconds of every step so far, in this process."""
        return self.recording.timer.step_s

    @property
    def step_items(self) -> list[int]:
        """Items of every step so far, in this process."""
        return self.recording.timer.step_items

    def close(self, error: BaseException | None = None) -> RunRecord:
        """Write the record and return it. A `with` calls this.

        A process that was forked from the one that times the loop writes nothing.

        Args:
          error: The exception that ended the loop, or None. After an exception,
            problems here are only warnings.

        Returns:
          The record. Ranks other than 0 return only their own part.

        Raises:
          OSError: If the file cannot be written; another call tries again.
        """
        if os.getpid() != self._process:
            return self._unfinished_record()
        try:
            self._complete(error)
        except Exception as e:
            reason = getattr(e, "strerror", None) or acceptance.format_one_line(e)
            reason = f"{reason}; the record was not written"
            if error is None and isinstance(e, OSError):
                raise OSError(
                    e.errno, f"{reason}; close() tries again", str(self._file.path)
                ) from e
            if error is None:
                raise
            entry.warn(f"{self._file.path}: {reason}")
        return self._result or self._unfinished_record()

    def _complete(self, error: BaseException | None) -> None:
        """Complete the record and, at rank 0, write it, unless a call before has."""
        is_rank_0 = self._place.rank == 0
        if self._result is None:
            result = self._finish_record(error)
            self._result = acceptance.make_readable(result) if is_rank_0 else result
        if is_rank_0 and self._file.write(self._result):
            self._print_warnings(self._result)

    def _require_open(self, method: str) -> None:
        """Refuse a call after the end; no record would contain its step."""
        if self._result is not None:
            raise RuntimeError(
                f"{method}() was called after the end: {self._file.path} is complete; "
                "create another Recorder with its own result file"
            )

    def _finish_record(self, error: BaseException | None) -> RunRecord:
        """Stop all meters and return the record of the whole run."""
        recording = self.recording
        end_s = recording.timer.measure_since_last()
        if self._display is not None:
            self._display.close()
        entry.warn(*recording.machine.stop())
        recording.keep_memory(None)

        num_steps = len(self.step_s)
        warmup = recording.timer.warmup_steps
        if error is None and num_steps <= warmup:
            error = ValueError(
                f"the run has no step after the warm-up (steps: {num_steps}); "
                f"lower num_warmup_batches={warmup}"
            )
        workers = None
        if self._meeting is not None:
            workers, error = self._meet_at_end(self._meeting, error)
        if error is None:
            self._early_steps = stalls.find_early_steps(
                self.step_s[warmup:], self.step_items[warmup:], end_s
            )
            return self._make_record("ok", workers=workers)
        status = "failed"
        kind = type(error).__name__
        if isinstance(error, KeyboardInterrupt):
            status = "interrupted"
            kind = "Interrupted"
        run_error = RunError(type=kind, message=acceptance.format_one_line(error))
        return self._make_record(status, run_error, workers)

    def _unfinished_record(self) -> RunRecord:
        return self._make_record("failed", make_killed_error())

    def _meet_at_end(
        self, meeting: RankMeeting, error: BaseException | None
    ) -> tuple[Workers | None, BaseException | None]:
        """Wait for the other ranks, unless this one has failed.

        Returns:
          At rank 0 all ranks; and the error that leaves the run without a result.
        """
        report = RankReport(
            self.recording.collect_batches(0), self.recording.collect_details()
        )
        message = acceptance.format_one_line(error) if error else ""
        ranks, failure = meeting.end(report, message)
        if self._place.rank or not ranks:
            return None, error
        failure = failure or _find_different_steps(ranks, len(self.step_s))
        if error is None and failure:
            error = ClusterError(failure)
        launcher = self._place.launcher or None
        workers = Workers(launcher=launcher, window=WINDOW, ranks=ranks)
        if 0 in find_ranks_sharing_cores(workers):
            # The meter counted the other ranks as other programs.
            self.recording.machine.load = None
        return drop_load_of_each_other(workers), error

    def _print_warnings(self, result: RunRecord) -> None:
        """Warn about a run that may not be trusted."""
        error = result.error
        if error is None:
            cautions = []
            # A sweep finds the load in the record.
            if not self._file.is_for_sweep():
                cautions.append(self.recording.machine.describe_disturbance(result))
            if self._early_steps is not None:
                sign = early_steps.describe(self._early_steps)
                cautions.insert(0, f"{sign} {_EARLY_STEPS_REMEDY}")
            entry.warn(*filter(None, cautions))
            return
        is_unexpected = error.type in (ClusterError.__name__, acceptance.UNREADABLE)
        if is_unexpected or not self.step_s:
            entry.warn(f"{self._file.path}: {error.message}")

    def _make_record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        """Return the record as of now, with the rates and norms of the updates."""
        result = self.recording.make_record(status, error, workers)
        num_steps = len(result.batches.seconds)
        batches = dataclasses.replace(
            result.batches,
            early_steps=self._early_steps,
            **self._updates.make_columns(num_steps),
        )
        return dataclasses.replace(result, batches=batches)


def _make_recording(
    options: Mapping[str, Any],
    unit: str,
    device_type: str,
    flops_per_item: float | None,
    clock: Callable[[], float],
    started: float | None,
) -> Recording:
    """Check what a record must contain, and start the recording.

    Raises:
      ValueError: If an argument cannot be in a record.
    """
    _require_unit(unit)
    if flops_per_item is not None:
        flops_per_item = acceptance.require_finite(
            "flops_per_item", flops_per_item, is_positive=True
        )
    resolved = {
        "device_type": device_type,
        "scaling": "weak",
        "cpu_affinity": list_available_cores(),
    }
    acceptance.check(
        options,
        resolved=build(Resolved, resolved),
        unit=unit,
        flops_per_item=flops_per_item,
    )
    recording = Recording(
        options, unit=unit, resolved=resolved, clock=clock, started=started
    )
    recording.flops_per_item = flops_per_item
    if TRAINER in options:
        recording.program.folder = _find_current_folder()
    return recording


def _shows_progress(progress: bool | None) -> bool:
    """Return the argument `progress`; if it is None, the choice of the environment."""
    if progress is None:
        return os.environ.get(PROGRESS, "0") not in ("", "0")
    return progress


def _require_unit(unit: Any) -> None:
    if not (isinstance(unit, str) and unit and unit.isprintable()):
        raise ValueError(f"unit={unit!r} must be a name such as 'tokens'")


def _none_if_all_missing(
    values: Sequence[float | None],
) -> tuple[float | None, ...] | None:
    """Return the values of all steps; None if no step has one."""
    if all(value is None for value in values):
        return None
    return tuple(values)


def _detect_rank(rank: int | None, num_ranks: int | None) -> launch.DetectedRank:
    """Return the rank of this process, from the program or else from the launcher.

    Args:
      rank: The rank that the program gave, or None.
      num_ranks: The number of ranks that it gave, or None.

    Raises:
      ValueError: If a number is not whole, or the rank is not below `num_ranks`.
    """
    if rank is not None:
        rank = acceptance.require_whole("rank", rank, minimum=0)
    if num_ranks is not None:
        num_ranks = acceptance.require_whole("num_ranks", num_ranks, minimum=1)
    launched = launch.DetectedRank(rank=0, size=1, launcher="")
    if num_ranks != 1 and None in (rank, num_ranks):
        launched = launch.detect_rank(os.environ, socket.gethostname())
    if rank is None:
        rank = launched.rank
    if num_ranks is None:
        num_ranks = launched.size
    if not 0 <= rank < num_ranks:
        raise ValueError(
            f"rank={rank} must be from 0 to num_ranks - 1 (num_ranks={num_ranks})"
        )
    return launch.DetectedRank(rank, num_ranks, launched.launcher)


def _find_different_steps(ranks: tuple[Rank, ...], num_steps: int) -> str:
    """Return an error if a rank took more or fewer steps than rank 0, or ""."""
    for rank in ranks:
        if len(rank.seconds) != num_steps:
            return (
                f"rank {rank.rank} has {len(rank.seconds)} steps, but rank 0 has "
                f"{num_steps}; give every rank the same number of steps"
            )
    return ""


def _find_current_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # the folder was removed
        return None


def _flatten_options(
    trainer: str, num_devices: Any, num_warmup_batches: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of another trainer's run as a record contains them."""
    flat = {
        TRAINER: trainer or Path(sys.argv[0] or "python").stem,
        "num_devices": acceptance.convert_to_python(num_devices),
        "num_warmup_batches": acceptance.convert_to_python(num_warmup_batches),
    }
    for name, value in options.items():
        flat[str(name)] = acceptance.convert_to_python(value)
    return flat
