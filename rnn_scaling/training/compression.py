"""--compress_gradients: gradients in fewer bytes for their exchange, half precision or 8-bit numbers with a scale.

What becomes of a tower's gradient g, n towers in all:

    bfloat16             cast; the all-reduce adds in that type; cast back
    float16              the same of g 2^k, and 2^-k of the sum: 2^k brings the largest element of all towers just
                         below 2^15 / n, so that sums stay finite and small gradients do not become subnormal
    int8                 v = g + r; s = max|v| / 127; q = round(v / s); every tower gets every q and s, and adds s q

A dense gradient has one s and one k, of an embedding's touched rows each has its own. r is what the step before lost,
v - s q (error feedback; Seide et al., "1-bit stochastic gradient descent", Interspeech 2014): without it int8 would
lose for good all that is below s / 2. Half precision errs relative to each element and needs none; rows have none,
since other words come each step. Shapes: R rows, D elements a row.
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from rnn_scaling.training.all_reduce.collective import CollectiveGroup
from rnn_scaling.training.gradients import Tensors, map_devices

HALVES = {"bfloat16": tf.bfloat16, "float16": tf.float16}
GATHERED = "int8"  # no all-reduce adds these: every tower gets every other's
LARGEST = 127  # of a quantised element
_EXPONENT = 0x7F800000  # the bits of a float32 that hold its exponent
IN_A_WORD = 4  # quantised elements: collective ops move no int8, but int32
TowerGrads = Sequence[Tensors]  # [tower][gradient]
Reduce = Callable[[TowerGrads], list[list[tf.Tensor]]]


class Compression:
    """What becomes of gradients before and after their exchange, on the devices of the towers; here nothing."""

    def sum(
        self, names: Sequence[str], dense: TowerGrads, reduce: Reduce
    ) -> list[list[tf.Tensor]]:
        """`[tower][gradient]`: the sums over all towers."""
        return reduce(dense)

    def shrink(self, rows: tf.Tensor) -> tf.Tensor:
        """Touched rows `[R, D]` of an embedding, as they travel: `[R, ...]`."""
        return rows

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        """float32 `[R, D]` of what `shrink` gave; `width` is D."""
        return rows


def build(
    kind: str,
    shapes: Mapping[str, Sequence[int]],
    devices: Sequence[str],
    group: CollectiveGroup | None,
) -> Compression:
    """What --compress_gradients names; `shapes`: of the gradients that are exchanged as dense ones, by name."""
    if kind in HALVES:
        return Half(HALVES[kind], devices, group)
    return Quantised(shapes, devices, group) if kind == GATHERED else Compression()


class Half(Compression):
    def __init__(
        self, dtype: tf.DType, devices: Sequence[str], group: CollectiveGroup | None
    ) -> None:
        self._dtype, self._devices, self._group = dtype, list(devices), group
        self._scales = dtype == tf.float16  # bfloat16 has the range of float32
        num_towers = group.size if group else len(devices)
        self._top = (
            15 - (num_towers - 1).bit_length()
        )  # finite elements stay below 2^top, and their sum below 2^15

    def sum(
        self, names: Sequence[str], dense: TowerGrads, reduce: Reduce
    ) -> list[list[tf.Tensor]]:
        if not self._scales or not names:
            summed = reduce(
                self._each(dense, lambda gradient, _: tf.cast(gradient, self._dtype))
            )
            return self._each(summed, lambda gradient, _: tf.cast(gradient, tf.float32))
        scales = self._shared_scales(dense)
        summed = reduce(
            self._each(
                dense,
                lambda gradient, scale: tf.cast(gradient * scale, self._dtype),
                scales,
            )
        )
        return self._each(
            summed,
            lambda gradient, scale: tf.cast(gradient, tf.float32) / scale,
            scales,
        )

    def shrink(self, rows: tf.Tensor) -> tf.Tensor:
        if not self._scales:
            return tf.bitcast(
                tf.cast(rows, self._dtype), tf.float16
            )  # collective ops gather no bfloat16
        scales = self._scale_of(_largest_finite(rows, axis=1))
        return tf.concat(
            [
                tf.cast(rows * scales[:, None], tf.float16),
                tf.bitcast(scales, tf.float16),
            ],
            1,
        )

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        if not self._scales:
            return tf.cast(tf.bitcast(rows, self._dtype), tf.float32)
        scales = tf.bitcast(rows[:, width:], tf.float32)[
            :, None
        ]  # 0 of the rows that only pad
        return tf.math.divide_no_nan(tf.cast(rows[:, :width], tf.float32), scales)

    def _each(
        self,
        grads: TowerGrads,
        change: Callable[..., tf.Tensor],
        scales: Tensors = (),
    ) -> list[list[tf.Tensor]]:
        """`change` of every gradient and its scale, on its tower's device."""

        def changed(gradients: Tensors, scale: tf.Tensor | None) -> list[tf.Tensor]:
            own_scales = (
                [None] * len(gradients)
                if scale is None
                else tf.unstack(scale, len(gradients))
            )
            return [change(*pair) for pair in zip(gradients, own_scales, strict=True)]

        return map_devices(self._devices, changed, grads, scales or [None] * len(grads))

    def _shared_scales(self, dense: TowerGrads) -> list[tf.Tensor]:
        """`[tower]`: a scale for each gradient, the same on all towers of all workers."""
        largest = map_devices(
            self._devices,
            lambda grads: tf.stack(list(map(_largest_finite, grads))),
            dense,
        )
        if self._group is not None:
            of_all = self._group.reduce(largest, "Max")
        else:
            of_all = map_devices(
                self._devices, lambda: tf.reduce_max(tf.stack(largest), 0)
            )
        return map_devices(self._devices, self._scale_of, of_all)

    def _scale_of(self, largest: tf.Tensor) -> tf.Tensor:
        """2^k with largest * 2^k < 2^top; k is bounded so that 2^-k is a normal number, too."""
        bits = tf.bitcast(tf.clip_by_value(largest, 2.0**-100, 2.0**126), tf.int32)
        # With e the exponent's eight bits, largest < 2^(e - 126); turned round they are those of 2^(128 - e).
        exponent = tf.bitwise.bitwise_xor(
            tf.bitwise.bitwise_and(bits, _EXPONENT), _EXPONENT
        )
        return tf.bitcast(exponent, tf.float32) * 2.0 ** (self._top - 2)


class Quantised(Compression):
    """int8; keeps what each step loses of dense gradients for the next."""

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        devices: Sequence[str],
        group: CollectiveGroup | None,
    ) -> None:
        self._devices = list(devices)
        self._group = group

        def nothing() -> dict[str, tf.Variable]:
            zeros = {
                name: tf.zeros([1, tf.TensorShape(shape).num_elements()])
                for name, shape in shapes.items()
            }
            return {
                name: tf.Variable(zero, trainable=False) for name, zero in zeros.items()
            }

        self._lost = map_devices(self._devices, nothing)

    def sum(
        self, names: Sequence[str], dense: TowerGrads, reduce: Reduce
    ) -> list[list[tf.Tensor]]:
        summed: list[list[tf.Tensor]] = [[] for _ in dense]
        # Last first, as backpropagation yields them: collective ops run in the order in which they are traced.
        for index, name in reversed(list(enumerate(names))):
            grads = [tower[index] for tower in dense]
            lost = [tower[name] for tower in self._lost]
            packed = map_devices(self._devices, _pack, grads, lost)
            for tower, rows in enumerate(self._gather(packed)):
                shape = dense[tower][index].shape
                with tf.device(self._devices[tower]):
                    total = tf.reduce_sum(
                        unpack_rows(rows, shape.num_elements()), axis=0
                    )
                    summed[tower].insert(0, tf.reshape(total, shape))
        return summed

    def shrink(self, rows: tf.Tensor) -> tf.Tensor:
        return pack_rows(rows)

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        return unpack_rows(rows, width)

    def _gather(self, packed: Tensors) -> list[tf.Tensor]:
        if self._group is not None:
            return self._group.gather(packed)
        return map_devices(self._devices, lambda: tf.concat(packed, axis=0))


def pack_rows(rows: tf.Tensor) -> tf.Tensor:
    """float32 `[R, D]` -> int32 `[R, 1 + ceil(D / 4)]`: each row's scale, then its elements as int8.

    The scale of a row with an element that is not finite is NaN, and so is what `unpack_rows` makes of it.
    """
    finite = tf.reduce_all(tf.math.is_finite(rows), axis=1, keepdims=True)
    largest = tf.reduce_max(tf.abs(rows), axis=1, keepdims=True)
    scales = tf.where(finite, largest / LARGEST, float("nan"))
    quantised = tf.cast(tf.round(tf.math.divide_no_nan(rows, scales)), tf.int8)
    padded = tf.pad(quantised, [[0, 0], [0, -rows.shape[1] % IN_A_WORD]])
    words = tf.bitcast(
        tf.reshape(padded, [-1, padded.shape[1] // IN_A_WORD, IN_A_WORD]), tf.int32
    )
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
    lost.assign(
        tf.where(tf.math.is_finite(rest), rest, tf.zeros_like(rest))
    )  # what overflowed is skipped by all
    return packed


def _largest_finite(values: tf.Tensor, axis: int | None = None) -> tf.Tensor:
    """The largest absolute value, infinite and undefined ones left out; 0 where there is none."""
    return tf.reduce_max(tf.where(tf.math.is_finite(values), tf.abs(values), 0.0), axis)
