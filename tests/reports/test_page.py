"""The page and its pictures: one file with every number, and weak and strong scaling apart."""

import base64
import hashlib
import html
import json
import re

import pytest

from rnn_scaling.commands import report
from rnn_scaling.records.own_files import EDGE_BYTES
from rnn_scaling.reports import conclusions, curves, scaling_data, table
from rnn_scaling.reports.page import document, scaling
from rnn_scaling.reports.series_statements import format_series
from tests.support.scaling_runs import (
    make_attributed_runs,
    make_repeats,
    make_timed_run,
    make_weak_and_strong_runs,
    run,
    series,
    summarise_records,
    write_folder,
)
from tests.support.views import render_page


def test_the_plot_is_a_png_and_needs_a_rate():
    assert curves.render(summarise_records(series()))[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match="successful"):
        curves.render(summarise_records([run(1, 0.0, "failed")]))


def test_a_run_is_compared_with_the_mean_of_its_repeats():
    made = summarise_records(
        [
            make_timed_run(1, 100, 0),
            make_timed_run(1, 100, 1),
            make_timed_run(2, 180, 0),
        ]
    )
    explorer = scaling_data.make_explorer(made, scaling_data.list_groups(made))
    first, second, single = (run.values.get("apart") for run in explorer.runs)
    assert first == pytest.approx(-second, abs=0.1) and first != 0 and single is None
    assert "apart" in [metric.name for metric in explorer.metrics]


def test_the_page_is_one_file_with_every_number_and_escapes_names(tmp_path):
    hostile = make_timed_run(
        2,
        140,
        0,
        variable_update="replicated",
        all_reduce_spec="<script>alert(1)</script>",
    )
    failed = {"variable_update": "replicated", "all_reduce_spec": "<b>"}
    made = summarise_records(
        [
            *make_attributed_runs(),
            hostile,
            run(4, 1.0, "failed", variable_update="replicated"),
            run(2, 1.0, "failed", **failed),
        ]
    )
    text = render_page(made)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "<b>" not in text
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:,)", text)
    assert not re.search(r"url\((?!#)", text)
    plain = _plain(text)
    for each in made.series:
        assert format_series(each) in plain
        for row in table.list_series_rates(each).grids[0].lines:
            assert all(cell in plain for cell in row)
    assert "X: out of memory" in plain and "rnn_scaling.report/1" in text[:EDGE_BYTES]


def read_data(text):
    """Return the data that the page's script draws."""
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text)[1]
    )


def test_the_script_gets_the_numbers_of_the_report_and_every_run():
    made = summarise_records(
        [*make_attributed_runs(), run(4, 1.0, "failed", variable_update="replicated")]
    )
    data = read_data(render_page(made))
    assert data["metrics"][0]["name"] == "efficiency"
    assert data["axes"][0]["name"] == "devices"
    line = next(each for each in data["lines"] if each["title"].endswith("replicated"))
    point = next(each for each in line["points"] if each["x"]["devices"] == 2)
    wanted = (
        next(each for each in made.series if each.title == line["title"])
        .row_on(2)
        .efficiency_percent
    )
    assert point["values"]["efficiency"] == pytest.approx(
        [wanted.value, *wanted.ends], rel=1e-5
    )
    assert sum(
        point["values"][name][0] for name in data["parts"] if name in point["values"]
    ) == pytest.approx(30, abs=0.01)
    assert [data["runs"][k]["name"] for k in point["runs"]] == [
        made.files[id(run)] for run in made.series[1].row_on(2).records
    ]
    [failed] = [each for each in data["runs"] if each["status"] == "failed"]
    assert not failed["values"] and "out of memory" in failed["log"]


def test_a_thinned_run_has_its_number_of_steps_and_another_one_its_exact_times(
    monkeypatch,
):
    made = summarise_records([make_timed_run(1, 123.4567, batches=41)])
    [exact] = read_data(render_page(made))["runs"]
    assert exact["step_ms"] == pytest.approx(
        [1000 * s for s in made.rows[0].records[0].batches.seconds], rel=1e-5
    )
    monkeypatch.setattr(scaling_data, "MAX_STEPS", 10)
    monkeypatch.setattr(scaling_data, "MIN_STEPS", 10)
    [thinned] = read_data(render_page(made))["runs"]
    assert thinned["bucket"]
    assert len(thinned["step_ms"]) < 41
    assert thinned["steps"] == exact["steps"] == 41


def test_the_libraries_are_the_files_that_their_table_says_and_the_only_script_has_its_hash():
    folder = document.FOLDER / "vendor"
    digests = dict(
        re.findall(
            r"^\| `([\w.]+)` \|.*`(\w{64})` \|$",
            (folder / "README.md").read_text(),
            re.M,
        )
    )
    assert digests == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in document.LIBRARIES
    }
    assert sum(path.stat().st_size for path in folder.iterdir()) < 600_000
    text = render_page(summarise_records(make_attributed_runs()))
    [script] = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in text and "default-src 'none'" in text


def _plain(text):
    """Return the visible text of a piece of HTML."""
    return html.unescape(re.sub(r"</?span[^>]*>", "", text)).replace("\u00a0", " ")


def test_the_overview_has_a_line_for_each_series_with_its_speedup_first():
    made = summarise_records(
        [
            *make_weak_and_strong_runs(),
            run(2, 1.0, "failed", variable_update="parameter_server"),
        ]
    )
    tables = [
        (section.title, section.grids[0]) for section in table.make_sections(made)
    ]
    assert tables[0][1].head[:3] == [
        "Series",
        "Speedup on 2 devices",
        "Efficiency on 2 devices (%)",
    ]
    lines = {title: cells for _, grid in tables for title, *cells in grid.lines}
    assert list(lines) and set(lines) == {each.title for each in made.series}
    numbers = [cell.split(" ± ")[0] for cell in lines["cudnn_lstm, replicated"]]
    assert numbers == ["1.40", "70.0", "140.0", "100.0", "3"]
    assert lines["cudnn_lstm, parameter_server"][-1] == "none succeeded"
    assert [title for title, _ in tables] == ["Weak scaling", "Strong scaling"]
    several = make_repeats({1: 90, 2: 180}, variable_update="independent")
    several += make_repeats({1: 90, 4: 360}, variable_update="replicated")
    [section] = table.make_sections(summarise_records(several))
    assert section.grids[0].head[1:3] == ["Devices", "Speedup"]


def test_a_picture_says_its_numbers_to_who_does_not_see_it():
    text = _plain(render_page(summarise_records(make_attributed_runs())))
    described = re.findall(r"<desc[^>]*>(.*?)</desc>", text)
    assert all(re.search(r"\d", each) for each in described)
    for numbers in (
        r"70\.0 ± 0\.\d+ on 2",
        r"1\.40 ± 0\.0\d on 2",
        r"exchange 20\.0 ±",
    ):
        assert any(re.search(numbers, each) for each in described), numbers


def test_every_id_on_the_page_is_unique_and_every_reference_has_one():
    text = render_page(summarise_records(make_attributed_runs())).split("<script")[0]
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    used = re.findall(r'href="#([^"]+)"', text) + re.findall(r"url\(#([^)]+)\)", text)
    used += [
        name
        for names in re.findall(r'aria-labelledby="([^"]+)"', text)
        for name in names.split()
    ]
    ids.append("run-h")  # added by the page's script, in the panel of a run
    assert used and set(used) <= set(ids)


def test_weak_and_strong_scaling_have_an_answer_and_pictures_of_their_own(tmp_path):
    made = summarise_records(make_weak_and_strong_runs())
    said = conclusions.write_answer(made)
    assert said.startswith("Weak scaling: ")
    assert "Strong scaling: cudnn_lstm, independent," in said
    assert conclusions.format_overview(made).startswith("Weak scaling: 2 series reach")
    assert "strong" not in conclusions.format_overview(made)
    text = render_page(made)
    assert text.count('id="fig-speedup-t"') == text.count('id="fig-speedup-1-t"') == 1
    assert text.count("<h3>Strong scaling</h3>") == 2, (
        "in the overview and over the curves"
    )
    assert {line["group"] for line in read_data(text)["lines"]} == {
        "Weak scaling",
        "Strong scaling",
    }
    assert report.main([str(write_folder(tmp_path, make_weak_and_strong_runs()))]) == 0
    assert "replicated" not in (tmp_path / "speedup_strong.svg").read_text()
    assert "strong" not in (tmp_path / "speedup.svg").read_text()


def test_runs_that_are_too_short_to_judge_are_not_called_unsteady():
    def counts(*batches):
        runs = [
            make_timed_run(1 + k % 2, 100.0, k, batches=count)
            for k, count in enumerate(batches)
        ]
        made = scaling._state_steady_runs(summarise_records(runs))
        return {
            statement.kind: list(statement.values.values())[0] for statement in made
        }

    assert counts(20) == {"steady-too-short": 1}
    assert counts(20, 25) == {"steady-too-short": 2}
    assert counts(40)["steady-runs"] == 1 and "steady-too-short" not in counts(40, 50)
    assert counts(20, 40)["steady-runs"] == counts(20, 40)["steady-too-short"] == 1


def test_words_between_backticks_are_code():
    html = document.make_unbroken("`a<b` needs `./run.sh verify --trainer=x`")
    assert "`" not in html
    assert html.count("<code>") == html.count("</code>") == 2
    assert "<code>a&lt;b</code>" in html
