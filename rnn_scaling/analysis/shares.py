"""Shares of an ideal as functions of the rates that they are made of: their differences, and what is left of a loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.rows import Key

ALL = 100.0  # points of efficiency: more than that cannot be lost
Rates = Mapping[Key, float]  # items/s of each row


@dataclasses.dataclass(frozen=True)
class Share:
    """A number, or a part of the ideal, as a function of the rates of the rows with these keys.

    `interval` is that of the share where it is one ratio, whose interval is made on the scale of logarithms: whatever
    says the same, as an efficiency and the loss against it, then has the same ends.
    """

    value: Callable[[Rates], float]
    keys: frozenset[Key] = frozenset()
    interval: Interval | None = None


@dataclasses.dataclass(frozen=True)
class Missing:
    """A share for which runs are missing: each one's options that differ from the row's."""

    runs: tuple[Mapping[str, Any], ...]


ONE = Share(lambda rates: 1.0)


def without(loss: Share, parts: Sequence[Share]) -> Share:
    """The loss less these parts."""
    known = math.fsum(part.value({}) for part in parts if not part.keys)
    if not any(part.keys for part in parts):  # known exactly: the ends move with the number
        interval = loss.interval and loss.interval.shifted(-known)
        return Share(lambda rates: loss.value(rates) - known, loss.keys, interval)
    keys = loss.keys.union(*(part.keys for part in parts))
    return Share(lambda rates: loss.value(rates) - math.fsum(part.value(rates) for part in parts), keys)


def difference(before: Share | Missing, after: Share | Missing, scale: Share | Missing) -> Share | Missing:
    """(before - after) x scale; where runs are missing for one of them, all that are.

    Args:
      scale: what both are multiplied by to be shares of the ideal.
    """
    terms = (before, after, scale)
    if missing := [term for term in terms if isinstance(term, Missing)]:
        return Missing(tuple(changes for term in missing for changes in term.runs))
    first, second, factor = (term for term in terms if isinstance(term, Share))
    keys = first.keys | second.keys | factor.keys
    is_exact = not first.keys and factor is ONE and second.interval is not None
    interval = second.interval.subtracted_from(first.value({})) if is_exact and second.interval else None
    return Share(lambda rates: (first.value(rates) - second.value(rates)) * factor.value(rates), keys, interval)
