"""Scopes, kernels, counts and placement that are read from a trace and a graph."""

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
    find_owner,
)
from rnn_scaling.records.decoding import encode
from tests.support.configs import resolve

CPU, CPU_1, GPU = (
    f"/job:localhost/replica:0/task:0/device:{name}"
    for name in ("CPU:0", "CPU:1", "GPU:0")
)


@pytest.mark.parametrize(
    "name, tower, phase",
    [
        ("tower_0/forward/encoder/MatMul", 0, "forward"),
        ("tower_12/backward/gradients/tower_12/forward/while_grad/add", 12, "backward"),
        ("ConstantFolding/tower_1/forward/Const", 1, "forward"),
        ("Func/tower_0/backward/while/input/_3", 0, "backward"),
        ("update/Adam/ResourceApplyAdam", None, "update"),
        ("update/tower_1/ResourceApplyAdam", 1, "update"),
        ("input/stack_3/_4", None, "input"),
        ("input", None, "other"),  # an operator, not a scope
        ("encoder/tower_x/forward", None, "other"),
    ],
)
def test_an_operators_scopes_name_its_tower_and_phase(name, tower, phase):
    assert find_owner(name) == Owner(tower, phase)


HOST_PLANE = "/host:CPU"


class Space:
    """Builds an XSpace message event by event; times in microseconds."""

    def __init__(self, has_step=True):
        from tensorflow.tsl.profiler.protobuf import xplane_pb2

        self.message = xplane_pb2.XSpace()
        if has_step:
            self.event(HOST_PLANE, "python", xplane.STEP_MARK, 0, 100, step_num=0, _r=1)

    def host(self, event_name, start_us, end_us, line="pool", **stats):
        self.event(HOST_PLANE, line, event_name, start_us, end_us, **stats)

    def process(self, start_us, end_us, execution=7, **stats):
        """Add the mark of an execution of a function."""
        self.host(xplane.PROCESS, start_us, end_us, id=execution, **stats)

    def gpu(self, line, event_name, start_us, end_us, **stats):
        self.event("/device:GPU:0", line, event_name, start_us, end_us, **stats)

    def read(self, exchanged=(), **types):
        """Read the message with these operators; see `nodes`."""
        return xplane.read(self.message, nodes(**types), exchanged)

    def event(self, plane, line, event_name, start_us, end_us, **stats):
        plane = self._named(self.message.planes, plane)
        line = self._named(plane.lines, line, id=len(plane.lines), timestamp_ns=1000)
        event = line.events.add(
            offset_ps=int(start_us * 1e6), duration_ps=int((end_us - start_us) * 1e6)
        )
        event.metadata_id = self._id(plane.event_metadata, event_name)
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
        name: Node(kind, device, find_owner(name))
        for name, (kind, device) in named.items()
    }


def test_a_host_kernel_is_an_operator_of_the_partitions_but_not_a_marker(tf):
    space = Space()
    space.process(1, 50)
    space.host("tower_0/forward/a:MatMul", 10, 30)
    space.host("ThreadpoolListener::Record", 30, 30)
    space.host("tower_0/forward/a:Add", 30, 31)  # not the operator's type
    space.host("tower_0/forward/unknown:Add", 31, 32)
    space.host("tower_0/forward/a:MatMul", 120, 130)  # after the step
    found = space.read(tower_0__forward__a=("MatMul", CPU))
    [step] = found.steps
    assert step.start_ns == 1_000
    assert step.end_ns == 101_000
    [kernel] = step.kernels
    assert kernel[:5] == ("tower_0/forward/a", "MatMul", CPU, 0, "forward")
    assert kernel.start_ns == 11_000
    assert kernel.end_ns == 31_000
    assert (kernel.lane, kernel.kind, kernel.is_launch_only) == ("pool", HOST, False)
    assert found.num_foreign == 2


def test_kernels_of_other_functions_with_the_same_plain_names_are_foreign(tf):
    space = Space()
    space.process(0, 40)
    space.host("tower_0/forward/a:MatMul", 1, 2)
    space.process(10, 20, 8)  # runs inside the other, on its thread
    space.host("Identity:Identity", 11, 12)
    space.host("Identity:Identity", 30, 31)
    space.host("Identity:Identity", 30, 31, "other")  # outside of every execution
    found = space.read(tower_0__forward__a=("MatMul", CPU), Identity=("Identity", CPU))
    names = [kernel.name for kernel in found.steps[0].kernels]
    assert names == ["tower_0/forward/a", "Identity"]
    assert found.num_foreign == 2


def test_an_asynchronous_kernel_lasts_from_its_start_to_its_done(tf):
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


def test_gpu_kernels_come_from_streams_and_launches_are_dispatched(tf):
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
        (k.kind, k.device, k.tower, k.phase, k.is_launch_only)
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
    assert next(iter(tally["by_type"].items())) == ("CudnnRNNV3", 2)
    assert len(tally["by_type"]) == 3
    assert tally["by_phase"] == [
        {"tower": 0, "phase": "forward", "kernels": 2},
        {"tower": None, "phase": "exchange", "kernels": 1},
        {"tower": None, "phase": "other", "kernels": 1},
    ]


def test_control_flow_of_a_loop_on_a_gpu_runs_on_the_host(tf):
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


def test_a_gpu_copy_to_the_exchange_is_exchange(tf):
    space = Space()
    gradient = "edge_12_tower_0/backward/gradients/tower_0/forward/a_grad"
    weights = "edge_5_tower_1/input/b"
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
    with pytest.raises(xplane.TraceError):
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
    assert operators.count_operators(graph) == len(graph.node) + sum(bodies)


@pytest.fixture(scope="module")
def step(devices):
    """Return a step of two towers and a parameter server, its graph and its trace."""
    from rnn_scaling.inspection import observe
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines.local import Engine

    options = {"encoder_type": "dynamic_rnn", "variable_update": "parameter_server"}
    options |= {"num_devices": 2, "batch_size": 2, "trace_batches": 2}
    options |= {"num_encoder_layers": 1, "num_decoder_layers": 1, "direction": "uni"}
    options |= dict.fromkeys(("num_units", "embedding_dim"), 8)
    options |= dict.fromkeys(("src_vocab_size", "tgt_vocab_size"), 20)
    options |= dict.fromkeys(("src_max_len", "tgt_max_len"), 3)
    config = resolve(options)
    built = benchmark.build(config, Engine(0, 1, (CPU, CPU_1), CPU, "CPU", 1))
    for _ in range(3):
        built()
    trace = observe.trace(built, 2, "", [0.01, 0.02, 0.03])
    return built, encode(observe.describe_graph(built)), encode(trace)


def test_the_placement_lists_devices_and_bytes(step):
    built, graph, _ = step
    variables = {each["name"]: each for each in graph["placement"]["variables"]}
    assert len(variables) == len(built.list_variables())
    embedding = variables["src_embedding"]
    projection = variables["projection"]
    assert embedding["bytes"] == 20 * 8 * 4
    # Adam has two slots per variable.
    assert embedding["slots"] == [{"device": CPU, "bytes": 20 * 8 * 4}] * 2
    rows = 3 * 2 * (8 * 4 + 8)  # positions x (a row of float32 and an int64 id)
    assert [g["kind"] for g in embedding["gradients"]] == ["rows", "rows"]
    assert [g["bytes"] for g in embedding["gradients"]] == [rows, rows]
    assert [g["kind"] for g in projection["gradients"]] == ["dense", "dense"]
    assert [g["device"] for g in projection["gradients"]] == [CPU, CPU_1]
    for variable in variables.values():
        update = {"device": CPU, "types": ["ResourceApplyAdam"]}
        assert variable["device"] == CPU
        assert variable["update"] == update


def test_the_copies_are_the_bytes_that_a_record_derives(step):
    from rnn_scaling.analysis.exchange import count_exchanged_bytes
    from tests.support.records import make_record

    _, graph, _ = step
    away, back = graph["copies"]
    assert (away["from"], away["to"]) == (back["to"], back["from"]) == (CPU, CPU_1)
    assert away["of_unknown_size"] == back["of_unknown_size"] == 0
    variables = graph["placement"]["variables"]
    sizes = {variable["name"]: variable["bytes"] for variable in variables}
    embeddings = [size for name, size in sizes.items() if "embedding" in name]
    parameters = {"trainable": 1, "bytes": sum(sizes.values()), "row_bytes": 8 * 4}
    parameters["embedding_bytes"] = sum(embeddings)
    # 3 words of 2 sentences on both sides.
    counts = [[12, 12]] * 2
    made = make_record(
        config={"variable_update": "parameter_server", "num_devices": 2},
        items=[24, 24],
        batches={"tower_positions": counts, "tower_items": counts},
        parameters=parameters,
    )
    # The ids of rows and the numbers of words are copied in both directions.
    ids = 12 * 8
    copied = away["bytes"] + back["bytes"]
    assert 0 <= copied - count_exchanged_bytes(made, 2) < 2 * ids + 200 + copied // 100


def test_gradients_that_a_tower_sends_to_the_server_are_exchange_transfers(step):
    from rnn_scaling.inspection import observe

    built, graph, _ = step
    sent = operators.find_exchange_transfers(observe.list_partitions(built))
    assert all(xplane.TRANSFER.match(name) for name in sent)
    makers = Counter(find_owner(xplane.TRANSFER.sub("", name)) for name in sent)
    # An embedding sends two tensors, rows and ids.
    assert makers[Owner(1, "backward")] >= len(graph["placement"]["variables"])
    # Variables are read in the exchange. The ids that are looked up come from the input.
    assert makers[Owner(None, "exchange")] > 0
    assert {maker.phase for maker in makers} <= {"backward", "exchange", "input"}


def test_two_steps_have_equal_counts_and_parts_sum_to_the_step(step):
    _, graph, trace = step
    kernels = trace["kernels"]
    partitions = graph["partitions"]
    first, second = kernels["steps"]
    assert first == second
    assert first["host"] > 1000
    assert first["device"] == first["dispatched"] == 0
    assert sum(kernels["by_type"].values()) == first["host"]
    assert sum(each["kernels"] for each in kernels["by_phase"]) == first["host"]
    # The profiler's default level never records Merge.
    assert kernels["by_type"]["Merge"] > 0
    assert kernels["by_type"].keys() <= partitions["by_type"].keys()
    assert not [name for name in kernels["by_type"] if "::" in name]
    assert kernels["input_pipeline"] == 0
    assert trace["cost"]["untraced_s"] == 0.02
    assert len(trace["cost"]["timed_s"]) == 2
    for timed in trace["steps"]:
        for tower in timed["towers"]:
            total = sum(tower["parts"].values())
            assert total == pytest.approx(timed["seconds"], abs=1e-9)
    assert sum(partitions["by_type"].values()) == partitions["operators"]


def test_items_are_counted_in_the_last_counted_step(step, monkeypatch):
    from rnn_scaling.inspection import observe
    from rnn_scaling.training.train_step import TrainStep

    built, *_ = step
    items = iter(range(100, 200))
    call = TrainStep.__call__

    def counted(self):
        return dataclasses.replace(call(self), items=np.array([next(items)]))

    monkeypatch.setattr(TrainStep, "__call__", counted)
    assert observe.trace(built, 1, "", [0.01]).items == 101


def make_partition(graph, sent):
    """Return the graph as a partition that sends a tensor to another device."""
    partition = graph.as_graph_def()
    name = sent.name.removesuffix(":0")
    send = partition.node.add(name="send", op="_Send", input=[name])
    send.attr["T"].type = sent.dtype.as_datatype_enum
    send.attr["send_device_incarnation"].i = 1
    send.attr["tensor_name"].s = b"sent"
    send.attr["send_device"].s = b"CPU:0"
    send.attr["recv_device"].s = b"CPU:1"
    return partition


def test_a_partition_is_read_even_if_a_colocated_operator_is_missing(tf):
    from rnn_scaling.inspection import placement

    with tf.Graph().as_default() as graph:
        tensor = tf.identity(tf.constant(1.0))
    partition = make_partition(graph, tensor)
    partition.node[1].attr["_class"].list.s.append(b"loc:@gone")
    [copies] = placement.list_copies([partition], graph)
    assert copies["from"] == "CPU:0"
    assert copies["to"] == "CPU:1"
    assert copies["pairs"] == 1
    assert copies["bytes"] == 4
    assert "_class" in partition.node[1].attr


def test_the_gradient_of_a_bias_has_the_right_size(tf):
    """TensorFlow infers a wrong size for oneDNN's operator, which no update accepts."""
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
    partition = make_partition(graph, kernel)
    by_name = {node.name: node for node in partition.node}
    by_name[kernel.op.name].op = "_MklNativeConv2DBackpropFilterWithBias"
    by_name[apply.name].input[2] = f"{kernel.op.name}:1"
    by_name["send"].input[0] = f"{kernel.op.name}:1"
    [copies] = placement.list_copies([partition], graph)
    assert copies["bytes"] == 8 * 4


def test_iterations_of_loops_are_removed_from_a_kept_trace(tf):
    space = Space()
    space.process(1, 50, iter_num=3)
    space.host("tower_0/forward/a:MatMul", 10, 30)
    operators = {"tower_0__forward__a": ("MatMul", CPU)}
    steps = space.read(**operators).steps
    xplane.drop_iterations(space.message)
    [host] = space.message.planes
    names = set()
    for line in host.lines:
        for event in line.events:
            names |= {host.stat_metadata[stat.metadata_id].name for stat in event.stats}
    assert names == {"step_num", "_r", "id"}
    assert space.read(**operators).steps == steps
