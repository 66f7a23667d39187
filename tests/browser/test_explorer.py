"""The interactive chart of given data in a real browser: axes, ideals, cut intervals, percentiles."""

import json
import re
from random import Random

import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.commands import report
from rnn_scaling.records import folder, record
from rnn_scaling.reports import scaling_data
from rnn_scaling.reports.explorer import Axis, Explorer, Line, Mark, Point
from rnn_scaling.reports.page import document
from rnn_scaling.reports.page.document import Live
from rnn_scaling.reports.summary import summarise
from tests.support.records import make_record
from tests.support.scaling_runs import skip_pictures


@pytest.fixture
def opened(visit, tmp_path):
    """Return a function that opens a page of its data."""

    def call(data):
        overview = document.Overview(["Series"], [("", [("#main", ["mine"])])])
        live = [Live("chart")]
        text = document.render_page("Report", [], "", overview, data, [], first=live)
        (tmp_path / "page.html").write_bytes(text)
        return visit((tmp_path / "page.html").as_uri())

    return call


def test_points_without_runs_lead_where_they_say_on_axes_of_time_and_order(opened):
    entries = [(f"2026-11-0{k}T10:00:00+00:00", f"{k}abcdef") for k in range(1, 5)]
    points = [
        Point(
            {"day": day, "commit": commit},
            {"rate": Interval(100.0, 99.0, 101.0)},
            label=commit,
            href=f"#x-{commit}",
        )
        for day, commit in entries
    ]
    day, commit = entries[2]
    data = Explorer(
        [Metric("rate", "words/s", "words/s", digits=1)],
        [Axis("day", "day", "time"), Axis("commit", "commit", "order")],
        [Line("mine", points)],
        marks=[Mark("day", day, "faster"), Mark("commit", commit, "faster")],
    )
    page = opened(data)
    for axis in ("day", "commit"):
        page.get_by_role("combobox", name="Axis").select_option(axis)
        assert page.locator(".picture a").count() == 4
        assert page.locator(".picture svg text", has_text="faster").count() == 1
        assert page.locator(".picture a").last.get_attribute("href") == "#x-4abcdef"


def test_only_devices_have_an_ideal_of_their_number_and_cut_intervals_are_named(opened):
    points = [
        Point(
            {"devices": n, "batch": 64 / n},
            {
                "speedup": Interval(0.95 * n, 0.9 * n, n),
                "wide": Interval(90.0, 80.0, 99.0 * n),
                "near": Interval(90.0, 89.0, 91.0),
            },
        )
        for n in (1, 2)
    ]
    metrics = [
        Metric("speedup", "speedup", ideal="n"),
        Metric("wide", "wide"),
        Metric("near", "near"),
    ]
    page = opened(
        Explorer(
            metrics,
            [Axis("devices", "devices"), Axis("batch", "batch size")],
            [Line("a", points)],
        )
    )
    note, ideal = (
        page.locator("[data-view=chart] > .note"),
        page.locator(".picture [stroke-dasharray='2 2']"),
    )
    assert "Dashed: ideal." in note.inner_text() and ideal.count() == 1
    page.get_by_role("combobox", name="Axis").select_option("batch")
    assert "Dashed" not in note.inner_text() and ideal.count() == 0
    assert "beyond" not in note.inner_text()
    starts = page.locator(".picture svg text", has_text="not from 0")
    page.get_by_role("combobox", name="Metric").select_option("wide")
    assert "some continue beyond the frame" in note.inner_text() and starts.count() == 0
    page.get_by_role("combobox", name="Metric").select_option("near")
    assert "beyond" not in note.inner_text() and starts.count() == 1


@pytest.mark.parametrize("count", [19, 120])
def test_percentiles_of_the_page_are_those_of_the_report(count, opened, tmp_path):
    random = Random(count)
    measured = [0.01 + 0.02 * random.random() for _ in range(count)]
    batches = {"warmup": 1, "seconds": [9.0, *measured], "items": [100] * (count + 1)}
    record.write(
        make_record(config={"device": "cpu", "num_devices": 1}, **batches),
        tmp_path / "a.json",
    )
    with skip_pictures():
        assert report.main([str(tmp_path)]) == 0
    [[row]] = [
        each["rows"]
        for each in json.loads((tmp_path / "report.json").read_text())["series"]
    ]
    made = summarise(folder.read(tmp_path), "a")
    page = opened(scaling_data.make_explorer(made, scaling_data.list_groups(made)))
    page.locator(".picture a").click()
    told = page.locator("dialog .note", has_text="longest").inner_text()
    names = {
        "step_p50_s": "p50",
        "step_p95_s": "p95",
        "step_p99_s": "p99",
        "step_max_s": "longest",
    }
    known = {name: row[key]["value"] for key, name in names.items() if row.get(key)}
    found = {
        name: float(ms) for name, ms in re.findall(r"(p\d\d|longest) ([\d.]+) ms", told)
    }
    assert found.keys() == known.keys() and f"Steps 1 to {count}" in told
    assert found == {name: round(1000 * seconds, 2) for name, seconds in known.items()}
