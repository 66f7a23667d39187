"""List the devices of variables and gradients, and the copies of a step.

The graph that was traced from Python contains the requested devices. The partitions
that run contain the decisions of TensorFlow's placer. There, a tensor that moves to
another device is a pair of _Send and _Recv.

`observe` fills the record with these lists; `reports.placement_table` shows them.
"""

import contextlib
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from rnn_scaling.inspection.operators import SENDS, Node, find_transfers
from rnn_scaling.records.decoding import encode
from rnn_scaling.training import slicing
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.gradients import count_bytes
from rnn_scaling.training.replica import Gradients, VariableState

_UPDATES = ("ResourceApply", "ResourceSparseApply", "ResourceScatter", "Assign")
# oneDNN's gradient of the kernel and the bias of a convolution. TensorFlow 2.21 infers
# the size of the bias from the wrong axis of the kernel.
_FUSED_BIAS_GRADIENT = "Conv2DBackpropFilterWithBias"
_MAX_NAMED_COPIES = 20  # copies that are named per direction
# Operators that cut a global batch, on the host or on the device of a tower.
_SLICE = re.compile(r"(tower_\d+/)?input/slice/")


def list_variables(
    states: Sequence[VariableState],
    tower_gradients: Sequence[Gradients],
    graph: tf.Graph,
    nodes: Mapping[str, Node],
) -> list[dict[str, Any]]:
    """Return one entry per variable as JSON; docs/record.md has the fields."""
    updates = _group_updates_by_handle(graph, nodes)
    entries = []
    for state in states:
        device = state.variable.device
        slots = [
            {"device": slot.device, "bytes": count_bytes(slot)} for slot in state.slots
        ]
        gradients = []
        for tower, by_name in enumerate(tower_gradients):
            if state.tower in (None, tower):
                gradients.append(
                    {"tower": tower, **_describe_gradient(by_name[state.name])}
                )
        update = updates.get(id(state.variable.handle))
        entries.append(
            {
                "name": state.name,
                "tower": state.tower,
                "device": device,
                "bytes": count_bytes(state.variable),
                "slots": slots,
                "gradients": gradients,
                "update": update or {"device": device, "types": []},
            }
        )
    return entries


class _Transfer(NamedTuple):
    """A pair of send and receive.

    Attributes:
      source: The device that sends.
      target: The device that receives.
      key: The name that both operators share.
      name: The tensor.
      bytes: The size, or None if the shape is unknown while the graph is built.
    """

    source: str
    target: str
    key: str
    name: str
    bytes: int | None


def list_copies(partitions: Sequence[Any], graph: tf.Graph) -> list[dict[str, Any]]:
    """Return the transfers between partitions by direction, as JSON.

    A pair in a loop counts once.
    """
    by_direction: dict[tuple[str, str], list[_Transfer]] = defaultdict(list)
    for transfer in _list_transfers(partitions, graph):
        by_direction[transfer.source, transfer.target].append(transfer)
    entries = []
    for (source, target), transfers in sorted(by_direction.items()):
        sizes = [
            (transfer.name, transfer.bytes)
            for transfer in transfers
            if transfer.bytes is not None
        ]
        largest = sorted(sizes, key=lambda size: -size[1])[:_MAX_NAMED_COPIES]
        entries.append(
            {
                "from": source,
                "to": target,
                "pairs": len(transfers),
                "bytes": sum(num for _, num in sizes),
                "of_unknown_size": len(transfers) - len(sizes),
                "largest": [
                    {"name": name, "bytes": num} for name, num in largest if num
                ],
            }
        )
    return entries


def describe_slices(
    cut: slicing.Cut, engine: Engine, partitions: Sequence[Any], graph: tf.Graph
) -> dict[str, Any]:
    """Return the cut of a global batch and the bytes that move, as JSON.

    Bytes are predicted from the cut and counted in the graph.
    """
    slice_keys = find_transfers(partitions, lambda name: _SLICE.match(name) is not None)
    slice_transfers = [
        transfer
        for transfer in _list_transfers(partitions, graph)
        if transfer.key in slice_keys or _SLICE.match(transfer.name)
    ]
    moves = []
    for tower, device in enumerate(engine.devices):
        if device == engine.host:
            continue
        sent_bytes, returned_bytes = slicing.predict_bytes(cut, tower) or (None, None)
        for source, target, predicted in (
            (engine.host, device, sent_bytes),
            (device, engine.host, returned_bytes),
        ):
            sizes = [
                transfer.bytes
                for transfer in slice_transfers
                if (transfer.source, transfer.target) == (source, target)
            ]
            moves.append(
                {
                    "from": source,
                    "to": target,
                    "predicted": predicted,
                    "counted": _sum_or_none(sizes),
                }
            )
    return {
        "on": cut.location,
        "parts": [encode(part) for part in cut.parts],
        "moves": moves,
    }


def _sum_or_none(sizes: Sequence[int | None]) -> int | None:
    """Return the sum, or None if a size is unknown."""
    if None in sizes:
        return None
    return sum(size for size in sizes if size is not None)


def _list_transfers(partitions: Sequence[Any], graph: tf.Graph) -> list[_Transfer]:
    """Return every tensor that the partitions send to each other."""
    transfers = []
    for partition in partitions:
        sends = [node for node in partition.node if node.op in SENDS]
        sources = _import_sources(partition, sends)
        for node in sends:
            transfers.append(
                _Transfer(
                    source=node.attr["send_device"].s.decode(),
                    target=node.attr["recv_device"].s.decode(),
                    key=node.attr["tensor_name"].s.decode(),
                    name=node.input[0],
                    bytes=_measure_send(node, graph, sources),
                )
            )
    return transfers


def _describe_gradient(gradient: tf.Tensor | tf.IndexedSlices) -> dict[str, Any]:
    kind = "dense"
    tensors = [gradient]
    if isinstance(gradient, tf.IndexedSlices):
        kind = "rows"
        tensors = [gradient.values, gradient.indices]
    sizes = [_find_static_bytes(tensor.shape, tensor.dtype) for tensor in tensors]
    return {"kind": kind, "device": tensors[0].device, "bytes": _sum_or_none(sizes)}


def _group_updates_by_handle(
    graph: tf.Graph, nodes: Mapping[str, Node]
) -> dict[int, dict[str, Any]]:
    """Return the operators that change each variable, by the id of its handle.

    The ids hold as long as the variables live, so only this process can use them.
    """
    updates: dict[int, dict[str, Any]] = {}
    for outer, inner in graph.captures:
        run_nodes = []
        for op in inner.consumers():
            is_update = op.type.startswith(_UPDATES) and op.inputs[0] is inner
            if is_update and op.name in nodes:
                run_nodes.append(nodes[op.name])
        if run_nodes:
            updates[id(outer)] = {
                "device": run_nodes[0].device,
                "types": sorted({node.type for node in run_nodes}),
            }
    return updates


def _import_sources(partition: Any, sends: Sequence[Any]) -> tf.Graph:
    """Import the operators that `sends` depend on, which infers their shapes.

    Other operators are left out, because the import fails at operators that read a
    wrong shape (see `_FUSED_BIAS_GRADIENT`).
    """
    copy = type(partition)()
    copy.CopyFrom(partition)
    for node in copy.node:
        # Operators are already placed. The operator that this one was colocated with
        # may be in an XLA cluster.
        if "_class" in node.attr:
            del node.attr["_class"]
        node.input[:] = [name for name in node.input if not name.startswith("^")]
    names = _find_source_names(copy, sends)
    nodes = [node for node in copy.node if node.name in names]
    sources = type(partition)(node=nodes, library=copy.library, versions=copy.versions)
    with tf.Graph().as_default() as graph:
        tf.graph_util.import_graph_def(sources, name="partition")
    return graph


def _find_source_names(partition: Any, sends: Sequence[Any]) -> set[str]:
    """Return the names of the sends and of all operators that they depend on.

    TensorFlow's function for this is deprecated.
    """
    nodes = {node.name: node for node in partition.node}
    names: set[str] = set()
    pending_names = [node.name for node in sends]
    while pending_names:
        name = pending_names.pop()
        if name not in names:
            names.add(name)
            pending_names += [source.partition(":")[0] for source in nodes[name].input]
    return names


def _measure_send(send: Any, graph: tf.Graph, sources: tf.Graph) -> int | None:
    """Return the size of a sent tensor, or None if its shape is unknown.

    Args:
      send: The _Send operator.
      graph: The traced graph, which has shapes that were set by hand.
      sources: The imported partition, which has operators of the optimizer.
    """
    name, _, port = send.input[0].partition(":")
    dtype = tf.dtypes.as_dtype(send.attr["T"].type)
    index = int(port or 0)
    imported = sources.get_operation_by_name(f"partition/{name}").outputs[index]
    if imported.op.type.endswith(_FUSED_BIAS_GRADIENT) and index == 1:
        return _find_static_bytes(imported.op.outputs[0].shape[-1:], dtype)
    # A shape that was set by hand is better than an inferred one, but the traced graph
    # lacks operators that TensorFlow added.
    candidates = [imported]
    with contextlib.suppress(KeyError, IndexError):
        candidates.insert(0, graph.get_operation_by_name(name).outputs[index])
    for tensor in candidates:
        size = _find_static_bytes(tensor.shape, dtype)
        if tensor.dtype == dtype and size is not None:
            return size
    return _find_static_bytes(_find_loop_input(imported).shape, dtype)


def _find_loop_input(tensor: tf.Tensor) -> tf.Tensor:
    """Return the input of a loop for its result, and other tensors unchanged.

    Both have the same shape.
    """
    for kind in ("Exit", "Switch", "Merge", "Enter"):
        if tensor.op.type != kind:
            return tensor
        tensor = tensor.op.inputs[0]
    return tensor


def _find_static_bytes(shape: tf.TensorShape, dtype: tf.DType) -> int | None:
    return shape.num_elements() * dtype.size if shape.is_fully_defined() else None
