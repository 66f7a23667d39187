"""Operators of a GraphDef and kernels of a trace, counted; and the operators of the partitions that run, by name.

Works on TensorFlow's protocol messages without importing TensorFlow. The name scopes that towers.py and the update
modes open give an operator's tower and phase:

    input/..  tower_<i>/input|forward|backward/..  exchange/..  update/..  update/tower_<i>/..

TensorFlow's optimizers put words before a name (`ConstantFolding/tower_0/forward/..`) and after it; so the first
component that opens a scope decides.
"""

import dataclasses
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

HOST = "host"
DEVICE = "device"
COPY = "copy"
WAIT = "wait"
"""host: an operator's kernel that ran on a CPU device, or control flow of a loop wherever it is placed; device: a
kernel on a GPU; copy: a copy to, from or on a GPU, or a fill of its memory; wait: an asynchronous operator from its
start to its end, on no core (a collective, or a tensor to be received)."""
SENDS = ("_Send", "_HostSend")
RECEIVES = ("_Recv", "_HostRecv")
SHARED = (
    INPUT,
    EXCHANGE,
    UPDATE,
)  # phases with a scope of their own, outside of any tower's
_TOWER = re.compile(r"tower_(\d+)")


class KernelEvent(NamedTuple):
    """One execution of one kernel. Times are integer nanoseconds from the start of the trace."""

    name: str  # of the operator that it belongs to, "" where the trace does not say
    type: str  # of the operator; of the CUDA kernel where there is no operator
    device: str  # full name where it ran
    tower: int | None  # None: shared by all
    phase: str
    start_ns: int
    end_ns: int
    lane: str  # the thread or stream that it ran on
    kind: str
    dispatched: bool = False  # host time of launching a GPU operator: counted, but the tower's device does the work


@dataclasses.dataclass(frozen=True)
class TracedStep:
    start_ns: int
    end_ns: int
    kernels: Sequence[KernelEvent]  # that started within the step, by start


class Owner(NamedTuple):
    tower: int | None  # None: what all towers share
    phase: str


def owner(name: str) -> Owner:
    """The tower and phase of an operator by its full name; ("other", no tower) outside of every scope."""
    parts = name.split("/")
    for index, part in enumerate(parts):
        follows = parts[index + 1] if index + 1 < len(parts) else ""
        tower = _tower(part)
        if tower is not None:
            return Owner(
                tower, follows if follows in (INPUT, FORWARD, BACKWARD) else OTHER
            )
        if part in SHARED and follows:
            return Owner(_tower(follows) if part == UPDATE else None, part)
    return Owner(None, OTHER)


def _tower(part: str) -> int | None:
    match = _TOWER.fullmatch(part)
    return int(match[1]) if match else None


class Node(NamedTuple):
    type: str
    device: str
    owner: Owner


def num_operators(graph: Any) -> int:
    """Operators of a GraphDef, those of the functions in its library (loop bodies) included, each function once."""
    return len(graph.node) + sum(
        len(function.node_def) for function in graph.library.function
    )


def nodes_of(partitions: Iterable[Any]) -> dict[str, Node]:
    """Every operator of the partitions by name, functions that were not inlined included."""
    nodes: dict[str, Node] = {}
    for partition in partitions:
        for node in partition.node:
            nodes[node.name] = Node(node.op, node.device, owner(node.name))
        for function in partition.library.function:
            for node in function.node_def:
                nodes.setdefault(
                    node.name, Node(node.op, node.device, owner(node.name))
                )
    return nodes


def exchanged(partitions: Sequence[Any]) -> frozenset[str]:
    """Names of the transfers of tensors to operators of the exchange.

    Each is named after the operator that made the tensor, for gradients one of a tower's backward pass.
    """
    return frozenset(
        received_by(partitions, lambda name: owner(name).phase == EXCHANGE)
    )


def received_by(partitions: Sequence[Any], reads: Callable[[str], Any]) -> set[str]:
    """Names of the transfers of tensors to the operators whose names `reads` accepts."""
    transfers = set()
    for partition in partitions:
        receives = (node for node in partition.node if node.op in RECEIVES)
        received = {node.name: node.attr["tensor_name"].s.decode() for node in receives}
        for node in partition.node:
            if reads(node.name):
                sources = (
                    name.removeprefix("^").partition(":")[0] for name in node.input
                )
                transfers |= {received[name] for name in sources if name in received}
    return transfers


def tally_operators(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """Counts of the partitions' operators: in all, by type, by device, and by tower and phase; JSON-ready."""
    by_owner = Counter(node.owner for node in nodes.values())
    return {
        "operators": len(nodes),
        **_by_kind(nodes.values()),
        "by_phase": owners(by_owner, "operators"),
    }


def _by_kind(counted: Collection[Any]) -> dict[str, dict[str, int]]:
    types = Counter(node.type for node in counted)
    devices = Counter(node.device for node in counted)
    descending = sorted(types.items(), key=lambda item: (-item[1], item[0]))
    return {"by_type": dict(descending), "by_device": dict(sorted(devices.items()))}


def tally_kernels(steps: Sequence[TracedStep]) -> dict[str, Any]:
    """Kernels of each step; by type, by tower and phase, and by device for the last one; JSON-ready.

    A step's "host" kernels are those that the executor ran on CPU devices, and control flow of loops, which it runs
    itself wherever it is placed; its "device" kernels those that ran on GPUs, "copies" the copies and fills of memory
    there, and "dispatched" the operators that the host launched on GPUs (device kernels belong to them, one or several
    each, or none).
    """
    last = steps[-1].kernels
    work = [kernel for kernel in last if kernel.kind != COPY and not kernel.dispatched]
    by_owner = Counter(Owner(kernel.tower, kernel.phase) for kernel in work)
    counts = [Counter(map(_place, step.kernels)) for step in steps]
    return {
        "steps": [{place: count[place] for place in PLACES} for count in counts],
        **_by_kind(work),
        "by_phase": owners(by_owner, "kernels"),
    }


def _place(kernel: KernelEvent) -> str:
    if kernel.dispatched:
        return "dispatched"
    return {COPY: "copies", DEVICE: "device"}.get(kernel.kind, "host")


def owners(counts: Mapping[Owner, Any], unit: str) -> list[dict[str, Any]]:
    """[{tower, phase, <unit>}] in order; what the towers share comes last."""
    order = sorted(
        counts, key=lambda who: (who.tower is None, who.tower or 0, who.phase)
    )
    return [
        {"tower": who.tower, "phase": who.phase, unit: counts[who]} for who in order
    ]
