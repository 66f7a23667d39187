"""TensorBoard's files of a run: the step's graph with its devices, scalars of every batch, and a page of text."""

from __future__ import annotations

import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from rnn_scaling import run_text
from rnn_scaling.record import RunRecord

RATE_TAG = "measured/words_per_second"  # of the measured batches together; the tab HParams compares runs by it
COMPARED = ("encoder_type", "variable_update", "num_devices", "batch_size")  # in the tab HParams, default or not


def write(log_dir: str, graph: tf.Graph, run: RunRecord) -> None:
    """Writes one event file; after the run, so that nothing is written inside a timed step.

    Args:
      log_dir: folder, made if missing.
      graph: of the training step.
      run: the run's record; its batches become scalars, warm-up included.
    """
    batches = run.batches
    writer = tf.summary.create_file_writer(log_dir)
    with writer.as_default():
        tf.summary.graph(placed(graph))
        for step, (seconds, words, loss) in enumerate(zip(batches["seconds"], batches["words"], batches["loss"])):
            tf.summary.scalar("loss", loss, step=step)
            tf.summary.scalar("words_per_second", words / seconds, step=step)
            tf.summary.scalar("step_seconds", seconds, step=step)
        if run.throughput:
            tf.summary.scalar(RATE_TAG, run.throughput["words_per_second"], step=0)
        tf.summary.text("run", run_text.markdown(run), step=0)
        hparams.hparams(_hparams(run), trial_id=run_text.run_id(run))
    writer.close()


def placed(graph: tf.Graph) -> tf.compat.v1.GraphDef:
    """The graph with the device on which each operator runs, where that is not the one that was asked for.

    What reads or writes a variable runs where the variable is, whatever was asked: TensorFlow's placer keeps an
    operator with its resource. A parameter server's variables are read for all towers on the server's device.
    """
    definition = graph.as_graph_def()
    holders = {inner.op.name: outer.device for outer, inner in graph.captures if inner.dtype == tf.resource}
    for node in definition.node:
        resources = [holders[name] for name in (_producer(each) for each in node.input) if name in holders]
        if node.name in holders:
            node.device = holders[node.name]
        elif resources:
            node.device = resources[0]
    return definition


def _producer(name: str) -> str:
    """The operator that an input of a node comes from ("^a", "a:1" -> "a")."""
    return name.removeprefix("^").split(":")[0]


def _hparams(run: RunRecord) -> dict[str, str | int | float | bool]:
    """What tells runs apart: the options that are always named, and those that differ from the defaults."""
    names = dict.fromkeys([*COMPARED, *run_text.differences(run)])
    values = {name: run.config[name] for name in names if name in run.config}
    return {name: value for name, value in values.items() if value is not None}
