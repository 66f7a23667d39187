"""Gradients as graph functions without state: place, pack, add, measure, clip.

A gradient is a dense tensor or, for an embedding, IndexedSlices: rows `[R, ...]` and
their indices `[R]` in a variable `[V, ...]`. Rows with the same index are added.

The functions are called while a step is traced, by the update modes and the
all-reduces. They place operators on the current device unless they get devices.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from rnn_scaling.data.pipeline import map_devices

Tensors: TypeAlias = "Sequence[tf.Tensor]"
Gradient: TypeAlias = "tf.Tensor | tf.IndexedSlices"
Unpack = Callable[[Tensors], list[tf.Tensor]]
# Takes one tensor per tower and returns their sum on each tower's device.
Reduce = Callable[[Tensors], list[tf.Tensor]]


def copy_to_devices(tensors: Tensors, devices: Sequence[str]) -> list[tf.Tensor]:
    """Return tensor i on device i; a tensor is only copied to another device."""
    return map_devices(devices, tf.identity, tensors)


def reduce_with(devices: Sequence[str], add: Reduce) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    Args:
      devices: The devices of the towers.
      add: Sums two or more tensors, each on its tower's device.
    """

    def reduce(tensors: Tensors) -> list[tf.Tensor]:
        placed = copy_to_devices(tensors, devices)
        return placed if len(placed) == 1 else add(placed)

    return reduce


def count_bytes(tensor: tf.Tensor | tf.Variable) -> int:
    """Return the bytes of a variable, or of a tensor with a static shape."""
    return int(tensor.shape.num_elements() * tensor.dtype.size)


def get_values(gradient: Gradient) -> tf.Tensor:
    """Return a dense gradient, or the rows of a sparse one."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient


def densify(gradient: Gradient) -> tf.Tensor:
    """Return a dense gradient `[V, ...]`: rows with the same index are added."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    return tf.math.unsorted_segment_sum(
        gradient.values, gradient.indices, gradient.dense_shape[0]
    )


def add(grads: Sequence[Gradient]) -> Gradient:
    """Return the sum of the towers' gradients, on the current device.

    The sum of sparse gradients contains the rows of all towers, in tower order.
    """
    if isinstance(grads[0], tf.IndexedSlices):
        values = tf.concat([gradient.values for gradient in grads], axis=0)
        indices = tf.concat([gradient.indices for gradient in grads], axis=0)
        return tf.IndexedSlices(values, indices, grads[0].dense_shape)
    return grads[0] if len(grads) == 1 else tf.add_n(grads)


def compute_squared_norm(gradient: Gradient) -> tf.Tensor:
    """Return the sum of squares of a gradient, a float32 scalar.

    Rows with the same index are added before.
    """
    values = gradient
    if isinstance(gradient, tf.IndexedSlices):
        # Only the touched rows are not zero, so the other rows are not filled in.
        unique_indices, segment = tf.unique(gradient.indices)
        values = tf.math.unsorted_segment_sum(
            gradient.values, segment, tf.size(unique_indices)
        )
    return tf.reduce_sum(tf.square(tf.cast(values, tf.float32)))


def clip_scale(global_norm: tf.Tensor, max_norm: float) -> tf.Tensor:
    """Return the factor that limits the gradients' global L2 norm to `max_norm` > 0.

    It is NaN if the norm is NaN.
    """
    return max_norm / tf.maximum(global_norm, max_norm)


def repack(grads: Tensors, num_pieces: int) -> tuple[list[tf.Tensor], Unpack]:
    """Concatenate all gradients and cut the vector in pieces of nearly equal size.

    Args:
      grads: Dense gradients of one dtype, with static shapes.
      num_pieces: Maximum number of pieces, whose sizes differ by at most one element.

    Returns:
      The pieces, and the function that makes gradients of (reduced) pieces.
    """
    if not grads:
        return [], list
    shapes = [grad.shape for grad in grads]
    sizes = [shape.num_elements() for shape in shapes]
    total = sum(sizes)
    num_pieces = max(1, min(num_pieces, total))
    piece_sizes = [
        total // num_pieces + (piece < total % num_pieces)
        for piece in range(num_pieces)
    ]

    def unpack(packed: Tensors) -> list[tf.Tensor]:
        flat = tf.split(_join(packed), sizes)
        return [
            tf.reshape(vector, shape)
            for vector, shape in zip(flat, shapes, strict=True)
        ]

    return list(tf.split(_join(grads), piece_sizes)), unpack


def pack_small(
    grads: Tensors, max_bytes: int, max_group: int
) -> tuple[list[tf.Tensor], Unpack]:
    """Concatenate small gradients of the same dtype.

    A pack takes the position of its first gradient.

    Args:
      grads: Dense gradients with static shapes.
      max_bytes: Larger gradients are not packed; 0 to pack nothing.
      max_group: Maximum number of gradients in a pack.

    Returns:
      The packs and other gradients, and the function that makes gradients of (reduced)
      packs.
    """
    groups = _group_small(grads, max_bytes, max_group)
    shapes = [grad.shape for grad in grads]
    packed = []
    for group in groups:
        members = [grads[index] for index in group]
        packed.append(members[0] if len(members) == 1 else _join(members))

    def unpack(packed: Tensors) -> list[tf.Tensor]:
        restored: dict[int, tf.Tensor] = {}
        for group, tensor in zip(groups, packed, strict=True):
            if len(group) == 1:
                restored[group[0]] = tensor
                continue
            flat = tf.split(tensor, [shapes[index].num_elements() for index in group])
            for index, vector in zip(group, flat, strict=True):
                restored[index] = tf.reshape(vector, shapes[index])
        return [restored[index] for index in range(len(shapes))]

    return packed, unpack


def _group_small(grads: Tensors, max_bytes: int, max_group: int) -> list[list[int]]:
    """Return the indices of each pack's gradients, ordered by their first gradient."""
    groups: list[list[int]] = []
    open_group: dict[tf.DType, list[int]] = {}
    for index, grad in enumerate(grads):
        if max_bytes <= 0 or count_bytes(grad) > max_bytes:
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
