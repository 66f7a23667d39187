"""Every all-reduce gives numpy's sum to every tower, for any shape, dtype, number of towers and shards.

`collective` runs in a process of its own: its failure is to wait for ever, which must not stop the suite.
"""

import itertools

import numpy as np
import pytest

from rnn_scaling.config import all_reduce_spec
from rnn_scaling.config.registry import ALL_REDUCES, load
from tests.support import forked

pytestmark = pytest.mark.usefixtures("as_built")

SHAPES = [(), (1,), (7,), (0, 4), (2, 3, 4), (257,)]
VALUES = [("float32", shape) for shape in SHAPES] + [
    ("float16", (7,)),
    ("bfloat16", (7,)),
]
SHARDS = {"xring": [1, 3], "pscpu": [1, 2, 5], "psgpu": [1, 3]}
CASES = [
    (name, n, shards)
    for name, n in itertools.product(ALL_REDUCES, [1, 2, 3, 4])
    for shards in SHARDS.get(name, [1])
    if name != "nccl"
    and (name != "xring" or shards <= n)
    and ALL_REDUCES[name].device_counts.is_valid(n)
]
IN_THIS_PROCESS = [case for case in CASES if case[0] != "collective"]


def check(tf, devices, name, num_towers, shards):
    """Compare VALUES with numpy, in one function that runs several times."""
    devices = devices[:num_towers]
    reduce = load(ALL_REDUCES, name).build(devices, shards)
    rng = np.random.default_rng(num_towers)
    # Sums of small whole numbers are exact in every dtype.
    values = (
        VALUES if shards == 1 else VALUES[: len(SHAPES)]
    )  # the dtype does not change the pieces
    cases = [
        (dtype, rng.integers(-8, 9, size=(num_towers, *shape)))
        for dtype, shape in values
    ]

    @tf.function(autograph=False)
    def step(factor):
        summed = []
        for dtype, values in cases:
            tensors = []
            for tower, device in enumerate(devices):
                with tf.device(device):
                    tensors.append(
                        tf.cast(factor, dtype) * tf.constant(values[tower], dtype)
                    )
            outputs = reduce(tensors)
            assert len(outputs) == num_towers
            for output, tensor, device in zip(outputs, tensors, devices, strict=True):
                assert output.shape == tensor.shape and output.dtype == tensor.dtype
                assert output.device.endswith(device[-5:]), (output.device, device)
            summed.append(outputs)
        return summed

    for factor in (1, 2, -1):
        for (dtype, values), outputs in zip(
            cases, step(tf.constant(factor)), strict=True
        ):
            expected = factor * values.sum(axis=0)
            for output in outputs:
                np.testing.assert_array_equal(
                    np.asarray(output, np.float64), expected, err_msg=dtype
                )


@pytest.mark.parametrize("name, num_towers, shards", IN_THIS_PROCESS)
def test_every_tower_gets_the_sum(tf, devices, name, num_towers, shards):
    check(tf, devices, name, num_towers, shards)


@pytest.mark.parametrize("inter_op_threads", [1, 4])
def test_collective_gives_the_sum_and_does_not_wait_for_ever(inter_op_threads):
    forked.call(_check_collective, inter_op_threads)


def _check_collective(inter_op_threads):
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(inter_op_threads)
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration() for _ in range(4)]
    )
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    _check_build_in_a_function(tf, devices)
    for name, num_towers, shards in CASES:
        if name == "collective":
            check(tf, devices, name, num_towers, shards)
    # A second function of the process must have other keys.
    check(tf, devices, name, num_towers, shards)
    _check_beside_a_strategy(tf, devices)


def _check_build_in_a_function(tf, devices):
    """The second trace of a tf.function must not create variables for a new device."""

    @tf.function(autograph=False)
    def step(num_towers):
        return load(ALL_REDUCES, "collective").build(devices[:num_towers], 1)(
            [tf.ones([])] * num_towers
        )

    for num_towers in (2, 4):
        assert [float(total) for total in step(num_towers)] == [num_towers] * num_towers


def _check_beside_a_strategy(tf, devices):
    """tf.distribute's collectives have other keys and work in the same process."""
    strategy = tf.distribute.MirroredStrategy(devices[2:4])

    @tf.function(autograph=False)
    def summed():
        return strategy.run(
            lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.ones([3]))
        )

    for _ in range(2):
        for value in strategy.experimental_local_results(summed()):
            np.testing.assert_array_equal(value, [2.0] * 3)
        check(tf, devices, "collective", 2, 1)


def test_every_registered_algorithm_is_tested_or_needs_gpus():
    tested = {name for name, _, _ in CASES}
    assert set(ALL_REDUCES) == tested | {"nccl"}
    assert ALL_REDUCES["nccl"].needs_gpus
    assert set(SHARDS) == set(all_reduce_spec.SHARDED)


def _list_adding_cpus(tf, name, devices, sizes):
    """Return the numbers of the CPUs that add tensors of these sizes."""
    reduce = load(ALL_REDUCES, name).build(devices, 1)
    with tf.Graph().as_default() as graph:
        for size in sizes:
            reduce([tf.zeros([size])] * len(devices))
    additions = [op for op in graph.get_operations() if op.type == "AddN"]
    return [int(op.device.rpartition("CPU:")[2]) for op in additions]


def test_whole_tensors_spread_over_the_devices_by_bytes(tf, devices):
    sizes = (100, 10, 10, 10, 100)
    assert _list_adding_cpus(tf, "pscpu", devices[:2], sizes) == [0, 1, 1, 1, 1]


def test_hierarchical_takes_turns_and_keeps_its_groups(tf, devices):
    cpus = _list_adding_cpus(tf, "hierarchical", devices[:4], [2] * 4)
    # Three sums per tensor: of each group, and of both sums on the first one's device.
    assert cpus[::3] == [0, 1, 2, 3]
    assert cpus[1::3] == [2, 3, 0, 1]


def test_pscpu_adds_on_the_host_of_gpus(tf):
    from rnn_scaling.training.all_reduce import pscpu

    assert pscpu._find_host_cpu("/device:GPU:3").endswith("CPU:0")
    assert (
        pscpu._find_host_cpu("/job:worker/replica:0/task:2/device:GPU:1")
        == "/job:worker/replica:0/task:2/device:CPU:0"
    )
    assert pscpu._find_host_cpu("/device:CPU:3") == "/device:CPU:3"


@pytest.mark.parametrize(
    "text, repacking, max_bytes, max_group",
    [
        ("pscpu", 3, 0, 10),
        ("pscpu#2:16:xring#2:400:rechd", 0, 64, 3),
        ("hierarchical:100:pscpu", 0, 0, 10),
    ],
)
def test_reduce_dense_is_the_sum_under_every_packing(
    tf, devices, text, repacking, max_bytes, max_group
):
    from rnn_scaling.training.all_reduce.exchange import reduce_dense

    devices = devices[:2]
    rng = np.random.default_rng(0)
    values = [
        rng.integers(-8, 9, size=(2, *shape)).astype(np.float32) for shape in SHAPES
    ]
    segments = all_reduce_spec.parse(text)

    @tf.function(autograph=False)
    def step():
        grads = [[tf.constant(v[tower]) for v in values] for tower in range(2)]
        summed = reduce_dense(grads, devices, segments, repacking, max_bytes, max_group)
        for tower, device in zip(summed, devices, strict=True):
            assert all(tensor.device.endswith(device[-5:]) for tensor in tower)
        return summed

    for tower in step():
        assert len(tower) == len(values)
        for got, value in zip(tower, values, strict=True):
            np.testing.assert_array_equal(got, value.sum(axis=0))


def test_a_pack_goes_to_the_algorithm_of_its_own_size(tf, devices):
    from rnn_scaling.training.all_reduce.exchange import reduce_dense

    segments = all_reduce_spec.parse("pscpu:16:collective")
    grads = [[tf.zeros([4]), tf.zeros([4])]] * 2

    def num_sums(max_bytes):
        function = tf.function(
            lambda: reduce_dense(grads, devices[:2], segments, 0, max_bytes, 10),
            autograph=False,
        )
        operations = function.get_concrete_function().graph.get_operations()
        types = [op.type for op in operations]
        return types.count("AddN"), types.count("CollectiveReduceV2")

    assert num_sums(0) == (2, 0)
    assert num_sums(16) == (0, 2)
