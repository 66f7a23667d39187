"""Dense gradients of all towers in, their sums out: pack, choose the algorithm by size, reduce, unpack."""

from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.config.all_reduce_spec import SpecSegment, select
from rnn_scaling.config.registry import ALL_REDUCES, load
from rnn_scaling.training import gradients
from rnn_scaling.training.all_reduce.collective import CollectiveGroup
from rnn_scaling.training.gradients import Tensors


def reduce_dense(
    tower_grads: Sequence[Tensors],
    devices: Sequence[str],
    segments: Sequence[SpecSegment],
    repacking: int,
    agg_max_bytes: int,
    agg_max_group: int,
    group: CollectiveGroup | None = None,
) -> list[list[tf.Tensor]]:
    """Sums each gradient over the towers.

    Args:
      tower_grads: `[tower][gradient]`; towers agree in number, dtypes and static shapes.
      segments: which algorithm takes a tensor of which size, all possible by `all_reduce_spec.problems`; a pack counts
        as one tensor.
      repacking: exchange all gradients in this many equal pieces, whatever `agg_max_bytes` is; 0: off.
      agg_max_bytes, agg_max_group: pack gradients of at most this many bytes (0: none), at most so many in a pack.

    Returns:
      `[tower][gradient]`, the sums, on each tower's device.
    """

    def pack(grads: Tensors) -> tuple[list[tf.Tensor], gradients.Unpack]:
        if repacking:
            return gradients.repack(grads, repacking)
        return gradients.pack_small(grads, agg_max_bytes, agg_max_group)

    packs, unpacks = zip(*gradients.map_devices(devices, pack, tower_grads))
    spanning = [] if group is None else [group]
    reduces = {}
    for segment in segments:
        algorithm = segment.algorithm
        shards = segment.shards
        reduces[algorithm, shards] = load(ALL_REDUCES, algorithm).build(
            devices, shards, *spanning
        )
    summed: list[list[tf.Tensor]] = [[] for _ in devices]
    # Last first, as backpropagation yields them: collective ops run in the order in which they are traced.
    for tensors in reversed(list(zip(*packs, strict=True))):
        segment = select(segments, gradients.num_bytes(tensors[0]))
        for tower, tensor in enumerate(
            reduces[segment.algorithm, segment.shards](tensors)
        ):
            summed[tower].insert(0, tensor)
    return gradients.map_devices(
        devices, lambda unpack, packed: unpack(packed), unpacks, summed
    )
