"""The measurements of a run of the suite's trainer, for its record at any time.

The training loop writes a `RunState`; observers, checkpoints and the other ranks'
reports read it. Only `RunState` knows which thread may do what.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.learning import ACCURACY
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workloads import name_item_unit
from rnn_scaling.records import certificate as certificates
from rnn_scaling.records.certificate import Certificate
from rnn_scaling.records.decoding import encode
from rnn_scaling.records.parts import Batches, Resumption, RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import Graph, Trace
from rnn_scaling.records.workers import Workers
from rnn_scaling.system.processes import early_start
from rnn_scaling.training.checkpoint_folder import Checkpoint
from rnn_scaling.training.recording import Recording
from rnn_scaling.training.worker_steps import WorkerSteps

# Values of each batch that its `StepResult` contains.
COLUMNS = ("loss_items", "tower_items", "tower_positions", "ready", "correct")


class RunState(Recording):
    """The recording of a run of the suite's trainer.

    Its phases are `start`, `cluster` if there are several processes, `build`, `resume`
    after a checkpoint, `batches` and `teardown`.

    The working thread of a run fills it, while the main thread may ask for the record
    or the newest batches at any time, without a lock. Therefore each list only grows,
    and a batch counts only after `end_batch` has extended its last column,
    `tower_items`.

    Attributes:
      graph: The graph of the step, if the run was traced.
      trace: The trace of the step, if the run was traced.
      certificate: The verdict of a watch of this process, or None without a watch.
      checkpoint: The checkpoint from which the run continues, or None.
      weights: The checkpoint whose network is used by a run that does not train.
      resumed: The earlier resumptions of the run: the batch and the seconds of each.
      files: The files that the run reads its data from.
      worker_steps: The steps that a coordinator assigned, if the run has one.
      ended_by: The option that ended the batches, or "".
      skipped_updates: Updates that were skipped because of loss scaling; known at the
        end.
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
            name_item_unit(vars(config.model)),
            {"scaling": scaling},
            clock,
            started,
        )
        # Whether the process was started before its turn, which has begun.
        self._is_in_turn = False
        self.graph: Graph | None = None
        self.trace: Trace | None = None
        self.certificate: Certificate | None = None
        # The values of each batch, by the names of a `records.workers.Rank`. `ready`
        # and `correct` are empty unless the run has them.
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self.checkpoint: Checkpoint | None = None
        self.weights: Path | None = None
        self.resumed: list[Resumption] = []
        self.files: Sequence[str] = ()
        self.worker_steps = WorkerSteps(config.cluster.num_workers, self.timer)
        self.ended_by = ""
        self.skipped_updates: int | None = None

    def wait_for_turn(self) -> None:
        """Wait until it is the turn of this process, which was started before."""
        self.phases.wait_outside(early_start.wait_for_turn)
        self._is_in_turn = True

    def wait_for_following(self) -> None:
        """Wait until the next process has loaded, if one may start early.

        After that, the load of the run's cores is measured.
        """
        if self._is_in_turn:
            self.phases.wait_outside(early_start.wait_for_following)
            self.machine.restart_load()

    def end_batch(self, result: Any) -> None:
        """Keep the `StepResult` of the batch that has just ended."""
        columns = self._columns
        columns["tower_positions"].append([int(n) for n in result.positions])
        columns["loss_items"].append(int(result.loss_items.sum()))
        if result.ready_s is not None:
            columns["ready"].append(max(0.0, result.ready_s))
        if result.correct is not None:
            columns["correct"].append(int(result.correct.sum()))
        # This column is the last one, so that its length is the number of batches that
        # all columns contain.
        columns["tower_items"].append([int(n) for n in result.items])

    def resume_from(self, checkpoint: Checkpoint) -> None:
        """Take over the batches that were done before a checkpoint.

        It must be called before the phase of the batches.
        """
        columns = checkpoint.columns
        self.checkpoint = checkpoint
        self.resumed = list(checkpoint.resumed)
        self.timer.step_s = list(columns["seconds"])
        self.timer.step_items = list(columns["items"])
        self.timer.step_loss = [
            math.nan if loss is None else loss for loss in columns["loss"]
        ]
        self._columns = {name: list(columns.get(name, ())) for name in COLUMNS}
        self.phases.carried_s = math.fsum(self.timer.step_s)

    @property
    def first_step(self) -> int:
        """The number of the first step that this process runs.

        After a checkpoint, the last steps before it are repeated as a warm-up.
        """
        if self.checkpoint is None:
            return 0
        return max(0, self.checkpoint.batches - max(1, self.timer.warmup_steps))

    def add_resumption(self, batches: int) -> None:
        """Record that the batch after the first `batches` can begin now."""
        resumption = Resumption(batch=batches, seconds=self.phases.elapsed_s())
        self.resumed.append(resumption)

    def sum_recent(
        self, kind: str, num_batches: int
    ) -> tuple[Sequence[float], Sequence[int]]:
        """Return sums over the predictions of each of the last batches.

        Args:
          kind: ACCURACY for correct predictions; anything else for the loss.
          num_batches: Number of batches; fewer if the run has fewer.

        Returns:
          The sum of each batch, and its number of predictions.
        """
        counts = self._columns["loss_items"][-num_batches:]
        if kind == ACCURACY:
            return self._columns["correct"][-num_batches:], counts
        losses = self.timer.step_loss[-num_batches:]
        return [loss * count for loss, count in zip(losses, counts)], counts

    def compute_accuracies(self) -> list[float]:
        """Return the accuracy of each batch; empty if it is not counted."""
        pairs = zip(self._columns["correct"], self._columns["loss_items"])
        return [correct / items for correct, items in pairs]

    def collect_batches(self, first: int) -> dict[str, list[Any]]:
        """Return the batches like `Recording`, with the counts of the towers."""
        stop = min(len(self.timer.step_loss), len(self._columns["tower_items"]))
        batches = self._collect_columns(first, stop)
        for name, values in self._columns.items():
            if values or name != "correct":
                batches[name] = values[first:stop]
        return batches

    def collect_details(self) -> dict[str, Any]:
        """Return the details like `Recording`, with the certificate."""
        return {**super().collect_details(), "certificate": encode(self.certificate)}

    def make_record(
        self, status: str, error: RunError | None = None, workers: Workers | None = None
    ) -> RunRecord:
        """Return the record like `Recording`, with the inspection of the step."""
        # The certificate of this process is the first of all.
        by_rank = [self.certificate]
        if workers:
            by_rank = [rank.certificate for rank in workers.ranks]
        certificate = certificates.merge(filter(None, by_rank))
        result = super().make_record(status, error, workers)
        return dataclasses.replace(
            result, graph=self.graph, trace=self.trace, certificate=certificate
        )

    def _join_batches(self, workers: Workers | None) -> Batches:
        return dataclasses.replace(
            super()._join_batches(workers),
            resumed=tuple(self.resumed) or None,
            ended_by=self.ended_by or None,
            skipped_updates=self.skipped_updates,
        )

    def _collect_tower_columns(self, steps: int) -> dict[str, Any]:
        columns = {
            name: tuple(values[:steps]) for name, values in self._columns.items()
        }
        has_correct = bool(columns["correct"])
        return {
            "tower_items": tuple(map(tuple, columns["tower_items"])),
            "tower_positions": tuple(map(tuple, columns["tower_positions"])),
            "loss_items": columns["loss_items"] if has_correct else None,
            "correct": columns["correct"] if has_correct else None,
        }
