"""Slurm's lists of nodes and of tasks: "n[1-3,07],gpu5" and "2(x3),1".

Only `launch` needs these lists. Pure.
"""

import re

_NODE = re.compile(r"(?:[^][,\s]+(?:\[[0-9][0-9,-]*\])?|\[[0-9][0-9,-]*\])+")
_TASKS = re.compile(r"([0-9]{1,7})(?:\(x([0-9]{1,7})\))?")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def parse_nodes(text: str) -> list[str]:
    """Return the names of all nodes in a list of nodes, in its order.

    Raises:
      ValueError: If the text is not a list of nodes.
    """
    names = []
    for entry in re.split(r",(?![^\[]*\])", text):
        if not _NODE.fullmatch(entry):
            raise ValueError(f"{text} is not a list of nodes")
        names += _expand(entry)
    return names


def parse_tasks(text: str) -> list[int]:
    """Return the number of tasks per node, in the order of the nodes.

    Raises:
      ValueError: If the text is not a list of tasks per node.
    """
    counts: list[int] = []
    for entry in text.split(","):
        match = _TASKS.fullmatch(entry)
        if not match:
            raise ValueError(f"{text} is not a list of tasks per node")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _expand(entry: str) -> list[str]:
    """Return the names of one entry.

    Clusters of more than one dimension have several brackets in an entry.
    """
    prefix, bracket, rest_of_entry = entry.partition("[")
    if not bracket:
        return [entry]
    ranges, _, rest_of_entry = rest_of_entry.partition("]")
    endings = _expand(rest_of_entry)
    names = []
    for number in _expand_ranges(ranges):
        names += [prefix + number + ending for ending in endings]
    return names


def _expand_ranges(ranges: str) -> list[str]:
    """Return 1, 2, 3, 07 for "1-3,07"; leading zeros belong to a number."""
    numbers = []
    for entry in ranges.split(","):
        match = _RANGE.fullmatch(entry)
        if not match or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"[{ranges}] is not a list of numbers")
        first = match[1]
        last = match[2] or first
        for number in range(int(first), int(last) + 1):
            numbers.append(f"{number:0{len(first)}d}")
    return numbers
