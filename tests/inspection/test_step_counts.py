"""Kernels of a step: they grow as the loops say, agree with a Session's own statistics, repeat, and have owners."""

from __future__ import annotations

import functools
from collections import Counter

import pytest

from rnn_scaling.records.step_parts import CONTROL_FLOW, OTHER
from tests.support import forked
from tests.support.gpu_graph import trace
from tests.support.step_probe import (
    ONE_CELL,
    TINY,
    Probe,
    by_type,
    every,
    of_two_towers,
)

LENGTHS = (2, 3, 5)
LOOPS = ("While", "StatelessWhile", *CONTROL_FLOW)
# What only a Session's statistics count: kernels whose result the executor hands out without running them, and no-ops.
NOT_RUN = {"Const", "VarHandleOp", "NoOp"}
NOT_IN_STATISTICS = {
    "_Send",
    "_Recv",
    "_HostSend",
    "_HostRecv",
}  # copies between devices, which these leave out
# How a function and a Session differ about the same graph: what goes in and comes out, and copies of it.
AROUND = {
    "_Arg",
    "_Retval",
    "_Send",
    "_Recv",
    "_HostRecv",
    "Identity",
    "IdentityN",
    "Enter",
}
# Every type that is found outside of all towers, phases and shared scopes, and what it is.
PLUMBING = {
    "_Arg": "a variable's handle",
    "_Send": "a result",
    "_Recv": "a result",
    "Identity": "a result",
}
MODES = {
    "independent": {},
    "parameter_server": {},
    "replicated": {},
    "mirrored": {},
    "keras_slicing": {},
    "host data": {"variable_update": "independent", "data_source": "host"},
}


@pytest.fixture(scope="module")
def probe(devices):
    """(number of devices, option=value, ...) -> Probe; each is built once."""
    return functools.cache(lambda number, **options: Probe(devices[:number], **options))


def by_phase(step, phase):
    return sum(kernel.phase == phase for kernel in step.kernels)


def line(values):
    """(a, b) of a + b T through the counts of LENGTHS, which must all lie on it."""
    slope, rest = divmod(values[-1] - values[0], LENGTHS[-1] - LENGTHS[0])
    start = values[0] - slope * LENGTHS[0]
    assert rest == 0 and [start + slope * length for length in LENGTHS] == values
    return start, slope


@pytest.mark.parametrize("encoder", ["dynamic_rnn", "cudnn_lstm"])
def test_kernels_grow_with_the_length_by_as_many_as_the_loops_bodies_hold(
    probe, encoder
):
    model = (
        "lm" if encoder == "dynamic_rnn" else "nmt"
    )  # of a single loop, whose dozens of kernels take long to trace
    steps = [
        probe(1, model=model, encoder_type=encoder, src_max_len=n, tgt_max_len=n).every(
            1
        )[0]
        for n in LENGTHS
    ]
    forward, backward = (
        line([by_phase(step, phase) for step in steps])
        for phase in ("forward", "backward")
    )
    whole = line([len(step.kernels) for step in steps])
    iterations = line(
        [by_type(step)["LoopCond"] for step in steps]
    )  # a loop a cell, forward and backward
    if encoder == "dynamic_rnn":
        assert iterations == (2, 2)
        assert (
            forward[1] > 50 and backward[1] > 50
        )  # dozens of small kernels a cell and step
    else:
        assert iterations == (2, 2)
        assert forward[1] == 0  # one BlockLSTM a cell, however long the sentences
        assert all(by_type(step)["BlockLSTM"] == 2 for step in steps)
        assert line([by_type(step)["LSTMBlockCellGrad"] for step in steps]) == (
            0,
            2,
        )  # no op does the backward loop
    assert whole[1] == forward[1] + backward[1]


def test_the_graph_for_a_gpu_has_loops_with_dynamic_rnn_and_none_with_cudnn(tf):
    """Without a loop no operator runs more than once a step, so that the kernels cannot grow with the length."""
    for encoder, has_loops in (("cudnn_lstm", False), ("dynamic_rnn", True)):
        found = []
        for length in (3, 7):
            given = {
                "src_max_len": length,
                "tgt_max_len": length,
                "encoder_type": encoder,
            }
            operations, _ = trace(tf, variable_update="replicated", **ONE_CELL, **given)
            found.append(Counter(op.type for op in operations))
        assert found[0] == found[1]  # the graph itself does not depend on the length
        assert any(kind in LOOPS for kind in found[0]) is has_loops
        assert bool(found[0]["CudnnRNNV3"]) is not has_loops


def test_counts_agree_with_a_sessions_own_statistics(tf, probe, devices):
    from rnn_scaling.config import run_config as configs
    from rnn_scaling.inspection import operators
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines.local import Engine

    v1 = tf.compat.v1
    options = {
        "encoder_type": "dynamic_rnn",
        "variable_update": "replicated",
        "num_devices": 2,
    }
    config = configs.resolve({**TINY, **options}, num_gpus=0, num_cores=2)
    with tf.Graph().as_default() as graph:
        built = benchmark.build(
            config, Engine(0, 1, tuple(devices[:2]), devices[0], "CPU", 1)
        )
        results, _ = built._function()
        start = v1.global_variables_initializer()
    metadata = v1.RunMetadata()
    with v1.Session(
        graph=graph, config=v1.ConfigProto(device_count={"CPU": 2})
    ) as session:
        session.run(start)
        full = v1.RunOptions(
            trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True
        )
        session.run(results)
        session.run(results, options=full, run_metadata=metadata)
        nodes = operators.nodes_of(metadata.partition_graphs)
        ours = by_type(every(lambda: session.run(results), nodes, 1)[0])
    names = [
        each.node_name
        for device in metadata.step_stats.dev_stats
        for each in device.node_stats
    ]
    theirs = Counter(
        nodes[name].type for name in names if name != "_SOURCE"
    )  # the executor's own start
    assert theirs["MatMul"] + theirs["_MklMatMul"] > 0 and theirs["Merge"] > 100
    assert set(theirs - ours) <= NOT_RUN and not any(ours[kind] for kind in NOT_RUN)
    assert set(ours - theirs) <= NOT_IN_STATISTICS and not any(
        theirs[kind] for kind in NOT_IN_STATISTICS
    )
    common = ours.keys() & theirs.keys()
    assert {kind: ours[kind] for kind in common} == {
        kind: theirs[kind] for kind in common
    }
    partitions = Counter(node.type for node in nodes.values())
    assert all(
        ours[kind] == partitions[kind] for kind in NOT_IN_STATISTICS
    )  # none lies in a loop: each runs once

    function = by_type(
        probe(2, encoder_type="dynamic_rnn", variable_update="replicated").every(1)[0]
    )
    assert set((function - ours) + (ours - function)) <= AROUND


@pytest.mark.parametrize("name", MODES)
def test_every_kernel_has_an_owner_but_named_plumbing_and_steps_are_alike(probe, name):
    encoder = (
        "dynamic_rnn" if name == "replicated" else "cudnn_lstm"
    )  # that one is built already
    given = {"encoder_type": encoder, "variable_update": name, **MODES[name]}
    first, second = probe(2, **given).every(2)
    assert by_type(first) == by_type(second)
    assert len(first.kernels) == len(second.kernels)
    nobodys = [
        kernel
        for kernel in first.kernels
        if kernel.phase == OTHER and kernel.tower is None
    ]
    assert {kernel.type for kernel in nobodys} <= PLUMBING.keys()
    assert len([kernel for kernel in nobodys if kernel.type != "_Arg"]) <= 20
    assert len(nobodys) < 0.05 * len(first.kernels)
    own = {
        kernel.name.split("/")[1]
        for kernel in first.kernels
        if kernel.phase == OTHER and kernel.tower is not None
    }
    assert own <= {"counts"}  # of words and loss, after the step's work
    assert not [
        kernel for kernel in first.kernels if "::" in kernel.type or "::" in kernel.name
    ]


def test_the_profilers_own_level_leaves_kernels_out_and_ours_does_not(probe):
    from rnn_scaling.inspection import tracing, xplane

    small = probe(2, encoder_type="dynamic_rnn", variable_update="replicated")
    (all_of_them,) = small.every(1)
    light = xplane.read(tracing.trace(small.step, 2).space, small.nodes).steps[0]
    kinds = by_type(light)
    assert len(light.kernels) < len(all_of_them.kernels) / 2
    assert all(
        by_type(all_of_them)[kind] and not kinds[kind] for kind in CONTROL_FLOW
    )  # never thought expensive


@pytest.fixture(scope="module")
def processes():
    """What the probe says in a process of its own, by number of inter-op threads."""
    return {threads: forked.call(of_two_towers, threads) for threads in (1, 3)}


def test_two_processes_count_the_same_whatever_their_threads(processes):
    assert processes[1]["sum"] > 1000
    assert processes[1]["by_type"] == processes[3]["by_type"]


def test_one_thread_runs_the_towers_one_after_the_other_and_more_do_not(processes):
    """No kernel of a tower overlaps one of the other where one thread dispatches both."""
    assert processes[1]["together"] == 0
    assert processes[3]["together"] > 0
