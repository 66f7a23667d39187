"""Options of the commands that start runs: flag values -> frozen dataclasses, with their ranges checked."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.settings import flags


def fields(groups: Sequence[type]) -> dict[str, dataclasses.Field]:
    """Every option of the groups by name."""
    return {field.name: field for group in groups for field in dataclasses.fields(group)}


def build(groups: Sequence[type], values: Mapping[str, Any], lines: Sequence[str] = ()) -> list[Any]:
    """An instance of each group with the values that were given.

    Args:
      groups: option dataclasses.
      values: by option name; defaults stand for the others.
      lines: what is already known to be wrong.

    Raises:
      FlagErrors: naming every value out of range after `lines`.
    """
    lines = list(lines)
    for name, field in fields(groups).items():
        value, minimum = values.get(name), field.metadata["minimum"]
        if isinstance(value, float) and not math.isfinite(value):
            lines.append(f"--{name}={value} must be a finite number")
        elif value is not None and minimum is not None and value < minimum:
            lines.append(f"--{name}={value} must be at least {minimum:g}")
        elif value == "" and field.default:
            lines.append(f"--{name}= must not be empty")
    if lines:
        raise flags.FlagErrors(lines)
    return [
        group(**{f.name: values[f.name] for f in dataclasses.fields(group) if f.name in values}) for group in groups
    ]
