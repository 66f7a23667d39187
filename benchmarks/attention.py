"""Times the forward and backward pass of `nmt` with each attention, interleaved in one process on one thread.

    MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000 python -m benchmarks.attention [--rounds=14]

The model is preset small. Milliseconds are CPU time of the process, so other processes affect them only by the caches.
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

FLAGS = flags.FLAGS
flags.DEFINE_integer(
    "rounds", 14, "number of rounds; each one times every network twice", lower_bound=1
)
flags.DEFINE_integer(
    "batch_size", 32, "number of sentence pairs per step", lower_bound=1
)
flags.DEFINE_integer("length", 30, "number of words in each sentence", lower_bound=1)

ATTENTION: dict[str, Any] = {"model": "nmt_attention"}
NETWORKS: dict[str, dict[str, Any]] = {
    "nmt": {},
    "luong": ATTENTION,
    "luong, dynamic_rnn": {**ATTENTION, "decoder_type": "dynamic_rnn"},
    "bahdanau": {**ATTENTION, "attention": "bahdanau"},
    "bahdanau, dynamic_rnn": {
        **ATTENTION,
        "attention": "bahdanau",
        "decoder_type": "dynamic_rnn",
    },
    "gnmt_v2's shape, luong": {**ATTENTION, "attention_architecture": "gnmt_v2"},
    "gnmt_v2's shape, bahdanau": {
        **ATTENTION,
        "attention_architecture": "gnmt_v2",
        "attention": "bahdanau",
    },
}


def make_step(
    config: ModelConfig, batch_size: int, length: int
) -> tuple[Callable[[], Any], float]:
    """One step without update, and its GFLOP.

    Args:
      config: the network.
      batch_size: sentence pairs.
      length: words of each.
    """
    import tensorflow as tf

    from rnn_scaling.models import workload, workloads
    from rnn_scaling.models.batch import Batch

    network = workloads.load(config.model).build(config, "CPU")
    rng = np.random.default_rng(0)
    source, inputs, outputs = (
        tf.constant(rng.integers(0, config.tgt_vocab_size, (length, batch_size)))
        for _ in range(3)
    )
    full = tf.constant([length] * batch_size)
    batch = Batch(source, full, inputs, outputs, full)
    values = {
        name: tf.Variable(value)
        for name, value in workload.make_first_values(network.variables, 1).items()
    }

    @tf.function(autograph=False)
    def step() -> tuple[tf.Tensor, list[tf.Tensor]]:
        ids = network.lookups(batch)
        rows = {name: tf.gather(values[name], ids[name]) for name in ids}
        weights = {
            name: value.read_value()
            for name, value in values.items()
            if name not in ids
        }
        loss = network.forward(weights, rows, batch, tf.constant([0, 1])).loss_sum
        gradients = tf.gradients(loss, [*weights.values(), *rows.values()])
        return loss, [tf.reshape(gradient, [-1])[0] for gradient in gradients]

    lengths = {"src_max_len": length, "tgt_max_len": length}
    return step, batch_size * workloads.WORKLOADS[config.model].flops_per_sample(
        {**vars(config), **lengths}
    ) / 1e9


def main(argv: Sequence[str]) -> None:
    sys.modules["keras"] = None  # type: ignore[assignment]  # a third of TensorFlow's import, and not used
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    steps = {
        n: make_step(ModelConfig(**each), FLAGS.batch_size, FLAGS.length)
        for n, each in NETWORKS.items()
    }
    for step, _ in steps.values():
        step()
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(FLAGS.rounds):
        for name, (step, _) in steps.items():
            for _ in range(2):
                begun = time.process_time()
                step()[0].numpy()
                times[name].append(1e3 * (time.process_time() - begun))
    print(
        "| network | GFLOP per step | lowest CPU ms | median |\n| --- | --- | "
        "--- | --- |"
    )
    for name, (_, gflop) in steps.items():
        print(
            f"| {name} | {gflop:.1f} | {min(times[name]):.0f} | {statistics.median(times[name]):.0f} |"
        )


if __name__ == "__main__":
    app.run(main)
