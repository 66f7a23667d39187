"""Differences between runs in words, for tables, sentences and JSON.

The keys of `data` are part of the JSON of reports and comparisons: never rename one.
"""

import dataclasses
from typing import Any

from rnn_scaling.analysis.comparison.differences import Difference, Quantity, join_some
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.reports.wording import write_sentence


@dataclasses.dataclass(frozen=True)
class DifferenceTexts:
    """A difference whose values and effect are texts."""

    name: str  # the option or fact that differs
    first: str
    second: str
    effect: str
    severity: str

    def data(self) -> dict[str, str]:
        """Return the texts for JSON."""
        return {
            "what": self.name,
            "a": self.first,
            "b": self.second,
            "effect": self.effect,
            "severity": self.severity,
        }


def describe(difference: Difference, is_json: bool = False) -> DifferenceTexts:
    """Return a difference in words.

    Args:
      difference: The difference.
      is_json: Whether values of options are spelled as Python values.
    """
    is_spelled = is_json and difference.name.startswith("--")
    first = [format_value(value, is_spelled) for value in difference.first]
    second = [format_value(value, is_spelled) for value in difference.second]
    effect = state(difference.effect, unit=difference.unit)
    return DifferenceTexts(
        difference.name,
        first=join_some(first),
        second=join_some(second),
        effect=write_sentence(effect),
        severity=difference.severity.value,
    )


def format_value(value: Any, is_spelled: bool = False) -> str:
    """Return a value of a difference as text."""
    if isinstance(value, Statement):
        return write_sentence(value)
    if isinstance(value, Quantity):
        return f"{value.number:.4g} {value.unit}"
    if is_spelled:
        return repr(value)
    return '""' if value == "" else str(value)
