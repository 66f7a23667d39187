"""A step whose towers share one global batch and one loss, as Keras' recipes for several GPUs train.

The batch lies on the host. Each tower computes the outputs of its slice with the variables that all share; the host
concatenates the outputs and computes one loss. Its gradient goes back through the concatenation, to each tower that of
its own outputs.

Slices are cut on the host, and each device gets its own, or on the devices, and each gets the whole batch. Parts of a
batch that only the loss reads stay on the host; what is known while tracing, as the lengths of full sentences, goes
nowhere.
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
from rnn_scaling.training.towers import TowerInputs, TrainStep, count_row


class Slices:
    """One global batch cut in the towers' slices, none of its samples left out."""

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
        self._known = {
            name: tf.get_static_value(part) for name, part in zip(batch._fields, batch)
        }
        lookups = workload.lookups(batch)
        self._read = {
            name: self._reader(
                name,
                [table for table, ids in lookups.items() if ids is part],
                elsewhere,
            )
            for name, part in zip(batch._fields, batch)
        }
        self.on_host = pipeline.cut(batch, batch_sizes, workload.layout)

    @property
    def parts(self) -> tuple[SlicedPart, ...]:
        fields = zip(self._batch._fields, self._batch)
        sizes = {
            name: gradients.num_bytes(part) if part.shape.is_fully_defined() else None
            for name, part in fields
        }
        return tuple(
            SlicedPart(name=name, bytes=sizes[name], read=read)
            for name, read in self._read.items()
        )

    def of_tower(self, tower: int) -> Any:
        """The tower's slice, for its device, which is the current one."""
        return type(self._batch)(
            *(self._part(name, tower) for name in self._batch._fields)
        )

    def _part(self, name: str, tower: int) -> tf.Tensor:
        part = getattr(self._batch, name)
        known = self._known[name]
        read = self._read[name]
        axis, (start, stop) = self._axis(part), self._edges[tower : tower + 2]
        if known is not None:
            return tf.constant(known.take(np.arange(start, stop), axis))
        if not self._cuts_on_host and read != slicing.LOSS:
            return part[(slice(None),) * axis + (slice(start, stop),)]
        piece = getattr(self.on_host[tower], name)
        # Once a step, and not at each turn of a loop that reads it.
        return tf.identity(piece) if read == slicing.TOWER else piece

    def _reader(
        self, name: str, tables: Sequence[str], elsewhere: Collection[str]
    ) -> str:
        if self._known[name] is not None:
            return slicing.KNOWN
        if name in self._layout.labels:
            return slicing.LOSS
        if not tables:
            return slicing.TOWER
        return slicing.ELSEWHERE if set(tables) & set(elsewhere) else slicing.LOOKUP


class SlicedStep(TrainStep):
    def _build_step(self, step: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        workload = self._workload
        config = self._config
        batch_sizes = config.tower_batch_sizes()
        with tf.device(self.engine.host), tf.name_scope("input/"):
            (batch,) = self._source.next_batches(step)
        with tf.device(self.engine.host), tf.name_scope("input/slice/"):
            cuts_on_host = config.update.slice_on == slicing.HOST
            slices = Slices(
                workload, batch, batch_sizes, cuts_on_host, self._tables_elsewhere()
            )
        self.cut = slicing.Cut(config.update.slice_on, slices.parts, batch_sizes)
        with tf.name_scope("exchange/items/"):
            (denominator,) = self._denominators([[batch]])

        def forward(tower: int) -> tuple[TowerInputs, Outputs]:
            with tf.name_scope(f"tower_{tower}/input/slice/"):
                piece = slices.of_tower(tower)
            inputs = self._inputs(tower, piece, step)
            with tf.name_scope(f"tower_{tower}/forward/"):
                weights = {**inputs.weights, **self._read_moving(tower)}
                return inputs, workload.outputs(
                    weights, inputs.rows, piece, inputs.seed
                )

        inputs, outputs = zip(*self._update.run(forward))
        sums, d_logits = self._loss(
            batch,
            [output.logits for output in outputs],
            denominator,
            inputs[0].loss_scale,
        )

        def backward(tower: int) -> Gradients:
            return self._differentiate(
                tower, inputs[tower], outputs[tower].logits, d_logits[tower]
            )

        self.tower_gradients = tuple(self._update.run(backward))
        self._update.apply(self.tower_gradients)
        self._assign_moving([output.moving for output in outputs])
        return [
            self._counts_of(*args)
            for args in zip(range(len(outputs)), sums, slices.on_host)
        ], None

    def _tables_elsewhere(self) -> set[str]:
        states = self._update.variable_states()
        return {
            state.name for state in states if state.variable.device != self.engine.host
        }

    def _loss(
        self,
        batch: Any,
        logits: Sequence[tf.Tensor],
        denominator: tf.Tensor,
        loss_scale: tf.Tensor | None,
    ) -> tuple[list[Outcome], list[tf.Tensor]]:
        """Each tower's part of the loss of the global batch, and the gradient of the scaled mean for its logits."""
        with tf.device(self.engine.host), tf.name_scope("exchange/loss/"):
            joined = tf.concat(
                list(logits), self._workload.layout.sample_axis(logits[0])
            )
            losses = self._workload.losses(joined, batch)
            mean_loss = tf.reduce_sum(losses) / denominator
            if loss_scale is not None:
                mean_loss *= loss_scale
            summed = [
                losses,
                *(
                    [self._workload.correct(joined, batch)]
                    if self._config.model.accuracy
                    else []
                ),
            ]
            of_towers = [
                [
                    tf.reduce_sum(part)
                    for part in tf.split(terms, self._config.tower_batch_sizes())
                ]
                for terms in summed
            ]
            outcomes = [
                Outcome(loss, correct=next(iter(correct), None))
                for loss, *correct in zip(*of_towers)
            ]
            return outcomes, tf.gradients(mean_loss, list(logits))

    def _counts_of(self, index: int, outcome: Outcome, piece: Any) -> tf.Tensor:
        """As `_counts`; what is counted is counted on the host, so that nothing of the batch moves for it."""
        with tf.name_scope(f"tower_{index}/counts/"):
            with tf.device(self.engine.host):
                row = count_row(outcome, self._workload.counts(piece))
            with tf.device(self.engine.devices[index]):
                return tf.stack(row)


build = SlicedStep
