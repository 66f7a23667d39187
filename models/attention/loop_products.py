"""Products x_t @ matrix inside of a loop over the steps t, whose gradient of the matrix is made after the loop.

What TensorFlow's own gradient of a loop does at each step, a product of two thin matrices and an addition to a sum as
large as the matrix, is here one product over all steps. The loop only keeps each x_t, and hands back the gradient of
each step's result: as that of `addends`, which are added to the results and so get it anyway.

T: steps, B: sentences, K and N: width of x and of a result.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.loops import column_sums

Product = Callable[[Tensor, Tensor], Tensor]
"""(t, x [B, K]) -> float32 [B, N]"""
_Gradient = Callable[[Tensor], tuple[Tensor, Tensor]]


class Plain:
    """Products as TensorFlow differentiates them; nothing is kept of a step."""

    specs: tuple[tf.TensorSpec, ...] = ()

    def product(self, matrix: Tensor, addend: Tensor | None = None) -> Product:
        """Return the function of x @ matrix + addend.

        Args:
          matrix: [K, N], or [B, K, N] with one for each sentence.
          addend: Float32 [B, N].
        """

        def multiply(t: Tensor, x: Tensor) -> Tensor:
            result = tf.cast(_multiply(tf.cast(x, matrix.dtype), matrix), tf.float32)
            return result if addend is None else result + addend

        return multiply

    def factors(self) -> tuple[Tensor, ...]:
        return ()

    def end(self, factors: Sequence[Tensor]) -> None:
        """Do nothing: the loop has ended."""


class DeferredProducts:
    """Products whose matrices get their gradients after the loop.

    The loop's body calls the products and keeps `factors()` of each step, as `specs`
    states. After the loop, and before gradients are asked for, `end` gets those of all
    steps.
    """

    def __init__(self, num_steps: Tensor | int, batch: Tensor | int) -> None:
        self._num_steps = num_steps
        self._batch = batch
        self._products: list[_DeferredProduct] = []

    def product(self, matrix: Tensor, addend: Tensor | None = None) -> Product:
        """Like `Plain.product`, but no gradient reaches `addend`."""
        shape = [self._num_steps, self._batch, matrix.shape[-1] or tf.shape(matrix)[-1]]
        addends = tf.broadcast_to(0.0 if addend is None else addend, shape)
        return self.product_of_steps(matrix, addends)

    def product_of_steps(self, matrix: Tensor, addends: Tensor) -> Product:
        """Return the function of x @ matrix + addends[t].

        Args:
          matrix: As in `Plain.product`.
          addends: Float32 [T, B, N].
        """
        self._products.append(_DeferredProduct(matrix, addends))
        return self._products[-1]

    def factors(self) -> tuple[Tensor, ...]:
        """Return what each product multiplied in this step."""
        return tuple(product.x for product in self._products)

    @property
    def specs(self) -> tuple[tf.TensorSpec, ...]:
        return tuple(product.spec for product in self._products)

    def end(self, factors: Sequence[Tensor]) -> None:
        """Tell the products what they multiplied in all steps, [T, B, K] each."""
        for product, inputs in zip(self._products, factors, strict=True):
            product.inputs = inputs


class _DeferredProduct:
    def __init__(self, matrix: Tensor, addends: Tensor) -> None:
        self._matrix = tf.stop_gradient(matrix)
        # Once for all steps: products with a matrix read across take longer.
        self._transposed = tf.stop_gradient(tf.linalg.matrix_transpose(matrix))
        self._addends = tf.TensorArray(
            tf.float32, tf.shape(addends)[0], element_shape=addends.shape[1:]
        )
        self._addends = self._addends.unstack(self._tapped(matrix, addends))
        self.x: Tensor | None = None  # what a step has multiplied
        self.inputs: Tensor | None = None  # [T, B, K]
        self.spec = tf.TensorSpec([None, matrix.shape[-2]], matrix.dtype)

    def __call__(self, t: Tensor, x: Tensor) -> Tensor:
        x = tf.cast(x, self._matrix.dtype)
        self.x = tf.stop_gradient(x)

        @tf.custom_gradient
        def multiply_and_add(x: Tensor, addend: Tensor) -> tuple[Tensor, _Gradient]:
            def gradient(d: Tensor) -> tuple[Tensor, Tensor]:
                return _multiply(tf.cast(d, x.dtype), self._transposed), d

            return tf.cast(_multiply(x, self._matrix), tf.float32) + addend, gradient

        return multiply_and_add(x, self._addends.read(t))

    def _tapped(self, matrix: Tensor, addends: Tensor) -> Tensor:
        """Return `addends` as they are.

        Their gradient is the one of each step's result, and so gives the matrix' one.
        """

        @tf.custom_gradient
        def tap(matrix: Tensor, addends: Tensor) -> tuple[Tensor, _Gradient]:
            def gradient(d: Tensor) -> tuple[Tensor, Tensor]:
                if self.inputs is None:
                    raise ValueError("gradients need the loop to have ended")
                d_rows = tf.cast(d, matrix.dtype)
                return outer_sum(self.inputs, d_rows, len(matrix.shape)), d

            return tf.identity(addends), gradient

        return tap(matrix, addends)


def _multiply(x: Tensor, matrix: Tensor) -> Tensor:
    """[B, K] times [K, N] or, sentence by sentence, [B, K, N] -> [B, N]."""
    if len(matrix.shape) == 2:
        return tf.matmul(x, matrix)
    return tf.squeeze(tf.matmul(x[:, None], matrix), axis=1)


def outer_sum(x: Tensor, y: Tensor, rank: int) -> Tensor:
    """[T, B, K] and [T, B, N] -> the products' sum over the steps [B, K, N], or over the sentences too [K, N]."""
    if rank == 2:
        x, y = (tf.reshape(z, [-1, z.shape[2]]) for z in (x, y))
        return tf.matmul(x, y, transpose_a=True)
    return tf.matmul(tf.transpose(x, [1, 2, 0]), tf.transpose(y, [1, 0, 2]))


def repeated(bias: Tensor, num_steps: Tensor | int, batch: Tensor | int) -> Tensor:
    """A bias [N] at every step of every sentence, [T, B, N]."""

    @tf.custom_gradient
    def repeat(bias: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        def gradient(d: Tensor) -> Tensor:
            return column_sums(tf.reshape(d, [-1, d.shape[2]]))

        return tf.broadcast_to(bias, [num_steps, batch, bias.shape[0]]), gradient

    return repeat(bias)
