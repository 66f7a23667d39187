"""Slurm's lists of nodes and of tasks, written out: "n[1-3,07],gpu5" and "2(x3),1"."""

import re
from collections.abc import Iterator

_NODE = re.compile(r"(?:[^][,\s]+(?:\[[0-9][0-9,-]*\])?|\[[0-9][0-9,-]*\])+")
_TASKS = re.compile(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")


def nodes(text: str) -> list[str]:
    """The names that a list of nodes stands for, in its order. Raises ValueError if it is none."""
    entries = re.split(r",(?![^\[]*\])", text)
    if not all(map(_NODE.fullmatch, entries)):
        raise ValueError(f"{text}: no list of nodes")
    return [name for entry in entries for name in _expanded(entry)]


def tasks(text: str) -> list[int]:
    """How many tasks each node has, in the order of the nodes. Raises ValueError if it is no such list."""
    matches = [_TASKS.fullmatch(entry) for entry in text.split(",")]
    if not all(matches):
        raise ValueError(f"{text}: no list of tasks")
    return [
        int(match[1]) for match in matches if match for _ in range(int(match[2] or 1))
    ]


def _expanded(entry: str) -> list[str]:
    """The names of one entry, which may have several brackets, as clusters of more than one dimension have."""
    prefix, bracket, rest = entry.partition("[")
    if not bracket:
        return [entry]
    numbers, _, rest = rest.partition("]")
    return [
        prefix + number + ending
        for number in _numbers(numbers)
        for ending in _expanded(rest)
    ]


def _numbers(text: str) -> Iterator[str]:
    """ "1-3,07" -> 1, 2, 3, 07: leading zeros count."""
    for entry in text.split(","):
        match = re.fullmatch(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", entry)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"[{text}]: no list of numbers")
        for number in range(int(match[1]), int(match[2] or match[1]) + 1):
            yield f"{number:0{len(match[1])}d}"
