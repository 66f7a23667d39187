"""The sentence of each statement: one template per kind, filled in by one kit for lists, plurals and numbers.

A template is a line of a file of `templates`, "kind: template": a format string over the statement's values and
`subject`:

    {names:list}        "A", "A and B", "A, B and C"; after five names "A, B, C, D, E and 4 more"
    {names:List}        the same at the start of a sentence
    {n:count run}       "1 run", "3 runs"; `{n:count process|processes}` gives an irregular plural
    {n:of {all} run}    "2 of 6 runs", "all 6 runs" or "both runs"; "the run" of one
    {n:is|are}          the first word for one, the second otherwise; n is a number or a list
    {rate:interval 1}   "120.3 ± 1.5", with one decimal at most where there is no interval
    {rate:interval}     the same, with more decimals where it would be 0.0
    {rate:number}       20,125, 24.72, 0.0123: four significant digits, and all whole ones
    {rate:number 3}     the same with three significant digits
    {part:share}        0.052 as "5.2 %"
    {tied:rates}        a list of {"name", "rate", "unit"}: "A (120.3 ± 1.5 words/s) and B (119 ± 2 words/s)"
    {rate:,.1f}         anything else is Python's own format
"""

import dataclasses
import functools
import math
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import numbers
from rnn_scaling.system.files.terminal import counted

MOST_NAMES = 5  # names of a list; the rest is counted


def sentence(statement: Statement) -> str:
    return _KIT.format(
        all_templates()[statement.kind], subject=statement.subject, **statement.values
    )


def sentences(statements: Iterable[Statement]) -> str:
    """Several statements as one paragraph; the second of two about one subject begins with "It"."""
    made, subject = [], ""
    for statement in statements:
        begins = all_templates()[statement.kind].startswith("{subject} ")  # as a noun
        is_repeated = bool(subject) and statement.subject == subject and begins
        made.append(
            sentence(
                dataclasses.replace(statement, subject="It")
                if is_repeated
                else statement
            )
        )
        subject = statement.subject or subject
    return " ".join(made)


def phrase(statement: Statement) -> str:
    """Return a statement as a part of a sentence, from the files of `templates/phrases`."""
    values = {
        name: phrase(value) if isinstance(value, Statement) else value
        for name, value in statement.values.items()
    }
    return _KIT.format(_templates("phrases")[statement.kind], **values)


def all_templates() -> Mapping[str, str]:
    """Return the template of each kind of statement."""
    return _templates("")


@functools.cache
def _templates(folder: str) -> Mapping[str, str]:
    """Template by kind, of every file of a folder in `templates`. Raises ValueError if a kind has several."""
    files = sorted(Path(__file__).with_name("templates").joinpath(folder).glob("*.txt"))
    templates: dict[str, str] = {}
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            if line and line[0] != "#":
                kind, template = line.split(": ", 1)
                if kind in templates:
                    raise ValueError(f"several templates of a kind: {kind}")
                templates[kind] = template
    return templates


def join_names(values: Sequence[str | int], most: int = MOST_NAMES) -> str:
    """ "A", "A and B", "A, B and C"; beyond `most` names "A, B and 4 more"."""
    names = [f"{value:,}" if isinstance(value, int) else value for value in values]
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return (
        " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        if names
        else "none"
    )


def _part_of(count: int, total: int, noun: str) -> str:
    """Return "2 of 6 runs", "all 6 runs", "both runs", or "the run" of a single one."""
    if total == 1:
        return f"the {noun}"
    if count == total == 2:
        return f"both {counted(total, noun).removeprefix('2 ')}"
    if count == total:
        return f"all {counted(total, noun)}"
    return f"{count:,} of {counted(total, noun)}"


class _Kit(string.Formatter):
    """Python's format strings with the specifications that the head of this file lists."""

    def format_field(self, value: Any, format_spec: str) -> str:
        word, _, rest = format_spec.partition(" ")
        if word in ("list", "List"):
            text = join_names(value)
            return text[:1].upper() + text[1:] if word == "List" else text
        if word == "count":
            return counted(_size(value), rest)
        if word == "of":
            total, _, noun = rest.partition(" ")
            return _part_of(value, int(total), noun)
        if word == "interval":
            interval = Interval(
                kind="", standard_error=None, degrees=math.inf, run_counts=(), **value
            )
            return numbers.plus_minus(interval, int(rest) if rest else None)
        if word == "rates":
            return join_names(
                [
                    self.format("{name} ({rate:interval 1} {unit}/s)", **series)
                    for series in value
                ]
            )
        if word == "number":
            return numbers.digits(value, int(rest) if rest else 4)
        if word == "share":
            return numbers.share(value)
        if "|" in format_spec:
            return format_spec.split("|")[_size(value) != 1]
        return str(super().format_field(value, format_spec))


_KIT = _Kit()


def _size(value: Any) -> int:
    return value if isinstance(value, int) else len(value)
