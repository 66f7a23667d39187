"""Logs of throughput: the numbers of each format, and one total where every rank prints it."""

from __future__ import annotations

import dataclasses
import math

import pytest

from rnn_scaling.importers import (
    horovod_synthetic,
    mlperf,
    rank_totals,
    seed_trainer,
    tf_cnn_benchmarks,
)
from rnn_scaling.importers.common import LogError, ScalingRow
from rnn_scaling.importers.rank_totals import Total
from rnn_scaling.records.printed_number import Printed
from tests.support import log_samples


def parse(module, text):
    return module.parse(text.splitlines(keepends=True), "x.log")


def rows(module, text):
    return parse(module, text).rows


def values(row):
    """The fields that are set, cells as (value, decimals)."""
    cells = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
    cells |= cells.pop("extra")
    return {
        name: (cell.value, round(-math.log10(cell.step)))
        if isinstance(cell, Printed)
        else cell
        for name, cell in cells.items()
        if cell not in (None, "")
    }


def test_tf_cnn_benchmarks():
    (row,) = rows(tf_cnn_benchmarks, log_samples.TF_CNN)
    assert values(row) == {
        "source": "x.log",
        "line": 25,
        "series": "resnet50, imagenet (synthetic), replicated, nccl, NCHW, TensorFlow 1.15",
        "base": "resnet50, imagenet (synthetic), NCHW, TensorFlow 1.15",
        "devices": 2,
        "batch_size": (64, 0),
        "global_batch_size": (128, 0),
        "rate": (403.77, 2),
        "rate_unit": "images/s",
        "steps": (20, 0),
        "images/s of step lines": (404.1, 1),
        "standard error (images/s)": (0.9, 1),
        "jitter (images/s)": (1.7, 1),
    }


@pytest.mark.parametrize(
    "tag",
    [
        "",
        "[1,{}]<stdout>:",
        "[{}]<stdout>:",
        "[{}] ",
        "{}: ",
        "[prterun-a-1@1,{}]<stdout>: ",
    ],
)
def test_a_total_that_every_rank_repeats_is_one_total(tag):
    log = parse(tf_cnn_benchmarks, log_samples.tf_cnn_horovod(8, 150.0, tag))
    (row,) = log.rows
    assert (row.devices, row.rate.value, row.batch_size.value) == (8, 1200.0, 64)
    assert any(
        "8 ranks printed a total" in note and "counted once" in note
        for note in log.notes
    )
    assert not log.problems


def test_blocks_of_ranks_one_after_the_other_are_one_run():
    """Python buffers a pipe: each rank's output comes as a block at its end."""
    lines = log_samples.tf_cnn_horovod(2, 150.0, "{}~").splitlines()
    text = (
        "\n".join(line[2:] for rank in "01" for line in lines if line.startswith(rank))
        + "\n"
    )
    (row,) = rows(tf_cnn_benchmarks, text)
    assert (row.devices, row.rate.value) == (2, 300.0)


def test_repeats_of_a_run_stay_apart():
    tagged = log_samples.tf_cnn_horovod(
        2, 150.0, "[1,{}]<stdout>:"
    ) + log_samples.tf_cnn_horovod(2, 150.0, "[1,{}]<stdout>:")
    assert [row.rate.value for row in rows(tf_cnn_benchmarks, tagged)] == [300.0, 300.0]
    one_process = log_samples.TF_CNN + log_samples.TF_CNN
    log = parse(tf_cnn_benchmarks, one_process)
    assert [row.rate.value for row in log.rows] == [403.77, 403.77]
    assert any("not added" in note for note in log.notes)


def test_ranks_that_disagree_are_not_one_run():
    totals = [
        Total(line, None, "a", 2, rate, ScalingRow("x", line))
        for line, rate in ((1, 100.0), (2, 103.0))
    ]
    assert [len(group) for group in rank_totals.runs(totals)] == [1, 1]
    assert [
        len(group)
        for group in rank_totals.runs(
            [totals[0], dataclasses.replace(totals[1], rate=100.5)]
        )
    ] == [2]
    assert [len(group) for group in rank_totals.runs([totals[0]] * 5)] == [
        2,
        2,
        1,
    ]  # never more than the ranks


def test_a_run_cut_short_keeps_its_steps_rate():
    text = log_samples.TF_CNN.partition("-----")[0] + log_samples.TF_CNN
    log = parse(tf_cnn_benchmarks, text)
    assert [row.rate.value for row in log.rows] == [404.1, 403.77]
    (problem,) = log.problems
    assert (
        problem.line == 23
        and "cut short" in problem.reason
        and "steps 1 to 20" in problem.reason
    )


def test_a_worker_cut_short_has_no_rate():
    """A step line of one of several processes is that worker's rate, not the run's."""
    text = log_samples.tf_cnn_horovod(4, 100.0).partition("total images")[0]
    log = parse(tf_cnn_benchmarks, text)
    assert {row.rate for row in log.rows} == {None}
    assert "one worker's" in log.problems[0].reason


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("403.77", "nan", "expected total images/sec above 0, got 'nan'"),
        ("403.77", "-403.77", "expected total images/sec above 0"),
        ("403.77", "0.00", "expected total images/sec above 0"),
        ("128 global", "0 global", "expected a global batch size above 0, got '0'"),
        (
            "64 per device",
            "none per device",
            "expected a batch size per device, got 'none'",
        ),
        ("64 per device", "0.000000001 per device", "is no number of devices"),
        (
            "images/sec: 404.1 +/- 0.9 (jitter",
            "images/sec: 404.1 +/- 0.9 (jit",
            "not understood",
        ),
    ],
)
def test_tf_cnn_numbers_that_cannot_be(old, new, reason):
    good = log_samples.TF_CNN.replace("resnet50", "vgg16")
    log = parse(tf_cnn_benchmarks, log_samples.TF_CNN.replace(old, new) + good)
    assert any(reason in problem.reason for problem in log.problems)
    assert log.rows[-1].series.startswith("vgg16") and log.rows[-1].rate.value == 403.77


def test_horovod_synthetic():
    (row,) = rows(horovod_synthetic, log_samples.HOROVOD_SYNTHETIC)
    assert values(row) == {
        "source": "x.log",
        "line": 9,
        "series": "resnet50",
        "devices": 4,
        "batch_size": (32, 0),
        "rate": (400.0, 1),
        "rate_unit": "images/s",
        "1.96 std of iterations (images/s)": (7.8, 1),
        "images/s of rank 0": (100.0, 1),
        "iterations": (2, 9),
    }


def test_horovod_cut_short_has_the_mean_of_its_iterations():
    text = log_samples.horovod_synthetic(8).partition("Img/sec")[0]
    log = parse(horovod_synthetic, text)
    (row,) = log.rows
    assert (
        row.rate.value == pytest.approx(800.0) and row.rate.low < 799.7
    )  # printed to 0.1, times 8
    assert row.extra["1.96 std of iterations (images/s)"].value == pytest.approx(
        1.96 * 8
    )
    assert (
        log.problems[0].line == 7
        and "8 * the mean of 2 iterations" in log.problems[0].reason
    )


def test_horovod_total_that_is_not_the_ranks_times_one():
    log = parse(
        horovod_synthetic, log_samples.HOROVOD_SYNTHETIC.replace("400.0", "410.0")
    )
    assert log.problems[0].reason == "the total 410.0 is not 4 * 100.0 = 400.0"
    rounded = log_samples.HOROVOD_SYNTHETIC.replace(
        "400.0", "400.2"
    )  # 4 * 100.04 prints so
    assert not parse(horovod_synthetic, rounded).problems


def test_horovod_totals_of_several_ranks_are_one():
    text = log_samples.horovod_synthetic(2)
    tagged = "".join(
        f"[1,{rank}]<stdout>:{line}\n" for line in text.splitlines() for rank in (1, 0)
    )
    log = parse(horovod_synthetic, tagged)
    (row,) = log.rows
    assert row.rate.value == 200.0 and row.line == 18  # rank 0's line
    assert any("2 ranks printed a total" in note for note in log.notes)
    both = (
        text + text.splitlines(keepends=True)[-1]
    )  # a script whose ranks all print, without tags
    assert len(rows(horovod_synthetic, both)) == 1


def test_horovod_repeats_of_rank_0_stay_apart():
    assert len(rows(horovod_synthetic, log_samples.horovod_synthetic(4) * 3)) == 3


@pytest.mark.parametrize("number", ["0", "-4", "nan", "four"])
def test_horovod_without_devices(number):
    text = log_samples.HOROVOD_SYNTHETIC.replace("on 4 GPU(s)", f"on {number} GPU(s)")
    log = parse(horovod_synthetic, text + log_samples.horovod_synthetic(2))
    assert any(
        "number of devices" in problem.reason and problem.line == 9
        for problem in log.problems
    )
    assert [row.devices for row in log.rows] == [2]


def test_mlperf():
    log = parse(mlperf, log_samples.MLPERF)
    assert values(log.rows[0]) == {
        "source": "x.log",
        "line": 9,
        "series": "gnmt, NODE",
        "devices": 16,
        "global_batch_size": (2048, 9),
        "rate": (1100.0, 9),
        "rate_unit": "samples/s",
        "time to target (s)": (100.5, 3),
        "trained samples": (100000, 9),
        "epochs": (2, 9),
        "last quality": (24.2, 1),
    }
    shown = (
        "gnmt",
        "2xNODE",
        "success",
        100.5,
        4.0,
        16,
        2048,
        100000.0,
        2.0,
        24.2,
        1100.0,
        2,
        42,
    )
    assert log.tables[0].rows == (shown,)


def test_mlperf_runs_without_success_have_no_rate():
    aborted = log_samples.MLPERF.replace('"success"', '"aborted"')
    killed = (
        "\n".join(
            line for line in log_samples.MLPERF.splitlines() if "run_stop" not in line
        )
        + "\n"
    )
    log = parse(mlperf, aborted + log_samples.MLPERF + killed)
    (runs,) = log.tables
    assert len(log.rows) == 1
    assert [row[2] for row in runs.rows] == [
        "no score (aborted)",
        "success",
        "no score (no run_stop)",
    ]
    reasons = [problem.reason for problem in log.problems]
    assert any("no score" in reason and "'aborted'" in reason for reason in reasons)
    assert any("no score" in reason and "run_stop" in reason for reason in reasons)


def test_mlperf_lines_of_every_rank_are_one_run():
    text = "".join(
        f"{rank}: {line}\n"
        for line in log_samples.MLPERF.splitlines()
        for rank in range(3)
    )
    log = parse(mlperf, text)
    assert [row[2:5] for row in log.tables[0].rows] == [("success", 100.5, 4.0)]
    assert any("4 lines of run_start and run_stop " in note for note in log.notes)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (":::MLLOG {\"key\": \"seed\", ", "no whole JSON"),
        (":::MLLOG [1]", "bad event"),
        (":::MLLOG {\"value\": 1, \"time_ms\": 5}", "'key' is missing"),
        (log_samples.mllog("tracked_stats", 91000, {"throughput": float("nan")}), "throughput above 0"),
        (log_samples.mllog("tracked_stats", 91000, {"throughput": -5}), "throughput above 0"),
        (log_samples.mllog("global_batch_size", 91000, 0), "global_batch_size above 0"),
        (log_samples.mllog("seed", -1800000000000, 1), "time_ms"),
    ],
)  # fmt: skip
def test_mlperf_bad_lines_leave_the_rest(line, reason):
    lines = log_samples.MLPERF.splitlines()
    lines.insert(12, line)
    log = parse(mlperf, "\n".join(lines) + "\n")
    assert [reason in problem.reason for problem in log.problems] == [True]
    assert log.rows[0].rate.value == 1100.0


def test_seed_trainer():
    first, second = rows(seed_trainer, log_samples.SEED_TRAINER)
    assert values(first) == {
        "source": "x.log",
        "line": 4,
        "devices": 1,
        "batch_size": (384, 0),
        "seconds": (27.72, 3),
        "rate": (55411.433, 3),
        "rate_unit": "words/s",
        "speedup": (1.0, 2),
    }
    assert (
        second.devices == 2 and second.speedup is None
    )  # 1.00 is printed for any number of GPUs


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (
            "|0|384|28.461|107938.535|1.00|",
            "expected a number of GPUs above 0, got '0'",
        ),
        ("|2|384|nan|107938.535|1.00|", "expected seconds above 0, got 'nan'"),
        ("|2|384|28.461|-5.000|1.00|", "expected words/s above 0"),
        ("|2|384|28.461|", "expected 5 numbers between bars"),
        ("Traceback (most recent call last):", "expected 5 numbers between bars"),
    ],
)
def test_seed_trainer_bad_rows_leave_the_rest(row, reason):
    log = parse(
        seed_trainer,
        log_samples.SEED_TRAINER.replace("|2|384|28.461|107938.535|1.00|", row),
    )
    (problem,) = log.problems
    assert (
        problem.line == 7
        and reason in problem.reason
        and "row left out" in problem.reason
    )
    assert [row.devices for row in log.rows] == [1]


@pytest.mark.parametrize(
    "after",
    [
        "",
        "|gpu number|batch_size|total time|speed|speedup ratio|\n|4|384|29.2|210317.1|1.00|\n",
    ],
)
def test_seed_trainer_header_without_numbers(after):
    text = log_samples.SEED_TRAINER.replace("|2|384|28.461|107938.535|1.00|\n", after)
    (problem,) = parse(seed_trainer, text).problems
    assert problem.line == 6 and "no numbers follow this header" in problem.reason


def test_without_a_usable_row_the_error_names_the_line():
    text = log_samples.SEED_TRAINER.replace("|1|384", "|0|384").replace(
        "|2|384", "|x|384"
    )
    with pytest.raises(
        LogError,
        match=r"^x\.log:4: expected a number of GPUs above 0, got '0'; row left out$",
    ):
        parse(seed_trainer, text)
