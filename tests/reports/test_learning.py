"""Reports on learning; they do not mention it if no run recorded losses or accuracies."""

import json

import pytest

from rnn_scaling import Recorder
from rnn_scaling.analysis.learning import ACCURACY, LOSS, Target
from rnn_scaling.commands import report
from rnn_scaling.records import folder
from rnn_scaling.reports import learning, report_files
from rnn_scaling.reports.summary import summarise
from tests.analysis.test_learning import run
from tests.support.scaling_runs import skip_pictures
from tests.support.scaling_runs import summarise_records as made
from tests.support.views import csv_lines, render_json, render_page

STRONG = {"global_batch_size": 8}


@pytest.mark.parametrize(
    "records, target, kind, values",
    [
        (
            [run(1, 100.0, 10, **STRONG), run(2, 150.0, 10, **STRONG)],
            None,
            "target-sooner",
            {"target": "90 % accuracy", "work": 1.0},
        ),
        (
            [run(1, 100.0, 10), run(2, 150.0, 30)],
            Target(ACCURACY, 0.9),
            "target-later",
            {"work": 2.0},
        ),
        (
            [
                run(1, 100.0, 10),
                run(1, 130.0, 10),
                run(2, 110.0, 10),
                run(2, 120.0, 10),
            ],
            None,
            "target-within-noise",
            {},
        ),
        (
            [run(1, 100.0, 10), run(2, 150.0, 10, best=7)],
            Target(ACCURACY, 0.9),
            "target-missed",
            {"best": "70.0 %", "missed": 1, "devices": "2 devices"},
        ),
        (
            [run(1, 100.0, 10)],
            Target(LOSS, 0.5),
            "target-missed",
            {"target": "a loss of 0.5"},
        ),
    ],
)
def test_whether_several_devices_learn_sooner(records, target, kind, values):
    found = made(records, target)
    first = learning.make_statements(found.learning, found.row_titles)[0]
    assert first.kind == kind
    assert {name: first.values[name] for name in values} == values


def record_program(
    path,
    losses_of,
    items=lambda devices: 64,
    repeats=2,
    update=lambda devices, step: {},
):
    """Record a program on 1 and 2 devices.

    Args:
      path: The folder.
      losses_of: Returns the losses of a number of devices and repeat.
      items: Returns the items of a step.
      repeats: Runs per number of devices.
      update: Returns the further arguments of `Recorder.step`.
    """
    path.mkdir()
    for devices in (1, 2):
        for repeat in range(repeats):
            now = [0.0]
            with Recorder(
                path / f"on{devices}.r{repeat}.json",
                num_devices=devices,
                trainer="mine",
                num_warmup_batches=2,
                options={"global_batch_size": 64},
                clock=lambda now=now: now[0],
            ) as recorder:
                for step, loss in enumerate(losses_of(devices, repeat), 1):
                    now[0] += 0.1 + 0.001 * repeat + 0.0001 * devices
                    recorder.step(items(devices), loss=loss, **update(devices, step))
    return path


def make_falling_losses(rate=0.02, noise=0.0, start=2.0, steps=200):
    """Return losses that fall by this share in each step, towards 0."""
    return [start * (1 - rate) ** k * (1 + noise * k) for k in range(steps)]


def state_by_kind(path):
    found = summarise(folder.read(path), "runs", Target(LOSS, 0.5))
    stated = learning.make_statements(found.learning, found.row_titles)
    return {each.kind: each.values for each in stated}


def test_the_command_says_that_a_program_trains_otherwise(tmp_path, capsys):
    path = record_program(
        tmp_path / "runs", lambda devices, repeat: make_falling_losses(0.02 * devices)
    )
    with skip_pictures():
        assert report.main([str(path), "--target_loss=0.5"]) == 0
    assert "do not train identically" in capsys.readouterr().out
    made_json = json.loads((path / "report.json").read_text())
    first, *_ = made_json["learning"]["statements"]
    assert first["kind"] == "target-other-losses"
    assert first["values"]["step"] == 2


@pytest.mark.parametrize(
    "losses_of, step",
    [
        # Each rank reports the loss of its own share.
        (lambda devices, repeat: make_falling_losses(start=2.0 + 0.05 * devices), 1),
        # From the fifth step onwards the towers no longer exchange gradients.
        (
            lambda devices, repeat: (
                make_falling_losses(steps=4) + make_falling_losses(0.01 * devices)[4:]
            ),
            5,
        ),
    ],
)
def test_a_program_that_trains_otherwise_is_not_called_equally_fast(
    tmp_path, losses_of, step
):
    found = state_by_kind(record_program(tmp_path / "runs", losses_of))
    proof = found["target-other-losses"]
    assert proof["step"] == step
    assert proof["repeats"] == 2
    assert proof["devices"] == "2 devices"
    assert proof["fewer_devices"] == "1 device"
    compared = {"target-within-noise", "target-sooner", "target-later"}
    assert compared.isdisjoint(found)
    assert "target-reached" in found


@pytest.mark.parametrize(
    "losses_of, options",
    [
        # Adding in a different order rounds differently, and training amplifies this.
        (lambda devices, repeat: make_falling_losses(noise=2e-5 * devices), {}),
        # A program with random seeds: repeats differ, so nothing is proven.
        (
            lambda devices, repeat: make_falling_losses(
                0.02 + 0.001 * (devices + repeat)
            ),
            {},
        ),
        # One run each.
        (lambda devices, repeat: make_falling_losses(0.02 * devices), {"repeats": 1}),
        # Weak scaling: the steps have other items.
        (
            lambda devices, repeat: make_falling_losses(0.02 * devices),
            {"items": lambda devices: 64 * devices},
        ),
    ],
)
def test_what_records_do_not_prove_is_not_said(tmp_path, losses_of, options):
    found = state_by_kind(record_program(tmp_path / "runs", losses_of, **options))
    assert "target-other-losses" not in found
    assert found


def test_what_the_ratio_lacks_is_a_statement():
    def kinds(*records):
        found = made(list(records), Target(ACCURACY, 0.9))
        return [
            statement.kind
            for statement in learning.make_statements(found.learning, found.row_titles)
        ]

    assert kinds(run(1, 100.0, 10), run(2, 150.0, 10)) == [
        "target-sooner",
        "target-single-runs",
    ]
    assert kinds(run(2, 150.0, 10)) == ["target-reached", "target-without-baseline"]
    assert kinds(run(1, 100.0, 10, best=7), run(2, 150.0, 10)) == [
        "target-reached",
        "target-missed",
    ]


def test_every_view_has_it():
    found = made([run(1, 100.0, 10, **STRONG), run(2, 150.0, 10, **STRONG)])
    told = render_json(found)["learning"]
    assert told["target"] == {"kind": "accuracy", "value": 0.9, "given": False}
    assert [row["needed"] for row in told["rows"]] == [[2000], [2000]]
    assert told["rows"][1]["times_as_soon"]["value"] == 1.5
    columns = ("items_to_target", "times_as_soon_as_one_device")
    lines = [tuple(map(line.get, columns)) for line in csv_lines(found)]
    assert lines == [("2000.0", ""), ("2000.0", "1.5")]
    names = report_files.list_file_renderers(found)
    assert len([name for name in names if "_over_" in name]) == 4
    assert "Learning" in render_page(found)


def test_the_command_takes_one_target(tmp_path, capsys):
    assert report.main([str(tmp_path), "--target_accuracy=0.9", "--target_loss=2"]) == 2
    assert "two targets" in capsys.readouterr().err
    assert report.main([str(tmp_path), "--target_accuracy=90"]) == 2
    assert "--target_accuracy=90" in capsys.readouterr().err


def test_a_chosen_level_is_the_highest_only_where_all_runs_reach_it():
    reached = made([run(1, 100.0, 10), run(2, 150.0, 10)]).learning
    missed = made([run(1, 100.0, 10), run(2, 150.0, 10, best=0)]).learning
    assert [next(learning._make_notes(found)).kind for found in (reached, missed)] == [
        "target-highest",
        "target-lowest",
    ]
