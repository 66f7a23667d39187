"""--compress_gradients: gradients in fewer bytes for their exchange, half precision or 8-bit numbers with a scale.

What becomes of a tower's gradient g, n towers in all:

    bfloat16, float16    cast; the all-reduce adds in that type; cast back
    int8                 v = g + r; s = max|v| / 127; q = round(v / s); every tower gets every q and s, and adds s q

A dense gradient has one s, of an embedding's touched rows each has its own. r is what the step before lost, v - s q
(error feedback; Seide et al., "1-bit stochastic gradient descent", Interspeech 2014): without it int8 would lose for
good all that is below s / 2. Half precision errs relative to each element and needs none; rows have none, since other
words come each step. Shapes: R rows, D elements a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from rnn_scaling.training.all_reduce.collective import Group

HALVES = {"bfloat16": tf.bfloat16, "float16": tf.float16}
GATHERED = "int8"  # no all-reduce adds these: every tower gets every other's
LARGEST = 127  # of a quantised element
IN_A_WORD = 4  # quantised elements: collective ops move no int8, but int32
TowerGrads = Sequence[Sequence[tf.Tensor]]  # [tower][gradient]
Reduce = Callable[[TowerGrads], list[list[tf.Tensor]]]


class Compression(Protocol):
    """What becomes of gradients before and after their exchange, on the devices of the towers."""

    def sum(self, names: Sequence[str], dense: TowerGrads, reduce: Reduce) -> list[list[tf.Tensor]]:
        """`[tower][gradient]`: the sums over all towers.

        Args:
          names: of the gradients.
          dense: of each tower of this process, float32.
          reduce: sums what it gets over all towers.
        """

    def shrink(self, rows: tf.Tensor) -> tf.Tensor:
        """Touched rows `[R, D]` of an embedding, as they travel: `[R, ...]`."""

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        """float32 `[R, D]` of what `shrink` gave; `width` is D."""


def build(
    kind: str, shapes: Mapping[str, Sequence[int]], devices: Sequence[str], group: Group | None, num_towers: int
) -> Compression:
    """What --compress_gradients names.

    Args:
      kind: its value.
      shapes: of the gradients that are exchanged as dense ones, by name.
      devices: of this process's towers.
      group: of them and those of other workers; None: there are no others.
      num_towers: of all workers.
    """
    if kind in HALVES:
        return Half(HALVES[kind], devices, num_towers)
    return Quantised(shapes, devices, group) if kind == GATHERED else Whole()


class Whole:
    """Nothing is compressed."""

    def sum(self, names: Sequence[str], dense: TowerGrads, reduce: Reduce) -> list[list[tf.Tensor]]:
        return reduce(dense)

    def shrink(self, rows: tf.Tensor) -> tf.Tensor:
        return rows

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        return rows


class Half:
    """Half precision, in which the all-reduce adds too."""

    def __init__(self, dtype: tf.DType, devices: Sequence[str], num_towers: int) -> None:
        """Args:
        dtype: bfloat16 or float16.
        devices: of this process's towers.
        num_towers: of all workers.
        """
        self._dtype, self._devices = dtype, list(devices)
        # Finite elements are bounded so that their sum stays finite; bfloat16 has the range of float32.
        self._most = float(dtype.max) / num_towers if dtype == tf.float16 else None

    def sum(self, names: Sequence[str], dense: TowerGrads, reduce: Reduce) -> list[list[tf.Tensor]]:
        shrunk, restored = [], []
        for device, grads in zip(self._devices, dense, strict=True):
            with tf.device(device):
                shrunk.append([self._cast(gradient) for gradient in grads])
        for device, grads in zip(self._devices, reduce(shrunk), strict=True):
            with tf.device(device):
                restored.append([tf.cast(gradient, tf.float32) for gradient in grads])
        return restored

    def shrink(self, rows: tf.Tensor) -> tf.Tensor:
        return tf.bitcast(self._cast(rows), tf.float16)  # collective ops gather no bfloat16, though they add it

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        return tf.cast(tf.bitcast(rows, self._dtype), tf.float32)

    def _cast(self, gradient: tf.Tensor) -> tf.Tensor:
        if self._most is not None:
            bounded = tf.clip_by_value(gradient, -self._most, self._most)
            gradient = tf.where(tf.math.is_finite(gradient), bounded, gradient)  # loss scaling looks for the others
        return tf.cast(gradient, self._dtype)


class Quantised:
    """int8; keeps what each step loses of dense gradients for the next."""

    def __init__(self, shapes: Mapping[str, Sequence[int]], devices: Sequence[str], group: Group | None) -> None:
        """Args:
        shapes: of the dense gradients, by name.
        devices: of this process's towers.
        group: of them and those of other workers; None: there are no others.
        """
        self._devices, self._group = list(devices), group
        self._lost: list[dict[str, tf.Variable]] = []
        for device in devices:
            with tf.device(device):
                zeros = {name: tf.zeros([1, tf.TensorShape(shape).num_elements()]) for name, shape in shapes.items()}
                self._lost.append({name: tf.Variable(each, trainable=False) for name, each in zeros.items()})

    def sum(self, names: Sequence[str], dense: TowerGrads, reduce: Reduce) -> list[list[tf.Tensor]]:
        summed: list[list[tf.Tensor]] = [[] for _ in dense]
        # Last first, as backpropagation yields them: collective ops run in the order in which they are traced.
        for index, name in reversed(list(enumerate(names))):
            packed = []
            for tower, device in enumerate(self._devices):
                with tf.device(device):
                    packed.append(_pack(dense[tower][index], self._lost[tower][name]))
            for tower, rows in enumerate(self._gather(packed)):
                shape = dense[tower][index].shape
                with tf.device(self._devices[tower]):
                    total = tf.reduce_sum(unpack_rows(rows, shape.num_elements()), axis=0)
                    summed[tower].insert(0, tf.reshape(total, shape))
        return summed

    def shrink(self, rows: tf.Tensor) -> tf.Tensor:
        return pack_rows(rows)

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        return unpack_rows(rows, width)

    def _gather(self, packed: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """All towers' rows on each tower's device."""
        if self._group is not None:
            return self._group.gather(packed)
        gathered = []
        for device in self._devices:
            with tf.device(device):
                gathered.append(tf.concat(packed, axis=0))
        return gathered


def pack_rows(rows: tf.Tensor) -> tf.Tensor:
    """float32 `[R, D]` -> int32 `[R, 1 + ceil(D / 4)]`: each row's scale, then its elements as int8.

    The scale of a row with an element that is not finite is NaN, and so is what `unpack_rows` makes of it.
    """
    finite = tf.reduce_all(tf.math.is_finite(rows), axis=1, keepdims=True)
    largest = tf.reduce_max(tf.abs(rows), axis=1, keepdims=True)
    scales = tf.where(finite, largest / LARGEST, float("nan"))
    quantised = tf.cast(tf.round(tf.math.divide_no_nan(rows, scales)), tf.int8)
    padded = tf.pad(quantised, [[0, 0], [0, -rows.shape[1] % IN_A_WORD]])
    words = tf.bitcast(tf.reshape(padded, [-1, padded.shape[1] // IN_A_WORD, IN_A_WORD]), tf.int32)
    return tf.concat([tf.bitcast(scales, tf.int32), words], axis=1)


def unpack_rows(packed: tf.Tensor, width: int) -> tf.Tensor:
    """The float32 `[R, D]` that `pack_rows` made these of, within half a scale of each element; `width` is D."""
    scales = tf.bitcast(packed[:, :1], tf.float32)
    elements = tf.bitcast(packed[:, 1:], tf.int8)  # [R, words, 4]
    num_words = -(-width // IN_A_WORD)
    rows = tf.reshape(elements, [-1, num_words * IN_A_WORD])[:, :width]
    return tf.cast(rows, tf.float32) * scales


def _pack(gradient: tf.Tensor, lost: tf.Variable) -> tf.Tensor:
    """`pack_rows` of the gradient and what was lost of it, as one row; keeps what is lost now."""
    whole = tf.reshape(gradient, [1, -1]) + lost
    packed = pack_rows(whole)
    rest = whole - unpack_rows(packed, lost.shape[1])
    lost.assign(tf.where(tf.math.is_finite(rest), rest, tf.zeros_like(rest)))  # what overflowed is skipped by all
    return packed
