"""The end of a run and its reason in the record."""

from pathlib import Path

import pytest

import rnn_scaling.data
from rnn_scaling.data import corpus
from rnn_scaling.records import record
from rnn_scaling.training.checkpoint_folder import CheckpointError
from rnn_scaling.training.ending import StopRule
from rnn_scaling.training.state import RunState
from tests.support.configs import resolve
from tests.support.forked import TINY, run_trainer

SAMPLE = Path(rnn_scaling.data.__file__).parent / "sample"
WARMUP, MOST = 4, 60


class Batch:
    """Return a `StepResult` of two towers."""

    ready_s = None

    def __init__(self, correct, items=10):
        import numpy as np

        self.items = self.positions = self.loss_items = np.array([items // 2] * 2)
        self.correct = np.array([correct, 0])


def find_end(losses, correct=(), **given):
    """Return the reason and the number of batches of a run.

    Each batch has 10 predictions, of which `correct` are correct.
    """
    return run(losses, correct, **given)[:2]


def run(losses, correct=(), **given):
    """Return the reason, the number of batches, and the batches of the record."""
    given = {"num_warmup_batches": WARMUP, "num_batches": MOST - WARMUP, **given}
    config = resolve(given)
    state = RunState(config)
    ending = StopRule(config, state)
    state.timer.start()
    for number in range(MOST + 1):
        if reason := ending.find_reason(pytest.fail):
            return reason, number, state.make_record("ok").batches
        state.timer.end_step(10, losses[min(number, len(losses) - 1)])
        state.end_batch(Batch(correct[min(number, len(correct) - 1)] if correct else 0))
    raise AssertionError("it never ends")


def test_a_run_without_a_target_ends_with_its_batches():
    assert find_end([1.0]) == ("num_batches", MOST)


def test_a_target_must_be_met_by_a_window_for_as_long_as_a_window():
    """Ten batches are the first window that meets it, and ten more confirm it."""
    falling = [3.0] * 12 + [1.0]
    assert find_end(falling, stop_at_loss=1.0) == ("stop_at_loss", 12 + 20)
    assert find_end(falling, stop_at_loss=0.9) == ("num_batches", MOST)
    assert find_end([*falling, *[1.0] * 12, 9.0, 1.0], stop_at_loss=1.0) == (
        "stop_at_loss",
        26 + 20,
    )
    right = [0] * 7 + [9]
    assert find_end([1.0], right, stop_at_accuracy=0.9, accuracy=True) == (
        "stop_at_accuracy",
        7 + 20,
    )


def test_a_target_that_is_met_in_the_warm_up_ends_the_run_after_a_measured_batch():
    assert find_end([1.0], stop_at_loss=2.0, num_warmup_batches=30, num_batches=30) == (
        "stop_at_loss",
        31,
    )


def text(tmp_path, lines):
    """Return the options of a run on text with these lines."""
    (tmp_path / "train.tgt").write_text("".join(f"{line}\n" for line in lines))
    files = {
        "tgt_file_name": f"{tmp_path}/train.tgt",
        "tgt_vocab_file": f"{SAMPLE}/vocab.tgt",
    }
    return {
        "model": "lm",
        "data_source": "text",
        "batch_size": 2,
        "num_devices": 2,
        **files,
    }


def test_epochs_are_counted_in_samples_that_are_trained(tmp_path):
    # 21 lines with words in full global batches of 4, or 12 with micro-batches.
    given = text(tmp_path, ["a", "", "b b"] * 10 + ["c"])
    assert find_end([1.0], **given, num_epochs=1.0) == ("num_epochs", 6)
    assert find_end([1.0], **given, num_epochs=2.5) == ("num_epochs", 14)
    assert find_end([1.0], **given, num_epochs=3.0, gradient_accumulation_steps=3) == (
        "num_epochs",
        6,
    )
    with pytest.raises(
        corpus.DataError,
        match="--num_epochs=0.7 with 21 samples gives 4 batches of 4 samples, ",
    ):
        find_end([1.0], **given, num_epochs=0.7)


def test_a_share_of_an_epoch_is_no_batch_longer_than_written(tmp_path):
    """2.2 epochs of 100 lines are 55 batches of 4; in floating point they are 220.00000000000003 lines."""
    assert 2.2 * 100 > 220
    assert find_end([1.0], **text(tmp_path, ["a b"] * 100), num_epochs=2.2) == (
        "num_epochs",
        55,
    )


@pytest.mark.parametrize("done, epochs", [(6, 1.0), (7, 1.0), (7, 2.0)])
def test_a_checkpoint_beyond_the_last_epoch_is_refused_and_one_at_its_end_is_said(
    tmp_path, done, epochs
):
    given = {
        **text(tmp_path, ["a", "b b"] * 12),
        "num_epochs": epochs,
        "num_warmup_batches": WARMUP,
    }
    config = resolve(given)
    state = RunState(config)
    state.timer.step_s = [1.0] * done
    if done == 7 and epochs == 1.0:
        with pytest.raises(
            CheckpointError,
            match="contains batch 7, but --num_epochs=1.0 ends with batch 6",
        ):
            StopRule(config, state)
    else:
        warning = StopRule(config, state).warn_if_nothing_is_left()
        assert (warning is not None) == (done == 6)
        assert warning is None or warning.kind == "warn-nothing-trained"


def test_epochs_of_images(tmp_path):
    for number in (1, 2):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(bytes(3073 * 20))
    given = {
        "model": "resnet20",
        "data_source": "cifar10",
        "data_dir": str(tmp_path),
        "batch_size": 8,
    }
    assert find_end([1.0], **given, num_epochs=2.0) == ("num_epochs", 10)


def test_the_record_and_a_line_say_why_a_run_ended(tmp_path):
    saving = f"--checkpoint_dir={tmp_path}/saved"
    words = [*TINY, "--num_batches=100", "--stop_at_loss=9", saving]
    for _ in range(2):  # the second time nothing is left to be trained
        done = run_trainer(tmp_path, *words)
        assert done.returncode == 0, done.stderr
        assert "--stop_at_loss=9 " in done.stderr and "20 batches" in done.stderr
        batches = record.read(tmp_path / "run.json").batches
        assert (len(batches.seconds), batches.ended_by) == (20, "stop_at_loss")
        assert batches.skipped_updates is None
