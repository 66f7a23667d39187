"""Count the operators of a GraphDef and the kernels of a trace.

Works on TensorFlow's protocol messages without importing TensorFlow. The name scopes of
towers.py and the update modes give the tower and the phase of an operator:

    input/..  tower_<i>/input|forward|backward/..  exchange/..  update/..
    update/tower_<i>/..

TensorFlow's optimizers add words before a name (`ConstantFolding/tower_0/forward/..`)
and after it, so the first component that opens a scope is used.

The trainer's name scopes are the only link between an operator and its phase: a scope
that is renamed there must be renamed here.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.records.step_parts import (
    BACKWARD,
    EXCHANGE,
    FORWARD,
    INPUT,
    OTHER,
    PLACES,
    UPDATE,
)

# Kinds of kernels.
HOST = "host"  # ran on a CPU device, or control flow of a loop on any device
DEVICE = "device"  # ran on a GPU
COPY = "copy"  # a copy to, from or on a GPU, or a fill of its memory
# An asynchronous operator from its start to its end, which uses no core: a collective
# or the receipt of a tensor.
WAIT = "wait"
SENDS = ("_Send", "_HostSend")
RECEIVES = ("_Recv", "_HostRecv")
# Phases that have a scope outside of all towers.
_SHARED = (INPUT, EXCHANGE, UPDATE)
_TOWER = re.compile(r"tower_(\d+)")


class KernelEvent(NamedTuple):
    """One execution of one kernel.

    Attributes:
      name: Name of its operator, or "" if the trace does not contain it.
      type: Type of its operator, or the name of a CUDA kernel without operator.
      device: Full name of the device.
      tower: The operator's tower, or None if all towers share it.
      phase: The operator's phase.
      start_ns: Nanoseconds from the start of the trace.
      end_ns: Nanoseconds from the start of the trace.
      lane: The thread or stream that ran it.
      kind: HOST, DEVICE, COPY or WAIT.
      dispatched: Whether the host only launched a GPU operator.
    """

    name: str
    type: str
    device: str
    tower: int | None
    phase: str
    start_ns: int
    end_ns: int
    lane: str
    kind: str
    dispatched: bool = False


@dataclasses.dataclass(frozen=True)
class TracedStep:
    """A step and the kernels that started in it, in order of their starts."""

    start_ns: int
    end_ns: int
    kernels: Sequence[KernelEvent]


class Owner(NamedTuple):
    """The tower and the phase of an operator."""

    tower: int | None  # None if all towers share the operator
    phase: str


def find_owner(name: str) -> Owner:
    """Return the tower and the phase of an operator by its full name.

    Returns:
      Owner(None, OTHER) for an operator outside of all scopes.
    """
    scopes = name.split("/")
    for scope, inner in zip(scopes, [*scopes[1:], ""]):
        tower = _parse_tower(scope)
        if tower is not None:
            is_phase = inner in (INPUT, FORWARD, BACKWARD)
            return Owner(tower, inner if is_phase else OTHER)
        if scope in _SHARED and inner:
            return Owner(_parse_tower(inner) if scope == UPDATE else None, scope)
    return Owner(None, OTHER)


def _parse_tower(scope: str) -> int | None:
    match = _TOWER.fullmatch(scope)
    return int(match[1]) if match else None


class Node(NamedTuple):
    type: str
    device: str
    owner: Owner


def count_operators(graph: Any) -> int:
    """Return the number of operators of a GraphDef.

    Each function in its library, such as a loop body, counts once.
    """
    functions = graph.library.function
    return len(graph.node) + sum(len(function.node_def) for function in functions)


def nodes_by_name(partitions: Iterable[Any]) -> dict[str, Node]:
    """Return all operators of the partitions and of functions that were not inlined."""
    nodes: dict[str, Node] = {}
    for partition in partitions:
        for node in partition.node:
            nodes[node.name] = Node(node.op, node.device, find_owner(node.name))
        functions = partition.library.function
        inner_nodes = itertools.chain.from_iterable(f.node_def for f in functions)
        for node in inner_nodes:
            if node.name not in nodes:
                nodes[node.name] = Node(node.op, node.device, find_owner(node.name))
    return nodes


def exchange_transfers(partitions: Sequence[Any]) -> set[str]:
    """Return the names of the transfers to operators of the exchange.

    A transfer has the name of the operator that made the tensor. For gradients, this is
    an operator of a tower's backward pass.
    """
    return transfers_to(partitions, lambda name: find_owner(name).phase == EXCHANGE)


def transfers_to(
    partitions: Sequence[Any], is_reader: Callable[[str], object]
) -> set[str]:
    """Return the names of the transfers to operators that `is_reader` accepts."""
    transfers = set()
    for partition in partitions:
        receives = {}
        read_names: list[str] = []
        for node in partition.node:
            if node.op in RECEIVES:
                receives[node.name] = node.attr["tensor_name"].s.decode()
            if is_reader(node.name):
                read_names += node.input
        for name in read_names:
            source = name.removeprefix("^").partition(":")[0]
            if source in receives:
                transfers.add(receives[source])
    return transfers


def tally_operators(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Count operators in all, by type, by device, and by tower and phase, as JSON."""
    by_owner = Counter(node.owner for node in nodes.values())
    return {
        "operators": len(nodes),
        **_count_by_kind(nodes.values()),
        "by_phase": _list_owners(by_owner, "operators"),
    }


def _count_by_kind(items: Collection[Any]) -> dict[str, dict[str, int]]:
    """Count operators or kernels by type and by device."""
    types = Counter(item.type for item in items)
    devices = Counter(item.device for item in items)
    descending = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    return {"by_type": dict(descending), "by_device": dict(sorted(devices.items()))}


def tally_kernels(steps: Sequence[TracedStep]) -> dict[str, Any]:
    """Count the kernels of each step, with details of the last step, as JSON.

    "host" kernels ran on CPU devices, or are control flow of loops. "device" kernels
    ran on GPUs. "copies" are copies and fills of GPU memory. "dispatched" are operators
    that the host launched on GPUs; each has any number of device kernels.
    """
    last = steps[-1].kernels
    computing = [
        kernel for kernel in last if kernel.kind != COPY and not kernel.dispatched
    ]
    by_owner = Counter(Owner(kernel.tower, kernel.phase) for kernel in computing)
    return {
        "steps": [_count_places(step.kernels) for step in steps],
        **_count_by_kind(computing),
        "by_phase": _list_owners(by_owner, "kernels"),
    }


def _count_places(kernels: Iterable[KernelEvent]) -> dict[str, int]:
    counts = dict.fromkeys(PLACES, 0)
    for kernel in kernels:
        place = {COPY: "copies", DEVICE: "device"}.get(kernel.kind, "host")
        counts["dispatched" if kernel.dispatched else place] += 1
    return counts


def _list_owners(counts: Mapping[Owner, int], unit: str) -> list[dict[str, Any]]:
    """Return one entry per owner in order; shared ones come last."""
    order = sorted(
        counts.items(),
        key=lambda item: (item[0].tower is None, item[0].tower or 0, item[0].phase),
    )
    return [
        {"tower": key.tower, "phase": key.phase, unit: count} for key, count in order
    ]
