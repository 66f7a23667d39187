"""TensorBoard's files of a run.

Scalars of every batch are written during the run; the graph with its devices and a text
are written after it.

`commands.run_files` writes `Scalars` during a run. This module loads TensorFlow.
"""

from __future__ import annotations  # tf.compat.v1 loads slowly

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from rnn_scaling.analysis.metrics import RATE
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.tensorboard import run_text
from rnn_scaling.system import entry

INTERVAL_S = 5.0  # time between two writes of batches
_MAX_DEPTH = 20  # nested loops; the limit ends the expansion of recursive functions


class Scalars:
    """Writes the batches of a run every few seconds, between two steps.

    Only the thread that runs the steps uses it. After an error of the disk it writes
    nothing more, and `is_due` is False.
    """

    def __init__(
        self,
        log_dir: str,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
        num_written: int = 0,
    ) -> None:
        """Open the event file.

        Args:
          log_dir: The folder, which is created if missing; "" to write nothing.
          unit: The unit of the items.
          clock: Returns seconds.
          num_written: Number of batches that an earlier process wrote.
        """
        self._writer = _create_writer(log_dir) if log_dir else None
        self._rate = RATE.with_unit(unit).name
        self._clock = clock
        self._last_write_s = clock()
        self._num_written = num_written

    def is_due(self) -> bool:
        """Return whether it is time to write; called after every step, so it is fast."""
        return (
            self._writer is not None
            and self._clock() - self._last_write_s >= INTERVAL_S
        )

    def write(
        self,
        seconds: Sequence[float],
        items: Sequence[int],
        losses: Sequence[float],
        accuracies: Sequence[float] = (),
    ) -> None:
        """Write the new batches; a full disk ends the writing, but not the run."""
        if self._writer is None:
            return
        try:
            with self._writer.as_default():
                for step in range(self._num_written, len(seconds)):
                    values = {
                        "loss": losses[step],
                        self._rate: items[step] / seconds[step],
                    }
                    if accuracies:
                        values["accuracy"] = accuracies[step]
                    values["step_seconds"] = seconds[step]
                    _write_scalars(values, step)
            self._writer.flush()
        except (tf.errors.OpError, OSError) as e:
            _warn_about_scalars(e)
            self._writer = None
        self._num_written = len(seconds)
        self._last_write_s = self._clock()

    def close(self) -> None:
        """Close the event file."""
        if self._writer is not None:
            self._writer.close()


def _write_scalars(values: Mapping[str, float], step: int) -> None:
    """Write all values of a batch with one operator, which is faster than one each."""
    summary = tf.compat.v1.Summary()
    for name, value in values.items():
        summary.value.add(tag=f"batch/{name}", simple_value=value)
    tf.summary.experimental.write_raw_pb(summary.SerializeToString(), step=step)


def _create_writer(log_dir: str) -> tf.summary.SummaryWriter | None:
    """Return a writer of scalars, or None if its file cannot be created."""
    try:
        return tf.summary.create_file_writer(log_dir)
    except (tf.errors.OpError, OSError) as e:
        _warn_about_scalars(e)
        return None


def _warn_about_scalars(error: Exception) -> None:
    reason = entry.find_first_line(error)
    entry.warn(f"--log_dir: {reason}; no further scalars are written")


def write_run(log_dir: str, graph: tf.Graph, run: RunRecord) -> None:
    """Write the graph, the rate and the text of a run into a separate event file."""
    rate = RATE.with_unit(run.unit).name
    writer = tf.summary.create_file_writer(log_dir)
    with writer.as_default():
        tf.summary.graph(make_drawable_graph(graph))
        if run.throughput:
            tf.summary.scalar(
                f"measured/{rate}", run.throughput.items_per_second, step=0
            )
        tf.summary.text("run", run_text.format_markdown(run), step=0)
    writer.close()


def make_drawable_graph(graph: tf.Graph) -> tf.compat.v1.GraphDef:
    """Return the graph's definition for TensorBoard; it cannot be run.

    Operators that read or write a variable get the device of the variable, because
    TensorFlow places them on it. The bodies of loops and branches become nodes below
    the name of the loop. If they remained functions, TensorBoard would draw them
    outside their tower, in another colour.
    """
    definition = graph.as_graph_def(add_shapes=True)
    variable_devices = {
        inner.op.name: outer.device
        for outer, inner in graph.captures
        if inner.dtype == tf.resource
    }
    functions = {
        function.signature.name: function for function in definition.library.function
    }
    result = tf.compat.v1.GraphDef(versions=definition.versions)

    def add(node: tf.compat.v1.NodeDef, inner_name: str, depth: int) -> None:
        """Add a node, and the functions that it calls below the name of the node.

        Args:
          node: The node, under its name in the result.
          inner_name: The name of the node in its function.
          depth: Number of nested functions that may still be added.
        """
        _set_device(node, variable_devices)
        result.node.append(node)
        for attribute, function_name in _list_function_calls(node):
            function = functions.get(function_name)
            if function is None or depth == 0:
                continue
            names = _map_names_to_result(function, node, inner_name, attribute)
            for inner in function.node_def:
                add(_rename_node(inner, names), inner.name, depth - 1)

    for node in definition.node:
        add(node, node.name, _MAX_DEPTH)
    return result


def _rename_node(
    node: tf.compat.v1.NodeDef, names: Mapping[str, str]
) -> tf.compat.v1.NodeDef:
    """Return a copy of a node with its name and its inputs in the result."""
    renamed = tf.compat.v1.NodeDef()
    renamed.CopyFrom(node)
    renamed.name = names[node.name]
    del renamed.input[:]
    for source in node.input:
        name = names.get(_name_producer(source), _name_producer(source))
        if source.startswith("^"):
            name = f"^{_name_producer(name)}"
        renamed.input.append(name)
    return renamed


def _map_names_to_result(
    function: Any, node: tf.compat.v1.NodeDef, inner_name: str, attribute: str
) -> dict[str, str]:
    """Return the name in the result of each node and argument of a called function.

    Args:
      function: The definition of the function.
      node: The node that calls it, under its name in the result.
      inner_name: The name of this node in its own function.
      attribute: The attribute of the node that names the function, such as "body".
    """
    names = {}
    for inner in function.node_def:
        # The operators of a loop repeat the full name of the loop.
        short_name = inner.name.removeprefix(f"{inner_name}/")
        names[inner.name] = f"{node.name}/{attribute}/{short_name}"
    # Arguments of the function become edges from the inputs of the node. The first
    # input of a branch is its condition, which is not an argument.
    inputs = [source for source in node.input if not source.startswith("^")]
    arguments = function.signature.input_arg
    inputs = inputs[len(inputs) - len(arguments) :]
    names |= {arg.name: source for arg, source in zip(arguments, inputs)}
    return names


def _set_device(
    node: tf.compat.v1.NodeDef, variable_devices: Mapping[str, str]
) -> None:
    """Set the device of a node that is, reads or writes a variable.

    Loops and branches only pass variables to their functions, so they keep their
    device.
    """
    if any(_list_function_calls(node)):
        return
    for name in (node.name, *map(_name_producer, node.input)):
        if name in variable_devices:
            node.device = variable_devices[name]
            return


def _list_function_calls(node: tf.compat.v1.NodeDef) -> Iterable[tuple[str, str]]:
    """Yield (attribute, function) of every function that a node calls."""
    for attribute, value in sorted(node.attr.items()):
        if value.HasField("func"):
            yield attribute, value.func.name
        for function in value.list.func:
            yield attribute, function.name


def _name_producer(name: str) -> str:
    """Return the node that an input comes from ("^a", "a:1", "a:output:0" -> "a")."""
    return name.removeprefix("^").split(":")[0]
