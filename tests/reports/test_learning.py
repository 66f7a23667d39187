"""What a report says about learning, and that a folder without it has nothing of it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from rnn_scaling.analysis.learning import ACCURACY, LOSS, Target
from rnn_scaling.commands import report
from rnn_scaling.reports import csv_table, json_report, learning, table, writing
from rnn_scaling.reports.page import document
from tests.analysis.test_learning import run
from tests.support.scaling_runs import of as made
from tests.support.scaling_runs import series

STRONG = {"global_batch_size": 8}


def said(records, target=None):
    found = made(records, target)
    return learning.sentences(found.learning, found.row_titles)


@pytest.mark.parametrize(
    "records, target, words",
    [
        (
            [run(1, 100.0, 10, **STRONG), run(2, 150.0, 10, **STRONG)],
            None,
            "2 devices reach 90 % accuracy 1.50 times as soon as one, with as many words; 13.3 s against 20.0 s, "
            "going by one run each.",
        ),
        (
            [run(1, 100.0, 10), run(2, 150.0, 30)],
            Target(ACCURACY, 0.9),
            "2 devices reach 90 % accuracy later than one, 0.75 times as soon, with 2.00 times the words; "
            "26.7 s against 20.0 s, going by one run each.",
        ),
        (
            [run(1, 100.0, 10), run(1, 130.0, 10), run(2, 110.0, 10), run(2, 120.0, 10)],
            None,
            "Whether 2 devices reach 90 % accuracy sooner or later than one cannot be told (",
        ),
        (
            [run(1, 100.0, 10), run(2, 150.0, 10, best=7)],
            Target(ACCURACY, 0.9),
            "n/a: the run on 2 devices did not reach 90 % accuracy and stay there; the best was 70.0 %.",
        ),
        (
            [run(1, 100.0, 10, best=7), run(2, 150.0, 10)],
            Target(ACCURACY, 0.9),
            "n/a: the run on one device did not reach 90 % accuracy and stay there; the best was 70.0 %. "
            "On 2 devices it is reached in 13.3 s.",
        ),
        ([run(2, 150.0, 10)], None, "90 % accuracy is reached on 2 devices in 13.3 s, after 2,000 words. n/a against"),
        ([run(1, 100.0, 10)], None, "90 % accuracy is reached on 1 device in 20.0 s, after 2,000 words."),
        (series()[:2], Target(ACCURACY, 0.5), "n/a: the run on 1 device did not record accuracy, or ran less than"),
        ([run(1, 100.0, 10)], Target(LOSS, 0.5), "the run on 1 device did not reach a loss of 0.5 and stay there"),
    ],
)
def test_one_sentence_says_whether_several_devices_learn_sooner(records, target, words):
    (sentence,) = said(records, target)
    assert words in sentence, sentence


def test_a_level_that_was_chosen_is_said_to_be_reached_only_where_it_is():
    reached = made([run(1, 100.0, 10), run(2, 150.0, 10)]).learning
    assert learning.notes(reached)[0] == "90 % accuracy is the highest of a few levels that all runs reach."
    missed = made([run(1, 100.0, 10), run(2, 150.0, 10, best=0)]).learning
    assert learning.notes(missed)[0] == "10 % accuracy is the lowest level that is tried."


def test_every_view_has_it():
    found = made([run(1, 100.0, 10, **STRONG), run(2, 150.0, 10, **STRONG)])
    text = table.text(found)
    assert "### Learning\n\n" in text and "1.50 times as soon as one" in text
    assert "Reached: the mean over the last 100 predictions is there and stays there until the end" in text
    told = json.loads(json_report.render(found))["learning"]
    assert told["target"] == {"kind": "accuracy", "value": 0.9, "given": False}
    assert [row["needed"] for row in told["rows"]] == [[2000], [2000]]
    assert told["rows"][1]["times_as_soon"]["value"] == 1.5
    one, two = csv.DictReader(io.StringIO(csv_table.render(found).decode()))
    assert (one["items_to_target"], one["times_as_soon_as_one_device"]) == ("2000.0", "")
    assert (two["seconds_to_target"], two["times_as_soon_as_one_device"]) == ("13.3333333333", "1.5")
    page = document.render(found).decode()
    assert '<h2 id="learning">Learning</h2>' in page and page.count("Accuracy over") >= 2 and "Loss over" in page
    pictures = {name: render for name, render in writing.files_of(found).items() if "_over_" in name}
    assert list(pictures) == [f"{kind}_over_{x}.svg" for kind in ("accuracy", "loss") for x in ("items", "seconds")]
    assert b"target" in pictures["accuracy_over_items.svg"](found)


def test_a_folder_without_it_has_nothing_of_it():
    found = made(series())
    assert found.learning is None
    views = [render(found).decode() for render in (csv_table.render, json_report.render, table.render, document.render)]
    assert not [view for view in views if "to_target" in view or "Learning" in view or '"learning"' in view]
    assert not [name for name in writing.files_of(found) if "_over_" in name]


def test_the_command_takes_one_target(tmp_path, capsys):
    assert report.main([str(tmp_path), "--target_accuracy=0.9", "--target_loss=2"]) == 2
    assert "two targets" in capsys.readouterr().err
    assert report.main([str(tmp_path), "--target_accuracy=90"]) == 2
    assert "--target_accuracy=90" in capsys.readouterr().err
