"""TensorBoard's files of a run: scalars of every batch while it runs; then the graph with its devices, and a page."""

from __future__ import annotations  # tf.compat.v1 loads slowly

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

from rnn_scaling.analysis.metrics import RATE
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.tensorboard import run_text
from rnn_scaling.system import entry

INTERVAL_S = 5.0  # between two times that batches are written
MAX_DEPTH = 20  # loops in loops; a function that called itself would go on for ever


class Scalars:
    """The batches of a run that goes on, written a few seconds' worth at a time, between two steps."""

    def __init__(
        self,
        log_dir: str,
        unit: str,
        clock: Callable[[], float] = time.monotonic,
        before: int = 0,
    ) -> None:
        """log_dir: folder, made if missing; "": nothing is ever due, and nothing is written.
        clock: returns seconds.
        """
        self._writer = _create_writer(log_dir) if log_dir else None
        self._rate, self._clock, self._last, self._written = (
            RATE.named_after(unit).name,
            clock,
            clock(),
            before,
        )

    def due(self) -> bool:
        """Whether it is time to write; costs less than a microsecond, and is asked after every step."""
        return self._writer is not None and self._clock() - self._last >= INTERVAL_S

    def write(
        self,
        seconds: Sequence[float],
        items: Sequence[int],
        losses: Sequence[float],
        accuracies: Sequence[float] = (),
    ) -> None:
        """Writes the batches that have not been written; a disk that is full ends the writing, and not the run."""
        if self._writer is None:
            return
        try:
            with self._writer.as_default():
                for step in range(self._written, len(seconds)):
                    values = [
                        ("loss", losses[step]),
                        (self._rate, items[step] / seconds[step]),
                    ]
                    values += [("accuracy", accuracies[step])] if accuracies else []
                    summary = tf.compat.v1.Summary()
                    for name, value in (*values, ("step_seconds", seconds[step])):
                        summary.value.add(tag=f"batch/{name}", simple_value=value)
                    tf.summary.experimental.write_raw_pb(
                        summary.SerializeToString(), step=step
                    )  # one operator for all
            self._writer.flush()
        except (tf.errors.OpError, OSError) as e:
            _warn_about_scalars(e)
            self._writer = None
        self._written, self._last = len(seconds), self._clock()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def _create_writer(log_dir: str) -> tf.summary.SummaryWriter | None:
    """Return a writer of scalars, or None if its file cannot be created."""
    try:
        return tf.summary.create_file_writer(log_dir)
    except (tf.errors.OpError, OSError) as e:
        _warn_about_scalars(e)
        return None


def _warn_about_scalars(error: Exception) -> None:
    reason = entry.first_line(error)
    entry.warn(f"--log_dir: {reason}; no further scalars are written")


def write(log_dir: str, graph: tf.Graph, run: RunRecord) -> None:
    """Writes what is known when a run has ended into an event file of its own."""
    rate = RATE.named_after(run.unit).name
    writer = tf.summary.create_file_writer(log_dir)
    with writer.as_default():
        tf.summary.graph(view(graph))
        if run.throughput:
            tf.summary.scalar(
                f"measured/{rate}", run.throughput.items_per_second, step=0
            )
        tf.summary.text("run", run_text.markdown(run), step=0)
    writer.close()


def view(graph: tf.Graph) -> tf.compat.v1.GraphDef:
    """The graph's definition, for TensorBoard and not to be run.

    An operator that reads or writes a variable has the device of the variable, whatever device was asked for: there
    TensorFlow places it. The bodies of loops and branches are nodes below the loop's name: as functions of their own
    TensorBoard draws them apart from their tower, with another's colours.
    """
    definition = graph.as_graph_def(add_shapes=True)
    holders = {
        inner.op.name: outer.device
        for outer, inner in graph.captures
        if inner.dtype == tf.resource
    }
    functions = {
        function.signature.name: function for function in definition.library.function
    }
    result = tf.compat.v1.GraphDef(versions=definition.versions)

    def add(node: tf.compat.v1.NodeDef, own_name: str, depth: int) -> None:
        """Adds a node, and below its name the functions that it calls; `own_name`: its name in its own function."""
        _place(node, holders)
        result.node.append(node)
        for attribute, called in _calls(node):
            function = functions.get(called)
            if function is None or depth == 0:
                continue
            # A loop's operators have the loop's whole name again.
            short = {
                inner.name: inner.name.removeprefix(f"{own_name}/")
                for inner in function.node_def
            }
            names = {
                name: f"{node.name}/{attribute}/{end}" for name, end in short.items()
            }
            # An argument is what the caller gives, an edge from outside into the body; a branch's condition is none.
            data = [given for given in node.input if not given.startswith("^")]
            arguments = function.signature.input_arg
            names |= {
                arg.name: given
                for arg, given in zip(arguments, data[len(data) - len(arguments) :])
            }
            for inner in function.node_def:
                copy = tf.compat.v1.NodeDef()
                copy.CopyFrom(inner)
                copy.name = names[inner.name]
                del copy.input[:]
                for source in inner.input:
                    name = names.get(_producer(source), _producer(source))
                    copy.input.append(
                        f"^{_producer(name)}" if source.startswith("^") else name
                    )
                add(copy, inner.name, depth - 1)

    for node in definition.node:
        add(node, node.name, MAX_DEPTH)
    return result


def _place(node: tf.compat.v1.NodeDef, holders: Mapping[str, str]) -> None:
    """Sets the device of a variable's holder, and of what uses it; a loop only hands it on."""
    if any(_calls(node)):
        return
    for name in (node.name, *map(_producer, node.input)):
        if name in holders:
            node.device = holders[name]
            return


def _calls(node: tf.compat.v1.NodeDef) -> Iterable[tuple[str, str]]:
    """(attribute, function) of every function that a node calls."""
    for attribute, value in sorted(node.attr.items()):
        if value.HasField("func"):
            yield attribute, value.func.name
        for function in value.list.func:
            yield attribute, function.name


def _producer(name: str) -> str:
    """The node that an input comes from ("^a", "a:1", "a:output:0" -> "a")."""
    return name.removeprefix("^").split(":")[0]
