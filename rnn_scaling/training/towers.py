"""Builds one training step: ONE tf.function in which every tower is placed on its device.

Name scopes, by construction: input, tower_<i>/input, tower_<i>/forward, tower_<i>/backward, exchange, update.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import (
    context,
)  # no public name leads to the graph collection

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data.source import Source
from rnn_scaling.models.workload import Counts, Outcome, Workload, first_values
from rnn_scaling.training import gradients
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.replica import Gradients, VariableState, VariableUpdate, place
from rnn_scaling.training.slicing import Cut
from rnn_scaling.training.state import Done


@dataclasses.dataclass(frozen=True)
class StepResult:
    """What the towers did in one step, one entry a tower."""

    loss_sum: np.ndarray  # summed over the tower's `loss_items`
    loss_items: np.ndarray
    items: np.ndarray  # padding left out
    positions: np.ndarray  # computed, padding included
    ready_s: float | None = (
        None  # seconds until the last tower's gradients were computed; None: unknown
    )
    correct: np.ndarray | None = (
        None  # of `loss_items`, how many were predicted right; None: not asked
    )

    @property
    def loss(self) -> float:
        """Mean loss over the global batch."""
        return float(self.loss_sum.sum() / self.loss_items.sum())

    @property
    def accuracy(self) -> float | None:
        """Share of right predictions in the global batch; None: not asked."""
        return (
            None
            if self.correct is None
            else float(self.correct.sum() / self.loss_items.sum())
        )


class TowerInputs(NamedTuple):
    """What a tower computes with in one step."""

    weights: dict[str, tf.Tensor]  # the dense variables, by name
    rows: dict[str, tf.Tensor]  # looked up, by the embedding's name
    ids: dict[str, tf.Tensor]  # of these rows
    seed: tf.Tensor  # [2] int, of dropout
    loss_scale: tf.Tensor | None


class TrainStep:
    """Callable: runs one step, waits until every device has finished it and says what was processed."""

    goes_on = False  # whether steps run between two calls, too; no pause between them may be left out of the clock
    done: Sequence[
        Done
    ] = ()  # one step at a time, also if a call waits for the steps of several workers
    cut: Cut | None = (
        None  # how one global batch is cut for the towers, once traced; None if it is not
    )

    def __init__(
        self,
        workload: Workload,
        source: Source,
        update: VariableUpdate,
        engine: Engine,
        config: RunConfig,
    ) -> None:
        self._workload, self._source, self._update = workload, source, update
        self._embedding_rows = {
            spec.name: spec.shape[0]
            for spec in workload.variables
            if spec.kind == "embedding"
        }
        self.engine, self._config, self._seed = engine, config, config.training.seed
        self._repeats = config.training.gradient_accumulation_steps
        with tf.device(engine.host):
            self._step = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
        self._function = tf.function(self._build, autograph=False)
        # RunMetadata.FunctionGraphs of the first call, for which alone TensorFlow has them: GraphDefs before and after
        # optimization, and those of each partition.
        self.function_graphs: list[Any] = []
        self._collects_graphs = config.output.trace_batches > 0
        self._moving = [
            place(
                workload.moving,
                first_values(workload.moving, self._seed),
                device,
                f"tower_{number}/moving",
            )
            for number, device in enumerate(engine.devices)
        ]
        self.tower_gradients: tuple[
            Gradients, ...
        ] = ()  # symbolic, one entry a tower, once the step is traced
        self.num_lost: Callable[[], int] = lambda: (
            0
        )  # workers that have died, for a step that outlives them

    def __call__(self) -> StepResult:
        begun = time.time()  # tf.timestamp's clock
        collects = self._collects_graphs and not self.function_graphs
        counts, ready = self._collecting_graphs() if collects else self._function()
        # A tower's counts leave its device after everything queued before them, the update included.
        loss_sum, loss_items, items, positions, *correct = np.stack(
            [tower.numpy() for tower in counts]
        ).T
        ready_s = None if ready is None else float(ready) - begun
        return StepResult(loss_sum, loss_items, items, positions, ready_s, *correct)

    def _collecting_graphs(self) -> Any:
        context.context().enable_graph_collection()
        try:
            result = self._function()
            self.function_graphs = list(
                context.context().export_run_metadata().function_graphs
            )
        finally:
            context.context().disable_graph_collection()
        return result

    def go_to(self, number: int) -> None:
        self._step.assign(number)

    def end(self) -> int:
        """Lets end what still runs after the last call; returns how many updates were made beyond one a step."""
        return 0

    def skipped_updates(self) -> int | None:
        """Updates that were left out since a gradient was not finite; None without loss scaling."""
        return self._update.skipped_updates()

    def graph(self) -> tf.Graph:
        """The graph of the step as traced from Python."""
        return self._function.get_concrete_function().graph

    def variable_states(self) -> list[VariableState]:
        return self._update.variable_states()

    def moving(self) -> list[dict[str, tf.Variable]]:
        """Each tower's own averages by name, such as a batch normalisation's."""
        return self._moving

    def _build(self) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        with tf.name_scope("input/"):
            step = self._step.read_value()
        built = self._build_step(step)
        with tf.name_scope("input/"):
            self._step.assign_add(1)
        return built

    def _build_step(self, step: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        """Every tower's counts, and when all gradients were ready, of the step of this number, applied."""
        with tf.name_scope("input/"):
            steps = (
                [step]
                if self._repeats == 1
                else [step * self._repeats + k for k in range(self._repeats)]
            )
            batches = list(
                zip(*map(self._source.next_batches, steps))
            )  # [tower][micro-batch]
        with tf.name_scope("exchange/items/"):
            denominators = self._denominators(batches)

        def tower(index: int) -> tuple[Outcome, Gradients]:
            return self._tower(index, batches[index], denominators[index], steps)

        outcomes, self.tower_gradients = zip(*self._update.run(tower))
        ready = self._ready_at() if self.engine.size > 1 else None
        self._update.apply(self.tower_gradients)
        self._keep_moving([outcome.moving for outcome in outcomes])
        return [
            self._counts(*args) for args in zip(range(len(outcomes)), outcomes, batches)
        ], ready

    def _ready_at(self) -> tf.Tensor | None:
        """When the gradients of all towers were computed, on CPUs; what a GPU's host knows of is when they began."""
        if self.engine.device_type != "CPU":
            return None
        with tf.device(self.engine.host), tf.name_scope("exchange/ready/"):
            computed = [
                _values(gradient)
                for grads in self.tower_gradients
                for gradient in grads.values()
            ]
            with tf.control_dependencies(computed):
                return tf.timestamp()

    def _denominators(self, batches: Sequence[Sequence[Any]]) -> list[tf.Tensor]:
        """The `VariableUpdate.total_items` of batches `[tower][micro-batch]`."""
        with tf.device(self.engine.host):  # where cuDNN, too, wants lengths
            return self._update.total_items(
                [
                    tf.add_n(list(map(self._workload.loss_items, tower_batches)))
                    for tower_batches in batches
                ]
            )

    def _tower(
        self,
        index: int,
        batches: Sequence[Any],
        denominator: tf.Tensor,
        steps: Sequence[tf.Tensor],
    ) -> tuple[Outcome, Gradients]:
        """What a tower's micro-batches give together, one computed after the other with the same weights.

        `steps`: the numbers of the micro-batches, since the first one of the run.
        """
        inputs: TowerInputs | None = None
        outcomes: list[Outcome] = []
        summed: Gradients = {}
        for batch, step in zip(batches, steps):
            # Otherwise all of them would run at once, and their activations be in memory together.
            with tf.control_dependencies(
                [_values(gradient) for gradient in summed.values()]
            ):
                inputs = self._inputs(index, batch, step, inputs)
                with tf.name_scope(f"tower_{index}/forward/"):
                    moving = (
                        outcomes[-1].moving if outcomes else self._read_moving(index)
                    )
                    outcome = self._workload.forward(
                        {**inputs.weights, **moving}, inputs.rows, batch, inputs.seed
                    )
                    mean_loss = outcome.loss_sum / denominator
                    if inputs.loss_scale is not None:
                        mean_loss *= inputs.loss_scale
                grads = self._differentiate(index, inputs, mean_loss)
                with tf.name_scope(f"tower_{index}/backward/"):
                    summed = (
                        {
                            name: gradients.add([summed[name], grads[name]])
                            for name in grads
                        }
                        if summed
                        else grads
                    )
            outcomes.append(outcome)
        correct = [
            outcome.correct for outcome in outcomes if outcome.correct is not None
        ]
        loss_sum = tf.add_n([outcome.loss_sum for outcome in outcomes])
        return Outcome(
            loss_sum, outcomes[-1].moving, tf.add_n(correct) if correct else None
        ), summed

    def _inputs(
        self, index: int, batch: Any, step: tf.Tensor, before: TowerInputs | None = None
    ) -> TowerInputs:
        """What a tower computes a batch with; `before`: what it computed another of the same update with."""
        with tf.name_scope(f"tower_{index}/input/"):
            ids = self._workload.lookups(batch)
            rows = {name: self._update.lookup(index, name, ids[name]) for name in ids}
            if before is None:
                weights, scale = (
                    self._update.weights(index),
                    self._update.loss_scale(index),
                )
            else:
                weights, scale = before.weights, before.loss_scale
            with tf.device(
                self.engine.host
            ):  # generators take their seed from host memory, also on GPUs
                number = tf.cast(step, tf.int32) * self.engine.num_towers + (
                    self.engine.first_tower + index
                )
                seed = tf.stack([number, self._seed])
            return TowerInputs(weights, rows, ids, seed, scale)

    def _differentiate(
        self,
        index: int,
        inputs: TowerInputs,
        result: tf.Tensor,
        d_result: tf.Tensor | None = None,
    ) -> Gradients:
        """Gradients of a tower's variables, of a `result` that is scaled as `inputs` says.

        `d_result` is the loss's gradient with respect to `result`; None if `result` is the loss.
        """
        with tf.name_scope(f"tower_{index}/backward/"):
            # tf.gradients and not a GradientTape: the tape names its operators outside of this scope.
            variables = {**inputs.weights, **inputs.rows}
            grads = dict(
                zip(variables, tf.gradients(result, list(variables.values()), d_result))
            )
            for name, ids in inputs.ids.items():
                width = grads[name].shape[-1]
                rows, indices = (
                    tf.reshape(grads[name], [-1, width]),
                    tf.reshape(ids, [-1]),
                )
                grads[name] = tf.IndexedSlices(
                    rows, indices, tf.constant([self._embedding_rows[name], width])
                )
            if inputs.loss_scale is not None:
                grads = {
                    name: _divide(gradient, inputs.loss_scale)
                    for name, gradient in grads.items()
                }
        return grads

    def _read_moving(self, index: int) -> dict[str, tf.Tensor]:
        return {
            name: variable.read_value()
            for name, variable in self._moving[index].items()
        }

    def _keep_moving(self, towers: Sequence[Mapping[str, tf.Tensor]]) -> None:
        for variables, values in zip(self._moving, towers):
            for name, value in values.items():
                variables[name].assign(value)

    def _counts(
        self, index: int, outcome: Outcome, batches: Sequence[Any]
    ) -> tf.Tensor:
        with (
            tf.device(self.engine.devices[index]),
            tf.name_scope(f"tower_{index}/counts/"),
        ):
            counts = Counts(
                *map(tf.add_n, map(list, zip(*map(self._workload.counts, batches))))
            )
            return tf.stack(count_row(outcome, counts))


def count_row(outcome: Outcome, counts: Counts) -> list[tf.Tensor]:
    """The numbers of a `StepResult` of one tower, float64 scalars."""
    row = [tf.cast(outcome.loss_sum, tf.float64), counts.loss_items, counts.items]
    row.append(tf.cast(counts.positions, tf.float64))
    return (
        row if outcome.correct is None else [*row, tf.cast(outcome.correct, tf.float64)]
    )


def _values(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def _divide(
    gradient: tf.Tensor | tf.IndexedSlices, scale: tf.Tensor
) -> tf.Tensor | tf.IndexedSlices:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            gradient.values / scale, gradient.indices, gradient.dense_shape
        )
    return gradient / scale


build = TrainStep
