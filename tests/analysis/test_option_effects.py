"""The effect of each option over all series that share the other options."""

import math
import random
import statistics

import pytest

from rnn_scaling.analysis.option_effects import find_option_effects
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.analysis.significance import (
    MAX_REPEATS,
    compute_needed_repeats,
    estimate_foreseen_effect,
)
from rnn_scaling.reports import conclusions, headline
from tests.reports.test_certificates import WRONG
from tests.support.records import change_record
from tests.support.scaling_runs import (
    cluster,
    make_repeats,
    make_timed_run,
    summarise_records,
)

MODES = ("independent", "parameter_server", "replicated")
ENCODERS = {"cudnn_lstm": 1.36, "dynamic_rnn": 1.0}


def runs_of(mode_factors=(1.0, 1.0, 1.0), sd=0.0, rng=None, repeats=3, num_devices=2):
    """Return runs of all modes with both encoders, whose rates have a known ratio."""
    rng = rng or random.Random(1)
    runs = []
    for encoder, encoder_factor in ENCODERS.items():
        for mode, mode_factor in zip(MODES, mode_factors):
            for _ in range(repeats):
                rate = 100 * encoder_factor * mode_factor * math.exp(rng.gauss(0, sd))
                options = {"encoder_type": encoder, "decoder_type": encoder}
                if mode == "parameter_server":
                    options["param_server_device"] = "cpu"
                runs.append(
                    make_timed_run(
                        num_devices, rate, 1, variable_update=mode, **options
                    )
                )
    return runs


def find_effects(runs):
    return {effect.option: effect for effect in find_option_effects(build_rows(runs))}


def test_options_that_follow_from_others_have_no_effect_of_their_own():
    assert set(find_effects(runs_of(sd=0.01))) == {"encoder_type", "variable_update"}


def test_the_ratio_is_the_geometric_mean_over_the_other_options():
    runs = runs_of((1.0, 0.9, 0.8), sd=0.01)
    effect = find_effects(runs)["encoder_type"]
    assert effect.values == ("cudnn_lstm", "dynamic_rnn")
    logs = {encoder: [] for encoder in ENCODERS}
    for run in runs:
        rate = math.log(run.throughput.items_per_second)
        logs[run.options["encoder_type"]].append(rate)
    means = {encoder: statistics.fmean(values) for encoder, values in logs.items()}
    expected = math.exp(means["cudnn_lstm"] - means["dynamic_rnn"])
    assert effect.ratio.value == pytest.approx(expected, rel=1e-3)
    assert effect.is_significant


def test_intervals_hold_together_in_95_of_100_cases():
    rng = random.Random(3)
    held = {"encoder_type": 0, "variable_update": 0}
    false_winners = 0
    cases = 150
    for _ in range(cases):
        effects = find_effects(runs_of(sd=0.02, rng=rng))
        held["encoder_type"] += (
            effects["encoder_type"].ratio.low
            <= ENCODERS["cudnn_lstm"]
            <= effects["encoder_type"].ratio.high
        )
        modes = effects["variable_update"]
        false_winners += modes.is_significant
        held["variable_update"] += modes.ratio.low <= 1
    for name, count in held.items():
        assert 0.92 <= count / cases <= 1.0, name
    assert false_winners / cases <= 0.07


def test_values_that_never_share_the_rest_have_no_effect():
    runs = [
        *make_repeats({2: 100}, encoder_type="cudnn_lstm", xla=False),
        *make_repeats({2: 120}, encoder_type="dynamic_rnn", xla=True),
        *make_repeats({2: 130}, encoder_type="block_lstm", xla=True),
    ]
    assert "xla" not in find_effects(runs)


def test_the_headline_has_the_speedup_and_the_effects():
    runs = [
        *runs_of((1.0, 0.99, 1.0), sd=0.003, num_devices=1),
        *[
            change_record(run, config={**run.config, "num_devices": 2})
            for run in runs_of((1.0, 0.99, 1.0), sd=0.003, num_devices=2)
        ],
    ]
    kinds = [each.kind for each in conclusions.state_answer(summarise_records(runs))]
    assert kinds[:3] == ["speedup-alike", "effect-of-two", "effect-equal"]
    headlines, details = conclusions.answer_paragraphs(summarise_records(runs))
    assert (len(headlines), len(details)) == (1, 1)


def headline_kinds(factors, sd, modes=None):
    """Return the statements of the headline about the update modes on two devices."""
    runs = []
    for num_devices in (1, 2):
        runs += [
            change_record(run, config={**run.config, "num_devices": num_devices})
            for run in runs_of(factors, sd=sd, num_devices=num_devices)
            if modes is None or run.options["variable_update"] in modes
        ]
    return [each.kind for each in conclusions.state_answer(summarise_records(runs))]


def test_only_modes_that_train_one_model_replace_each_other():
    equal = (1.0, 1.0, 1.0)
    kinds = headline_kinds(equal, 0.003)
    assert "effect-equal" in kinds and "take-any" not in kinds
    shared = headline_kinds(equal, 0.003, modes=("replicated", "parameter_server"))
    assert shared[shared.index("effect-equal") + 1] == "take-any"


def test_the_named_repeats_show_the_difference_and_fewer_do_not():
    for effect in (0.01, 0.03, 0.1):
        repeats = compute_needed_repeats(effect, 0.02, 12.0, 3, num_compared=3)
        if repeats is None:
            assert estimate_foreseen_effect(0.02, 12.0, 3, MAX_REPEATS, 3) > effect
            continue
        assert estimate_foreseen_effect(0.02, 12.0, 3, repeats, 3) <= effect
        assert (
            repeats == 4
            or estimate_foreseen_effect(0.02, 12.0, 3, repeats - 1, 3) > effect
        )
    assert compute_needed_repeats(1e-5, 0.02, 12.0, 3, 2) is None


def test_series_over_devices_and_over_workers_are_not_mixed():
    """Four devices as four workers of one and as two workers of two are two settings."""
    runs = []
    for mode, factor in (
        ("collective_all_reduce", 1.2),
        ("distributed_independent", 1),
    ):
        for devices in (1, 2):
            for k in range(3):
                options = {"variable_update": mode, "encoder_type": "cudnn_lstm"}
                runs.append(
                    cluster(4 // devices, 100 * factor, k, 40, devices, **options)
                )
    assert find_effects(runs)["variable_update"].ratio.value == pytest.approx(1.2)


def test_a_series_that_trains_wrong_has_no_part_in_the_headline():
    runs = runs_of((1.0, 0.8, 1.2), sd=0.003)
    wrong = [
        change_record(run, certificate=WRONG)
        if run.options["variable_update"] == "replicated"
        else run
        for run in runs
    ]
    headlines, _ = conclusions.answer_paragraphs(summarise_records(wrong))
    assert "WRONG" in headlines[0]
    for statement in conclusions.state_answer(summarise_records(wrong)):
        if statement.kind in headline.KINDS:
            assert "replicated" not in str(statement.data())
