"""A killed run continues from its checkpoint with the complete state of its step."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import rnn_scaling.data
from rnn_scaling.records import record
from rnn_scaling.training import checkpoint_folder
from rnn_scaling.training.clock import StepTimer
from rnn_scaling.training.observers import Observer
from rnn_scaling.training.state import RunState
from tests.support import forked
from tests.support.configs import resolve
from tests.support.forked import TINY, build_as_written
from tests.support.training import make_local_engine

SAMPLE = Path(rnn_scaling.data.__file__).parent / "sample"
KILLED_AT, SAVE_EVERY = 17, 5
# The step has slots, deferred gradients, errors of int8, dropout and shuffled text.
WORDS = [
    *TINY,
    "--num_batches=20",
    "--num_devices=2",
    "--variable_update=replicated",
    "--variable_consistency=relaxed",
    "--compress_gradients=int8",
    "--dropout=0.2",
    "--data_source=text",
    "--accuracy",
    f"--tgt_file_name={SAMPLE}/train.tgt",
    f"--tgt_vocab_file={SAMPLE}/vocab.tgt",
    "--tgt_vocab_size=1266",
    "--learning_rate=0.01",
    "--optimizer=rmsprop",
    "--gradient_accumulation_steps=2",
    "--weight_decay=0.01",
    "--lr_schedule=piecewise",
    "--lr_steps=12:0.1,16:0.02",
]


def kill_in_the_middle():
    build_as_written()
    end_step = StepTimer.end_step

    def deadly(self, items, loss=0.0):
        if len(self.step_s) == KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        return end_step(self, items, loss)

    StepTimer.end_step = deadly


def train(folder, *words, **options):
    return forked.run_trainer(folder, *WORDS, *words, **options)


def test_a_run_that_was_killed_goes_on_with_the_same_losses(tmp_path):
    saving = [f"--checkpoint_dir={tmp_path}/saved", f"--save_every={SAVE_EVERY}"]
    assert train(tmp_path / "whole").returncode == 0
    killed = train(tmp_path / "killed", *saving, prepare=(kill_in_the_middle,))
    assert killed.returncode == -signal.SIGKILL
    assert sorted(os.listdir(tmp_path / "saved")) == [
        ".run.lock",
        "batch_00000010",
        "batch_00000015",
    ]
    ended = train(tmp_path / "killed", *saving)
    assert ended.returncode == 0, ended.stderr
    assert (
        f"resumed after batch 15, from {tmp_path}/saved/batch_00000015" in ended.stderr
    )
    whole, resumed = (
        record.read(tmp_path / name / "run.json") for name in ("whole", "killed")
    )
    for name in (
        "loss",
        "correct",
        "items",
        "tower_items",
        "tower_positions",
        "loss_items",
        "warmup",
        "measured",
    ):
        assert getattr(resumed.batches, name) == getattr(whole.batches, name), name
    assert whole.batches.resumed is None and whole.phases.resume is None
    [again] = resumed.batches.resumed
    assert again.batch == 15 and again.seconds > resumed.phases.resume > 0
    seconds = resumed.batches.seconds
    assert resumed.throughput.seconds == pytest.approx(
        sum(seconds[resumed.batches.warmup :])
    )
    assert max(seconds[15:]) < resumed.phases.resume, (
        "what it took to go on is in no batch"
    )

    other = train(tmp_path / "other", *saving, "--seed=2")
    with checkpoint_folder.lock_folder(f"{tmp_path}/saved"):
        second = train(tmp_path / "other", *saving)
    for refused, reason in (
        (other, "of a run with --seed=1, but this run has --seed=2"),
        (second, f"{tmp_path}/saved is in use by another run (pid {os.getpid()} on "),
    ):
        assert (refused.returncode, refused.stdout) == (2, "")
        assert reason in refused.stderr and "Traceback" not in refused.stderr
    assert not (tmp_path / "other/run.json").exists()


MODES = [
    {"variable_update": "replicated", "variable_consistency": "relaxed"},
    {
        "variable_update": "replicated",
        "compress_gradients": "int8",
        "compute_dtype": "float16",
    },
    {"variable_update": "parameter_server", "staged_vars": True},
    {"variable_update": "mirrored", "data_source": "constant"},
]


@pytest.mark.parametrize(
    "given", MODES, ids=lambda given: "-".join(map(str, given.values()))
)
def test_no_variable_of_a_step_is_forgotten(tf, given):
    from rnn_scaling.training import checkpoints

    step, _ = build(given)
    assert checkpoints.find_uncovered_variables(step) == []
    slots = [slot for each in step.list_variables() for slot in each.slots]
    known = {id(variable) for variable in checkpoints.find_variables(step).values()}
    assert slots and {id(slot) for slot in slots} <= known
    assert list(checkpoints.find_variables(step)) == sorted(
        checkpoints.find_variables(step), key=split_way
    )


def split_way(way):
    return way.split("/")


def test_a_variable_that_no_object_leads_to_is_missed(tf, tmp_path):
    from rnn_scaling.training import checkpoints

    step, state = build({}, checkpoint_dir=str(tmp_path))
    hidden, plain = tf.Variable(1.0), step._build
    step._function = tf.function(
        lambda: (hidden.assign_add(1.0), plain())[1], autograph=False
    )
    assert len(checkpoints.find_uncovered_variables(step)) == 1
    state.timer.start()
    state.timer.end_step(1, 1.0)
    state.end_batch(make_one_item())
    with pytest.raises(ValueError, match="the checkpoint would lack"):
        checkpoints.Saver(state._config, state, ()).save_step(step)


def test_a_disk_that_is_full_ends_no_run(tf, tmp_path, monkeypatch):
    from rnn_scaling.training import checkpoints

    step, state = build({}, checkpoint_dir=str(tmp_path))
    state.timer.start()
    state.timer.end_step(1, 1.0)
    state.end_batch(make_one_item())

    def full(*_):
        raise OSError(28, "No space left on device")

    class Notices(Observer):
        def notice(self, statement):
            notices.append(statement)

    notices = []
    monkeypatch.setattr(checkpoints, "_write_variables", full)
    checkpoints.Saver(state._config, state, (), observer=Notices()).save_step(step)
    [notice] = notices
    assert notice.kind == "warn-first-checkpoint"
    assert notice.values["problem"] == "No space left on device"
    assert notice.values["batch"] == 1


@pytest.mark.parametrize("other", [["", 5], ["pid 7 on a", 0]])
def test_ranks_that_see_other_folders_do_not_go_on(tf, tmp_path, other):
    """Each host has another folder, or another checkpoint in it."""
    from rnn_scaling.training import checkpoints
    from rnn_scaling.training.cluster import SingleProcess

    class Two(SingleProcess):
        size, others = 2, other

        def gather(self, name, value):
            return [value, self.others]

    (tmp_path / checkpoint_folder.LOCK).write_text("pid 7 on a\n")
    config = resolve({"checkpoint_dir": str(tmp_path)})
    state = RunState(config)
    state.checkpoint = checkpoint_folder.Checkpoint(tmp_path, 5, {}, [])
    with pytest.raises(
        checkpoint_folder.CheckpointError,
        match="rank 1 cannot see the files that rank 0 wrote; give a",
    ):
        checkpoints.Saver(config, state, (), Two()).agree()
    Two.others = ["pid 7 on a", 5]
    checkpoints.Saver(config, state, (), Two()).agree()


def make_one_item():
    from rnn_scaling.training.train_step import StepResult

    return StepResult(*np.ones((4, 1)))


def build(given, **options):
    """Return the step of a tiny network, and the state of its run."""
    from rnn_scaling.training import benchmark

    tiny = dict.fromkeys(("num_encoder_layers", "num_decoder_layers"), 1)
    tiny |= dict.fromkeys(("num_units", "embedding_dim"), 4)
    tiny |= dict.fromkeys(("src_vocab_size", "tgt_vocab_size"), 9)
    tiny |= dict.fromkeys(("src_max_len", "tgt_max_len"), 3)
    tiny |= {"direction": "uni", "batch_size": 2, "num_devices": 2}
    config = resolve({**tiny, **given, **options})
    numbers = range(config.devices.num_devices)
    names = [f"/job:localhost/replica:0/task:0/device:CPU:{k}" for k in numbers]
    state = RunState(config)
    return benchmark.build(config, make_local_engine(names), state), state
