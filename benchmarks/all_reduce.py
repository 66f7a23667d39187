"""Compares all-reduce algorithms and packing on logical CPU devices; prints a Markdown table.

    python benchmarks/all_reduce.py                    all cases, about two minutes on two cores
    python benchmarks/all_reduce.py --devices=2 --tensors=200 --rounds=50

A step makes each tower's gradients with one multiplication, exchanges them and applies SGD. The variants take turns,
one step per round, so that other load affects all of them. Compare the ratios.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import tensorflow as tf
from absl import app, flags

from rnn_scaling.config import all_reduce_spec
from rnn_scaling.training import optimizers
from rnn_scaling.training.all_reduce import psgpu
from rnn_scaling.training.all_reduce.exchange import reduce_dense

FLAGS = flags.FLAGS
flags.DEFINE_list(
    "devices", ["2", "4"], "numbers of logical CPU devices, separated by commas"
)
flags.DEFINE_list(
    "tensors",
    ["4", "200", "model"],
    "numbers of equal gradients per tower; model: unequal gradients, as in a network",
)
flags.DEFINE_integer(
    "parameters",
    20_000_000,
    "number of float32 elements in the gradients of a tower",
    lower_bound=1000,
)
flags.DEFINE_integer(
    "rounds", 15, "number of measured steps of each variant", lower_bound=1
)

# Shares of an LSTM translation network: two embeddings, the softmax layer, six LSTM weights, biases.
MODEL_SHARES = (250, 250, 250, *[40] * 6, *[1] * 10)
BASELINE = "pscpu"
Grads = Sequence[Sequence[tf.Tensor]]
Exchange = Callable[[Grads], Grads]


@dataclasses.dataclass
class Variant:
    """One way to exchange gradients, and the seconds that its steps took."""

    name: str
    step: Callable[[], None]
    wall_s: list[float] = dataclasses.field(default_factory=list)
    cpu_s: list[float] = dataclasses.field(default_factory=list)

    def measure(self) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        self.step()
        self.wall_s.append(time.perf_counter() - wall)
        self.cpu_s.append(time.process_time() - cpu)


def sizes_of(tensors: str, parameters: int) -> list[int]:
    """Elements of each gradient."""
    shares = MODEL_SHARES if tensors == "model" else (1,) * int(tensors)
    return [parameters * share // sum(shares) for share in shares]


def exchanges(devices: Sequence[str]) -> dict[str, Exchange]:
    """Name -> exchange, for every algorithm that runs on these CPUs and for packing before the best of them."""
    count = len(devices)

    def spec(text: str, repacking: int = 0, max_bytes: int = 0) -> Exchange:
        segments = all_reduce_spec.parse(text)
        return lambda grads: reduce_dense(
            grads, devices, segments, repacking, max_bytes, 10
        )

    def one_device(grads: Grads) -> Grads:
        reduce = psgpu.build(devices, 1, devices[:1])
        return list(
            zip(*(reduce(tensors) for tensors in zip(*grads, strict=True)), strict=True)
        )

    return {
        "nothing exchanged": lambda grads: grads,
        "AddN on one device": one_device,
        **{text: spec(text) for text in ("pscpu", f"pscpu#{count}", "hierarchical", "rechd")},
        **{text: spec(text) for text in ("xring", f"xring#{count}", "collective")},
        f"pscpu, repacking={count}": spec("pscpu", repacking=count),
        "pscpu, packs up to 1 MiB": spec("pscpu", max_bytes=2**20),
        "collective, packs up to 1 MiB": spec("collective", max_bytes=2**20),
    }  # fmt: skip


def build_step(
    exchange: Exchange, weights: Sequence[Sequence[tf.Variable]], devices: Sequence[str]
) -> Callable[[], None]:
    """One step: gradients of all towers, their exchange, the update."""
    sgd = optimizers.build("sgd", 1e-6)

    @tf.function
    def step() -> None:
        grads = []
        for tower, device in zip(weights, devices, strict=True):
            with tf.device(device):
                grads.append([weight * 0.5 for weight in tower])
        for tower, summed in zip(weights, exchange(grads), strict=True):
            for weight, gradient in zip(tower, summed, strict=True):
                sgd.apply(weight, (), gradient, None, tf.constant(0, tf.int64))

    return step


def run_case(devices: Sequence[str], tensors: str) -> list[Variant]:
    """Measures every variant on these devices."""
    weights = []
    for device in devices:
        with tf.device(device):
            weights.append(
                [
                    tf.Variable(tf.ones([size]))
                    for size in sizes_of(tensors, FLAGS.parameters)
                ]
            )
    variants = [
        Variant(name, build_step(e, weights, devices))
        for name, e in exchanges(devices).items()
    ]
    for variant in variants:
        for _ in range(2):
            variant.step()
    for _ in range(FLAGS.rounds):
        for variant in variants:
            variant.measure()
    return variants


def rows(num_devices: int, tensors: str, variants: Sequence[Variant]) -> list[str]:
    """A line a variant; ratios are medians over the rounds."""
    base = next(v for v in variants if v.name == BASELINE)
    lines = []
    for v in variants:
        wall = statistics.median(
            a / b for a, b in zip(v.wall_s, base.wall_s, strict=True)
        )
        cpu = statistics.median(a / b for a, b in zip(v.cpu_s, base.cpu_s, strict=True))
        wall_ms, cpu_ms = (
            1e3 * statistics.median(v.wall_s),
            1e3 * statistics.median(v.cpu_s),
        )
        lines.append(
            f"| {num_devices} | {tensors} | {v.name} | {wall_ms:.1f} | {cpu_ms:.1f} | {wall:.2f} | {cpu:.2f} |"
        )
    return lines


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]}")
    tf.get_logger().setLevel(
        "ERROR"
    )  # it warns of functions made in a loop, as the variants are
    counts = [int(count) for count in FLAGS.devices]
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(max(counts))
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(max(counts))]
    tf.config.set_logical_device_configuration(cpu, logical)
    devices = [device.name for device in tf.config.list_logical_devices("CPU")]
    print(
        f"| devices | tensors | exchange | wall ms | CPU ms | wall / {BASELINE} | CPU / {BASELINE} |"
    )
    print("|---|---|---|---|---|---|---|")
    for count in counts:
        for tensors in FLAGS.tensors:
            print(
                "\n".join(rows(count, tensors, run_case(devices[:count], tensors))),
                flush=True,
            )


if __name__ == "__main__":
    app.run(main)
