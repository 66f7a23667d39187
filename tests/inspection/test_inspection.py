"""Scopes, XPlane, counts and placement: what a trace and a graph are read into."""

from __future__ import annotations

import dataclasses
import types
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
        ("ConstantFolding/tower_1/forward/Const", 1, "forward"),
        ("Func/tower_0/backward/while/input/_3", 0, "backward"),
        ("exchange/read/Gather", None, "exchange"),
        ("update/Adam/ResourceApplyAdam", None, "update"),
        ("update/tower_1/ResourceApplyAdam", 1, "update"),
        ("input/stack_3/_4", None, "input"),
        ("input", None, "other"),  # an operator of that name opens no scope
        ("encoder/tower_x/forward", None, "other"),
        ("", None, "other"),
    ],
)
def test_an_operators_scopes_name_its_tower_and_phase(name, tower, phase):
    assert owner(name) == Owner(tower, phase)


HOST_PLANE = "/host:CPU"


class Space:
    """Builds an XSpace message event by event; times in microseconds."""

    def __init__(self, has_step=True):
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        self.message = xplane_pb2.XSpace()
        if has_step:
            self.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100, step_num=0, _r=1)

    def host(self, what, start_us, end_us, line="pool", **stats):
        self.event(HOST_PLANE, line, what, start_us, end_us, **stats)

    def process(self, start_us, end_us, execution=7, **stats):
        """Add the mark of an execution of a function."""
        self.host(xplane.PROCESS, start_us, end_us, id=execution, **stats)

    def gpu(self, line, what, start_us, end_us, **stats):
        self.event("/device:GPU:0", line, what, start_us, end_us, **stats)

    def read(self, exchanged=(), **types):
        """Return what is read with these operators: see `nodes`."""
        return xplane.read(self.message, nodes(**types), exchanged)

    def event(self, plane, line, what, start_us, end_us, **stats):
        plane = self._named(self.message.planes, plane)
        line = self._named(plane.lines, line, id=len(plane.lines), timestamp_ns=1000)
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
    def _named(messages, name, **fields):
        found = [message for message in messages if message.name == name]
        return found[0] if found else messages.add(name=name, **fields)

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


def test_a_host_kernel_is_an_operator_of_the_partitions_and_markers_are_none(tf):
    space = Space()
    space.process(1, 50)
    space.host("tower_0/forward/a:MatMul", 10, 30)
    space.host("ThreadpoolListener::Record", 30, 30)
    space.host("tower_0/forward/a:Add", 30, 31)  # another type: not this operator
    space.host("tower_0/forward/unknown:Add", 31, 32)
    space.host("tower_0/forward/a:MatMul", 120, 130)  # after the step
    found = space.read(tower_0__forward__a=("MatMul", CPU))
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
    space.process(0, 40)
    space.host("tower_0/forward/a:MatMul", 1, 2)
    space.process(10, 20, 8)  # runs inside the other, on its thread
    space.host("Identity:Identity", 11, 12)
    space.host("Identity:Identity", 30, 31)
    space.host("Identity:Identity", 30, 31, "other")  # outside of every execution
    found = space.read(tower_0__forward__a=("MatMul", CPU), Identity=("Identity", CPU))
    assert [kernel.name for kernel in found.steps[0].kernels] == [
        "tower_0/forward/a",
        "Identity",
    ]
    assert found.foreign == 2


def test_an_asynchronous_kernel_lasts_from_its_start_to_its_done_on_whatever_thread(tf):
    space = Space()
    start, done = xplane.ASYNC_START, xplane.ASYNC_DONE
    for at, lasting, execution in ((10, 20, 7), (50, 20, 7), (15, 80, 8)):
        stats = {"name": "exchange/r", "step_id": execution}
        space.host(start, at, at + 1, "a", **stats)
        # A piece of its work has its name, too.
        space.host("exchange/r:_Recv", at + 2, at + 3, "c")
        ended = at + lasting
        space.host(done, ended, ended + 1, "b", **stats)
    found = space.read(exchange__r=("_Recv", CPU))
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
    space.process(0, 40)
    space.host("tower_0/forward/a:CudnnRNNV3", 1, 5)
    own = {"tf_op": "tower_0/forward/a:CudnnRNNV3"}
    for at in (6, 20):
        space.gpu("Stream #13(Compute)", "sm90_gemm", at, at + 10, **own)
    space.gpu("Stream #14(H2D)", "MemcpyH2D", 2, 4, tf_op="exchange/r:_Send")
    space.gpu("Stream #15(Compute)", "ncclDevKernel_AllReduce_Sum_f32", 50, 60)
    space.gpu("Stream #15(Compute)", "a_kernel_of_nobody", 70, 80)
    space.gpu("TensorFlow Ops", "tower_0/forward/a", 6, 30, **own)  # repeats
    found = space.read(
        tower_0__forward__a=("CudnnRNNV3", GPU), exchange__r=("_Send", GPU)
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
    space.process(0, 40)
    for at in (1, 11):
        space.host("tower_0/forward/while/LoopCond:LoopCond", at, at + 1)
    space.host("tower_0/forward/while/a:MatMul", 5, 6)
    found = space.read(
        tower_0__forward__while__LoopCond=("LoopCond", GPU),
        tower_0__forward__while__a=("MatMul", GPU),
    )
    tally = operators.tally_kernels(found.steps)
    assert tally["steps"] == [{"host": 2, "device": 0, "copies": 0, "dispatched": 1}]
    assert tally["by_type"] == {"LoopCond": 2}


def test_a_gpus_copy_to_the_exchange_is_exchange_and_any_other_its_makers(tf):
    space = Space()
    gradient, weights = (
        "edge_12_tower_0/backward/gradients/tower_0/forward/a_grad",
        "edge_5_tower_1/input/b",
    )
    for at, name in ((1, gradient), (11, weights), (21, "edge_7_exchange/AddN")):
        # The copy may start within the operator's own.
        own = {"tf_op": "tower_0/forward/sender:_Send"} if at > 20 else {}
        space.gpu("Stream #14(P2P)", "MemcpyP2P", at, at + 1, edge_name=name, **own)
    found = space.read(exchanged={gradient}).steps[0].kernels
    assert [(k.kind, k.tower, k.phase) for k in found] == [
        (COPY, None, "exchange"),
        (COPY, 1, "input"),
        (COPY, None, "exchange"),
    ]


def test_a_trace_without_a_step_is_an_error(tf):
    space = Space(has_step=False)
    space.host("tower_0/forward/a:MatMul", 1, 2)
    with pytest.raises(xplane.TraceError, match="holds no step"):
        space.read(tower_0__forward__a=("MatMul", CPU))


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


def test_the_copies_are_the_bytes_that_a_record_derives(step):
    from rnn_scaling.analysis.exchange import exchanged_bytes
    from tests.support.records import make_record

    _, graph, _ = step
    away, back = graph["copies"]
    assert (away["from"], away["to"]) == (back["to"], back["from"]) == (CPU, CPU_1)
    assert away["of_unknown_size"] == back["of_unknown_size"] == 0
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


def test_a_step_that_collected_no_graphs_cannot_be_looked_into():
    from rnn_scaling.inspection import observe

    with pytest.raises(ValueError, match="collected its graphs"):
        observe.graph(types.SimpleNamespace(function_graphs=[]))


def test_the_kept_trace_has_no_iterations_that_would_pass_for_steps(tf):
    space = Space()
    space.process(1, 50, iter_num=3)
    space.host("tower_0/forward/a:MatMul", 10, 30)
    operators = {"tower_0__forward__a": ("MatMul", CPU)}
    steps = space.read(**operators).steps
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
    assert space.read(**operators).steps == steps
