"""The step of a run that does not train.

Each tower computes the loss of its batch, or translates it with --decode. `benchmark`
uses the step like a `TrainStep`. Its name scopes are input, tower_<i>/input and
tower_<i>/forward; `inspection` recognises the phases of a step by them.
"""

from typing import Any, cast

import tensorflow as tf

from rnn_scaling.models import decoding
from rnn_scaling.models.decoding import Search
from rnn_scaling.models.layout import TextLayout
from rnn_scaling.training.train_step import TrainStep


class InferenceStep(TrainStep):
    """Towers that share nothing and update nothing."""

    def _build_step(self, step: tf.Tensor) -> tuple[list[tf.Tensor], tf.Tensor | None]:
        with tf.name_scope("input/"):
            batches = self._source.next_batches(step)
        compute = self._translate
        if self._config.model.forward_only:
            compute = self._evaluate
        counts = self._update.run(lambda index: compute(index, batches[index], step))
        return counts, None

    def _evaluate(self, index: int, batch: Any, step: tf.Tensor) -> tf.Tensor:
        """Return the counts of a tower's batch and its loss."""
        tower = self.towers[index]
        inputs = tower.read_inputs(batch, step)
        return tower.count(tower.run_forward(inputs, batch), [batch])

    def _translate(self, index: int, batch: Any, step: tf.Tensor) -> tf.Tensor:
        """Return numbers like `Tower.count` for a translated batch.

        The loss is the negative score, the items are words, and each sentence has one
        position per step.
        """
        with tf.name_scope(f"tower_{index}/forward/"):
            translation = self.translation(index, batch)
        with tf.name_scope(f"tower_{index}/counts/"):
            words = tf.reduce_sum(tf.cast(translation.lengths, tf.float64))
            loss = -tf.reduce_sum(tf.cast(translation.scores, tf.float64))
            num_positions = translation.num_steps * tf.size(translation.lengths)
            positions = tf.cast(num_positions, tf.float64)
            return tf.stack([loss, words, words, positions])

    def translation(self, index: int, batch: Any) -> decoding.Translation:
        """Return the best translation of each sentence of a tower's batch."""
        model = self._config.model
        data = self._config.data
        search = Search(model.beam_size, model.length_penalty, data.tgt_max_len)
        start = cast(decoding.Decoder, self._workload).start(
            self._update.read_weights(index),
            lambda name, ids: self._update.read_rows(index, name, ids),
            batch,
            search,
        )
        num_sentences = batch.target_length.shape[0] or tf.shape(batch.target_length)[0]
        return decoding.translate(
            start,
            num_sentences,
            *cast(TextLayout, self._workload.layout).find_ends(batch),
            search,
        )


build = InferenceStep
