"""Settings of a script that must be equal on all ranks, at each step. Pure.

`judge` makes one check of all settings.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.verification import signatures
from rnn_scaling.verification.scripts.verdict import Check, Result, wrong_check
from rnn_scaling.verification.signatures import Quantity, SettingFeatures, Subject

Record = Mapping[str, Any]
Settings = dict[Quantity, dict[str, Any]]  # quantity -> name of a setting -> value


def compare(*runs: Sequence[Record]) -> Check:
    """Return the check of the settings of all ranks in some runs."""
    for ranks in runs:
        if wrong := _compare(ranks):
            return wrong
    return Check(Subject.SETTINGS, Result.OK, "settings")


def _compare(ranks: Sequence[Record]) -> Check | None:
    """Return the check of a wrong setting in a run; None if all are equal."""
    num_steps = min(len(rank["steps"]) for rank in ranks)
    have_ended = all(rank["end"] for rank in ranks)
    for number in range(num_steps):
        if len({num_passes(rank, number) for rank in ranks}) > 1:
            break  # The steps of the ranks do not belong together.
        settings = [_read_settings(rank, number, have_ended) for rank in ranks]
        for place, quantity in itertools.product(range(1, len(ranks)), settings[0]):
            names = differing(settings[0][quantity], settings[place][quantity])
            if names:
                features = SettingFeatures(quantity=quantity)
                cause = signatures.find_cause(Subject.SETTINGS, features)
                values = {"rank": place, "names": names}
                return wrong_check(
                    Subject.SETTINGS, "settings", number + 1, cause, values
                )
    return None


def num_passes(rank: Record, number: int) -> int:
    """Return how many backward passes a rank makes up to a step."""
    return sum(len(step["micro"]) for step in rank["steps"][: number + 1])


def _read_settings(rank: Record, number: int, have_ended: bool) -> Settings:
    """Return the settings of a step; older records do not contain all of them.

    Args:
      rank: The record of a rank.
      number: Number of the step.
      have_ended: Whether all ranks have recorded their end.
    """
    step = rank["steps"][number]
    options: dict[str, Any] = {}
    for group in step.get("options", ()):
        for name, value in group.items():
            options.setdefault(name, []).append(value)
    # A process may clip more often because it has more micro-batches.
    bounds = {clip["own"] for clip in step["clips"]}
    return {
        Quantity.PARAMETERS: dict.fromkeys(rank["start"]["names"].values(), True),
        Quantity.EVAL_MODES: dict.fromkeys(step.get("eval_modules", ()), True),
        # After the modes, because it is only recorded while training.
        Quantity.PRECISION: {"rounding": rank["end"].get("rounding")}
        if have_ended
        else {},
        Quantity.CLIP_BOUNDS: {"bounds": sorted(bounds)},
        Quantity.RATES: {"rates": step["rates"]},
        Quantity.OPTIONS: options,
    }


def differing(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the names whose values differ."""
    names = {**first, **other}
    return [name for name in names if first.get(name) != other.get(name)]
