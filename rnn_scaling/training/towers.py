"""The training step: one tf.function that runs every tower on its own device.

The operators of a step have the name scopes input, tower_<i>/input,
tower_<i>/forward, tower_<i>/backward, exchange and update. `inspection` recognises the
phases of a step by these names. `TrainStep` is also the base class of the other steps,
which replace `_build_step`.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# TensorFlow has no public name for the collection of graphs.
from tensorflow.python.eager import context

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data.source import Source
from rnn_scaling.models.workload import Counts, Outcome, Workload, make_first_values
from rnn_scaling.training import gradients
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.replica import (
    Gradients,
    VariableState,
    VariableUpdate,
    create_variables,
)
from rnn_scaling.training.slicing import Cut
from rnn_scaling.training.state import WorkerStep


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


class TowerInputs(NamedTuple):
    """The inputs of a tower's computation of one batch.

    Attributes:
      weights: The dense variables, by name.
      rows: The rows that were looked up in each embedding, by name.
      ids: The indices of these rows.
      seed: The seed of dropout, two integers.
      loss_scale: The factor of the loss, or None without loss scaling.
    """

    weights: dict[str, tf.Tensor]
    rows: dict[str, tf.Tensor]
    ids: dict[str, tf.Tensor]
    seed: tf.Tensor
    loss_scale: tf.Tensor | None


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
        self._seed = config.training.seed
        self._repeats = config.training.gradient_accumulation_steps
        self._embedding_rows = {
            spec.name: spec.shape[0]
            for spec in workload.variables
            if spec.kind == "embedding"
        }
        self.engine = engine
        with tf.device(engine.host):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._function = tf.function(self._build, autograph=False)
        self._collects_graphs = config.output.trace_batches > 0
        self.function_graphs: list[Any] = []
        self._moving = [
            create_variables(
                workload.moving,
                make_first_values(workload.moving, self._seed),
                device,
                f"tower_{number}/moving",
            )
            for number, device in enumerate(engine.devices)
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

    def skipped_updates(self) -> int | None:
        """Return the number of updates that were skipped.

        An update is skipped if a gradient is not finite. None without loss scaling.
        """
        return self._update.skipped_updates()

    def graph(self) -> tf.Graph:
        """Return the traced graph of the step, before TensorFlow changes it."""
        return self._function.get_concrete_function().graph

    def variable_states(self) -> list[VariableState]:
        """Return every variable that the update changes."""
        return self._update.variable_states()

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
        with tf.name_scope("input/"):
            steps = [step]
            if self._repeats > 1:
                steps = [step * self._repeats + k for k in range(self._repeats)]
            by_step = map(self._source.next_batches, steps)
            batches = list(zip(*by_step))  # [tower][micro-batch]
        with tf.name_scope("exchange/items/"):
            denominators = self._denominators(batches)

        def compute(index: int) -> tuple[Outcome, Gradients]:
            return self._compute_tower(
                index, batches[index], denominators[index], steps
            )

        outcomes, self.tower_gradients = zip(*self._update.run(compute))
        ready = self._ready_time() if self.engine.size > 1 else None
        self._update.apply(self.tower_gradients)
        self._assign_moving([outcome.moving for outcome in outcomes])
        counts = [
            self._counts(index, outcome, batches[index])
            for index, outcome in enumerate(outcomes)
        ]
        return counts, ready

    def _ready_time(self) -> tf.Tensor | None:
        """Return the time when all towers had computed their gradients.

        Only CPUs have it. The host of a GPU only has the begin of the computation.
        """
        if self.engine.device_type != "CPU":
            return None
        computed: list[tf.Tensor] = []
        for grads in self.tower_gradients:
            computed += map(_gradient_values, grads.values())
        with (
            tf.device(self.engine.host),
            tf.name_scope("exchange/ready/"),
            tf.control_dependencies(computed),
        ):
            return tf.timestamp()

    def _denominators(self, batches: Sequence[Sequence[Any]]) -> list[tf.Tensor]:
        """Return `VariableUpdate.total_items` of batches `[tower][micro-batch]`."""
        # cuDNN also needs the lengths on the host.
        with tf.device(self.engine.host):
            items = [
                tf.add_n(list(map(self._workload.loss_items, tower_batches)))
                for tower_batches in batches
            ]
            return self._update.total_items(items)

    def _compute_tower(
        self,
        index: int,
        batches: Sequence[Any],
        denominator: tf.Tensor,
        steps: Sequence[tf.Tensor],
    ) -> tuple[Outcome, Gradients]:
        """Trace a tower's micro-batches, one after the other with the same weights.

        Args:
          index: Number of the tower.
          batches: The tower's micro-batches.
          denominator: Divisor of the summed loss.
          steps: The numbers of the micro-batches, counted from the start of the run.

        Returns:
          The outcome of all micro-batches together, and the sums of their gradients.
        """
        inputs: TowerInputs | None = None
        outcomes: list[Outcome] = []
        summed: Gradients = {}
        for batch, step in zip(batches, steps):
            # Without the dependency all micro-batches would run at once, and their
            # activations would be in memory together.
            earlier = [_gradient_values(gradient) for gradient in summed.values()]
            with tf.control_dependencies(earlier):
                inputs = self._inputs(index, batch, step, inputs)
                moving = outcomes[-1].moving if outcomes else None
                outcome, mean_loss = self._forward(
                    index, inputs, batch, moving, denominator
                )
                grads = self._differentiate(index, inputs, mean_loss)
                with tf.name_scope(f"tower_{index}/backward/"):
                    summed = _add_gradients(summed, grads)
            outcomes.append(outcome)
        return _join_outcomes(outcomes), summed

    def _forward(
        self,
        index: int,
        inputs: TowerInputs,
        batch: Any,
        moving: Mapping[str, tf.Tensor] | None,
        denominator: tf.Tensor,
    ) -> tuple[Outcome, tf.Tensor]:
        """Compute the loss of one micro-batch.

        Args:
          index: Number of the tower.
          inputs: The tower's weights, rows and seed.
          batch: The tower's micro-batch.
          moving: The moving averages after the micro-batch before; None for the first
            one, which reads the variables.
          denominator: Divisor of the summed loss.

        Returns:
          The outcome, and the mean loss with the factor of loss scaling.
        """
        with tf.name_scope(f"tower_{index}/forward/"):
            if moving is None:
                moving = self._read_moving(index)
            outcome = self._workload.forward(
                {**inputs.weights, **moving}, inputs.rows, batch, inputs.seed
            )
            mean_loss = outcome.loss_sum / denominator
            if inputs.loss_scale is not None:
                mean_loss *= inputs.loss_scale
            return outcome, mean_loss

    def _inputs(
        self,
        index: int,
        batch: Any,
        step: tf.Tensor,
        earlier: TowerInputs | None = None,
    ) -> TowerInputs:
        """Return the weights, rows and seed that a tower uses for one batch.

        Args:
          index: Number of the tower.
          batch: The tower's batch.
          step: Number of the batch.
          earlier: The inputs of an earlier micro-batch of the same update, whose
            weights are used again; None for the first one.
        """
        with tf.name_scope(f"tower_{index}/input/"):
            ids = self._workload.lookups(batch)
            rows = {name: self._update.lookup(index, name, ids[name]) for name in ids}
            if earlier is None:
                weights = self._update.weights(index)
                scale = self._update.loss_scale(index)
            else:
                weights = earlier.weights
                scale = earlier.loss_scale
            # Generators read their seed from host memory, even on GPUs.
            with tf.device(self.engine.host):
                number = tf.cast(step, tf.int32) * self.engine.num_towers + (
                    self.engine.first_tower + index
                )
                seed = tf.stack([number, self._seed])
            return TowerInputs(weights, rows=rows, ids=ids, seed=seed, loss_scale=scale)

    def _differentiate(
        self,
        index: int,
        inputs: TowerInputs,
        result: tf.Tensor,
        d_result: tf.Tensor | None = None,
    ) -> Gradients:
        """Return the unscaled gradients of a tower's variables.

        Args:
          index: Number of the tower.
          inputs: The weights, rows and seed that the tower used.
          result: The scaled loss, or a tensor that the loss is computed from.
          d_result: The gradient of the scaled loss with respect to `result`, or None
            if `result` is the loss.
        """
        with tf.name_scope(f"tower_{index}/backward/"):
            # A GradientTape would name its operators outside this scope.
            variables = {**inputs.weights, **inputs.rows}
            tensors = tf.gradients(result, list(variables.values()), d_result)
            grads = dict(zip(variables, tensors))
            for name, ids in inputs.ids.items():
                width = grads[name].shape[-1]
                rows = tf.reshape(grads[name], [-1, width])
                indices = tf.reshape(ids, [-1])
                shape = tf.constant([self._embedding_rows[name], width])
                grads[name] = tf.IndexedSlices(rows, indices, shape)
            if inputs.loss_scale is not None:
                for name, gradient in grads.items():
                    grads[name] = _divide(gradient, inputs.loss_scale)
        return grads

    def _read_moving(self, index: int) -> dict[str, tf.Tensor]:
        return {
            name: variable.read_value()
            for name, variable in self._moving[index].items()
        }

    def _assign_moving(self, towers: Sequence[Mapping[str, tf.Tensor]]) -> None:
        for variables, values in zip(self._moving, towers):
            for name, value in values.items():
                variables[name].assign(value)

    def _counts(
        self, index: int, outcome: Outcome, batches: Sequence[Any]
    ) -> tf.Tensor:
        """Return the counts of a tower's micro-batches, on its device."""
        with (
            tf.device(self.engine.devices[index]),
            tf.name_scope(f"tower_{index}/counts/"),
        ):
            by_kind = zip(*map(self._workload.counts, batches))
            counts = Counts(*(tf.add_n(list(values)) for values in by_kind))
            return tf.stack(count_row(outcome, counts))


def count_row(outcome: Outcome, counts: Counts) -> list[tf.Tensor]:
    """Return one tower's numbers of a `StepResult` as float64 scalars."""
    row = [
        tf.cast(outcome.loss_sum, tf.float64),
        counts.loss_items,
        counts.items,
        tf.cast(counts.positions, tf.float64),
    ]
    if outcome.correct is not None:
        row.append(tf.cast(outcome.correct, tf.float64))
    return row


def _join_outcomes(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of several micro-batches of one tower."""
    correct = [outcome.correct for outcome in outcomes if outcome.correct is not None]
    return Outcome(
        tf.add_n([outcome.loss_sum for outcome in outcomes]),
        outcomes[-1].moving,
        tf.add_n(correct) if correct else None,
    )


def _add_gradients(summed: Gradients, grads: Gradients) -> Gradients:
    if not summed:
        return grads
    return {name: gradients.add([summed[name], grads[name]]) for name in grads}


def _gradient_values(gradient: gradients.Gradient) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _divide(gradient: gradients.Gradient, scale: tf.Tensor) -> gradients.Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            gradient.values / scale, gradient.indices, gradient.dense_shape
        )
    return gradient / scale


build = TrainStep
