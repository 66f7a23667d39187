"""What a report says about learning, and that a folder without it has nothing of it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from rnn_scaling.analysis.learning import ACCURACY, LOSS, Target
from rnn_scaling.commands import report
from rnn_scaling.reports import csv_table, json_report, learning, report_files, table
from rnn_scaling.reports.page import scaling
from tests.analysis.test_learning import run
from tests.support.scaling_runs import of as made
from tests.support.scaling_runs import series

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
            [run(1, 100.0, 10, best=7), run(2, 150.0, 10)],
            Target(ACCURACY, 0.9),
            "target-reached",
            {},
        ),
        ([run(2, 150.0, 10)], None, "target-reached", {"devices": "2 devices"}),
        ([run(1, 100.0, 10)], None, "target-reached", {"devices": "1 device"}),
        (
            series()[:2],
            Target(ACCURACY, 0.5),
            "target-not-recorded",
            {"quantity": "accuracy"},
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
    first = learning.statements(found.learning, found.row_titles)[0]
    assert (
        first.kind == kind and {name: first.values[name] for name in values} == values
    )


def test_what_the_ratio_lacks_is_a_statement():
    def kinds(*records):
        found = made(list(records), Target(ACCURACY, 0.9))
        return [
            statement.kind
            for statement in learning.statements(found.learning, found.row_titles)
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


def test_a_chosen_level_is_the_highest_only_where_all_runs_reach_it():
    reached = made([run(1, 100.0, 10), run(2, 150.0, 10)]).learning
    missed = made([run(1, 100.0, 10), run(2, 150.0, 10, best=0)]).learning
    assert [learning.notes(found)[0].kind for found in (reached, missed)] == [
        "target-highest",
        "target-lowest",
    ]


def test_every_view_has_it():
    found = made([run(1, 100.0, 10, **STRONG), run(2, 150.0, 10, **STRONG)])
    text = table.text(found)
    assert (
        "### Learning\n\n" in text
        and "1.50 times as fast" in text
        and "100 predictions" in text
    )
    told = json.loads(json_report.render(found))["learning"]
    assert told["target"] == {"kind": "accuracy", "value": 0.9, "given": False}
    assert [row["needed"] for row in told["rows"]] == [[2000], [2000]]
    assert told["rows"][1]["times_as_soon"]["value"] == 1.5
    one, two = csv.DictReader(io.StringIO(csv_table.render(found).decode()))
    assert (one["items_to_target"], one["times_as_soon_as_one_device"]) == (
        "2000.0",
        "",
    )
    assert (two["seconds_to_target"], two["times_as_soon_as_one_device"]) == (
        "13.3333333333",
        "1.5",
    )
    page = scaling.render(found).decode()
    assert (
        '<h2 id="learning">Learning</h2>' in page
        and page.count("Accuracy over") >= 2
        and "Loss over" in page
    )
    pictures = {
        name: render
        for name, render in report_files.files_of(found).items()
        if "_over_" in name
    }
    assert list(pictures) == [
        f"{kind}_over_{x}.svg"
        for kind in ("accuracy", "loss")
        for x in ("items", "seconds")
    ]
    assert b"target" in pictures["accuracy_over_items.svg"](found)


def test_a_folder_without_it_has_nothing_of_it():
    found = made(series())
    assert found.learning is None
    views = [
        render(found).decode()
        for render in (
            csv_table.render,
            json_report.render,
            table.render,
            scaling.render,
        )
    ]
    assert not [
        view
        for view in views
        if "to_target" in view or "Learning" in view or '"learning"' in view
    ]
    assert not [name for name in report_files.files_of(found) if "_over_" in name]


def test_the_command_takes_one_target(tmp_path, capsys):
    assert report.main([str(tmp_path), "--target_accuracy=0.9", "--target_loss=2"]) == 2
    assert "two targets" in capsys.readouterr().err
    assert report.main([str(tmp_path), "--target_accuracy=90"]) == 2
    assert "--target_accuracy=90" in capsys.readouterr().err
