"""Find the tower and phase of operators, and count operators and their executions.

Works on TensorFlow's protocol messages without importing TensorFlow. The name scopes of
tower.py, train_step.py and the update modes give the tower and the phase of an operator:

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
    KERNEL_COUNTS,
    OTHER,
    UPDATE,
)

# Kinds of kernels.
HOST = "host"  # ran on a CPU device, or control flow of a loop on any device
DEVICE = "device"  # ran on a GPU
COPY = "copy"  # a copy to, from or on a GPU, or a memset of its memory
# An asynchronous operator that waits and uses no core: a collective, or one that
# receives a tensor.
WAIT = "wait"
SENDS = ("_Send", "_HostSend")
RECEIVES = ("_Recv", "_HostRecv")
# Phases that have a scope outside of all towers.
_SHARED = (INPUT, EXCHANGE, UPDATE)
_TOWER = re.compile(r"tower_(\d+)")


class KernelEvent(NamedTuple):
    """One execution of an operator on a CPU, or of a kernel on a GPU.

    Attributes:
      name: Name of the operator, or "" if the trace does not contain it.
      type: Type of the operator, or the name of a CUDA kernel without operator.
      device: Full name of the device.
      tower: The operator's tower, or None if all towers share it.
      phase: The operator's phase.
      start_ns: Nanoseconds from the start of the trace.
      end_ns: Nanoseconds from the start of the trace.
      lane: The thread or stream that ran it.
      kind: HOST, DEVICE, COPY or WAIT.
      is_launch_only: Whether the host only launched a GPU operator.
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
    is_launch_only: bool = False


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

    >>> find_owner("tower_0/forward/MatMul")
    Owner(tower=0, phase='forward')
    >>> find_owner("ConstantFolding/exchange/AddN")
    Owner(tower=None, phase='exchange')
    >>> find_owner("update/tower_1/AssignSub")
    Owner(tower=1, phase='update')

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
    """An operator of a graph."""

    type: str
    device: str
    owner: Owner


def count_operators(graph: Any) -> int:
    """Return the number of operators of a GraphDef.

    Each function in its library, such as a loop body, counts once.
    """
    functions = graph.library.function
    return len(graph.node) + sum(len(function.node_def) for function in functions)


def index_nodes(partitions: Iterable[Any]) -> dict[str, Node]:
    """Return the operators of the partitions by name.

    Functions of their libraries, which were not inlined, are included.
    """
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


def find_exchange_transfers(partitions: Sequence[Any]) -> set[str]:
    """Return the names of the tensors that the exchange receives from other devices.

    A tensor has the name of the operator that computed it. For gradients, this is an
    operator of a tower's backward pass.
    """
    return find_transfers(partitions, lambda name: find_owner(name).phase == EXCHANGE)


def find_transfers(
    partitions: Sequence[Any], is_reader: Callable[[str], bool]
) -> set[str]:
    """Return the names of the tensors that some operators receive from other devices.

    Args:
      partitions: The graph of each device.
      is_reader: Whether tensors for the operator with this name count.
    """
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
    """Count operators in all, by type, by device, and by tower and phase.

    The keys of the result are keys of records.
    """
    by_owner = Counter(node.owner for node in nodes.values())
    return {
        "operators": len(nodes),
        **_count_by_type_and_device(nodes.values()),
        "by_phase": _list_owners(by_owner, "operators"),
    }


def _count_by_type_and_device(
    operators: Collection[Node] | Collection[KernelEvent],
) -> dict[str, dict[str, int]]:
    """Count operators or kernels by type and by device."""
    types = Counter(operator.type for operator in operators)
    devices = Counter(operator.device for operator in operators)
    most_first = sorted(types.items(), key=lambda pair: (-pair[1], pair[0]))
    return {"by_type": dict(most_first), "by_device": dict(sorted(devices.items()))}


def tally_kernels(steps: Sequence[TracedStep]) -> dict[str, Any]:
    """Count the kernels of each step, with details of the last step.

    The keys of the result are keys of records.

    "host" kernels ran on CPU devices, or are control flow of loops. "device" kernels
    ran on GPUs. "copies" are copies and fills of GPU memory. "dispatched" are operators
    that the host launched on GPUs; each has any number of device kernels.
    """
    last = steps[-1].kernels
    computing = [
        kernel for kernel in last if kernel.kind != COPY and not kernel.is_launch_only
    ]
    by_owner = Counter(Owner(kernel.tower, kernel.phase) for kernel in computing)
    return {
        "steps": [_count_by_kind(step.kernels) for step in steps],
        **_count_by_type_and_device(computing),
        "by_phase": _list_owners(by_owner, "kernels"),
    }


def _count_by_kind(kernels: Iterable[KernelEvent]) -> dict[str, int]:
    counts = dict.fromkeys(KERNEL_COUNTS, 0)
    for kernel in kernels:
        key = {COPY: "copies", DEVICE: "device"}.get(kernel.kind, "host")
        counts["dispatched" if kernel.is_launch_only else key] += 1
    return counts


def _list_owners(counts: Mapping[Owner, int], count_key: str) -> list[dict[str, Any]]:
    """Return one entry per owner in order; shared ones come last.

    Args:
      counts: The number of operators or kernels of each owner.
      count_key: The key of the number in an entry.
    """

    def sort_key(owner: Owner) -> tuple[bool, int, str]:
        return (owner.tower is None, owner.tower or 0, owner.phase)

    return [
        {"tower": owner.tower, "phase": owner.phase, count_key: counts[owner]}
        for owner in sorted(counts, key=sort_key)
    ]
