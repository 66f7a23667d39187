"""The real command: exit status, outputs, record and early ends."""

import json
import os
import resource
import signal
import subprocess
import sys

import pytest

from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.data import make_tfrecords
from rnn_scaling.records import record
from rnn_scaling.reports import steady_state
from rnn_scaling.reports.wording import format_marks, format_plain
from tests.support import log_samples
from tests.support.forked import (
    TINY,
    TINY_NMT,
    Trainer,
    build_as_written,
    build_as_written_and_report,
)
from tests.support.paths import ROOT


def environment(**extra):
    variables = {**os.environ, **extra}
    variables.pop("TF_CPP_MIN_LOG_LEVEL", None)
    return variables


def run_python(*words, env):
    command = [sys.executable, *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=env, timeout=300
    )


def train(*flags, env):
    return run_python("-m", "rnn_scaling.train", *flags, env=env)


def start(folder, *flags, prepare=(build_as_written_and_report,), **options):
    """Start `train` in a process with TensorFlow; its record is FOLDER/run.json."""
    words = [*flags, f"--result_file={folder}/run.json"]
    return Trainer(words, folder, environment(), prepare=prepare, **options)


def run_in_fork(folder, *flags, prepare=(build_as_written,), **options):
    """Run `train` in a process with TensorFlow until it ends."""
    return start(folder, *flags, prepare=prepare, **options).end()


def read_result(folder):
    return record.read(folder / "run.json")


def find_error(done):
    """Return the only error of a run that failed."""
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    [line] = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    return line


@pytest.fixture(scope="module")
def good_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    done = train(
        *TINY_NMT,
        "--variable_update=replicated",
        "--num_devices=2",
        f"--result_file={folder}/run.json",
        f"--log_dir={folder}/logs",
        f"--mlperf_log={folder}/mlperf.log",
        env=environment(TF_ENABLE_ONEDNN_OPTS="0"),  # the same on every processor
    )
    return done, folder


def test_a_run_prints_the_seeds_table(good_run):
    done, _ = good_run
    assert done.returncode == 0, done.stderr
    head, _, row, *others, counted = done.stdout.strip().splitlines()
    assert any(
        "Step time p50 (ms)" in line and "Longest step time (ms)" in line
        for line in others
    )
    assert counted.startswith("words: ")
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "Device number",
        "Batch size",
        "Total time to process 3 batches (s)",
        "Processing speed (words/s)",
        "Speedup ratio",
    ]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[:2] == ["2", "2"] and cells[4] == "n/a"


def test_stderr_is_progress_in_plain_lines_and_nothing_else(good_run):
    lines = good_run[0].stderr.splitlines()
    assert any(line.startswith("2 logical CPU devices: ") for line in lines)
    assert any(", 2 inter-op threads" in line for line in lines)
    assert any("BlockLSTM + LSTMBlockCellGrad" in line for line in lines)
    assert any("auto chose pscpu" in line for line in lines)
    assert any(line.startswith("measuring: 5/5 batches, ") for line in lines)
    assert lines[-1].startswith("too short to judge: 5 batches")
    said = (
        "warning: ",
        "too short",
        "2 logical CPU devices",
        "cudnn_lstm runs as",
        "--all_reduce_spec=auto",
        "warm-up: ",
        "measuring: ",
    )
    assert all(line.startswith(said) for line in lines), lines


@pytest.mark.parametrize(
    "onednn, set_to, said",
    [(False, None, True), (False, "0", False), (True, None, False), (True, "1", False)],
)
def test_onednn_that_is_off_by_default_is_said(onednn, set_to, said, monkeypatch, tf):
    from rnn_scaling.config import run_config as configs
    from rnn_scaling.training import benchmark

    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    if set_to:
        monkeypatch.setenv("TF_ENABLE_ONEDNN_OPTS", set_to)
    config = configs.resolve({"encoder_type": "dynamic_rnn"}, num_gpus=0, num_cores=2)
    resolved = {"device_type": "CPU", "onednn": onednn, "all_reduce": []}
    notices = benchmark.announce_choices(config, resolved)
    assert [each.kind for each in notices] == ["run-without-onednn"] * said


def test_the_record_holds_raw_values_from_which_the_table_follows(good_run):
    done, folder = good_run
    result = read_result(folder)
    assert result.status == "ok" and result.error is None
    assert result.batches.items == (2 * 2 * (4 + 3),) * 5
    assert len(result.batches.seconds) == len(result.batches.loss) == 5
    assert (
        result.batches.tower_items == result.batches.tower_positions == ((14, 14),) * 5
    )
    assert result.throughput.items == 3 * 28
    # A run that other processes disturbed is shown with a corrected rate.
    [row] = build_rows([result])
    assert row.rate is not None
    mark = format_marks(row.rate)
    assert f" {format_plain(row.rate.value, 1)}{mark} |" in done.stdout
    resolved = result.resolved
    assert len(resolved.devices) == 2 and resolved.logical_devices
    assert resolved.encoder_kernel and resolved.all_reduce[0].algorithm != "auto"
    assert sum(resolved.variable_placement.values()) == 2 * result.parameters.bytes
    assert result.parameters.embedding_bytes == (50 + 40) * 8 * 4
    assert result.parameters.row_bytes == 8 * 4
    assert resolved.inter_op_parallelism_threads == 2 and resolved.onednn is False
    assert result.environment.packages
    assert result.memory.peak_process_bytes > 100 * 2**20
    assert result.memory.peak_device_bytes is None


def test_tensorboard_has_the_graph_with_towers_exchange_and_update_and_the_scalars(
    good_run, tf
):
    nodes, scalars = [], {}
    for path in (good_run[1] / "logs").glob("*tfevents*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            if event.graph_def:
                graph = tf.compat.v1.GraphDef.FromString(event.graph_def)
                nodes += [(node.name, node.device) for node in graph.node]
            for value in event.summary.value:
                scalars.setdefault(value.tag, []).append(event.step)
    for tower in (0, 1):
        placed = {
            device
            for name, device in nodes
            if name.startswith(f"tower_{tower}/forward/")
        }
        [device] = placed
        assert device.endswith(f"/device:CPU:{tower}")
    scopes = {name.split("/")[0] for name, _ in nodes}
    assert {"tower_0", "tower_1", "exchange", "update"} <= scopes
    assert (
        scalars.pop("measured/words_per_second") == scalars.pop("run") == [0]
    )  # the rate, and the page of text
    assert scalars == {
        f"batch/{tag}": list(range(5))
        for tag in ("loss", "words_per_second", "step_seconds")
    }


def test_the_mlperf_log_has_the_numbers_of_the_record(good_run):
    _, folder = good_run
    result = read_result(folder)
    log = log_samples.parse("mlperf", (folder / "mlperf.log").read_text())
    [runs] = log.tables
    row = dict(zip(runs.columns, runs.rows[0]))
    names = "Status", "Accelerators", "Global batch size", "Trained samples"
    assert [row[name] for name in names] == ["success", 2, 4, 20]
    assert row["Run (s)"] == pytest.approx(
        sum(result.batches.seconds), abs=2e-3
    )  # events are in milliseconds
    rate = log.runs[0].rate.value
    assert rate == pytest.approx(3 * 4 / result.throughput.seconds)


@pytest.fixture(scope="module")
def traced_lm(tmp_path_factory):
    """Return a traced run of a language model on text.

    It is the completed process, its folder, and the temporary files that remain.
    """
    folder = tmp_path_factory.mktemp("lm")
    sample = ROOT / "rnn_scaling/data/sample"
    flags = [
        "--num_devices=2",
        "--variable_update=replicated",
        "--trace_batches=2",
        "--data_source=text",
        f"--tgt_file_name={sample}/train.tgt",
        f"--tgt_vocab_file={sample}/vocab.tgt",
        f"--log_dir={folder}",
    ]
    (folder / "temporary").mkdir()
    env = environment(TMPDIR=str(folder / "temporary"))
    done = Trainer([*TINY, *flags], folder, env).end()
    return done, folder, list((folder / "temporary").iterdir())


def test_a_traced_run_keeps_its_measurement_counts_kernels_and_writes_traces(traced_lm):
    done, folder, _ = traced_lm
    assert done.returncode == 0, done.stderr
    assert "tracing 2 batches to count" in done.stderr
    result = read_result(folder)
    assert result.status == "ok" and len(result.batches.seconds) == 5, (
        "traced batches are not measured ones"
    )
    first, second = result.trace.kernels.steps
    assert first == second and first.host > result.graph.partitions.operators / 2
    assert len(result.trace.steps) == len(result.trace.cost.timed_s) == 2
    kept, chrome = ((folder / name).read_bytes() for name in result.trace.files)
    assert kept and chrome


def test_a_language_model_counts_tokens_of_its_text(traced_lm):
    done, folder, left_behind = traced_lm
    assert not left_behind
    assert " tokens/s, loss " in done.stderr and "words/s" not in done.stderr
    result = read_result(folder)
    assert result.config["model"] == "lm"
    assert result.resolved.encoder_kernel
    assert result.resolved.train_samples == 2000
    # 6 FLOPs for each weight of the cell, 8 + 8 -> 4 * 8, and of the projection, 8 -> 40.
    assert result.unit == "tokens" and result.flops_per_item == 6 * (16 * 32 + 8 * 40)


def test_until_steady_goes_on_to_the_cap_and_no_further(tmp_path):
    flags = [
        "--until_steady",
        "--max_batches=70",
        "--target_ci=0.0001",
        "--progress=false",
    ]
    done = run_in_fork(tmp_path, *TINY, *flags)
    assert done.returncode == 0, done.stderr
    result = read_result(tmp_path)
    assert result.batches.measured == 68
    assert result.batches.ended_by == "max_batches"
    assert "time to process 68 batches" in done.stdout
    assert result.throughput.items == sum(result.batches.items[2:])
    assert result.steady_state.kind != "too short"
    assert steady_state.run_text(result) in done.stderr


@pytest.fixture
def dumped(tmp_path, monkeypatch):
    """Let runs write each file that XLA compiles; return a function that lists them."""
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={tmp_path}/dump")
    return lambda: list(tmp_path.glob("dump/*cluster*"))


def test_xla_compiles_and_leaves_deferred_rows_alone_whose_shape_is_their_batchs(
    tmp_path, dumped
):
    flags = [
        "--xla",
        "--variable_consistency=relaxed",
        "--variable_update=parameter_server",
        "--num_devices=2",
    ]
    done = run_in_fork(tmp_path, *TINY, *flags, prepare=None)
    assert done.returncode == 0, done.stderr
    assert dumped()
    assert read_result(tmp_path).config["xla"] is True


@pytest.fixture(scope="module")
def without_tensorflow(tmp_path_factory):
    """Return an environment in which importing TensorFlow fails.

    A command that works in it answers before it loads TensorFlow.
    """
    folder = tmp_path_factory.mktemp("fake")
    (folder / "tensorflow.py").write_text("raise ImportError('TensorFlow was loaded')")
    return environment(PYTHONPATH=str(folder))


def test_help_explains_every_flag_without_tensorflow(without_tensorflow):
    done = train("--help=all", env=without_tensorflow)
    assert done.returncode == 0 and done.stderr == ""
    assert all(f"--{name}=" in done.stdout for name in OPTIONS)


CONFLICTS = [
    ["--variable_update=ring"],
    ["--num_encoder_layers=3", "--num_decoder_layers=2"],
    ["--variable_update=replicated", "--all_reduce_spec=xring:4k"],
    ["--result_file=/proc/no/such/run.json"],
    ["--mlperf_log=x", "--result_file=x"],
    [
        "--model=alexnet",
        "--data_source=tfrecord",
        f"--data_dir={os.path.dirname(__file__)}",
    ],
    ["--trace_batches=2"],
]
ASKING = """
import contextlib, io, json, sys
from rnn_scaling.commands import train
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = train.main(words)
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""


def test_conflicts_exit_with_2_and_error_lines_before_tensorflow_loads(
    without_tensorflow,
):
    done = run_python("-c", ASKING, json.dumps(CONFLICTS), env=without_tensorflow)
    assert (done.returncode, done.stderr) == (0, "")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(CONFLICTS)
    for status, out, err in answers:
        assert (status, out) == (2, "") and err
        assert all(line.startswith("error: ") for line in err.splitlines()), err


def test_a_loss_that_is_not_finite_fails_with_one_line_and_a_record(tmp_path):
    flags = ["--optimizer=sgd", "--learning_rate=1e38", "--progress=false"]
    done = run_in_fork(tmp_path, *TINY, *flags)
    line = find_error(done)
    assert line.startswith("error: loss is ") and "--learning_rate=1e+38" in line
    assert done.stdout == ""
    result = read_result(tmp_path)
    assert result.status == "failed" and result.error.type == "NotFiniteError"
    assert result.throughput is None


def test_a_data_error_fails_with_its_line_and_a_record(tmp_path):
    flags = ["--data_source=text"]
    for name, text in {
        "src_file_name": "a b\na\n",
        "tgt_file_name": "x\n",
        "src_vocab_file": "<unk>\n</s>\na\nb\n",
        "tgt_vocab_file": "<unk>\n<s>\n</s>\nx\n",
    }.items():
        (tmp_path / name).write_text(text)
        flags.append(f"--{name}={tmp_path}/{name}")
    assert str(tmp_path) in find_error(run_in_fork(tmp_path, *TINY_NMT, *flags))
    assert read_result(tmp_path).error.type == "DataError"


def test_a_record_that_is_no_image_ends_the_run_with_its_line(tf, tmp_path):
    make_tfrecords.write(str(tmp_path), 2, 1, 10, 40, 1)
    [path] = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    flags = [
        "--model=alexnet",
        "--data_source=tfrecord",
        f"--data_dir={tmp_path}",
        "--batch_size=2",
        "--optimizer=sgd",
        "--disable_shuffle",
    ]
    line = find_error(run_in_fork(tmp_path, *flags))
    assert line.startswith(f"error: {path}: record 1 is truncated")


def test_out_of_memory_fails_with_the_remedy_and_a_record(tmp_path):
    # Looked-up rows of 13 GB in one piece, and little else: it fails at once.
    flags = [
        *TINY[:3],
        "--embedding_dim=200000",
        "--batch_size=4000",
        "--num_warmup_batches=0",
        "--num_batches=1",
    ]
    limit = resource.setrlimit, resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30)
    line = find_error(run_in_fork(tmp_path, *flags, prepare=limit))
    assert "out of memory" in line and "--batch_size=4000" in line
    assert read_result(tmp_path).status == "failed"


LONG = [
    *TINY[:-2],
    "--num_warmup_batches=1",
    "--num_batches=100000000",
]  # would take hours


def test_a_run_that_is_ended_in_its_batches_keeps_those_that_it_measured(tmp_path):
    trainer = start(tmp_path, *LONG, f"--mlperf_log={tmp_path}/mlperf.log")
    trainer.wait_for("measuring")
    trainer.send_signal(signal.SIGTERM)
    done = trainer.end(timeout_s=60)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    result = read_result(tmp_path)
    assert result.status == "interrupted"
    assert result.throughput.items_per_second > 0
    assert result.batches.measured == len(result.batches.items) - 1
    assert (
        '"status": "aborted"' in (tmp_path / "mlperf.log").read_text().splitlines()[-1]
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_trace_keeps_what_was_measured(number, tmp_path):
    words = [*TINY, "--trace_batches=1000", f"--log_dir={tmp_path}"]
    trainer = Trainer(words, tmp_path, environment())
    trainer.wait_for("tracing")
    trainer.send_signal(number)
    done = trainer.end(timeout_s=60)
    assert "Traceback" not in done.stderr
    if number == signal.SIGINT:
        assert done.returncode == 130 and done.stdout.startswith("| Device number")
    result = read_result(tmp_path)
    assert result.status == "ok" and result.trace is None
    assert result.missing_output.startswith("--trace_batches=1000: ")


def test_kill_leaves_a_record_that_says_so(tmp_path):
    trainer = start(tmp_path, *LONG)
    trainer.wait_for("warm-up", "measuring")
    trainer.send_signal(signal.SIGKILL)
    assert trainer.end(timeout_s=60).returncode == -signal.SIGKILL
    result = read_result(tmp_path)
    assert result.status == "failed" and result.error.type == "Killed"
    assert {*os.listdir(tmp_path)} == {"run.json", "stdout.txt", "stderr.txt"}


def test_threads_that_are_given_are_obeyed_with_a_warning_of_too_few(tmp_path, dumped):
    """Without --xla: nothing is compiled. The devices share too few cores."""
    cores = len(os.sched_getaffinity(0))
    flags = [
        f"--num_devices={cores + 1}",
        "--inter_op_parallelism_threads=1",
        "--intra_op_parallelism_threads=2",
        "--cpu_cores_per_device=3",
        "--progress=false",
    ]
    done = run_in_fork(tmp_path, *TINY, *flags, prepare=None)
    assert done.returncode == 0
    assert "warning: --inter_op_parallelism_threads=1" in done.stderr
    assert f"this machine has {cores}" in done.stderr
    result = read_result(tmp_path)
    assert result.resolved.oversubscribed is True
    assert len(result.resolved.cpu_affinity) == cores
    assert result.resolved.inter_op_parallelism_threads == 1
    assert result.resolved.intra_op_parallelism_threads == 2
    assert result.config["xla"] is False and not dumped()


def test_a_run_whose_output_cannot_be_written_keeps_its_record(tmp_path):
    find_error(run_in_fork(tmp_path, *TINY, "--progress=false", stdout="/dev/full"))
    assert read_result(tmp_path).status == "ok"
