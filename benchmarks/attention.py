"""Time the forward and backward pass of `nmt` with each attention.

    MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000 \\
        python -m benchmarks.attention [--rounds=14]

The model is preset small. The networks take turns in one process on one thread.
Milliseconds are CPU time of the process, so other processes affect them only by the
caches.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS
flags.DEFINE_integer(
    "rounds", 14, "number of rounds; each one times every network twice", lower_bound=1
)
flags.DEFINE_integer(
    "batch_size", 32, "number of sentence pairs per step", lower_bound=1
)
flags.DEFINE_integer("length", 30, "number of words in each sentence", lower_bound=1)

# Options of the model, in addition to preset small.
NETWORKS: dict[str, dict[str, Any]] = {
    "nmt": {},
    "luong": {"model": "nmt_attention"},
    "luong, dynamic_rnn": {"model": "nmt_attention", "decoder_type": "dynamic_rnn"},
    "bahdanau": {"model": "nmt_attention", "attention": "bahdanau"},
    "bahdanau, dynamic_rnn": {
        "model": "nmt_attention",
        "attention": "bahdanau",
        "decoder_type": "dynamic_rnn",
    },
    "gnmt_v2's shape, luong": {
        "model": "nmt_attention",
        "attention_architecture": "gnmt_v2",
    },
    "gnmt_v2's shape, bahdanau": {
        "model": "nmt_attention",
        "attention_architecture": "gnmt_v2",
        "attention": "bahdanau",
    },
}
HEAD = ("network", "GFLOP per step", "lowest CPU ms", "median")


class Network:
    """A step of a network, and what it costs.

    Attributes:
      gflop: Matrix products of a step.
      cpu_ms: CPU milliseconds of each timed step.
    """

    def __init__(self, config: ModelConfig, batch_size: int, length: int) -> None:
        """Build the step.

        Args:
          batch_size: Sentence pairs per step.
          length: Words per sentence.
        """
        from rnn_scaling.models import workloads

        self._step = build_step(config, batch_size, length)
        sizes = {**vars(config), "src_max_len": length, "tgt_max_len": length}
        flops = workloads.WORKLOADS[config.model].flops_per_sample(sizes)
        self.gflop = batch_size * flops / 1e9
        self.cpu_ms: list[float] = []

    def warm_up(self) -> None:
        """Make two steps; the first one traces the function."""
        self._step()
        self._step()

    def measure(self) -> None:
        """Make one step and store its time."""
        start = time.process_time()
        loss, _ = self._step()
        loss.numpy()
        self.cpu_ms.append(1e3 * (time.process_time() - start))


def build_step(
    config: ModelConfig, batch_size: int, length: int
) -> Callable[[], tuple[Any, list]]:
    """Return a step without update, which returns the loss and a part of each gradient.

    Args:
      batch_size: Sentence pairs per step.
      length: Words per sentence.
    """
    import tensorflow as tf

    from rnn_scaling.models import workload, workloads
    from rnn_scaling.models.batch import Batch

    network = workloads.load(config.model).build(config, "CPU")
    rng = np.random.default_rng(0)
    ids = rng.integers(0, config.tgt_vocab_size, (3, length, batch_size))
    source, target_input, target_output = map(tf.constant, ids)
    lengths = tf.constant([length] * batch_size)
    batch = Batch(source, lengths, target_input, target_output, lengths)
    variables = {}
    for name, value in workload.make_first_values(network.variables, 1).items():
        variables[name] = tf.Variable(value)

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        weights = {}
        rows = {}
        ids_by_name = network.list_lookups(batch)
        for name, variable in variables.items():
            if name in ids_by_name:
                rows[name] = tf.gather(variable, ids_by_name[name])
            else:
                weights[name] = variable.read_value()
        loss = network.forward(weights, rows, batch, tf.constant([0, 1])).loss_sum
        gradients = tf.gradients(loss, [*weights.values(), *rows.values()])
        return loss, [tf.reshape(gradient, [-1])[0] for gradient in gradients]

    return step


def main(argv: Sequence[str]) -> None:
    # Keras is a third of TensorFlow's import, and not used.
    sys.modules["keras"] = None  # type: ignore[assignment]
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    networks = {}
    for name, options in NETWORKS.items():
        config = ModelConfig(**options)
        networks[name] = Network(config, FLAGS.batch_size, FLAGS.length)
        networks[name].warm_up()
    for _ in range(FLAGS.rounds):
        for network in networks.values():
            network.measure()
            network.measure()
    rows = []
    for name, network in networks.items():
        lowest_ms = min(network.cpu_ms)
        median_ms = statistics.median(network.cpu_ms)
        rows.append(
            [name, f"{network.gflop:.1f}", f"{lowest_ms:.0f}", f"{median_ms:.0f}"]
        )
    print(format_table(HEAD, rows, padded=False), end="")


if __name__ == "__main__":
    app.run(main)
