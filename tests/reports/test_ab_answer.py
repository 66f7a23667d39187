"""The answer of ab: which of two settings is faster."""

import math
from types import SimpleNamespace

import pytest

from rnn_scaling.analysis.comparison.differences import Difference
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.facts.table import CAUTION, INCOMPARABLE
from rnn_scaling.analysis.interval_kinds import IntervalKind
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.comparison_statements import state_sides
from rnn_scaling.reports.wording import write_sentence


def answer(value=None, low=None, high=None, reason=None, pairs=3, unlike=()):
    error = None if low is None else math.log(high / low)
    ratio = value and Interval(
        value, low, high, IntervalKind(), error, 2.0, (pairs, pairs)
    )
    comparison = ratio and SimpleNamespace(ratio=ratio)
    result = SimpleNamespace(comparison=comparison, reason=reason, runs=(pairs, pairs))
    found = [
        SimpleNamespace(difference=Difference(what, "", "", "", severity))
        for what, severity in unlike
    ]
    [statement] = state_sides(SimpleNamespace(results=(result,), differences=found))
    return statement


@pytest.mark.parametrize(
    "numbers, words",
    [
        ((1.27, 1.24, 1.30), "B is 1.27 ± 0.03 times"),
        ((1 / 1.27, 1 / 1.30, 1 / 1.24), "A is 1.27 ± 0.03 times"),
        ((1.5, 1.1, 2.4), "B is 1.50 [1.10, 2.40] times"),
        ((0.99, 0.94, 1.04), "B is 0.94 to 1.04 times"),
        ((1.2,), "B is 1.20 times"),
    ],
)
def test_the_sentence(numbers, words):
    assert words in write_sentence(
        answer(*numbers, pairs=1 if len(numbers) == 1 else 3)
    )


def test_what_could_not_be_compared_says_why():
    reason = Statement("no-good-run", values={"runs": 3, "side": "before"})
    statement = answer(reason=reason)
    assert statement.kind == "ab-no-answer"
    named = Statement("no-good-run", values={"runs": 3, "side": "A"})
    assert statement.values["reasons"] == [write_sentence(named)]


def test_runs_that_may_differ_otherwise_have_no_answer():
    unlike = [
        ("CPU model", INCOMPARABLE),
        ("kernel", CAUTION),
        ("CPU model", INCOMPARABLE),
    ]
    statement = answer(1.27, 1.24, 1.30, unlike=unlike)
    assert statement.kind == "ab-unlike"
    assert statement.values == {"facts": ["CPU model"]}
    assert answer(1.27, 1.24, 1.30, unlike=unlike[1:2]).kind == "ab-faster"
    statement = answer(
        1.27, 1.24, 1.30, unlike=[*unlike, ("--num_units", INCOMPARABLE)]
    )
    assert statement.kind == "ab-other-work"
    assert statement.values == {"options": ["--num_units"]}
