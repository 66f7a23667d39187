"""--compress_gradients: exchange gradients in half precision, or as int8 with a scale.

The gradient g of a tower, with n towers in total, is exchanged like this:

    bfloat16   cast; the all-reduce adds in that type; cast back
    float16    the same with g 2^k, and the sum times 2^-k. 2^k brings the largest
               element of all towers just below 2^15 / n, so that sums stay finite and
               small gradients do not become subnormal
    int8       v = g + r; s = max|v| / 127; q = round(v / s); every tower gets every
               q and s, and adds s q

A dense gradient has one s and one k; each touched row of an embedding has its own s
and k. r is the error v - s q of the step before (error feedback; Seide et al., "1-bit
stochastic gradient descent", Interspeech 2014). Without it int8 would permanently lose
everything below s / 2. Half precision needs no feedback, because its error is relative
to each element. Rows have no feedback, because each step has other words.

Shapes: R rows, D elements per row.

`replicated` builds it and exchanges what it returns; other modes refuse the option.
"""

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from rnn_scaling.training.all_reduce.collective import CollectiveGroup
from rnn_scaling.training.gradients import Tensors, map_devices

_HALVES = {"bfloat16": tf.bfloat16, "float16": tf.float16}
GATHERED = "int8"  # every tower gets all gradients, without an all-reduce
_MAX_QUANTISED = 127
_EXPONENT_BITS = 0x7F800000  # the exponent of a float32
# int8 elements in an int32, because collective operators do not transport int8.
_ELEMENTS_PER_WORD = 4
TowerGrads = Sequence[Tensors]  # [tower][gradient]
Reduce = Callable[[TowerGrads], list[list[tf.Tensor]]]


class Compression:
    """Compression of gradients on the towers' devices; this one changes nothing."""

    def sum(
        self, names: Sequence[str], dense: TowerGrads, reduce: Reduce
    ) -> list[list[tf.Tensor]]:
        """Return the sums over all towers as `[tower][gradient]`.

        Args:
          names: The names of the gradients.
          dense: The towers' gradients.
          reduce: Sums them over the towers.
        """
        return reduce(dense)

    def compress(self, rows: tf.Tensor) -> tf.Tensor:
        """Compress touched rows `[R, D]` of an embedding to `[R, ...]`."""
        return rows

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        """Restore float32 rows `[R, D]` from the result of `compress`; `width` is D."""
        return rows


def build(
    kind: str,
    shapes: Mapping[str, Sequence[int]],
    devices: Sequence[str],
    group: CollectiveGroup | None,
) -> Compression:
    """Return the compression that --compress_gradients names.

    Args:
      kind: The value of the flag.
      shapes: Shapes of the dense gradients by name.
      devices: The devices of the towers.
      group: The towers of all processes, or None for this process only.
    """
    if kind in _HALVES:
        return Half(_HALVES[kind], devices, group)
    return Quantised(shapes, devices, group) if kind == GATHERED else Compression()


class Half(Compression):
    """Half precision, with a scale for float16."""

    def __init__(
        self, dtype: tf.DType, devices: Sequence[str], group: CollectiveGroup | None
    ) -> None:
        self._dtype = dtype
        self._devices = list(devices)
        self._group = group
        self._scales = dtype == tf.float16  # bfloat16 has the range of float32
        num_towers = group.size if group else len(devices)
        # Finite elements stay below 2^top, and their sum below 2^15.
        self._top = 15 - (num_towers - 1).bit_length()

    def sum(
        self, names: Sequence[str], dense: TowerGrads, reduce: Reduce
    ) -> list[list[tf.Tensor]]:
        if not self._scales or not names:
            summed = reduce(
                self._map(dense, lambda gradient, _: tf.cast(gradient, self._dtype))
            )
            return self._map(summed, lambda gradient, _: tf.cast(gradient, tf.float32))
        scales = self._compute_shared_scales(dense)
        summed = reduce(
            self._map(
                dense,
                lambda gradient, scale: tf.cast(gradient * scale, self._dtype),
                scales,
            )
        )
        return self._map(
            summed,
            lambda gradient, scale: tf.cast(gradient, tf.float32) / scale,
            scales,
        )

    def compress(self, rows: tf.Tensor) -> tf.Tensor:
        if not self._scales:
            # Collective operators do not gather bfloat16.
            return tf.bitcast(tf.cast(rows, self._dtype), tf.float16)
        scales = self._make_scale(_find_largest_finite(rows, axis=1))
        scaled_rows = tf.cast(rows * scales[:, None], tf.float16)
        return tf.concat([scaled_rows, tf.bitcast(scales, tf.float16)], 1)

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        if not self._scales:
            return tf.cast(tf.bitcast(rows, self._dtype), tf.float32)
        # The scale is 0 in rows that are only padding.
        scales = tf.bitcast(rows[:, width:], tf.float32)[:, None]
        return tf.math.divide_no_nan(tf.cast(rows[:, :width], tf.float32), scales)

    def _map(
        self,
        grads: TowerGrads,
        change: Callable[..., tf.Tensor],
        scales: Tensors = (),
    ) -> list[list[tf.Tensor]]:
        """Call `change` with every gradient and its scale, on its tower's device."""

        def change_all(
            gradients: Tensors, tower_scales: tf.Tensor | None
        ) -> list[tf.Tensor]:
            pairs = zip(
                gradients,
                [None] * len(gradients)
                if tower_scales is None
                else tf.unstack(tower_scales, len(gradients)),
                strict=True,
            )
            return [change(gradient, scale) for gradient, scale in pairs]

        return map_devices(
            self._devices, change_all, grads, scales or [None] * len(grads)
        )

    def _compute_shared_scales(self, dense: TowerGrads) -> list[tf.Tensor]:
        """Return the scales of all gradients, equal on all towers of all workers.

        Returns:
          One vector per tower.
        """
        largest = map_devices(
            self._devices,
            lambda grads: tf.stack(list(map(_find_largest_finite, grads))),
            dense,
        )
        if self._group is not None:
            global_largest = self._group.reduce(largest, "Max")
        else:
            global_largest = map_devices(
                self._devices, lambda: tf.reduce_max(tf.stack(largest), 0)
            )
        return map_devices(self._devices, self._make_scale, global_largest)

    def _make_scale(self, largest: tf.Tensor) -> tf.Tensor:
        """Return 2^k with largest * 2^k < 2^top and a normal number 2^-k."""
        bits = tf.bitcast(tf.clip_by_value(largest, 2.0**-100, 2.0**126), tf.int32)
        # If e is the number in the exponent's eight bits, largest < 2^(e - 126).
        # Inverting these bits gives the exponent of 2^(128 - e).
        exponent = tf.bitwise.bitwise_xor(
            tf.bitwise.bitwise_and(bits, _EXPONENT_BITS), _EXPONENT_BITS
        )
        return tf.bitcast(exponent, tf.float32) * 2.0 ** (self._top - 2)


class Quantised(Compression):
    """int8 with error feedback for dense gradients."""

    def __init__(
        self,
        shapes: Mapping[str, Sequence[int]],
        devices: Sequence[str],
        group: CollectiveGroup | None,
    ) -> None:
        self._devices = list(devices)
        self._group = group

        def create_zeros() -> dict[str, tf.Variable]:
            variables = {}
            for name, shape in shapes.items():
                zeros = tf.zeros([1, tf.TensorShape(shape).num_elements()])
                variables[name] = tf.Variable(zeros, trainable=False)
            return variables

        self._lost = map_devices(self._devices, create_zeros)

    def sum(
        self, names: Sequence[str], dense: TowerGrads, reduce: Reduce
    ) -> list[list[tf.Tensor]]:
        summed: list[list[tf.Tensor]] = [[] for _ in dense]
        # In the order of backpropagation, last gradient first, because collective
        # operators run in the order of tracing.
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

    def compress(self, rows: tf.Tensor) -> tf.Tensor:
        return pack_rows(rows)

    def restore(self, rows: tf.Tensor, width: int) -> tf.Tensor:
        return unpack_rows(rows, width)

    def _gather(self, packed: Tensors) -> list[tf.Tensor]:
        if self._group is not None:
            return self._group.gather(packed)
        return map_devices(self._devices, lambda: tf.concat(packed, axis=0))


def pack_rows(rows: tf.Tensor) -> tf.Tensor:
    """Pack float32 `[R, D]` as int32 `[R, 1 + ceil(D / 4)]`.

    Each row is its scale and its elements as int8. If an element of a row is not
    finite, its scale is NaN, and `unpack_rows` makes the row NaN.
    """
    finite = tf.reduce_all(tf.math.is_finite(rows), axis=1, keepdims=True)
    largest = tf.reduce_max(tf.abs(rows), axis=1, keepdims=True)
    scales = tf.where(finite, largest / _MAX_QUANTISED, float("nan"))
    quantised = tf.cast(tf.round(tf.math.divide_no_nan(rows, scales)), tf.int8)
    padded = tf.pad(quantised, [[0, 0], [0, -rows.shape[1] % _ELEMENTS_PER_WORD]])
    num_words = padded.shape[1] // _ELEMENTS_PER_WORD
    words = tf.bitcast(
        tf.reshape(padded, [-1, num_words, _ELEMENTS_PER_WORD]), tf.int32
    )
    return tf.concat([tf.bitcast(scales, tf.int32), words], axis=1)


def unpack_rows(packed: tf.Tensor, width: int) -> tf.Tensor:
    """Unpack float32 rows `[R, D]`, within half a scale of each element.

    Args:
      packed: The result of `pack_rows`.
      width: D.
    """
    scales = tf.bitcast(packed[:, :1], tf.float32)
    elements = tf.bitcast(packed[:, 1:], tf.int8)  # [R, words, 4]
    num_words = -(-width // _ELEMENTS_PER_WORD)
    rows = tf.reshape(elements, [-1, num_words * _ELEMENTS_PER_WORD])[:, :width]
    return tf.cast(rows, tf.float32) * scales


def _pack(gradient: tf.Tensor, lost: tf.Variable) -> tf.Tensor:
    """Pack the gradient plus the error of the step before as one row.

    Args:
      gradient: The gradient.
      lost: The error of the step before; it is set to this step's error.
    """
    corrected_gradient = tf.reshape(gradient, [1, -1]) + lost
    packed = pack_rows(corrected_gradient)
    error = corrected_gradient - unpack_rows(packed, lost.shape[1])
    # All towers skip a step with an overflow, so it leaves no error.
    lost.assign(tf.where(tf.math.is_finite(error), error, tf.zeros_like(error)))
    return packed


def _find_largest_finite(values: tf.Tensor, axis: int | None = None) -> tf.Tensor:
    """Return the largest finite absolute value; 0 if no value is finite."""
    return tf.reduce_max(tf.where(tf.math.is_finite(values), tf.abs(values), 0.0), axis)
