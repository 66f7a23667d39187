"""From the printed values of one log to one rate: logs, the real command, numbers.

The logs are in tests/golden/rates.
"""

import json
import math
import random
import shlex

import pytest

from rnn_scaling.commands import sweep
from rnn_scaling.records import record
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.parts import LogFindingKind as Kind
from rnn_scaling.sweeps import early_checks
from tests.support.log_samples import read_run
from tests.support.paths import GOLDEN

MS = "--log_format=regex:time (?P<ms>{number}) ms"
RATE = "regex:rate {number}"


@pytest.mark.parametrize(
    "name, words, rate, kinds",
    [
        (
            "cumulative",
            [r"--log_format=regex:update (?P<step>\d+) wps=(?P<rate>{number})"],
            83_871,
            {Kind.RUNNING_AVERAGE},
        ),
        ("keras_epochs", ["--log_format=keras", "--items_per_step=1"], 1000 / 9, set()),
        (
            "evaluation_between",
            [MS, "--items_per_step=1"],
            1000 / 40.46,
            {Kind.TWO_CLUSTERS},
        ),
        (
            "rank_tags_torchrun",
            ["--log_format=regex:tokens/s {number}"],
            5_102,
            {Kind.FIRST_RANK},
        ),
    ],
)
def test_a_log_in_a_sweep(tmp_path, capsys, monkeypatch, name, words, rate, kinds):
    monkeypatch.setattr(early_checks, "check_load", lambda: [])
    log = shlex.quote(str(GOLDEN / f"rates/{name}.log"))
    # The training steps of evaluation_between.log take 0.2 s.
    trainer = shlex.join(["sh", "-c", f"cat {log}; sleep 0.3"])
    out = tmp_path / "out"
    status = sweep.main(
        [
            f"--trainer={trainer}",
            "--num_devices=1",
            "--device=cpu",
            "--repeats=1",
            "--unit=items",
            f"--out={out}",
            *words,
        ]
    )
    assert status == 0, capsys.readouterr().err
    [path] = out.glob("sh-*.json")
    run = record.read(path)
    assert run.throughput.items_per_second == pytest.approx(rate, rel=5e-3)
    assert {finding.kind for finding in run.log_findings or ()} == kinds
    # The answer on the terminal and the report contain the findings, too.
    answer = capsys.readouterr().out
    assert answer.count(path.name) >= len(kinds)
    found = json.loads((out / "report.json").read_text())
    said = {statement["kind"].removeprefix("log-") for statement in found["statements"]}
    for kind in kinds:
        assert any(each.startswith(kind.value) for each in said)


def test_the_sum_of_ranks_is_refused_if_items_are_of_all_devices(capsys):
    words = ["--trainer=true", MS, "--items_per_step=8", "--ranks=sum"]
    assert sweep.main(words) == 2
    assert "--items_per_step" in capsys.readouterr().err


def read(tmp_path, text, formats, **terms):
    (tmp_path / "log.txt").write_text(text)
    return read_run(tmp_path / "log.txt", formats, **terms)


def list_kinds(reading):
    return {finding.kind for finding in reading.findings}


@pytest.mark.parametrize("noise", [0.001, 0.02])
def test_five_slow_lines_at_the_start_do_not_bias_a_rate(tmp_path, noise):
    count = 10
    generator = random.Random(count)
    values = [1000 * math.exp(generator.gauss(0, noise)) for _ in range(count)]
    for index, share in enumerate((0.3, 0.5, 0.7, 0.8, 0.85)):
        values[index] *= share
    text = "".join(f"rate {value:.1f}\n" for value in values)
    reading = read(tmp_path, text, RATE)
    assert reading.rate == pytest.approx(1000, rel=max(0.005, 3 * noise / count**0.5))
    assert list_kinds(reading) == {Kind.START_UP}
    first_only = read(tmp_path, text, RATE, warmup=1)
    assert first_only.rate < 0.993 * reading.rate and not first_only.findings


def test_all_lines_of_a_run_that_becomes_slower_count(tmp_path):
    text = "".join(f"rate {100 - 30 * (k >= 50) + k % 3}\n" for k in range(100))
    reading = read(tmp_path, text, RATE)
    assert reading.rate == pytest.approx(2 / (1 / 101 + 1 / 71), rel=0.01)
    [finding] = reading.findings
    assert finding.kind == Kind.SLOWER and finding.count == pytest.approx(50, abs=2)
    assert finding.other == pytest.approx(71, rel=0.01)


def running_averages(start_s, step_s, ends):
    """Return the rates that a program prints after some steps of one item each."""
    return [end / (start_s + end * step_s) for end in ends]


@pytest.mark.parametrize("has_steps", [False, True])
def test_averages_that_restart_in_each_epoch_give_the_rate_between_lines(
    tmp_path, has_steps
):
    text = ""
    for epoch in range(3):
        ends = range(100, 900, 100)
        for end, rate in zip(ends, running_averages(2.0, 0.001, ends)):
            step = f"step {end} " if has_steps else ""
            text += f"epoch {epoch} {step}rate {rate:.3f}\n"
    pattern = r"regex:(?:step (?P<step>\d+) )?rate (?P<rate>{number})"
    reading = read(tmp_path, text, pattern if has_steps else RATE)
    assert reading.rate == pytest.approx(1000, rel=0.002)
    assert list_kinds(reading) == {Kind.RUNNING_AVERAGE}


@pytest.mark.parametrize("has_steps", [False, True])
@pytest.mark.parametrize(
    "warmup, expected", [(None, 100), (3, 100), (2, 58 / 0.59), (0, 60 / 0.69)]
)
def test_running_averages_leave_out_the_start_up(tmp_path, has_steps, warmup, expected):
    text = ""
    seconds = 0.0
    for count, step_s in enumerate([0.08, 0.02, 0.02] + 57 * [0.01], 1):
        seconds += step_s
        step = f"step {count} " if has_steps else ""
        text += f"{step}rate {count / seconds:.4f}\n"
    pattern = r"regex:(?:step (?P<step>\d+) )?rate (?P<rate>{number})"
    reading = read(tmp_path, text, pattern if has_steps else RATE, warmup=warmup)
    assert reading.rate == pytest.approx(expected, rel=1e-4)


def test_a_sum_without_the_tag_of_a_rank_is_said(tmp_path):
    reading = read(tmp_path, "rate 7\nrate 7\n", RATE, ranks=Ranks.SUM)
    assert reading.rate == 7 and list_kinds(reading) == {Kind.NO_RANKS}


@pytest.mark.parametrize("count, factor", [(39, 0.9), (12, 0.7)])
def test_a_warm_up_that_approaches_a_rate_is_no_running_average(
    tmp_path, count, factor
):
    """As averages, these rates would mean a program that slows down all the time."""
    rates = [1000 * (1 - factor**line) for line in range(1, count + 1)]
    text = "".join(f"rate {rate:.1f}\n" for rate in rates)
    reading = read(tmp_path, text, RATE)
    assert reading.rate < 1000 and Kind.RUNNING_AVERAGE not in list_kinds(reading)
    assert list_kinds(reading) & {Kind.RISING, Kind.START_UP}


LINES_OF_RANKS = [
    ("{rank}: ", 4),
    ("{rank:2d}: ", 12),
    ("[1,{rank}]<stdout>:", 3),
    ("[{rank}] ", 5),
    ("Rank {rank}: ", 2),
    ("Rank {rank}, ", 3),
]


@pytest.mark.parametrize("tag, count", LINES_OF_RANKS)
def test_tags_of_any_number_of_ranks(tmp_path, tag, count):
    text = "".join(
        f"{tag.format(rank=rank)}step {step} rate {100 + rank}\n"
        for step in range(6)
        for rank in reversed(range(count))
    )
    first = read(tmp_path, text, RATE)
    assert first.rate == pytest.approx(100) and list_kinds(first) == {Kind.FIRST_RANK}
    total = read(tmp_path, text, RATE, ranks=Ranks.SUM)
    assert total.rate == pytest.approx(sum(100 + rank for rank in range(count)))
    assert list_kinds(total) == {Kind.SUM_OF_RANKS}


def test_items_of_ranks_are_added_and_times_are_not(tmp_path):
    text = "".join(
        f"[rank{rank}]: {10 * (rank + 1)} items in 0.5 s\n"
        for _ in range(4)
        for rank in range(3)
    )
    pattern = r"regex:(?P<items>\d+) items in (?P<seconds>{number}) s"
    total = read(tmp_path, text, pattern, ranks=Ranks.SUM)
    assert total.rate == pytest.approx(120)
    assert sum(total.items) / sum(total.seconds) == pytest.approx(120)
    times = "".join(f"[rank{k % 2}]: time 5 ms\n" for k in range(8))
    one = read(tmp_path, times, r"regex:time (?P<ms>{number}) ms", items_per_step=1.0)
    assert one.rate == pytest.approx(200) and list_kinds(one) == {Kind.ONE_TIMED_RANK}


@pytest.mark.parametrize(
    "training, evaluation",
    [
        ("Epoch: [0][{}/90] Time 0.2 rate 100", "Test: [{}/20] Time 0.7 rate 40"),
        (
            '{{"split": "train", "n": {}, rate 100',
            '{{"split": "valid", "n": {}, rate 40',
        ),
        ("iter {} rate 100", "valid loss 2.{} rate 40"),
    ],
)
def test_words_of_evaluations(tmp_path, training, evaluation):
    lines = [training.format(k) for k in range(9)]
    lines += [evaluation.format(k) for k in range(3)]
    reading = read(tmp_path, "\n".join(lines), RATE)
    assert reading.rate == pytest.approx(100)
    [finding] = reading.findings
    assert finding.kind == Kind.EVALUATION
    assert finding.count == 3
    assert finding.total == 12


@pytest.mark.parametrize(
    "line",
    [
        "iter {} val loss 2.5 rate 80",
        "runs/test.log {} rate 80",
        "step {} eval_time rate 80",
    ],
)
def test_words_in_a_training_line(tmp_path, line):
    lines = [f"iter {k} rate 100" for k in range(6)]
    lines += [line.format(k) for k in range(6)]
    reading = read(tmp_path, "\n".join(lines), RATE, warmup=0)
    assert reading.rate == pytest.approx(2 / (1 / 100 + 1 / 80))
    assert Kind.EVALUATION not in list_kinds(reading)


def test_evaluations_of_steps_that_the_sweep_times_are_left_out(tmp_path):
    lines = [f"step {k}" for k in range(6)] + [f"eval step {k}" for k in range(3)]
    reading = read(
        tmp_path,
        "\n".join(lines),
        r"regex:step (?P<step>\d+)",
        items_per_step=1.0,
        arrivals=[float(k) for k in range(9)],
    )
    assert len(reading.seconds) == 5 and list_kinds(reading) == {Kind.EVALUATION}


@pytest.mark.parametrize(
    "values",
    [
        [100] * 20 + [1000] * 20,  # another level
        [100, 101, 99, 20, 100, 102, 100, 4, 99, 101, 60, 100],  # stalls
        [10] * 5 + [100] * 15,  # start-up
    ],
)
def test_lines_that_are_not_of_two_kinds(tmp_path, values):
    text = "".join(f"rate {value}\n" for value in values)
    assert Kind.TWO_CLUSTERS not in list_kinds(read(tmp_path, text, RATE))


def keras_epoch(number, seconds_of_validation):
    """Return the lines of an epoch of 50 steps of 10 ms, and the seconds between them.

    The bar's last drawing before the validation is missing.
    """
    ms = round((0.49 + seconds_of_validation) / 49 * 1000)
    lines = [f"Epoch {number}/3"]
    lines += [
        f"{step}/50 ━━━━ 0s 10ms/step - loss: 0.5" for step in range(1 + number, 48, 5)
    ]
    lines.append(f"50/50 ━━━━ 1s {ms}ms/step - loss: 0.4 - val_loss: 0.5")
    times = [0.5, *(0.05 for _ in lines[1:-1]), 0.03 + seconds_of_validation]
    return lines, times


def test_validation_is_not_a_step_of_a_keras_bar(tmp_path):
    lines = []
    times = []
    for number in (1, 2, 3):
        of_epoch, seconds = keras_epoch(number, 2.0)
        lines += of_epoch
        times += seconds
    arrivals = [sum(times[: index + 1]) for index in range(len(times))]
    text = "\n".join(lines) + "\n"
    timed = read(tmp_path, text, "keras", items_per_step=1.0, arrivals=arrivals)
    assert timed.clock == "arrival" and timed.rate == pytest.approx(100, rel=0.01)
    shown = read(tmp_path, text, "keras", items_per_step=1.0)
    assert shown.clock == "" and shown.rate == pytest.approx(100, rel=0.01)


def test_one_line_per_epoch_counts_every_epoch_but_the_first(tmp_path):
    text = ""
    for epoch, ms in enumerate((14, 9, 9, 9), 1):
        text += f"Epoch {epoch}/4\n1000/1000 ━━━━━━━━ 9s {ms}ms/step - loss: 1.9\n"
    reading = read(tmp_path, text, "keras", items_per_step=1.0)
    assert reading.rate == pytest.approx(1000 / 9)


def test_an_epoch_ends_even_if_its_next_line_has_a_higher_step(tmp_path):
    text = ""
    arrivals = []
    now = 0.0
    for epoch, steps in ((1, (10, 20, 30)), (2, (40, 45, 50))):
        text += f"Epoch {epoch}/2\n"
        arrivals.append(now)
        for step in steps:
            text += f"{step}/50 ━━━━ 0s 10ms/step - loss: 0.5\n"
            now += 1.0
            arrivals.append(now)
        now += 30.0
    timed = read(tmp_path, text, "keras", items_per_step=1.0, arrivals=arrivals)
    assert timed.rate == pytest.approx(20 / 3, rel=0.01)


def bar(step, total, elapsed_s, rate):
    return f"{step}/{total} [00:{int(elapsed_s):02d}<00:10, {rate:.2f}it/s]\r"


def test_a_bar_counts_from_its_first_drawing_to_its_last(tmp_path):
    ends = range(10, 101, 10)
    rates = running_averages(5.0, 0.02, ends)
    text = "".join(bar(end, 100, end / rate, rate) for end, rate in zip(ends, rates))
    assert read(tmp_path, text, "tqdm", items_per_step=1.0).rate == pytest.approx(
        50, rel=0.02
    )
    assert read(
        tmp_path, text[: len(text) // 2], "tqdm", items_per_step=1.0
    ).rate == pytest.approx(50, rel=0.05)


def test_a_bar_with_the_rate_of_its_latest_steps(tmp_path):
    """Print a bar with the rate of its latest steps, and the mean in its closing line."""
    text = "".join(bar(end, 100, 5 + 0.2 * end, 5.0) for end in range(10, 100, 10))
    closed = text + bar(100, 100, 25.0, 4.0)
    for shown in (text, closed):
        reading = read(tmp_path, shown, "tqdm", items_per_step=1.0)
        assert reading.rate == pytest.approx(5, rel=0.08)


def test_bars_of_several_ranks(tmp_path):
    lines = []
    for step in (10, 20, 30):
        lines += [
            f"[rank{rank}]: {step}/30 [00:0{step // 10}<00:10, {10 + rank:.2f}it/s]"
            for rank in (1, 0)
        ]
    text = "\n".join(lines) + "\n"
    reading = read(tmp_path, text, "tqdm", items_per_step=8.0)
    assert reading.rate == pytest.approx(80)
    assert list_kinds(reading) == {Kind.ONE_TIMED_RANK}


@pytest.mark.parametrize("start_s", [0.05, 5.0])
@pytest.mark.parametrize("shown_from_zero", [False, True])
def test_running_averages_give_the_rate_between_the_lines(
    tmp_path, start_s, shown_from_zero
):
    ends = [1, *range(101, 900, 100)] if shown_from_zero else range(100, 900, 100)
    rates = running_averages(start_s, 0.001, ends)
    text = "".join(
        f"step {end - shown_from_zero} rate {rate:.3f}\n"
        for end, rate in zip(ends, rates)
    )
    reading = read(tmp_path, text, r"regex:step (?P<step>\d+) rate (?P<rate>{number})")
    assert reading.rate == pytest.approx(1000, rel=0.002)
    assert list_kinds(reading) == {Kind.RUNNING_AVERAGE}


def test_rates_that_rise_unlike_an_average_are_only_reported(tmp_path):
    text = "".join(f"rate {rate}\n" for rate in (100, 110, 120, 130, 140, 150))
    reading = read(tmp_path, text, RATE)
    assert 100 < reading.rate <= 150 and list_kinds(reading) >= {Kind.RISING}
