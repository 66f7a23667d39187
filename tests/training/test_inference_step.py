"""Runs that do not train: losses, counts, checkpoints and refusals."""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.training.checkpoint_folder import CheckpointError
from tests.support.forked import TINY_NMT, run_trainer
from tests.support.training import replicas
from tests.training.test_checkpoints import build

MODELS = {
    "nmt": {},
    "gnmt_v2": {
        "model": "nmt_attention",
        "attention_architecture": "gnmt_v2",
        "num_decoder_layers": 2,
    },
}


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize("model", MODELS)
def test_forward_only_has_the_loss_of_the_first_step_and_does_not_learn(tf, model):
    given = {
        **MODELS[model],
        "data_source": "constant",
        "accuracy": True,
        "learning_rate": 0.01,
    }
    trained = build(given)[0]
    step, state = build({**given, "forward_only": True, "dropout": 0.5})
    want, first, second = trained(), step(), step()
    assert first.loss == second.loss == pytest.approx(want.loss, rel=1e-6)
    assert trained().loss < want.loss
    for name in ("items", "positions", "loss_items", "correct"):
        assert getattr(first, name).tolist() == getattr(want, name).tolist()
    assert state.parameters["optimizer"] == 0
    assert state.resolved["learning_rate"] is None
    assert state.flops_per_item == pytest.approx(build(given)[1].flops_per_item / 3)
    operators = {operation.name for operation in step.graph().get_operations()}
    assert not [
        name
        for name in operators
        if name.startswith(("update", "exchange", "tower_0/backward"))
    ]


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize("beams, seed", [(1, 4), (3, 3)])
def test_a_step_counts_the_words_of_the_best_translations(tf, beams, seed):
    given = {
        "decode": True,
        "beam_size": beams,
        "tgt_max_len": 8,
        "tgt_vocab_size": 5,
        "batch_size": 3,
        "seed": seed,
    }
    step, state = build(given)
    result = step()
    batches = tf.function(
        lambda: step._source.next_batches(tf.constant(0, tf.int64)), autograph=False
    )()
    assert len(batches) == 2
    for tower, batch in enumerate(batches):
        best = tf.function(
            lambda tower=tower, batch=batch: step.translation(tower, batch),
            autograph=False,
        )()
        lengths = [
            [*words, 2].index(2) + (2 in words) for words in best.words.numpy().tolist()
        ]
        assert best.lengths.numpy().tolist() == lengths
        assert result.items[tower] == result.loss_items[tower] == sum(lengths)
        assert result.loss_sum[tower] == pytest.approx(-best.scores.numpy().sum())
        assert max(lengths) * 3 <= result.positions[tower] <= 8 * 3
    assert state.unit == "tokens" and state.flops_per_item is None
    assert state.resolved["decoder_kernel"] == "one step a word in tf.while_loop"
    assert "Grad" not in state.resolved["encoder_kernel"]


@pytest.mark.parametrize(
    "mode", ["replicated", "parameter_server", "mirrored", "keras_slicing"]
)
def test_the_values_of_a_checkpoint_of_any_mode_are_read(tf, tmp_path, mode):
    from rnn_scaling.training import checkpoints

    step, _ = build(
        {"variable_update": mode, "optimizer": "momentum", "global_batch_size": 4}
    )
    for number, state in enumerate(step.list_variables()):
        state.variable.assign_add(tf.fill(state.variable.shape, float(number)))
    checkpoints._write_variables(step, tmp_path, 0)
    values = checkpoints.read_trained_values(tmp_path, step._workload.variables)
    replica = replicas(step._update)[0]
    assert values.keys() == replica.keys() and len(values) > 4
    for name, value in replica.items():
        np.testing.assert_array_equal(values[name], value)
    narrow = [
        dataclasses.replace(spec, shape=spec.shape[:-1] + (1,))
        for spec in step._workload.variables
    ]
    with pytest.raises(
        CheckpointError, match=r"embedding has the shape \(\d, 4\), expected \(\d, 1\)"
    ):
        checkpoints.read_trained_values(tmp_path, narrow)


def run(folder, *words):
    return run_trainer(folder, *TINY_NMT, *words)


def test_a_run_that_does_not_train_reads_a_checkpoint_and_leaves_it(tmp_path):
    from rnn_scaling.records import record

    saved = tmp_path / "saved"
    constant = [
        f"--checkpoint_dir={saved}",
        "--data_source=constant",
        "--learning_rate=0.1",
    ]
    assert run(tmp_path, *constant).returncode == 0
    files = {path: path.stat().st_mtime_ns for path in saved.rglob("*")}
    evaluated = run(
        tmp_path,
        *constant[:2],
        "--forward_only",
        "--batch_size=2",
        "--encoder_type=dynamic_rnn",
    )
    assert evaluated.returncode == 0, evaluated.stderr
    [loss] = {*record.read(tmp_path / "run.json").batches.loss}
    decoded = run(
        tmp_path,
        *constant[:2],
        "--decode",
        "--beam_size=2",
        "--num_devices=2",
        "--num_batches=20",
    )
    assert decoded.returncode == 0, decoded.stderr
    assert "Sentences/s | Latency p50 (ms) | Latency p95 (ms) |" in decoded.stdout
    assert "p99" not in decoded.stdout
    refused = {
        "--num_units=9": "--num_units=8, but this run has --num_units=9; give the same",
        f"--checkpoint_dir={tmp_path}/none": "contains no checkpoint; train with this folder",
    }
    for word, reason in refused.items():
        ended = run(tmp_path, *constant[:2], "--decode", word)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert reason in ended.stderr and "Traceback" not in ended.stderr
    far = f"--checkpoint_dir={tmp_path}/far"
    assert (
        run(
            tmp_path,
            far,
            "--learning_rate=1e38",
            "--num_warmup_batches=0",
            "--num_batches=1",
        ).returncode
        == 0
    )
    ended = run(tmp_path, far, "--forward_only")
    assert ended.returncode == 1 and "--learning_rate" not in ended.stderr, ended.stderr
    assert "at batch 0; the run of --checkpoint_dir=" in ended.stderr
    assert {path: path.stat().st_mtime_ns for path in saved.rglob("*")} == files
    assert not (tmp_path / "none").exists()
    assert run(tmp_path, *constant, "--num_batches=4").returncode == 0
    assert record.read(tmp_path / "run.json").batches.loss[5] == pytest.approx(
        loss, rel=1e-6
    )
