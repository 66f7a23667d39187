"""Which of two settings is faster, as statements."""

from __future__ import annotations

import dataclasses

from rnn_scaling.analysis.comparison.judgement import Report
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.statements import Statement, interval_values


def statements(report: Report) -> list[Statement]:
    """That one setting is faster, by how much, or why that is not clear."""
    unlike = list(dict.fromkeys(f.difference.what for f in report.found if f.difference.is_grave))
    if options := [what for what in unlike if what.startswith("--")]:
        return [Statement("ab-other-work", values={"options": options})]
    if unlike:
        return [Statement("ab-unlike", values={"facts": unlike})]
    ratios = [result.comparison.ratio for result in report.results if result.comparison is not None]
    if len(ratios) != 1 or len(report.results) != 1:
        reasons = list(dict.fromkeys(result.reason for result in report.results if result.reason))
        return [Statement("ab-no-answer", values={"reasons": reasons or ["no configuration in common"]})]
    return [_answer(ratios[0], report.results[0].runs[0])]


def _answer(ratio: Interval, pairs: int) -> Statement:
    """Of B's rate over A's in so many pairs."""
    values = {"ratio": interval_values(ratio), "pairs": pairs}
    if ratio.ends is None:
        return Statement("ab-one-pair", values=values)
    low, high = ratio.ends
    if low <= 1 <= high:
        digits = 2 if high - low >= 0.05 else 3
        ends = {"low": round(low, digits), "high": round(high, digits)}
        return Statement("ab-wide" if ratio.is_wide else "ab-tie", values={**values, **ends})
    if ratio.value > 1:
        return Statement("ab-faster", "B", {**values, "other": "A"})
    inverse = dataclasses.replace(ratio, value=1 / ratio.value, low=1 / high, high=1 / low)
    return Statement("ab-faster", "A", {**values, "ratio": interval_values(inverse), "other": "B"})
