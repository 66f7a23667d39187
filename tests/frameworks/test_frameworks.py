"""The task of another framework, its check and its record. No framework is needed."""

import dataclasses
import math
import os
import subprocess
import sys
import time
from unittest import mock

import numpy as np
import pytest

from rnn_scaling.config import conflicts, flags, registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import choose_pool_sizes
from rnn_scaling.frameworks import handoff, loop
from rnn_scaling.frameworks.handoff import Task
from rnn_scaling.records import record
from rnn_scaling.records.workers import Rank
from rnn_scaling.sweeps.plan import plan
from rnn_scaling.system.processes import other_python
from rnn_scaling.training.rank_meeting import RankMeeting
from tests.support.configs import resolve
from tests.support.paths import ROOT

OTHERS = [name for name in registry.FRAMEWORKS if name != "tensorflow"]


@pytest.fixture
def no_check(monkeypatch):
    """Let every framework be usable."""
    monkeypatch.setattr(other_python, "find_problem", lambda *_: "")


def make_task(tmp_path, losses=(9.0, 8.0), **options):
    """Return a task of two towers with different numbers of words."""
    values = {"framework": "torch", "num_devices": 2, "num_warmup_batches": 1}
    values |= {"num_batches": 3, "progress": False, **options}
    config = resolve(values)
    names = ("source", "target_input", "target_output")
    batch = {name: np.full((2, 3), 4, np.int32) for name in names}
    reference_losses = []
    for step in range(handoff.NUM_LOSSES):
        reference_losses.append(tuple(loss - 0.1 * step for loss in losses))
    return Task(
        config=config.flat(),
        weights={"projection": np.arange(6, dtype=np.float32).reshape(2, 3)},
        batches=(batch, batch),
        items=(12, 36),
        loss_items=(6, 18),
        reference_losses=tuple(reference_losses),
        sgd_learning_rate=0.5,
        flops_per_item=7.0,
        parameters={"trainable": 6, "bytes": 24, "moving": 0, "optimizer": 12},
        result_file=str(tmp_path / "run.json"),
        threads=1,
        cores=((0,), (1,)),
        resolved={
            "device_type": "CPU",
            "devices": ["CPU:0", "CPU:1"],
            "cpu_affinity": [0, 1],
            "onednn": True,
        },
        started=time.perf_counter(),
    )


def make_replaying_framework(task, towers=range(2), **wrong_losses):
    """Return a framework whose steps return the reference's losses, or wrong ones."""

    def build(task, rank):
        losses = iter([*task.compute_losses(towers), *[5.0] * 100])
        count = iter(range(1000))
        return lambda: wrong_losses.get(f"step_{next(count)}", next(losses))

    return loop.FrameworkTrainer("torch", build, lambda task: "replayed")


def test_a_task_is_read_as_it_was_written(tmp_path):
    task = make_task(tmp_path)
    path = tmp_path / "task.npz"
    with open(path, "wb") as file:
        handoff.write(task, file)
    read = handoff.read(str(path))
    for field in dataclasses.fields(Task):
        if field.name not in ("weights", "batches"):
            assert getattr(read, field.name) == getattr(task, field.name), field.name
    for got, want in zip((read.weights, *read.batches), (task.weights, *task.batches)):
        for name, array in want.items():
            np.testing.assert_array_equal(got[name], array, strict=True)


def test_the_kernel_that_ran_is_known_after_the_first_step(tmp_path):
    task = make_task(tmp_path)
    stand_in = make_replaying_framework(task)
    names = iter(["known before", "ran"])
    seconds = iter([None, 2.5])
    framework = dataclasses.replace(
        stand_in, kernel=lambda task: next(names), compile_s=lambda: next(seconds)
    )
    assert loop.run(framework, task) == 0
    resolved = record.read(task.result_file).resolved
    assert resolved.encoder_kernel == resolved.decoder_kernel == "ran"
    assert resolved.compile_s == 2.5


def test_losses_of_several_towers_are_means_over_their_words(tmp_path):
    task = make_task(tmp_path, losses=(9.0, 8.0))
    assert task.compute_losses([0])[0] == 9.0 and task.compute_losses([1])[0] == 8.0
    means = [(6 * 9 + 18 * 8) / 24, (6 * 8.9 + 18 * 7.9) / 24]
    assert task.compute_losses([0, 1])[:2] == pytest.approx(means)
    options = {"compute_dtype": "bfloat16", "variable_update": "replicated"}
    reference = make_task(tmp_path, **options).as_reference()
    assert reference.dtype == "float32"
    assert reference.optimizer == "sgd"
    assert reference.learning_rate == 0.5 and reference.exchanges


def test_a_run_of_another_framework_leaves_a_record(tmp_path, capsys):
    task = make_task(tmp_path)
    assert loop.run(make_replaying_framework(task), task) == 0
    result = record.read(task.result_file)
    assert result.status == "ok" and result.config == task.config
    batches = result.batches
    assert batches.items == (48,) * 4
    assert batches.warmup == 1
    assert batches.measured == 3
    assert batches.loss[0] == pytest.approx(task.compute_losses(range(2))[0])
    assert result.flops_per_item == 7.0
    assert result.unit == "words"
    assert result.parameters.optimizer == 12
    assert result.resolved.encoder_kernel == "replayed" and result.phases.start > 0
    assert "torch: comparing 20 losses" in capsys.readouterr().err


@pytest.mark.parametrize("step", [0, 19])
def test_a_framework_that_computes_something_else_is_refused(tmp_path, capsys, step):
    task = make_task(tmp_path)
    ours = task.compute_losses(range(2))[step]
    wrong = ours * (1 + 2e-4)
    assert (
        loop.run(make_replaying_framework(task, **{f"step_{step}": wrong}), task) == 1
    )
    result = record.read(task.result_file)
    assert (result.status, result.error.type) == ("failed", "RefusedError")
    line = result.error.message
    assert f"loss {wrong:.7g} at step {step} of SGD" in line and f"{ours:.7g}" in line
    assert capsys.readouterr().err.endswith(f"error: {line}\n")
    almost = make_replaying_framework(task, **{f"step_{step}": ours * (1 + 5e-5)})
    assert loop.run(almost, task) == 0


@pytest.mark.parametrize(
    "error, kind",
    [(math.nan, "NotFiniteError"), (ValueError("no such operator"), "ValueError")],
)
def test_a_step_that_fails_while_it_is_measured_is_a_failed_record(
    tmp_path, capsys, error, kind
):
    task = make_task(tmp_path)
    calls = iter(range(1000))

    def build(task, rank):
        losses = iter(task.compute_losses(range(2)))

        def step():
            if next(calls) < handoff.NUM_LOSSES:
                return next(losses)
            if isinstance(error, Exception):
                raise error
            return error

        return step

    assert loop.run(loop.FrameworkTrainer("torch", build, lambda task: ""), task) == 1
    result = record.read(task.result_file)
    assert (result.status, result.error.type) == ("failed", kind)
    assert result.throughput is None
    err = capsys.readouterr().err
    assert ("--learning_rate=0.001" in err) == (kind == "NotFiniteError")


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    "words, line",
    [
        ("", ""),
        ("--variable_update=replicated --num_devices=2 --compute_dtype=bfloat16", ""),
        ("--dropout=0.5", "--dropout=0.5; leave it out"),
        ("--model=lm", "--model=lm; use --model=nmt"),
        ("--data_source=device", "--data_source=device; use --data_source=constant"),
        ("--log_dir=logs", "--log_dir=logs; leave it out"),
        ("--encoder_type=dynamic_rnn", "--framework=tensorflow"),
        ("--global_batch_size=33 --num_devices=2", "use --global_batch_size=32"),
    ],
)
def test_an_option_that_is_not_supported_is_named_with_the_remedy(
    name, words, line, no_check
):
    given = flags.parse([f"--framework={name}", *words.split()], configs.OPTIONS)
    config = resolve(given)
    lines = conflicts.find_problems(config, given, num_gpus=0)
    takes_uneven = name == "torch" and "33" in words
    assert len(lines) == (bool(line) and not takes_uneven)
    assert takes_uneven or line in "".join(lines)


def make_plan(**lists):
    return plan(lists, num_gpus=0, num_cores=2)


def test_a_sweep_over_frameworks_gives_all_the_same_data(no_check):
    runs = make_plan(framework=["tensorflow", "torch"], num_devices=[2])
    assert {run.config.data.data_source for run in runs} == {"constant"}
    kernels = ("tensorflow-cudnn_lstm", "torch")
    modes = ("independent-2", "replicated-2")
    expected = [f"{kernel}-{mode}" for kernel in kernels for mode in modes]
    assert [run.name for run in runs] == expected


def test_a_sweep_drops_options_that_a_framework_does_not_read(no_check):
    both = {"framework": ["tensorflow", "torch"], "num_devices": [1]}
    runs = make_plan(**both, compile=[False, True])
    compiled = [run.name for run in runs if run.config.frameworks.compile]
    names = ("torch-independent-1", "torch-replicated-1")
    assert compiled == [f"{name}-compile=true" for name in names]
    with pytest.raises(flags.FlagErrors, match="--encoder_type=cudnn_lstm is not read"):
        make_plan(framework=["torch"], encoder_type=["cudnn_lstm"])


PYTHON = """#!/bin/sh
case "$*" in *-c*) {answer} ;; *) exec {python} {program} "$@" ;; esac
"""


@pytest.mark.parametrize(
    "answer, reason",
    [
        ("echo 2.5.1", "needs torch 2.6 or newer, but {python} has 2.5.1"),
        (
            "echo 2.13.0; echo >&2 Traceback; echo >&2 'ImportError: libgomp'; exit 1",
            "cannot import torch (ImportError",
        ),
        ("exit 3", "cannot import torch (it ended with status 3)"),
        ("echo 2.13.0+cpu", ""),
    ],
)
def test_a_framework_that_cannot_be_used_is_one_line_with_the_command(
    tmp_path, monkeypatch, answer, reason
):
    python = tmp_path / "python"
    python.write_text(PYTHON.format(answer=answer, python="", program=""))
    python.chmod(0o755)
    monkeypatch.setenv("RNN_SCALING_TORCH_PYTHON", str(python))
    other_python.find_problem.cache_clear()
    line = other_python.find_problem("torch", "torch", "2.6")
    assert reason.format(python=python) in line and "\n" not in line
    assert bool(reason) == bool(line) == ("setup-frameworks torch" in line)


STAND_IN = """
import os, signal, sys
from rnn_scaling.frameworks import loop

loop.GRACE_S = 0.1

sys.argv = [sys.argv[0], sys.argv[-1]]


class Group:
    def create(self, num_ranks):
        return "here"

    def join(self, address, rank, task):
        assert address == "here"


def fault(name):
    return os.path.exists(os.environ["FAULTS"] + "/" + name)


def build(task, rank):
    losses = iter(task.compute_losses([rank]))

    def step():
        if rank == 1 and fault("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        return next(losses, 5.0) + fault("wrong")

    return step


loop.start(loop.FrameworkTrainer("torch", build, lambda task: "stand-in", Group()))
"""  # returns the losses of the task, in one process per device


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Return a Python for --framework=torch that runs the fake trainer."""
    program = tmp_path / "stand_in.py"
    python = tmp_path / "python"
    program.write_text(STAND_IN)
    script = PYTHON.format(answer="echo 2.13.0", python=sys.executable, program=program)
    python.write_text(script)
    python.chmod(0o755)
    monkeypatch.setenv("RNN_SCALING_TORCH_PYTHON", str(python))
    monkeypatch.setenv("FAULTS", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return python


@pytest.mark.parametrize("fault", ["", "kill", "wrong"])
def test_each_device_has_a_process_and_none_outlives_a_fault(
    tmp_path, stand_in, fault, monkeypatch
):
    out = tmp_path / "out"
    out.mkdir()
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    done = train(tmp_path, stand_in, fault, result_file=str(out / "run.json"))
    result = record.read(out / "run.json")
    assert os.listdir(out) == ["run.json"] and not os.listdir(temporary)
    if not fault:
        assert done.returncode == 0 and done.stderr.count("comparing 20 losses") == 1
        assert [rank.items for rank in result.workers.ranks] == [(12,) * 4, (36,) * 4]
        assert result.batches.items == (48,) * 4
        return
    assert (done.returncode, result.status) == (1, "failed"), done.stderr
    begins = "torch does not" if fault == "wrong" else "rank 1"
    assert result.error.message.startswith(begins)
    assert (result.error.type == "RefusedError") == (fault == "wrong")
    assert done.stderr.endswith(f"error: {result.error.message}\n")


def train(tmp_path, stand_in, fault, result_file):
    """Run the fake trainer on two devices; return its completed process."""
    task = dataclasses.replace(make_task(tmp_path), result_file=result_file, cores=())
    with open(tmp_path / "task.npz", "wb") as file:
        handoff.write(task, file)
    if fault:
        (tmp_path / fault).touch()
    return subprocess.run(
        [stand_in, "-m", "x", tmp_path / "task.npz"],
        capture_output=True,
        text=True,
        timeout=50,
    )


def test_a_rank_that_does_not_end_is_not_waited_for(tmp_path, monkeypatch):
    ranks = mock.Mock()
    ranks.wait.side_effect = AssertionError("for ever")
    ranks.failure.return_value = ""
    monkeypatch.setattr(loop, "Ranks", lambda *_: ranks)
    monkeypatch.setattr(sys, "argv", ["trainer", "task.npz"])
    for name in ("join", "barrier"):
        monkeypatch.setattr(RankMeeting, name, lambda *_: None)
    monkeypatch.setattr(
        RankMeeting, "end", lambda *_: ((Rank(rank=0),), "rank 1 did not come")
    )
    task = dataclasses.replace(make_task(tmp_path), cores=())
    framework = dataclasses.replace(
        make_replaying_framework(task, towers=[0]), group=mock.Mock()
    )
    assert loop.run(framework, task) == 1
    assert record.read(task.result_file).error.message == "rank 1 did not come"
    ranks.end.assert_called_once_with()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json"]


@pytest.mark.parametrize("cores_per_device, pools", [(1, (2, 1)), (2, (3, 4))])
def test_keras_on_tensorflow_has_the_threads_of_our_trainer(
    tmp_path, monkeypatch, cores_per_device, pools
):
    from rnn_scaling.frameworks import keras

    tensorflow = mock.MagicMock()
    tensorflow.config.get_logical_device_configuration.return_value = None
    monkeypatch.setitem(sys.modules, "tensorflow", tensorflow)
    options = {
        "framework": "keras",
        "num_devices": 2,
        "cpu_cores_per_device": cores_per_device,
    }
    task = dataclasses.replace(make_task(tmp_path, **options), threads=cores_per_device)
    keras._set_up_tensorflow(task)
    threading = tensorflow.config.threading
    threading.set_inter_op_parallelism_threads.assert_called_once_with(pools[0])
    threading.set_intra_op_parallelism_threads.assert_called_once_with(pools[1])
    assert choose_pool_sizes(resolve(options), 4) == pools


def test_our_process_becomes_the_process_of_the_framework(
    tmp_path, stand_in, monkeypatch
):
    """Run one training with TensorFlow, from the command to the record."""
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    words = (
        "--framework=torch --num_units=4 --embedding_dim=4 --batch_size=2"
        " --src_max_len=3 --tgt_max_len=3 --src_vocab_size=9 --tgt_vocab_size=9"
        " --num_encoder_layers=1 --num_decoder_layers=1 --direction=uni"
        " --num_batches=3 --num_warmup_batches=1 --malloc=keep"
        f" --result_file={tmp_path}/run.json"
    )
    done = subprocess.run(
        [sys.executable, "-m", "rnn_scaling", "train", *words.split()],
        capture_output=True,
        text=True,
        timeout=200,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    result = record.read(tmp_path / "run.json")
    assert result.status == "ok" and result.flops_per_item > 0
    assert result.resolved.encoder_kernel == "stand-in"
    assert result.batches.items == (12,) * 4
    variables = result.environment.variables
    assert variables["MALLOC_TRIM_THRESHOLD_"] == "4000000000"
    assert variables["OMP_NUM_THREADS"] == "1"
    assert "TF_CPP_MIN_LOG_LEVEL" not in variables
    # No line is from TensorFlow's own log.
    assert done.stderr.splitlines()[1].startswith("torch: comparing 20 losses")
