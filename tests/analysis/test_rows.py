"""Rows and their baselines; titles of series say what tells them apart, and no more."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rnn_scaling.analysis import folder_rows, rows, series_titles
from rnn_scaling.analysis.attribution import imbalance
from rnn_scaling.analysis.keys import build_key
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.records.options import Options
from tests.support.records import changed, make_record
from tests.support.scaling_runs import resolved, run, series, timed


def titles(*records):
    return series_titles.titles(
        series_titles.group_by_series(rows.build_rows(list(records)))
    )


STRONG = {"global_batch_size": 64}
LOOP, FUSED = {"encoder_type": "dynamic_rnn"}, {"encoder_type": "cudnn_lstm"}
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
        ([{"num_units": 8}, {"num_units": 16}], ["num_units=8", "num_units=16"]),
        ([{"model": "lm"}], ["model=lm"]),
        ([{}], [""]),
        (
            [FUSED, FUSED | LOOP_DECODER, LOOP | LOOP_DECODER],
            ["", "decoder_type=dynamic_rnn", ""],
        ),
        ([FUSED | LOOP_DECODER], [""]),
    ],
)
def test_titles_say_what_tells_series_apart(options, names):
    records = [resolved(100, **given) for given in options]
    for title, given, name in zip(titles(*records), options, names):
        start = f"{given.get('encoder_type', 'cudnn_lstm')}, independent"
        assert title.startswith(start) and title.endswith(name)
        assert name or title == start


def test_a_framework_is_named_in_place_of_an_encoder_and_the_kernel_that_it_does_not_have():
    """Its records hold the default encoder, which it does not read, and say what computed its layers."""
    runs = [
        resolved(100, data="constant", framework=name)
        for name in ("tensorflow", "torch")
    ]
    kernels = ("BlockLSTM", "torch.nn.LSTM")
    runs = [
        changed(run, resolved={"encoder_kernel": kernel, "device_type": "CPU"})
        for run, kernel in zip(runs, kernels)
    ]
    assert titles(*runs) == [
        "cudnn_lstm (BlockLSTM), independent, framework=tensorflow",
        "torch, independent",
    ]
    assert titles(runs[1]) == ["torch, independent"]


def value(row, metric):
    interval = row.metric(metric)
    return None if interval is None else interval.value


def test_speedup_and_efficiency_are_ratios_to_the_same_run_on_one_device():
    table = rows.build_rows(series())
    both = pytest.approx(
        (770 * 780) ** 0.5 / 500
    )  # repeats are one row, at their geometric mean
    assert [value(row, SPEEDUP) for row in table] == [
        1.0,
        pytest.approx(1.9),
        None,
        1.0,
        both,
    ]
    assert [value(row, EFFICIENCY) for row in table][:2] == [1.0, pytest.approx(0.95)]
    assert [len(row.records) for row in table] == [1, 1, 1, 1, 2]


def test_the_global_batch_is_that_of_an_update():
    (row,) = rows.build_rows(
        [run(2, 1000.0, batch_size=16, gradient_accumulation_steps=4)]
    )
    assert (row.batch_size, row.global_batch_size) == (16, 128)


def test_without_a_baseline_there_is_no_speedup():
    (row,) = rows.build_rows([run(2, 1900.0)])
    assert row.metric(SPEEDUP) is None and row.metric(EFFICIENCY) is None


def test_runs_that_differ_in_more_than_devices_are_not_compared():
    one, two = rows.build_rows(
        [run(1, 1000.0, batch_size=16), run(2, 1900.0, batch_size=32)]
    )
    assert two.metric(SPEEDUP) is None
    failed_baseline = rows.build_rows([run(1, 0.0, "failed"), run(2, 1900.0)])[1]
    assert failed_baseline.metric(SPEEDUP) is None


def test_options_that_a_mode_does_not_read_do_not_part_its_runs():
    one, two = rows.build_rows(
        [run(1, 1000.0, all_reduce_spec="xring"), run(2, 1900.0)]
    )
    assert value(two, SPEEDUP) == pytest.approx(1.9)


def test_a_key_holds_what_is_not_as_by_default():
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


def test_weak_and_strong_scaling_are_never_one_series():
    weak = [run(1, 1000.0, batch_size=64), run(2, 1900.0, batch_size=64)]
    strong = [
        run(1, 1000.0, batch_size=64, global_batch_size=64),
        run(2, 1500.0, batch_size=32, global_batch_size=64),
    ]
    table = rows.build_rows([*weak, *strong])
    assert [value(row, SPEEDUP) for row in table] == [
        1.0,
        pytest.approx(1.9),
        1.0,
        pytest.approx(1.5),
    ]
    first, second = series_titles.titles(series_titles.group_by_series(table))
    assert first == "cudnn_lstm, independent" and second.startswith(
        f"{first}, strong scaling, 64 "
    )


def test_a_record_that_is_older_than_an_option_has_its_default():
    new = run(1, 1000.0)
    config = {n: v for n, v in new.config.items() if n != "global_batch_size"}
    assert len(rows.build_rows([changed(new, config=config), new])) == 1


def test_rows_on_as_many_devices_of_one_machine_share_the_scatter_of_processes():
    rates = {
        ("independent", 1): [100, 104],
        ("replicated", 1): [90],
        ("independent", 2): [180, 190],
        ("mirrored", 2): [7],
    }
    runs = [
        run(n, 100.0 * r, variable_update=mode)
        for (mode, n), each in rates.items()
        for r in each
    ]
    one, other, two, fourth = rows.build_rows(runs)
    assert (
        one.scatter is other.scatter
        and two.scatter is fourth.scatter
        and one.scatter is not two.scatter
    )
    assert (
        other.rate.ends
        and other.rate.run_counts == (1,)
        and "share one variance" in other.rate.kind
    )
    elsewhere = run(1, 5000.0, variable_update="mirrored")
    elsewhere = changed(elsewhere, environment={"cpu": "another"})
    assert rows.build_rows([*runs, elsewhere])[-1].rate.ends is None
    like = {
        "variable_update": "mirrored"
    }  # measured in another way: on a GPU, over other batches, or until steady
    for unlike in (
        changed(run(1, 5000.0, **like), resolved={"device_type": "GPU"}),
        timed(1, 5000.0, **like),
        run(1, 5000.0, until_steady=True, **like),
    ):
        assert rows.build_rows([*runs, unlike])[-1].rate.ends is None
    steady = [timed(1, 100.0 + n, batches=40 + n, until_steady=True) for n in range(2)]
    assert rows.build_rows([*steady, timed(1, 90.0, until_steady=True, **like)])[
        -1
    ].rate.ends


def test_one_run_of_each_has_no_interval_over_processes_and_keeps_the_one_over_its_batches():
    one, two = rows.build_rows([timed(1, 100), timed(2, 140)])
    assert (one.rate.ends, two.rate.ends, two.metric(SPEEDUP).ends) == (
        None,
        None,
        None,
    )
    assert two.rate.kind.startswith("one run of each: --repeats=3")
    assert two.rate_within_run.low < two.rate.value < two.rate_within_run.high
    assert rows.build_rows([timed(2, 140), timed(2, 141)])[0].rate_within_run is None


def test_even_towers_lose_nothing_however_seconds_round():
    for share in (7, 9, 320, 3000):
        seconds = [0.1 * k for k in range(1, 60)]
        even = {
            "tower_items": [[share] * 3] * 59,
            "tower_positions": [[share] * 3] * 59,
        }
        (row,) = rows.build_rows(
            [make_record(seconds=seconds, items=[3 * share] * 59, batches=even)]
        )
        assert 0 <= imbalance(row) < 1e-12


@pytest.mark.parametrize(
    "values, differ",
    [
        (["a", "b"], True),
        (["a", "a"], False),
        ([1, 2], True),
        ([1, "1"], True),
        ([None, "a"], True),
        (["a", None], True),
        ([None, None], False),
    ],
)
@pytest.mark.parametrize("name, is_ours", [("num_units", True), ("hidden", False)])
def test_options_differ_by_what_rows_say(name, is_ours, values, differ):
    """None stands for a row that does not say it: of an option of ours that is no value."""
    configs = [{name: value} for value in values]
    rows_of = [
        SimpleNamespace(options=Options({"trainer": "mine", **config}), is_ours=False)
        for config in ([*configs, {}] if is_ours else configs)
    ]
    differs = differ and not (is_ours and None in values)
    assert (name in folder_rows.identifying_options(rows_of)) == differs
