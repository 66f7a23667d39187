"""Documents for which the command must print exactly the expected findings.

The documents of tests/golden/audit/cases were made after tables of public projects.
"""

from __future__ import annotations

import json
import random

import pytest

from rnn_scaling.analysis.audit import derived, documents
from rnn_scaling.analysis.audit.tables import views
from rnn_scaling.commands import audit
from tests.support.audit_tables import found
from tests.support.paths import ROOT

CASES = ROOT / "tests" / "golden" / "audit" / "cases"


def audited(path, capsys):
    """Return the findings of the command, as data."""
    status = audit.main([str(path), "--format=json"])
    (report,) = json.loads(capsys.readouterr().out)["files"]
    assert status == (1 if report["findings"] else 0), report["error"]
    return report["findings"]


def written(tmp_path, capsys, text, name="x.md"):
    (tmp_path / name).write_text(text)
    return audited(tmp_path / name, capsys)


def fitting(findings, line, column):
    """Return the middle of what fits at a place that a finding names."""
    (place,) = [
        place
        for finding in findings
        for place in finding["places"]
        if (place["line"], place["column"]) == (line, column)
    ]
    return (place["low"] + place["high"]) / 2


def test_empty_group_cells_are_filled_downwards(capsys):
    findings = audited(CASES / "group_cells.md", capsys)
    assert len(findings) == 1
    assert fitting(findings, 6, "efficiency") == pytest.approx(0.4789, abs=2e-4)


GROUPS = [
    ("128", "device", "fp32", "1", "5210.40", "1"),
    ("", "", "", "2", "8120.10", "0.7792"),
    ("", "", "", "4", "9980.55", "0.3895"),
    ("", "", "fp16", "1", "7000.20", "1"),
    ("", "", "", "2", "11340.50", "0.8100"),
    ("", "", "", "4", "15010.00", "0.5361"),
    ("256", "local", "fp32", "1", "5910.00", "1"),
    ("", "", "", "2", "9456.00", "0.8000"),
    ("", "", "", "4", "15366.00", "0.6500"),
]
HEADER = ("batch", "kv store", "dtype", "GPUs", "samples/s", "efficiency")


def framed(rows):
    return "\n".join(
        ["|".join(("", *cells, "")) for cells in (HEADER, ["--"] * 6, *rows)]
    )


def with_dittos(rows):
    return framed([[cell or '"' for cell in cells] for cells in rows])


def without_group_cells(rows):
    kept = ["|".join(("", *filter(None, cells[:3]), *cells[3:], "")) for cells in rows]
    return "\n".join(["|".join(("", *HEADER, "")), "|--" * 6 + "|", *kept])


def comma_separated(rows):
    return "\n".join(",".join(cells) for cells in (HEADER, *rows))


def with_devices_first(rows):
    order = (3, 0, 1, 2, 4, 5)
    rows = [[cells[k] for k in order] for cells in (HEADER, ["--"] * 6, *rows)]
    return "\n".join("|".join(("", *cells, "")) for cells in rows)


@pytest.mark.parametrize(
    ("form", "name"),
    [
        (framed, "x.md"),
        (with_dittos, "x.md"),
        (without_group_cells, "x.md"),
        (comma_separated, "x.csv"),
        (with_devices_first, "x.md"),
    ],
)
def test_group_cells_in_other_forms(form, name, tmp_path, capsys):
    line = 1 + form(GROUPS).splitlines().index(
        next(text for text in form(GROUPS).splitlines() if "0.3895" in text)
    )
    findings = written(tmp_path, capsys, form(GROUPS), name)
    assert len(findings) == 1
    assert fitting(findings, line, "efficiency") == pytest.approx(0.4789, abs=2e-4)
    right = [[cell.replace("0.3895", "0.4789") for cell in row] for row in GROUPS]
    assert written(tmp_path, capsys, form(right), name) == []


def first_view(text):
    (table,) = documents.of_text("x", enumerate(text.splitlines(), 1))
    return views(table)[0]


def test_a_number_of_devices_never_has_decimals():
    table = "|GPUs|img/s|\n|-|-|\n|{}|100|\n|{}|190|\n|{}|350|\n|{}|640|\n"
    whole = first_view(table.format("1", "2.0", "4", "8"))
    assert whole.of("devices") == [0]
    assert all(whole.columns[0].items)
    one_slip = first_view(table.format("1", "2.5", "4", "8"))
    assert [bool(item) for item in one_slip.columns[0].items] == [1, 0, 1, 1]
    times = first_view(table.format("8120.10", "9980.55", "3.25", "4"))
    assert times.of("devices") == []


@pytest.mark.parametrize(
    ("name", "series"),
    [
        ("group_cells", [("samples/s", [1, 2, 4])] * 2),
        ("user_time", [("Wall Clock Time (s)", [1, 2, 4, 8])]),
        ("two_lengths", [("Throughput (seq/s)", [1, 4, 16])] * 2),
    ],
)
def test_the_series_that_a_table_holds(name, series):
    found = derived.series(first_view((CASES / f"{name}.md").read_text()))
    assert [
        (one.name.rpartition(", ")[2], [point.devices for point in one.points])
        for one in found
    ] == series


def test_user_and_system_times_are_ignored(tmp_path, capsys):
    assert audited(CASES / "user_time.md", capsys) == []
    text = (CASES / "user_time.md").read_text()
    findings = written(tmp_path, capsys, text.replace("3.60", "3.06"))
    assert fitting(findings, 5, "Speedup") == pytest.approx(3.60, abs=0.01)
    for cpu_time in ("user", "sys", "CPU time (s)", "utime (s)", "user_time"):
        head = text.replace("User Time (s)", cpu_time)
        assert written(tmp_path, capsys, head) == []
        findings = written(tmp_path, capsys, head.replace("3.60", "3.06"))
        assert {place["column"] for f in findings for place in f["places"]} == {
            "Wall Clock Time (s)",
            "Speedup",
        }


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("Sequence length", ("128", "512")),
        ("Hidden size", ("256", "1024")),
        ("Batch size", ("32", "64")),
        ("Model", ("LSTM", "Transformer")),
        ("dtype", ("fp32", "fp16")),
        ("Image size", ("224x224", "512x512")),
    ],
)
def test_a_column_of_parameters_separates_series(column, values, tmp_path, capsys):
    text = (CASES / "two_lengths.md").read_text().replace("Sequence length", column)
    for before, after in zip(("| 128 |", "| 512 |"), values):
        text = text.replace(before, f"| {after} |")
    assert written(tmp_path, capsys, text) == []
    findings = written(tmp_path, capsys, text.replace("3.79", "3.97"))
    assert len(findings) == 1
    assert fitting(findings, 7, "Weak scaling") == pytest.approx(3.79, abs=0.01)


def test_rows_of_two_series_in_any_order(tmp_path, capsys):
    head, rule, *rows = (CASES / "two_lengths.md").read_text().splitlines()
    mixed = "\n".join([head, rule, *rows[::3], *rows[1::3], *rows[2::3]])
    assert written(tmp_path, capsys, mixed) == []
    findings = written(tmp_path, capsys, mixed.replace("14.61", "16.41"))
    assert len(findings) == 1
    assert fitting(findings, 8, "Weak scaling") == pytest.approx(14.61, abs=0.01)


def kinds(findings):
    return [
        (finding["kind"], [place["column"] for place in finding["places"]])
        for finding in findings
    ]


def test_two_swapped_headings_are_found(tmp_path, capsys):
    findings = audited(CASES / "swapped_headings.md", capsys)
    titles = ["Weak scaling - mixed", "Weak scaling - FP32"]
    assert kinds(findings) == [("swapped-headings", titles)]
    text = (CASES / "swapped_headings.md").read_text()
    right = (
        text.replace(titles[0], "#")
        .replace(titles[1], titles[0])
        .replace("#", titles[1])
    )
    assert written(tmp_path, capsys, right) == []


SWAPS = {
    ("Efficiency", "Speedup"): [
        "GPUs|img/s|Efficiency|Speedup",
        "1|100.5|1.00|100%",
        "2|195.2|1.94|97%",
        "4|380.1|3.78|95%",
        "8|720.3|7.17|90%",
    ],
    ("Speedup B", "Speedup A"): [
        "Threads|Time A (s)|Time B (s)|Speedup B|Speedup A",
        "1|40.0|60.0|1.00|1.00",
        "2|21.0|38.0|1.90|1.58",
        "4|11.5|25.0|3.48|2.40",
    ],
    ("Speedup FP32", "Speedup FP16"): [  # which differ by less than 1 % in a row
        "GPUs|FP16 (img/s)|FP32 (img/s)|Speedup FP32|Speedup FP16",
        "1|800.0|390.0|1.00|1.00",
        "4|3100.0|1520.0|3.88|3.90",
        "8|5900.0|2980.0|7.38|7.64",
    ],
    ("Efficiency batch 64", "Efficiency batch 32"): [
        "GPUs|img/s batch 32|img/s batch 64|Efficiency batch 64|Efficiency batch 32",
        "1|80.0|90.0|100%|100%",
        "2|150.0|177.0|94%|98%",
        "4|270.0|340.0|84%|94%",
    ],
}


@pytest.mark.parametrize("titles", SWAPS)
def test_other_swapped_headings(titles, tmp_path, capsys):
    head, *rows = SWAPS[titles]
    rule = "|".join("-" * len(head.split("|")))
    findings = written(tmp_path, capsys, "\n".join([head, rule, *rows]))
    ((kind, columns),) = kinds(findings)
    assert (kind, sorted(columns)) == ("swapped-headings", sorted(titles))
    first, second = titles
    head = head.replace(first, "#").replace(second, first).replace("#", second)
    assert written(tmp_path, capsys, "\n".join([head, rule, *rows])) == []


def test_two_wrong_ratios_of_three(tmp_path, capsys):
    findings = audited(CASES / "two_errors.md", capsys)
    column = "Speedup (TF32 to mixed)"
    assert fitting(findings, 3, column) == pytest.approx(3.21, abs=0.04)
    assert fitting(findings, 4, column) == pytest.approx(3.21, abs=0.04)
    text = (CASES / "two_errors.md").read_text()
    right = text.replace("2.20", "3.21").replace("3.24", "3.21")
    assert written(tmp_path, capsys, right) == []


@pytest.mark.parametrize(
    "header",
    [
        "Speedup (fp32 to bf16)",
        "Speedup (fp32 - bf16)",
        "Speedup (fp32 → bf16)",
        "Speedup bf16 over fp32",
        "Speedup (bf16 / fp32)",
    ],
)
def test_headers_that_name_the_replaced_version(header, tmp_path, capsys):
    def table(*speedups):
        rates = [(905.2, 2905.1), (3570.9, 7141.8), (7040.1, 14100.0), (99.1, 210.5)]
        rows = [
            f"|{old}|{new}|{printed or f'{new / old:.2f}'}|"
            for (old, new), printed in zip(rates, speedups)
        ]
        return "\n".join([f"|img/s fp32|img/s bf16|{header}|", "|-|-|-|", *rows])

    assert written(tmp_path, capsys, table("", "", "", "")) == []
    findings = written(tmp_path, capsys, table("2.20", "", "2.02", ""))
    assert fitting(findings, 3, header) == pytest.approx(3.21, abs=0.04)
    assert fitting(findings, 5, header) == pytest.approx(2.00, abs=0.02)


def test_percentiles_in_proportion_are_not_a_relation():
    rng = random.Random(3)
    rows = []
    for k in range(30):
        p90 = 10 * 1.2**k
        p95 = p90 * 1.03 * (1 + rng.uniform(-0.002, 0.002))
        shown = 0.96 * p90 if k == 5 else p90
        rows.append(f"|{k + 1}|{shown:.2f}|{p95:.2f}|")
    head = "|Batch size|Latency 90% (ms)|Latency 95% (ms)|"
    assert found("\n".join([head, "|-|-|-|", *rows])) == []


def test_speedups_over_another_table_are_not_contradicted():
    head = "Sequence length|Batch size|Throughput (seq/s)|Speedup|Latency (ms)"
    rows = [
        "128|1|105.04|1.277237354|9.52",
        "128|2|184.9|1.671487977|10.82",
        "128|4|301.9|2.448102498|13.25",
        "128|8|421.98|3.149809659|18.96",
        "384|1|74.99|2.15055922|13.34",
        "384|2|109.84|2.709422792|18.21",
        "384|4|142.58|3.313502208|28.05",
        "384|8|168.34|3.823302294|47.52",
    ]
    assert found("\n".join([head, "-|-|-|-|-", *rows])) == []


def test_similar_accuracies_are_not_a_running_sum():
    head = "|GPUs|Accuracy - FP32 (perplexity)|Accuracy - mixed (perplexity)|"
    rows = ["|8|23.12|23.14|", "|16|23.17|23.14|", "|32|23.15|46.29|"]
    assert found("\n".join([head, "|-|-|-|", *rows])) == []
