"""Which of two settings is faster, in one sentence that can be read aloud."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from rnn_scaling.analysis.comparison.judgement import Report, some
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.facts.table import INCOMPARABLE
from rnn_scaling.reports.numbers import differing, plus_minus

DIGITS = 2


class Sides(NamedTuple):
    """What the two settings are, in the user's words."""

    a: str
    b: str


def sentence(report: Report, sides: Sides) -> str:
    """ "A is 1.27 ± 0.03 times as fast as B. A: --xla=true; B: only the common flags", or that it cannot be told."""
    of_what = f"A: {sides.a}; B: {sides.b}"
    unlike = list(dict.fromkeys(f.difference.what for f in report.found if f.difference.severity == INCOMPARABLE))
    if asked := [what for what in unlike if what.startswith("--")]:
        return f"A and B cannot be compared: they do not do the same work ({some(asked)}). {of_what}"
    if unlike:
        return f"A and B cannot be told apart: their runs may differ in {some(unlike)}, too. {of_what}"
    ratios = [each.comparison.ratio for each in report.results if each.comparison is not None]
    if len(ratios) != 1 or len(report.results) != 1:
        reasons = list(dict.fromkeys(each.reason for each in report.results if each.reason))
        return f"A and B cannot be told apart: {'; '.join(reasons) or 'they share no configuration'}. {of_what}"
    ratio = ratios[0]  # B's rate over A's
    if ratio.ends is None:
        more = "two pairs of runs or more give it an interval (--repeats=...)"
        which = f"B is {plus_minus(ratio, DIGITS)} times as fast as A"
        return f"A and B cannot be told apart: {which} in {report.results[0].runs[0]} pair; {more}. {of_what}"
    if ratio.ends[0] <= 1 <= ratio.ends[1]:
        digits = DIGITS if ratio.ends[1] - ratio.ends[0] >= 0.05 else DIGITS + 1
        low, high = (f"{end:.{digits}f}" for end in ratio.ends)
        span = f"B is {low} to {high} times as fast as A (95 % interval)"
        return f"A and B cannot be told apart: {f'pairs of {differing(ratio)}' if ratio.is_wide else span}. {of_what}"
    faster, slower, shown = ("B", "A", ratio) if ratio.value > 1 else ("A", "B", _inverse(ratio))
    return f"{faster} is {plus_minus(shown, DIGITS)} times as fast as {slower}. {of_what}"


def _inverse(ratio: Interval) -> Interval:
    """A's rate over B's, with the ends of the other way round."""
    low, high = ratio.ends or (ratio.value, ratio.value)
    return dataclasses.replace(ratio, value=1 / ratio.value, low=1 / high, high=1 / low)
