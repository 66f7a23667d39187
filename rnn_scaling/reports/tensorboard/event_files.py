"""TensorBoard's files of a run: the step's graph with its devices, scalars of every batch, and a page of text."""

from __future__ import annotations

import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams

from rnn_scaling.analysis.metrics import RATE
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.tensorboard import graph_view, run_text

COMPARED = ("batch_size", "encoder_type", "num_devices", "variable_update")  # few, so that the rate is in sight


def write(log_dir: str, graph: tf.Graph, run: RunRecord) -> None:
    """Writes one event file; after the run, so that nothing is written inside a timed step.

    Args:
      log_dir: folder, made if missing.
      graph: of the training step.
      run: the run's record; its batches become scalars, warm-up included.
    """
    batches, rate = run.batches, RATE.of(run.unit).name
    writer = tf.summary.create_file_writer(log_dir)
    with writer.as_default():
        tf.summary.graph(graph_view.view(graph))
        for step, (seconds, items, loss) in enumerate(zip(batches.seconds, batches.items, batches.loss)):
            tf.summary.scalar("batch/loss", loss, step=step)
            tf.summary.scalar(f"batch/{rate}", items / seconds, step=step)
            tf.summary.scalar("batch/step_seconds", seconds, step=step)
        if run.throughput:
            tf.summary.scalar(f"measured/{rate}", run.throughput.items_per_second, step=0)
        tf.summary.text("run", run_text.markdown(run), step=0)
        _write_options(run)
    writer.close()


def _write_options(run: RunRecord) -> None:
    """What the tab HParams compares runs by: one row a run, its options and its rate."""
    values = {name: run.config[name] for name in COMPARED if name in run.config}
    rate = RATE.of(run.unit)
    metric = hparams.Metric(f"measured/{rate.name}", display_name=rate.title)
    hparams.hparams_config(hparams=[hparams.HParam(name) for name in COMPARED], metrics=[metric])
    hparams.hparams(values, trial_id=run_text.run_id(run))
