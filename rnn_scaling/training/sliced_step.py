"""A step whose towers share one global batch and one loss.

Keras' recipes for several GPUs train like this. The batch is on the host. Each tower
computes the outputs of its slice with the shared variables; the host concatenates the
outputs and computes one loss. The gradient flows back through the concatenation, so
that each tower gets the gradient of its outputs.

Slices are cut on the host, so that each device receives only its slice, or on the
devices, so that each device receives the complete batch. Parts of a batch that only the
loss reads stay on the host. Parts whose values are constants while tracing, such as the
lengths of full sentences, are not copied.
"""

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.data import pipeline
from rnn_scaling.models.workload import Outcome, Outputs, Workload
from rnn_scaling.records.step_parts import SlicedPart
from rnn_scaling.training import gradients, slicing
from rnn_scaling.training.replica import Gradients
from rnn_scaling.training.tower import TowerInputs, make_count_row
from rnn_scaling.training.train_step import TrainStep


class Slices:
    """One global batch, cut in consecutive slices for the towers."""

    def __init__(
        self,
        workload: Workload,
        batch: Any,
        batch_sizes: Sequence[int],
        cuts_on_host: bool,
        elsewhere: Collection[str],
    ) -> None:
        self._layout = workload.layout
        self._batch = batch
        self._cuts_on_host = cuts_on_host
        self._axis = workload.layout.sample_axis
        self._edges = [0, *itertools.accumulate(batch_sizes)]
        self._static_values = {
            name: tf.get_static_value(tensor)
            for name, tensor in zip(batch._fields, batch)
        }
        lookups = workload.list_lookups(batch)
        self._readers = {}
        for name, tensor in zip(batch._fields, batch):
            tables = {table for table, ids in lookups.items() if ids is tensor}
            self._readers[name] = self._find_reader(name, tables, elsewhere)
        self.host_slices = pipeline.cut(batch, batch_sizes, workload.layout)

    def describe_parts(self) -> tuple[SlicedPart, ...]:
        """Return the size and the reader of each part of the batch."""
        parts = []
        for name, tensor in zip(self._batch._fields, self._batch):
            size = None
            if tensor.shape.is_fully_defined():
                size = gradients.count_bytes(tensor)
            parts.append(SlicedPart(name=name, bytes=size, read=self._readers[name]))
        return tuple(parts)

    def slice_for_tower(self, tower: int) -> Any:
        """Return the tower's slice on the current device."""
        return type(self._batch)(
            *(self._slice_part(name, tower) for name in self._batch._fields)
        )

    def _slice_part(self, name: str, tower: int) -> tf.Tensor:
        """Return the tower's slice of one tensor of the batch."""
        tensor = getattr(self._batch, name)
        static_value = self._static_values[name]
        reader = self._readers[name]
        axis = self._axis(tensor)
        start, stop = self._edges[tower : tower + 2]
        if static_value is not None:
            return tf.constant(static_value.take(np.arange(start, stop), axis))
        if not self._cuts_on_host and reader != slicing.LOSS:
            return tensor[(slice(None),) * axis + (slice(start, stop),)]
        host_slice = getattr(self.host_slices[tower], name)
        # Copied once per step, not in each iteration of a loop that reads it.
        return tf.identity(host_slice) if reader == slicing.TOWER else host_slice

    def _find_reader(
        self, name: str, tables: set[str], elsewhere: Collection[str]
    ) -> str:
        """Return the part of the step that reads a tensor, a constant of `slicing`.

        Args:
          name: The tensor.
          tables: The embeddings whose ids it contains.
          elsewhere: The variables that are not on the host.
        """
        if self._static_values[name] is not None:
            return slicing.STATIC
        if name in self._layout.labels:
            return slicing.LOSS
        if not tables:
            return slicing.TOWER
        return slicing.LOOKUP if tables.isdisjoint(elsewhere) else slicing.ELSEWHERE


class SlicedStep(TrainStep):
    """A step that cuts one global batch for all towers and computes one loss."""

    def _build_step(self, step: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        with tf.device(self.engine.host), tf.name_scope("input/"):
            (batch,) = self._source.next_batches(step)
        slices = self._slice_batch(batch)
        with tf.name_scope("exchange/items/"):
            (denominator,) = self._count_total_items([[batch]])

        def run_forward(index: int) -> tuple[TowerInputs, Outputs]:
            with tf.name_scope(f"tower_{index}/input/slice/"):
                tower_batch = slices.slice_for_tower(index)
            inputs = self.towers[index].read_inputs(tower_batch, step)
            return inputs, self.towers[index].compute_outputs(inputs, tower_batch)

        inputs, outputs = zip(*self._update.run(run_forward))
        sums, d_logits = self._compute_loss(
            batch,
            [output.logits for output in outputs],
            denominator,
            inputs[0].loss_scale,
        )

        def run_backward(index: int) -> Gradients:
            return self.towers[index].differentiate(
                inputs[index], outputs[index].logits, d_logits[index]
            )

        self.tower_gradients = tuple(self._update.run(run_backward))
        self._update.apply(self.tower_gradients)
        for tower, output in zip(self.towers, outputs):
            tower.assign_moving(output.moving)
        counts = []
        for index, (outcome, tower_batch) in enumerate(zip(sums, slices.host_slices)):
            counts.append(self._count_on_host(index, outcome, tower_batch))
        return counts, None

    def _slice_batch(self, batch: Any) -> Slices:
        """Return the slices of the towers, and set `cut`."""
        slice_on = self._config.update.slice_on
        batch_sizes = self._config.tower_batch_sizes()
        with tf.device(self.engine.host), tf.name_scope("input/slice/"):
            slices = Slices(
                self._workload,
                batch=batch,
                batch_sizes=batch_sizes,
                cuts_on_host=slice_on == slicing.HOST,
                elsewhere=self._find_tables_elsewhere(),
            )
        self.cut = slicing.Cut(slice_on, slices.describe_parts(), batch_sizes)
        return slices

    def _find_tables_elsewhere(self) -> set[str]:
        """Return the variables that are not on the host."""
        states = self._update.list_variables()
        return {
            state.name for state in states if state.variable.device != self.engine.host
        }

    def _compute_loss(
        self,
        batch: Any,
        logits: Sequence[tf.Tensor],
        denominator: tf.Tensor,
        loss_scale: tf.Tensor | None,
    ) -> tuple[list[Outcome], list[tf.Tensor]]:
        """Compute the loss of the global batch and its gradients.

        Args:
          batch: The global batch.
          logits: The logits of each tower.
          denominator: The number of items.
          loss_scale: The factor of the loss, or None for no factor.

        Returns:
          Each tower's part of the loss, and the gradients of the scaled mean with
          respect to its logits.
        """
        with tf.device(self.engine.host), tf.name_scope("exchange/loss/"):
            joined_logits = tf.concat(
                list(logits), self._workload.layout.sample_axis(logits[0])
            )
            losses = self._workload.compute_losses(joined_logits, batch)
            mean_loss = tf.reduce_sum(losses) / denominator
            if loss_scale is not None:
                mean_loss *= loss_scale
            tower_losses = self._sum_per_tower(losses)
            tower_correct: Sequence[tf.Tensor | None] = [None] * len(tower_losses)
            if self._config.model.accuracy:
                correct = self._workload.correct(joined_logits, batch)
                tower_correct = self._sum_per_tower(correct)
            outcomes = [
                Outcome(loss, correct=correct)
                for loss, correct in zip(tower_losses, tower_correct)
            ]
            return outcomes, tf.gradients(mean_loss, list(logits))

    def _sum_per_tower(self, terms: tf.Tensor) -> list[tf.Tensor]:
        pieces = tf.split(terms, self._config.tower_batch_sizes())
        return [tf.reduce_sum(tower_terms) for tower_terms in pieces]

    def _count_on_host(
        self, index: int, outcome: Outcome, tower_batch: Any
    ) -> tf.Tensor:
        """Return the same numbers as `Tower.count`, computed on the host.

        So no part of the batch is copied for them.
        """
        with tf.name_scope(f"tower_{index}/counts/"):
            with tf.device(self.engine.host):
                row = make_count_row(outcome, self._workload.count_batch(tower_batch))
            with tf.device(self.engine.devices[index]):
                return tf.stack(row)


build = SlicedStep
