"""Consistent tables give no finding, however they are rounded; each single fault is found in its row."""

from __future__ import annotations

import random

import pytest

from tests.support.audit_tables import BATCH, DEVICES, EFFICIENCY, HEADER, RATE, SECONDS, SPEEDUP, make, run

SEEDS = range(40)


def test_consistent_tables_have_no_findings(tmp_path):
    for seed in range(400):
        report = run(tmp_path, make(seed).text())
        assert report.findings == [], (seed, make(seed).text(), report.findings)
        assert report.comparisons > 20


def test_missing_cells_do_not_make_findings(tmp_path):
    for seed in range(200):
        rng, made = random.Random(seed), make(seed)
        for row in made.cells:
            for k in (BATCH, SECONDS, RATE, SPEEDUP, EFFICIENCY):
                if rng.random() < 0.2:
                    row[k] = rng.choice(["", "n/a", "error", "-", "OOM"])
        report = run(tmp_path, made.text())
        assert report.findings == [], (seed, made.text(), report.findings)


def _scale(text: str, factor: float) -> str:
    """A cell times a factor, in the form and with the decimals that it has."""
    number = text.replace(",", "").rstrip("x% ")
    digits = len(number.partition(".")[2])
    return f"{float(number) * factor:.{digits}f}" + ("x" if text.endswith("x") else " %" if "%" in text else "")


def _speedup(made, row):
    made.cells[row][SPEEDUP] = _scale(made.cells[row][SPEEDUP], 1.3)
    return "speedup", ""


def _efficiency(made, row):
    made.cells[row][EFFICIENCY] = _scale(made.cells[row][EFFICIENCY], 0.8)
    return "efficiency", ""


def _rate(made, row):
    made.cells[row][RATE] = _scale(made.cells[row][RATE], 1.4)
    return "work", ""


def _seconds(made, row):
    made.cells[row][SECONDS] = _scale(made.cells[row][SECONDS], 1.25)
    return "work", ""


def _worker_rate(made, row):
    made.cells[row][RATE] = _scale(made.cells[row][RATE], 1 / made.counts[row])
    return "work", "one worker's"


def _devices(made, row):
    other = 48 if row == len(made.counts) - 1 else made.counts[row] * 3
    made.cells[row][DEVICES] = str(other)
    return "work", f"of {made.counts[row]} devices"


def _copied(made, row):
    made.cells[row][RATE], made.cells[row][SECONDS] = made.cells[row - 1][RATE], made.cells[row - 1][SECONDS]
    return "work", f"of {made.counts[row - 1]} devices" if made.counts[row - 1] > 1 else "one worker's"


def _decimal_point(made, row):
    made.cells[row][SPEEDUP] = _scale(made.cells[row][SPEEDUP], 10)
    return "speedup", "factor of ten"


def _window(made, row):
    made.cells[row][RATE] = _scale(f"{made.rates[row]:.3f}", 19 / 20)
    return "work", "another window"


FAULTS = {  # the fault -> the column of the cell that it spoils
    _speedup: SPEEDUP, _efficiency: EFFICIENCY, _rate: RATE, _seconds: SECONDS, _worker_rate: RATE, _devices: DEVICES,
    _copied: RATE, _decimal_point: SPEEDUP, _window: RATE,
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_single_fault_is_one_finding_in_its_cell(tmp_path, fault):
    for seed in SEEDS:
        made = make(seed)
        row = random.Random(seed).randint(1, len(made.counts) - 1)
        check, cause = fault(made, row)
        report = run(tmp_path, made.text())
        assert made.line(row) in {f.line for f in report.findings}, (seed, made.text(), report.findings)
        (found,) = report.findings
        assert (found.line, found.column) == (made.line(row), HEADER[FAULTS[fault]]), (seed, made.text(), found)
        assert found.check == check and cause in found.cause, (seed, made.text(), found)


def test_a_wrong_baseline_is_one_finding_not_one_a_row(tmp_path):
    for seed in SEEDS:
        made = make(seed)
        for row in made.cells:
            row[SECONDS] = "n/a"
        made.cells[0][RATE] = _scale(made.cells[0][RATE], 1.5)
        report = run(tmp_path, made.text())
        assert [f.line for f in report.findings if f.check == "speedup"] == [made.line(0)], (seed, made.text())


def test_rates_a_worker_as_totals_are_one_finding(tmp_path):
    for seed in SEEDS:
        made = make(seed)
        for n, exact, row in zip(made.counts, made.rates, made.cells):
            row[RATE] = f"{exact / n:.3f}"
        report = run(tmp_path, made.text())
        assert len(report.findings) == 1 and "a worker's rate" in report.findings[0].cause, report.findings
        assert {f.line for f in report.findings} == {made.line(1)}


def test_words_over_another_window_in_every_row(tmp_path):
    for seed in SEEDS:
        made = make(seed)
        for s, row, exact in zip(made.seconds, made.cells, made.rates):
            row[SECONDS], row[RATE] = f"{s:.4f}", f"{exact * 20 / 19:.3f}"
        report = run(tmp_path, made.text(), items_per_sample=200)
        assert any("20/19" in f.cause and f.kind == "impossible" for f in report.findings), report.findings
        alone = run(tmp_path, made.text())
        assert [f.kind for f in alone.findings if f.check == "work"] == ["unlikely"], (made.text(), alone.findings)
        assert "of 200" in alone.findings[0].cause


def test_a_damaged_cell_is_never_blamed_on_another_series(tmp_path):
    """Two machines in one table: the fault of one leaves the other alone."""
    for seed in SEEDS:
        made, other = make(seed), make(seed + 1000)
        _speedup(made, 1)
        rows = [["a", *row] for row in made.cells] + [["b", *row] for row in other.cells]
        header = [
            "machine",
            *["GPUs", "Batch size", "Total time to process 20 batches (s)", "words/s", "Speedup", "Efficiency"],
        ]
        text = "\n".join("\t".join(cell.strip() for cell in row) for row in [header, *rows])
        report = run(tmp_path, text, "table.tsv")
        assert report.findings and {f.line for f in report.findings} == {3}, (seed, text, report.findings)
        assert report.findings[0].row.startswith("a, ")


def test_strong_scaling_is_consistent_too(tmp_path):
    for seed in SEEDS:
        rng = random.Random(seed)
        counts, seconds = [1, 2, 4, 8, 16], rng.uniform(100, 500)
        lines, efficiency = ["GPUs,global batch size,batches,seconds,images/s,speedup"], 1.0
        for n in counts:
            time = seconds / (n * efficiency)
            digits = rng.randint(1, 3)
            lines.append(f"{n},256,100,{time:.{digits}f},{25600 / time:.2f},{seconds / time:.{digits}f}x")
            efficiency *= rng.uniform(0.85, 0.98)
        assert run(tmp_path, "\n".join(lines), "table.csv").findings == [], lines
        wrong = "\n".join(lines).replace("\n8,256,", "\n8,512,")
        assert {f.line for f in run(tmp_path, wrong, "table.csv").findings} == {5}


def test_speedups_by_time_alone(tmp_path):
    for seed in SEEDS:
        rng = random.Random(seed)
        seconds = [rng.uniform(100, 900)]
        seconds += [seconds[0] / (n**0.9) for n in (2, 4, 8)]
        rows = [f"{n}\t{s:.1f}\t{seconds[0] / s:.2f}" for n, s in zip((1, 2, 4, 8), seconds)]
        text = "\n".join(["workers\ttime (s)\tspeedup", *rows])
        assert run(tmp_path, text, "table.txt").findings == []
        wrong = text.replace(rows[2], f"4\t{seconds[2]:.1f}\t{1.1 * seconds[0] / seconds[2]:.2f}")
        assert [(f.check, f.line) for f in run(tmp_path, wrong, "table.txt").findings] == [("speedup", 4)]
