"""Scopes, XPlane, counts and placement: what a trace and a graph are read into."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from rnn_scaling.inspection import operators, xplane
from rnn_scaling.inspection.operators import (
    COPY,
    DEVICE,
    HOST,
    WAIT,
    Node,
    Owner,
    owner,
)
from rnn_scaling.records.decoding import encode

CPU, CPU_1, GPU = (
    f"/job:localhost/replica:0/task:0/device:{name}"
    for name in ("CPU:0", "CPU:1", "GPU:0")
)


@pytest.mark.parametrize(
    "name, tower, phase",
    [
        ("tower_0/forward/encoder/MatMul", 0, "forward"),
        (
            "tower_12/backward/gradients/tower_12/forward/decoder/rnn/while_grad/body/_1/add",
            12,
            "backward",
        ),
        ("tower_1/input/Gather", 1, "input"),
        ("tower_1/counts/stack", 1, "other"),
        ("ConstantFolding/tower_1/forward/Const", 1, "forward"),
        ("Func/tower_0/backward/while/input/_3", 0, "backward"),
        ("exchange/read/Gather", None, "exchange"),
        ("exchange/AddN_4/_48", None, "exchange"),
        ("update/Adam/ResourceApplyAdam", None, "update"),
        ("update/tower_1/ResourceApplyAdam", 1, "update"),
        ("input/stack_3/_4", None, "input"),
        ("input", None, "other"),  # an operator of that name opens no scope
        ("encoder/tower_x/forward", None, "other"),
        ("GroupCrossDeviceControlEdges_0/NoOp", None, "other"),
        ("", None, "other"),
    ],
)
def test_an_operators_scopes_name_its_tower_and_phase(name, tower, phase):
    assert owner(name) == Owner(tower, phase)


class Space:
    """Builds an XSpace message event by event; times in microseconds."""

    def __init__(self):
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        self.message = xplane_pb2.XSpace()

    def event(self, plane, line, what, start_us, end_us, **stats):
        found = [p for p in self.message.planes if p.name == plane]
        plane = found[0] if found else self.message.planes.add(name=plane)
        found = [each for each in plane.lines if each.name == line]
        line = (
            found[0]
            if found
            else plane.lines.add(name=line, id=len(plane.lines), timestamp_ns=1000)
        )
        event = line.events.add(
            offset_ps=int(start_us * 1e6), duration_ps=int((end_us - start_us) * 1e6)
        )
        event.metadata_id = self._id(plane.event_metadata, what)
        for key, value in stats.items():
            stat = event.stats.add(metadata_id=self._id(plane.stat_metadata, key))
            if isinstance(value, int):
                stat.int64_value = value
            else:
                stat.ref_value = self._id(plane.stat_metadata, value)

    @staticmethod
    def _id(table, name):
        for number, metadata in table.items():
            if metadata.name == name:
                return number
        number = len(table) + 1
        table[number].id, table[number].name = number, name
        return number


def nodes(**types):
    """operator__with__slashes=(type, device) -> nodes by name."""
    named = {name.replace("__", "/"): value for name, value in types.items()}
    return {
        name: Node(kind, device, owner(name)) for name, (kind, device) in named.items()
    }


HOST_PLANE = "/host:CPU"


def test_a_host_kernel_is_an_operator_of_the_partitions_and_markers_are_none(tf):
    space = Space()
    space.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100)
    space.event(HOST_PLANE, "pool", "ExecutorState::Process", 1, 50, id=7)
    space.event(HOST_PLANE, "pool", "tower_0/forward/a:MatMul", 10, 30)
    space.event(HOST_PLANE, "pool", "ThreadpoolListener::Record", 30, 30)
    space.event(
        HOST_PLANE, "pool", "tower_0/forward/a:Add", 30, 31
    )  # another type: not this operator
    space.event(HOST_PLANE, "pool", "tower_0/forward/unknown:Add", 31, 32)
    space.event(
        HOST_PLANE, "pool", "tower_0/forward/a:MatMul", 120, 130
    )  # after the step
    found = xplane.read(space.message, nodes(tower_0__forward__a=("MatMul", CPU)))
    (step,) = found.steps
    assert (step.start_ns, step.end_ns) == (1_000, 101_000)
    (kernel,) = step.kernels
    assert kernel[:7] == (
        "tower_0/forward/a",
        "MatMul",
        CPU,
        0,
        "forward",
        11_000,
        31_000,
    )
    assert (kernel.lane, kernel.kind, kernel.dispatched) == ("pool", HOST, False)
    assert found.foreign == 2


def test_kernels_of_other_functions_with_the_same_plain_names_are_foreign(tf):
    space = Space()
    space.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100)
    space.event(HOST_PLANE, "pool", "ExecutorState::Process", 0, 40, id=7)
    space.event(HOST_PLANE, "pool", "tower_0/forward/a:MatMul", 1, 2)
    space.event(
        HOST_PLANE, "pool", "ExecutorState::Process", 10, 20, id=8
    )  # runs inside the other, on its thread
    space.event(HOST_PLANE, "pool", "Identity:Identity", 11, 12)
    space.event(HOST_PLANE, "pool", "Identity:Identity", 30, 31)
    space.event(
        HOST_PLANE, "other pool", "Identity:Identity", 30, 31
    )  # outside of every execution
    found = xplane.read(
        space.message,
        nodes(tower_0__forward__a=("MatMul", CPU), Identity=("Identity", CPU)),
    )
    assert [kernel.name for kernel in found.steps[0].kernels] == [
        "tower_0/forward/a",
        "Identity",
    ]
    assert found.foreign == 2


def test_an_asynchronous_kernel_lasts_from_its_start_to_its_done_on_whatever_thread(tf):
    space = Space()
    space.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100)
    start, done = xplane.ASYNC_START, xplane.ASYNC_DONE
    for at, lasting, execution in ((10, 20, 7), (50, 20, 7), (15, 80, 8)):
        space.event(
            HOST_PLANE,
            "a",
            start,
            at,
            at + 1,
            name="exchange/r",
            kernel_type="_Recv",
            step_id=execution,
        )
        space.event(
            HOST_PLANE, "c", "exchange/r:_Recv", at + 2, at + 3
        )  # a piece of its work, under its name
        ended = at + lasting
        space.event(
            HOST_PLANE,
            "b",
            done,
            ended,
            ended + 1,
            name="exchange/r",
            kernel_type="_Recv",
            step_id=execution,
        )
    found = xplane.read(space.message, nodes(exchange__r=("_Recv", CPU)))
    times = [
        (k.start_ns - 1000, k.end_ns - 1000, k.kind) for k in found.steps[0].kernels
    ]
    assert times == [
        (10_000, 31_000, WAIT),
        (15_000, 96_000, WAIT),
        (50_000, 71_000, WAIT),
    ]


def test_a_gpus_kernels_come_from_its_streams_and_the_hosts_launches_are_dispatched(tf):
    space = Space()
    space.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100)
    space.event(HOST_PLANE, "pool", "ExecutorState::Process", 0, 40, id=7)
    space.event(HOST_PLANE, "pool", "tower_0/forward/a:CudnnRNNV3", 1, 5)
    gpu = "/device:GPU:0"
    for at in (6, 20):
        space.event(
            gpu,
            "Stream #13(Compute)",
            "sm90_gemm",
            at,
            at + 10,
            tf_op="tower_0/forward/a:CudnnRNNV3",
        )
    space.event(
        gpu, "Stream #14(MemcpyH2D)", "MemcpyH2D", 2, 4, tf_op="exchange/r:_Send"
    )
    space.event(
        gpu, "Stream #15(Compute)", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 50, 60
    )
    space.event(gpu, "Stream #15(Compute)", "a_kernel_of_nobody", 70, 80)
    space.event(
        gpu,
        "TensorFlow Ops",
        "tower_0/forward/a",
        6,
        30,
        tf_op="tower_0/forward/a:CudnnRNNV3",
    )  # repeats
    found = xplane.read(
        space.message,
        nodes(tower_0__forward__a=("CudnnRNNV3", GPU), exchange__r=("_Send", GPU)),
    )
    kinds = [
        (k.kind, k.device, k.tower, k.phase, k.dispatched)
        for k in found.steps[0].kernels
    ]
    assert kinds == [
        (HOST, GPU, 0, "forward", True),
        (COPY, GPU, None, "exchange", False),
        (DEVICE, GPU, 0, "forward", False),
        (DEVICE, GPU, 0, "forward", False),
        (DEVICE, "/device:GPU:0", None, "exchange", False),
        (DEVICE, "/device:GPU:0", None, "other", False),
    ]
    tally = operators.tally_kernels(found.steps)
    assert tally["steps"] == [{"host": 0, "device": 4, "copies": 1, "dispatched": 1}]
    assert (
        list(tally["by_type"].items())[0] == ("CudnnRNNV3", 2)
        and len(tally["by_type"]) == 3
    )
    assert tally["by_phase"] == [
        {"tower": 0, "phase": "forward", "kernels": 2},
        {"tower": None, "phase": "exchange", "kernels": 1},
        {"tower": None, "phase": "other", "kernels": 1},
    ]


def test_control_flow_of_a_loop_on_a_gpu_is_the_hosts_and_no_launch(tf):
    space = Space()
    space.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100)
    space.event(HOST_PLANE, "pool", "ExecutorState::Process", 0, 40, id=7)
    for at in (1, 11):
        space.event(
            HOST_PLANE, "pool", "tower_0/forward/while/LoopCond:LoopCond", at, at + 1
        )
    space.event(HOST_PLANE, "pool", "tower_0/forward/while/a:MatMul", 5, 6)
    loop = nodes(
        tower_0__forward__while__LoopCond=("LoopCond", GPU),
        tower_0__forward__while__a=("MatMul", GPU),
    )
    tally = operators.tally_kernels(xplane.read(space.message, loop).steps)
    assert tally["steps"] == [{"host": 2, "device": 0, "copies": 0, "dispatched": 1}]
    assert tally["by_type"] == {"LoopCond": 2}


def test_a_gpus_copy_to_the_exchange_is_exchange_and_any_other_its_makers(tf):
    space = Space()
    space.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100)
    gradient, weights = (
        "edge_12_tower_0/backward/gradients/tower_0/forward/a_grad",
        "edge_5_tower_1/input/b",
    )
    for at, name in ((1, gradient), (11, weights), (21, "edge_7_exchange/AddN")):
        of = (
            {"tf_op": "tower_0/forward/sender:_Send"} if at > 20 else {}
        )  # the copy may start within the operator's own
        space.event(
            "/device:GPU:0",
            "Stream #14(MemcpyP2P)",
            "MemcpyP2P",
            at,
            at + 1,
            edge_name=name,
            **of,
        )
    found = xplane.read(space.message, {}, exchanged={gradient}).steps[0].kernels
    assert [(k.kind, k.tower, k.phase) for k in found] == [
        (COPY, None, "exchange"),
        (COPY, 1, "input"),
        (COPY, None, "exchange"),
    ]


def test_a_trace_without_a_step_is_an_error(tf):
    space = Space()
    space.event(HOST_PLANE, "pool", "tower_0/forward/a:MatMul", 1, 2)
    with pytest.raises(xplane.TraceError, match="holds no step"):
        xplane.read(space.message, nodes(tower_0__forward__a=("MatMul", CPU)))


def test_operators_are_counted_with_the_bodies_of_functions(tf):
    @tf.function(autograph=False)
    def doubled(x):
        return tf.while_loop(
            lambda y: tf.reduce_sum(y) < 8.0, lambda y: (y + y,), (x,)
        )[0]

    graph = doubled.get_concrete_function(tf.constant([1.0])).graph.as_graph_def()
    bodies = [len(function.node_def) for function in graph.library.function]
    assert len(bodies) == 2
    assert operators.num_operators(graph) == len(graph.node) + sum(bodies)


@pytest.fixture(scope="module")
def step(devices):
    """A step of two towers and a parameter server, and its graphs."""
    from rnn_scaling.config import run_config as configs
    from rnn_scaling.inspection import observe
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines.local import Engine

    given = {
        "encoder_type": "dynamic_rnn",
        "variable_update": "parameter_server",
        "num_devices": 2,
        "num_units": 8,
        "embedding_dim": 8,
        "src_vocab_size": 20,
        "tgt_vocab_size": 20,
        "src_max_len": 3,
        "tgt_max_len": 3,
        "batch_size": 2,
        "trace_batches": 2,
    }
    config = configs.resolve(given, num_gpus=0, num_cores=2)
    built = benchmark.build(config, Engine(0, 1, (CPU, CPU_1), CPU, "CPU", 1))
    for _ in range(3):
        built()
    return (
        built,
        encode(observe.graph(built)),
        encode(observe.trace(built, 2, "", [0.01, 0.02, 0.03])),
    )


def test_placement_is_what_runs(step):
    built, graph, _ = step
    variables = {each["name"]: each for each in graph["placement"]["variables"]}
    assert len(variables) == len(built.variable_states())
    embedding, projection = variables["src_embedding"], variables["projection"]
    assert embedding["bytes"] == 20 * 8 * 4
    assert embedding["slots"] == [{"device": CPU, "bytes": 20 * 8 * 4}] * 2  # Adam's
    rows = 3 * 2 * (8 * 4 + 8)  # positions x (a row of float32 and an int64 id)
    assert [g["kind"] for g in embedding["gradients"]] == ["rows", "rows"]
    assert [g["bytes"] for g in embedding["gradients"]] == [rows, rows]
    assert [g["kind"] for g in projection["gradients"]] == ["dense", "dense"]
    assert [g["device"] for g in projection["gradients"]] == [CPU, CPU_1]
    assert {(v["device"], v["update"]["device"]) for v in variables.values()} == {
        (CPU, CPU)
    }
    assert all(
        v["update"]["types"] == ["ResourceApplyAdam"] for v in variables.values()
    )


def test_copies_are_the_reads_and_gradients_of_the_tower_without_variables(step):
    _, graph, _ = step
    away, back = graph["copies"]
    assert (away["from"], away["to"], back["from"], back["to"]) == (
        CPU,
        CPU_1,
        CPU_1,
        CPU,
    )
    dense = sum(
        v["bytes"]
        for v in graph["placement"]["variables"]
        if "embedding" not in v["name"]
    )
    rows = sum(
        v["gradients"][1]["bytes"]
        for v in graph["placement"]["variables"]
        if "embedding" in v["name"]
    )
    assert away["of_unknown_size"] == back["of_unknown_size"] == 0
    words = 3 * 2 * 8  # int64 ids of one side
    assert (
        0 <= away["bytes"] - dense - 2 * 3 * 2 * 8 * 4 < 100
    )  # the weights, both sides' rows, and a few numbers
    assert (
        0 <= back["bytes"] - dense - rows - 2 * words < 100 + dense // 100
    )  # gradients, and the ids to look up


def test_the_copies_are_the_bytes_that_a_record_derives(step):
    from rnn_scaling.analysis.exchange import exchanged_bytes
    from tests.support.records import make_record

    built, graph, _ = step
    variables = graph["placement"]["variables"]
    counted = {
        "trainable": 1,
        "bytes": sum(v["bytes"] for v in variables),
        "row_bytes": 8 * 4,
    }
    counted["embedding_bytes"] = sum(
        v["bytes"] for v in variables if "embedding" in v["name"]
    )
    towers = {
        "tower_positions": [[12, 12]] * 2,
        "tower_items": [[12, 12]] * 2,
    }  # 3 words of 2 sentences on both sides
    config = {"variable_update": "parameter_server", "num_devices": 2}
    made = make_record(
        config=config, items=[24, 24], batches=towers, parameters=counted
    )
    ids = 12 * 8  # and, back and forth, ids of rows and numbers of words
    copied = sum(each["bytes"] for each in graph["copies"])
    assert 0 <= copied - exchanged_bytes(made, 2) < 2 * ids + 200 + copied // 100


def test_gradients_that_a_tower_sends_to_the_server_travel_for_the_exchange(step):
    built, graph, _ = step
    from rnn_scaling.inspection import observe

    sent = operators.exchanged(observe.partitions(built))
    assert all(xplane.TRANSFER.match(name) for name in sent)
    makers = Counter(owner(xplane.TRANSFER.sub("", name)) for name in sent)
    assert makers[Owner(1, "backward")] >= len(
        graph["placement"]["variables"]
    )  # rows of an embedding are two tensors
    assert makers[Owner(None, "exchange")] > 0  # what is read
    assert {maker.phase for maker in makers} <= {
        "backward",
        "exchange",
        "input",
    }  # input: the ids to look up


def test_a_step_is_counted_alike_twice_and_its_parts_sum_to_its_length(step):
    _, graph, trace = step
    first, second = trace["kernels"]["steps"]
    assert (
        first == second
        and first["host"] > 1000
        and first["device"] == first["dispatched"] == 0
    )
    assert sum(trace["kernels"]["by_type"].values()) == first["host"]
    assert (
        sum(each["kernels"] for each in trace["kernels"]["by_phase"]) == first["host"]
    )
    assert (
        trace["kernels"]["by_type"]["Merge"] > 0
    )  # which TensorFlow never thinks expensive
    assert trace["kernels"]["by_type"].keys() <= graph["partitions"]["by_type"].keys()
    assert not [name for name in trace["kernels"]["by_type"] if "::" in name]
    assert trace["kernels"]["input_pipeline"] == 0
    assert trace["cost"]["untraced_s"] == 0.02 and len(trace["cost"]["timed_s"]) == 2
    for timed in trace["steps"]:
        for tower in timed["towers"]:
            assert sum(tower["parts"].values()) == pytest.approx(
                timed["seconds"], abs=1e-9
            )
    assert (
        sum(graph["partitions"]["by_type"].values()) == graph["partitions"]["operators"]
    )


def test_words_are_those_of_the_last_counted_step(step, monkeypatch):
    from rnn_scaling.inspection import observe
    from rnn_scaling.training.towers import TrainStep

    built, *_ = step
    words, call = iter(range(100, 200)), TrainStep.__call__
    monkeypatch.setattr(
        TrainStep,
        "__call__",
        lambda self: dataclasses.replace(call(self), items=np.array([next(words)])),
    )
    assert observe.trace(built, 1, "", [0.01]).items == 101


def partition_of(graph, sent):
    """The graph's partition on one device, which sends a tensor to another."""
    partition = graph.as_graph_def()
    send = partition.node.add(
        name="send", op="_Send", input=[sent.name.removesuffix(":0")]
    )
    send.attr["T"].type = sent.dtype.as_datatype_enum
    send.attr["send_device_incarnation"].i = 1
    for key, value in (
        ("tensor_name", "sent"),
        ("send_device", "CPU:0"),
        ("recv_device", "CPU:1"),
    ):
        send.attr[key].s = value.encode()
    return partition


def test_a_partition_is_read_although_xla_took_the_operator_that_another_was_to_be_beside(
    tf,
):
    from rnn_scaling.inspection import placement

    with tf.Graph().as_default() as graph:
        left = tf.identity(tf.constant(1.0), name="left")
    partition = partition_of(graph, left)
    partition.node[1].attr["_class"].list.s.append(b"loc:@gone")
    [copies] = placement.copies([partition], graph)
    assert (copies["from"], copies["to"], copies["pairs"], copies["bytes"]) == (
        "CPU:0",
        "CPU:1",
        1,
        4,
    )
    assert "_class" in partition.node[1].attr


def test_the_gradient_of_a_bias_has_its_size_although_tensorflow_infers_another(tf):
    """As oneDNN computes it, beside that of the kernel, and an update that the wrong size would not fit."""
    from rnn_scaling.inspection import placement

    with tf.Graph().as_default() as graph:
        x, dy = tf.zeros([2, 4, 4, 3]), tf.zeros([2, 4, 4, 8])
        kernel = tf.raw_ops.Conv2DBackpropFilter(
            input=x,
            filter_sizes=[1, 1, 3, 8],
            out_backprop=dy,
            strides=[1] * 4,
            padding="SAME",
        )
        variable = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[8])
        apply = tf.raw_ops.ResourceApplyGradientDescent(
            var=variable, alpha=1.0, delta=tf.zeros([8])
        )
    partition = partition_of(graph, kernel)
    by_name = {node.name: node for node in partition.node}
    by_name[kernel.op.name].op = "_MklNativeConv2DBackpropFilterWithBias"
    by_name[apply.name].input[2] = f"{kernel.op.name}:1"
    by_name["send"].input[0] = f"{kernel.op.name}:1"
    [copies] = placement.copies([partition], graph)
    assert copies["bytes"] == 8 * 4


def test_a_step_that_collected_no_graphs_cannot_be_looked_into(step):
    from rnn_scaling.inspection import observe

    built, *_ = step
    collected, built.function_graphs = built.function_graphs, []
    try:
        with pytest.raises(ValueError, match="collected its graphs"):
            observe.graph(built)
    finally:
        built.function_graphs = collected


def test_the_kept_trace_has_no_iterations_that_would_pass_for_steps(tf):
    space = Space()
    space.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100, step_num=0, _r=1)
    space.event(HOST_PLANE, "pool 7", "ExecutorState::Process", 1, 50, id=7, iter_num=3)
    space.event(HOST_PLANE, "pool 7", "tower_0/forward/a:MatMul", 10, 30)
    operators = nodes(tower_0__forward__a=("MatMul", CPU))
    steps = xplane.read(space.message, operators).steps
    xplane.drop_iterations(space.message)
    (host,) = space.message.planes
    named = {number: metadata.name for number, metadata in host.stat_metadata.items()}
    left = {
        named[stat.metadata_id]
        for line in host.lines
        for event in line.events
        for stat in event.stats
    }
    assert left == {"step_num", "_r", "id"}
    assert xplane.read(space.message, operators).steps == steps
