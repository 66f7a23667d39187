"""What the translation workloads share: sentence pairs, their embeddings, and words of both sides as items."""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from rnn_scaling.models.batch import Batch, Layout, Side
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import TextLayout
from rnn_scaling.models.next_words import NextWords
from rnn_scaling.models.workload import Counts, VariableSpec, total


class Translation(NextWords):
    """Those parts of a `Workload`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        sides = Side("src", config.src_vocab_size, False), Side("tgt", config.tgt_vocab_size, True)
        self.layout: Layout = TextLayout(sides, Batch, config.time_major)

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """The ids of both sides; of a shared table those of the source before those of the target, one look-up."""
        if not self._config.share_embedding:
            return {"src_embedding": batch.source, "tgt_embedding": batch.target_input}
        return {"embedding": tf.concat([batch.source, batch.target_input], axis=self._time_axis)}

    def embedded(self, rows: Mapping[str, tf.Tensor], batch: Batch) -> tuple[tf.Tensor, tf.Tensor]:
        """The rows of the source's words and those of the target's.

        Args:
          rows: what `lookups` found.
        """
        if not self._config.share_embedding:
            return rows["src_embedding"], rows["tgt_embedding"]
        axis = self._time_axis
        words = [ids.shape[axis] or tf.shape(ids)[axis] for ids in (batch.source, batch.target_input)]
        source, target = tf.split(rows["embedding"], words, axis=axis)
        return source, target

    @property
    def _time_axis(self) -> int:
        return 0 if self._config.time_major else 1

    def counts(self, batch: Batch) -> Counts:
        """Words of both sides."""
        source, target = (total(lengths, tf.float64) for lengths in (batch.source_length, batch.target_length))
        positions = tf.size(batch.source, tf.int64) + tf.size(batch.target_output, tf.int64)
        return Counts(target, source + target, positions)


def embedding_specs(config: ModelConfig) -> list[VariableSpec]:
    """The specs of the two sides' tables, or of the one that both look up (--share_embedding)."""
    sizes = {"src_embedding": config.src_vocab_size, "tgt_embedding": config.tgt_vocab_size}
    if config.share_embedding:
        sizes = {"embedding": config.tgt_vocab_size}
    return [VariableSpec(name, (size, config.embedding_dim), "embedding") for name, size in sizes.items()]
