"""A tiny network with fixed batches per tower, and serial training as its reference."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from rnn_scaling.models.batch import Side
from rnn_scaling.models.config import ModelConfig
from tests.support.configs import resolve

MODEL = ModelConfig(
    num_units=6,
    embedding_dim=5,
    src_vocab_size=23,
    tgt_vocab_size=17,
    num_encoder_layers=2,
    num_decoder_layers=2,
    num_heads=2,
    filter_size=7,
)
# One LSTM cell in the encoder and one in the decoder. It is traced in half the time, and
# serves tests that do not depend on the number of variables.
SMALL = dataclasses.replace(
    MODEL, num_encoder_layers=1, num_decoder_layers=1, direction="uni"
)
BATCH_SIZE, MAX_LEN = 3, 5
LM = dataclasses.replace(MODEL, model="lm")
TRANSFORMER = dataclasses.replace(MODEL, model="transformer")


def replicas(update: Any) -> list[dict[str, np.ndarray]]:
    """Return each copy of an update mode's variables by name, with joined partitions."""
    import tensorflow as tf

    towers: dict[int | None, dict[str, list[np.ndarray]]] = {}
    with tf.device("CPU:0"):  # other processes may hold the variables
        for state in update.list_variables():
            parts = towers.setdefault(state.tower, {}).setdefault(state.name, [])
            parts.append(tf.identity(state.variable.read_value()).numpy())
    return [
        {name: np.concatenate(parts) for name, parts in whole.items()}
        for whole in towers.values()
    ]


def make_batches(
    num_steps: int, num_towers: int, model: ModelConfig = MODEL
) -> list[list[Any]]:
    """Return numpy batches `[step][tower]`.

    Towers have different numbers of words, and words repeat within a batch.
    """
    random = np.random.default_rng(0)
    layout = build_workload(model).layout

    def one(side: Side) -> tuple[np.ndarray, ...]:
        ids = [
            random.integers(0, side.vocab_size, (MAX_LEN, BATCH_SIZE))
            for _ in range(1 + side.predicted)
        ]
        ids = ids if layout.time_major else [each.T for each in ids]
        return (*ids, random.integers(1, MAX_LEN + 1, BATCH_SIZE).astype(np.int32))

    return [
        [layout.make_batch(map(one, layout.sides)) for _ in range(num_towers)]
        for _ in range(num_steps)
    ]


def build_workload(model: ModelConfig):
    """Build the network for the CPU."""
    from rnn_scaling.models import workloads

    return workloads.load(model.model).build(model, "CPU")


def concatenate(batches: list[Any]) -> Any:
    """Join the towers' batches into one global batch."""
    is_batch_major = batches[0].target_output.shape[1] == MAX_LEN
    return type(batches[0])(
        *(
            np.concatenate(parts, axis=0 if is_batch_major else -1)
            for parts in zip(*batches)
        )
    )


class FixedSource:
    """A data source that serves given batches, step by step, again and again."""

    def __init__(self, batches: list[list[Any]], devices: list[str]) -> None:
        self._devices = devices
        self._stacked = [
            type(tower[0])(*map(np.stack, zip(*tower))) for tower in zip(*batches)
        ]

    def next_batches(self, step) -> list[Any]:
        import tensorflow as tf

        batches = []
        for device, tower in zip(self._devices, self._stacked):
            with tf.device(device):
                batches.append(
                    type(tower)(*(tf.gather(part, step % len(part)) for part in tower))
                )
        return batches


def make_local_engine(devices):
    """Return the engine of these devices, the first of which has the variables."""
    from rnn_scaling.training.engines.local import Engine

    return Engine(0, 1, tuple(devices), devices[0], "CPU", 1)


def build_step(devices, source, workload=None, update=None, engine=None, **options):
    """Build the step of the update mode that the options name.

    Args:
      devices: The devices of the towers.
      source: The data source.
      workload: The network; None for the one that the options describe.
      update: An object of the update mode; None to build it.
      engine: None for `local_engine`.
      options: Options of the run.
    """
    from rnn_scaling.config import registry
    from rnn_scaling.training import benchmark

    given = {"optimizer": "sgd", "learning_rate": 0.5, "num_devices": len(devices)}
    config = resolve({**given, **options})
    engine = engine or make_local_engine(devices)
    workload = workload or build_workload(config.model)
    update = update or benchmark.build_update(config, engine, workload)
    mode = registry.VARIABLE_UPDATES[config.update.variable_update]
    module = registry.load(registry.STEPS, mode.step)
    return module.build(workload, source, update, engine, config)


FAKE_BATCHES = {"num_batches": 3, "num_warmup_batches": 2, "progress": False}


def run_fake_batches(on_batch, state=None, saver=None):
    """Run batches of a step that computes nothing; return their `RunState`.

    Args:
      on_batch: Called without arguments in each batch.
      state: The state of a run with FAKE_BATCHES; None for a new one.
      saver: The class of its checkpoints; None for `Saver`.
    """
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.checkpoints import Saver
    from rnn_scaling.training.cluster import SingleProcess
    from rnn_scaling.training.state import RunState
    from rnn_scaling.training.train_step import StepResult, TrainStep

    class FakeStep(TrainStep):
        __init__ = object.__init__
        runs_between_calls = False

        def __call__(self):
            on_batch()
            return StepResult(*np.full([4, 1], 8.0))

    config = resolve(FAKE_BATCHES)
    state = state or RunState(config)
    saves = (saver or Saver)(config, state, ())
    benchmark.run_batches(config, FakeStep(), state, SingleProcess(), saves)
    return state


def train(
    devices: list[str],
    batches: list[list[Any]],
    model: ModelConfig = MODEL,
    update=None,
    engine=None,
    **options,
) -> dict:
    """Train with the suite's own step on all batches, `[step][tower]`.

    Returns:
      "after": weights {name: array} after each step, `[step][replica]`; "replicas":
      the weights after the last step; "losses", "items" and "positions": one value per
      step; "update": the object of the update mode.
    """
    from rnn_scaling.config import registry

    given = {**options, "trace_batches": 0}
    mode = registry.VARIABLE_UPDATES[given.get("variable_update", "independent")]
    source = FixedSource(batches, devices)
    if mode.cuts_global_batch:  # the step divides it as evenly as possible
        joined = [[concatenate(towers)] for towers in batches]
        given["global_batch_size"] = joined[0][0].target_length.size
        source = FixedSource(joined, devices[:1])
    given |= vars(model)
    step = build_step(devices, source, update=update, engine=engine, **given)
    results, after = [], []
    for _ in range(len(batches) // given.get("gradient_accumulation_steps", 1)):
        results.append(step())
        after.append(replicas(step._update))
        assert after[-1] and all(after[-1]), (
            "without variables every comparison would pass"
        )
    return {
        "after": after,
        "replicas": after[-1],
        "losses": [result.loss for result in results],
        "items": [result.items for result in results],
        "positions": [result.positions for result in results],
        "update": step._update,
    }


class Serial:
    """Serial training on global batches: gather, loss, dense gradients, `w -= lr * g`."""

    def __init__(
        self,
        model: ModelConfig = MODEL,
        learning_rate: float = 0.5,
        max_gradient_norm: float = 0.0,
    ) -> None:
        from rnn_scaling.models.workload import make_initial_value

        self._model = model
        self.weights = {
            spec.name: make_initial_value(spec, 1)
            for spec in build_workload(model).variables
        }
        self._learning_rate, self._max_gradient_norm = learning_rate, max_gradient_norm

    def gradient(self, batch: Any, weights: dict | None = None) -> tuple[float, dict]:
        """Return the mean cross entropy per target word and its dense gradients.

        Args:
          batch: The global batch.
          weights: Weights to use instead of the current weights.
        """
        loss, gradients = _gradient_function(self._model)(
            weights or self.weights, batch
        )
        return float(loss), self._clip(
            {name: gradient.numpy() for name, gradient in gradients.items()}
        )

    def apply(self, gradients: dict) -> None:
        """Apply one SGD update."""
        self.weights = {
            name: w - self._learning_rate * gradients[name]
            for name, w in self.weights.items()
        }

    def _clip(self, gradients: dict) -> dict:
        norm = np.sqrt(
            sum((g.astype(np.float64) ** 2).sum() for g in gradients.values())
        )
        if not self._max_gradient_norm or norm <= self._max_gradient_norm:
            return gradients
        return {
            name: g * np.float32(self._max_gradient_norm / norm)
            for name, g in gradients.items()
        }


@functools.cache
def _gradient_function(model: ModelConfig) -> Callable:
    """Return a function (weights, batch) -> (mean loss, dense gradients).

    It is traced only once for all batch widths.
    """
    import tensorflow as tf

    workload = build_workload(model)

    @tf.function(reduce_retracing=True, autograph=False)
    def gradient(weights, batch):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            ids = workload.list_lookups(batch)
            rows = {name: tf.gather(weights[name], ids[name]) for name in ids}
            dense = {
                name: tensor for name, tensor in weights.items() if name not in ids
            }
            loss = workload.forward(
                dense, rows, batch, tf.constant([0, 1])
            ).loss_sum / workload.count_loss_items(batch)
        gradients = tape.gradient(loss, weights)
        return loss, {
            name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()
        }

    def of_arrays(weights, batch):
        tensors = {name: tf.constant(value) for name, value in weights.items()}
        return gradient(tensors, type(batch)(*map(tf.constant, batch)))

    return of_arrays


def find_largest_difference(left: dict, right: dict) -> float:
    """Return the largest absolute difference of two sets of weights."""
    assert left.keys() == right.keys()
    return max(float(np.abs(left[name] - right[name]).max()) for name in left)
