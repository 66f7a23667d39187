"""Which cell or column is blamed: the odd one out, once, with its cause; and honest readings, where nothing is."""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import pytest

from tests.support.audit_tables import run

PLAIN = [("GPUs", "images/s", "speedup", "efficiency"), (1, 123.0, 1.00, "100%"), (2, 233.7, 1.90, "95%"),
         (4, 442.8, 3.60, "90%"), (8, 836.4, 6.80, "85%"), (16, 1574.4, 12.80, "80%")]  # fmt: skip


def _printed(cell):
    """Two decimals below a hundred, as a person would."""
    return f"{cell:.2f}" if isinstance(cell, float) and cell < 100 else str(cell)


def table(rows, columns=None, name="images/s"):
    """Tab-parted text of some columns."""
    rows = [[row[k] for k in columns] for row in rows] if columns else rows
    return "\n".join("\t".join(_printed(cell) for cell in row) for row in rows).replace("images/s", name) + "\n"


def spoiled(*changes):
    """PLAIN with (row, column, value) changed."""
    rows = [list(row) for row in PLAIN]
    for row, column, value in changes:
        rows[row][column] = value
    return rows


def column(k, values):
    return spoiled(*((row, k, value) for row, value in zip(range(1, 6), values)))


CELLS = {  # what was spoiled -> the one finding: (line, column, stands, in the expected, in the cause)
    "rate": (spoiled((3, 1, 390.0)), (4, "images/s", "390.0", "442.8", "")),
    "speedup": (spoiled((3, 2, 3.06)), (4, "speedup", "3.06", "3.60", "two digits exchanged")),
    "efficiency": (spoiled((3, 3, "70%")), (4, "efficiency", "70%", "90", "")),
    "rate of the baseline": (spoiled((1, 1, 132.0)), (2, "images/s", "132.0", "123.0", "baseline")),
    "rate of one worker": (spoiled((4, 1, 104.55)), (5, "images/s", "104.55", "836.4", "one worker's, not the total of 8")),
    "devices": (spoiled((4, 0, 9)), (5, "GPUs", "9", "8", "of 8 devices")),
    "a lost digit": (spoiled((4, 1, "86.4")), (5, "images/s", "86.4", "836.4", "a digit too few")),
    "too few digits to tell": (spoiled((3, 3, "7%")), (4, "efficiency", "7%", "90", "made from other numbers")),
    "point of a speedup": (spoiled((4, 2, "68.0")), (5, "speedup", "68.0", "6.8", "factor of ten")),
    "speedup of the row above": (spoiled((4, 2, "3.60")), (5, "speedup", "3.60", "6.80", "copied")),
}  # fmt: skip
COLUMNS = {
    "all speedups": (column(2, [1.0, 1.5, 2.3, 3.1, 4.4]), (3, "speedup", "1.50", "1.900", "neither the rates nor the eff")),
    "all efficiencies": (column(3, ["100%", "97%", "91%", "88%", "86%"]), (3, "efficiency", "97%", "95.0", "whole column")),
    "all rates": (column(1, [123.0, 150.0, 200.0, 420.0, 700.0]), (3, "images/s", "150.0", "233.7", "neither the speedups")),
    "speedup and efficiency exchanged": (
        [PLAIN[0], *[(n, rate, eff, up) for n, rate, up, eff in PLAIN[1:]]],
        (3, "speedup", "95%", "", "the columns speedup and efficiency are exchanged"),
    ),
    "speedups a row too high": (
        column(2, [1.0, 3.6, 6.8, 12.8, 24.0]), (3, "speedup", "3.60", "1.90", "that of the row below"),
    ),
    "speedups of the rows above": (
        column(2, [1.0, 1.0, 1.9, 3.6, 6.8]), (3, "speedup", "1.00", "1.90", "that of the row above"),
    ),
    "efficiencies of half the devices": (
        column(3, ["100%", "190%", "180%", "170%", "160%"]), (3, "efficiency", "190%", "95.0", "every number is 2 times"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*CELLS, *COLUMNS])
def test_one_cause_is_one_finding_at_its_place(tmp_path, name):
    rows, (line, header, stands, expected, cause) = {**CELLS, **COLUMNS}[name]
    report = run(tmp_path, table(rows), "t.txt")
    assert len(report.findings) == 1, report.findings
    found = report.findings[0]
    assert (found.line, found.column, found.stands) == (line, header, stands), found
    assert expected in found.expected and cause in found.cause, found


TIMED = [("GPUs", "images/s", "seconds", "speedup"), (1, 100.0, 900.0, 1.00), (2, 190.0, 500.0, 1.80),
         (4, 360.0, 300.0, 3.00), (8, 680.0, 200.0, 4.50)]  # fmt: skip
HONEST = {  # table -> what is said of it
    "gains": [("GPUs", "images/s", "speedup"), (1, 100.0, "0%"), (2, 190.0, "90%"), (4, 360.0, "260%"), (8, 680.0, "580%")],
    "per cent": [("GPUs", "images/s", "speedup"), (1, 100.0, "100%"), (2, 190.0, "190%"), (4, 360.0, "360%")],
    "speedups of the times": TIMED,
    "steps": [("GPUs", "images/s", "speedup"), (1, 100.0, 1.00), (2, 190.0, 1.90), (4, 360.0, 1.89), (8, 680.0, 1.89)],
    "another baseline row": [("GPUs", "images/s", "speedup"), (1, 100.0, 0.53), (2, 190.0, 1.00), (4, 360.0, 1.89)],
    "a baseline on four": [("GPUs", "images/s", "speedup"), (4, 360.0, 1.00), (8, 680.0, 1.89), (16, 1200.0, 3.33)],
    "four times on four": [("GPUs", "images/s", "speedup"), (4, 360.0, 4.00), (8, 680.0, 7.56), (16, 1200.0, 13.33)],
    "a worker's rate that says so": [
        ("GPUs", "images/s per GPU", "speedup"), (1, 100.0, 1.00), (2, 95.0, 1.90), (4, 90.0, 3.60), (8, 85.0, 6.80)],
    "steps of devices that go in step": [("GPUs", "it/s", "batch per GPU", "speedup"), (1, "10", 32, 1.00), (2, "9.5", 32, 1.90)],
    "steps, and no batch": [("GPUs", "it/s", "speedup"), (1, "10", 1.00), (2, "9.5", 1.90), (4, "9.0", 3.60)],
    "another precision": [
        ("GPUs", "images/s", "speedup fp16"), (1, 100.0, 2.50), (2, 190.0, 2.61), (4, 360.0, 2.70), (8, 680.0, 2.41)],
    "efficiency against a better one": [
        ("GPUs", "speedup", "efficiency"), (1, 1.00, "95%"), (2, 1.90, "90%"), (4, 3.60, "86%"), (8, 6.80, "81%")],
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_readings_are_no_findings(tmp_path, name):
    report = run(tmp_path, table(HONEST[name]), "t.txt")
    assert report.findings == [], report.findings


@pytest.mark.parametrize("columns", [(0, 1, 2), (0, 1, 3), (0, 2, 3)])
def test_two_columns_that_never_agree_are_one_finding(tmp_path, columns):
    odd = column(columns[-1], ["100%", "97%", "91%", "88%", "86%"] if columns[-1] == 3 else [1.0, 1.5, 2.3, 3.1, 4.4])
    assert run(tmp_path, table(PLAIN, columns), "good.txt").findings == []
    (found,) = run(tmp_path, table(odd, columns), "t.txt").findings
    assert found.line == 3 and "the whole column" in found.cause and found.row.endswith("3 other rows"), found


def test_a_total_that_neither_its_factor_nor_the_efficiency_bears_out_is_blamed_itself(tmp_path):
    rows = [
        ("GPUs", "img/s per GPU", "img/s", "efficiency"),
        (1, 100, 100, "100%"),
        (4, 95, 380, "95%"),
        (8, 90, 730, "90%"),
    ]
    (found,) = run(tmp_path, table(rows), "t.txt").findings  # 730 / 720 is no number of accumulated steps
    assert (found.line, found.column, found.stands) == (4, "img/s", "730") and "720" in found.expected, found
    rows[3] = (8, 99, 720, "90%")
    (found,) = run(tmp_path, table(rows), "t.txt").findings
    assert (found.line, found.column, found.stands) == (4, "img/s per GPU", "99") and "90.0" in found.expected, found


def test_the_finer_of_two_columns_says_what_is_in_line(tmp_path):
    rows = [("GPUs", "tokens/s", "speedup"), (1, 1000, "1.0"), (2, 1950, "1.9"), (4, 3700, "3.7"), (8, 7000, "7.2")]
    (found,) = run(tmp_path, table(rows), "t.txt").findings
    assert (found.line, found.column, found.stands) == (5, "speedup", "7.2"), found


def test_of_columns_that_are_models_that_of_the_row_is_named(tmp_path):
    rows = [("GPUs", "InceptionV3", "ResNet-50"), (1, 142, 219), (2, 284, 422), (4, 569, 852), (8, 1131, "173.4")]
    (found,) = run(tmp_path, "Images/s\n\n" + table(rows), "t.txt").findings
    assert (found.line, found.column, found.stands) == (7, "ResNet-50", "173.4"), found


def test_an_efficiency_that_a_coarse_speedup_allows_is_expected_by_the_times(tmp_path):
    rows = [
        ("GPUs", "time (s)", "speedup", "efficiency"),
        (1, "490.97", "1.0", "100.0%"),
        (2, "245.49", "2.0", "101.4%"),
    ]
    (found,) = run(tmp_path, table(rows), "t.txt").findings
    assert (found.column, found.stands, found.expected) == ("efficiency", "101.4%", "100.00% [99.99%, 100.00%]")


REPEATS = [(752, "7.52", 94.0), (697, "6.97", 87.1), (711, "7.11", 88.9), (595, "5.95", 74.4), (640, "6.40", 80.0)]


@pytest.mark.parametrize(
    ("share", "cause"), [(1, "each number is that of the row below"), (0.5, "every number is 0.5 times")]
)
def test_efficiencies_of_repeats_on_as_many_devices_are_wrong_as_a_column(tmp_path, share, cause):
    shares = [of for *_, of in (REPEATS if share < 1 else [*REPEATS[1:], REPEATS[0]])]
    rows = [(8, rate, up, f"{share * of:.1f}%") for (rate, up, _), of in zip(REPEATS, shares)]
    rows = [("GPUs", "images/s", "speedup", "efficiency"), (1, 100, "1.00", "100%"), *rows]
    (found,) = run(tmp_path, table(rows), "t.txt").findings
    assert found.line == 3 and len(found.others) == 4 and cause in found.cause, found
