"""Differences between runs in words, for tables, sentences and JSON."""

import dataclasses
from typing import Any

from rnn_scaling.analysis.comparison.differences import Difference, Quantity, some
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.wording import phrase


@dataclasses.dataclass(frozen=True)
class Described:
    """A difference whose values and effect are texts."""

    what: str
    a: str
    b: str
    effect: str
    severity: str


def described(difference: Difference, is_json: bool = False) -> Described:
    """Return a difference in words.

    Args:
      difference: The difference.
      is_json: Whether values of options are spelled as Python values.
    """
    is_spelled = is_json and difference.what.startswith("--")
    a, b = (
        some([value_text(value, is_spelled) for value in side])
        for side in (difference.a, difference.b)
    )
    unit = {"unit": difference.unit}
    return Described(
        difference.what,
        a,
        b,
        phrase(Statement(difference.effect, values=unit)),
        difference.severity.value,
    )


def value_text(value: Any, is_spelled: bool = False) -> str:
    """Return a value of a difference as text."""
    if isinstance(value, Statement):
        return phrase(value)
    if isinstance(value, Quantity):
        return f"{value.number:.4g} {value.unit}"
    if is_spelled:
        return repr(value)
    return '""' if value == "" else str(value)
