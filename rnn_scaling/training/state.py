"""What is known of a run of our trainer so far: its record can be made at any moment, also when it fails."""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.learning import ACCURACY
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workloads import unit_of
from rnn_scaling.records import certificate as certificates
from rnn_scaling.records.certificate import Certificate
from rnn_scaling.records.decoding import encode
from rnn_scaling.records.parts import Batches, Resumption, RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import Graph, Trace
from rnn_scaling.records.workers import Workers
from rnn_scaling.system.machine.load import LoadMeter
from rnn_scaling.system.processes import early_start
from rnn_scaling.training.checkpoint_folder import Checkpoint
from rnn_scaling.training.recording import Recording

COLUMNS = (
    "loss_items",
    "tower_items",
    "tower_positions",
    "ready",
    "correct",
)  # of each batch, by its `StepResult`


@dataclasses.dataclass(frozen=True)
class Done:
    """One step of a worker that a coordinator handed it."""

    number: int
    worker: int  # its number among the workers
    staleness: int  # updates by other steps since it began to read the variables
    loss_sum: float
    loss_items: float
    items: int
    positions: int
    correct: int | None = None


class RunState(Recording):
    """A recording of our trainer. `start`, `cluster` if there is one, `build`, `resume` where it goes on from a
    checkpoint, `batches` and `teardown` are entered in this order.
    """

    def __init__(
        self,
        config: RunConfig,
        clock: Callable[[], float] = time.perf_counter,
        started: float | None = None,
    ) -> None:
        self._config = config
        scaling = "strong" if config.training.global_batch_size else "weak"
        super().__init__(
            config.flat(),
            unit_of(vars(config.model)),
            {"scaling": scaling},
            clock,
            started,
        )
        self._in_turn = False  # it was started before its turn, which has begun
        self.graph: Graph | None = None
        self.trace: Trace | None = None
        self.certificate: Certificate | None = None  # what a watch of this process saw
        # Of each batch, by the names of a `records.workers.Rank`; ready and correct stay empty unless they are needed.
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.checkpoint: Checkpoint | None = None  # that the run goes on from
        self.weights: Path | None = (
            None  # the checkpoint whose network a run uses that does not train
        )
        self.resumed: list[Resumption] = []
        self.files: Sequence[str] = ()  # that the run reads its data from
        self.steps: Sequence[
            Done
        ] = ()  # that a coordinator handed out, by their ends; as many for each batch
        self.ended_by = ""  # the option that ended the batches
        self.skipped_updates: int | None = None  # known at the end, with loss scaling

    def wait_for_turn(self) -> None:
        """For a process that was started before its turn."""
        self._leave_out(early_start.wait_for_turn)
        self._in_turn = True

    def wait_for_following(self) -> None:
        """Waits until the next process has loaded, if one may; the load of the run's cores is watched from then on."""
        if self._in_turn:
            self._leave_out(early_start.wait_for_following)
            self._meter = LoadMeter(self.resolved["cpu_affinity"])

    def _leave_out(self, wait: Callable[[], None]) -> None:
        """Waits; these seconds belong to no phase, as a run that is alone does not wait."""
        began = self._clock()
        wait()
        waited = self._clock() - began
        self._entered = [(phase, at + waited) for phase, at in self._entered]

    def end_batch(self, result: Any) -> None:
        """Keeps what the towers did in the batch that has just ended; `result`: its `StepResult`."""
        columns = self._columns
        columns["tower_positions"].append([int(n) for n in result.positions])
        columns["loss_items"].append(int(result.loss_items.sum()))
        if result.ready_s is not None:
            columns["ready"].append(max(0.0, result.ready_s))
        if result.correct is not None:
            columns["correct"].append(int(result.correct.sum()))
        columns["tower_items"].append(
            [int(n) for n in result.items]
        )  # last: where it is, the others are

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Take over the batches that were done before.

        It must be called before the phase of the batches.
        """
        columns = checkpoint.columns
        timer = self.timer
        self.checkpoint = checkpoint
        self.resumed = list(checkpoint.resumed)
        timer.step_s = list(columns["seconds"])
        timer.step_items = list(columns["items"])
        timer.step_loss = [
            math.nan if loss is None else loss for loss in columns["loss"]
        ]
        self._columns = {name: list(columns.get(name, ())) for name in COLUMNS}
        self._carried_s = math.fsum(timer.step_s)

    @property
    def first_step(self) -> int:
        """The number of the first step that this process runs: with a checkpoint the first of its own warm-up."""
        if self.checkpoint is None:
            return 0
        return max(0, self.checkpoint.batches - max(1, self.timer.warmup_steps))

    def has_resumed(self, batches: int) -> None:
        """Keeps how long it took until the batch after so many can begin; to be called then."""
        self.resumed.append(
            Resumption(batch=batches, seconds=self._clock() - self._entered[0][1])
        )

    def learned(self, kind: str, most: int) -> tuple[Sequence[float], Sequence[int]]:
        """(sums, what they are over) of the last batches: of their losses, or their right predictions ("accuracy")."""
        counts = self._columns["loss_items"][-most:]
        if kind == ACCURACY:
            return self._columns["correct"][-most:], counts
        return [
            loss * count for loss, count in zip(self.timer.step_loss[-most:], counts)
        ], counts

    def accuracies(self) -> list[float]:
        """The share of right predictions of each batch; empty if they are not counted."""
        return [
            correct / items
            for correct, items in zip(
                self._columns["correct"], self._columns["loss_items"]
            )
        ]

    def batches_since(self, first: int) -> dict[str, list[Any]]:
        """As of `Recording`, with what the towers did."""
        stop = min(len(self.timer.step_loss), len(self._columns["tower_items"]))
        columns = {
            name: values[first:stop]
            for name, values in self._columns.items()
            if values or name != "correct"
        }
        return {**self._timed(first, stop), **columns}

    def of_worker(self, index: int) -> dict[str, Any]:
        """What a coordinator knows of the steps of one worker, as the fields of a `records.workers.Rank`."""
        steps = [step for step in self._of_batches(0) if step.worker == index]
        losses = [step.loss_sum / step.loss_items for step in steps]
        return {
            "items": [step.items for step in steps],
            "loss": [loss if math.isfinite(loss) else None for loss in losses],
            "loss_items": [int(step.loss_items) for step in steps],
            **(
                {"correct": [step.correct for step in steps]}
                if self._columns["correct"]
                else {}
            ),
        }

    def staleness(self) -> dict[str, int] | None:
        """How many of the measured steps had which staleness, least first; None: no coordinator handed out steps."""
        counts = collections.Counter(
            step.staleness for step in self._of_batches(self.timer.warmup_steps)
        )
        return {
            str(staleness): counts[staleness] for staleness in sorted(counts)
        } or None

    def _of_batches(self, first: int) -> Sequence[Done]:
        """The steps of the batches from this number on; those that ended later belong to none."""
        num_workers = self._config.cluster.num_workers
        return self.steps[num_workers * first : num_workers * len(self.timer.step_s)]

    def details(self) -> dict[str, Any]:
        """As of `Recording`, with what a watch saw."""
        return {**super().details(), "certificate": encode(self.certificate)}

    def record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        """As of `Recording`, with what was looked at inside the step; arguments as in `recording.Recording.record`."""
        # Of all processes, this one first.
        several = (
            [rank.certificate for rank in workers.ranks]
            if workers
            else [self.certificate]
        )
        certificate = certificates.joined(
            certificate for certificate in several if certificate
        )
        result = super().record(status, error, workers)
        return dataclasses.replace(
            result, graph=self.graph, trace=self.trace, certificate=certificate
        )

    def _batches(self, workers: Workers | None) -> Batches:
        return dataclasses.replace(
            super()._batches(workers),
            resumed=tuple(self.resumed) or None,
            ended_by=self.ended_by or None,
            skipped_updates=self.skipped_updates,
        )

    def _of_towers(self, steps: int) -> dict[str, Any]:
        columns = {
            name: tuple(values[:steps]) for name, values in self._columns.items()
        }
        counts = {
            name: columns[name] if columns["correct"] else None
            for name in ("loss_items", "correct")
        }
        return {
            **{
                name: tuple(map(tuple, columns[name]))
                for name in ("tower_items", "tower_positions")
            },
            **counts,
        }
