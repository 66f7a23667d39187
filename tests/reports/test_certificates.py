"""Certificates in reports: a column beside the speeds, and an alarm in the first sentence.

Reports without certificates show nothing about them.
"""

from rnn_scaling.reports import table
from tests.support import answers
from tests.support.records import change_record
from tests.support.scaling_runs import (
    make_attributed_runs,
    make_repeats,
    summarise_records,
)
from tests.support.views import csv_lines, render_json

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


def make_certified_runs(replicated):
    """Return runs of two modes, of which only some have certificates.

    `independent` is correct on one device and has no certificate on two; `replicated`
    has the given ones.
    """
    runs = []
    for run in make_attributed_runs():
        is_independent, devices = (
            run.config["variable_update"] == "independent",
            run.config["num_devices"],
        )
        own = (RIGHT if devices == 1 else None) if is_independent else replicated
        runs.append(change_record(run, certificate=own) if own else run)
    return summarise_records(runs)


def test_the_verdict_stands_beside_the_speed():
    made = make_certified_runs(RIGHT)
    text = table.render(made).decode()
    overview, independent, replicated = text.split("### cudnn_lstm, ")
    assert "| Certificate " in overview and "1 of 2 not certified |" in overview
    assert " equal within 1e-5 |" in independent and " not certified |" in independent
    assert "not certified" not in replicated
    [first, second, *_] = csv_lines(made)
    assert first["certificate"] == "equal within 1e-5"
    assert first["certificate_sentence"] == RIGHT["sentence"]
    assert second["certificate"] == "not certified"
    assert second["certificate_sentence"] == ""
    rows = [row["certificate"] for row in render_json(made)["series"][0]["rows"]]
    assert rows[0]["holds"] and rows[1] is None


def test_a_mode_that_trains_wrong_has_its_verdict_in_the_table():
    assert table.render(make_certified_runs(WRONG)).decode().count("WRONG: sum") == 3


def test_a_mode_that_trains_wrong_is_never_called_the_fastest():
    rates_of_one = {"parameter_server": 90, "mirrored": 130, "replicated": 100}

    def lead(*wrong):
        runs = []
        for mode, rate in rates_of_one.items():
            certificate = WRONG if mode in wrong else {}
            for run in make_repeats({1: rate, 2: 2 * rate}, variable_update=mode):
                runs.append(change_record(run, certificate=certificate))
        return answers.lead(summarise_records(runs))

    assert lead()["fastest"].subject == "cudnn_lstm, mirrored"
    assert lead()["pairs-compared"].values == {"pairs": 3}
    said = lead("mirrored")
    assert list(said)[0] == "trains-wrong" and "ranked-right" in said
    assert said["fastest"].subject == "cudnn_lstm, replicated"
    assert "one-ranked" in lead("mirrored", "replicated")
    all_wrong = lead(*rates_of_one)
    assert "none-sound" in all_wrong and "fastest" not in all_wrong
