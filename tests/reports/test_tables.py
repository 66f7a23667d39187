"""Tables, CSV and JSON: exact text, the numbers' kinds, and which of them belong together."""

import csv

import pytest

from rnn_scaling.config import registry
from rnn_scaling.records.own_files import is_own
from rnn_scaling.reports import (
    csv_table,
    environment,
    json_report,
    report_files,
    summary,
    table,
)
from tests.support.records import make_record
from tests.support.scaling_runs import (
    make_attributed_runs,
    make_timed_run,
    series,
    summarise_records,
)
from tests.support.views import render_json

GOLDENS = {
    "table.md": table.render,
    "table.csv": csv_table.render,
    "report.json": json_report.render,
}


@pytest.mark.parametrize("name", GOLDENS)
def test_text_is_exact(name, is_golden):
    assert is_golden(name, GOLDENS[name](summarise_records(series())).decode())


def test_the_json_has_every_number_of_the_table_with_its_kind():
    made = render_json(summarise_records(make_attributed_runs()))
    assert made["schema"] == "rnn_scaling.report/1"
    [row] = [
        r
        for s in made["series"]
        if "replicated" in s["title"]
        for r in s["rows"]
        if r["num_devices"] == 2
    ]
    assert row["efficiency"]["value"] == pytest.approx(0.7, rel=0.02)
    assert "3 runs" in row["efficiency"]["kind"]
    parts = {
        part["name"]: part["words_per_second"] for part in row["attribution"]["parts"]
    }
    total = (
        sum(part["value"] for part in parts.values())
        + row["attribution"]["residual"]["value"]
    )
    assert total == pytest.approx(row["attribution"]["loss"]["value"])
    assert [steady["kind"] for steady in row["steady_state"]] == ["cyclic"] * 3
    assert row["speedups"]["steady"] == row["speedup"]
    assert row["speedups"]["same_work"] < row["speedups"]["steady"]["value"]


def test_seconds_times_rate_are_the_words_of_a_run():
    made = summarise_records([make_timed_run(2, rate) for rate in (90, 110, 170)])
    [(row,)] = [each.rows for each in made.series]
    assert summary.compute_mean_seconds(row) * row.rate.value == pytest.approx(
        30 * 2000
    )
    header, line = csv_table.render(made).decode().splitlines()
    cells = dict(zip(header.split(","), next(csv.reader([line]))))
    assert float(cells["seconds"]) * float(cells["words_per_second"]) == pytest.approx(
        30 * 2000
    )


def test_a_kind_of_report_is_a_row(monkeypatch):
    row = registry.ReportFile(
        "rnn_scaling.reports.csv_table", "the same again", file="again.csv"
    )
    monkeypatch.setitem(registry.REPORTS, "again", row)
    files = report_files.list_file_renderers(summarise_records(series()))
    assert {report.file for report in registry.REPORTS.values()} <= files.keys()
    assert "again.csv" in files
    assert files["again.csv"]() == files["table.csv"]()


def test_the_report_knows_every_file_that_it_wrote(tmp_path):
    for name, render in report_files.list_file_renderers(
        summarise_records(series())
    ).items():
        (tmp_path / name).write_bytes(render())
        assert is_own(tmp_path / name), name


def test_a_training_says_how_many_updates_float16_skipped():
    skipped = make_record(
        config={"compute_dtype": "float16"}, batches={"skipped_updates": 3}
    )
    [statement] = environment.make_statements(
        [skipped, make_record(batches={"skipped_updates": 0}), make_record()]
    )
    assert statement.kind == "updates-skipped"
    assert statement.values == {"runs": 1, "total": 3, "most": 3}
    assert "3 updates were skipped" in table.render_runs([skipped])
    assert "skipped" not in table.render_runs([make_record()])
