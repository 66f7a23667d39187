"""A metric is one row of a table, and every view shows it.

A report does not mention metrics that its runs did not record.
"""

import re

import numpy as np
import pytest

from rnn_scaling.analysis import rows
from rnn_scaling.analysis.confidence import compute_interval_over_runs
from rnn_scaling.analysis.metrics import METRICS, Metric
from rnn_scaling.reports import conclusions, csv_table, json_report, table
from rnn_scaling.reports.page import scaling
from rnn_scaling.reports.tensorboard import run_text
from tests.support.records import change_record, make_record
from tests.support.scaling_runs import (
    list_drawn_metrics,
    run,
    series,
    summarise_records,
)
from tests.support.views import csv_lines, render_json, render_page


def on_several(measured):
    return (
        compute_interval_over_runs([3.25e9])
        if measured.rate and measured.num_devices > 1
        else None
    )


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setitem(
        METRICS, "heat", Metric("heat", "heat", "GW", 1e-9, 1, on_several)
    )


@pytest.mark.usefixtures("added")
def test_a_row_of_the_table_is_in_every_view():
    made = summarise_records(series())
    line = csv_lines(made)[1]
    assert line["heat"] == "3250000000.0"
    assert line["heat_low"] == ""
    first, second = render_json(made)["series"][0]["rows"][:2]
    assert first["heat"] is None and second["heat"]["value"] == 3.25e9
    text = table.format_text(made)
    assert re.search(r"\| Device number \|.* Heat \(GW\) \|\n", text)
    assert re.search(r"\| +2 \|.*\| +3.2 \|\n", text)
    assert re.search(r"\| +1 \|.*\| +n/a \|\n", text)
    page = render_page(made)
    assert "Heat (GW)</th>" in page and ">heat, GW</title>" in page
    assert list_drawn_metrics(made)[-1] == "heat"
    assert "Heat (GW) |" in run_text.format_markdown(run(2, 1900.0))
    assert "Heat (GW) |" in table.render_runs([run(2, 1900.0)])


@pytest.mark.usefixtures("added")
def test_a_metric_that_no_row_has_is_in_no_view():
    made = summarise_records([run(1, 1000.0)])
    assert not any(
        b"heat" in render(made).lower()
        for render in (csv_table.render, json_report.render, table.render)
    )
    assert b"eat (GW)" not in scaling.render(made)


def make_run_with_metrics(num_devices, rate, gib=2.0, **parts):
    """Return a run with all metrics: 5 MFLOP per item, devices with 50 GFLOP/s each."""
    memory = {
        "peak_process_bytes": round(gib * 2**30),
        "peak_device_bytes": [2**30, 3 * 2**29],
    }
    made = {
        "flops_per_item": 5e6,
        "resolved": {"peak_flops_per_second": 5e10 * num_devices},
        "memory": memory,
    }
    return change_record(run(num_devices, rate), **{**made, **parts})


def values(records):
    [row] = rows.build_rows(records)
    return {metric.name: row.metric(metric) for metric in METRICS.values()}


def test_flops_and_their_share_follow_from_the_rate():
    found = values([make_run_with_metrics(2, 1000.0), make_run_with_metrics(2, 1100.0)])
    rate = found["items_per_second"]
    assert found["flops_per_second"].ends == pytest.approx(
        [5e6 * end for end in rate.ends]
    )
    assert found["share_of_peak"].ends == pytest.approx(
        [5e6 * end / 1e11 for end in rate.ends]
    )
    assert found["peak_memory_gib"].value == 2.0
    assert not found["peak_memory_gib"].half_width
    # The maximum over the devices.
    assert found["peak_device_memory_gib"].value == 1.5


def test_memory_of_several_processes_is_their_mean_with_its_interval():
    memory = values(
        [
            make_run_with_metrics(1, 1000.0, gib=2.0),
            make_run_with_metrics(1, 1000.0, gib=2.2),
        ]
    )["peak_memory_gib"]
    assert memory.value == pytest.approx((2.0 * 2.2) ** 0.5)
    assert memory.ends
    assert memory.kind.counts == (2,)


@pytest.mark.parametrize(
    "part, missing",
    [
        ({"flops_per_item": None}, {"flops_per_second", "share_of_peak"}),
        ({"resolved": {}}, {"share_of_peak"}),
        ({"memory": {}}, {"peak_memory_gib", "peak_device_memory_gib"}),
        (
            {"memory": {"peak_process_bytes": 2**30, "peak_device_bytes": None}},
            {"peak_device_memory_gib"},
        ),
    ],
)
def test_what_one_of_the_runs_does_not_tell_is_not_known(part, missing):
    found = values(
        [make_run_with_metrics(1, 1000.0), make_run_with_metrics(1, 1000.0, **part)]
    )
    unknown = {
        name
        for name, value in found.items()
        if value is None and not METRICS[name].compares_models
    }
    of_machines = {"items_per_money", "money_per_billion_items", "energy_per_item_j"}
    assert unknown == missing | of_machines | {
        "accuracy",
        "sentences_per_second",
        "step_p95_s",
        "step_p99_s",
    }


@pytest.mark.parametrize("batches", [1, 20, 99, 100])
def test_a_percentile_needs_a_batch_above_it(batches):
    random = np.random.default_rng(batches)
    runs = [[9.0, *random.lognormal(size=batches).tolist()] for _ in range(2)]
    found = values([make_record(seconds=seconds, warmup=1) for seconds in runs])
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
    for name, share in shares.items():
        quantiles = [np.quantile(seconds[1:], share) for seconds in runs]
        wanted = (
            np.sqrt(quantiles[0] * quantiles[1])
            if batches * (1 - share) >= 0.999 or name == "max"
            else None
        )
        value = found[f"step_{name}_s"]
        assert (value and value.value) == (
            wanted if wanted is None else pytest.approx(wanted)
        ), name


def test_the_lines_of_a_log_are_no_steps():
    found = values(
        [change_record(make_record(seconds=[1.0] * 100), log_format="pattern")]
    )
    assert not any(found[f"step_{name}_s"] for name in ("p50", "p95", "p99", "max"))


def tokens(num_devices, rate):
    made = run(num_devices, rate)
    return change_record(made, unit="tokens", config={**made.config, "model": "lm"})


def test_runs_of_different_units_are_never_one_series_and_never_compared():
    words = [run(n, 900.0 * n) for n in (1, 2)]
    made = summarise_records([*words, *(tokens(n, 1000.0 * n) for n in (1, 2))])
    names = ["Weak scaling, words", "Weak scaling, tokens"]
    assert [name for name, _ in made.scalings] == names
    found = {(line["unit"], line["items_per_second"]) for line in csv_lines(made)}
    assert {("words", "900.0"), ("tokens", "1000.0")} <= found
    assert [each["unit"] for each in render_json(made)["series"]] == ["words", "tokens"]
    answer = conclusions.state_answer(made)
    assert [each.subject for each in answer if each.kind == "scaling"] == names
