"""Reports of trainers that are not ours: their own options, units, work, the parts of their loss, and their logs."""

import dataclasses
from pathlib import Path

import pytest

from rnn_scaling.analysis import folder_rows, rows
from rnn_scaling.analysis.comparison import judgement, matching
from rnn_scaling.analysis.rows import select_metrics as metrics_of
from rnn_scaling.config.naming import CHOICE_OPTIONS
from rnn_scaling.records import folder, record
from rnn_scaling.records.folder import Originals, RunFile
from rnn_scaling.reports import cautions, comparison, conclusions, csv_table, table
from rnn_scaling.reports.page import scaling
from rnn_scaling.reports.series_statements import make_statements
from tests.support.answers import lead
from tests.support.records import change_record
from tests.support.scaling_runs import (
    make_runs_at_rates,
    make_timed_run,
    summarise_records,
)
from tests.support.views import csv_lines, render_json, render_page


def make_their_run(rate, devices=1, repeat=0, unit="tokens", trainer="mine", **options):
    """Return a run of a user's trainer that recorded only these options."""
    config = {"trainer": trainer, "num_devices": devices, "num_batches": 20, **options}
    run = change_record(make_timed_run(devices, rate, repeat), environment={"cpu": "A"})
    return change_record(run, config=config, unit=unit)


def make_their_repeats(rate, devices=1, **options):
    return [make_their_run(rate, devices, k, **options) for k in range(3)]


def judge_runs(*sides):
    """Compare two lists of runs."""
    files = [
        tuple(RunFile(f"{k}.json", run) for k, run in enumerate(side)) for side in sides
    ]
    named = [
        matching.ComparedRuns(Path(name), side, ()) for name, side in zip("ab", files)
    ]
    return judgement.judge(*named, judgement.Question())


def titles(*records):
    return [series.title for series in summarise_records(list(records)).series]


def test_their_own_options_tell_series_apart_as_any_option_does():
    runs = [
        make_their_run(100 * n, n, hidden=size, lr=0.1)
        for size in (256, 512)
        for n in (1, 2)
    ]
    made = summarise_records(runs)
    names = ["mine, hidden=256", "mine, hidden=512"]
    assert [each.title for each in made.series] == names
    lines = csv_lines(made)
    assert [line["hidden"] for line in lines] == ["256", "256", "512", "512"]
    assert "lr" not in lines[0]
    options = render_json(made)["series"][1]["rows"][1]["options"]
    assert options["hidden"] == 512
    assert options["trainer"] == "mine"
    assert names[1] in render_page(made) and f"### {names[1]}" in table.format_text(
        made
    )


def test_their_options_have_columns_beside_ours_of_the_same_name():
    made = summarise_records(
        [make_their_run(100, kernel=each, seconds=each) for each in ("a", "b")]
    )
    for line, name in zip(csv_lines(made), "ab"):
        assert line["option_kernel"] == name
        assert line["option_seconds"] == name
        assert line["kernel"] == "" and float(line["seconds"]) > 0


def test_a_unit_is_no_path():
    made = summarise_records([make_their_run(100, unit="a/../../b")])
    assert [metric.name for metric in metrics_of(made.rows)][0] == "a_b_per_second"
    assert "a/../../b/s" in table.format_text(made)


def test_what_they_do_not_tell_is_not_made_up():
    ours = change_record(make_timed_run(1, 90, num_units=512), environment={"cpu": "A"})
    made = summarise_records(
        [make_their_run(100), ours, make_their_run(80, trainer="other", num_units=64)]
    )
    assert [each.title for each in made.series] == [
        "cudnn_lstm, independent, num_units=512",
        "mine",
        "other, num_units=64",
    ]
    lines = csv_lines(made)
    told = [
        (line["trainer"], line["model"], line["num_units"], line["batch_size"])
        for line in lines
    ]
    assert told == [
        ("", "nmt", "512", "32"),
        ("mine", "", "", ""),
        ("other", "", "64", ""),
    ]


def test_values_of_any_kind_of_an_option_of_ours_are_put_in_an_order():
    modes = ("ring", None, 2)
    runs = [make_their_run(100, variable_update=mode) for mode in modes]
    assert all(record.from_json(run.to_json()).config == run.config for run in runs)
    assert len(titles(*runs)) == 3


def test_a_preset_that_they_tell_is_work_of_its_own_and_ours_is_not():
    ours = [
        change_record(make_timed_run(1, 90, preset=preset), environment={"cpu": "A"})
        for preset in ("small", "large")
    ]
    runs = [
        make_their_run(100, preset="small"),
        make_their_run(50, preset="big"),
        *ours,
    ]
    assert titles(*runs) == [
        "cudnn_lstm, independent",
        "mine, preset=small",
        "mine, preset=big",
    ]
    lines = csv_lines(summarise_records(runs))
    assert [line["preset"] for line in lines] == ["", "small", "big"]
    assert "preset" not in csv_table.render(summarise_records(ours)).decode()


def test_what_they_tell_as_none_they_do_not_tell():
    assert titles(
        make_their_run(100, variable_update=None), make_their_run(190, 2)
    ) == ["mine"]


def test_the_loss_is_split_as_ours_where_they_have_runs_that_exchange_nothing():
    rates = {
        ("independent", 1): 100,
        ("independent", 2): 180,
        ("replicated", 1): 100,
        ("replicated", 2): 140,
    }
    runs = []
    for (mode, n), rate in rates.items():
        runs += make_their_repeats(rate, n, variable_update=mode)

    def parts(runs):
        split = next(
            s for s in summarise_records(runs).series if "independent" not in s.title
        )
        return [part.name for part in split.largest_loss.significant_parts]

    assert set(parts(runs)) == {"contention", "exchange"}
    # A mode that only the independent runs record.
    fewer = []
    for run in runs:
        config = dict(run.config)
        if config["variable_update"] == "replicated":
            del config["variable_update"]
        fewer.append(change_record(run, config=config))
    assert "exchange" in parts(fewer)


def test_runs_that_would_split_a_loss_are_asked_only_of_our_trainer_and_where_something_is_lost():
    for rate, is_lost in ((140, True), (230, False)):
        assert not conclusions.list_all_missing_run_commands(
            summarise_records([*make_their_repeats(100), *make_their_repeats(rate, 2)])
        )
        rates = {("replicated", 1): 100, ("replicated", 2): rate}
        made = summarise_records(make_runs_at_rates(rates))
        kinds = {each.kind for each in make_statements(made.series[0])}
        assert ("parts-need-runs" in kinds) == is_lost
        assert bool(conclusions.list_all_missing_run_commands(made)) == is_lost


def test_trainers_that_a_sweep_ran_by_other_commands_are_ranked():
    work = {"model": "lm", "batch_size": 8, "device": "cpu", "cpu_cores_per_device": 1}
    one, other = (
        {"trainer_command": "one {model}", "log_format": "auto"},
        {"trainer_command": "other {model}"},
    )
    made = summarise_records(
        [
            *make_their_repeats(100, **work, **one),
            *make_their_repeats(
                150, trainer="yours", **work, **other, log_format="gnmt"
            ),
        ]
    )
    assert [name for name, _ in made.scalings] == ["Weak scaling, batch_size=8"]
    assert conclusions.state_answer(made)[0].subject == "yours, model=lm"


def test_trainers_that_may_do_other_work_are_not_called_faster():
    runs = [*make_their_repeats(100), *make_their_repeats(190, 2)]
    runs += [
        *make_their_repeats(300, trainer="yours"),
        *make_their_repeats(900, 2, trainer="yours"),
    ]
    answer = lead(summarise_records(runs))
    assert answer["unknown-work"].values["trainers"] == ["mine", "yours"]
    assert not [kind for kind in answer if "fastest" in kind]
    known = {"model": "lm", "batch_size": 8}
    runs = make_their_repeats(100, hidden=1, **known)
    for rate, hidden in ((200, 1), (900, 2)):
        runs += make_their_repeats(rate, trainer="yours", hidden=hidden, **known)
    assert [
        (name, len(series)) for name, series in summarise_records(runs).scalings
    ] == [
        ("Weak scaling, batch_size=8, hidden=1", 2),
        ("Weak scaling, batch_size=8, hidden=2", 1),
    ]


def test_a_comparison_of_one_trainer_that_tells_its_work_on_one_side_alone_is_not_judged():
    told = {"model": "lm", "batch_size": 8}

    def said(before, after):
        return comparison.render_text(
            judge_runs(
                make_their_repeats(100, **before), make_their_repeats(120, **after)
            )
        )

    text = said(told, {})
    assert "changed: --batch_size=8 -> not recorded," in text
    assert "Cannot judge: incomparable: the work" in text
    assert "batch_size=8 before, unknown after" in text
    assert "incomparable" not in said(told, told) and "incomparable" not in said({}, {})


def test_runs_of_equal_options_that_count_different_things_are_compared_apart():
    tokens = make_their_run(100)
    # Both runs share one Options object, like the runs of a folder.
    sentences = dataclasses.replace(
        make_their_run(7, unit="sentences"), options=tokens.options
    )
    side = matching.ComparedRuns(
        Path("a"), (RunFile("0.json", tokens), RunFile("1.json", sentences)), ()
    )
    labels = [each.label for each in matching.match(side, side)[1]]
    assert [label.rpartition(", ")[2] for label in labels] == ["tokens", "sentences"]


def make_log_run(rate, devices=1, **options):
    """Return a run whose log contained only a rate."""
    run = make_their_run(rate, devices, **options)
    rate_alone = {"items": None, "seconds": None, "items_per_second": rate}
    return change_record(
        run,
        batches={},
        throughput=rate_alone,
        phases={},
        steady_state={},
        log_format="seed_trainer",
    )


def test_a_log_without_batches_gives_rates_and_says_what_is_not_known():
    runs = [make_log_run(rate * n, n) for n in (1, 2) for rate in (100, 101, 102)]
    made = summarise_records(runs)
    found = {each.kind: each.values for each in cautions.make_statements(made)}
    assert found["rates-from-logs"] == {"logs": 6, "runs": 6}
    assert found["log-formats"] == {"formats": ["seed_trainer"]}
    assert "log-rates-alike" not in found
    [series] = made.series
    assert series.largest_row.efficiency_percent.ends
    assert made.steady_states == {} and made.num_unjudged == 0
    [first, *_] = folder_rows.Rows(tuple(made.rows), (), ("",) * 2).to_records()
    assert first["items_per_second"] == pytest.approx(101, 0.01)
    with_steps = cautions.make_statements(
        summarise_records([*runs, make_their_run(100, trainer="timed")])
    )
    assert {"logs": 6, "runs": 7} in [each.values for each in with_steps]


def test_logs_of_equal_rates_have_no_interval():
    alike = cautions.make_statements(
        summarise_records([make_log_run(100), make_log_run(100)])
    )
    assert "log-rates-alike" in [each.kind for each in alike]
    work = {"model": "lm", "batch_size": 8}
    same = [
        make_log_run(100 * n, n, trainer=name, **work)
        for name in ("a", "b")
        for n in (1, 1, 2, 2)
    ]
    assert conclusions.state_answer(summarise_records(same))[-1].kind == "same-rates"


def test_copies_of_runs_that_were_read_from_logs_are_on_both_sides():
    def shared(*sides):
        return matching.count_shared_runs(*(rows.build_rows(side)[0] for side in sides))

    def logs(*process_s):
        return [
            change_record(make_log_run(100.0), phases={"total": s}) for s in process_s
        ]

    assert shared(logs(9.1, 9.2), logs(9.2, 9.3)) == 1
    assert shared(logs(9.1), logs(9.2)) == 0, "logs often tell the same rate"
    assert shared(logs(0.0), logs(0.0)) == 0, "nobody knows how long these took"
    printed = [
        change_record(
            make_their_run(100), phases={"total": 900.0 + k}, log_format="regex:x"
        )
        for k in range(2)
    ]
    assert shared(printed[:1], printed[1:]) == 0, "and milliseconds of few digits"
    originals = Originals()
    found = [
        originals.find_or_add(str(k), run)
        for k, run in enumerate([*printed, printed[1]])
    ]
    assert found == [None, None, "1"]


def test_words_of_ours_are_names_of_their_own_in_every_report():
    words = dict.fromkeys(CHOICE_OPTIONS, "its_own")
    runs = [*make_their_repeats(100, **words), *make_their_repeats(200, 2, **words)]
    words = {**words, "optimizer": "adamw"}
    runs += [*make_their_repeats(90, **words), *make_their_repeats(180, 2, **words)]
    assert all(record.from_json(run.to_json()).config == run.config for run in runs)
    made = summarise_records(runs)
    assert [each.title.split("=")[-1] for each in made.series] == ["its_own", "adamw"]
    for view in (table, scaling, csv_table):
        assert "its_own" in view.render(made).decode()
    assert comparison.render_text(judge_runs(runs, runs))


def test_a_rate_of_few_digits_is_no_surer_than_its_log():
    def printed(rate, n, trainer="mine"):
        run = make_log_run(rate, n, trainer=trainer, model="m", batch_size=1)
        return [change_record(run, log_rounding=0.5 / rate)] * 3

    rates = [*printed(2.0, 1), *printed(3.0, 2)]
    made = summarise_records(
        [*rates, *printed(3.0, 1, "yours"), *printed(5.0, 2, "yours")]
    )
    found = {each.kind: each.values for each in cautions.make_statements(made)}
    assert found["log-digits"] == {"rounding": 0.25}
    mine = next(each for each in made.series if each.title.startswith("mine"))
    low, high = mine.largest_row.efficiency_percent.ends
    assert low <= 100 * 2.5 / 2.5 / 2 and high >= 100 * 3.5 / 1.5 / 2
    assert "fastest-unclear" in lead(made) and "log-rates-alike" not in found
    fine = summarise_records(
        [change_record(run, log_rounding=1e-4) for run in printed(2.0, 1)]
    )
    assert "log-digits" not in [each.kind for each in cautions.make_statements(fine)]
    assert 0 < fine.series[0].largest_row.rate.half_width < 1e-3


def test_digits_too_few_to_tell_how_it_scales_are_no_runs_that_vary():
    def said(rounding, spread):
        rates = [(n, n * (1 + spread * k)) for n in (1, 2) for k in (-1, 0, 1)]
        runs = [
            change_record(make_log_run(rate, n), log_rounding=rounding)
            for n, rate in rates
        ]
        return [
            statement.kind
            for statement in make_statements(summarise_records(runs).series[0])
        ]

    assert said(0.4, 0.0) == ["efficiency-unknown", "few-digits"]
    assert said(1e-3, 0.4) == ["efficiency-unknown", "runs-vary"]


def test_what_failed_before_it_told_all_stays_in_its_series():
    told = {"batch_size": 8, "hidden": 3, "device": "cpu"}

    def crashed(hidden):
        config = {"trainer": "mine", "num_devices": 4, "hidden": hidden}
        lost = dict.fromkeys(("throughput", "batches", "environment"), {})
        return change_record(
            make_their_run(1, 4), status="failed", config=config, unit="items", **lost
        )

    def series(*runs):
        return summarise_records(folder.complete_failed_runs(list(runs))).series

    found = series(
        make_their_run(100, 1, **told),
        crashed(3),
        make_their_run(190, 2, **told),
        crashed(5),
    )
    counts = {each.title: len(each.rows) for each in found}
    assert counts == {"mine, hidden=3": 3, "mine, hidden=5": 1}
    other = make_their_run(90, 1, **{**told, "batch_size": 16})
    # Nobody knows of which series the crashed run would be.
    assert len(series(make_their_run(100, 1, **told), other, crashed(3))) == 3
    assert folder.complete_failed_runs([crashed(3)]) == [crashed(3)]


def test_a_program_that_ended_badly_after_its_record_is_named():
    made = summarise_records(
        [change_record(run, ended="exit status 3") for run in make_their_repeats(100)]
    )
    found = {each.kind: each.values for each in cautions.make_statements(made)}
    assert found["failed-late"]["files"][0].endswith("(exit status 3)")
    assert made.series[0].largest_row.rate.ends
