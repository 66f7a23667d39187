"""Slurm's lists of nodes and of tasks, written out: "n[1-3,07],gpu5" and "2(x3),1"."""

from __future__ import annotations

import re
from collections.abc import Iterator

LARGEST = 1 << 20  # nodes; a list that names more is a mistake or an attack
_PART = re.compile(r"([^\[\],\s]*)(?:\[([0-9,-]+)\])?")
_TASKS = re.compile(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")


def nodes(text: str) -> list[str]:
    """The names that a list of nodes stands for, in its order.

    Raises:
      ValueError: if it is none.

    >>> nodes("n[1-2,010-011],rack[0-1]b[7]")
    ['n1', 'n2', 'n010', 'n011', 'rack0b7', 'rack1b7']
    """
    names: list[str] = []
    for entry in re.split(r",(?![^\[]*\])", text):
        names += _expanded(entry)
        if len(names) > LARGEST:
            raise ValueError(f"more than {LARGEST} nodes")
    return names


def tasks(text: str) -> list[int]:
    """How many tasks each node has, in the order of the nodes.

    Raises:
      ValueError: if it is no such list.

    >>> tasks("2(x3),1")
    [2, 2, 2, 1]
    """
    counts: list[int] = []
    for entry in text.split(","):
        match = _TASKS.fullmatch(entry)
        if not match or int(match[2] or 1) > LARGEST:
            raise ValueError(f"{text}: no list of tasks")
        counts += [int(match[1])] * int(match[2] or 1)
        if len(counts) > LARGEST:
            raise ValueError(f"more than {LARGEST} nodes")
    return counts


def _expanded(entry: str) -> list[str]:
    """Of one entry, which may have several brackets, as clusters of more than one dimension have."""
    names, at = [""], 0
    while at < len(entry):
        part = _PART.match(entry, at)
        if not part or part.end() == at:
            raise ValueError(f"{entry}: no list of nodes")
        endings = list(_numbers(part[2])) if part[2] else [""]
        if len(names) * len(endings) > LARGEST:
            raise ValueError(f"more than {LARGEST} nodes")
        names, at = [name + part[1] + ending for name in names for ending in endings], part.end()
    if not entry:
        raise ValueError("an empty name of a node")
    return names


def _numbers(text: str) -> Iterator[str]:
    """ "1-3,07" -> 1, 2, 3, 07: leading zeros count."""
    for entry in text.split(","):
        first, dash, last = entry.partition("-")
        if not first or "-" in last or (dash and not last) or len(first) > 9 or len(last) > 9:
            raise ValueError(f"[{text}]: no list of numbers")
        start, stop = int(first), int(last or first)
        if not start <= stop < start + LARGEST:
            raise ValueError(f"{entry}: no range of numbers")
        yield from (f"{number:0{len(first)}d}" for number in range(start, stop + 1))
