"""A tiny network, fixed batches for every tower, and the serial training that parallel modes must equal."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from models.batch import Batch
from models.config import ModelConfig
from rnn_scaling.settings import config as configs

MODEL = ModelConfig(
    num_units=6, embedding_dim=5, src_vocab_size=23, tgt_vocab_size=17, num_encoder_layers=2, num_decoder_layers=2
)
# One LSTM cell each: traces in half the time, for what does not depend on how many variables there are.
SMALL = dataclasses.replace(MODEL, num_encoder_layers=1, num_decoder_layers=1, direction="uni")
BATCH_SIZE, MAX_LEN = 3, 5
EMBEDDINGS = ("src_embedding", "tgt_embedding")


def make_batches(num_steps: int, num_towers: int, model: ModelConfig = MODEL) -> list[list[Batch]]:
    """numpy batches `[step][tower]`; towers hold different numbers of words, and words repeat in a batch."""
    random = np.random.default_rng(0)
    vocab_sizes = (model.src_vocab_size, model.tgt_vocab_size, model.tgt_vocab_size)

    def one() -> Batch:
        ids = [random.integers(0, size, (MAX_LEN, BATCH_SIZE)) for size in vocab_sizes]
        lengths = [random.integers(1, MAX_LEN + 1, BATCH_SIZE).astype(np.int32) for _ in range(2)]
        return Batch(ids[0], lengths[0], ids[1], ids[2], lengths[1])

    return [[one() for _ in range(num_towers)] for _ in range(num_steps)]


def concatenate(batches: list[Batch]) -> Batch:
    """The towers' batches as one global batch."""
    return Batch(*(np.concatenate(parts, axis=-1) for parts in zip(*batches)))


class FixedSource:
    """A data source that serves given batches, step by step."""

    def __init__(self, batches: list[list[Batch]], devices: list[str]) -> None:
        self._devices = devices
        self._stacked = [Batch(*(np.stack(part) for part in zip(*tower))) for tower in zip(*batches)]

    def next_batches(self, step) -> list[Batch]:
        import tensorflow as tf

        batches = []
        for device, tower in zip(self._devices, self._stacked):
            with tf.device(device):
                batches.append(Batch(*(tf.gather(part, step) for part in tower)))
        return batches


def train(devices: list[str], batches: list[list[Batch]], model: ModelConfig = MODEL, update=None, **options) -> dict:
    """Runs the suite's own step on all the batches.

    Args:
      devices: of the towers.
      batches: `[step][tower]`.
      model: the network.
      update: variables under a mode; made from the options when not given.
      options: by name, as flags would set them.

    Returns:
      "after": [one a step: [one a replica: {name: array}]], "replicas": the last of these, "losses", "words" and
      "positions": [one a step], "update": the mode's object.
    """
    from models import seq2seq
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines.local import Engine
    from rnn_scaling.training.towers import TrainStep

    given = {"optimizer": "sgd", "learning_rate": 0.5, "num_devices": len(devices), **options}
    config = configs.resolve({**given, **vars(model)}, num_gpus=0, num_cores=4)
    engine = Engine(0, 1, tuple(devices), devices[0], "CPU", 1)
    update = update or benchmark.build_update(config, engine)
    network = seq2seq.build(config.model, "CPU")
    rows = {"src_embedding": model.src_vocab_size, "tgt_embedding": model.tgt_vocab_size}
    step = TrainStep(network, rows, FixedSource(batches, devices), update, engine, seed=1)
    results, after = [], []
    for _ in batches:
        results.append(step())
        after.append([{name: value.numpy() for name, value in replica.items()} for replica in update.replicas()])
    return {
        "after": after,
        "replicas": after[-1],
        "losses": [result.loss for result in results],
        "words": [result.words for result in results],
        "positions": [result.positions for result in results],
        "update": update,
    }


class Serial:
    """Plain training on one global batch at a time: gather, loss, dense gradients, `w -= lr * g`."""

    def __init__(self, model: ModelConfig = MODEL, learning_rate: float = 0.5, max_gradient_norm: float = 0.0) -> None:
        from models import seq2seq

        self._model = model
        self.weights = {spec.name: seq2seq.initial_value(spec, 1) for spec in seq2seq.variable_specs(model)}
        self._learning_rate, self._max_gradient_norm = learning_rate, max_gradient_norm

    def gradient(self, batch: Batch, weights: dict | None = None) -> tuple[float, dict]:
        """(loss, dense gradients) of the mean cross entropy a target word at `weights`, or at the present ones."""
        loss, gradients = _gradient_function(self._model)(weights or self.weights, batch)
        return float(loss), self._clip({name: gradient.numpy() for name, gradient in gradients.items()})

    def apply(self, gradients: dict) -> None:
        """One SGD update."""
        self.weights = {name: w - self._learning_rate * gradients[name] for name, w in self.weights.items()}

    def _clip(self, gradients: dict) -> dict:
        norm = np.sqrt(sum((g.astype(np.float64) ** 2).sum() for g in gradients.values()))
        if not self._max_gradient_norm or norm <= self._max_gradient_norm:
            return gradients
        return {name: g * np.float32(self._max_gradient_norm / norm) for name, g in gradients.items()}


@functools.cache
def _gradient_function(model: ModelConfig) -> Callable:
    """(weights, batch) -> (mean loss, dense gradients); traced once for all widths of a batch."""
    import tensorflow as tf

    from models import seq2seq

    network = seq2seq.build(model, "CPU")

    @tf.function(reduce_retracing=True, autograph=False)
    def gradient(weights, batch):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            rows = [tf.gather(weights[name], ids) for name, ids in zip(EMBEDDINGS, (batch.source, batch.target_input))]
            dense = {name: tensor for name, tensor in weights.items() if name not in EMBEDDINGS}
            words = tf.cast(tf.reduce_sum(batch.target_length), tf.float32)
            loss = network.loss(dense, *rows, batch, tf.constant([0, 1])) / words
        gradients = tape.gradient(loss, weights)
        return loss, {name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()}

    def of_arrays(weights, batch):
        return gradient({name: tf.constant(value) for name, value in weights.items()}, Batch(*map(tf.constant, batch)))

    return of_arrays


def largest_difference(left: dict, right: dict) -> float:
    """Largest absolute difference of two sets of weights."""
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)
