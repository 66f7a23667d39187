"""Findings of one cause -> one finding: two numbers that were exchanged, digits cut off down a column, a column off."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.audit import misprints
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding
from rnn_scaling.audit.scaling_table import parse_cell

_BOUNDS = re.compile(r"\S+ \[(?P<low>[^,\[\]]+), (?P<high>[^,\[\]]+)\]")
_OTHER_ROWS = re.compile(r" and \d+ other rows?$")
_WEAK = ("implied", "shape")  # they know no header's word for it: another finding in the row says more
_MANY = 3  # numbers of one column that are off by one cause, and not each by its own
_PAIRED = 100  # findings of a table; of more, no two are held against each other
_SLACK = 1e-3  # the bounds are printed with one digit more than the number


def merged(findings: Sequence[Finding], lines: int) -> list[Finding]:
    """Findings of one table, those of one cause as the first of them, which names the lines of the others.

    Args:
      findings: the findings, at most one a cell.
      lines: of the table.
    """
    impossible_lines = {f.line for f in findings if f.kind == IMPOSSIBLE and f.check not in _WEAK}
    left = [f for f in findings if f.check not in _WEAK or not f.line or f.line not in impossible_lines]
    return _down_columns(_exchanged(left), lines)


def _exchanged(findings: list[Finding]) -> list[Finding]:
    """Two numbers of a row, or of a column, each of which is what the other should be."""
    if len(findings) > _PAIRED:
        return findings
    out: list[Finding] = []
    gone: set[int] = set()
    for k, one in enumerate(findings):
        if k in gone:
            continue
        for j in range(k + 1, len(findings)):
            other = findings[j]
            beside = (one.line == other.line and one.line) or (one.column == other.column and one.check == other.check)
            if j in gone or not beside or not (_is(one.stands, other.expected) and _is(other.stands, one.expected)):
                continue
            gone.add(j)
            where = other.column if one.line == other.line else other.row
            cause = f"exchanged with the {other.stands} of {where}, which should be this number"
            one = dataclasses.replace(one, cause=cause, others=(*one.others, other.line))
            if other.line == one.line:
                one = dataclasses.replace(one, column=f"{one.column} / {other.column}", others=())
            break
        out.append(one)
    return out


def _is(stands: str, expected: str) -> bool:
    """Whether a printed number lies in the bounds of what another should be, in per cent or as a fraction."""
    bounds, cell = _BOUNDS.fullmatch(expected), parse_cell(stands)
    ends = [parse_cell(bounds[end]) for end in ("low", "high")] if bounds else []
    if cell is None or len(ends) != 2 or ends[0] is None or ends[1] is None:
        return False
    low, high = ends[0].value, ends[1].value
    slack = cell.half_ulp + _SLACK * abs(high - low)
    return any(low - slack * by <= cell.value * by <= high + slack * by for by in (1, 100, 0.01))


def _down_columns(findings: Sequence[Finding], lines: int) -> list[Finding]:
    """What is off in one column by one cause; a column that is off as such in several series."""
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for f in findings:
        cause = _cause(f) if f.line else ""
        groups.setdefault((f.check, f.kind, f.column, cause) if cause else (id(f),), []).append(f)
    out: list[Finding] = []
    for members in groups.values():
        each = _cause(members[0]) == misprints.NO_CAUSE and (len(members) < _MANY or 2 * len(members) <= lines)
        out += members if each or len(members) == 1 else [_together(members)]
    return out


def _cause(f: Finding) -> str:
    """What findings of one cause have in common, "" where each has its own."""
    if misprints.CUT in f.cause:
        return misprints.CUT
    if _OTHER_ROWS.search(f.row):
        return re.sub(r"[\d.,x=()+-]+", "", f.cause)
    return misprints.NO_CAUSE if misprints.NO_CAUSE in f.cause and f.kind != UNLIKELY else ""


def _together(members: Sequence[Finding]) -> Finding:
    first, rest = members[0], members[1:]
    lines = tuple(dict.fromkeys(line for f in rest for line in (f.line, *f.others)))
    shown = ", ".join(map(str, lines[:8])) + (", ..." if len(lines) > 8 else "")
    cause = f"{first.cause}; so also in line{'s' if len(lines) > 1 else ''} {shown}"
    return dataclasses.replace(first, cause=cause, others=(*first.others, *lines))
