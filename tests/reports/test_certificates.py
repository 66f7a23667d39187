"""Certificates in reports: a column beside the speeds, and an alarm in the first sentence.

Reports without certificates show nothing about them.
"""

from __future__ import annotations

from rnn_scaling.analysis.comparison import differences
from rnn_scaling.reports import conclusions, csv_table, json_report, table
from tests.support.records import changed
from tests.support.scaling_runs import attributed, of, repeated
from tests.support.views import csv_lines, json_of, stated

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
    """Return runs of two modes, of which only some have certificates.

    `independent` is correct on one device and has no certificate on two; `replicated`
    has the given ones.
    """
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
    made = certified(RIGHT)
    text = table.render(made).decode()
    overview, independent, replicated = text.split("### cudnn_lstm, ")
    assert "| Certificate " in overview and "1 of 2 not certified |" in overview
    assert " equal within 1e-5 |" in independent and " not certified |" in independent
    assert "not certified" not in replicated
    [first, second, *_] = csv_lines(made)
    assert first["certificate"] == "equal within 1e-5"
    assert first["certificate_sentence"] == RIGHT["sentence"]
    assert (second["certificate"], second["certificate_sentence"]) == (
        "not certified",
        "",
    )
    rows = [row["certificate"] for row in json_of(made)["series"][0]["rows"]]
    assert rows[0]["holds"] and rows[1] is None


def test_a_mode_that_trains_wrong_is_the_first_thing_that_is_said():
    summary = certified(WRONG)
    lead = conclusions.answer_text(summary)
    assert (
        lead.startswith("TRAINS WRONG")
        and "cudnn_lstm, replicated, on 1 device" in lead
    )
    assert table.render(summary).decode().count("WRONG: sum") == 3
    assert json_of(summary)["answer"] == lead
    assert "TRAINS WRONG" not in conclusions.answer_text(certified(RIGHT))


def test_a_mode_that_trains_wrong_is_never_called_the_fastest():
    def lead(*wrong, alone="parameter_server", rate=90):
        runs = []
        for mode, rate_of_one in (
            (alone, rate),
            ("mirrored", 130),
            ("replicated", 100),
        ):
            certificate = WRONG if mode in wrong else {}
            rates = {1: rate_of_one, 2: 2 * rate_of_one}
            for run in repeated(rates, variable_update=mode):
                runs.append(changed(run, certificate=certificate))
        return stated(of(runs))

    assert lead()["fastest"].subject == "cudnn_lstm, mirrored"
    said = lead("mirrored")
    assert list(said)[0] == "trains-wrong" and "ranked-right" in said
    assert said["fastest"].subject == "cudnn_lstm, replicated"
    assert said["fastest"].values["series"] == 2
    assert "one-ranked" in lead("mirrored", "replicated")
    independent = {"alone": "independent", "rate": 200}
    kinds = {"one-ranked", "ranked-one-model", "ranked-right"}
    assert kinds <= lead("mirrored", **independent).keys()
    all_wrong = lead("independent", "mirrored", "replicated", **independent)
    assert "none-sound" in all_wrong and "fastest" not in all_wrong


def test_without_certificates_nothing_is_said_of_them():
    summary = of(attributed())
    for render in (table.render, csv_table.render, json_report.render):
        assert "ertif" not in render(summary).decode()


def test_compare_names_what_is_certified_on_one_side_and_refuses_what_trains_wrong():
    plain = attributed()[-1:]
    right = [changed(run, certificate=RIGHT) for run in plain]
    wrong = [changed(run, certificate=WRONG) for run in plain]

    def found(before, after):
        differing = differences.find_differences(before, after)
        names = ("certificate", "training")
        return [
            (each.name, each.second, each.severity)
            for each in differing
            if each.name in names
        ]

    assert found(plain, plain) == []
    assert found(plain, right) == [("certificate", ("certified",), "caution")]
    assert found(right, wrong) == [("training", (WRONG["verdict"],), "incomparable")]
