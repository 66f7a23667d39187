"""Batches and gradients of every tower, computed one after the other on one device.

The batches come from a second data source, built from the run's flags. A tower that got
another tower's batch is therefore noticed.

The certifiers ask for the gradients of a batch; the trainer's step is not involved.

`serial`, `asynchronous` and `losses` compute with `SerialGradients`; `trials` add its
parts with faults.
"""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import registry
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data import pipeline
from rnn_scaling.models import workloads
from rnn_scaling.models.workload import VariableSpec, make_first_values
from rnn_scaling.training import benchmark
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.verification.rule import Arrays

# Data sources that draw every batch at random. Files may end and repeat.
_RANDOM_SOURCES = ("device", "host", "copy", "reverse")
# Smaller batches may be equal by chance.
_MIN_IDS = 16
Tensors = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Towers:
    """The batches of all towers for one step.

    Attributes:
      batches: Per tower, the tuple of batches of one update.
      loss_items: Per tower, the number of items that its loss is summed over.
      micro_items: Per tower, the same for each of its batches.
    """

    batches: Sequence[Any]
    loss_items: Sequence[float]
    micro_items: Sequence[Sequence[float]] = ()

    @property
    def shares(self) -> dict[int, float]:
        total = sum(self.loss_items)
        return {tower: items / total for tower, items in enumerate(self.loss_items)}


@dataclasses.dataclass(frozen=True)
class GradientPart:
    """The result of one tower's batch.

    Attributes:
      loss_sum: The summed loss.
      gradient: The tower's part of the gradient of the mean loss.
      moving: The averages after the batch.
      rows: Per embedding, the ids [R] that were looked up and their gradients [R, D].
      micro_gradients: The gradients of the micro-batches, which add up to `gradient`;
        () if there is one.
    """

    loss_sum: float
    gradient: Arrays
    moving: Arrays
    rows: Mapping[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(
        default_factory=dict
    )
    micro_gradients: Sequence[Arrays] = ()


class SerialGradients:
    """Computes the batches and gradients of a run's towers on one device."""

    def __init__(self, config: RunConfig, engine: Engine) -> None:
        self.num_towers = config.num_towers
        self._seed = config.training.seed
        self._num_micro = config.training.gradient_accumulation_steps
        self._device = (engine.own_devices or (engine.host,))[0]
        self._workload = workloads.load(config.model.model).build(
            config.model, engine.device_type
        )
        feed = benchmark.build_feed(config, engine, self._workload)
        options = dataclasses.replace(feed.options, prefetch_data_to_device=False)
        devices = (self._device,) * len(feed.batch_sizes)
        feed = dataclasses.replace(
            feed, options=options, devices=devices, first_tower=0
        )
        self._slices: list[int] = []
        if config.mode.cuts_global_batch:
            self._slices = list(config.tower_batch_sizes())
        build_source = registry.load(
            registry.DATA_SOURCES, config.data.data_source
        ).build
        with tf.device(self._device):
            source = tf.autograph.experimental.do_not_convert(build_source)(feed)
        self._next_batches = tf.function(source.next_batches, autograph=False)
        self.first_moving: Arrays = make_first_values(self._workload.moving, self._seed)
        self._compute = tf.function(
            self._build_part, autograph=False, reduce_retracing=True
        )

    @property
    def specs(self) -> Sequence[VariableSpec]:
        return self._workload.variables

    def towers(self, number: int) -> Towers:
        """Draw the batches of step `number`. Call it once per step, in order."""
        micro_batches = []
        with tf.device(self._device):
            for micro in self._micro_batch_numbers(number):
                batches = self._next_batches(tf.constant(micro, tf.int64))
                if self._slices:
                    layout = self._workload.layout
                    batches = pipeline.cut(batches[0], self._slices, layout)
                micro_batches.append(batches)
            towers = list(zip(*micro_batches))
            micro_items = [self._count_loss_items(batches) for batches in towers]
        return Towers(towers, [sum(items) for items in micro_items], micro_items)

    def _micro_batch_numbers(self, number: int) -> range:
        return range(number * self._num_micro, (number + 1) * self._num_micro)

    def _count_loss_items(self, batches: Sequence[Any]) -> list[float]:
        return [
            float(self._workload.count_batch(batch).loss_items) for batch in batches
        ]

    def part(
        self,
        weights: Arrays,
        batches: Sequence[Any],
        factor: float,
        draw: int,
        moving: Arrays | None = None,
    ) -> GradientPart:
        """Return one tower's loss, and the gradient of `factor` times the loss.

        Args:
          weights: The variables.
          batches: The tower's batches of one update.
          factor: Factor of the loss.
          draw: The step times the number of towers, plus the tower.
          moving: The tower's averages; None for the first averages.
        """
        number, tower = divmod(draw, self.num_towers)
        averages = moving or self.first_moving
        parts: list[GradientPart] = []
        for micro, batch in zip(self._micro_batch_numbers(number), batches):
            micro_draw = micro * self.num_towers + tower
            part = self._compute_batch_part(
                weights, batch, factor, micro_draw, averages
            )
            averages = part.moving
            parts.append(part)
        rows = {}
        for name in parts[0].rows:
            ids = np.concatenate([part.rows[name][0] for part in parts])
            values = np.concatenate([part.rows[name][1] for part in parts])
            rows[name] = (ids, values)
        loss_sum = sum(part.loss_sum for part in parts)
        gradients = [part.gradient for part in parts]
        micro_gradients = gradients if len(gradients) > 1 else ()
        gradient = sum_gradients(gradients)
        return GradientPart(loss_sum, gradient, averages, rows, micro_gradients)

    def _compute_batch_part(
        self, weights: Arrays, batch: Any, factor: float, draw: int, moving: Arrays
    ) -> GradientPart:
        """Return the loss and the gradients of one batch of a tower as arrays."""
        with tf.device(self._device):
            seed = tf.constant([draw, self._seed], tf.int32)
            tensors = {name: tf.constant(value) for name, value in weights.items()}
            averages = {name: tf.constant(array) for name, array in moving.items()}
            results = self._compute(
                tensors, averages, batch, seed, tf.constant(factor, tf.float32)
            )
        loss_sum, *arrays = tf.nest.map_structure(
            lambda tensor: tensor.numpy(), results
        )
        return GradientPart(float(loss_sum), *arrays)

    def _build_part(
        self,
        weights: Tensors,
        moving: Tensors,
        batch: Any,
        seed: tf.Tensor,
        factor: tf.Tensor,
    ) -> tuple[tf.Tensor, Tensors, Tensors, dict[str, tuple[tf.Tensor, tf.Tensor]]]:
        """Return the tensors of a `GradientPart`."""
        ids = self._workload.list_lookups(batch)
        rows = {name: tf.gather(weights[name], ids[name]) for name in ids}
        dense = {name: tensor for name, tensor in weights.items() if name not in ids}
        with tf.GradientTape() as tape:
            tape.watch([dense, rows])
            outcome = self._workload.forward({**dense, **moving}, rows, batch, seed)
            scaled_loss = outcome.loss_sum * factor
        gradient, row_gradients = tape.gradient(
            scaled_loss,
            [dense, rows],
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        flat_rows = {}
        for name, values in row_gradients.items():
            numbers = tf.reshape(ids[name], [-1])
            values = tf.reshape(values, [-1, values.shape[-1]])
            flat_rows[name] = (numbers, values)
            gradient[name] = tf.math.unsorted_segment_sum(
                values, numbers, weights[name].shape[0]
            )
        gradient = {name: gradient[name] for name in weights}
        return outcome.loss_sum, gradient, dict(outcome.moving), flat_rows


class BatchCheck:
    """Checks that no batch repeats if the data source draws at random."""

    def __init__(self, data_source: str) -> None:
        self._is_random = data_source in _RANDOM_SOURCES
        # (step, tower) that first had the batch with this digest.
        self._origins: dict[bytes, tuple[int, int]] = {}

    def fault(self, number: int, towers: Towers) -> Statement | None:
        """Return the first batch of a step that an earlier tower or step had."""
        if not self._is_random:
            return None
        fault = None
        for tower, batch in enumerate(towers.batches):
            digest = _compute_digest(batch)
            if digest is None:
                continue
            step, origin = self._origins.setdefault(digest, (number, tower))
            if fault is None and (step, origin) != (number, tower):
                values = {
                    "tower": tower,
                    "instead": origin,
                    "step": number,
                    "earlier": step,
                }
                kind = "input-same-batch"
                if step != number:
                    kind = "input-same-batch-later"
                fault = Statement(kind, "same batch", values)
        return fault


def _compute_digest(batch: Any) -> bytes | None:
    """Return a hash of a batch, or None if it is too small to be unique."""
    parts = [np.ascontiguousarray(part) for part in tf.nest.flatten(batch)]
    if sum(part.size for part in parts if part.ndim > 1) < _MIN_IDS:
        return None
    return hashlib.blake2b(b"".join(part.tobytes() for part in parts)).digest()


def sum_gradients(gradients: Sequence[Arrays]) -> dict[str, np.ndarray]:
    total = {name: array.copy() for name, array in gradients[0].items()}
    for gradient in gradients[1:]:
        for name, array in gradient.items():
            total[name] += array
    return total
