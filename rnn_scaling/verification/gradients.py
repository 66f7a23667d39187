"""Batches and gradients of every tower, one after the other on one device: what serial training is made of.

The batches come from a data source of their own, built from the run's flags, so that a tower which got another's shows.
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
from rnn_scaling.models.workload import VariableSpec, first_values
from rnn_scaling.training import benchmark
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.verification.rule import Arrays

FRESH = (
    "device",
    "host",
    "copy",
    "reverse",
)  # sources whose batches are all drawn anew; files may end and repeat
FEWEST_IDS = 16  # of a batch: two of so few words may be equal by chance
Tensors = dict[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Towers:
    """The batches of one step, all towers'."""

    batches: Sequence[Any]  # of each tower those of one update, a tuple
    loss_items: Sequence[float]  # what each tower's loss is a sum over

    @property
    def shares(self) -> dict[int, float]:
        return {
            tower: items / sum(self.loss_items)
            for tower, items in enumerate(self.loss_items)
        }


@dataclasses.dataclass(frozen=True)
class GradientPart:
    """What one tower's batch gives: its summed loss, its part of the gradient of the mean loss, its next averages."""

    loss_sum: float
    gradient: Arrays
    moving: Arrays
    # (ids [R], gradient of each [R, D]) of an embedding by name, as they were looked up.
    rows: Mapping[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(
        default_factory=dict
    )


class SerialGradients:
    """Computes on one device what the towers of a run compute side by side."""

    def __init__(self, config: RunConfig, engine: Engine) -> None:
        self.num_towers = config.num_towers
        self._seed = config.training.seed
        self._repeats = config.training.gradient_accumulation_steps
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
        is_cut = config.mode.cuts_global_batch
        self._slices = list(config.tower_batch_sizes()) if is_cut else []
        build_source = registry.load(
            registry.DATA_SOURCES, config.data.data_source
        ).build
        with tf.device(self._device):
            source = tf.autograph.experimental.do_not_convert(build_source)(feed)
        self._next = tf.function(source.next_batches, autograph=False)
        self.first_moving: Arrays = first_values(self._workload.moving, self._seed)
        self._part = tf.function(
            self._build_part, autograph=False, reduce_retracing=True
        )

    @property
    def specs(self) -> Sequence[VariableSpec]:
        return self._workload.variables

    def towers(self, number: int) -> Towers:
        """The batches of step `number`; to be asked for once each, in order."""
        with tf.device(self._device):
            numbers = range(number * self._repeats, (number + 1) * self._repeats)
            drawn = [self._next(tf.constant(micro, tf.int64)) for micro in numbers]
            if self._slices:
                drawn = [
                    pipeline.cut(batches[0], self._slices, self._workload.layout)
                    for batches in drawn
                ]
            towers = list(zip(*drawn))
            loss_items = [
                sum(float(self._workload.counts(batch).loss_items) for batch in tower)
                for tower in towers
            ]
        return Towers(towers, loss_items)

    def part(
        self,
        weights: Arrays,
        batches: Sequence[Any],
        factor: float,
        draw: int,
        moving: Arrays | None = None,
    ) -> GradientPart:
        """One tower's loss over its batches of an update, and the gradient of `factor` times it.

        draw: number of the update times the towers, and the tower's.
        """
        number, tower = divmod(draw, self.num_towers)
        parts: list[GradientPart] = []
        for micro, batch in enumerate(batches, number * self._repeats):
            averages = parts[-1].moving if parts else moving or self.first_moving
            parts.append(
                self._part_of(
                    weights, batch, factor, micro * self.num_towers + tower, averages
                )
            )
        rows = {
            name: list(zip(*(part.rows[name] for part in parts)))
            for name in parts[0].rows
        }
        joined = {
            name: (np.concatenate(ids), np.concatenate(values))
            for name, (ids, values) in rows.items()
        }
        gradient = summed([part.gradient for part in parts])
        return GradientPart(
            sum(part.loss_sum for part in parts), gradient, parts[-1].moving, joined
        )

    def _part_of(
        self, weights: Arrays, batch: Any, factor: float, draw: int, moving: Arrays
    ) -> GradientPart:
        with tf.device(self._device):
            seed = tf.constant([draw, self._seed], tf.int32)
            tensors = {name: tf.constant(value) for name, value in weights.items()}
            averages = {name: tf.constant(array) for name, array in moving.items()}
            found = self._part(
                tensors, averages, batch, seed, tf.constant(factor, tf.float32)
            )
        loss_sum, *arrays = tf.nest.map_structure(lambda tensor: tensor.numpy(), found)
        return GradientPart(float(loss_sum), *arrays)

    def _build_part(
        self,
        weights: Tensors,
        moving: Tensors,
        batch: Any,
        seed: tf.Tensor,
        factor: tf.Tensor,
    ) -> tuple[tf.Tensor, Tensors, Tensors, dict[str, tuple[tf.Tensor, tf.Tensor]]]:
        workload = self._workload
        ids = self._workload.lookups(batch)
        rows = {name: tf.gather(weights[name], ids[name]) for name in ids}
        dense = {name: tensor for name, tensor in weights.items() if name not in ids}
        with tf.GradientTape() as tape:
            tape.watch([dense, rows])
            outcome = workload.forward({**dense, **moving}, rows, batch, seed)
            scaled = outcome.loss_sum * factor
        gradient, of_rows = tape.gradient(
            scaled, [dense, rows], unconnected_gradients=tf.UnconnectedGradients.ZERO
        )
        touched = {
            name: (
                tf.reshape(ids[name], [-1]),
                tf.reshape(slopes, [-1, slopes.shape[-1]]),
            )
            for name, slopes in of_rows.items()
        }
        for name, (numbers, values) in touched.items():
            gradient[name] = tf.math.unsorted_segment_sum(
                values, numbers, weights[name].shape[0]
            )
        return (
            outcome.loss_sum,
            {name: gradient[name] for name in weights},
            dict(outcome.moving),
            touched,
        )


class BatchCheck:
    """Whether every tower gets another batch at every step, where the data source promises it."""

    def __init__(self, data_source: str) -> None:
        self._is_fresh = data_source in FRESH
        self._seen: dict[bytes, tuple[int, int]] = {}

    def fault(self, number: int, towers: Towers) -> Statement | None:
        """The first batch of a step that came before."""
        found = None
        for tower, batch in enumerate(towers.batches):
            digest = _digest(batch)
            step, instead = (
                self._seen.setdefault(digest, (number, tower))
                if digest
                else (number, tower)
            )
            if (step, instead) == (number, tower) or found or not self._is_fresh:
                continue
            values = {
                "tower": tower,
                "instead": instead,
                "step": number,
                "earlier": step,
            }
            found = Statement(
                "input-same-batch" if step == number else "input-same-batch-later",
                "same batch",
                values,
            )
        return found


def _digest(batch: Any) -> bytes:
    parts = [np.asarray(part) for part in tf.nest.flatten(batch)]
    if sum(part.size for part in parts if part.ndim > 1) < FEWEST_IDS:
        return b""
    return hashlib.blake2b(
        b"".join(np.ascontiguousarray(part).tobytes() for part in parts)
    ).digest()


def summed(gradients: Sequence[Arrays]) -> dict[str, np.ndarray]:
    first, *others = gradients
    total = {name: array.copy() for name, array in first.items()}
    for gradient in others:
        for name, array in gradient.items():
            total[name] += array
    return total
