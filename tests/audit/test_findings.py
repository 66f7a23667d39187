"""Faults in tables: the right cell is blamed, and nothing where all relations hold."""

from __future__ import annotations

import pytest

from rnn_scaling.audit import relations
from tests.support import audit_tables
from tests.support.audit_tables import found, markdown, places

GOOD = """
| GPUs | img/s | Speedup | Efficiency |
|---|---|---|---|
| 1 | 100.5 | 1.00 | 100% |
| 2 | 195.2 | 1.94 | 97% |
| 4 | 380.1 | 3.78 | 95% |
| 8 | 720.3 | 7.17 | 90% |
"""
TIMES = """
| Workers | Time (s) | Speedup |
|---|---|---|
| 1 | 120.4 | 1.00 |
| 2 | 62.3 | 1.93 |
| 4 | 33.1 | 3.64 |
| 8 | 18.9 | 6.37 |
"""


@pytest.mark.parametrize("seed", range(40))
def test_consistent_tables_have_no_finding(seed):
    assert found(markdown(audit_tables.make(seed))) == []


@pytest.mark.parametrize(
    ("old", "new", "blamed"),
    [
        ("3.78", "3.18", (6, "Speedup")), ("195.2", "159.2", (5, "img/s")), ("95%", "59%", (6, "Efficiency")),
        ("720.3", "72.03", (7, "img/s")), ("100.5", "150.5", (4, "img/s")), ("97%", "0.97%", (5, "Efficiency")),
    ],
)  # fmt: skip
def test_the_cell_that_the_others_contradict(old, new, blamed):
    assert found(GOOD) == []
    (finding,) = found(GOOD.replace(old, new))
    assert [(place.line, place.column) for place in finding.places] == [blamed]
    (place,) = finding.places
    assert 0.99 * place.low <= float(old.rstrip("%")) <= 1.01 * place.high, "the right number fits"


def test_of_two_columns_either_may_be_wrong():
    (finding,) = found(TIMES.replace("3.64", "3.04"))
    assert finding.kind == "one-of" and {(6, "Time (s)"), (6, "Speedup")} == set(places(TIMES.replace("3.64", "3.04")))


@pytest.mark.parametrize(
    ("one", "two", "lines"),
    [("3.78", "1.94", {5, 6}), ("195.2", "380.1", {5, 6}), ("97%", "90%", {5, 7}), ("100.5", "720.3", {4, 7})],
)
def test_exchanged_numbers(one, two, lines):
    text = GOOD.replace(one, "#").replace(two, one).replace("#", two)
    (finding,) = found(text)
    assert finding.kind in ("exchange", "numbers") and {place.line for place in finding.places} == lines


def test_the_slip_is_named():
    hints = {}
    for new in ("37.8", "3.87"):
        (finding,) = found(GOOD.replace("3.78", new))
        hints[new] = finding.places[0].hint
    assert hints == {"37.8": "decimal point one place off", "3.87": "digits exchanged"}


def test_a_column_of_one_device_for_all():
    rows = [(1, 100.0, 1.0), (2, 95.0, 1.90), (4, 92.5, 3.70), (8, 88.75, 7.10)]
    text = "| GPUs | img/s | Speedup |\n|--|--|--|\n" + "".join(f"|{n}|{r:.1f}|{s:.2f}|\n" for n, r, s in rows)
    assert [(finding.kind, finding.relation) for finding in found(text)] == [("column", "per device")]


def test_a_column_that_follows_from_nothing():
    text = GOOD.replace("100%", "88%").replace("97%", "71%").replace("95%", "63%").replace("90%", "47%")
    assert [finding.kind for finding in found(text)] == ["column"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("|n|img/s|\n|-|-|\n|1|100|\n|2|190|\n|3|280|\n|4|640|\n|5|450|\n", 6),  # more than any machine gives
        ("|n|img/s|\n|-|-|\n|1|100|\n|2|190|\n|4|37|\n|8|700|\n", 5),  # far below both neighbours
        ("|n|img/s|\n|-|-|\n|1|103.7|\n|2|201.3|\n|4|388.9|\n|8|388.9|\n", 6),  # copied
    ],
)
def test_what_no_machine_does(text, line):
    (finding,) = found(text)
    assert finding.strength == "unlikely" and finding.places[0].line == line


@pytest.mark.parametrize(
    "text",
    [
        # Another baseline than the first row, outside of the table, a change, a gain, weak scaling by time, cut digits.
        "|Method|time (ms)|Speedup|\n|-|-|-|\n|a|48.2|2.07x|\n|base|100|1.00x|\n|c|33.4|2.99x|\n|d|21.0|4.76x|\n",
        "|Threads|Time (s)|Speedup|\n|-|-|-|\n|2|50.2|1.99|\n|4|26.1|3.83|\n|8|14.4|6.94|\n|16|9.9|10.1|\n",
        "|Case|old (ms)|new (ms)|change|\n|-|-|-|-|\n|a|100|90|-10%|\n|b|50|60|+20%|\n|c|80|20|-75%|\n|d|40|44|+10%|\n",
        "|GPUs|Time (s)|Efficiency|\n|-|-|-|\n|1|10.0|100%|\n|2|10.5|95%|\n|4|11.1|90%|\n|8|12.5|80%|\n",
        "|GPUs|img/s|Speedup|\n|-|-|-|\n|1|100|1.0|\n|2|196|1.9|\n|4|379|3.7|\n|8|718|7.1|\n",
        "|Model|1 GPU|2 GPUs|4 GPUs|\n|-|-|-|-|\n|a|100|190|370|\n|b|50|99|195|\n|c|70|139|271|\n",
        "|Step|Rank|Time|\n|-|-|-|\n|1|1|0.51|\n|2|1|0.52|\n|3|2|0.49|\n",
    ],
)
def test_other_readings_are_no_fault(text):
    assert found(text) == []


def test_sums_and_totals():
    text = "|Part|a|b|\n|-|-|-|\n|x|10|4|\n|y|20|5|\n|z|5|6|\n|Total|35|15|\n"
    assert found(text) == []
    assert places(text.replace("|15|", "|25|"))[-1][0] in (3, 4, 5, 6)


def test_a_new_relation_is_one_line(monkeypatch):
    text = "|GPUs|Time (s)|GPU seconds|\n|-|-|-|\n|1|100.0|100.0|\n|2|60.0|120.0|\n|4|35.0|140.0|\n|8|20.0|16.0|\n"
    assert (6, "GPU seconds") in places(text)
    without = tuple(relation for relation in relations.RELATIONS if relation.target != "cost")
    monkeypatch.setattr("rnn_scaling.audit.candidates.RELATIONS", without)
    assert found(text) == []
