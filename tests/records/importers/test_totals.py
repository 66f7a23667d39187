"""Logs with one printed rate per run: their numbers, and one total if every rank prints it."""

import pytest

from tests.support import log_samples, real_logs
from tests.support.log_samples import parse


def runs(name, text):
    return parse(name, text).runs


def reasons(log):
    return [problem.reason for problem in log.problems]


def rates(log):
    return [run.rate and run.rate.value for run in log.runs]


@pytest.mark.parametrize(
    "tag", ["", "[1,{}]<stdout>:", "[{}] ", "{}: ", "[prterun-a-1@1,{}]<stdout>: "]
)
def test_a_total_that_every_rank_repeats_is_one_total(tag):
    log = parse("tf_cnn_benchmarks", log_samples.tf_cnn_horovod(8, 150.0, tag))
    [run] = log.runs
    assert run.options["num_devices"] == 8
    assert run.options["batch_size"] == 64
    assert run.rate.value == 1200.0
    assert any("8 ranks printed a total" in note for note in log.notes)
    assert not log.problems


def test_blocks_of_ranks_one_after_the_other_are_one_run():
    """Join blocks of ranks.

    Python buffers pipes, so that each rank prints its whole output at its end.
    """
    lines = log_samples.tf_cnn_horovod(2, 150.0, "{}~").splitlines()
    text = ""
    for rank in "01":
        text += "".join(f"{line[2:]}\n" for line in lines if line.startswith(rank))
    [run] = runs("tf_cnn_benchmarks", text)
    assert run.options["num_devices"] == 2
    assert run.rate.value == 300.0


def test_repeats_of_a_run_stay_apart():
    tagged = 2 * log_samples.tf_cnn_horovod(2, 150.0, "[1,{}]<stdout>:")
    assert rates(parse("tf_cnn_benchmarks", tagged)) == [300.0, 300.0]
    log = parse("tf_cnn_benchmarks", 2 * log_samples.TF_CNN)
    assert rates(log) == [403.77, 403.77]


@pytest.mark.parametrize(
    "totals, expected",
    [
        ([300.0, 303.0], [300.0]),
        ([300.0, 309.0], [300.0, 309.0]),
        ([300.0] * 5, [300.0] * 3),  # never more than the ranks
    ],
)
def test_neighbours_that_agree_are_one_run(totals, expected):
    text = log_samples.tf_cnn_horovod(2, 150.0).partition("total images")[0]
    text += "".join(f"total images/sec: {total:.2f}\n" for total in totals)
    assert rates(parse("tf_cnn_benchmarks", text)) == expected


def test_a_run_cut_short_keeps_its_steps_rate():
    text = log_samples.TF_CNN.partition("-----")[0] + log_samples.TF_CNN
    log = parse("tf_cnn_benchmarks", text)
    assert rates(log) == [404.1, 403.77]
    [problem] = log.problems
    assert problem.line == 23 and "steps 1 to 20" in problem.reason


def test_a_worker_cut_short_has_no_rate():
    """Ignore step lines of one of several processes; they have only this worker's rate."""
    text = log_samples.tf_cnn_horovod(4, 100.0).partition("total images")[0]
    log = parse("tf_cnn_benchmarks", text)
    assert set(rates(log)) == {None}
    assert "only one worker" in log.problems[0].reason


def test_a_total_behind_the_tag_of_a_launcher_is_read():
    total = "INFO|2017-12-19T01:12:17|/opt/launcher.py|27| total images/sec: 5.26\n"
    [run] = runs("tf_cnn_benchmarks", real_logs.TF_CNN_KUBEFLOW + total)
    options = {"num_devices": 1, "batch_size": 32, "device": "cpu"}
    assert options.items() <= run.options.items()


# The format, a part of its sample, what replaces it, and the fault.
BAD_LINES = [
    ("tf_cnn_benchmarks", "403.77", "nan", "expected total images/sec above 0"),
    ("tf_cnn_benchmarks", "128 global", "0 global", "a global batch size above 0"),
    ("tf_cnn_benchmarks", "64 per", "0.000000001 per", "no plausible number of"),
    ("horovod_synthetic", "on 4 GPU(s)", "on 0 GPU(s)", "number of devices"),
    ("horovod_synthetic", "on 4 GPU(s)", "on four GPU(s)", "number of devices"),
    ("seed_trainer", "|2|384|", "|0|384|", "expected num_devices above 0, got '0'"),
    ("mlperf", ":::MLLOG", ':::MLLOG {"key": "seed",\n:::MLLOG', "complete JSON"),
    ("mlperf", ":::MLLOG", ':::MLLOG {"value": 1}\n:::MLLOG', "'key' is missing"),
    ("mlperf", '"throughput": 1000.0', '"throughput": NaN', "throughput above 0"),
    ("mlperf", '"time_ms": 17', '"time_ms": -17', "time_ms"),
]


@pytest.mark.parametrize("name, old, new, reason", BAD_LINES)
def test_a_bad_line_leaves_the_rest(name, old, new, reason):
    good = log_samples.ALL[name]
    assert old in good
    log = parse(name, good.replace(old, new, 1) + good)
    assert any(reason in each for each in reasons(log)), reasons(log)
    assert rates(log)[-1] == rates(parse(name, good))[-1]


def make_log(more):
    """Return the log of a run on four GPUs with additional lines in its header."""
    return (
        "TensorFlow:  1.15\nModel:       vgg16\nBatch size:  256 global\n"
        "             64 per device\nDevices:     ['/gpu:0', '/gpu:1', '/gpu:2', "
        f"'/gpu:3']\nVariables:   replicated\n{more}==========\n"
        "total images/sec: 400.00\n"
    )


@pytest.mark.parametrize(
    "here, there",
    [
        ("Use NCCL:    True\n", "Use NCCL:    False\n"),
        ("AllReduce:   nccl\n", "AllReduce:   pscpu\n"),
        ("Sync:        False\n", "Sync:        True\n"),
        ("Some new thing: 3\n", ""),
    ],
)
def test_every_option_of_the_header_is_an_option_of_the_record(here, there):
    one, other = runs("tf_cnn_benchmarks", make_log(here) + make_log(there))
    assert one.options != other.options


@pytest.mark.parametrize(
    "option", ["--local_parameter_device=gpu", "--use_fp16", "--xla=True", "--xla True"]
)
def test_options_that_only_the_command_line_names(option):
    command = "+ python tf_cnn_benchmarks.py --num_gpus=4 --display_every 10"
    text = f"{command} {option} 2>&1 | tee log\n{make_log('')}{command}\n{make_log('')}"
    one, other = runs("tf_cnn_benchmarks", text)
    assert len(one.options) == len(other.options) + 1
    assert not {"num_gpus", "display_every"} & one.options.keys()


def test_a_default_that_only_one_release_prints_is_no_option():
    text = make_log("") + make_log("Optimizer:   sgd\nNUMA bind:   False\n")
    plain, printed = runs("tf_cnn_benchmarks", text)
    assert plain.options == printed.options


def test_horovod_cut_short_has_the_mean_of_its_iterations():
    text = log_samples.horovod_synthetic(8).partition("Img/sec")[0]
    log = parse("horovod_synthetic", text)
    [run] = log.runs
    assert run.rate.value == pytest.approx(800.0)
    assert run.rate.low < 799.7  # printed to 0.1, times 8
    assert log.problems[0].line == 7
    assert "8 * the mean of 2 iterations" in log.problems[0].reason


def test_horovod_totals_of_several_ranks_are_one():
    text = log_samples.horovod_synthetic(2)
    tagged = "".join(
        f"[1,{rank}]<stdout>:{line}\n" for line in text.splitlines() for rank in (1, 0)
    )
    log = parse("horovod_synthetic", tagged)
    [run] = log.runs
    assert (run.rate.value, run.line) == (200.0, 18)  # rank 0's line
    assert any("2 ranks printed a total" in note for note in log.notes)
    # A script whose ranks all print, without tags; and repeats of rank 0.
    both = text + text.splitlines(keepends=True)[-1]
    assert len(runs("horovod_synthetic", both)) == 1
    assert len(runs("horovod_synthetic", log_samples.horovod_synthetic(4) * 3)) == 3


def test_mlperf_runs_without_success_have_no_rate():
    aborted = log_samples.MLPERF.replace('"success"', '"aborted"')
    lines = log_samples.MLPERF.splitlines(keepends=True)
    killed = "".join(line for line in lines if "run_stop" not in line)
    log = parse("mlperf", aborted + log_samples.MLPERF + killed)
    assert len(log.runs) == 1
    assert [row[2] for row in log.tables[0].rows] == [
        "no score (aborted)",
        "success",
        "no score (no run_stop)",
    ]
    assert all("no score" in reason for reason in reasons(log))


def test_mlperf_lines_of_every_rank_are_one_run():
    lines = log_samples.MLPERF.splitlines()
    text = "".join(f"{rank}: {line}\n" for line in lines for rank in range(3))
    log = parse("mlperf", text)
    assert [row[2:5] for row in log.tables[0].rows] == [("success", 100.5, 4.0)]


def test_the_rate_of_gnmt_is_the_last_total_that_it_prints():
    earlier = "0: Performance: Epoch: 2\tTraining: 799000 Tok/s\n"
    [run] = parse("gnmt", earlier + real_logs.GNMT_MLPERF).runs
    assert run.rate.value == 800562


def gnmt_lines(rates, steps=(0, 60, 70)):
    """TRAIN lines of ranks with their rates."""
    line = (
        "{}: TRAIN [0][{}/500] Time 0.5 (0.6) Data 0.1 (0.1) Tok/s {} (5) "
        "Loss/tok 9.1 (9.3)\n"
    )
    text = ""
    for step in steps:
        for rank, rate in enumerate(rates):
            text += line.format(rank, step, rate if step else 1)
    return text


def test_gnmt_without_a_total_has_the_ranks_times_the_steps_of_one():
    [run] = parse("gnmt", gnmt_lines([5000, 5100])).runs
    assert run.options["num_devices"] == 2
    assert run.rate.value == 10_000
    log = parse("gnmt", gnmt_lines([5000]))
    assert log.runs[0].rate is None
    assert "--num_devices" in log.problems[0].reason
    [run] = parse("gnmt", gnmt_lines([5000]), num_devices=8).runs
    assert run.rate.value == 40_000


def test_a_second_run_of_gnmt_is_one_of_its_own_and_a_bad_line_is_no_step():
    bad = "0: TRAIN [0][10/1938]\tTime nan (0.1) Tok/s nan (5)\n0: TRAIN [0]["
    log = parse("gnmt", real_logs.GNMT + bad + real_logs.GNMT)
    assert len(log.runs) == 2
    assert len(log.problems) == 1
    text = real_logs.GNMT.replace("Loss/tok 8.5645", "Loss/tok nan")
    assert "diverged" in parse("gnmt", text).problems[0].reason
