"""A metric is one row of a table: every view has it, and a report whose runs do not tell it has nothing of it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from rnn_scaling.analysis import metrics, rows
from rnn_scaling.analysis.confidence import over_processes
from rnn_scaling.analysis.metrics import METRICS, Metric
from rnn_scaling.reports import csv_table, json_report, table
from rnn_scaling.reports.page import document
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.tensorboard import run_text
from tests.support.scaling_runs import of, run, series


def on_several(measured: metrics.Measured):
    return over_processes([3.25e9]) if measured.rate and measured.num_devices > 1 else None


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(METRICS, "heat", Metric("heat", "heat", "GW", 1e-9, 1, on_several))


@pytest.mark.usefixtures("added")
def test_a_row_of_the_table_is_in_every_view():
    made = of(series())
    line = list(csv.DictReader(io.StringIO(csv_table.render(made).decode())))[1]
    assert (line["heat"], line["heat_low"]) == ("3250000000.0", "")
    first, second = json.loads(json_report.render(made))["series"][0]["rows"][:2]
    assert first["heat"] is None and second["heat"]["value"] == 3.25e9
    text = table.text(made)
    assert "| Device number | Heat (GW) |\n" in text and "|             2 |       3.2 |\n" in text
    assert "|             1 |       n/a |\n" in text
    page = document.render(made).decode()
    assert "Heat (GW)</th>" in page and "heat, GW over the number of devices" in page
    assert [each.name for each in figures.drawn(made.measured)][-1] == "heat"
    assert "| Device number | Heat (GW) |" in run_text.markdown(run(2, 1900.0))
    assert "3.2" not in table.render_runs([run(2, 1900.0)])  # a training prints the seed's table alone


@pytest.mark.usefixtures("added")
def test_a_metric_that_no_row_has_is_in_no_view():
    made = of([run(1, 1000.0)])
    assert not any(b"heat" in render(made).lower() for render in (csv_table.render, json_report.render, table.render))
    assert b"eat (GW)" not in document.render(made)


def test_names_and_titles_say_what_is_counted():
    rate = metrics.RATE.of("tokens")
    assert (rate.name, rate.title, rate.column) == ("tokens_per_second", "tokens/s", "Processing speed (tokens/s)")
    assert metrics.EFFICIENCY.of("tokens") == metrics.EFFICIENCY
    assert metrics.common_unit(["words", "words"]) == "words"
    assert metrics.common_unit(["words", "tokens"]) == metrics.common_unit([]) == "items"


def test_the_command_line_knows_metrics_by_their_names_and_former_names():
    assert metrics.named("words_per_second") is metrics.named("items_per_second") is metrics.RATE
    for wrong in ("", "loss"):
        with pytest.raises(ValueError, match="expected one of items_per_second, speedup, efficiency"):
            metrics.named(wrong)


def test_a_rows_metrics_are_computed_once():
    (row,) = rows.with_baselines([run(1, 1000.0)])
    assert row.metric(metrics.RATE) is row.metric(metrics.RATE.of("words")) is row.rate
