"""Every form of the same table reads the same; cells, headers and second header lines."""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rnn_scaling.audit.scaling_table import exact, parse_cell
from rnn_scaling.audit.tables import reading
from rnn_scaling.audit.tables.columns import recognise
from tests.support.audit_tables import run

HEADER = ["GPU number", "Batch size", "Total time to process 20 batches (s)", "words/s", "Speedup ratio"]
ROWS = [["1", "384", "27.720", "55411.433", ""], ["2", "384", "28.461", "107938.535", "1.95"]]


def forms() -> dict[str, tuple[str, str]]:
    """Name of the form -> (file name, text)."""
    blank = [[cell or "n/a" for cell in row] for row in ROWS]
    pipes = "\n".join("|" + "|".join(row) + "|" for row in [HEADER, [":--"] * 5, *ROWS])
    objects = [dict(zip(HEADER, [int(r[0]), 384, float(r[2]), float(r[3]), float(r[4] or "nan")])) for r in ROWS]
    objects[0]["Speedup ratio"] = None
    return {
        "markdown": ("t.md", f"# Results\n\nProse | with a pipe.\n\n{pipes}\n\nMore.\n"),
        "indented": ("t.txt", "* item\n\n" + "\n".join("  " + line for line in pipes.splitlines()) + "\n"),
        "no outer pipes": (
            "t.md",
            "\n".join(line.strip("|") if "--" in line else line[1:-1] for line in pipes.splitlines()),
        ),
        "windows": ("t.md", pipes.replace("\n", "\r\n")),
        "tabs": ("t.txt", "Prose.\n\n" + "\n".join("\t".join(row) for row in [HEADER, *ROWS]) + "\n\nProse."),
        "blanks": ("t.txt", "Prose:\n" + "\n".join("   ".join(row) for row in [HEADER, *blank])),
        "csv": ("t.csv", "\n".join(",".join(row) for row in [HEADER, *ROWS])),
        "csv with a mark": (
            "t.csv",
            "\ufeff" + "\n".join(",".join(f'"{cell}"' for cell in row) for row in [HEADER, *ROWS]),
        ),
        "semicolons": ("t.csv", "\n".join(";".join(row) for row in [HEADER, *ROWS])),
        "tsv": ("t.tsv", "\n".join("\t".join(row) for row in [HEADER, *ROWS])),
        "json": ("t.json", json.dumps(objects)),
        "json columns": ("t.json", json.dumps({k: [o[k] for o in objects] for k in HEADER})),
        "json inside": ("t.json", json.dumps({"name": "x", "results": objects})),
        "json lines": ("t.jsonl", "\n".join(json.dumps(o) for o in objects)),
    }


@pytest.mark.parametrize("form", forms())
def test_every_form_reads_the_same(tmp_path, form):
    name, text = forms()[form]
    (tmp_path / name).write_bytes(text.encode())
    tables = [table for table in reading.tables(tmp_path / name) if table.rows]
    assert len(tables) == 1
    one, two = tables[0].rows
    assert (one.devices, two.devices) == (1, 2)
    assert (two.batch_size.value, two.batches.value, two.rate_unit) == (384, 20, "words/s")
    assert (one.speedup, two.speedup.value) == (None, 1.95)
    assert (two.seconds.value, two.rate.value) == (28.461, 107938.535)
    if "json" not in form:
        assert (two.seconds.digits, two.speedup.digits) == (3, 2)
        assert text.splitlines()[two.line - 1].count("28.461") == 1


CELLS = {
    "**4**": 4, "_**1**_": 1, "`2`": 2, "1.95x": 1.95, "88 %": 0.88, "96.42%": 0.9642, "1,281": 1281, "55.4k": 55400,
    "27.720 s": 27.72, "4 GPUs": 4, "1e3": 1000, "-3.5": -3.5, "≈30": 30, "5.5 images/sec": 5.5,
    "n/a": None, "N/A": None, "": None, "error": None, "0,1": None, "nan": None, "inf": None, "7gforce": None,
    "Tesla M60": None, "1281 [187 / 1094]": None, "1.2.3": None, "2018-12-31": None, "-": None, "9" * 500: None,
}  # fmt: skip


@pytest.mark.parametrize("text", CELLS)
def test_cells(text):
    cell = parse_cell(text)
    assert (cell.value if cell else None) == CELLS[text]


SPREADS = {
    "1.63 ± 1.86": (1.63, 2, 1.86), "34292.8 +/- 4": (34292.8, 1, 4), "1.63 (0.1)": (1.63, 2, 0.1),
    "1.63 (sd 0.02)": (1.63, 2, 0.02), "**1.63** ± 0.02": (1.63, 2, 0.02), "1.63x ± 0.02x": (1.63, 2, 0.02),
    "1.63 [1.5, 1.7]": (1.63, 2, 0.13), "1.63 (95 % CI 1.5 to 1.7)": (1.63, 2, 0.13), "1.63 [1.5-1.7]": (1.63, 2, 0.13),
    "77.5 % ± 1.2": (0.775, 3, 0.012), "88 % [85 %, 90 %]": (0.88, 2, 0.03), "55.4k ± 0.2k": (55400, -2, 200),
    "160 [120, 220]": (160, -1, 60), "1,600 [1,200, 2,200]": (1600, -2, 600), "160 [121, 220]": (160, 0, 60),
    "55.4 ± 0.2 s": (55.4, 1, 0.2), "8,200 ± 320": (8200, -1, 320), "100 ± 5": (100, 0, 5), "0 [0, 0]": (0, 0, 0),
}  # fmt: skip


@pytest.mark.parametrize("text", SPREADS)
def test_a_spread_stands_beside_its_number_and_rounds_it_by_zeros_of_both_alone(text):
    cell = parse_cell(text)
    assert (cell.value, cell.digits, cell.spread) == pytest.approx(SPREADS[text])
    assert not set(cell.text) & set("±[(")


@pytest.mark.parametrize(
    "text", ["1.63 ± 2 %", "12 [5, 7]", "4 (2 nodes)", "1 ± 2 ± 3", "± 3", "1.63 (-0.1)", "1.2 (x)"]
)
def test_what_is_no_spread_is_not_read_as_one(text):
    assert parse_cell(text) is None


BOUNDS = (
    "GPUs,images/s,images/s std,speedup,speedup_low,speedup (upper),95% CI,half_width,runs_ok,runs_failed,gizmo high"
)


def test_bounds_and_counts_of_runs_are_no_quantities(tmp_path):
    (tmp_path / "t.csv").write_text(f"{BOUNDS}\n1,100,2,1.00,,,,0.1,3,1,7\n2,190,3,1.90,1.70,2.00,x,0.1,1,3,8\n")
    (table,) = reading.tables(tmp_path / "t.csv")
    aside = [column for column in table.columns if table.roles.get(column) == "aside"]
    assert aside == BOUNDS.split(",")[2:3] + BOUNDS.split(",")[4:10]
    two = table.rows[1]
    assert (two.rate.spread, two.speedup.spread) == (3, pytest.approx(0.2)) and two.series == ""
    assert (two.speedup.value, two.speedup.digits, set(two.extra)) == (1.9, 2, {"gizmo high"})


def test_bounds_are_in_no_sum_ratio_or_exchange(tmp_path):
    text = (
        "read,load,load low,load high,total load,total load low,load vs. read\n1.0,2.0,1.5,2.5,2.0,0.1,2.00\n"
        "1.1,2.2,1.5,2.5,2.2,0.1,2.00\n1.0,2.0,2.5,1.5,2.0,0.1,2.00\ntotal,6.2,9,9,6.2,9,\n"
    )
    report = run(tmp_path, text, "t.csv")
    assert report.findings == [] and report.comparisons >= 5
    (found,) = run(tmp_path, text.replace("2.2,0.1,2.00", "2.2,0.1,2.20"), "t.csv").findings
    assert (found.check, found.line) == ("ratios", 3)


def test_a_bound_below_zero_is_no_fault(tmp_path):
    report = run(tmp_path, "GPUs,images/s,low,high\n1,100,-9,209\n2,190,-10,nan\n", "t.csv")
    assert report.tables == 1 and report.findings == []


def test_a_bound_without_its_number_stays_a_quantity(tmp_path):
    (tmp_path / "t.csv").write_text("GPUs,images/s low,speedup\n1,100,1.00\n2,190,1.90\n")
    (table,) = reading.tables(tmp_path / "t.csv")
    assert [row.rate.value for row in table.rows] == [100, 190]


def test_every_cell_that_is_not_understood_is_said(tmp_path):
    rows = ["1|100|1.00|a", "2|190 or so|1.90|b", "4|n/a|~|c", "eight|700||", "16|failed|14.1 ± 2 %|d"]
    (tmp_path / "t.md").write_text(
        "\n".join(["|GPUs|images/s|speedup|host|", "|-|-|-|-|", *(f"|{row}|" for row in rows)])
    )
    (table,) = reading.tables(tmp_path / "t.md")
    assert [note.partition("; ")[0] for note in table.notes] == [
        "line 6: 'eight' under 'GPUs' is no number",
        "line 4: '190 or so' under 'images/s' is no number",
        "line 5: '~' under 'speedup' is no number",
        "line 7: '14.1 ± 2 %' under 'speedup' is no number",
    ]
    (tmp_path / "t.md").write_text("|GPUs|images/s|speedup|\n|-|-|-|\n|1|100|one|\n|2|190|two|\n")
    (table,) = reading.tables(tmp_path / "t.md")
    assert "number ('one' at line 3)" in table.notes[0]


def test_the_size_of_all_devices_is_not_that_of_one(tmp_path):
    (tmp_path / "t.md").write_text("|GPUs|Batch size|images/s|\n|-|-|-|\n|1|64 in all|100|\n|2|64 in all|190|\n")
    (table,) = reading.tables(tmp_path / "t.md")
    assert [(row.batch_size, row.global_batch_size.value) for row in table.rows] == [(None, 64)] * 2


@pytest.mark.parametrize("batches", ["2/3", "2 to 4"])
def test_seconds_of_several_numbers_of_batches_are_not_compared(batches):
    assert recognise(f"Total time to process {batches} batches (s)").role == ""
    assert recognise("Total time to process 20 batches (s)").batches == 20


def test_a_cell_knows_its_rounding():
    for text, low, high in (
        ("1.95x", 1.945, 1.955),
        ("88 %", 0.875, 0.885),
        ("55.4k", 55350, 55450),
        ("41", 40.5, 41.5),
    ):
        cell = parse_cell(text)
        assert (cell.low, cell.high) == pytest.approx((low, high))
    assert exact(27.72).high - exact(27.72).low < 0.011
    assert exact(3).high - exact(3).low < 1e-7


ROLES = {
    "GPU number": "devices", "GPUs": "devices", "num_devices": "devices", "_**GPU card number**_": "devices",
    "# GPUs": "devices", "workers": "devices", "world size": "devices", "Batch size": "batch_size", "batch": "batch_size",
    "global batch size": "global_batch_size", "batches": "batches", "num_steps": "batches",
    "Total time to process 20 batches (s)": "seconds", "step time (ms)": "seconds", "wall time": "seconds",
    "Processing speed (words/s)": "rate", "images/sec": "rate", "tokens per second": "rate", "Throughput": "rate",
    "images/sec per GPU": "rate_each", "Speedup ratio": "speedup", "speed-up": "speedup",
    "scaling efficiency (%)": "efficiency", "total words": "work",
    "memoryClockRate (GHz)": "", "learning rate": "", "busbw (GB/s)": "", "% of NCHW": "", "number of params": "",
    "speedup PIX vs. PHB": "compared", "ratio (a / b)": "compared", "model": "",
}  # fmt: skip


@pytest.mark.parametrize("header", ROLES)
def test_headers(header):
    assert recognise(header.replace("*", "").strip("_")).role == ROLES[header]


def test_milliseconds_are_seconds(tmp_path):
    (tmp_path / "t.csv").write_text("GPUs,step time (ms),images/s\n1,100.0,320\n2,110.0,581.8\n")
    (table,) = reading.tables(tmp_path / "t.csv")
    assert [(r.seconds.value, r.seconds.digits, r.batches.value) for r in table.rows] == [(0.1, 4, 1), (0.11, 4, 1)]


def test_a_wide_table_is_a_point_a_group(tmp_path):
    (tmp_path / "t.md").write_text(
        "| machine | GPUs | images/sec | speedup | images/sec | speedup |\n|-|-|-|-|-|-|\n||| ours | ours | theirs | theirs |\n"
        "| a | 1 | 31.71 | 1.00x | 47.49 | 1.00x |\n| a | 2 | 53.35 | 1.68x | error | N/A |\n"
    )
    (table,) = reading.tables(tmp_path / "t.md")
    assert [(r.line, r.series, r.devices, r.rate.value) for r in table.rows] == [
        (4, "ours / a", 1, 31.71), (4, "theirs / a", 1, 47.49), (5, "ours / a", 2, 53.35),
    ]  # fmt: skip


def test_what_is_not_understood_is_said(tmp_path):
    (tmp_path / "t.csv").write_text("GPUs,images/s,gizmo\n1,100,7\n2,190,8\n")
    (table,) = reading.tables(tmp_path / "t.csv")
    assert "gizmo" in table.notes[0] and table.rows[1].extra["gizmo"].value == 8


def test_the_seconds_are_those_that_the_speedup_names(tmp_path):
    head = "GPUs\tInit time(s)\tTrain time(s)\tTotal time(s)\tSpeedup"
    for named, value in ((" (train)", 163), ("", 231)):
        (tmp_path / "t.txt").write_text(f"{head}{named}\n1\t68\t163\t231\t1.00\n2\t142\t93\t235\t1.75\n")
        (table,) = reading.tables(tmp_path / "t.txt")
        assert table.rows[0].seconds.value == value


def test_a_long_table_is_read_in_pieces(tmp_path, monkeypatch):
    from rnn_scaling.audit.tables import delimited, pipes

    monkeypatch.setattr(pipes, "MAX_ROWS", 10)
    monkeypatch.setattr(delimited, "MAX_ROWS", 10)
    (tmp_path / "t.csv").write_text("GPUs,images/s\n" + "".join(f"{n},{n * 100}\n" for n in range(1, 26)))
    (tmp_path / "t.md").write_text("|GPUs|images/s|\n|-|-|\n" + "".join(f"|{n}|{n * 100}|\n" for n in range(1, 26)))
    for path in Path(tmp_path).iterdir():
        tables = list(reading.tables(path))
        assert [row.devices for table in tables for row in table.rows] == list(range(1, 26))
        assert len(tables) >= 3 and any("pieces" in note for table in tables for note in table.notes)


def test_a_column_that_is_compared_or_told_of_is_not_called_misunderstood(tmp_path):
    before_after = "model\tBaseline (s)\tOptimized (s)\tSpeedup\na\t10\t5\t2.0x\nb\t20\t8\t2.5x\nc\t30\t10\t3.0x\n"
    assert run(tmp_path, before_after, "t.txt").notes == []
    two = "GPUs\tModel A img/s\tModel B img/s\tspeedup\n1\t100\t55\t1.0\n2\t190\t105\t1.9\n4\t370\t200\t3.7\n"
    assert [note.split(": ", 1)[1] for note in run(tmp_path, two, "t.txt").notes] == [
        "one for 2 compared things; not read as a scaling"
    ]
