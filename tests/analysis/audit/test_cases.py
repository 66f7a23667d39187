"""Documents for which the command must print exactly the expected findings.

The documents of tests/golden/audit/cases were made after tables of public projects.
"""

import json
import random

import pytest

from rnn_scaling.commands import audit
from tests.support.audit_tables import find_findings, table
from tests.support.paths import ROOT

CASES = ROOT / "tests/golden/audit/cases"


def read_case(name):
    return (CASES / f"{name}.md").read_text()


def run_audit(tmp_path, capsys, text):
    """Return the findings of the command, as data."""
    (tmp_path / "x.md").write_text(text)
    status = audit.main([str(tmp_path / "x.md"), "--format=json"])
    [report] = json.loads(capsys.readouterr().out)["files"]
    assert status == (1 if report["findings"] else 0), report["error"]
    return report["findings"]


def assert_fits(findings, line, column, value):
    """Assert that the findings fit a number at exactly one cell."""
    places = {}
    for finding in findings:
        for place in finding["places"]:
            places[place["line"], place["column"]] = place
    fit = places[line, column]
    assert (fit["low"] + fit["high"]) / 2 == pytest.approx(value, abs=0.02)


@pytest.mark.parametrize(
    "name, old, new, line, column, value",
    [
        ("group_cells", "", "", 6, "efficiency", 0.479),
        ("user_time", "3.60", "3.06", 5, "Speedup", 3.60),
        ("two_lengths", "3.79", "3.97", 7, "Weak scaling", 3.79),
    ],
)
def test_the_one_fault_of_a_document(
    name, old, new, line, column, value, tmp_path, capsys
):
    text = read_case(name)
    if old:
        assert run_audit(tmp_path, capsys, text) == []
    findings = run_audit(tmp_path, capsys, text.replace(old, new) if old else text)
    assert len(findings) == 1
    assert_fits(findings, line, column, value)


def test_cpu_times_are_ignored(tmp_path, capsys):
    for cpu_time in ("sys", "CPU time (s)"):
        text = read_case("user_time").replace("User Time (s)", cpu_time)
        assert run_audit(tmp_path, capsys, text) == []
        [finding] = run_audit(tmp_path, capsys, text.replace("3.60", "3.06"))
        columns = {place["column"] for place in finding["places"]}
        assert columns == {"Wall Clock Time (s)", "Speedup"}


SWAPS = (
    read_case("swapped_headings"),
    table(
        *("GPUs|img/s|Efficiency|Speedup", "1|100.5|1.00|100%", "2|195.2|1.94|97%"),
        *("4|380.1|3.78|95%", "8|720.3|7.17|90%"),
    ),
    table(  # In each row the speedups differ by less than 1 %.
        "GPUs|FP16 (img/s)|FP32 (img/s)|Speedup FP32|Speedup FP16",
        *("1|800.0|390.0|1.00|1.00", "4|3100.0|1520.0|3.88|3.90"),
        "8|5900.0|2980.0|7.38|7.64",
    ),
)


@pytest.mark.parametrize("text", SWAPS)
def test_swapped_headings(text, tmp_path, capsys):
    titles = [title.strip() for title in text.splitlines()[0].strip("|").split("|")]
    first, second = titles[-2:]
    [finding] = run_audit(tmp_path, capsys, text)
    assert finding["kind"] == "swapped-headings"
    assert {place["column"] for place in finding["places"]} == {first, second}
    right = text.replace(first, "#").replace(second, first).replace("#", second)
    assert run_audit(tmp_path, capsys, right) == []


def test_two_wrong_ratios_of_three(tmp_path, capsys):
    text = read_case("two_errors")
    findings = run_audit(tmp_path, capsys, text)
    assert_fits(findings, 3, "Speedup (TF32 to mixed)", 3.21)
    assert_fits(findings, 4, "Speedup (TF32 to mixed)", 3.21)
    right = text.replace("2.20", "3.21").replace("3.24", "3.21")
    assert run_audit(tmp_path, capsys, right) == []


def test_percentiles_in_proportion_are_not_a_relation():
    rng = random.Random(3)
    rows = []
    for k in range(30):
        p90 = 10 * 1.2**k
        p95 = p90 * 1.03 * (1 + rng.uniform(-0.002, 0.002))
        rows.append(f"{k + 1}|{0.96 * p90 if k == 5 else p90:.2f}|{p95:.2f}")
    head = "Batch size|Latency 90% (ms)|Latency 95% (ms)"
    assert find_findings(table(head, *rows)) == []
