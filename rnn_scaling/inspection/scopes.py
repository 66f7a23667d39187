"""Whose operator is it? The name scopes that towers.py and the update modes open say so; nothing is guessed.

    input/..  tower_<i>/input|forward|backward/..  exchange/..  update/..  update/tower_<i>/..

TensorFlow's optimizers put words before a name (`ConstantFolding/tower_0/forward/..`) and after it; so the first
component that opens a scope decides.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from rnn_scaling.records.step_names import BACKWARD, EXCHANGE, FORWARD, INPUT, OTHER, UPDATE

SHARED = (INPUT, EXCHANGE, UPDATE)  # phases with a scope of their own, outside of any tower's
_TOWER = re.compile(r"tower_(\d+)")


class Owner(NamedTuple):
    """A tower and a phase."""

    tower: int | None  # None: what all towers share
    phase: str


def owner(name: str) -> Owner:
    """The tower and phase of an operator by its full name; ("other", no tower) outside of every scope."""
    parts = name.split("/")
    for index, part in enumerate(parts):
        follows = parts[index + 1] if index + 1 < len(parts) else ""
        tower = _tower(part)
        if tower is not None:
            return Owner(tower, follows if follows in (INPUT, FORWARD, BACKWARD) else OTHER)
        if part in SHARED and follows:
            return Owner(_tower(follows) if part == UPDATE else None, part)
    return Owner(None, OTHER)


def _tower(part: str) -> int | None:
    match = _TOWER.fullmatch(part)
    return int(match[1]) if match else None
