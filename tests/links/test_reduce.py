"""Timed all-reduces: wrong elements of sums are counted, and no work is optimised away."""

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.links import reduce

ALGORITHMS = ("collective", "xring", "rechd", "pscpu", "hierarchical")
SIZES = (4, 44, 4096, 4 * 100_003)


def build_function(name, devices):
    module = registry.load(registry.ALL_REDUCES, name.partition("#")[0])
    return module.build(devices, int(name.partition("#")[2] or 1))


def add(tensors, _devices=None):
    import tensorflow as tf

    return [tf.add_n(tensors) for _ in tensors]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_gives_the_exact_sum_at_every_size(devices, name):
    told = []
    found = reduce.measure(
        build_function(name, devices),
        name,
        devices,
        SIZES,
        3,
        lambda *what: told.append(what),
        told.append,
    )
    assert [(p.num_bytes, p.wrong, len(p.seconds)) for p in found.points] == [
        (size, 0, 3) for size in SIZES
    ]
    assert found.ranks == 4 and found.name == name
    # Before anything that may hang, the parent has heard of it.
    assert told[0] == (0, 3, f"{name}, first calls of 4 B")
    kept = [each for each in told if isinstance(each, reduce.Series)]
    assert len(kept) == 3 and all(p.wrong is None for p in kept[0].points)


def test_wrong_elements_are_counted(tf, devices):
    def wrong_by(change):
        case = reduce.build(
            lambda tensors: change([tf.add_n(tensors) for _ in tensors], tensors),
            devices,
            4 * 1000,
        )
        return reduce.count_wrong(reduce.run(case))

    assert wrong_by(lambda sums, _: sums) == 0
    assert (
        wrong_by(lambda sums, inputs: [*sums[:3], inputs[3]]) == 1000
    )  # one rank kept its own
    assert (
        wrong_by(lambda sums, inputs: [s - inputs[2] for s in sums]) == 4000
    )  # one rank left out
    assert wrong_by(lambda sums, inputs: [s + 1.0 for s in sums[:1]] + sums[1:]) == 1000
    swapped = wrong_by(
        lambda sums, _: [tf.concat([sums[0][500:], sums[0][:500]], 0), *sums[1:]]
    )
    assert swapped > 990
    assert wrong_by(lambda sums, _: [sums[0][:990], *sums[1:]]) == 10  # too short
    nan = wrong_by(lambda sums, _: [sums[0] * float("nan"), *sums[1:]])
    assert nan == 1000


def test_inputs_differ_by_rank_and_place_and_sums_are_exact():
    whole = [reduce.make_values(rank, 0, 5000) for rank in range(64)]
    assert whole[0].min() >= 1 and len({each.tobytes() for each in whole}) == 64
    assert np.array_equal(reduce.make_values(3, 1000, 2000), whole[3][1000:2000])
    exact = sum(each.astype(np.int64) for each in whole)
    assert np.array_equal(sum(whole).astype(np.int64), exact)


def test_waits_for_an_element_of_every_rank():
    """Check that the time includes a GPU's queue; on CPUs a call returns when it is done."""
    fetched = []

    class Element:
        def __init__(self, rank):
            self.rank = rank

        def numpy(self):
            fetched.append(self.rank)

    elements = [Element(rank) for rank in range(3)]
    assert reduce.run(lambda: (["a", "b", "c"], elements)) == ["a", "b", "c"]
    assert fetched == [0, 1, 2]


def test_nothing_is_folded_and_inputs_stay(tf, devices):
    """Check that each call reads its variables again.

    A previous call could have overwritten them with its sum.
    """
    read = []

    def spy(tensors):
        read.extend(tensors)
        return add(tensors)

    case = reduce.build(spy, devices, 4096)
    first = [result.numpy() for result in reduce.run(case)]
    for _ in range(3):
        again = [result.numpy() for result in reduce.run(case)]
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert reduce.count_wrong(reduce.run(case)) == 0
    assert {tensor.op.inputs[0].op.type for tensor in read} == {"ReadVariableOp"}
    graph = case.get_concrete_function().graph
    assert not [
        op
        for op in graph.get_operations()
        if op.type == "Const" and op.outputs[0].shape.num_elements() > 100
    ]
    inputs = case.get_concrete_function().variables
    assert len(inputs) == 4
    inputs[2].assign(inputs[2] + 1.0)
    assert reduce.count_wrong(reduce.run(case)) == 4 * 1024


def test_ranks_that_get_one_buffer_are_told(tf, devices):
    shared = reduce.run(
        reduce.build(lambda tensors: [tf.add_n(tensors)] * 4, devices, 400)
    )
    own = reduce.run(
        reduce.build(
            lambda tensors: [tf.add_n(tensors) + float(i) for i in range(4)],
            devices,
            400,
        )
    )
    assert reduce.share_a_buffer(shared) and not reduce.share_a_buffer(own)


def test_logical_cpus_are_handed_the_same_buffer(tf, devices):
    from rnn_scaling.links import cpu_copies

    found = cpu_copies.measure(devices, [4, 4096, 4_000_000], 3, lambda *what: None)
    [series] = found
    assert series.sizes == [4, 4096, 4_000_000]
    assert series.traffic == 0
    assert "copies nothing" in series.notes[0]
    assert cpu_copies._note([16]).endswith(": 16 B")
    with tf.device(devices[0]):
        x = tf.random.uniform([100])
        assert (
            cpu_copies.find_address(x)
            == cpu_copies.find_address(tf.identity(x))
            != cpu_copies.find_address(x + 1.0)
        )
