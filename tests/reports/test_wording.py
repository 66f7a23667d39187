"""Every statement becomes one sentence, whatever number of things it is about."""

from __future__ import annotations

import json
import re
import string

import pytest

from rnn_scaling.analysis.attribution import LossPartName
from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.facts.separation import VARIABLES, make_variable_fact
from rnn_scaling.analysis.facts.table import FACTS
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import wording

INTERVAL = {
    "value": 120.34,
    "low": 118.8,
    "high": 121.9,
    "spread": 1.0,
    "is_wide": False,
}


def sample(spec, count):
    """Return a value that the specification can print, for `count` things."""
    if spec.startswith("interval"):
        return INTERVAL
    if spec == "rates":
        return [
            {"name": f"name{i}", "rate": INTERVAL, "unit": "words"}
            for i in range(count)
        ]
    if spec.startswith("list_of"):
        return list(range(1, count + 1))
    if spec in ("list", "List"):
        return [f"name{i}" for i in range(count)]
    if spec.startswith(("count", "of ", "Of ")) or "|" in spec:
        return count
    return 0.052 * count if spec else f"text{count}"


def strictness(spec):
    """Return a key that orders specifications by how much they restrict a value.

    A list also has a count, so it is the most specific.
    """
    return spec.startswith(("list", "List", "rates")), bool(spec), "|" not in spec


def test_every_template_makes_a_sentence():
    for kind, template in wording.list_all_templates().items():
        for count in (1, 2, 9):
            check_template(kind, template, count)


def check_template(kind, template, count):
    fields = [
        (name, spec)
        for _, name, spec, _ in string.Formatter().parse(template)
        if name and name != "subject"
    ]
    specs: dict[str, list[str]] = {}
    for name, spec in fields:
        specs.setdefault(name, []).append(spec)
    values = {
        name: sample(max(of_name, key=strictness), count)
        for name, of_name in specs.items()
    }
    for spec in {spec for _, spec in fields}:
        for name in re.findall(r"{(\w+)}", spec):
            values.setdefault(name, count + 1)
    statement = Statement(kind, "series", values)
    text = wording.write_sentence(statement)
    assert text and not re.search(r"[{}]|  |\bnan\b", text), (kind, text)
    assert json.loads(json.dumps(statement.data()))["kind"] == kind


@pytest.mark.parametrize(
    "spec, value, expected",
    [
        ("list", ["A", "B", "C"], "A, B and C"),
        ("list", list("ABCDEFG"), "A, B, C, D, E and 2 more"),
        ("list", [], "none"),
        ("List", ["the rest", "B"], "The rest and B"),
        ("list_of device", [1], "1 device"),
        ("list_of device", [2], "2 devices"),
        ("list_of device", [1, 1024], "1 and 1,024 devices"),
        ("count run", 2000, "2,000 runs"),
        ("count process|processes", 2, "2 processes"),
        ("count run", ["A", "B"], "2 runs"),
        ("of 6 run", 2, "2 of 6 runs"),
        ("of 1 series|series", 1, "the series"),
        ("Of 1 series|series", 1, "The series"),
        ("Of 3 series|series", 1, "1 of 3 series"),
        ("of 6 run", 6, "all 6 runs"),
        ("of 1 run", 1, "the run"),
        ("is|are", ["A", "B"], "are"),
    ],
)
def test_kit(spec, value, expected):
    assert wording._KIT.format(f"{{x:{spec}}}", x=value) == expected


def test_a_kind_without_a_template_is_an_error():
    with pytest.raises(KeyError):
        wording.write_sentence(Statement("there is no such kind"))


NAMES_OF_EFFECTS = {
    *(fact.effect or fact.name for fact in FACTS),
    *(make_variable_fact(start).effect for start in VARIABLES),
    *differences.WORK_OPTIONS.values(),
    *differences.MEASURING_OPTIONS.values(),
    *(part.value for part in LossPartName if part is not LossPartName.UNEXPLAINED),
}


def test_every_effect_has_a_phrase_in_the_unit_of_the_runs():
    for name in NAMES_OF_EFFECTS:
        text = wording.write_sentence(Statement(name, values={"unit": "tokens"}))
        assert text and "{" not in text and "items/s" not in text


def test_a_paragraph_repeats_no_sentence():
    advice = Statement("quiet-machine")
    assert wording.write_sentences([advice, advice]) == wording.write_sentence(advice)
