"""Marks of corrected rates and speedups, and speedups that load hides."""

import csv
import dataclasses
import io
import json
import re
from pathlib import Path

import pytest

from rnn_scaling.analysis import folder_rows
from rnn_scaling.analysis.comparison import judgement, matching
from rnn_scaling.analysis.confidence import combine, divide_rates
from rnn_scaling.analysis.history.entries import build_entries
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.records.environment import Load, LoadWindows
from rnn_scaling.records.folder import Folder, RunFile
from rnn_scaling.reports import (
    answer_text,
    conclusions,
    csv_table,
    json_report,
    learning,
    scaling_data,
    sections,
    start_up,
    table,
)
from rnn_scaling.reports.exports import exported, prometheus
from rnn_scaling.reports.page import scaling
from rnn_scaling.reports.sections import explain_rows
from rnn_scaling.reports.wording import MARKS, format_marks
from tests.analysis.test_learning import run as learning_run
from tests.analysis.test_load_correction import (
    make_runs_beside_busy_process,
    remove_own_shares,
    run,
    with_slow_half,
)
from tests.support.records import change_record
from tests.support.scaling_runs import summarise_records

CORRECTED, ALL_BATCHES, _ = MARKS.values()


def cells(text):
    """Return the cells of all tables in Markdown."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [cell.strip() for line in lines for cell in line.strip("|").split("|")]


def make_hidden_runs():
    """Return runs whose speedup load hides, because nothing can be corrected."""
    return list(map(remove_own_shares, make_runs_beside_busy_process()))


def with_equal_load():
    """Return runs with about the same load, which only two devices had all the time."""
    runs = []
    for factor in (0.99, 1.0, 1.01):
        runs.append(with_slow_half(run(1, 100 * factor)))
        runs.append(remove_own_shares(run(2, 150 * factor, 5 / 6, 1 / 6)))
    return runs


def rate(runs):
    """Return the rate of the only row of some runs."""
    [row] = build_rows(runs)
    return row.rate


def test_a_ratio_of_single_runs_keeps_the_note_that_a_rate_is_corrected():
    corrected = rate([run(2, 100, 0.5, 0.5)])
    quiet = rate([run(1, 100)])
    assert corrected.is_corrected
    speedup = divide_rates(corrected, quiet)
    assert speedup.ends is None
    assert speedup.is_corrected
    assert combine(lambda a, b: a / b, [corrected, quiet]).is_corrected
    assert not divide_rates(quiet, quiet).is_corrected


@pytest.mark.parametrize(
    "render",
    [
        table.format_text,
        lambda made: answer_text.format_briefly(made, Path("results")),
        lambda made: answer_text.format_in_full(made, Path("results")),
    ],
    ids=["table.md", "terminal", "--full"],
)
@pytest.mark.parametrize("modes", [["replicated"], ["replicated", "mirrored"]])
def test_a_corrected_number_is_marked_in_its_cell_and_explained(render, modes):
    runs = []
    for mode in modes:
        runs += make_runs_beside_busy_process(mode)
    made = summarise_records(runs)
    text = render(made)
    [row, *_] = [row for row in made.rows if row.corrected is not None]
    marked = [cell for cell in cells(text) if cell.endswith(CORRECTED)]
    rates = [cell for cell in cells(text) if cell.startswith(f"{row.rate.value:.1f} ")]
    assert rates
    assert set(rates) <= set(marked)
    assert f"- {CORRECTED} " in text
    assert f"{row.measured_rate.value:.1f}" in text.split(f"- {CORRECTED} ")[1]


def test_speedups_of_clocks_that_cannot_be_corrected_are_unknown():
    phases = {"start": 3.0, "first_batch": 1.0, "warmup": 1.0, "measured": 9.0}
    phases["total"] = sum(phases.values())
    runs = [
        change_record(made, phases=phases) for made in make_runs_beside_busy_process()
    ]
    one, two = [start_up.compute_speedups(row) for row in summarise_records(runs).rows]
    assert two["steady"].is_corrected and one["train"].value == 1.0
    assert two["train"] is None and two["total"] is None


def test_the_table_of_one_disturbed_training_is_marked():
    text = table.render_runs([run(2, 4997, 0.37, 0.63)])
    [marked] = [cell for cell in cells(text) if CORRECTED in cell]
    assert float(marked.strip(CORRECTED).replace(",", "")) > 10_000
    assert "4,997" in text


def test_files_contain_the_measured_rate_and_whether_a_number_is_corrected():
    made = summarise_records(make_runs_beside_busy_process())
    lines = list(csv.DictReader(io.StringIO(csv_table.render(made).decode())))
    assert [line["rate_corrected"] for line in lines] == ["False", "True"]
    assert [line["speedup_corrected"] for line in lines] == ["False", "True"]
    measured = [float(line["measured_words_per_second"]) for line in lines]
    assert measured == pytest.approx([100, 190 * 2 / 3], rel=1e-3)
    assert float(lines[1]["words_per_second"]) > 180

    [series] = json.loads(json_report.render(made))["series"]
    one, two = series["rows"]
    assert "corrected" not in one["words_per_second"]
    for name in ("words_per_second", "speedup", "efficiency"):
        assert two[name]["corrected"] is True
    assert two["measured_words_per_second"]["value"] == pytest.approx(measured[1])


def test_points_of_the_page_have_the_explanation_of_their_mark():
    made = summarise_records(make_runs_beside_busy_process())
    page = scaling.render(made).decode()
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    )
    [line] = data["lines"]
    one, two = line["points"]
    assert len(one["values"]["words_per_second"]) == 3
    [explanation] = two["values"]["words_per_second"][3:]
    assert explanation.startswith(CORRECTED)
    assert f'<p class="note">{CORRECTED} ' in page


def test_neither_tables_nor_sentences_contain_a_speedup_that_load_hides():
    made = summarise_records(make_hidden_runs())
    _, two = made.rows
    assert two.metric(SPEEDUP) is not None
    assert two.shown_metric(SPEEDUP) is None
    kinds = {each.kind for each in conclusions.state_answer(made)}
    assert "scaling-hidden-by-load" in kinds
    assert "mark-hidden" in {each.kind for each in explain_rows(made.rows)}
    speedup = f"{two.metric(SPEEDUP).value:.2f}"
    for text in (
        table.format_text(made),
        answer_text.format_in_full(made, Path("results")),
        csv_table.render(made).decode(),
        json_report.render(made).decode(),
        scaling.render(made).decode(),
    ):
        assert speedup not in text
    assert made.rows[1] not in made.losses
    assert conclusions.list_missing_run_commands(made.series[0]) == []


def test_a_row_beside_a_corrected_baseline_is_judged_by_what_its_speedup_contains():
    """The speedup is of measured rates, so the correction says nothing about it."""
    runs = []
    for factor in (0.99, 1.0, 1.01):
        runs.append(run(1, 60 * factor, 0.6, 0.4))
        runs.append(remove_own_shares(run(2, 190 * factor, 0.95, 0.12)))
    one, two = build_rows(runs)
    assert one.corrected is not None
    assert two.corrected is None
    assert not two.metric(SPEEDUP).is_corrected
    assert two.is_speedup_hidden


def test_a_speedup_that_is_not_the_ratio_of_the_printed_rates_is_marked():
    made = summarise_records(with_equal_load())
    one, two = made.rows
    speedup = two.shown_metric(SPEEDUP)
    printed = two.rate.value / one.rate.value
    assert speedup.value == pytest.approx(1.5 * printed, rel=0.01)
    marked = [cell for cell in cells(table.format_text(made)) if ALL_BATCHES in cell]
    assert len(marked) == 2
    assert f"- {ALL_BATCHES} " in table.format_text(made)


@pytest.mark.parametrize(
    "runs",
    [
        make_runs_beside_busy_process(),
        make_hidden_runs(),
        with_equal_load(),
        [run(1, 9), run(2, 17)],
    ],
    ids=["corrected", "hidden", "equal load", "quiet"],
)
def test_an_unmarked_speedup_is_the_ratio_of_the_printed_rates(runs):
    one, two = build_rows(runs)
    for metric, devices in ((SPEEDUP, 1), (EFFICIENCY, 2)):
        shown = two.shown_metric(metric)
        if shown is None or ALL_BATCHES in format_marks(shown):
            continue
        expected = two.rate.value / one.rate.value / devices
        assert shown.value == pytest.approx(expected)


def export_text(runs):
    """Return the rows of runs as the text file for Prometheus."""
    files = [RunFile(f"{number}.json", each) for number, each in enumerate(runs)]
    folder = Folder(tuple(files), ())
    rows = folder_rows.build(folder)
    return prometheus.format_metrics(exported.collect(Path("results"), folder, rows))


def test_exports_label_corrected_numbers():
    text = export_text(make_runs_beside_busy_process())
    one, two = re.findall(r"^rnn_scaling_items_per_second\{(.*)\}", text, re.MULTILINE)
    assert "corrected" not in one
    assert 'corrected="true"' in two
    assert text.count("rnn_scaling_speedup{") == 2
    assert export_text(make_hidden_runs()).count("rnn_scaling_speedup{") == 1


def make_learning_run(devices, rate, factor, own=1.0, has_own=True):
    """Return a run that reaches 90 % accuracy, and had a share of its cores."""
    made = learning_run(devices, rate * factor * own, 10, global_batch_size=8)
    count = len(made.batches.seconds) - made.batches.warmup
    seconds = made.batches.seconds[made.batches.warmup :]
    windows = LoadWindows(
        batches=(1,) * count,
        seconds=tuple(seconds),
        others=(1 - own,) * count,
        steal=(0.0,) * count,
        own=(own,) * count if has_own else None,
    )
    load = Load(others=1 - own, steal=0.0, seconds=sum(seconds), windows=windows)
    resolved = dataclasses.replace(
        made.resolved, device_type="CPU", cpu_affinity=tuple(range(devices))
    )
    environment = dataclasses.replace(made.environment, load=load)
    return dataclasses.replace(made, environment=environment, resolved=resolved)


@pytest.mark.parametrize("has_own", [True, False], ids=["corrected", "hidden"])
def test_the_time_to_a_target_has_the_mark_of_its_rate_or_is_hidden_with_it(has_own):
    runs = []
    for factor in (0.99, 1.0, 1.01):
        runs.append(make_learning_run(1, 100, factor))
        runs.append(make_learning_run(2, 190, factor, 0.6, has_own))
    made = summarise_records(runs)
    two = made.learning.results[-1]
    ratio = made.learning.time_speedup(two)
    text = sections.format_markdown(
        [learning.make_section(made.learning, made.row_titles)]
    )
    kinds = {
        each.kind for each in learning.make_statements(made.learning, made.row_titles)
    }
    if has_own:
        assert two.seconds.is_corrected
        assert (
            two.seconds.relative_error > made.learning.results[0].seconds.relative_error
        )
        assert ratio.is_corrected
        assert f"- {CORRECTED} " in text
        assert "target-work" not in kinds
    else:
        assert ratio is None
        assert "target-work" in kinds
        assert not kinds & {"target-sooner", "target-later", "target-within-noise"}


def test_comparisons_and_histories_have_measured_rates_without_a_mark():
    sides = []
    for factor in (1.0, 1.001):
        runs = [run(2, 190 * factor * k, 0.66, 1 / 3) for k in (0.99, 1.0, 1.01)]
        files = [RunFile(f"r{number}.json", each) for number, each in enumerate(runs)]
        sides.append(matching.ComparedRuns(Path(str(factor)), tuple(files), ()))
    [result] = judgement.judge(*sides, judgement.Question()).results
    assert result.before.value == pytest.approx(190, rel=1e-3)
    assert not result.before.is_corrected
    assert not result.comparison.ratio.is_corrected
    [configuration] = build_entries(sides[0].records)[0].configurations
    assert max(configuration.rates) == pytest.approx(190 * 1.01)


def test_a_run_of_a_corrected_row_has_its_measured_rate():
    made = summarise_records(make_runs_beside_busy_process())
    explorer = scaling_data.make_explorer(made, scaling_data.list_groups(made))
    of_two = [each.values for each in explorer.runs if "2 devices" in each.title]
    assert [values["words_per_second"] for values in of_two] == pytest.approx(
        [190 * 2 / 3 * factor for factor in (0.99, 1.0, 1.01)], rel=1e-3
    )
    assert [values["apart"] for values in of_two] == pytest.approx([-1, 0, 1], abs=0.05)
    assert all("speedup" not in values for values in of_two)
