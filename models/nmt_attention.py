"""Workload `nmt_attention`: `nmt` whose target words attend to the source's words.

Items are words. --attention_architecture chooses the network of `models/attention/`
that computes the projection's input from the embedded words: `standard`
(`step_wise.py`) or `gnmt_v2` (`gnmt.py`).

S, T: words of the longest sentences, B: sentence pairs, E: embedding, U: units, D:
width of the encoder's outputs, V: target vocabulary.

`workloads.py` names this module; the trainer calls `build`.
"""

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import stacks
from rnn_scaling.models.attention.gnmt import Gnmt
from rnn_scaling.models.attention.step_wise import StepWise
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import LookUp, Search, Start, State
from rnn_scaling.models.next_words import PROJECTION_BIAS, make_projection_spec
from rnn_scaling.models.seq2seq import TranslationWorkload, make_embedding_specs
from rnn_scaling.models.workload import Tensors, VariableSpec, Workload

_SOURCE_STREAM, _TARGET_STREAM, _NETWORK_STREAM = range(3)


class _AttentionTranslation(TranslationWorkload):
    def __init__(self, config: ModelConfig, device_type: str) -> None:
        super().__init__(config)
        is_gnmt = config.attention_architecture == "gnmt_v2"
        self._network = (
            Gnmt(config, device_type) if is_gnmt else StepWise(config, device_type)
        )
        self.kernels = self._network.kernels
        projection = [make_projection_spec(config)]
        if is_gnmt:
            projection.append(VariableSpec(PROJECTION_BIAS, (config.tgt_vocab_size,)))
        self.variables = (
            *make_embedding_specs(config),
            *self._network.variables,
            *projection,
        )

    def run_layers(
        self, weights: Tensors, rows: Tensors, batch: Batch, seed: Tensor
    ) -> Tensor:
        dropout = self._config.dropout
        source, target = self.embed_words(rows, batch)
        source = stacks.drop(source, dropout, seed, _SOURCE_STREAM)
        target = stacks.drop(target, dropout, seed, _TARGET_STREAM)
        network_seed = stacks.fold_in(seed, _NETWORK_STREAM) if dropout else seed
        return self._network.run_layers(weights, source, target, batch, network_seed)

    def start(
        self, weights: Tensors, look_up: LookUp, batch: Batch, search: Search
    ) -> Start:
        source = look_up(self.name_table("src"), batch.source)
        first, run = self._network.start(weights, source, batch)
        logits = self._build_projection(weights)

        def step(words: Tensor, state: State, position: Tensor) -> tuple[Tensor, State]:
            rows = look_up(self.name_table("tgt"), words)
            embedded = tf.cast(rows, self._config.compute_dtype)
            output, state = run(embedded, state, position)
            return logits(output), state

        return Start(first, step)


def build(config: ModelConfig, device_type: str) -> Workload:
    """Return the network with the kernels for "GPU" or "CPU"."""
    return _AttentionTranslation(config, device_type)
