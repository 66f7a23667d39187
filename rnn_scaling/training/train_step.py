"""The training step: one tf.function that runs every tower on its own device.

`benchmark` builds the step of a run and calls it once per batch. `TrainStep` is also
the base class of the other steps, which replace `_build_step` or, like `ScheduledStep`,
the call.

`inspection` recognises the phases of a step by the name scopes of its operators: input,
exchange, update, and the scopes of `training.tower`.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

# TensorFlow has no public name for the collection of graphs.
from tensorflow.python.eager import context

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data.source import Source
from rnn_scaling.models.workload import Outcome, Workload, make_first_values
from rnn_scaling.training import gradients
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.replica import (
    Gradients,
    VariableState,
    VariableUpdate,
    create_variables,
)
from rnn_scaling.training.slicing import Cut
from rnn_scaling.training.tower import Tower
from rnn_scaling.training.worker_steps import WorkerStep


@dataclasses.dataclass(frozen=True)
class StepResult:
    """The counts of one step; each array has one entry per tower.

    Attributes:
      loss_sum: Sum of the loss over the tower's `loss_items`.
      loss_items: Predictions that the loss is a mean over.
      items: Items without padding.
      positions: Computed positions, with padding.
      ready_s: Seconds until the last tower had computed its gradients, or None if
        that is unknown.
      correct: Correct predictions among `loss_items`, or None if not counted.
    """

    loss_sum: np.ndarray
    loss_items: np.ndarray
    items: np.ndarray
    positions: np.ndarray
    ready_s: float | None = None
    correct: np.ndarray | None = None

    @property
    def loss(self) -> float:
        """Mean loss over the global batch."""
        return float(self.loss_sum.sum() / self.loss_items.sum())

    @property
    def accuracy(self) -> float | None:
        """Share of correct predictions in the global batch, or None if not counted."""
        if self.correct is None:
            return None
        return float(self.correct.sum() / self.loss_items.sum())


# The counts of each tower, and the time when all gradients were ready.
StepOutputs = tuple[list[tf.Tensor], "tf.Tensor | None"]


class TrainStep:
    """Runs one training step per call and waits until all devices have finished it.

    Attributes:
      runs_between_calls: Whether steps also run between two calls. The clock may then
        not leave out a pause.
      finished_steps: Steps of single workers, if a coordinator schedules them. One
        call waits for several of them.
      engine: The devices.
      towers: One per device of this process.
      cut: The cut of one global batch for the towers, or None if it is not cut. It is
        known after the step was traced.
      function_graphs: The graphs of the first call (RunMetadata.FunctionGraphs): before
        and after optimization, and per partition. TensorFlow returns them only then.
      tower_gradients: The symbolic gradients per tower, after the step was traced.
      count_lost: Returns the number of workers that have died.
    """

    runs_between_calls = False
    finished_steps: Sequence[WorkerStep] = ()
    cut: Cut | None = None

    def __init__(
        self,
        workload: Workload,
        source: Source,
        update: VariableUpdate,
        engine: Engine,
        config: RunConfig,
    ) -> None:
        self._workload = workload
        self._source = source
        self._update = update
        self._config = config
        self.engine = engine
        with tf.device(engine.host):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._function = tf.function(self._build, autograph=False)
        self._collects_graphs = config.output.trace_batches > 0
        self.function_graphs: list[Any] = []
        seed = config.training.seed
        self._moving = [
            create_variables(
                workload.moving,
                make_first_values(workload.moving, seed),
                device,
                f"tower_{number}/moving",
            )
            for number, device in enumerate(engine.devices)
        ]
        # Checkpoints name a variable by the first path to it in the order of the
        # attributes' names. `towers` must come after `_moving` and `_update`, so that
        # older checkpoints can be read.
        self.towers = [
            Tower(number, workload, update, engine, seed, moving)
            for number, moving in enumerate(self._moving)
        ]
        self.tower_gradients: tuple[Gradients, ...] = ()
        self.count_lost: Callable[[], int] = lambda: 0

    def __call__(self) -> StepResult:
        start = time.time()  # the clock of tf.timestamp
        if self._collects_graphs and not self.function_graphs:
            counts, ready = self._run_and_collect_graphs()
        else:
            counts, ready = self._function()
        # The counts of a tower leave its device after all earlier work, such as the
        # update.
        rows = [tower_counts.numpy() for tower_counts in counts]
        loss_sum, loss_items, items, positions, *correct = np.stack(rows).T
        ready_s = None if ready is None else float(ready) - start
        return StepResult(loss_sum, loss_items, items, positions, ready_s, *correct)

    def _run_and_collect_graphs(self) -> Any:
        context.context().enable_graph_collection()
        try:
            result = self._function()
            metadata = context.context().export_run_metadata()
            self.function_graphs = list(metadata.function_graphs)
        finally:
            context.context().disable_graph_collection()
        return result

    def go_to(self, number: int) -> None:
        """Make `number` the number of the next step."""
        self._step.assign(number)

    def end(self) -> int:
        """Wait for work that continues after the last call.

        Returns:
          The number of updates beyond one per step.
        """
        return 0

    def count_skipped_updates(self) -> int | None:
        """Return the number of updates that were skipped.

        An update is skipped if a gradient is not finite. None without loss scaling.
        """
        return self._update.count_skipped_updates()

    def graph(self) -> tf.Graph:
        """Return the traced graph of the step, before TensorFlow changes it."""
        return self._function.get_concrete_function().graph

    def list_variables(self) -> list[VariableState]:
        """Return every variable that the update changes."""
        return self._update.list_variables()

    def moving(self) -> list[dict[str, tf.Variable]]:
        """Return each tower's moving averages by name.

        Batch normalisation has such averages.
        """
        return self._moving

    def _build(self) -> StepOutputs:
        """Trace one step and the increment of the step's number."""
        with tf.name_scope("input/"):
            step = self._step.read_value()
        outputs = self._build_step(step)
        with tf.name_scope("input/"):
            self._step.assign_add(1)
        return outputs

    def _build_step(self, step: tf.Tensor) -> StepOutputs:
        """Trace the step with this number and its update."""
        num_batches = self._config.training.gradient_accumulation_steps
        with tf.name_scope("input/"):
            steps = [step]
            if num_batches > 1:
                steps = [step * num_batches + k for k in range(num_batches)]
            by_step = map(self._source.next_batches, steps)
            batches = list(zip(*by_step))  # [tower][micro-batch]
        with tf.name_scope("exchange/items/"):
            denominators = self._count_total_items(batches)

        def compute(index: int) -> tuple[Outcome, Gradients]:
            return self.towers[index].compute(
                batches[index], denominators[index], steps
            )

        outcomes, self.tower_gradients = zip(*self._update.run(compute))
        ready = self._find_ready_time() if self.engine.size > 1 else None
        self._update.apply(self.tower_gradients)
        for tower, outcome in zip(self.towers, outcomes):
            tower.assign_moving(outcome.moving)
        counts = []
        for tower, outcome, tower_batches in zip(self.towers, outcomes, batches):
            counts.append(tower.count(outcome, tower_batches))
        return counts, ready

    def _find_ready_time(self) -> tf.Tensor | None:
        """Return the time when all towers had computed their gradients.

        It is known only on CPUs. With a GPU, the host sees when the computation starts,
        and not when it ends.
        """
        if self.engine.device_type != "CPU":
            return None
        computed: list[tf.Tensor] = []
        for grads in self.tower_gradients:
            computed += map(gradients.get_values, grads.values())
        with (
            tf.device(self.engine.host),
            tf.name_scope("exchange/ready/"),
            tf.control_dependencies(computed),
        ):
            return tf.timestamp()

    def _count_total_items(self, batches: Sequence[Sequence[Any]]) -> list[tf.Tensor]:
        """Return the divisor of each tower's loss, for `[tower][micro-batch]`."""
        # cuDNN also needs the lengths on the host.
        with tf.device(self.engine.host):
            items = [
                tf.add_n(list(map(self._workload.count_loss_items, tower_batches)))
                for tower_batches in batches
            ]
            return self._update.count_total_items(items)


build = TrainStep
