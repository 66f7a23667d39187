"""TensorBoard's graph: devices of operators, and loops that open below their name."""

import collections

import pytest


@pytest.fixture(scope="module")
def places(devices):
    """Return the full names of two devices, in the engine's notation."""
    return [f"/job:localhost/replica:0/task:0{name}" for name in devices[:2]]


@pytest.fixture(scope="module")
def traced(tf, places):
    """Return the graph of a function, and the optimized graph that ran.

    The function's loops and its branch use a variable on another device.
    """
    from tensorflow.python.eager import context

    with tf.device(places[0]):
        variable = tf.Variable([1.0, 2.0])

    def body(i, x):
        x = tf.cond(tf.reduce_sum(x) > 3.0, lambda: x * 2.0, lambda: x + variable)
        _, x = tf.while_loop(lambda j, _: j < 2, lambda j, x: (j + 1, x * 0.5), (0, x))
        return i + 1, x

    @tf.function(autograph=False)
    def step():
        with tf.device(places[1]), tf.name_scope("tower_1/forward/"):
            _, result = tf.while_loop(
                lambda i, _: i < 3, body, (0, variable.read_value())
            )
            variable.assign_add(result)
            return result + variable

    context.context().enable_graph_collection()
    try:
        step()
        [ran] = context.context().export_run_metadata().function_graphs
    finally:
        context.context().disable_graph_collection()
    return step.get_concrete_function().graph, ran.post_optimization_graph


@pytest.fixture(scope="module")
def drawn(traced):
    from rnn_scaling.reports.tensorboard import event_files

    return {node.name: node for node in event_files.make_drawable_graph(traced[0]).node}


def test_devices_are_those_where_the_operators_ran(traced, drawn, places):
    requested = {node.name: node.device for node in traced[0].as_graph_def().node}
    ran = {node.name: node.device for node in traced[1].node}
    both = [name for name in ran if name in drawn and drawn[name].device]
    assert len(both) >= 4 and {ran[name] for name in both} == set(places)
    assert [name for name in both if drawn[name].device != ran[name]] == []
    moved = [
        drawn[name].op
        for name in both
        if requested[name] and requested[name] != ran[name]
    ]
    assert set(moved) >= {"ReadVariableOp", "AssignAddVariableOp"}, (
        "the trial needs operators that were moved"
    )


def test_loops_and_branches_are_below_their_own_names_on_their_devices(drawn, places):
    loop = "tower_1/forward/while"
    assert drawn[loop].op in ("While", "StatelessWhile")
    inside = {
        name: node for name, node in drawn.items() if name.startswith(f"{loop}/body/")
    }
    [branch] = [
        name for name, node in inside.items() if node.op in ("If", "StatelessIf")
    ]
    [inner] = [
        name for name, node in inside.items() if node.op in ("While", "StatelessWhile")
    ]
    below = collections.Counter(
        node.op
        for name, node in drawn.items()
        if name.startswith(f"{branch}/then_branch/")
    )
    assert below["Mul"] == 1
    assert any(name.startswith(f"{inner}/body/") for name in drawn)
    uses = {name for name, node in inside.items() if node.op == "ReadVariableOp"}
    assert len(uses) == 1 and {inside[name].device for name in uses} == {places[0]}, (
        "it is read where it is"
    )
    assert {node.device for name, node in inside.items() if name not in uses} == {
        places[1]
    }
    assert not any(name.count("tower_1") > 1 for name in drawn), (
        "a loop's name stands once in those of its operators"
    )


def test_every_edge_leads_somewhere_and_no_name_stands_twice(traced, drawn):
    from rnn_scaling.reports.tensorboard import event_files

    definition = event_files.make_drawable_graph(traced[0])
    assert len(definition.node) == len(drawn) and not definition.library.function
    assert len(drawn) > len(traced[0].as_graph_def().node)
    producers = {
        each.removeprefix("^").split(":")[0]
        for node in drawn.values()
        for each in node.input
    }
    assert producers <= drawn.keys()
    assert all(each.count("^") <= 1 for node in drawn.values() for each in node.input)
