"""A tiny step's kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from rnn_scaling.inspection.operators import Node, TracedStep
from tests.support.configs import resolve
from tests.support.training import make_local_engine

# One cell in the encoder and one in the decoder.
TINY = {
    "device": "cpu",
    "num_units": 6,
    "embedding_dim": 5,
    "src_vocab_size": 23,
    "tgt_vocab_size": 17,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "direction": "uni",
}
TINY |= {"batch_size": 3, "src_max_len": 3, "tgt_max_len": 3, "trace_batches": 1}


class Probe:
    """A built and warmed-up step, and the nodes of its graphs."""

    def __init__(self, devices: list[str], **options: Any) -> None:
        from rnn_scaling.inspection import operators
        from rnn_scaling.training import benchmark

        config = resolve({**TINY, "num_devices": len(devices), **options})
        self.step = benchmark.build(config, make_local_engine(devices))
        for _ in range(3):
            self.step()
        partitions = [
            partition
            for graph in self.step.function_graphs
            for partition in graph.partition_graphs
        ]
        self.nodes = operators.index_nodes(partitions)

    def every(self, num_steps: int = 2) -> list[TracedStep]:
        """Return traced steps with all of their kernels."""
        return trace_all_kernels(self.step, self.nodes, num_steps)


def trace_all_kernels(
    step: Callable[[], Any], nodes: Mapping[str, Node], num_steps: int
) -> list[TracedStep]:
    """Return traced steps with all of their kernels.

    One more step is traced, because events of the previous steps may end during it.
    """
    from rnn_scaling.inspection import tracing, xplane

    return xplane.read(
        tracing.trace(step, num_steps + 1, every_kernel=True).space, nodes
    ).steps[:num_steps]


def count_two_towers(inter_op_threads: int) -> Counter[str]:
    """Count the kernels of a step of two towers by type.

    This sets up TensorFlow, which must not have started before.
    """
    from rnn_scaling.training.engines import local

    engine = local.start(local.Request("cpu", 2, inter_op_threads, 1))
    probe = Probe(list(engine.devices), model="lm", encoder_type="dynamic_rnn")
    return count_by_type(probe.every(1)[0])


def count_by_type(step: TracedStep) -> Counter[str]:
    """Count the kernels that ran, by type."""
    return Counter(kernel.type for kernel in step.kernels)
