"""Times the steps of any training loop and leaves a run record, which report, compare and audit read like our own."""

import dataclasses
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis import stalls
from rnn_scaling.cluster import launch
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.files.terminal import PROGRESS
from rnn_scaling.machine import load
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.records import record
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Resolved
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import (
    WINDOW,
    Workers,
    sharing_a_core,
    without_each_other,
)
from rnn_scaling.settings.naming import TRAINER
from rnn_scaling.training import acceptance
from rnn_scaling.training.progress import Progress
from rnn_scaling.training.rank_meeting import RankMeeting
from rnn_scaling.training.recording import Recording, killed


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
    not ended.
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
        """unit: what is counted, in the plural: "images", "tokens".
        trainer: what it is called in reports; the program's name when not given.
        device_type: "CPU" or "GPU".
        options: what else tells this run from others: single values by name; a name of our trainer's means the same.
        rank: number of this process among those of the run; None: as its launcher says (torchrun, mpirun, srun).
        num_ranks: how many processes record the run together; None: as its launcher says, else one.
        timeout_s: how long ranks wait for each other at a barrier, and rank 0 for the others at the end, in seconds.
        flops_per_item: floating-point operations of forward and backward; None: not known.
        progress: tells on stderr every few seconds how far the run is; None: where RNN_SCALING_PROGRESS=1 asks for it.
        num_steps: that there will be, warm-up included, for these lines; 0: not known.
        config: all options of one of our trainers, instead of trainer, num_devices, num_warmup_batches and options.
        started: the clock's reading when the program started; now when not given.
        clock: returns seconds.
        """
        if not (isinstance(unit, str) and unit and unit.isprintable()):
            raise ValueError(f"expected a unit as 'tokens', got {unit!r}")
        flat = config or _flat(trainer, num_devices, num_warmup_batches, options or {})
        resolved = {
            "device_type": device_type,
            "scaling": "weak",
            "cpu_affinity": available_cores(),
        }
        flops_per_item = acceptance.single(flops_per_item)
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
        self._ranks: RankMeeting | None = None
        if num_ranks > 1:
            self._ranks = RankMeeting(
                self._path, self._rank, num_ranks, timeout_s, flat["num_warmup_batches"]
            )
        self._result: RunRecord | None = None
        self._is_written, self._items = False, 0
        self._unwaited: str | None = None
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
        """Reads the clock before the first step; a `with` does it. ClusterError if another rank does not come."""
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
        """Leaves out of the clock what the program did since the last step: a validation, a checkpoint.

        Every rank calls it where one does: the others wait for that one in their next step.
        """
        self._timer.resume()

    def step(self, items: Any, loss: Any = math.nan) -> float:
        """A step has ended on all devices, or will have when the loss is read, which this does first.

        Returns its seconds.

        Raises:
          ValueError: if one is no number, or no record may have the step, as one of nothing; it is then left out.
          ClusterError: if another rank does not come to the end of the warm-up.
        """
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

    def _finished(self, error: BaseException | None) -> RunRecord:
        recording, end_s = self.recording, self._timer.since_last()
        if self._display is not None:
            self._display.close()
        recording.stop_watching()
        recording.keep_memory(None)
        steps, warmup = len(self.step_s), self._timer.warmup_steps
        if error is None and steps <= warmup:
            error = ValueError(
                f"{steps} steps, and the first {warmup} are warm-up: lower num_warmup_batches"
            )
        workers, error = self._joined(error)
        if error is None:
            self._unwaited = (
                stalls.sentence(self.step_s[warmup:], self.step_items[warmup:], end_s)
                or None
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
        cautions = [self._unwaited, self.recording.load_caution()]
        entry.warn(*(caution for caution in cautions if caution and error is None))

    def _record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        result = self.recording.record(status, error, workers)
        return dataclasses.replace(
            result, batches=dataclasses.replace(result.batches, unwaited=self._unwaited)
        )


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
