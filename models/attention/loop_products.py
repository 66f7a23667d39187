"""Products x_t @ matrix inside of a loop, with one gradient of the matrix after the loop.

TensorFlow's own gradient of a loop multiplies two thin matrices in each step and adds
the result to a sum as large as the matrix. Here it is one product over all steps. The
loop stores each x_t, and the gradient of each step's result is the gradient of
`addends`, which are added to the results.

T: steps, B: sentences, K: width of x, N: width of a result.

Loops of kernels use these classes, which do not depend on networks.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.loops import sum_columns

Product = Callable[[Tensor, Tensor], Tensor]
"""(t, x [B, K]) -> float32 [B, N]"""
_Gradient = Callable[[Tensor], tuple[Tensor, Tensor]]


class PlainProducts:
    """Products with TensorFlow's own gradient; the loop stores nothing for them."""

    specs: tuple[tf.TensorSpec, ...] = ()

    def make_product(self, matrix: Tensor, addend: Tensor | None = None) -> Product:
        """Return the function of x @ matrix + addend.

        Args:
          matrix: [K, N], or [B, K, N] with one matrix per sentence.
          addend: Float32 [B, N].
        """

        def multiply(t: Tensor, x: Tensor) -> Tensor:
            result = tf.cast(_multiply(tf.cast(x, matrix.dtype), matrix), tf.float32)
            return result if addend is None else result + addend

        return multiply

    def list_factors(self) -> tuple[Tensor, ...]:
        """Return (); these products keep nothing for the end of the loop."""
        return ()

    def end(self, factors: Sequence[Tensor]) -> None:
        """Do nothing: the loop has ended."""


class DeferredProducts:
    """Products whose matrices get their gradients after the loop.

    The loop's body calls the products and stores `list_factors()` of each step; `specs`
    has their shapes and dtypes. `end` must be called with the factors of all steps
    after the loop, before gradients are computed.
    """

    def __init__(self, num_steps: Tensor | int, batch: Tensor | int) -> None:
        self._num_steps = num_steps
        self._batch = batch
        self._products: list[_DeferredProduct] = []

    def make_product(self, matrix: Tensor, addend: Tensor | None = None) -> Product:
        """Return the function of x @ matrix + addend; `addend` gets no gradient."""
        shape = [self._num_steps, self._batch, matrix.shape[-1] or tf.shape(matrix)[-1]]
        addends = tf.broadcast_to(0.0 if addend is None else addend, shape)
        return self.make_product_of_steps(matrix, addends)

    def make_product_of_steps(self, matrix: Tensor, addends: Tensor) -> Product:
        """Return the function of x @ matrix + addends[t].

        Args:
          matrix: See `PlainProducts.make_product`.
          addends: Float32 [T, B, N].
        """
        self._products.append(_DeferredProduct(matrix, addends))
        return self._products[-1]

    def list_factors(self) -> tuple[Tensor, ...]:
        """Return the x of each product in this step."""
        return tuple(product.x for product in self._products)

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        """The shapes and dtypes of `list_factors`."""
        return tuple(product.spec for product in self._products)

    def end(self, factors: Sequence[Tensor]) -> None:
        """Store the factors of all steps, [T, B, K] per product."""
        for product, inputs in zip(self._products, factors, strict=True):
            product.inputs = inputs


class _DeferredProduct:
    """One product of `DeferredProducts`; calling it computes one step."""

    def __init__(self, matrix: Tensor, addends: Tensor) -> None:
        self._matrix = tf.stop_gradient(matrix)
        # Transposed once for all steps, because a product that reads it across is
        # slower.
        self._transposed = tf.stop_gradient(tf.linalg.matrix_transpose(matrix))
        self._addends = tf.TensorArray(
            tf.float32, tf.shape(addends)[0], element_shape=addends.shape[1:]
        )
        self._addends = self._addends.unstack(self._tap(matrix, addends))
        self.x: Tensor | None = None  # [B, K] of the current step
        self.inputs: Tensor | None = None  # [T, B, K]
        self.spec = tf.TensorSpec([None, matrix.shape[-2]], matrix.dtype)

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        x = tf.cast(x, self._matrix.dtype)
        self.x = tf.stop_gradient(x)

        @tf.custom_gradient
        def multiply_and_add(x: Tensor, addend: Tensor) -> tuple[Tensor, _Gradient]:
            def differentiate(d: Tensor) -> tuple[Tensor, Tensor]:
                return _multiply(tf.cast(d, x.dtype), self._transposed), d

            return tf.cast(
                _multiply(x, self._matrix), tf.float32
            ) + addend, differentiate

        return multiply_and_add(x, self._addends.read(t))

    def _tap(self, matrix: Tensor, addends: Tensor) -> Tensor:
        """Return the addends unchanged, with a gradient for the matrix.

        The gradient of the addends is the gradient of each step's result.
        """

        @tf.custom_gradient
        def pass_on(matrix: Tensor, addends: Tensor) -> tuple[Tensor, _Gradient]:
            def differentiate(d: Tensor) -> tuple[Tensor, Tensor]:
                if self.inputs is None:
                    raise ValueError(
                        "gradients can only be computed after the loop has ended"
                    )
                d_rows = tf.cast(d, matrix.dtype)
                return sum_outer_products(self.inputs, d_rows, len(matrix.shape)), d

            return tf.identity(addends), differentiate

        return pass_on(matrix, addends)


def _multiply(x: Tensor, matrix: Tensor) -> Tensor:
    """Return x [B, K] times [K, N], or times one [K, N] per sentence: [B, N]."""
    if len(matrix.shape) == 2:
        return tf.matmul(x, matrix)
    return tf.squeeze(tf.matmul(x[:, None], matrix), axis=1)


def sum_outer_products(x: Tensor, y: Tensor, rank: int) -> Tensor:
    """Return the sum of the outer products of x [T, B, K] and y [T, B, N].

    Args:
      rank: 3 for the sum over the steps, [B, K, N]; 2 for the sum over steps and
        sentences, [K, N].
    """
    if rank == 2:
        x_rows = tf.reshape(x, [-1, x.shape[2]])
        y_rows = tf.reshape(y, [-1, y.shape[2]])
        return tf.matmul(x_rows, y_rows, transpose_a=True)
    return tf.matmul(tf.transpose(x, [1, 2, 0]), tf.transpose(y, [1, 0, 2]))


def repeat_bias(bias: Tensor, num_steps: Tensor | int, batch: Tensor | int) -> Tensor:
    """Return a bias [N] for every step and sentence, [T, B, N]."""

    @tf.custom_gradient
    def repeat(bias: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        def differentiate(d: Tensor) -> Tensor:
            return sum_columns(tf.reshape(d, [-1, d.shape[2]]))

        return tf.broadcast_to(bias, [num_steps, batch, bias.shape[0]]), differentiate

    return repeat(bias)
