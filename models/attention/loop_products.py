"""Products x_t @ matrix inside of a loop over the steps t, whose gradient of the matrix is made after the loop.

What TensorFlow's own gradient of a loop does at each step, a product of two thin matrices and an addition to a sum as
large as the matrix, is here one product over all steps. The loop only keeps each x_t, and hands back the gradient of
each step's result: as that of `addends`, which are added to the results and so get it anyway.

T: steps, B: sentences, K and N: width of x and of a result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from rnn_scaling.models.extension import operators

Product = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(t, x [B, K]) -> float32 [B, N]"""
_OfWeights = Callable[[tf.Tensor, tf.Tensor], Sequence[tf.Tensor]]
_Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]
_Multiply = tuple[Callable[[tf.Tensor, tf.Tensor], tf.Tensor], Callable[[tf.Tensor], tf.Tensor]]


class Plain:
    """Products as TensorFlow differentiates them."""

    def product(self, matrix: tf.Tensor, addend: tf.Tensor | None = None) -> Product:
        """x @ matrix + addend: matrix [K, N], or [B, K, N] with one for each sentence; addend float32 [B, N]."""

        def at(t: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
            result = tf.cast(_multiply(tf.cast(x, matrix.dtype), matrix), tf.float32)
            return result if addend is None else result + addend

        return at

    def taken(self) -> tuple[tf.Tensor, ...]:
        """Nothing has to be kept of a step."""
        return ()

    def empty(self) -> tuple[tf.TensorArray, ...]:
        """Where what `taken` gives is kept."""
        return ()

    def end(self, kept: tuple[tf.TensorArray, ...]) -> None:
        """The loop has ended with this."""


class DeferredProducts:
    """Products whose matrices get their gradients after the loop.

    The loop's body calls the products, writes `taken()` to the arrays that began as `empty()`, and what these hold
    after the loop is told to `end`: before gradients are asked for.
    """

    def __init__(self, num_steps: tf.Tensor | int, batch: tf.Tensor | int) -> None:
        self._num_steps, self._batch = num_steps, batch
        self._products: list[Deferred] = []

    def product(self, matrix: tf.Tensor, addend: tf.Tensor | None = None) -> Product:
        """As `Plain.product`; the gradient does not come to `addend`."""
        shape = [self._num_steps, self._batch, matrix.shape[-1] or tf.shape(matrix)[-1]]
        return self.product_of_steps(matrix, tf.broadcast_to(0.0 if addend is None else addend, shape))

    def product_of_steps(self, matrix: tf.Tensor, addends: tf.Tensor) -> Product:
        """x @ matrix + addends[t]: matrix as of `Plain.product`, addends float32 [T, B, N]."""
        product = _DeferredProduct(matrix, addends)
        self._products.append(product)
        return product

    def deferred(
        self, num_added: int | tf.Tensor, weights: Sequence[tf.Tensor], gradients: _OfWeights, width: int | None
    ) -> Deferred:
        """Zeros [T, B, num_added]; arguments as of `Deferred`, whose `x` the caller sets, in float32."""
        zeros = tf.zeros([self._num_steps, self._batch, num_added])
        self._products.append(Deferred(zeros, weights, gradients, width, tf.float32))
        return self._products[-1]

    def taken(self) -> tuple[tf.Tensor, ...]:
        """What each product multiplied in this step."""
        return tuple(product.x for product in self._products)

    def empty(self) -> tuple[tf.TensorArray, ...]:
        return tuple(product.array(self._num_steps) for product in self._products)

    def end(self, kept: tuple[tf.TensorArray, ...]) -> None:
        """The loop has ended, and these are the inputs of all steps."""
        for product, array in zip(self._products, kept, strict=True):
            product.inputs = array.stack()


class Deferred:
    """Addends [T, B, N] of each step's results, whose gradients give those of weights after the loop."""

    def __init__(
        self,
        addends: tf.Tensor,
        weights: Sequence[tf.Tensor],
        gradients: _OfWeights,
        width: int | None,
        dtype: tf.DType,
    ) -> None:
        """gradients: (x of all steps [T, B, width] in that dtype, gradient of the addends) -> those of the weights."""
        self._gradients, self._width, self._dtype = gradients, width, dtype
        self._addends = tf.TensorArray(tf.float32, tf.shape(addends)[0], element_shape=addends.shape[1:])
        self._addends = self._addends.unstack(self._tapped(addends, weights))
        self.x: tf.Tensor | None = None  # what a step has multiplied
        self.inputs: tf.Tensor | None = None  # [T, B, width]

    def addend(self, t: tf.Tensor) -> tf.Tensor:
        """Of this step, [B, N]."""
        return self._addends.read(t)

    def array(self, num_steps: tf.Tensor | int) -> tf.TensorArray:
        return tf.TensorArray(self._dtype, num_steps, element_shape=[None, self._width])

    def _tapped(self, addends: tf.Tensor, weights: Sequence[tf.Tensor]) -> tf.Tensor:
        """`addends` as they are; their gradient is that of each step's result, and so gives the weights' one."""

        @tf.custom_gradient
        def tap(addends: tf.Tensor, *weights: tf.Tensor) -> tuple[tf.Tensor, Callable[..., tuple[tf.Tensor, ...]]]:
            def gradient(d: tf.Tensor) -> tuple[tf.Tensor, ...]:
                if self.inputs is None:
                    raise ValueError("expected the loop to have ended before gradients are asked for")
                return d, *self._gradients(self.inputs, d)

            return tf.identity(addends), gradient

        return tap(addends, *weights)


class _DeferredProduct(Deferred):
    def __init__(self, matrix: tf.Tensor, addends: tf.Tensor) -> None:
        def gradients(x: tf.Tensor, d: tf.Tensor) -> tuple[tf.Tensor]:
            return (outer_sum(tf.cast(x, matrix.dtype), tf.cast(d, matrix.dtype), len(matrix.shape)),)

        is_packed = len(matrix.shape) == 2 and operators.usable(matrix.dtype)
        dtype = tf.float32 if is_packed else matrix.dtype
        super().__init__(addends, [matrix], gradients, matrix.shape[-2], dtype)
        multiply = _packed_products if is_packed else _plain_products
        self._multiply_and_add, self._multiply_transposed = multiply(tf.stop_gradient(matrix))

    def __call__(self, t: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        x = tf.cast(x, self._dtype)
        self.x = tf.stop_gradient(x)

        @tf.custom_gradient
        def multiply_and_add(x: tf.Tensor, addend: tf.Tensor) -> tuple[tf.Tensor, _Gradient]:
            return self._multiply_and_add(x, addend), lambda d: (self._multiply_transposed(d), d)

        return multiply_and_add(x, self.addend(t))


# Both transpose the matrix once for all steps: products with a matrix read across take longer.
def _plain_products(matrix: tf.Tensor) -> _Multiply:
    """(x, addend) -> x @ matrix + addend, and d -> d @ transposed matrix."""
    transposed = tf.linalg.matrix_transpose(matrix)
    return (
        lambda x, addend: tf.cast(_multiply(x, matrix), tf.float32) + addend,
        lambda d: _multiply(tf.cast(d, matrix.dtype), transposed),
    )


def _packed_products(matrix: tf.Tensor) -> _Multiply:
    """As `_plain_products`, of float32, by our own operators."""
    ours, nothing = operators.load(), tf.zeros([0, matrix.shape[0]])
    panels, transposed = ours.rnn_scaling_pack(matrix)
    multiply = functools.partial(ours.rnn_scaling_step_product, T=matrix.dtype)
    return lambda x, addend: multiply(x, panels, addend), lambda d: multiply(d, transposed, nothing)


def _multiply(x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """[B, K] times [K, N] or, sentence by sentence, [B, K, N] -> [B, N]."""
    if len(matrix.shape) == 2:
        return tf.matmul(x, matrix)
    return tf.squeeze(tf.matmul(x[:, None], matrix), axis=1)


def outer_sum(x: tf.Tensor, y: tf.Tensor, rank: int) -> tf.Tensor:
    """[T, B, K] and [T, B, N] -> the products' sum over the steps [B, K, N], or over the sentences too [K, N]."""
    if rank == 2:
        x, y = (tf.reshape(z, [-1, z.shape[2]]) for z in (x, y))
        return tf.matmul(x, y, transpose_a=True)
    return tf.matmul(tf.transpose(x, [1, 2, 0]), tf.transpose(y, [1, 0, 2]))


def repeated(bias: tf.Tensor, num_steps: tf.Tensor | int, batch: tf.Tensor | int) -> tf.Tensor:
    """A bias [N] at every step of every sentence, [T, B, N]."""

    @tf.custom_gradient
    def repeat(bias: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(d: tf.Tensor) -> tf.Tensor:
            rows = tf.reshape(d, [-1, d.shape[2]])
            # A product with ones adds up the columns ten times as fast as reduce_sum(axis=0).
            return tf.matmul(tf.ones([1, tf.shape(rows)[0]]), rows)[0]

        return tf.broadcast_to(bias, [num_steps, batch, bias.shape[0]]), gradient

    return repeat(bias)
