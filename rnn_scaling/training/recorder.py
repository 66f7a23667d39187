"""Times the steps of any training loop and leaves a run record, which report, compare and audit read like our own."""

import dataclasses
import math
import os
import socket
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rnn_scaling.analysis import stalls
from rnn_scaling.cluster import launch
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records import record
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Resolved
from rnn_scaling.records.parts import EarlySteps, EarlyStepsKind, RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import (
    WINDOW,
    Workers,
    sharing_a_core,
    without_each_other,
)
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import PROGRESS
from rnn_scaling.system.machine import load
from rnn_scaling.system.machine.cores import available_cores
from rnn_scaling.system.processes import alive
from rnn_scaling.training import acceptance
from rnn_scaling.training.progress import Progress
from rnn_scaling.training.rank_meeting import RankMeeting
from rnn_scaling.training.recording import Recording, killed

# The Recorders of this process that have not written their record, by its path.
_OPEN: weakref.WeakValueDictionary[str, "Recorder"] = weakref.WeakValueDictionary()


class Recorder:
    """The clock of a user's training loop; standard library alone.

        with Recorder("run.json", unit="images", num_devices=2) as recorder:
            for batch in batches:
                loss = train_step(batch)
                recorder.step(items=len(batch), loss=loss)  # reads the loss: the devices have then finished

    A step's seconds run from the end of the step before it, the first one's from the beginning of the `with`. A step
    has ended when the devices have finished it, and not when Python goes on. What waits for them:

        PyTorch      a loss that `step` reads as a number (`loss.item()`), or `torch.cuda.synchronize()`
        JAX          the same, or `jax.block_until_ready(state)`; the loss alone may be there before the new weights
        TensorFlow   the same (`loss.numpy()`), where the step is one `tf.function`

    Of a program of several processes each has a Recorder with the same result file, and each tells its own items. They
    begin the first step together, and the first one after the warm-up; rank 0 writes the record of all.

    The record is written at the end of the `with`, also by an exception; while it goes on, the file says that it has
    not ended. A record has one Recorder at a time, and no step after its end.
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
          unit: What is counted, in the plural: "images", "tokens".
          num_devices: Devices that this process uses.
          trainer: The program's name in reports; by default the name of its file.
          num_warmup_batches: Steps at the beginning that are not measured.
          device_type: "CPU" or "GPU".
          options: What else distinguishes this run from others: single values by name.
            A name of the suite's own options means the same as there.
          rank: Number of this process among those of the run; None: as its launcher
            says (torchrun, mpirun, srun).
          num_ranks: How many processes record the run together; None: as the launcher
            says, otherwise one.
          timeout_s: Seconds for which ranks wait for each other at a barrier, and rank
            0 for the others at the end.
          flops_per_item: Floating-point operations of forward and backward per item;
            None if unknown.
          progress: Whether to print the progress on stderr every few seconds; None: if
            RNN_SCALING_PROGRESS=1 asks for it.
          num_steps: Steps that there will be, warm-up included, for the progress; 0 if
            unknown.
          config: All options of one of the suite's trainers, instead of trainer,
            num_devices, num_warmup_batches and options.
          started: The clock's reading when the program started; None: now.
          clock: Returns seconds.

        Raises:
          ValueError: If an argument cannot be in a record, or if another Recorder has
            not closed `result_file` yet.
        """
        timeout_s = acceptance.finite("timeout_s", timeout_s, is_positive=True)
        num_steps = acceptance.whole("num_steps", num_steps, minimum=0)
        if started is not None:
            started = acceptance.finite("started", started)
        if rank is not None:
            rank = acceptance.whole("rank", rank, minimum=0)
        if num_ranks is not None:
            num_ranks = acceptance.whole("num_ranks", num_ranks, minimum=1)
        if flops_per_item is not None:
            flops_per_item = acceptance.finite(
                "flops_per_item", flops_per_item, is_positive=True
            )
        if not (isinstance(unit, str) and unit and unit.isprintable()):
            raise ValueError(f"expected a unit as 'tokens', got {unit!r}")
        flat = config or _flat(trainer, num_devices, num_warmup_batches, options or {})
        resolved = {
            "device_type": device_type,
            "scaling": "weak",
            "cpu_affinity": available_cores(),
        }
        acceptance.check(
            flat,
            resolved=build(Resolved, resolved),
            unit=unit,
            flops_per_item=flops_per_item,
        )
        self._path, self._unit, self._process = Path(result_file), unit, os.getpid()
        # The unfinished record; our trainers fill its `resolved` and `parameters`.
        self.recording = Recording(flat, unit, resolved, clock, started)
        self.recording.flops_per_item = flops_per_item
        if TRAINER in flat:
            self.recording.program_folder = _current_folder()
        self._timer = self.recording.timer
        launched_rank, size, self._launcher = 0, 1, ""
        if num_ranks != 1 and None in (rank, num_ranks):
            launched_rank, size, self._launcher = launch.place(
                os.environ, socket.gethostname()
            )
        self._rank, num_ranks = (
            launched_rank if rank is None else rank,
            size if num_ranks is None else num_ranks,
        )
        if not 0 <= self._rank < num_ranks:
            raise ValueError(
                f"expected rank from 0 to num_ranks - 1, got {self._rank} of {num_ranks}"
            )
        self.recording.clients = num_ranks
        if self._rank == 0:
            _require_closed(self._path)
        self._ranks: RankMeeting | None = None
        if num_ranks > 1:
            self._ranks = RankMeeting(
                self._path, self._rank, num_ranks, timeout_s, flat["num_warmup_batches"]
            )
        self._result: RunRecord | None = None
        self._is_written, self._items = False, 0
        self._early_steps: EarlySteps | None = None
        self._display: Progress | None = None
        if progress is None:
            progress = os.environ.get(PROGRESS, "0") not in ("", "0")
        if self._rank == 0 and progress:
            whose = " at rank 0" if num_ranks > 1 else ""
            self._display = Progress(
                True, num_steps, num_warmup_batches, unit, whose=whose
            )
        if self._rank == 0:
            record.write(self._unfinished(), self._path)
            _OPEN[_place(self._path)] = self

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
        """Read the clock before the first step; a `with` does it.

        Raises:
          ClusterError: If another rank does not come.
          RuntimeError: If the record is already written.
        """
        self._require_open("start")
        self._process = (
            os.getpid()
        )  # which may be a child of the one that made this object
        if self._ranks is not None:
            self.recording.enter("cluster")
            try:
                self._ranks.join()
            except ClusterError as e:
                self.close(e)
                raise
        self.recording.enter("batches")
        self.recording.watch_machine(self._rank == 0, load.sample_with_descendants)
        if not self._timer.warmup_steps:
            self.recording.energy.start()
        self._timer.start()

    def resume(self) -> None:
        """Leave out of the clock what the program did since the last step.

        This may be a validation or a checkpoint. If one rank calls it, all ranks must:
        the others wait for that rank in their next step.

        Raises:
          RuntimeError: If the record is already written.
        """
        self._require_open("resume")
        self._timer.resume()

    def step(self, items: Any, loss: Any = math.nan) -> float:
        """Record that a step has ended on all devices.

        Args:
          items: Items of the step, at least one.
          loss: The loss; reading it waits until the devices have finished the step.

        Returns:
          The seconds of the step.

        Raises:
          ValueError: If an argument is not a number, or a record may not contain the
            step; the step is then left out.
          ClusterError: If another rank does not reach the end of the warm-up.
          RuntimeError: If the record is already written.
        """
        self._require_open("step")
        timer = self._timer
        number = len(timer.step_s)
        loss = acceptance.loss(number, loss)
        count = acceptance.items(number, items, self._unit, self._items)
        seconds = timer.end_step(count, loss)
        if wrong := acceptance.time_fault(seconds, count, self._unit):
            timer.forget_last()
            raise ValueError(f"step {number}: {wrong}")
        self._items += count
        if self._display is not None:
            self._display.batch(seconds, count, loss)
        if len(timer.step_s) == timer.warmup_steps:
            if self._ranks is not None:
                self._ranks.barrier(f"after {timer.warmup_steps} steps")
            self.recording.energy.start()
            timer.resume()
        return seconds

    @property
    def step_s(self) -> list[float]:
        """Seconds of every step so far, in this process."""
        return self._timer.step_s

    @property
    def step_items(self) -> list[int]:
        """Items of every step so far, in this process."""
        return self._timer.step_items

    def close(self, error: BaseException | None = None) -> RunRecord:
        """Writes the record and returns it; a `with` does it. Another rank than 0 returns what it knows, its own part.

        A process that was forked from the one that times the loop writes nothing.

        Args:
          error: what ended the loop; None: it is done. What goes wrong here is then a warning.

        Raises:
          OSError: if the file can no longer be written; another call tries again.
        """
        if os.getpid() != self._process:
            return self._unfinished()
        try:
            if self._result is None:
                result = self._finished(error)
                self._result = result if self._rank else acceptance.readable(result)
            if self._rank == 0 and not self._is_written:
                record.write(self._result, self._path)
                self._is_written = True
                _OPEN.pop(_place(self._path), None)
                self._tell(self._result.error)
        except Exception as e:
            reason = f"{getattr(e, 'strerror', None) or acceptance.in_a_line(e)}; the record was not written"
            if error is None and isinstance(e, OSError):
                raise OSError(
                    e.errno, f"{reason}, close() tries again", str(self._path)
                ) from e
            if error is None:
                raise
            entry.warn(f"{self._path}: {reason}")
        return self._result or self._unfinished()

    def _require_open(self, method: str) -> None:
        """Refuse a call after the end, whose step no record would contain."""
        if self._result is not None:
            raise RuntimeError(
                f"{method}() after the end: {self._path} is complete; "
                "create another Recorder with its own result file"
            )

    def _finished(self, error: BaseException | None) -> RunRecord:
        recording, end_s = self.recording, self._timer.since_last()
        if self._display is not None:
            self._display.close()
        entry.warn(*recording.stop_watching())
        recording.keep_memory(None)
        steps, warmup = len(self.step_s), self._timer.warmup_steps
        if error is None and steps <= warmup:
            error = ValueError(
                f"{steps} steps, and the first {warmup} are warm-up: lower num_warmup_batches"
            )
        workers, error = self._joined(error)
        if error is None:
            self._early_steps = stalls.find_early_steps(
                self.step_s[warmup:], self.step_items[warmup:], end_s
            )
            return self._record("ok", workers=workers)
        is_interrupt = isinstance(error, KeyboardInterrupt)
        status, kind = (
            ("interrupted", "Interrupted")
            if is_interrupt
            else ("failed", type(error).__name__)
        )
        return self._record(
            status, RunError(type=kind, message=acceptance.in_a_line(error)), workers
        )

    def _unfinished(self) -> RunRecord:
        return self._record("failed", killed())

    def _joined(
        self, error: BaseException | None
    ) -> tuple[Workers | None, BaseException | None]:
        """All ranks, which rank 0 waits for if it ended well; and why the run has no result."""
        if self._ranks is None:
            return None, error
        report = {
            "batches": self.recording.batches_since(0),
            "details": self.recording.details(),
        }
        ranks, failure = self._ranks.end(
            report, acceptance.in_a_line(error) if error else ""
        )
        if self._rank or not ranks:
            return None, error
        if not failure and (
            differing := [
                rank for rank in ranks if len(rank.seconds) != len(self.step_s)
            ]
        ):
            taken = f"rank {differing[0].rank} took {len(differing[0].seconds)} steps, and rank 0 {len(self.step_s)}"
            failure = f"{taken}: give every rank the same number"
        error = error or (ClusterError(failure) if failure else None)
        workers = Workers(launcher=self._launcher or None, window=WINDOW, ranks=ranks)
        if 0 in sharing_a_core(workers):
            self.recording.load = None  # it took the other ranks for load
        return without_each_other(workers), error

    def _tell(self, error: RunError | None) -> None:
        """What must be known about the run in addition to its record."""
        if error and (
            error.type in (ClusterError.__name__, acceptance.UNREADABLE)
            or not self.step_s
        ):
            entry.warn(f"{self._path}: {error.message}")
        cautions = [
            _early_steps_caution(self._early_steps),
            self.recording.load_caution(),
        ]
        entry.warn(*(caution for caution in cautions if caution and error is None))

    def _record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        result = self.recording.record(status, error, workers)
        return dataclasses.replace(
            result,
            batches=dataclasses.replace(result.batches, early_steps=self._early_steps),
        )


def _early_steps_caution(found: EarlySteps | None) -> str:
    """Return a warning about steps that did not wait for the devices, or ""."""
    if found is None:
        return ""
    total = f"all {found.total_steps} steps took {found.total_seconds:.3g} s"
    if found.kind == EarlyStepsKind.LONG_END:
        pattern = f"{found.seconds:.3g} s passed after the last step"
    elif found.kind == EarlyStepsKind.FAST_START:
        pattern = f"the first {found.steps} took {found.seconds:.3g} s"
    else:
        pattern = f"{found.steps} of them took {found.seconds:.3g} s"
    return (
        f"{total}, and {pattern}: was step() called before the devices had finished? "
        "Give step() the loss, which it waits for, or synchronise before it; call "
        "resume() after a pause."
    )


def _require_closed(path: Path) -> None:
    """Refuse a record that another Recorder has open.

    Raises:
      ValueError: If one has, in this process or in another one that still runs.
    """
    if _place(path) in _OPEN:
        raise ValueError(
            f"result_file={path} is in use by another Recorder of this process; "
            "close() it first, or give each its own file"
        )
    if _is_open_elsewhere(path):
        raise ValueError(
            f"result_file={path} is in use by the Recorder of another process; give "
            "each its own file, or rank and num_ranks if they train together"
        )


def _is_open_elsewhere(path: Path) -> bool:
    try:
        unfinished = record.read(path)
    except (OSError, record.RecordError):  # no record yet, or another file
        return False
    # A sweep's record of the program that it starts has no environment yet.
    if unfinished.environment.started is None or unfinished.error is None:
        return False
    process = unfinished.error.process
    return process != alive.this_process() and alive.is_alive(process)


def _place(path: Path) -> str:
    return os.path.realpath(path)


def _current_folder() -> Path | None:
    try:
        return Path.cwd()
    except OSError:  # it was removed
        return None


def _flat(
    trainer: str, num_devices: Any, num_warmup_batches: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options of another trainer's run, as a record holds them."""
    return {
        TRAINER: trainer or Path(sys.argv[0] or "python").stem,
        "num_devices": acceptance.single(num_devices),
        "num_warmup_batches": acceptance.single(num_warmup_batches),
        **{str(name): acceptance.single(value) for name, value in options.items()},
    }
