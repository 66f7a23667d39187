"""TensorBoard: the step's graph, and loss, words/s and step seconds of every batch."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def write(
    log_dir: str, graph: tf.Graph, step_s: Sequence[float], step_words: Sequence[int], step_loss: Sequence[float]
) -> None:
    """Writes one event file; after the run, so that nothing is written inside a timed step.

    Args:
      log_dir: folder, made if missing.
      graph: of the training step.
      step_s: seconds of each batch, warm-up included.
      step_words: words of each batch.
      step_loss: mean cross entropy a target word of each batch.
    """
    writer = tf.summary.create_file_writer(log_dir)
    with writer.as_default():
        tf.summary.graph(graph)
        for step, (seconds, words, loss) in enumerate(zip(step_s, step_words, step_loss)):
            tf.summary.scalar("loss", loss, step=step)
            tf.summary.scalar("words_per_second", words / seconds, step=step)
            tf.summary.scalar("step_seconds", seconds, step=step)
    writer.close()
