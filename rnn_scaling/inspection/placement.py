"""Where variables, their slots, gradients and updates are, and what travels between the devices in a step.

Read from the graph as traced from Python (what was asked for) and from the partitions that run (what TensorFlow did):
its placer's decision stands in the partitions, and a tensor that crosses devices is a pair of _Send and _Recv there.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.inspection.operators import SENDS, Node, received_by
from rnn_scaling.records.decoding import encode
from rnn_scaling.training import slicing
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.gradients import num_bytes
from rnn_scaling.training.replica import Gradients, VariableState

UPDATES = ("ResourceApply", "ResourceSparseApply", "ResourceScatter", "Assign")
# oneDNN's gradient of a convolution's kernel and of its bias. TensorFlow 2.21 takes another axis of the kernel for the
# size of the bias.
WITH_BIAS = "Conv2DBackpropFilterWithBias"
MOST_COPIES = 20  # the largest of each direction that are named
_SLICE = re.compile(
    r"(tower_\d+/)?input/slice/"
)  # what cuts a global batch, on the host or on a tower's device


def variables(
    updated: Sequence[VariableState],
    tower_gradients: Sequence[Gradients],
    graph: tf.Graph,
    nodes: Mapping[str, Node],
) -> list[dict[str, Any]]:
    """One entry a variable, JSON-ready; docs/record.md has the fields."""
    updates = _updates(graph, nodes)
    towers = list(enumerate(tower_gradients))
    return [
        {
            "name": state.name,
            "tower": state.tower,
            "device": state.variable.device,
            "bytes": num_bytes(state.variable),
            "slots": [
                {"device": slot.device, "bytes": num_bytes(slot)}
                for slot in state.slots
            ],
            "gradients": [
                {"tower": n, **_gradient(by[state.name])}
                for n, by in towers
                if state.tower in (None, n)
            ],
            "update": updates.get(
                id(state.variable.handle),
                {"device": state.variable.device, "types": []},
            ),
        }
        for state in updated
    ]


class _Sent(NamedTuple):
    source: str
    target: str
    key: str  # what send and receive know each other by
    name: str
    bytes: int | None  # None: its shape is not known while it is built


def copies(partitions: Sequence[Any], graph: tf.Graph) -> list[dict[str, Any]]:
    """What one partition sends to another, by direction; JSON-ready.

    Pairs of send and receive, and the bytes of those whose shape is known while the graph is built; a pair in a loop
    counts once.
    """
    transfers: dict[tuple[str, str], list[_Sent]] = defaultdict(list)
    for sent in _sent(partitions, graph):
        transfers[sent.source, sent.target].append(sent)
    return [
        {
            "from": source,
            "to": target,
            "pairs": len(tensors),
            "bytes": sum(sent.bytes for sent in tensors if sent.bytes is not None),
            "of_unknown_size": sum(sent.bytes is None for sent in tensors),
            "largest": [
                {"name": sent.name, "bytes": sent.bytes}
                for sent in sorted(
                    (s for s in tensors if s.bytes), key=lambda s: -(s.bytes or 0)
                )[:MOST_COPIES]
            ],
        }
        for (source, target), tensors in sorted(transfers.items())
    ]


def slices(
    cut: slicing.Cut, engine: Engine, partitions: Sequence[Any], graph: tf.Graph
) -> dict[str, Any]:
    """How a global batch is cut, and the bytes of it that move, predicted and counted; JSON-ready."""
    cut_pieces = received_by(partitions, _SLICE.match)
    moved = [
        sent
        for sent in _sent(partitions, graph)
        if sent.key in cut_pieces or _SLICE.match(sent.name)
    ]
    moves = []
    for tower, device in enumerate(engine.devices):
        if device == engine.host:
            continue
        there, back = slicing.predicted_bytes(cut, tower) or (None, None)
        for source, target, predicted in (
            (engine.host, device, there),
            (device, engine.host, back),
        ):
            sizes = [
                sent.bytes
                for sent in moved
                if (sent.source, sent.target) == (source, target)
            ]
            counted = (
                None
                if None in sizes
                else sum(size for size in sizes if size is not None)
            )
            moves.append(
                {
                    "from": source,
                    "to": target,
                    "predicted": predicted,
                    "counted": counted,
                }
            )
    return {"on": cut.on, "parts": [encode(part) for part in cut.parts], "moves": moves}


def _sent(partitions: Sequence[Any], graph: tf.Graph) -> list[_Sent]:
    tensors = []
    for partition in partitions:
        sends = [node for node in partition.node if node.op in SENDS]
        placed = _imported(partition, sends)
        for node in sends:
            source, target, key = (
                node.attr[name].s.decode()
                for name in ("send_device", "recv_device", "tensor_name")
            )
            tensors.append(
                _Sent(
                    source, target, key, node.input[0], _sent_bytes(node, graph, placed)
                )
            )
    return tensors


def _gradient(gradient: tf.Tensor | tf.IndexedSlices) -> dict[str, Any]:
    is_rows = isinstance(gradient, tf.IndexedSlices)
    parts = [gradient.values, gradient.indices] if is_rows else [gradient]
    sizes = [_static_bytes(part.shape, part.dtype) for part in parts]
    total: Any = None if None in sizes else sum(sizes)
    return {
        "kind": "rows" if is_rows else "dense",
        "device": parts[0].device,
        "bytes": total,
    }


def _updates(graph: tf.Graph, nodes: Mapping[str, Node]) -> dict[int, dict[str, Any]]:
    """The operators that change a variable, by the id of its handle, as they run."""
    updates: dict[int, dict[str, Any]] = {}
    for outer, inner in graph.captures:
        changing = [
            op
            for op in inner.consumers()
            if op.type.startswith(UPDATES) and op.inputs[0] is inner
        ]
        ran = [nodes[op.name] for op in changing if op.name in nodes]
        if ran:
            updates[id(outer)] = {
                "device": ran[0].device,
                "types": sorted({node.type for node in ran}),
            }
    return updates


def _imported(partition: Any, sends: Sequence[Any]) -> tf.Graph:
    """What `sends` of the partition are made from, as a graph, which infers its operators' shapes.

    No more than that: an import ends at the first operator whose inputs break a rule, and shapes of oneDNN's operators
    (see `WITH_BIAS`) break those of what reads them.
    """
    alone = type(partition)()
    alone.CopyFrom(partition)
    for node in alone.node:
        if (
            "_class" in node.attr
        ):  # it is placed; the operator it was colocated with may be in an XLA cluster now
            del node.attr["_class"]
        node.input[:] = [name for name in node.input if not name.startswith("^")]
    needed = _needed(alone, sends)
    kept = [node for node in alone.node if node.name in needed]
    sources = type(partition)(node=kept, library=alone.library, versions=alone.versions)
    with tf.Graph().as_default() as placed:
        tf.graph_util.import_graph_def(sources, name="partition")
    return placed


def _needed(partition: Any, sends: Sequence[Any]) -> set[str]:
    """Names of the sends and of all that they are made from; TensorFlow's own function is deprecated."""
    inputs = {
        node.name: [name.partition(":")[0] for name in node.input]
        for node in partition.node
    }
    needed: set[str] = set()
    names = [node.name for node in sends]
    while names:
        name = names.pop()
        if name not in needed:
            needed.add(name)
            names += inputs[name]
    return needed


def _sent_bytes(send: Any, graph: tf.Graph, placed: tf.Graph) -> int | None:
    name, _, port = send.input[0].partition(":")
    dtype = tf.dtypes.as_dtype(send.attr["T"].type)
    index = int(port or 0)
    in_partition = placed.get_operation_by_name(f"partition/{name}").outputs[index]
    if in_partition.op.type.endswith(WITH_BIAS) and index == 1:
        return _static_bytes(in_partition.op.outputs[0].shape[-1:], dtype)
    # The traced graph knows shapes that were set by hand, the partition knows operators that the optimizer made.
    for where, full_name in ((graph, name), (placed, in_partition.op.name)):
        try:
            tensor = where.get_operation_by_name(full_name).outputs[index]
        except (KeyError, IndexError):
            continue
        if (
            tensor.dtype == dtype
            and (size := _static_bytes(tensor.shape, dtype)) is not None
        ):
            return size
    return _static_bytes(_entered(in_partition).shape, dtype)


def _entered(tensor: tf.Tensor) -> tf.Tensor:
    """What a loop's result was when it entered the loop, whose variables keep their shapes; any other tensor itself."""
    for kind in ("Exit", "Switch", "Merge", "Enter"):
        if tensor.op.type != kind:
            return tensor
        tensor = tensor.op.inputs[0]
    return tensor


def _static_bytes(shape: tf.TensorShape, dtype: tf.DType) -> int | None:
    return shape.num_elements() * dtype.size if shape.is_fully_defined() else None
