"""Sum dense gradients over the towers: pack, choose the algorithm by size, reduce.

The modes with one copy of the variables per tower call `reduce_dense`.

An algorithm is a module of this package and a row of `config.registry.ALL_REDUCES`. Its
function `build(devices, shards)` returns a `gradients.Reduce`. If the algorithm works
across processes, the function is `build(devices, shards, group)`.
"""

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
    num_pieces: int,
    max_packed_bytes: int,
    max_gradients_per_pack: int,
    group: CollectiveGroup | None = None,
) -> list[list[tf.Tensor]]:
    """Return the sum of each gradient over the towers, on each tower's device.

    Args:
      tower_grads: `[tower][gradient]`; all towers have the same number of gradients,
        dtypes and static shapes.
      devices: The devices of the towers.
      segments: The algorithm for each range of sizes; a pack counts as one tensor.
      num_pieces: Number of pieces of equal size into which all gradients are
        concatenated and cut. 0 to pack gradients by size instead.
      max_packed_bytes: Gradients of at most this size are packed; 0 for no packs.
      max_gradients_per_pack: Maximum number of gradients in a pack.
      group: The towers of all processes, or None for this process only.

    Returns:
      The sums `[tower][gradient]`.
    """

    def pack(grads: Tensors) -> tuple[list[tf.Tensor], gradients.Unpack]:
        if num_pieces:
            return gradients.repack(grads, num_pieces)
        return gradients.pack_small(grads, max_packed_bytes, max_gradients_per_pack)

    # The packs of each tower, in the same order at all towers.
    packs, unpacks = zip(*gradients.map_devices(devices, pack, tower_grads))
    reduce_functions = _build_reduce_functions(devices, segments, group)
    summed: list[list[tf.Tensor]] = [[] for _ in devices]
    # In the order of backpropagation, last gradient first: collective operators run in
    # the order of tracing, which must be equal at all ranks.
    for tensors in reversed(list(zip(*packs, strict=True))):
        segment = select(segments, gradients.count_bytes(tensors[0]))
        reduce_function = reduce_functions[segment.algorithm, segment.shards]
        for tower, tensor in enumerate(reduce_function(tensors)):
            summed[tower].append(tensor)
    for sums in summed:
        sums.reverse()
    return gradients.map_devices(
        devices, lambda unpack, packed: unpack(packed), unpacks, summed
    )


def _build_reduce_functions(
    devices: Sequence[str],
    segments: Sequence[SpecSegment],
    group: CollectiveGroup | None,
) -> dict[tuple[str, int], gradients.Reduce]:
    """Return the all-reduce of each algorithm and number of shards in the segments.

    Only all-reduces that work across processes accept a group.
    """
    group_arguments = [] if group is None else [group]
    reduce_functions = {}
    for segment in segments:
        build = load(ALL_REDUCES, segment.algorithm).build
        reduce_functions[segment.algorithm, segment.shards] = build(
            devices, segment.shards, *group_arguments
        )
    return reduce_functions
