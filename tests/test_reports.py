"""Records -> rows -> table and plot; baselines; exact text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rnn_scaling import record, registry, report, rows
from tests.test_record import make_record

GOLDEN = Path(__file__).parent / "golden"


def run(num_devices, rate, status="ok", seconds=2.0, **config):
    base = make_record()
    words = round(rate * seconds)
    throughput = {"words": words, "seconds": seconds, "words_per_second": words / seconds} if status == "ok" else {}
    batches = {"warmup": 1, "measured": 2, "seconds": [9.0, seconds / 2, seconds / 2], "words": [1, words / 2, words / 2]}
    error = None if status == "ok" else {"type": "X", "message": "out of memory"}
    return record.RunRecord(
        status=status,
        error=error,
        config={**base.config, "device": "cpu", "num_devices": num_devices, **config},
        batches=batches,
        throughput=throughput,
    )


def series():
    return [
        run(1, 1000.0),
        run(2, 1900.0),
        run(4, 3000.0, "failed"),
        run(1, 500.0, variable_update="replicated"),
        run(2, 770.0, variable_update="replicated"),
        run(2, 780.0, variable_update="replicated"),
    ]


def value(row, metric):
    interval = row.metric(metric)
    return None if interval is None else interval.value


def test_speedup_and_efficiency_are_ratios_to_the_same_run_on_one_device():
    table = rows.with_baselines(series())
    both = pytest.approx((770 * 780) ** 0.5 / 500)  # repeats are one row, at their geometric mean
    assert [value(row, "speedup") for row in table] == [1.0, pytest.approx(1.9), None, 1.0, both]
    assert [value(row, "efficiency") for row in table][:2] == [1.0, pytest.approx(0.95)]
    assert [len(row.records) for row in table] == [1, 1, 1, 1, 2]


def test_without_a_baseline_there_is_no_speedup():
    (row,) = rows.with_baselines([run(2, 1900.0)])
    assert row.metric("speedup") is None and row.metric("efficiency") is None


def test_runs_that_differ_in_more_than_devices_are_not_compared():
    one, two = rows.with_baselines([run(1, 1000.0, batch_size=16), run(2, 1900.0, batch_size=32)])
    assert two.metric("speedup") is None
    failed_baseline = rows.with_baselines([run(1, 0.0, "failed"), run(2, 1900.0)])[1]
    assert failed_baseline.metric("speedup") is None


def test_options_that_a_mode_does_not_read_do_not_part_its_runs():
    one, two = rows.with_baselines([run(1, 1000.0, all_reduce_spec="xring"), run(2, 1900.0)])
    assert value(two, "speedup") == pytest.approx(1.9)


def test_weak_and_strong_scaling_are_never_one_series():
    weak = [run(1, 1000.0, batch_size=64), run(2, 1900.0, batch_size=64)]
    strong = [run(1, 1000.0, batch_size=64, global_batch_size=64), run(2, 1500.0, batch_size=32, global_batch_size=64)]
    table = rows.with_baselines([*weak, *strong])
    assert [value(row, "speedup") for row in table] == [1.0, pytest.approx(1.9), 1.0, pytest.approx(1.5)]
    assert rows.titles(rows.by_series(table)) == [
        "cudnn_lstm, independent",
        "cudnn_lstm, independent, strong scaling, 64 sentence pairs a step",
    ]


def test_a_record_that_is_older_than_an_option_has_its_default():
    old = run(1, 1000.0)
    del old.config["global_batch_size"]
    assert len(rows.with_baselines([old, run(1, 1100.0)])) == 1


def test_table_is_exact():
    text = registry.load(registry.REPORTS, "table").render(rows.with_baselines(series())).decode()
    assert text == (GOLDEN / "table.md").read_text()


def test_plot_is_a_png_and_needs_a_rate():
    plot = registry.load(registry.REPORTS, "plot")
    assert plot.render(rows.with_baselines(series()))[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match="successful"):
        plot.render(rows.with_baselines([run(1, 0.0, "failed")]))


def test_report_reads_a_folder_and_leaves_out_what_is_no_record(tmp_path, capsys):
    for number, result in enumerate(series()):
        record.write(result, tmp_path / f"{number}.json")
    (tmp_path / "notes.json").write_text("{")
    assert report.main([str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "1900.000" in out and "1.90" in out and "2 |" in out
    assert err.startswith(f"warning: {tmp_path}/notes.json: not JSON")
    assert (tmp_path / "table.md").read_text() in out
    assert (tmp_path / "speedup.png").stat().st_size > 1000


@pytest.mark.parametrize("words,status", [([], 2), (["--x"], 2), (["no/such/folder"], 2), (["EMPTY"], 1)])
def test_report_says_what_is_missing(words, status, tmp_path, capsys):
    assert report.main([str(tmp_path) if word == "EMPTY" else word for word in words]) == status
    assert capsys.readouterr().err.startswith("error: ")


def test_reading_a_report_never_loads_tensorflow(tmp_path):
    record.write(run(1, 10.0), tmp_path / "1.json")
    code = (
        "import sys; from rnn_scaling import report, sweep, train; "
        f"status = report.main([{str(tmp_path)!r}]); "
        "sys.exit(status or int('tensorflow' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL).returncode == 0
