"""One tower of a training step: the copy of the model that one device computes.

A tower reads its weights, computes the loss of its batch and the gradients, and counts
the words of the batch. The exchange of gradients between towers, and the update of the
variables, belong to the update modes (`training.replica.VariableUpdate`).

`inspection` recognises a tower's part of the step by the name scopes of this file:
tower_<i>/input, tower_<i>/forward and tower_<i>/backward.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.models.workload import Counts, Outcome, Outputs, Workload
from rnn_scaling.training import gradients
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.replica import Gradients, VariableUpdate


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


class Tower:
    """Traces the operators of one tower.

    A `TrainStep` makes one per device and calls it while TensorFlow traces the step. So
    every method adds operators to the graph and returns symbolic tensors.
    """

    def __init__(
        self,
        index: int,
        workload: Workload,
        update: VariableUpdate,
        engine: Engine,
        seed: int,
        moving: Mapping[str, tf.Variable],
    ) -> None:
        """Create a tower, which adds nothing to the graph yet.

        Args:
          index: Number of the tower among the towers of this process.
          workload: The network.
          update: The update mode, which has the variables.
          engine: The devices.
          seed: The seed of the run.
          moving: The tower's moving averages by name.
        """
        self._index = index
        self._workload = workload
        self._update = update
        self._engine = engine
        self._seed = seed
        self._moving = moving

    def compute(
        self, batches: Sequence[Any], denominator: tf.Tensor, steps: Sequence[tf.Tensor]
    ) -> tuple[Outcome, Gradients]:
        """Compute the micro-batches one after the other with the same weights.

        Args:
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
            earlier = list(map(gradients.get_values, summed.values()))
            with tf.control_dependencies(earlier):
                inputs = self.read_inputs(batch, step, inputs)
                moving = outcomes[-1].moving if outcomes else None
                outcome = self.run_forward(inputs, batch, moving)
                with self._scope("forward"):
                    mean_loss = outcome.loss_sum / denominator
                    if inputs.loss_scale is not None:
                        mean_loss *= inputs.loss_scale
                grads = self.differentiate(inputs, mean_loss)
                with self._scope("backward"):
                    summed = _add_gradients(summed, grads)
            outcomes.append(outcome)
        return _join_outcomes(outcomes), summed

    def read_inputs(
        self, batch: Any, step: tf.Tensor, earlier: TowerInputs | None = None
    ) -> TowerInputs:
        """Read the weights and rows that the tower uses for one batch.

        Args:
          batch: The tower's batch.
          step: Number of the batch.
          earlier: The inputs of an earlier micro-batch of the same update, whose
            weights are used again; None for the first one.
        """
        index = self._index
        with self._scope("input"):
            ids = self._workload.list_lookups(batch)
            rows = {
                name: self._update.read_rows(index, name, ids[name]) for name in ids
            }
            if earlier is None:
                weights = self._update.read_weights(index)
                scale = self._update.read_loss_scale(index)
            else:
                weights = earlier.weights
                scale = earlier.loss_scale
            # Generators read their seed from host memory, even on GPUs.
            with tf.device(self._engine.host):
                number = tf.cast(step, tf.int32) * self._engine.num_towers + (
                    self._engine.first_tower + index
                )
                seed = tf.stack([number, self._seed])
            return TowerInputs(weights, rows=rows, ids=ids, seed=seed, loss_scale=scale)

    def run_forward(
        self,
        inputs: TowerInputs,
        batch: Any,
        moving: Mapping[str, tf.Tensor] | None = None,
    ) -> Outcome:
        """Run the forward pass and the loss of one micro-batch.

        Args:
          inputs: From `read_inputs`.
          batch: The micro-batch.
          moving: The moving averages after the micro-batch before; None for the first
            one, which reads the variables.
        """
        with self._scope("forward"):
            if moving is None:
                moving = self._read_moving()
            return self._workload.forward(
                {**inputs.weights, **moving}, inputs.rows, batch, inputs.seed
            )

    def compute_outputs(self, inputs: TowerInputs, batch: Any) -> Outputs:
        """Run the forward pass of one batch without the loss."""
        with self._scope("forward"):
            weights = {**inputs.weights, **self._read_moving()}
            return self._workload.compute_outputs(
                weights, inputs.rows, batch, inputs.seed
            )

    def differentiate(
        self,
        inputs: TowerInputs,
        result: tf.Tensor,
        d_result: tf.Tensor | None = None,
    ) -> Gradients:
        """Return the unscaled gradients of the tower's variables.

        Args:
          inputs: The weights, rows and seed that the tower used.
          result: The scaled loss, or a tensor that the loss is computed from.
          d_result: The gradient of the scaled loss with respect to `result`, or None
            if `result` is the loss.
        """
        embedding_rows = {
            spec.name: spec.shape[0]
            for spec in self._workload.variables
            if spec.kind == "embedding"
        }
        with self._scope("backward"):
            # A GradientTape would name its operators outside this scope.
            variables = {**inputs.weights, **inputs.rows}
            tensors = tf.gradients(result, list(variables.values()), d_result)
            grads = dict(zip(variables, tensors))
            for name, ids in inputs.ids.items():
                width = grads[name].shape[-1]
                rows = tf.reshape(grads[name], [-1, width])
                indices = tf.reshape(ids, [-1])
                shape = tf.constant([embedding_rows[name], width])
                grads[name] = tf.IndexedSlices(rows, indices, shape)
            if inputs.loss_scale is not None:
                for name, gradient in grads.items():
                    grads[name] = _divide(gradient, inputs.loss_scale)
        return grads

    def count(self, outcome: Outcome, batches: Sequence[Any]) -> tf.Tensor:
        """Return the counts of the tower's micro-batches, on its device."""
        with tf.device(self._engine.devices[self._index]), self._scope("counts"):
            by_kind = zip(*map(self._workload.count_batch, batches))
            counts = Counts(*(tf.add_n(list(values)) for values in by_kind))
            return tf.stack(make_count_row(outcome, counts))

    def assign_moving(self, values: Mapping[str, tf.Tensor]) -> None:
        """Assign new values to the tower's moving averages."""
        for name, value in values.items():
            self._moving[name].assign(value)

    def _read_moving(self) -> dict[str, tf.Tensor]:
        return {name: variable.read_value() for name, variable in self._moving.items()}

    def _scope(self, part: str) -> tf.name_scope:
        return tf.name_scope(f"tower_{self._index}/{part}/")


def make_count_row(outcome: Outcome, counts: Counts) -> list[tf.Tensor]:
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


def _divide(gradient: gradients.Gradient, scale: tf.Tensor) -> gradients.Gradient:
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(
            gradient.values / scale, gradient.indices, gradient.dense_shape
        )
    return gradient / scale
