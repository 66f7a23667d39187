"""A report of many models: one line each, numbers that are known by hand, and what the efficiency follows."""

import pytest

from rnn_scaling.analysis.metrics import MODEL_METRICS
from rnn_scaling.reports import conclusions, csv_table, scaling_data, table
from rnn_scaling.reports.page import scaling
from rnn_scaling.reports.report_files import list_file_renderers
from tests.support.answers import lead
from tests.support.records import change_record
from tests.support.scaling_runs import make_timed_run, summarise_records

# Models of different families, with the efficiency of each on two devices. A step has
# 1,000 items and 5 GFLOP per device.
MODELS = {
    "nmt": 0.6,
    "transformer": 0.65,
    "vgg16": 0.7,
    "alexnet": 0.75,
    "inception3": 0.8,
    "resnet50": 0.85,
    "resnet110": 0.9,
}


def make_model_run(model, num_devices, rate, megabytes, repeat=0, **config):
    """Return a run of a model with `megabytes` MB of variables, all of them dense."""
    made = make_timed_run(
        num_devices,
        rate,
        repeat,
        model=model,
        **{"variable_update": "replicated", **config},
    )
    size = round(1e6 * megabytes)
    counted = {
        "trainable": size // 4,
        "bytes": size,
        "embedding_bytes": 0,
        "row_bytes": 0,
    }
    return change_record(made, parameters=counted, flops_per_item=5e6)


def runs_of(efficiencies, sizes=None, repeats=2, **config):
    """Return runs of each model on one and two devices.

    By default, the first model has the most MB, and each further model has 1 MB less.
    """
    sizes = sizes or range(len(efficiencies), 0, -1)
    return [
        make_model_run(
            model, n, 1000 * (1 if n == 1 else 2 * efficiency), size, k, **config
        )
        for (model, efficiency), size in zip(efficiencies.items(), sizes)
        for n in (1, 2)
        for k in range(repeats)
    ]


def take_first(count):
    return dict(list(MODELS.items())[:count])


def list_lines(section):
    return {
        line[0]: dict(zip(section.grids[0].head[1:], line[1:]))
        for line in section.grids[0].lines
    }


def test_each_model_is_a_line_with_its_work_and_what_it_exchanges():
    [section] = table.make_sections(summarise_records(runs_of(MODELS)))
    assert [line[0] for line in section.grids[0].lines] == [
        *reversed(MODELS)
    ]  # most work per exchanged MB first
    lines = list_lines(section)
    assert section.grids[0].head[0] == "Model" and "Words/s" not in str(section.grids)
    assert lines["nmt"].pop("Efficiency on 2 devices (%)").startswith("60.0 ± 0.")
    assert lines["nmt"] == {
        "Work per exchanged MB (GFLOP)": "0.36",  # 5 / 14
        "Work per step (GFLOP)": "5.00",
        "Exchanged per step (MB)": "14.00",  # a gradient of 7 MB and the sum of all
        "Parameters (million)": "1.75",
        "Runs": "2",
    }
    [brief] = table.make_sections(summarise_records(runs_of(MODELS)), is_brief=True)
    assert brief.grids[0].head[:2] == ["On 2 devices", "Efficiency (%)"]
    assert list_lines(brief)["resnet110"]["Exchanged per step (MB)"] == "2.00"


def test_two_models_are_reported_as_before():
    made = summarise_records(runs_of(take_first(2)))
    assert not any(
        metric.name in csv_table.render(made).decode() for metric in MODEL_METRICS
    )
    assert made.tables == made.scalings
    assert [len(series) for _, series in made.tables] == [1, 1]


def test_a_model_whose_runs_failed_has_a_line_and_is_named():
    runs = [
        change_record(run, status="failed", throughput={})
        if run.config["model"] == "transformer"
        else run
        for run in runs_of(MODELS)
    ]
    made = summarise_records(runs)
    assert set(list_lines(table.make_sections(made)[0])["transformer"].values()) == {
        "n/a",
        "none succeeded",
    }
    assert lead(made)["not-ranked-failed"].values["names"] == [
        "transformer, replicated"
    ]
    assert lead(made)["efficiency-follows"].values["models"] == 6
    scaling.render(made)


def test_the_fastest_series_stands_for_its_model_and_modes_are_apart():
    slower = [
        make_model_run("nmt", n, 400 * n, 70, encoder_type="dynamic_rnn")
        for n in (1, 2)
    ]
    alone = runs_of(MODELS, variable_update="independent")
    made = summarise_records([*runs_of(MODELS), *slower, *alone])
    assert [name for name, _ in made.tables] == [
        "Weak scaling, independent",
        "Weak scaling, replicated",
    ]
    independent, replicated = (
        list_lines(section) for section in table.make_sections(made)
    )
    assert replicated["nmt"]["Exchanged per step (MB)"] == "14.00"
    assert independent["nmt"]["Exchanged per step (MB)"] == "0.00"
    assert independent["nmt"]["Work per exchanged MB (GFLOP)"] == "n/a"
    kinds = [statement.kind for statement in conclusions.state_answer(made)]
    assert kinds == [
        "scaling",
        "efficiency-range",
        "scaling",
        "efficiency-range",
        "efficiency-follows",
    ]


def test_pictures_have_all_models_and_no_rates_of_different_units():
    made = summarise_records(runs_of(MODELS))
    [group] = scaling_data.list_groups(made)
    assert len({(line.colour, line.shape) for line in group.lines}) == 7
    names = [metric.name for metric in group.picture_metrics]
    assert {"speedup", "efficiency", "flops_per_second"} <= {*names}
    assert len([name for name in names if name.endswith("s_per_second")]) == 1
    pictures = [name for name in list_file_renderers(made) if name.endswith(".svg")]
    assert pictures == [f"{name}.svg" for name in names]
    points = [points[0] for _, points in group.efficiency_over_work.series_points]
    places = [(place, efficiency.value) for place, efficiency, _ in points]
    assert places[0] == (pytest.approx(2.5), pytest.approx(90, rel=1e-3))
    assert len(places) == 7


def test_models_of_one_family_count_once_and_single_runs_are_not_judged():
    sizes = dict(
        zip(
            ("resnet20", "resnet32", "resnet44", "lm", "nmt"),
            (0.6, 0.7, 0.8, 0.9, 0.95),
        )
    )
    answer = lead(summarise_records(runs_of(sizes)))
    assert answer["too-few-models"].values["families"] == 2
    assert "trend-of-single-runs" in lead(summarise_records(runs_of(MODELS, repeats=1)))
