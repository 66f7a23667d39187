"""Gradients as graph functions: place, pack, add, measure, clip. Nothing here keeps state.

A gradient is a dense tensor or, for an embedding, IndexedSlices: rows `[R, ...]` and their indices `[R]` in a
variable `[V, ...]`; an index may come several times, and such rows add up.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from rnn_scaling.data.pipeline import map_devices

Tensors: TypeAlias = "Sequence[tf.Tensor]"
Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"
Unpack = Callable[[Tensors], list[tf.Tensor]]
Reduce = Callable[
    [Tensors], list[tf.Tensor]
]  # one tensor a tower -> their sum on each tower's device


def place(tensors: Tensors, devices: Sequence[str]) -> list[tf.Tensor]:
    """Tensor i on device i; a tensor that is there already is not copied."""
    return map_devices(devices, tf.identity, tensors)


def reduce_with(devices: Sequence[str], add: Reduce) -> Reduce:
    """One tensor a tower -> their sum on each tower's device; `add` gets two or more, each on its device."""

    def reduce(tensors: Tensors) -> list[tf.Tensor]:
        placed = place(tensors, devices)
        return placed if len(placed) == 1 else add(placed)

    return reduce


def num_bytes(tensor: tf.Tensor | tf.Variable) -> int:
    """Size of a tensor, whose shape is static, or of a variable."""
    return int(tensor.shape.num_elements() * tensor.dtype.size)


def densify(gradient: Gradient) -> tf.Tensor:
    """`[V, ...]`: rows of equal index added, zeros elsewhere; a dense gradient as it is."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(
        gradient.values, gradient.indices, gradient.dense_shape[0]
    )


def add(grads: Sequence[Gradient]) -> Gradient:
    """The sum of the towers' gradients, on the current device; of sparse ones the rows of all, in tower order."""
    if isinstance(grads[0], tf.IndexedSlices):
        values = tf.concat([gradient.values for gradient in grads], axis=0)
        indices = tf.concat([gradient.indices for gradient in grads], axis=0)
        return tf.IndexedSlices(values, indices, grads[0].dense_shape)
    return grads[0] if len(grads) == 1 else tf.add_n(grads)


def squared_norm(gradient: Gradient) -> tf.Tensor:
    """float32 scalar: the sum of squares of the dense gradient, rows of equal index added before."""
    values = gradient
    if isinstance(gradient, tf.IndexedSlices):
        # Only touched rows are non-zero: add duplicates among them instead of filling the whole table.
        touched, segment = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(
            gradient.values, segment, tf.size(touched)
        )
    return tf.reduce_sum(tf.square(tf.cast(values, tf.float32)))


def clip_scale(global_norm: tf.Tensor, max_norm: float) -> tf.Tensor:
    """What to multiply gradients by so that their global L2 norm is at most `max_norm` > 0; NaN stays NaN."""
    return max_norm / tf.maximum(global_norm, max_norm)


def repack(grads: Tensors, pieces: int) -> tuple[list[tf.Tensor], Unpack]:
    """All gradients as one vector, cut in at most `pieces` parts whose sizes differ by at most one element.

    Returns the parts, and the function that makes gradients of (reduced) parts. `grads`: dense, of one dtype and static
    shapes.
    """
    if not grads:
        return [], list
    shapes = [grad.shape for grad in grads]
    sizes = [shape.num_elements() for shape in shapes]
    total = sum(sizes)
    pieces = max(1, min(pieces, total))
    piece_sizes = [
        total // pieces + (piece < total % pieces) for piece in range(pieces)
    ]

    def unpack(packed: Tensors) -> list[tf.Tensor]:
        parts = tf.split(_join(packed), sizes)
        return [
            tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)
        ]

    return list(tf.split(_join(grads), piece_sizes)), unpack


def pack_small(
    grads: Tensors, max_bytes: int, max_group: int
) -> tuple[list[tf.Tensor], Unpack]:
    """Joins gradients of one dtype and at most `max_bytes`, in their order, in vectors of at most `max_group` of them.

    A pack stands where its first gradient stood; one that is larger, or alone, stays as it is. 0 bytes: all stay.
    Result and `grads` as of `repack`, of any dtypes.
    """
    groups = _group_small(grads, max_bytes, max_group)
    shapes = [grad.shape for grad in grads]
    packed = [
        grads[g[0]] if len(g) == 1 else _join([grads[i] for i in g]) for g in groups
    ]

    def unpack(packed: Tensors) -> list[tf.Tensor]:
        restored: dict[int, tf.Tensor] = {}
        for group, tensor in zip(groups, packed, strict=True):
            if len(group) == 1:
                restored[group[0]] = tensor
                continue
            parts = tf.split(tensor, [shapes[i].num_elements() for i in group])
            restored.update(
                (i, tf.reshape(part, shapes[i]))
                for i, part in zip(group, parts, strict=True)
            )
        return [restored[i] for i in range(len(shapes))]

    return packed, unpack


def _group_small(grads: Tensors, max_bytes: int, max_group: int) -> list[list[int]]:
    """Indices of the gradients, by pack, in the order of each pack's first."""
    groups: list[list[int]] = []
    open_group: dict[tf.DType, list[int]] = {}
    for index, grad in enumerate(grads):
        if max_bytes <= 0 or num_bytes(grad) > max_bytes:
            groups.append([index])
            continue
        group = open_group.get(grad.dtype)
        if group is None or len(group) == max_group:
            group = open_group[grad.dtype] = []
            groups.append(group)
        group.append(index)
    return groups


def _join(tensors: Tensors) -> tf.Tensor:
    return tf.concat([tf.reshape(tensor, [-1]) for tensor in tensors], axis=0)
