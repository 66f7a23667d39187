"""Kernels of a step grow with the loops, agree with a Session, repeat, and have owners."""

import functools
from collections import Counter

import pytest

from rnn_scaling.records.step_parts import CONTROL_FLOW, OTHER
from tests.support import forked
from tests.support.configs import resolve
from tests.support.gpu_graph import trace
from tests.support.step_probe import (
    TINY,
    Probe,
    count_by_type,
    count_two_towers,
    trace_all_kernels,
)
from tests.support.training import make_local_engine

LENGTHS = (2, 3, 5)
LOOPS = ("While", "StatelessWhile", *CONTROL_FLOW)
# Only a Session's statistics count these: no-ops, and kernels that the executor does not
# run because it has their results.
NOT_RUN = {"Const", "VarHandleOp", "NoOp"}
# The statistics leave out copies between devices.
NOT_IN_STATISTICS = {"_Send", "_Recv", "_HostSend", "_HostRecv"}
# A function and a Session differ in arguments, results and copies.
AROUND = {"_Arg", "_Retval", "_Send", "_Recv", "_HostRecv"}
AROUND |= {"Identity", "IdentityN", "Enter"}
# All types outside of towers, phases and shared scopes.
PLUMBING = {
    "_Arg": "a variable's handle",
    "_Send": "a result",
    "_Recv": "a result",
    "Identity": "a result",
}
# A network of one side is traced in half the time.
FUSED = {"model": "lm", "encoder_type": "cudnn_lstm"}
# The step with the most small kernels.
LOOP = {"model": "lm", "encoder_type": "dynamic_rnn", "variable_update": "replicated"}
MODES = {
    "parameter_server": {},
    "replicated": LOOP,
    "mirrored": {"model": "nmt"},  # a strategy has more plumbing per tower
    "keras_slicing": {},
    "host data": {
        "model": "nmt",
        "variable_update": "independent",
        "data_source": "host",
    },
}


@pytest.fixture(scope="module")
def probe(devices):
    """Return a function that builds each probe once."""
    return functools.cache(lambda number, **options: Probe(devices[:number], **options))


def count_by_phase(step, phase):
    return sum(kernel.phase == phase for kernel in step.kernels)


def line(values):
    """Return (a, b) of the line a + b T that all counts of LENGTHS lie on."""
    slope, remainder = divmod(values[-1] - values[0], LENGTHS[-1] - LENGTHS[0])
    start = values[0] - slope * LENGTHS[0]
    assert remainder == 0
    assert [start + slope * length for length in LENGTHS] == values
    return start, slope


@pytest.mark.parametrize("encoder", ["dynamic_rnn", "cudnn_lstm"])
def test_kernels_grow_with_the_length_by_the_loops_bodies(probe, encoder):
    steps = []
    for n in LENGTHS:
        options = {"model": "lm", "tgt_max_len": n}
        steps += probe(1, encoder_type=encoder, **options).every(1)
    forward = line([count_by_phase(step, "forward") for step in steps])
    backward = line([count_by_phase(step, "backward") for step in steps])
    total = line([len(step.kernels) for step in steps])
    loops = line([count_by_type(step)["LoopCond"] for step in steps])
    if encoder == "dynamic_rnn":
        # The cell has a loop forward and a loop backward, each with dozens of small
        # kernels per iteration.
        assert loops == (2, 2)
        assert forward[1] > 50
        assert backward[1] > 50
    else:
        # The cell has one BlockLSTM forward, and a loop of small kernels backward.
        assert loops == (1, 1)
        assert forward[1] == 0
        assert all(count_by_type(step)["BlockLSTM"] == 1 for step in steps)
        gradients = [count_by_type(step)["LSTMBlockCellGrad"] for step in steps]
        assert line(gradients) == (0, 1)
    assert total[1] == forward[1] + backward[1]


def test_the_graph_for_a_gpu_has_loops_with_dynamic_rnn_but_not_with_cudnn(tf):
    """Without loops every operator runs once, so kernels do not grow with the length."""
    for encoder, has_loops in (("cudnn_lstm", False), ("dynamic_rnn", True)):
        found = []
        for length in (3, 7):
            options = {"tgt_max_len": length, "variable_update": "replicated"}
            options |= {"model": "lm", "encoder_type": encoder}
            operations, _ = trace(tf, **options)
            found.append(Counter(op.type for op in operations))
        assert found[0] == found[1]
        assert any(kind in LOOPS for kind in found[0]) is has_loops
        assert bool(found[0]["CudnnRNNV3"]) is not has_loops


def test_counts_agree_with_the_statistics_of_a_session(tf, probe, devices):
    from rnn_scaling.inspection import operators
    from rnn_scaling.training import benchmark

    v1 = tf.compat.v1
    config = resolve({**TINY, **LOOP, "num_devices": 2})
    with tf.Graph().as_default() as graph:
        built = benchmark.build(config, make_local_engine(devices[:2]))
        results, _ = built._function()
        start = v1.global_variables_initializer()
    metadata = v1.RunMetadata()
    session_config = v1.ConfigProto(device_count={"CPU": 2})
    with v1.Session(graph=graph, config=session_config) as session:
        session.run(start)
        full = v1.RunOptions(
            trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True
        )
        session.run(results)
        session.run(results, options=full, run_metadata=metadata)
        nodes = operators.index_nodes(metadata.partition_graphs)
        traced = count_by_type(
            trace_all_kernels(lambda: session.run(results), nodes, 1)[0]
        )
    statistics = Counter()
    for device in metadata.step_stats.dev_stats:
        for each in device.node_stats:
            # The executor adds _SOURCE.
            if each.node_name != "_SOURCE":
                statistics[nodes[each.node_name].type] += 1
    assert statistics["MatMul"] + statistics["_MklMatMul"] > 0
    assert statistics["Merge"] > 50
    only_in_one = traced.keys() ^ statistics.keys()
    assert only_in_one <= NOT_RUN | NOT_IN_STATISTICS
    assert not traced.keys() & NOT_RUN
    assert not statistics.keys() & NOT_IN_STATISTICS
    for kind in traced.keys() & statistics.keys():
        assert traced[kind] == statistics[kind], kind
    # Copies between devices are outside of loops, so each runs once.
    partitions = Counter(node.type for node in nodes.values())
    assert all(traced[kind] == partitions[kind] for kind in NOT_IN_STATISTICS)

    function = count_by_type(probe(2, **LOOP).every(1)[0])
    assert set((function - traced) + (traced - function)) <= AROUND


def test_two_processes_count_the_same_whatever_their_threads():
    one, three = (forked.call(count_two_towers, threads) for threads in (1, 3))
    assert one == three and sum(one.values()) > 1000


@pytest.mark.parametrize("name", MODES)
def test_every_kernel_except_plumbing_has_an_owner_and_steps_are_equal(probe, name):
    options = {**FUSED, "variable_update": name, **MODES[name]}
    first, second = probe(2, **options).every(2)
    assert count_by_type(first) == count_by_type(second)
    assert len(first.kernels) == len(second.kernels)
    others = [kernel for kernel in first.kernels if kernel.phase == OTHER]
    types = Counter(kernel.type for kernel in others if kernel.tower is None)
    assert types.keys() <= PLUMBING.keys()
    assert types.total() - types["_Arg"] <= 20
    assert types.total() < 0.05 * len(first.kernels)
    # Towers count words and losses after the phases.
    for kernel in others:
        assert kernel.tower is None or kernel.name.split("/")[1] == "counts"
    for kernel in first.kernels:
        assert "::" not in kernel.type + kernel.name
