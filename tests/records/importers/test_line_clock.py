"""Steps that are timed by the arrival of their lines, by a clock of this test."""

import pytest

from rnn_scaling.records.importers import importing, rates, regex_log
from rnn_scaling.records.importers.reading import (
    LogLine,
    Measurement,
    Terms,
    read_exact_number,
)
from tests.support.log_samples import read_run

STEP = r"regex:step (?P<step>\d+)(?: loss (?P<loss>\S+))?"
ONE = Terms(items_per_step=1.0)


def read(*events, **terms):
    steps = [
        Measurement(
            LogLine(1, None, "", "", arrived_s), {"step": read_exact_number(step, 0.0)}
        )
        for arrived_s, step in events
    ]
    return rates.measure_arrivals(steps, Terms(**{"items_per_step": 1.0, **terms}))


def test_of_a_steady_program_the_warm_up_is_left_out():
    told = read((10.0, 1), (40.0, 2), *((40.0 + 0.5 * k, 2 + k) for k in range(1, 21)))
    assert told.rate == pytest.approx(2.0)
    assert told.batches.warmup == 1
    assert told.clock == "arrival"
    assert told.rounding == pytest.approx(rates.DELAY_S / 10)
    assert told.batches.seconds[0] == 30.0 and len(told.batches.seconds) == 21


def test_steps_may_be_left_out_repeated_and_begin_anew():
    hundreds = [(10.0 * k, 100.0 * k) for k in range(1, 6)]
    assert read(*hundreds).rate == pytest.approx(10.0)
    assert read(
        *(each for event in hundreds for each in (event, (event[0] + 1, event[1])))
    ).rate == pytest.approx(10.0)
    validation = 1000.0
    epochs = [*hundreds, *((validation + at, step) for at, step in hundreds)]
    told = read(*epochs)
    assert told.rate == pytest.approx(10.0) and len(told.batches.seconds) == 8, (
        "what passed between them has no steps"
    )
    lagging = [
        (at + 0.1 * rank, step - 100 * rank)
        for at, step in hundreds[1:]
        for rank in (0, 1)
    ]
    assert read(*lagging).rate == pytest.approx(10.0), "of a rank that is behind"


def test_bursts_are_known_to_one_line_and_the_last_one_to_nothing():
    """Deliver the lines of 30 seconds at a time, and the rest at the end of the program.

    The program ends 100 s after its last step.
    """
    bursts = [(30.0 * (line // 30 + 1), line + 1.0) for line in range(120)]
    told = read(*bursts, *((250.0, step) for step in range(121, 140)))
    assert told.rate == pytest.approx(1.0) and sum(told.batches.seconds) == 90.0
    assert told.rounding == pytest.approx((rates.DELAY_S + 90 / 138) / 60, rel=0.02)


@pytest.mark.parametrize(
    "events, why",
    [
        ([(5.0, step) for step in range(50)], "bursts"),
        (
            [(5.0, step) for step in range(50)]
            + [(50.0, step) for step in range(50, 99)],
            "bursts",
        ),
        ([(0.0, 7), (1.0, 7), (2.0, 7)], "fewer than two steps"),
        ([(0.015 * k, k) for k in range(1, 4)], "too short"),
    ],
)
def test_what_cannot_be_timed_says_why(events, why):
    with pytest.raises(ValueError, match=why):
        read(*events)


def test_a_pattern_without_seconds_has_this_clock(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(
        "hello\n" + "".join(f"step {k} loss {8 / k}\n" for k in range(1, 9)) + "bye\n"
    )
    arrivals = [0.0, *(2.0 * k for k in range(1, 9)), 99.0]
    told = read_run(path, STEP, items_per_step=35.0, arrivals=arrivals)
    assert told.rate == pytest.approx(17.5)
    assert told.loss[-1] == 1.0
    assert told.format == STEP
    counted = read_run(path, "regex:^step", items_per_step=35.0, arrivals=arrivals)
    assert counted.rate == pytest.approx(17.5), "each match is a step"
    with pytest.raises(ValueError, match="arrival times"):
        read_run(path, STEP, items_per_step=35.0)


def test_thinning_a_long_log_keeps_each_rank(tmp_path, monkeypatch):
    monkeypatch.setattr(regex_log, "MAX_MATCHES", 10)
    path = tmp_path / "log.txt"
    path.write_text("".join(f"[rank{k % 2}]: step {k // 2}\n" for k in range(21)))
    arrivals = [float(k // 2) for k in range(21)]
    terms = {"items_per_step": 1.0, "num_devices": 2, "arrivals": arrivals}
    run = read_run(path, STEP, **terms)
    assert run.rate == pytest.approx(1.0)
    [finding] = run.findings
    assert finding.kind == "one-timed-rank"
    assert finding.count == 2


def test_the_whole_process_is_timed_without_what_a_start_costs(tmp_path):
    told = read_run(tmp_path / "none", "wall", items=1000.0, seconds=10.2, launch_s=0.2)
    assert told.rate == pytest.approx(100.0)
    assert told.clock == "process"
    assert told.format == "wall"
    assert told.rounding == pytest.approx((0.2 + importing.END_S) / 10.2)


def test_while_it_runs_a_line_says_how_far_it_is():
    look = importing.watch(
        Terms(
            r"regex:step (?P<step>\d+)/(?P<total>\S+) (?P<rate>\S+)", items_per_step=1.0
        )
    )
    assert look("step 3/20 1.5k") == (3, 20, 1500.0)
    assert look("step 3/1e999 nan")[:2] == (3, None) and look("hello") is None
    assert look("step 4/20 0")[2] is None
    bar = importing.watch(Terms("auto"))
    assert bar("\x1b[1m 5/20\x1b[0m \x1b[32m━━━\x1b[0m 1s 10ms/step")[:2] == (5, 20)
    assert bar(" 35%|###  | 7/20 [00:01<00:02, 7.0it/s]")[:2] == (7, 20)
    slow = importing.watch(Terms("regex:(a+)+b"))
    assert slow("a" * 60) is None and slow("ab") is None, (
        "a pattern that does not end is given up"
    )
