"""Compare all-reduce algorithms and packing on logical CPU devices.

    python benchmarks/all_reduce.py             all cases, two minutes on two cores
    python benchmarks/all_reduce.py --devices=2 --tensors=200 --rounds=50

A step makes each tower's gradients with one multiplication, exchanges them and applies
SGD. The variants take turns, one step per round, so that other load affects all of
them. Prints a Markdown table; compare its ratios.
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
from rnn_scaling.system.files.markdown import format_table
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

# Shares of the gradients of an LSTM translation network.
MODEL_SHARES = (
    *[250] * 3,  # two embeddings and the softmax layer
    *[40] * 6,  # weights of the LSTM layers
    *[1] * 10,  # biases
)
BASELINE = "pscpu"
HEAD = (
    "devices",
    "tensors",
    "exchange",
    "wall ms",
    "CPU ms",
    f"wall / {BASELINE}",
    f"CPU / {BASELINE}",
)
# Gradients [tower][weight].
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
        """Make one step and store its seconds."""
        wall_start = time.perf_counter()
        cpu_start = time.process_time()
        self.step()
        self.wall_s.append(time.perf_counter() - wall_start)
        self.cpu_s.append(time.process_time() - cpu_start)


def list_gradient_sizes(tensors: str, parameters: int) -> list[int]:
    """Return the number of elements of each gradient.

    Args:
      tensors: A value of --tensors.
      parameters: Elements of all gradients.
    """
    shares = MODEL_SHARES if tensors == "model" else (1,) * int(tensors)
    return [parameters * share // sum(shares) for share in shares]


def make_exchanges(devices: Sequence[str]) -> dict[str, Exchange]:
    """Return every algorithm that runs on these CPUs, and packing, by name."""
    count = len(devices)

    def from_spec(spec: str, repacking: int = 0, max_bytes: int = 0) -> Exchange:
        segments = all_reduce_spec.parse(spec)
        return lambda grads: reduce_dense(
            grads, devices, segments, repacking, max_bytes, 10
        )

    def add_on_one_device(grads: Grads) -> Grads:
        reduce = psgpu.build(devices, 1, devices[:1])
        reduced = [reduce(tensors) for tensors in zip(*grads, strict=True)]
        return list(zip(*reduced, strict=True))

    exchanges: dict[str, Exchange] = {
        "nothing exchanged": lambda grads: grads,
        "AddN on one device": add_on_one_device,
    }
    for spec in (
        "pscpu",
        f"pscpu#{count}",
        "hierarchical",
        "rechd",
        "xring",
        f"xring#{count}",
        "collective",
    ):
        exchanges[spec] = from_spec(spec)
    exchanges[f"pscpu, repacking={count}"] = from_spec("pscpu", repacking=count)
    for spec in ("pscpu", "collective"):
        exchanges[f"{spec}, packs up to 1 MiB"] = from_spec(spec, max_bytes=2**20)
    return exchanges


def build_step(
    exchange: Exchange, weights: Sequence[Sequence[tf.Variable]], devices: Sequence[str]
) -> Callable[[], None]:
    """Return one step: gradients of all towers, their exchange, the update."""
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
    """Measure every variant on these devices.

    Args:
      tensors: A value of --tensors.
    """
    weights = []
    for device in devices:
        tower = []
        with tf.device(device):
            for size in list_gradient_sizes(tensors, FLAGS.parameters):
                tower.append(tf.Variable(tf.ones([size])))
        weights.append(tower)
    variants = []
    for name, exchange in make_exchanges(devices).items():
        variants.append(Variant(name, build_step(exchange, weights, devices)))
    for variant in variants:
        for _ in range(2):
            variant.step()
    for _ in range(FLAGS.rounds):
        for variant in variants:
            variant.measure()
    return variants


def make_table_rows(
    num_devices: int, tensors: str, variants: Sequence[Variant]
) -> list[list]:
    """Return the row of each variant; ratios are medians over the rounds."""
    [baseline] = [variant for variant in variants if variant.name == BASELINE]
    rows = []
    for variant in variants:
        cells = [
            num_devices,
            tensors,
            variant.name,
            f"{1e3 * statistics.median(variant.wall_s):.1f}",
            f"{1e3 * statistics.median(variant.cpu_s):.1f}",
            f"{compute_median_ratio(variant.wall_s, baseline.wall_s):.2f}",
            f"{compute_median_ratio(variant.cpu_s, baseline.cpu_s):.2f}",
        ]
        rows.append(cells)
    return rows


def compute_median_ratio(
    seconds: Sequence[float], baseline_s: Sequence[float]
) -> float:
    """Return the median over the rounds of the ratio of two variants."""
    ratios = [own / base for own, base in zip(seconds, baseline_s, strict=True)]
    return statistics.median(ratios)


def set_up_devices(count: int) -> list[str]:
    """Make logical CPU devices of one thread each, and return their names."""
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(count)
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical = [tf.config.LogicalDeviceConfiguration() for _ in range(count)]
    tf.config.set_logical_device_configuration(cpu, logical)
    return [device.name for device in tf.config.list_logical_devices("CPU")]


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]}")
    # TensorFlow warns of functions that are made in a loop, as the variants are.
    tf.get_logger().setLevel("ERROR")
    counts = [int(count) for count in FLAGS.devices]
    devices = set_up_devices(max(counts))
    rows = []
    for count in counts:
        for tensors in FLAGS.tensors:
            print(f"{count} devices, {tensors} tensors", file=sys.stderr)
            variants = run_case(devices[:count], tensors)
            rows += make_table_rows(count, tensors, variants)
    print(format_table(HEAD, rows, padded=False), end="")


if __name__ == "__main__":
    app.run(main)
