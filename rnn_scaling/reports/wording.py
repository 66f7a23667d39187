"""The sentence of each statement: one template per kind, with lists, plurals and numbers.

A template is a line of a file of `templates`, "kind: template": a format string over
the statement's values and `subject`:

    {names:list}        "A", "A and B", "A, B and C"; after five names
                        "A, B, C, D, E and 4 more"
    {names:List}        the same at the start of a sentence
    {n:list_of device}  "1 device", "2 devices", "2 and 4 devices"; n is a list
    {n:count run}       "1 run", "3 runs"; `{n:count process|processes}` has an
                        irregular plural
    {n:of {all} run}    "2 of 6 runs", "all 6 runs", "both runs", or "the run" of one
    {n:Of {all} run}    the same at the start of a sentence
    {n:is|are}          the first word for one, else the second; n is a number or a list
    {rate:interval 1}   "120.3 ± 1.5"; without an interval, at most one decimal
    {rate:interval}     the same, with more decimals if it would be 0.0
    {rate:number}       20,125, 24.72, 0.0123: four significant digits, and the whole
                        part
    {rate:number 3}     the same with three significant digits
    {part:share}        0.052 as "5.2 %"
    {part:percent 2}    0.00013 as "0.013 %": significant digits, 2 if no number follows
    {apart:duration}    minutes as "14 minutes", "3 hours" or "5 days"
    {tied:rates}        a list of {"name", "rate", "unit"}:
                        "A (120.3 ± 1.5 words/s) and B (119 ± 2 words/s)"
    {rate:,.1f}         all others are Python's own formats
"""

import dataclasses
import functools
import math
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import numbers
from rnn_scaling.system.files.terminal import format_count

NUMBER_DIGITS = 4  # significant digits of {rate:number}
_MAX_NAMES = 5  # names of a list; the others are counted


def sentence(statement: Statement) -> str:
    """Return a statement in words; statements in its values are parts of the sentence."""
    values = {name: _put_in_words(value) for name, value in statement.values.items()}
    template = all_templates()[statement.kind]
    return _KIT.format(template, subject=statement.subject, **values)


def _put_in_words(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_put_in_words, value))
    return sentence(value) if isinstance(value, Statement) else value


def sentences(statements: Iterable[Statement]) -> str:
    """Return a paragraph.

    The second of two sentences about the same subject begins with "It", and the second
    of two equal sentences is left out.
    """
    texts: list[str] = []
    subject = ""
    for statement in statements:
        template = all_templates()[statement.kind]
        starts_with_subject = template.startswith("{subject} ")
        shown = statement
        if subject and statement.subject == subject and starts_with_subject:
            shown = dataclasses.replace(statement, subject="It")
        text = sentence(shown)
        if text not in texts[-1:]:
            texts.append(text)
        subject = statement.subject or subject
    return " ".join(texts)


@functools.cache
def all_templates() -> Mapping[str, str]:
    """Return the template of each kind of statement.

    Raises:
      ValueError: If a kind has several templates.
    """
    templates: dict[str, str] = {}
    for file in sorted(Path(__file__).with_name("templates").rglob("*.txt")):
        for line in file.read_text("utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            kind, template = line.split(": ", 1)
            if kind in templates:
                raise ValueError(f"several templates of a kind: {kind}")
            templates[kind] = template
    return templates


def join_names(values: Sequence[str | int]) -> str:
    """Return "A", "A and B", "A, B and C" or "A, B and 4 more"; "none" without names."""
    if not values:
        return "none"
    names = [f"{value:,}" if isinstance(value, int) else value for value in values]
    if len(names) > _MAX_NAMES:
        return f"{', '.join(names[:_MAX_NAMES])} and {len(names) - _MAX_NAMES} more"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _list_with_noun(values: Sequence[int], noun: str) -> str:
    """Return "1 device", "2 devices" or "2 and 4 devices"."""
    is_one = list(values) == [1]
    _, _, nouns = format_count(1 if is_one else 2, noun).partition(" ")
    return f"{join_names(values)} {nouns}"


def _share_text(count: int, total_and_noun: str) -> str:
    """Return "2 of 6 runs", "all 6 runs", "both runs", or "the run" of a single one."""
    total_text, _, noun = total_and_noun.partition(" ")
    total = int(total_text)
    nouns = format_count(total, noun)
    if total == 1:
        return f"the {nouns.removeprefix('1 ')}"
    if count == total == 2:
        return f"both {nouns.removeprefix('2 ')}"
    if count == total:
        return f"all {nouns}"
    return f"{count:,} of {nouns}"


def _interval_text(value: Mapping[str, Any], digits: str) -> str:
    interval = Interval(**value, degrees=math.inf)
    return numbers.format_interval(interval, int(digits) if digits else None)


def _rates_text(rates: Iterable[Mapping[str, Any]]) -> str:
    template = "{name} ({rate:interval 1} {unit}/s)"
    return join_names([_KIT.format(template, **rate) for rate in rates])


def start_with_capital(text: str) -> str:
    """Return a text whose first letter is a capital."""
    return text[:1].upper() + text[1:]


# First word of a format -> function of the value and the other words.
_FORMATS: Mapping[str, Callable[[Any, str], str]] = {
    "list": lambda value, _: join_names(value),
    "list_of": _list_with_noun,
    "List": lambda value, _: start_with_capital(join_names(value)),
    "count": lambda value, noun: format_count(_count_of(value), noun),
    "of": _share_text,
    "Of": lambda value, noun: start_with_capital(_share_text(value, noun)),
    "interval": _interval_text,
    "rates": lambda value, _: _rates_text(value),
    "number": lambda value, digits: numbers.format_digits(
        value, int(digits or NUMBER_DIGITS)
    ),
    "share": lambda value, _: numbers.share(value),
    "percent": lambda value, digits: numbers.format_percent(value, int(digits or 2)),
    "duration": lambda value, _: numbers.format_minutes(value),
}


class _Kit(string.Formatter):
    """Python's format strings, with the formats that the head of this file lists."""

    def format_field(self, value: Any, format_spec: str) -> str:
        word, _, argument = format_spec.partition(" ")
        if word in _FORMATS:
            return _FORMATS[word](value, argument)
        if "|" in format_spec:
            singular, plural = format_spec.split("|")
            return singular if _count_of(value) == 1 else plural
        return str(super().format_field(value, format_spec))


_KIT = _Kit()


def _count_of(value: Any) -> int:
    return value if isinstance(value, int) else len(value)
