"""The last line of ab: which of two settings is faster."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.facts.table import CAUTION, INCOMPARABLE
from rnn_scaling.reports import faster

SIDES = faster.Sides("--xla=true", "only the common flags")


def sentence(value=None, low=None, high=None, reason="", pairs=3, unlike=()):
    error = None if low is None else math.log(high / low)
    ratio = value and Interval(value, low, high, "", error, 2.0, (pairs, pairs))
    comparison = ratio and SimpleNamespace(ratio=ratio)
    result = SimpleNamespace(comparison=comparison, reason=reason, runs=(pairs, pairs))
    found = [SimpleNamespace(difference=SimpleNamespace(what=what, severity=severity)) for what, severity in unlike]
    return faster.sentence(SimpleNamespace(results=(result,), found=found), SIDES)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((1.27, 1.24, 1.30), "B is 1.27 ± 0.03 times as fast as A. A: --xla=true; B: only the common flags"),
        ((1 / 1.27, 1 / 1.30, 1 / 1.24), "A is 1.27 ± 0.03 times as fast as B. A: --xla=true"),
        ((1.5, 1.1, 2.4), "B is 1.50 [1.10, 2.40] times as fast as A."),
        ((0.99, 0.94, 1.04), "A and B cannot be told apart: B is 0.94 to 1.04 times as fast as A (95 % interval)."),
        ((1.001, 0.998, 1.004), "A and B cannot be told apart: B is 0.998 to 1.004 times as fast as A"),
        ((1.2,), "A and B cannot be told apart: B is 1.20 times as fast as A in 1 pair; two pairs of runs or more"),
    ],
)
def test_the_sentence(numbers, words):
    text = sentence(*numbers, pairs=1 if len(numbers) == 1 else 3)
    assert words in text, text
    assert text.endswith("A: --xla=true; B: only the common flags")


def test_what_could_not_be_compared_says_why():
    text = sentence(reason="none of 3 runs is good before")
    assert text.startswith("A and B cannot be told apart: none of 3 runs is good before. A: --xla=true")


def test_runs_that_may_differ_otherwise_have_no_answer():
    unlike = [("CPU model", INCOMPARABLE), ("kernel", CAUTION), ("CPU model", INCOMPARABLE)]
    text = sentence(1.27, 1.24, 1.30, unlike=unlike)
    assert text.startswith("A and B cannot be told apart: their runs may differ in CPU model, too. A: --xla=true")
    assert "1.27 ± 0.03" in sentence(1.27, 1.24, 1.30, unlike=unlike[1:2])
    text = sentence(1.27, 1.24, 1.30, unlike=[*unlike, ("--num_units", INCOMPARABLE)])
    assert text.startswith("A and B cannot be compared: they do not do the same work (--num_units). A: --xla=true")
