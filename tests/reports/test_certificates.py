"""Certificates in reports: a column beside the speeds, an alarm in the first sentence, nothing where there are none."""

from __future__ import annotations

import csv
import io
import json

from rnn_scaling.analysis.comparison import differences
from rnn_scaling.reports import conclusions, csv_table, json_report, table
from tests.support.records import changed
from tests.support.scaling_runs import attributed, of, timed

RIGHT = {
    "verdict": "equal within 1e-5",
    "holds": True,
    "sentence": "Equal within 1e-5: as it should be.",
}
WRONG = {
    "verdict": "sum",
    "holds": False,
    "sentence": "WRONG from batch 0 on: gradients are summed.",
}


def certified(replicated):
    """Runs of two modes: `independent` on one device is right, on two not certified; `replicated` is as given."""
    runs = []
    for run in attributed():
        is_independent, devices = (
            run.config["variable_update"] == "independent",
            run.config["num_devices"],
        )
        own = (RIGHT if devices == 1 else None) if is_independent else replicated
        runs.append(changed(run, certificate=own) if own else run)
    return of(runs)


def test_the_verdict_stands_beside_the_speed():
    text = table.render(certified(RIGHT)).decode()
    overview, rows = text.split("### cudnn_lstm, independent", 1)
    assert (
        "| Certificate " in overview
        and "1 of 2 not certified |" in overview
        and " equal within 1e-5 |" in overview
    )
    independent, replicated = rows.split("### cudnn_lstm, replicated", 1)
    assert " equal within 1e-5 |" in independent and " not certified |" in independent
    assert "not certified" not in replicated
    made = csv_table.render(certified(RIGHT)).decode()
    words = [
        (row["certificate"], row["certificate_sentence"])
        for row in csv.DictReader(io.StringIO(made))
    ]
    assert words[:2] == [
        ("equal within 1e-5", RIGHT["sentence"]),
        ("not certified", ""),
    ]
    series = json.loads(json_report.render(certified(RIGHT)))["series"]
    assert [
        [row["certificate"] and row["certificate"]["holds"] for row in each["rows"]]
        for each in series
    ] == [
        [True, None],
        [True, True],
    ]


def test_a_mode_that_trains_wrong_is_the_first_thing_that_is_said():
    summary = certified(WRONG)
    lead = conclusions.answer_text(summary)
    assert (
        lead.startswith("TRAINS WRONG")
        and "cudnn_lstm, replicated, on 1 device" in lead
    )
    assert table.render(summary).decode().count("WRONG: sum") == 3
    assert json.loads(json_report.render(summary))["answer"] == lead
    assert "TRAINS WRONG" not in conclusions.answer_text(certified(RIGHT))


def test_a_mode_that_trains_wrong_is_never_called_the_fastest():
    def lead(
        *wrong, rates=(("parameter_server", 90), ("mirrored", 130), ("replicated", 100))
    ):
        runs = [
            timed(n, rate * n, k, variable_update=mode)
            for mode, rate in rates
            for n in (1, 2)
            for k in range(3)
        ]
        summary = of(
            [
                changed(
                    r, certificate=WRONG if r.config["variable_update"] in wrong else {}
                )
                for r in runs
            ]
        )
        return {
            statement.kind: statement
            for statement in conclusions.answer_statements(summary)
        }

    assert lead()["fastest"].subject == "cudnn_lstm, mirrored"
    said = lead("mirrored")
    assert list(said)[0] == "trains-wrong" and "ranked-right" in said
    assert (said["fastest"].subject, said["fastest"].values["series"]) == (
        "cudnn_lstm, replicated",
        2,
    )
    assert "one-ranked" in lead("mirrored", "replicated")
    beside = (("independent", 200), ("mirrored", 130), ("replicated", 100))
    assert {"one-ranked", "ranked-one-model", "ranked-right"} <= lead(
        "mirrored", rates=beside
    ).keys()
    all_wrong = lead(*dict(beside), rates=beside)
    assert "none-sound" in all_wrong and "fastest" not in all_wrong


def test_without_certificates_nothing_is_said_of_them():
    summary = of(attributed())
    for render in (table.render, csv_table.render, json_report.render):
        assert "ertif" not in render(summary).decode()


def test_compare_names_what_is_certified_on_one_side_and_refuses_what_trains_wrong():
    plain = attributed()[-1:]
    right, wrong = (
        [changed(run, certificate=each) for run in plain] for each in (RIGHT, WRONG)
    )
    assert not [
        each for each in differences.differences(plain, plain) if "ertif" in each.what
    ]
    (one,) = [
        each
        for each in differences.differences(plain, right)
        if each.what in ("certificate", "training")
    ]
    assert (one.what, one.a, one.b, one.severity) == (
        "certificate",
        ("not certified",),
        ("certified",),
        "caution",
    )
    (grave,) = [
        each
        for each in differences.differences(right, wrong)
        if each.what in ("certificate", "training")
    ]
    assert (grave.what, grave.severity) == (
        "training",
        "incomparable",
    ) and grave.b == (WRONG["verdict"],)
