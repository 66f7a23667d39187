"""Workload `lm`: embedded words -> recurrent layers -> projection to the next words.

Items are tokens. The sentences are the target side of the text. A token is a position
with a predicted next word: the words of a sentence and its end-of-sentence word.

`workloads.py` names this module; the trainer calls `build`.
"""

from collections.abc import Mapping

import tensorflow as tf

from rnn_scaling.models import encoder_table, stacks
from rnn_scaling.models.batch import Side, TargetBatch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import TextLayout
from rnn_scaling.models.next_words import NextWords, make_projection_spec
from rnn_scaling.models.workload import (
    Counts,
    Tensors,
    VariableSpec,
    Workload,
    sum_lengths,
)

_INPUT_STREAM, _LAYERS_STREAM = range(2)


class _LanguageModel(NextWords):
    def __init__(self, config: ModelConfig, device_type: str) -> None:
        sides = (Side("tgt", config.tgt_vocab_size, True),)
        super().__init__(config, TextLayout(sides, TargetBatch, config.time_major))
        kernel = encoder_table.load(config.encoder_type, device_type, config.unit_type)
        stack = stacks.build_stack(config, config.num_encoder_layers, 1)
        self._stack = stack
        self._run = kernel.build(stack)
        self.kernels: Mapping[str, str] = {"encoder_kernel": kernel.kernel_name(stack)}
        self._cells = [f"layer_{n}" for n in range(stack.num_cells)]
        self.variables = (
            VariableSpec(
                "embedding", (config.tgt_vocab_size, config.embedding_dim), "embedding"
            ),
            *stack.list_variables(self._cells),
            make_projection_spec(config),
        )

    def list_lookups(self, batch: TargetBatch) -> dict[str, tf.Tensor]:
        return {"embedding": batch.target_input}

    def run_layers(
        self, weights: Tensors, rows: Tensors, batch: TargetBatch, seed: tf.Tensor
    ) -> tf.Tensor:
        dropout = self._config.dropout
        with tf.name_scope(self._config.unit_type):
            inputs = stacks.drop(rows["embedding"], dropout, seed, _INPUT_STREAM)
            layers_seed = stacks.fold_in(seed, _LAYERS_STREAM) if dropout else seed
            cells = self._stack.select_weights(self._cells, weights)
            outputs, _ = self._run(
                cells, inputs, batch.target_length, None, layers_seed
            )
        return outputs

    def count_batch(self, batch: TargetBatch) -> Counts:
        tokens = sum_lengths(batch.target_length, tf.float64)
        return Counts(tokens, tokens, tf.size(batch.target_output, tf.int64))


def build(config: ModelConfig, device_type: str) -> Workload:
    """Return the workload `lm`, whose tensors live on devices of `device_type`."""
    return _LanguageModel(config, device_type)
