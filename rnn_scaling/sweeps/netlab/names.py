"""Names of network namespaces: whose they are stands in them, so that what a dead process left can be told. Pure."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Sequence

SWITCH = "switch"
SUBNET, PREFIX_LENGTH = "10.200.0", 24  # of namespaces that reach nothing else, so no network outside can collide
_NAME = re.compile(r"rnn_scaling-(\d{1,9})-(\d{1,20})-([a-z0-9]{1,20})")


@dataclasses.dataclass(frozen=True)
class Node:
    """One rank's machine: its name ("worker0"), its namespace, its address."""

    name: str
    namespace: str
    address: str


def namespace(process: str, name: str) -> str:
    """The namespace of one node.

    Args:
      process: of `alive.this_process`: number, start, boot.
    """
    number, start, _ = process.split(" ")
    return f"rnn_scaling-{number}-{start}-{name}"


def nodes(process: str, names: Sequence[str]) -> tuple[Node, ...]:
    """A node for every rank, in rank order.

    Args:
      process: of `alive.this_process`.
    """
    return tuple(Node(name, namespace(process, name), f"{SUBNET}.{rank + 1}") for rank, name in enumerate(names))


def makers(namespaces: Iterable[str], boot: str) -> dict[str, list[str]]:
    """Process that made them, as `alive.is_alive` takes it -> its namespaces; names of others are left out."""
    of_process: dict[str, list[str]] = {}
    for each in namespaces:
        if match := _NAME.fullmatch(each):
            of_process.setdefault(f"{match[1]} {match[2]} {boot}", []).append(each)
    return of_process
