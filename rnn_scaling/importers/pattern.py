"""A log of no known format, read by a regular expression of the user: each match is a step, a stretch of steps, or all.

Groups: rate (items/s); items and seconds of a stretch; or seconds, or ms, of one step whose items the user tells; step
(the number of the last step of a stretch), loss.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence

from rnn_scaling.importers.common import by_rank
from rnn_scaling.sweeps.log_formats import REGEX, Reading, Terms

SMALLEST, LARGEST = 1e-12, 1e18  # of numbers that a record can hold
MOST_MATCHES = 100_000


@dataclasses.dataclass(frozen=True)
class _Match:
    """One match: its numbers by group, and how many steps it stands for."""

    numbers: dict[str, float]
    steps: float


def read(lines: Iterable[str], regex: str, terms: Terms) -> Reading:
    """What the matches tell.

    A launcher's tags of ranks are taken off, and of several ranks the first that matches counts: the others print the
    same steps. With `rate` alone the rate of the run is the harmonic mean of the matches after the warm-up, which
    counts each as long as it has items: as many in all, or as many as steps where there is the group `step`.

    Args:
      lines: of the log.
      regex: with the groups.
      terms: how many matches are warm-up, and the items of a step where the pattern tells its seconds alone.

    Raises:
      ValueError: if nothing matches, or no number can be one.
    """
    matches = _matches(lines, re.compile(regex))
    if not matches:
        raise ValueError("its output has no line that the pattern of --log_format matches")
    first = min(terms.warmup, len(matches) - 1)
    loss = tuple(_finite(match.numbers.get("loss")) for match in matches)
    if "rate" in matches[0].numbers:
        counted = matches[first:]
        steps = math.fsum(match.steps for match in counted)
        rate = steps / math.fsum(match.steps / match.numbers["rate"] for match in counted)
        how = "" if len(matches) == 1 else f"{REGEX} the mean of {len(counted)} printed rates, {first} left out"
        return Reading(format=REGEX + regex, rate=rate, notes=(how,) if how else ())
    seconds = tuple(_seconds(match, terms.items_per_step) for match in matches)
    items = tuple(match.numbers.get("items") or match.steps * (terms.items_per_step or math.nan) for match in matches)
    rate = math.fsum(items[first:]) / math.fsum(seconds[first:])
    has_loss = any(each is not None for each in loss)
    note = f"{REGEX} a match of the pattern counts as a batch; its seconds are as exact as they were printed"
    return Reading(REGEX + regex, rate, "", seconds, items, loss if has_loss else (), warmup=first, notes=(note,))


def _seconds(match: _Match, items_per_step: float | None) -> float:
    """Of the stretch that a match stands for."""
    numbers = match.numbers
    seconds = numbers["seconds"] if "seconds" in numbers else numbers["ms"] / 1000
    return seconds if items_per_step is None else seconds * match.steps


def _matches(lines: Iterable[str], regex: re.Pattern[str]) -> list[_Match]:
    matches: list[_Match] = []
    counted: int | None = None  # the rank whose matches count
    before = 0.0
    for number, rank, text in by_rank(lines):
        found = regex.search(text)
        if found is None:
            continue
        if not matches:
            counted = rank
        if rank != counted:
            continue
        numbers = {name: _number(name, value, number) for name, value in found.groupdict().items() if value is not None}
        step = numbers.get("step", before + 1)
        # Steps count from 0 again in a new epoch.
        matches.append(_Match(numbers, step - before if step > before else max(step, 1.0)))
        before = step
        if len(matches) > MOST_MATCHES:
            raise ValueError(f"its output matches the pattern more than {MOST_MATCHES:,} times; print fewer lines")
    _check_alike(matches)
    return matches


def _check_alike(matches: Sequence[_Match]) -> None:
    needed = [{"rate"}, {"items", "seconds"}, {"seconds"}, {"items", "ms"}, {"ms"}]
    told = [frozenset(match.numbers) - {"step", "loss"} for match in matches]
    if told and (len(set(told)) > 1 or set(told[0]) not in needed):
        kinds = " and ".join(sorted({"+".join(sorted(each)) or "nothing" for each in told}))
        raise ValueError(f"the pattern's matches tell {kinds}; expected rate, or seconds (ms) and items, in each")


def _number(name: str, text: str, line: int) -> float:
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        value = math.nan
        if name != "loss":
            raise ValueError(f"line {line} of its output: {name} is {text[:40]!r}, no number") from None
    if name != "loss" and not (SMALLEST <= value <= LARGEST or (name == "step" and value == 0)):
        raise ValueError(f"line {line} of its output: {name} is {text[:40]}; expected a number above 0")
    return value


def _finite(value: float | None) -> float | None:
    return value if value is not None and abs(value) <= 3e38 else None
