"""The step's graph on two GPUs, traced without one."""

from __future__ import annotations

from typing import Any

from rnn_scaling.config import run_config as configs

GPUS = tuple(f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2))
CPU = "/job:localhost/replica:0/task:0/device:CPU:0"
GIVEN = {
    "num_devices": 2,
    "device": "gpu",
    "num_units": 4,
    "embedding_dim": 4,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "direction": "uni",
    "batch_size": 2,
    "dropout": 0.3,
}


def trace(tf: Any, **options: Any) -> tuple[list[Any], set[str]]:
    """Return the operations of the step, and the names of its word id tensors."""
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines.local import Engine

    config = configs.resolve({**GIVEN, **options}, num_gpus=2, num_cores=2)
    ids = set()
    with tf.Graph().as_default() as graph:
        step = benchmark.build(config, Engine(0, 1, GPUS, CPU, "GPU", 2))
        given = step._source.next_batches

        def next_batches(number):
            batches = given(number)
            ids.update(
                part.name for batch in batches for part in batch if part.shape.rank == 2
            )
            return batches

        step._source.next_batches = next_batches
        step._build()
    return graph.get_operations(), ids
