"""Compressed gradients against NumPy: values, errors, and their feedback."""

import dataclasses
import functools

import numpy as np
import pytest

from tests.support.training import SMALL, find_largest_difference, make_batches, train

pytestmark = pytest.mark.usefixtures("as_built")

STEPS = 8
LM = dataclasses.replace(SMALL, model="lm")
ROWS = [
    [[1.0, -2.0, 0.5, 127.0, 0.0]],
    [[0.0, 0.0, 0.0]],
    [[3e-5, -1e-5, 2e-5, 0.0], [3e5, -1e5, 1.0, 0.0]],
    np.random.default_rng(1).normal(size=[7, 33]).tolist(),
]


@pytest.fixture(scope="module")
def compression(tf):
    from rnn_scaling.training import compression

    return compression


def quantise(rows):
    """Return scales `[R, 1]` and received values `[R, D]` in float64."""
    scales = np.abs(rows).max(axis=1, keepdims=True) / 127
    return scales, np.round(rows / np.where(scales > 0, scales, 1)) * scales


@pytest.mark.parametrize("rows", ROWS, ids=["padded", "zeros", "far apart", "random"])
def test_rows_arrive_within_half_a_scale(tf, compression, rows):
    rows = np.array(rows, np.float32)
    packed = compression.pack_rows(tf.constant(rows))
    # One word for the scale, and one byte per element.
    assert packed.shape == [len(rows), 1 + -(-rows.shape[1] // 4)]
    arrived = compression.unpack_rows(packed, rows.shape[1]).numpy()
    scales, expected = quantise(rows.astype(np.float64))
    assert (np.abs(arrived - rows) <= scales / 2 * 1.00001).all()
    tolerance = float(scales.max()) * 1.001
    np.testing.assert_allclose(arrived, expected, rtol=1e-5, atol=tolerance)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_values_that_are_not_finite_stay_visible_for_loss_scaling(tf, compression, bad):
    rows = tf.constant([[1.0, bad, 0.0], [1.0, 2.0, 127.0]])
    arrived = compression.unpack_rows(compression.pack_rows(rows), 3).numpy()
    assert not np.isfinite(arrived[0]).any()
    assert arrived[1].tolist() == [1.0, 2.0, 127.0]


TENSORS = {
    "tiny": 1e-9 * np.random.default_rng(3).normal(size=(5, 7)),
    "nearly subnormal in float32": np.full((2, 2), 1e-36),
    "huge": 1e36 * np.random.default_rng(4).normal(size=(3, 2)),
    "one huge among tiny": np.array([[3e4, 1e-3, 2e-5, -1e-7]]),
    "zeros": np.zeros((3, 3)),
    "none": np.zeros((0, 3)),
    "scalar": np.array(1e-8),
}


@pytest.mark.parametrize("num_towers", [1, 3, 8])
def test_float16_loses_a_share_of_each_element_whatever_the_size_of_the_tensor(
    tf, compression, devices, num_towers
):
    # n times the error 2^-11 of each element; below 2^-29 n of the largest element the
    # error is a share of the largest.
    half = compression.build("float16", {}, devices[:1] * num_towers, None)
    towers = [
        [(tower + 1) / num_towers * each for each in TENSORS.values()]
        for tower in range(num_towers)
    ]
    grads = [[tf.constant(each, tf.float32) for each in tower] for tower in towers]
    sums = half.sum(
        list(TENSORS),
        grads,
        lambda cast: [[tf.add_n(list(each)) for each in zip(*cast)]] * num_towers,
    )
    for index, name in enumerate(TENSORS):
        exact = sum(tower[index].numpy().astype(np.float64) for tower in grads)
        error = np.abs(sums[-1][index].numpy() - exact)
        smallest = 2.0**-149 * num_towers + num_towers**2 * 2.0**-39 * np.abs(
            exact
        ).max(initial=0)
        assert (error <= num_towers * 2.0**-11 * np.abs(exact) + smallest).all(), name
    tiny = TENSORS["tiny"].astype(np.float32)
    rows = np.concatenate([tiny, 1e5 * tiny, np.zeros((1, 7), np.float32)])
    restored = half.restore(half.compress(tf.constant(rows)), 7).numpy()
    np.testing.assert_allclose(restored, rows, rtol=2**-11)


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_float16_keeps_finite_values_next_to_others(tf, compression, devices, bad):
    half = compression.build("float16", {}, devices[:2], None)
    values = np.array([[1e-8, bad, 1.0]], np.float32)
    summed = half.sum(
        ["w"],
        [[tf.constant(values)]] * 2,
        lambda cast: [[a + b] for a, b in zip(*cast)] * 2,
    )[0][0]
    restored = half.restore(half.compress(tf.constant(values)), 3)
    np.testing.assert_allclose(summed.numpy(), 2 * values, rtol=2**-10)
    np.testing.assert_allclose(restored.numpy(), values, rtol=2**-10)


@pytest.mark.parametrize("kind", ["none", "bfloat16", "float16", "int8"])
def test_collective_operators_support_the_compressed_dtypes(
    tf, compression, devices, kind
):
    # With several workers TensorFlow would refuse to gather bfloat16 and int8.
    from tensorflow.python.framework import op_def_registry

    def supported(name):
        attributes = {item.name: item for item in op_def_registry.get(name).attr}
        return set(map(tf.as_dtype, attributes["T"].allowed_values.list.type))

    compressed = compression.build(kind, {"w": (3,)}, devices[:1], None)
    reduced = set()
    assert compressed.compress(tf.ones([2, 3])).dtype in supported("CollectiveGatherV2")

    def reduce(grads):
        reduced.update(gradient.dtype for gradient in grads[0])
        return list(grads)

    compressed.sum(["w"], [[tf.ones([3])]], reduce)
    assert reduced <= supported("CollectiveReduceV2")
    assert bool(reduced) == (kind != "int8")


def test_sums_of_int8_carry_their_error_to_the_next_step(tf, compression, devices):
    # After any number of steps, the sums differ by less than the error of one step.
    generator = np.random.default_rng(2)
    shapes = {"kernel": (3, 5), "bias": (2,)}
    keeper = compression.build("int8", shapes, devices[:2], None)
    step_sum = tf.function(
        lambda grads: keeper.sum(list(shapes), grads, list), autograph=False
    )
    lost = [{name: np.zeros(shape) for name, shape in shapes.items()} for _ in range(2)]
    wanted, arrived = (
        {name: np.zeros(shape) for name, shape in shapes.items()} for _ in range(2)
    )
    small = {
        "kernel": 1e-3 * np.ones((3, 5)),
        "bias": np.zeros(2),
    }  # below half a scale, so it only arrives with feedback
    small["kernel"][0, 0] = 1.0
    for step in range(30):
        grads = [
            {
                n: small[n] + 0.1 * step * generator.normal(size=s) * (step > 20)
                for n, s in shapes.items()
            }
            for _ in "ab"
        ]
        sums = step_sum(
            [[tf.constant(tower[n], tf.float32) for n in shapes] for tower in grads]
        )
        for index, name in enumerate(shapes):
            expected = np.zeros(shapes[name])
            for tower in range(2):
                whole = grads[tower][name] + lost[tower][name]
                sent = quantise(whole.reshape(1, -1))[1].reshape(shapes[name])
                lost[tower][name] = whole - sent
                expected += sent
            first, second = (tower[index].numpy() for tower in sums)
            np.testing.assert_array_equal(first, second)
            np.testing.assert_allclose(first, expected, rtol=1e-3, atol=2e-2)
            wanted[name] += grads[0][name] + grads[1][name]
            arrived[name] += first
        if step == 20:
            assert arrived["kernel"][1, 1] == pytest.approx(
                wanted["kernel"][1, 1], abs=2 / 127
            )
            assert arrived["kernel"][1, 1] > 0.02, "sent at last"
    assert np.abs(arrived["kernel"] - wanted["kernel"]).max() < 2 * 3 / 127


def test_a_step_that_overflows_leaves_no_error(tf, compression, devices):
    keeper = compression.build("int8", {"w": (3,)}, devices[:1], None)

    def total(values):
        return keeper.sum(["w"], [[tf.constant(values)]], list)[0][0].numpy()

    assert not np.isfinite(total([1.0, np.inf, 0.0])).any()
    assert total([127.0, 1.0, 2.0]).tolist() == [127.0, 1.0, 2.0]


@functools.cache
def train_uncompressed(devices, sparse):
    """Return the weights of training with uncompressed gradients."""
    options = {"variable_update": "replicated", "sparse_gradients": sparse}
    return train(devices, make_batches(STEPS, 2, LM), LM, **options)["replicas"][0]


@pytest.mark.parametrize(
    "kind, sparse, tolerance",
    [
        ("bfloat16", "gather", 2e-2),
        ("float16", "densify", 2e-3),
        ("int8", "gather", 2e-2),
    ],
)
def test_replicas_stay_equal_and_near_uncompressed_training(
    devices, kind, sparse, tolerance
):
    options = {
        "variable_update": "replicated",
        "compress_gradients": kind,
        "sparse_gradients": sparse,
    }
    compressed = train(devices[:2], make_batches(STEPS, 2, LM), LM, **options)
    one, other = compressed["replicas"]
    assert find_largest_difference(one, other) == 0
    expected = train_uncompressed(tuple(devices[:2]), sparse)
    assert 0 < find_largest_difference(one, expected) <= tolerance
    assert bool(compressed["update"].describe_all_reduce()) == (kind != "int8")
