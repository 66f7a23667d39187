"""Packing is undone exactly; sparse gradients mean what their dense form means."""

import random

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("as_built")

SHAPES = [(), (1,), (7,), (3, 5), (0, 4), (2, 3, 4), (100,), (16, 16), (1, 1), (33,)]


@pytest.fixture(scope="module")
def gradients(tf):
    from rnn_scaling.training import gradients

    return gradients


def _tensors(tf, seed, dtypes=("float32",)):
    rng = random.Random(seed)
    values = np.random.default_rng(seed)
    shapes = [rng.choice(SHAPES) for _ in range(rng.randint(1, 12))]
    return [tf.cast(values.normal(size=shape), rng.choice(dtypes)) for shape in shapes]


def _assert_same(expected, got):
    assert len(got) == len(expected)
    for a, b in zip(expected, got, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize("seed, pieces", [(0, 1), (1, 3), (2, 3), (3, 1000)])
def test_repack_then_unpack_is_the_identity(tf, gradients, seed, pieces):
    grads = _tensors(tf, seed)
    packed, unpack = gradients.repack(grads, pieces)
    sizes = [int(tf.size(p)) for p in packed]
    total = sum(int(tf.size(g)) for g in grads)
    assert sum(sizes) == total and max(sizes) - min(sizes) <= 1
    assert len(packed) == max(1, min(pieces, total))
    _assert_same(grads, unpack(packed))


@pytest.mark.parametrize(
    "seed, max_bytes, max_group", [(0, 0, 10), (1, 64, 3), (2, 400, 1), (3, 10**6, 4)]
)
def test_pack_small_then_unpack_is_the_identity(
    tf, gradients, seed, max_bytes, max_group
):
    grads = _tensors(tf, seed, dtypes=("float32", "float16"))
    packed, unpack = gradients.pack_small(grads, max_bytes, max_group)
    _assert_same(grads, unpack(packed))


def test_pack_small_joins_small_ones_of_a_dtype_in_order(tf, gradients):
    half = tf.zeros([2], tf.float16)
    grads = [
        tf.zeros([2]),
        tf.zeros([9]),
        tf.ones([1, 2]),
        half,
        tf.fill([2], 2.0),
        tf.fill([1], 3.0),
    ]
    packed, _ = gradients.pack_small(grads, max_bytes=8, max_group=3)
    assert [p.numpy().tolist() for p in packed] == [
        [0, 0, 1, 1, 2, 2],
        [0] * 9,
        [0, 0],
        [3],
    ]
    assert len(gradients.pack_small(grads, max_bytes=0, max_group=3)[0]) == len(grads)


def _slices(tf, values, indices, rows):
    values = np.asarray(values, np.float32)
    return tf.IndexedSlices(
        tf.constant(values),
        tf.constant(indices),
        tf.constant([rows, *values.shape[1:]]),
    )


def _dense(slices, rows):
    dense = np.zeros((rows, *slices.values.shape[1:]), np.float32)
    np.add.at(dense, slices.indices.numpy(), slices.values.numpy())
    return dense


def test_densify_and_norm_add_rows_of_equal_index(tf, gradients):
    values = np.random.default_rng(0).normal(size=(5, 3))
    slices = _slices(tf, values, [4, 1, 4, 0, 4], 6)
    dense = _dense(slices, 6)
    np.testing.assert_allclose(gradients.densify(slices), dense, rtol=1e-6)
    np.testing.assert_allclose(
        gradients.compute_squared_norm(slices), np.sum(dense**2), rtol=1e-6
    )
    np.testing.assert_allclose(
        gradients.compute_squared_norm(tf.constant(dense)), np.sum(dense**2), rtol=1e-6
    )
    assert gradients.densify(tf.constant(1.0)).numpy() == 1.0
    half = tf.fill([4], tf.constant(300.0, tf.float16))
    assert gradients.compute_squared_norm(half).numpy() == 360_000.0


def test_densify_has_a_static_shape_in_a_function(tf, gradients):
    table = tf.Variable(tf.ones([6, 3]))

    @tf.function(autograph=False)
    def gradient():
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 1, 5]))
        grad = gradients.densify(tape.gradient(loss, table))
        assert grad.shape == [6, 3]
        return grad

    np.testing.assert_array_equal(gradient()[:, 0], [0, 2, 0, 0, 0, 1])


def test_gathered_slices_are_the_sum_on_every_tower(tf, gradients, devices):
    slices = [
        _slices(tf, [[1, 2]], [3], 5),
        _slices(tf, [[10, 20], [30, 40]], [3, 0], 5),
    ]
    gathered = tf.function(
        lambda: gradients.map_devices(devices[:2], lambda: gradients.add(slices)),
        autograph=False,
    )()
    assert len(gathered) == 2
    for result in gathered:
        assert result.indices.numpy().tolist() == [3, 3, 0]
        assert result.values.numpy().tolist() == [[1, 2], [10, 20], [30, 40]]
        np.testing.assert_array_equal(
            gradients.densify(result), _dense(slices[0], 5) + _dense(slices[1], 5)
        )


@pytest.mark.parametrize(
    "norm, scale",
    [(0.0, 1.0), (8.0, 0.25), (float("inf"), 0.0), (float("nan"), float("nan"))],
)
def test_clip_scale(tf, gradients, norm, scale):
    found = gradients.clip_scale(tf.constant(norm), 2.0).numpy()
    np.testing.assert_equal(found, np.float32(scale))
