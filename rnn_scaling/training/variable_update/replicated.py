"""replicated: a copy of the variables on each device, with all-reduced gradients.

Each device updates its copy. collective_all_reduce is the same with an all-reduce that
spans the towers of several workers.

`benchmark` builds the mode that --variable_update names; nothing else depends on it.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from rnn_scaling.config import all_reduce_spec
from rnn_scaling.training import compression, gradients
from rnn_scaling.training.all_reduce.collective import WorkerReduce
from rnn_scaling.training.all_reduce.exchange import reduce_dense
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.gradients import Tensors
from rnn_scaling.training.replica import Gradients, Replicas, Setup


class Replicated(Replicas):
    """Copies of the variables that exchange their gradients with an all-reduce."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        options = setup.options
        engine = setup.engine
        self._options = options
        self._segments: Sequence[all_reduce_spec.SpecSegment] = ()
        if options.compress_gradients != compression.GATHERED:
            self._segments = _resolve_segments(options.all_reduce_spec, engine)
        self._workers = WorkerReduce(engine) if engine.size > 1 else None
        self._group = None if self._workers is None else self._workers.towers
        shapes = {
            spec.name: spec.shape
            for spec in setup.specs
            if spec.name not in self.gathered_embeddings
        }
        self._compression = compression.build(
            options.compress_gradients, shapes, engine.devices, self._group
        )

    def count_total_items(self, items: Tensors) -> list[tf.Tensor]:
        if self._workers is None:
            return super().count_total_items(items)
        return [self._workers.sum_over_workers(items)] * len(items)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        with tf.name_scope("exchange/"):
            exchanged = self._sum_over_towers(self.choose_gradients(tower_gradients))
        super().apply(exchanged)

    def describe_all_reduce(self) -> list[dict[str, Any]]:
        return [dataclasses.asdict(segment) for segment in self._segments]

    def _sum_over_towers(
        self, tower_gradients: Sequence[Gradients]
    ) -> list[dict[str, gradients.Gradient]]:
        """Return the sums over the towers, on every tower's device."""
        workers = self._workers
        gathered = sorted(self.gathered_embeddings)
        rows = []
        for grads in tower_gradients:
            rows.append({name: grads[name] for name in gathered})
        # Collective operators run in the order of tracing. The numbers of rows come
        # first because they are computed before the backward pass.
        most_rows = {} if workers is None else workers.find_most_rows(rows)
        names = [name for name in tower_gradients[0] if name not in gathered]
        dense = gradients.map_devices(
            self.devices,
            lambda grads: [gradients.densify(grads[name]) for name in names],
            tower_gradients,
        )
        result = [
            dict(zip(names, tensors))
            for tensors in self._compression.sum(names, dense, self._reduce)
        ]
        for name in gathered:
            slices = self._change_rows(
                [tower[name] for tower in rows], self._compression.compress
            )
            if workers is None:
                summed = gradients.map_devices(
                    self.devices, functools.partial(gradients.add, slices)
                )
            else:
                summed = workers.gather(slices, most_rows[name])
            restore = functools.partial(
                self._compression.restore, width=rows[0][name].values.shape[1]
            )
            for index, gradient in enumerate(self._change_rows(summed, restore)):
                result[index][name] = gradient
        return result

    def _reduce(self, tower_grads: Sequence[Tensors]) -> list[list[tf.Tensor]]:
        options = self._options
        return reduce_dense(
            tower_grads,
            self.devices,
            self._segments,
            num_pieces=options.gradient_repacking,
            max_packed_bytes=options.agg_small_grads_max_bytes,
            max_gradients_per_pack=options.agg_small_grads_max_group,
            group=self._group,
        )

    def _change_rows(
        self,
        slices: Sequence[tf.IndexedSlices],
        change: Callable[[tf.Tensor], tf.Tensor],
    ) -> list[tf.IndexedSlices]:
        """Return one sparse gradient per tower with changed rows."""
        return gradients.map_devices(
            self.devices,
            lambda rows: tf.IndexedSlices(
                change(rows.values), rows.indices, rows.dense_shape
            ),
            slices,
        )


def _resolve_segments(
    spec: str, engine: Engine
) -> tuple[all_reduce_spec.SpecSegment, ...]:
    """Return the all-reduce of `spec`, or the best for the devices if it is auto."""
    if spec == all_reduce_spec.AUTO and engine.size > 1:
        spec = all_reduce_spec.AUTO_OVER_WORKERS
    elif spec == all_reduce_spec.AUTO:
        spec = all_reduce_spec.resolve_auto(
            len(engine.devices), engine.device_type.lower(), engine.num_physical
        )
    return all_reduce_spec.parse(spec)


build = Replicated
