"""Test rows, their baselines, and the titles of series."""

from types import SimpleNamespace

import pytest

from rnn_scaling.analysis import folder_rows, rows, series_titles
from rnn_scaling.analysis.interval_kinds import Basis, Note
from rnn_scaling.analysis.keys import build_key
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.records.options import Options
from tests.support.records import change_record, make_record
from tests.support.scaling_runs import make_resolved_run, make_timed_run, run, series


def titles(*records):
    return series_titles.make_titles(
        series_titles.group_by_series(rows.build_rows(list(records)))
    )


STRONG = {"global_batch_size": 64}
LOOP = {"encoder_type": "dynamic_rnn"}
FUSED = {"encoder_type": "cudnn_lstm"}
LOOP_DECODER = {"decoder_type": "dynamic_rnn"}


@pytest.mark.parametrize(
    "options, names",
    [
        (
            [{"batch_size": 32}, {"batch_size": 64}, STRONG],
            [
                "batch_size=32",
                "batch_size=64",
                "strong scaling, 64 sentence pairs a step",
            ],
        ),
        (
            [{"model": "lm", **STRONG}, {"model": "of others", **STRONG}, STRONG],
            [
                f"strong scaling, 64 {samples} a step"
                for samples in ("sentences", "samples", "sentence pairs")
            ],
        ),
        (
            [FUSED, FUSED | LOOP_DECODER, LOOP | LOOP_DECODER],
            ["", "decoder_type=dynamic_rnn", ""],
        ),
        ([FUSED | LOOP_DECODER], [""]),
    ],
)
def test_titles_contain_the_options_that_differ(options, names):
    records = [make_resolved_run(100, **changes) for changes in options]
    for title, changes, name in zip(titles(*records), options, names):
        start = f"{changes.get('encoder_type', 'cudnn_lstm')}, independent"
        assert title.startswith(start) and title.endswith(name)
        assert name or title == start


def value(row, metric):
    interval = row.metric(metric)
    return None if interval is None else interval.value


def test_speedup_and_efficiency_are_relative_to_one_device():
    table = rows.build_rows(series())
    speedups = [value(row, SPEEDUP) for row in table]
    mean = (770 * 780) ** 0.5 / 500  # two repeats of one row
    assert speedups == [1.0, pytest.approx(1.9), None, 1.0, pytest.approx(mean)]
    efficiencies = [value(row, EFFICIENCY) for row in table[:2]]
    assert efficiencies == [1.0, pytest.approx(0.95)]
    assert [len(row.records) for row in table] == [1, 1, 1, 1, 2]


def test_the_global_batch_is_the_batch_of_an_update():
    [row] = rows.build_rows(
        [run(2, 1000.0, batch_size=16, gradient_accumulation_steps=4)]
    )
    assert row.batch_size == 16
    assert row.global_batch_size == 128


def test_runs_that_differ_in_more_than_devices_are_not_compared():
    one, two = rows.build_rows(
        [run(1, 1000.0, batch_size=16), run(2, 1900.0, batch_size=32)]
    )
    assert two.metric(SPEEDUP) is None
    failed_baseline = rows.build_rows([run(1, 0.0, "failed"), run(2, 1900.0)])[1]
    assert failed_baseline.metric(SPEEDUP) is None


def test_runs_that_differ_in_an_unread_option_are_one_series():
    one, two = rows.build_rows(
        [run(1, 1000.0, all_reduce_spec="xring"), run(2, 1900.0)]
    )
    assert value(two, SPEEDUP) == pytest.approx(1.9)


def test_a_key_contains_the_options_that_differ_from_defaults():
    options = run(2, 1900.0, optimizer="sgd", all_reduce_spec="xring").options
    given = {
        "device": "cpu",
        "encoder_type": "cudnn_lstm",
        "num_devices": 2,
        "optimizer": "sgd",
    }
    assert build_key(options, "words") == (("unit", "words"), *given.items())
    # Another program reads the options that it records.
    theirs = build_key(options, "words", trainer="theirs")
    assert {("all_reduce_spec", "xring"), ("trainer", "theirs")} <= {*theirs}


def test_an_older_record_has_the_default_of_a_new_option():
    new = run(1, 1000.0)
    config = {n: v for n, v in new.config.items() if n != "global_batch_size"}
    assert len(rows.build_rows([change_record(new, config=config), new])) == 1


def test_rows_with_equal_conditions_share_their_scatter():
    rates = [
        ("independent", 1, 100),
        ("independent", 1, 104),
        ("replicated", 1, 90),
        ("independent", 2, 180),
        ("independent", 2, 190),
        ("mirrored", 2, 7),
    ]
    runs = [run(n, 100.0 * rate, variable_update=mode) for mode, n, rate in rates]
    one, other, two, fourth = rows.build_rows(runs)
    assert one.scatter is other.scatter
    assert two.scatter is fourth.scatter
    assert one.scatter is not two.scatter
    assert other.rate.ends
    assert other.rate.run_counts == (1,)
    assert Note.POOLED in other.rate.kind.notes


MIRRORED = {"variable_update": "mirrored"}


@pytest.mark.parametrize(
    "unlike",
    [
        change_record(run(1, 5000.0, **MIRRORED), environment={"cpu": "another"}),
        change_record(run(1, 5000.0, **MIRRORED), resolved={"device_type": "GPU"}),
        make_timed_run(1, 5000.0, **MIRRORED),
        run(1, 5000.0, until_steady=True, **MIRRORED),
    ],
)
def test_rows_with_other_conditions_do_not_share_a_scatter(unlike):
    runs = [run(1, 10_000.0), run(1, 10_400.0)]
    assert rows.build_rows([*runs, unlike])[-1].rate.ends is None


def test_one_run_of_each_has_only_the_interval_over_its_batches():
    one, two = rows.build_rows([make_timed_run(1, 100), make_timed_run(2, 140)])
    for interval in (one.rate, two.rate, two.metric(SPEEDUP)):
        assert interval.ends is None
    assert two.rate.kind.basis is Basis.ONE_RUN_EACH
    assert two.rate_within_run.low < two.rate.value < two.rate_within_run.high
    assert (
        rows.build_rows([make_timed_run(2, 140), make_timed_run(2, 141)])[
            0
        ].rate_within_run
        is None
    )


@pytest.mark.parametrize("share", [7, 3000])
def test_even_towers_have_no_imbalance(share):
    shares = [[share] * 3] * 59
    record = make_record(
        seconds=[0.1 * k for k in range(1, 60)],
        items=[3 * share] * 59,
        batches={"tower_items": shares, "tower_positions": shares},
    )
    [row] = rows.build_rows([record])
    assert 0 <= row.imbalance < 1e-12


@pytest.mark.parametrize(
    "values, differ",
    [
        (["a", "b"], True),
        (["a", "a"], False),
        ([1, "1"], True),
        ([None, "a"], False),
        ([None, None], False),
    ],
)
def test_differing_options_identify_rows(values, differ):
    """None is an unknown value of an option of this suite."""
    configs = [{}, *({"num_units": value} for value in values)]
    table = [
        SimpleNamespace(options=Options({"trainer": "mine", **config}), is_ours=False)
        for config in configs
    ]
    assert ("num_units" in folder_rows.find_identifying_options(table)) == differ
