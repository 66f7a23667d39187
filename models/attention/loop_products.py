"""Products x_t @ matrix inside of a loop over the steps t, whose gradient of the matrix is made after the loop.

What TensorFlow's own gradient of a loop does at each step, a product of two thin matrices and an addition to a sum as
large as the matrix, is here one product over all steps. The loop only keeps each x_t, and hands back the gradient of
each step's result: as that of `addends`, which are added to the results and so get it anyway.

T: steps, B: sentences, K and N: width of x and of a result.
"""

from collections.abc import Callable

import tensorflow as tf

Product = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(t, x [B, K]) -> float32 [B, N]"""
_Gradient = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


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
        self._products: list[_DeferredProduct] = []

    def product(self, matrix: tf.Tensor, addend: tf.Tensor | None = None) -> Product:
        """As `Plain.product`; the gradient does not come to `addend`."""
        shape = [self._num_steps, self._batch, matrix.shape[-1] or tf.shape(matrix)[-1]]
        return self.product_of_steps(
            matrix, tf.broadcast_to(0.0 if addend is None else addend, shape)
        )

    def product_of_steps(self, matrix: tf.Tensor, addends: tf.Tensor) -> Product:
        """x @ matrix + addends[t]: matrix as of `Plain.product`, addends float32 [T, B, N]."""
        self._products.append(_DeferredProduct(matrix, addends))
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


class _DeferredProduct:
    def __init__(self, matrix: tf.Tensor, addends: tf.Tensor) -> None:
        self._matrix = tf.stop_gradient(matrix)
        # Once for all steps: products with a matrix read across take longer.
        self._transposed = tf.stop_gradient(tf.linalg.matrix_transpose(matrix))
        self._addends = tf.TensorArray(
            tf.float32, tf.shape(addends)[0], element_shape=addends.shape[1:]
        )
        self._addends = self._addends.unstack(self._tapped(matrix, addends))
        self.x: tf.Tensor | None = None  # what a step has multiplied
        self.inputs: tf.Tensor | None = None  # [T, B, K]

    def __call__(self, t: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        x = tf.cast(x, self._matrix.dtype)
        self.x = tf.stop_gradient(x)

        @tf.custom_gradient
        def multiply_and_add(
            x: tf.Tensor, addend: tf.Tensor
        ) -> tuple[tf.Tensor, _Gradient]:
            def gradient(d: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                return _multiply(tf.cast(d, x.dtype), self._transposed), d

            return tf.cast(_multiply(x, self._matrix), tf.float32) + addend, gradient

        return multiply_and_add(x, self._addends.read(t))

    def array(self, num_steps: tf.Tensor | int) -> tf.TensorArray:
        return tf.TensorArray(
            self._matrix.dtype, num_steps, element_shape=[None, self._matrix.shape[-2]]
        )

    def _tapped(self, matrix: tf.Tensor, addends: tf.Tensor) -> tf.Tensor:
        """`addends` as they are; their gradient is that of each step's result, and so gives the matrix' one."""

        @tf.custom_gradient
        def tap(matrix: tf.Tensor, addends: tf.Tensor) -> tuple[tf.Tensor, _Gradient]:
            def gradient(d: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                if self.inputs is None:
                    raise ValueError(
                        "expected the loop to have ended before gradients are asked for"
                    )
                d_rows = tf.cast(d, matrix.dtype)
                return outer_sum(self.inputs, d_rows, len(matrix.shape)), d

            return tf.identity(addends), gradient

        return tap(matrix, addends)


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


def repeated(
    bias: tf.Tensor, num_steps: tf.Tensor | int, batch: tf.Tensor | int
) -> tf.Tensor:
    """A bias [N] at every step of every sentence, [T, B, N]."""

    @tf.custom_gradient
    def repeat(bias: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        def gradient(d: tf.Tensor) -> tf.Tensor:
            rows = tf.reshape(d, [-1, d.shape[2]])
            # A product with ones adds up the columns ten times as fast as reduce_sum(axis=0).
            return tf.matmul(tf.ones([1, tf.shape(rows)[0]]), rows)[0]

        return tf.broadcast_to(bias, [num_steps, batch, bias.shape[0]]), gradient

    return repeat(bias)
