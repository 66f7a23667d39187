"""Compressed gradients against NumPy: what is sent, what it loses, and that nothing is lost for good."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.support.training import LM, largest_difference, make_batches, train

pytestmark = pytest.mark.usefixtures("as_built")

STEPS = 8
ROWS = [
    [[1.0, -2.0, 0.5, 127.0, 0.0]],
    [[0.0, 0.0, 0.0]],
    [[3e-5, -1e-5, 2e-5, 0.0], [3e5, -1e5, 1.0, 0.0]],
    np.random.default_rng(1).normal(size=[7, 33]).tolist(),
]


def quantised(rows):
    """(scales `[R, 1]`, what arrives `[R, D]`) by the formulas of the module, in float64."""
    scales = np.abs(rows).max(axis=1, keepdims=True) / 127
    return scales, np.where(
        scales > 0, np.round(rows / np.where(scales > 0, scales, 1)), 0
    ) * scales


@pytest.mark.parametrize("rows", ROWS, ids=["padded", "zeros", "far apart", "random"])
def test_rows_arrive_within_half_a_scale(tf, rows):
    from rnn_scaling.training import compression

    rows = np.array(rows, np.float32)
    packed = compression.pack_rows(tf.constant(rows))
    assert packed.shape == [len(rows), 1 + -(-rows.shape[1] // 4)], (
        "a word for the scale, a byte an element"
    )
    arrived = compression.unpack_rows(packed, rows.shape[1]).numpy()
    scales, expected = quantised(rows.astype(np.float64))
    assert (np.abs(arrived - rows) <= scales / 2 * 1.00001).all()
    np.testing.assert_allclose(
        arrived, expected, rtol=1e-5, atol=float(scales.max()) * 1.001
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_arrives_as_such_so_that_loss_scaling_sees_it(tf, bad):
    from rnn_scaling.training import compression

    rows = tf.constant([[1.0, bad, 0.0], [1.0, 2.0, 127.0]])
    arrived = compression.unpack_rows(compression.pack_rows(rows), 3).numpy()
    assert not np.isfinite(arrived[0]).any() and arrived[1].tolist() == [
        1.0,
        2.0,
        127.0,
    ]
    assert not np.isfinite(
        compression.build("float16", {}, ["CPU:0"] * 2, None).shrink(rows).numpy()
    ).all()


TENSORS = {
    "tiny": 1e-9 * np.random.default_rng(3).normal(size=(5, 7)),
    "nearly subnormal in float32": np.full((2, 2), 1e-36),
    "huge": 1e36 * np.random.default_rng(4).normal(size=(3, 2)),
    "one huge among tiny": np.array([[3e4, 1e-3, 2e-5, -1e-7]]),
    "zeros": np.zeros((3, 3)),
    "none": np.zeros((0, 3)),
    "scalar": np.array(1e-8),
}


@pytest.mark.parametrize("num_towers", [1, 2, 3, 8])
def test_float16_loses_a_share_of_each_element_whatever_the_size_of_the_tensor(
    tf, devices, num_towers
):
    """n roundings of 2^-11, below the largest element's 2^-29 n of it a smaller share of the largest."""
    from rnn_scaling.training import compression

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
    rows = tf.constant(
        np.concatenate([TENSORS["tiny"], 1e5 * TENSORS["tiny"], np.zeros((1, 7))]),
        tf.float32,
    )
    np.testing.assert_allclose(
        half.restore(half.shrink(rows), 7).numpy(), rows.numpy(), rtol=2**-11
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_passes_float16_and_leaves_the_rest_as_it_is(
    tf, devices, bad
):
    from rnn_scaling.training import compression

    half = compression.build("float16", {}, devices[:2], None)
    values = np.array([[1e-8, bad, 1.0]], np.float32)
    summed = half.sum(
        ["w"],
        [[tf.constant(values)]] * 2,
        lambda cast: [[a + b] for a, b in zip(*cast)] * 2,
    )[0][0]
    for got, times in (
        (summed.numpy(), 2),
        (half.restore(half.shrink(tf.constant(values)), 3).numpy(), 1),
    ):
        np.testing.assert_allclose(got, times * values, rtol=2**-10)


def test_bfloat16_keeps_the_range_of_float32(tf):
    from rnn_scaling.training import compression

    values = tf.constant([[1.0, 1e-3, 65504.0, -1e30, 6e-8]])
    half = compression.build("bfloat16", {}, ["CPU:0"] * 4, None)
    sent = half.shrink(values)
    assert sent.dtype.size == 2
    np.testing.assert_allclose(
        half.restore(sent, 5).numpy(), values.numpy(), rtol=2**-8
    )


@pytest.mark.parametrize("kind", ["none", "bfloat16", "float16", "int8"])
def test_collective_ops_take_what_travels(tf, devices, kind):
    """They gather no bfloat16 and no int8, and say so only where there are several workers."""
    from tensorflow.python.framework import op_def_registry

    from rnn_scaling.training import compression

    def taken(name):
        (kinds,) = (
            each.allowed_values.list.type
            for each in op_def_registry.get(name).attr
            if each.name == "T"
        )
        return [tf.as_dtype(each) for each in kinds]

    compressed, added = compression.build(kind, {"w": (3,)}, devices[:1], None), []
    assert compressed.shrink(tf.ones([2, 3])).dtype in taken("CollectiveGatherV2")

    def reduce(grads):
        added.extend(gradient.dtype for gradient in grads[0])
        return list(grads)

    compressed.sum(["w"], [[tf.ones([3])]], reduce)
    assert set(added) <= set(taken("CollectiveReduceV2")) and bool(added) == (
        kind != "int8"
    )


def test_sums_of_towers_are_numpys_and_what_is_lost_comes_with_the_next_step(
    tf, devices
):
    """After any number of steps, what arrived differs from what was to be sent by less than one step's loss."""
    from rnn_scaling.training import compression

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
    }  # below half a scale: alone it would never arrive
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
            [
                [tf.constant(tower[name], tf.float32) for name in shapes]
                for tower in grads
            ]
        )
        for index, name in enumerate(shapes):
            expected = np.zeros(shapes[name])
            for tower in range(2):
                whole = grads[tower][name] + lost[tower][name]
                sent = quantised(whole.reshape(1, -1))[1].reshape(shapes[name])
                lost[tower][name] = whole - sent
                expected += sent
            for on_tower in sums:
                np.testing.assert_array_equal(
                    on_tower[index].numpy(), sums[0][index].numpy()
                )
            np.testing.assert_allclose(
                sums[0][index].numpy(), expected, rtol=1e-3, atol=2e-2
            )
            wanted[name] += grads[0][name] + grads[1][name]
            arrived[name] += sums[0][index].numpy()
        if step == 20:
            assert arrived["kernel"][1, 1] == pytest.approx(
                wanted["kernel"][1, 1], abs=2 / 127
            )
            assert arrived["kernel"][1, 1] > 0.02, "sent at last"
    assert np.abs(arrived["kernel"] - wanted["kernel"]).max() < 2 * 3 / 127


def test_a_step_that_overflows_leaves_nothing_behind(tf, devices):
    from rnn_scaling.training import compression

    keeper = compression.build("int8", {"w": (3,)}, devices[:1], None)
    assert not np.isfinite(
        keeper.sum(["w"], [[tf.constant([1.0, np.inf, 0.0])]], list)[0][0].numpy()
    ).any()
    assert keeper.sum(["w"], [[tf.constant([127.0, 1.0, 2.0])]], list)[0][
        0
    ].numpy().tolist() == [127.0, 1.0, 2.0]


@functools.cache
def whole(devices, sparse):
    """The weights that training with whole gradients gives."""
    options = {"variable_update": "replicated", "sparse_gradients": sparse}
    return train(devices, make_batches(STEPS, 2, LM), LM, **options)["replicas"][0]


@pytest.mark.parametrize(
    "kind, sparse, tolerance",
    [
        ("bfloat16", "gather", 2e-2),
        ("float16", "densify", 2e-3),
        ("int8", "gather", 2e-2),
        ("int8", "densify", 2e-2),
    ],
)
def test_replicas_stay_equal_and_near_what_whole_gradients_give(
    devices, kind, sparse, tolerance
):
    options = {
        "variable_update": "replicated",
        "compress_gradients": kind,
        "sparse_gradients": sparse,
    }
    compressed = train(devices[:2], make_batches(STEPS, 2, LM), LM, **options)
    one, other = compressed["replicas"]
    assert largest_difference(one, other) == 0
    assert 0 < largest_difference(one, whole(tuple(devices[:2]), sparse)) <= tolerance
    assert bool(compressed["update"].all_reduce()) == (kind != "int8"), (
        "int8 is gathered by all"
    )
