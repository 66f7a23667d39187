"""What importers derive: series and baselines of tf_cnn_benchmarks, GNMT's steps; what stands out."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rnn_scaling.importers import (
    baselines,
    gnmt,
    horovod_synthetic,
    outliers,
    p2p_bandwidth,
    rendering,
    tf_cnn_benchmarks,
)
from tests.support import log_samples, real_logs


def parse(module, text, source="x.log"):
    return module.parse(text.splitlines(keepends=True), source)


def rows(text):
    return parse(tf_cnn_benchmarks, text).rows


def tf_cnn(gpus, rate, update="replicated", more="", batch=64, model="vgg16"):
    """A run as the program prints it; `more`: further lines of its header."""
    devices = ", ".join(f"'/gpu:{i}'" for i in range(gpus))
    head = f"TensorFlow:  1.15\nModel:       {model}\nMode:        training\nBatch size:  {gpus * batch} global\n"
    head += f"             {batch} per device\nDevices:     [{devices}]\nData format: NCHW\nVariables:   {update}\n"
    return f"{head}{more}==========\ntotal images/sec: {rate:.2f}\n"


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("Use NCCL:    True\n", "Use NCCL:    False\n"),
        ("AllReduce:   nccl\n", "AllReduce:   pscpu\n"),
        ("Staged vars: True\n", ""),
        ("Sync:        False\n", "Sync:        True\n"),
        ("Optimizer:   momentum\n", "Optimizer:   sgd\n"),
        ("PS device:   cpu\n", "PS device:   gpu\n"),
        ("local_parameter_device: cpu\n", "local_parameter_device: gpu\n"),
        ("Precision:   fp16\n", "Precision:   fp32\n"),
        ("Some new thing: 3\n", ""),
    ],
)
def test_every_option_of_the_header_parts_series(here, there):
    one, other = rows(tf_cnn(4, 400, more=here) + tf_cnn(4, 300, more=there))
    assert one.series != other.series
    same = rows(tf_cnn(4, 400, more=here) + tf_cnn(2, 210, more=here))
    assert same[0].series == same[1].series


@pytest.mark.parametrize(
    "option",
    ["--local_parameter_device=gpu", "--use_fp16", "--xla=True", "--use_nccl=False"],
)
def test_what_only_the_command_line_says_parts_series_too(option):
    command = (
        "+ python tf_cnn_benchmarks.py --num_gpus=4 --model vgg16 --display_every 10"
    )
    one, other = rows(
        f"{command} {option} 2>&1 | tee log\n"
        + tf_cnn(4, 400)
        + f"{command}\n"
        + tf_cnn(4, 300)
    )
    assert (
        one.series != other.series
        and "num_gpus" not in one.series
        and "display_every" not in one.series
    )


def test_a_default_that_one_release_prints_and_another_does_not_parts_nothing():
    plain, printed = rows(
        tf_cnn(4, 400) + tf_cnn(4, 300, more="Optimizer:   sgd\nNUMA bind:   False\n")
    )
    assert plain.series == printed.series


def test_real_logs_of_tf_cnn_benchmarks():
    (row,) = rows(real_logs.TF_CNN_COMMAND)
    assert row.series.startswith("vgg16, parameter_server, parameters on cpu, NCHW")
    assert (row.devices, row.rate.value, row.batch_size.value) == (2, 146.38, 32)
    log = parse(tf_cnn_benchmarks, real_logs.TF_CNN_ASYNC)
    assert (
        "Sync False" in log.rows[0].series and "one worker's" in log.problems[0].reason
    )
    (row,) = rows(
        real_logs.TF_CNN_KUBEFLOW
        + "INFO|2017-12-19T01:12:17|/opt/launcher.py|27| total images/sec: 5.26\n"
    )
    assert (row.devices, row.batch_size.value) == (1, 32) and "on CPUs" in row.series


def test_runs_on_one_device_serve_all_modes_of_their_model():
    text = (
        tf_cnn(1, 100, "parameter_server")
        + tf_cnn(4, 380)
        + tf_cnn(4, 300, "independent")
    )
    derived = baselines.derive(rows(text + tf_cnn(1, 50, model="alexnet")))
    assert [one.speedup for one in derived] == pytest.approx([1.0, 3.8, 3.0, 1.0])
    exchanged = tf_cnn(1, 100, more="PS device:   cpu\n") + tf_cnn(
        4, 300, more="PS device:   gpu\nUse NCCL:    False\n"
    )
    assert [one.speedup for one in baselines.derive(rows(exchanged))] == [1.0, 3.0]
    precise = tf_cnn(1, 100, more="Precision:   fp16\n") + tf_cnn(
        4, 300, more="Precision:   fp32\n"
    )
    assert [one.speedup for one in baselines.derive(rows(precise))] == [1.0, None]
    assert derived[1].efficiency == pytest.approx(0.95) and [
        row.line for row in derived[1].baseline
    ] == [10]
    said = " ".join(baselines.remarks(rows(text)))
    assert "vgg16, replicated, NCHW" in said and "none of its own mode" in said


def test_a_baseline_is_of_one_work_and_says_of_which_scaling():
    both = (
        tf_cnn(1, 100, batch=32) + tf_cnn(1, 200, batch=128) + tf_cnn(4, 380, batch=32)
    )
    derived = baselines.derive(rows(both))
    assert [(one.speedup, one.scaling) for one in derived] == [
        (1, ""),
        (1, ""),
        (pytest.approx(3.8), "weak"),
    ]
    assert not baselines.remarks(rows(both))
    strong = baselines.derive(
        rows(tf_cnn(1, 200, batch=128) + tf_cnn(4, 380, batch=32))
    )[-1]
    assert (strong.speedup, strong.scaling) == (pytest.approx(1.9), "strong")
    log = parse(tf_cnn_benchmarks, both)
    assert "weak" in rendering.render_markdown(
        [log]
    ) and '"scaling": "weak"' in rendering.render_json([log])
    # Of several other modes one serves, the fastest: their mean would be of no mode at all.
    lent = (
        tf_cnn(1, 80, "parameter_server")
        + tf_cnn(1, 100, "independent")
        + tf_cnn(4, 380)
    )
    assert baselines.derive(rows(lent))[-1].speedup == pytest.approx(3.8)
    # A log with its own batch size alone, and one with none.
    (other,) = rows(tf_cnn(4, 380, batch=32))
    (one,) = rows(tf_cnn(1, 100, batch=32))
    for each, speedup in (
        ({"global_batch_size": None}, 3.8),
        ({"global_batch_size": None, "batch_size": None}, None),
    ):
        assert (
            baselines.derive([one, dataclasses.replace(other, **each)])[-1].speedup
            == speedup
        )
    # The audit compares the same rows: 8 devices at 15 times the speed of one of the same batch size.
    sweep = "".join(
        tf_cnn(n, rate, batch=32) for n, rate in ((1, 50), (2, 98), (4, 193), (8, 750))
    )
    findings, _ = rendering.findings(rows(tf_cnn(1, 100, batch=128) + sweep))
    assert [(finding.kind, finding.places[0].printed) for finding in findings] == [
        ("superlinear", "750.00")
    ]


@pytest.mark.parametrize(
    ("one", "four", "speedup"),
    [
        (("parameter_server", "PS device:   cpu\n"), ("replicated", ""), None),
        (("parameter_server", ""), ("parameter_server", "PS device:   cpu\n"), None),
        (
            ("parameter_server", "PS device:   cpu\n"),
            ("parameter_server", "PS device:   cpu\n"),
            3.8,
        ),
        (
            ("replicated", "PS device:   cpu\n"),
            ("horovod", ""),
            3.8,
        ),  # the option means nothing to these modes
        (("parameter_server", "PS device:   gpu\n"), ("replicated", ""), 3.8),
    ],
)
def test_no_baseline_is_lent_between_parameters_on_the_cpu_and_others(
    one, four, speedup
):
    both = rows(tf_cnn(1, 100, one[0], one[1]) + tf_cnn(4, 380, four[0], four[1]))
    assert baselines.derive(both)[-1].speedup == speedup
    if speedup is None:
        assert (
            "no speedup" in baselines.remarks(both)[0]
            and "PS device cpu" in baselines.remarks(both)[0]
        )


def test_a_lone_worker_of_a_cluster_is_no_baseline_of_one_machine():
    alone = tf_cnn(1, 80, "parameter_server").replace(
        "'/gpu:0'", "'/job:worker/task:0/gpu:0'"
    )
    both = rows(alone + tf_cnn(4, 380))
    assert (
        baselines.derive(both)[-1].speedup is None
        and "in a cluster" in baselines.remarks(both)[0]
    )


def test_horovods_cpus_are_no_baseline_of_gpus():
    text = "Model: resnet50\nBatch size: 32\nNumber of {}s: {}\nIter #0: {} img/sec per {}\n"
    text += "Total img/sec on {} {}(s): {} +-0.0\n"
    logs = "".join(
        text.format(kind, n, rate, kind, n, kind, n * rate)
        for kind, n, rate in (("CPU", 1, 5.0), ("GPU", 4, 90.0))
    )
    cpus, gpus = baselines.derive(parse(horovod_synthetic, logs).rows)
    assert (cpus.speedup, gpus.speedup) == (1.0, None)


def test_a_run_on_one_device_of_the_same_mode_comes_first():
    text = (
        tf_cnn(1, 100, "parameter_server")
        + tf_cnn(1, 90)
        + tf_cnn(1, 110)
        + tf_cnn(4, 380)
    )
    derived = baselines.derive(rows(text))[-1]
    assert derived.speedup == pytest.approx(3.8) and len(derived.baseline) == 2
    assert any("90 to 110 images/s" in one for one in baselines.remarks(rows(text)))


@pytest.mark.parametrize(
    ("one", "differs"),
    [
        (tf_cnn(1, 100, batch=32), "batch size 32 instead of 64"),
        (tf_cnn(1, 100, more="Optimizer:   momentum\n"), "Optimizer momentum"),
        (tf_cnn(1, 100, model="alexnet"), "alexnet, no vgg16"),
        ("", "no run on one device is among the files"),
    ],
)
def test_what_a_missing_baseline_differs_in_is_named(one, differs):
    log = parse(tf_cnn_benchmarks, one + tf_cnn(4, 380))
    (said,) = baselines.remarks(log.rows)
    assert differs in said and "vgg16" in said
    assert "same settings" not in rendering.render_markdown([log])


def test_the_same_settings_are_never_claimed():
    log = parse(tf_cnn_benchmarks, tf_cnn(2, 200) + tf_cnn(2, 150))
    text = rendering.render_markdown([log])
    assert "same settings" not in text and "the log tells no difference" in text


def test_gnmts_train_lines_are_steps_without_the_warm_up():
    log = parse(gnmt, real_logs.GNMT_MLPERF)
    (row,) = log.rows
    kept = [
        (0.105, 98044),
        (0.208, 111645),
        (0.106, 97865),
        (0.060, 89681),
        (0.213, 111036),
        (0.107, 95043),
    ]
    one = sum(s * rate for s, rate in kept) / sum(s for s, _ in kept)
    assert (
        row.devices == 8
        and row.rate.value == pytest.approx(8 * one)
        and row.rate_unit == "tokens/s"
    )
    assert (row.extra["steps shown"].value, row.extra["left out as warm-up"].value) == (
        6,
        3,
    )
    assert 800562 in [number.value for number in row.extra.values()]
    assert log.tables[0].rows == (
        (0, 0, 1938, 7, 0.137, 101699.0, None),
        (3, 0, 1938, 2, 0.143, 100060.0, 800562.0),
    )
    assert not log.problems and not log.remarks


def test_gnmts_ranks_come_from_its_total_where_batch_sizes_do_not_say():
    log = parse(gnmt, real_logs.GNMT.partition("\n")[2])
    assert log.rows[0].devices == 8  # 800562 / 100060
    steps = "0: TRAIN [{}][{}/30] Time 0.5 (0.5) Data 0.1 (0.1) Tok/s {} (5) Loss/tok 9.1 (9.3)\n"
    text = "".join(
        steps.format(epoch, step, 100 + epoch)
        for epoch in (0, 1, 2)
        for step in (0, 10, 20)
    )
    (row,) = parse(
        gnmt, text
    ).rows  # the first 50 steps are the first epoch and most of the second
    assert (row.rate.value, row.extra["steps shown"].value, row.extra["left out as warm-up"].value) == (
        pytest.approx((101 + 2 * 102) / 3), 3, 6,
    )  # fmt: skip
    short = parse(gnmt, text[: 5 * len(steps.format(0, 10, 100))])
    assert [table.title for table in short.tables] == ["GNMT epochs"]
    assert "warm-up (50 steps)" in short.problems[0].reason
    lone = "\n".join(
        line for line in real_logs.GNMT.splitlines()[1:] if "Performance" not in line
    )
    log = parse(gnmt, lone)
    assert log.rows[0].devices is None and "one rank's" in log.problems[0].reason


def test_gnmts_ranks_that_all_print_are_added():
    line = "{}: TRAIN [0][{}/500] Time 0.5 (0.6) Data 0.1 (0.1) Tok/s {} (4900) Loss/tok 9.1 (9.3)\n"
    steps = (0, 60, 70, 80, 90, 100)
    text = "".join(
        line.format(rank, step, 5000 + 100 * rank)
        for step in steps
        for rank in range(4)
    )
    (row,) = parse(gnmt, text).rows
    assert (row.devices, row.rate.value) == (
        4,
        pytest.approx(5000 + 5100 + 5200 + 5300),
    )


def test_gnmts_second_run_in_a_log_is_a_row_of_its_own_and_a_bad_line_no_step():
    text = (
        real_logs.GNMT
        + "0: TRAIN [0][10/1938]\tTime nan (0.1) Tok/s 5 (5)\n0: TRAIN [0]["
        + real_logs.GNMT
    )
    log = parse(gnmt, text)
    assert len(log.rows) == 2 and len(log.problems) == 1 and log.problems[0].more == 1
    diverged = parse(gnmt, real_logs.GNMT.replace("Loss/tok 8.5645", "Loss/tok nan"))
    assert "diverged" in diverged.problems[0].reason


@pytest.mark.parametrize(
    ("values", "slow"),
    [
        ([100, 101, 99, 100, 60], [4]),
        (
            [100, 101, 99, 100, 85],
            [],
        ),  # far from the others for their scatter, but not slow
        ([100, 140, 60, 120, 80, 70, 130, 60], []),  # slow, but they scatter as much
        ([100, 50, 100], []),  # too few
        ([100, 100, 100, 100, 200], []),  # fast is no fault
        ([], []),
    ],
)
def test_numbers_far_below_their_brothers(values, slow):
    assert outliers.slow(values) == slow


def test_a_slow_run_among_its_repeats_is_named():
    text = "".join(tf_cnn(4, rate) for rate in (400, 402, 398, 250, 401)) + tf_cnn(
        1, 100
    )
    (said,) = baselines.remarks(rows(text))
    assert (
        said.startswith("x.log:40: this run of vgg16")
        and "250 images/s, its 4 repeats at about 400" in said
    )


def links(n, rate=lambda a, b: 20.0):
    return {(a, b): rate(a, b) for a in range(n) for b in range(n) if a != b}


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        (links(8), []),
        (
            links(8, lambda a, b: 5.0 if (a, b) == (2, 5) else 20.0),
            ["the link 2 to 5 is"],
        ),
        (
            links(8, lambda a, b: 5.0 if {a, b} == {2, 5} else 20.0),
            ["the link between 2 and 5 is"],
        ),
        (
            links(8, lambda a, b: 5.0 if 3 in (a, b) else 20.0),
            ["all links of device 3 are"],
        ),
        (
            links(8, lambda a, b: 20.0 if a // 4 == b // 4 else 9.0),
            [],
        ),  # two sockets: half of the links, no outlier
        (links(2, lambda a, b: 20.0 if a else 10.0), ["the link 0 to 1 is"]),
        (links(2), []),
        ({}, []),
    ],
)
def test_links_that_stand_out(rates, named):
    assert [subject for subject, *_ in outliers.slow_links(rates)] == named


def test_slow_links_of_a_log_are_named_with_their_line():
    log = parse(
        p2p_bandwidth, log_samples.P2P.replace("5.27", "2.27").replace("8.25", "80.25")
    )
    first, second = log.remarks
    assert (
        first.startswith("x.log:15: Unidirectional")
        and "link 1 to 0 is at 2.27 GB/s" in first
        and "about 5.26" in first
    )
    assert (
        "link 0 to 1 is at 80.25 us" in second and "1 to 0 at about 8.75 us" in second
    )
    assert (
        first in rendering.render_markdown([log])
        and first in json.loads(rendering.render_json([log]))["remarks"]
    )


def test_json_holds_what_is_derived():
    log = parse(tf_cnn_benchmarks, tf_cnn(1, 100) + tf_cnn(4, 380) + tf_cnn(4, 420))
    one, four, again = json.loads(rendering.render_json([log]))["rates"]
    assert (one["speedup"], four["speedup"], again["speedup"]) == (1.0, 3.8, 4.2)
    assert (four["runs"], four["mean_rate"], four["efficiency"]) == (2, 400.0, 0.95)
    assert four["baseline"] == ["x.log:10"] and four["devices"] == 4


HOSTILE = (
    "=cmd|'/C calc'!A1",
    "+1+1",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "a\x1b]0;title\x07b\x1b[31m",
    " =1",
)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("form", ["csv", "markdown", "json"])
def test_no_formula_and_no_escape_leaves_the_importers(text, form):
    log = parse(tf_cnn_benchmarks, tf_cnn(1, 100, model=text), source=f"{text}.log")
    log = dataclasses.replace(log, notes=(f"a note on {text}",), remarks=(text,))
    out = rendering.RENDER[form]([log])
    assert (
        not any(ord(c) < 32 and c != "\n" for c in out.replace("\\t", ""))
        and "\x1b" not in out
    )
    if form == "csv":
        import csv

        cells = [cell for row in csv.reader(out.splitlines()) for cell in row]
        assert not [
            cell
            for cell in cells
            if cell.lstrip()[:1] in tuple("=+-@") and not _is_number(cell)
        ]
        assert "100.00" in cells


def _is_number(text):
    try:
        return float(text) == float(text)
    except ValueError:
        return False
