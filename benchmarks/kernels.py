"""Time training steps of one network with each CPU kernel and with PyTorch.

    python -m benchmarks.kernels --torch_python=/path/to/python [--rounds=8]
        [--dtypes=float32,bfloat16]
    python -m benchmarks.kernels --unit_type=gru    kernels of another cell

All peers run interleaved, with one thread on one core. Each round times a few steps of
each peer and the machine's GEMM rate, so that other load affects all of them.

A step is embedding, encoder, decoder, loss, gradients and fused Adam, from the same
weights and batch. The loss of the first step must be equal for all peers. Kernels that
can use the project's own operators are timed without ("stock") and with them, by the
best instruction set of the processor or by that of RNN_SCALING_OPERATORS. PyTorch's
network is an LSTM; on some processors it has no LSTM in bfloat16 (n/a).

Rates and ratios use the CPU time of the step's process, which equals wall time on a
quiet machine.

PyTorch returns its large arrays to the system at each step, and glibc faults their
pages in again. To avoid that:

    MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000 \\
        python -m benchmarks.kernels ...
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from absl import app, flags

from rnn_scaling.models import encoder_table
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.encoder_table import UNIT_TYPES
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS
flags.DEFINE_string(
    "torch_python",
    "",
    "path of a Python with PyTorch; without it, there are no rows of PyTorch",
)
flags.DEFINE_enum("unit_type", "lstm", list(UNIT_TYPES), "cell of every layer")
flags.DEFINE_integer(
    "rounds", 8, "number of rounds; each one times every peer", lower_bound=1
)
flags.DEFINE_integer(
    "steps", 3, "number of steps of each peer in a round", lower_bound=1
)
flags.DEFINE_integer(
    "batch_size", 32, "number of sentence pairs per step", lower_bound=1
)
flags.DEFINE_integer("length", 30, "number of words in each sentence", lower_bound=1)
flags.DEFINE_list(
    "dtypes", ["float32", "bfloat16"], "values of --compute_dtype, separated by commas"
)
flags.DEFINE_integer(
    "inter_op", 1, "TensorFlow's inter_op_parallelism_threads", lower_bound=1
)
flags.DEFINE_integer(
    "warmup", 3, "number of steps of each peer before the first round", lower_bound=1
)

# Rows of the first matrix, its columns, columns of the second one.
GEMM_SHAPES = ((1024, 1024, 1024), (960, 256, 8000), (512, 960, 1024))
HEAD = (
    "peer",
    "dtype",
    "wall (ms, median)",
    "CPU (ms, median)",
    "CPU (ms, least)",
    "words/s",
    "GFLOP/s",
    "share of the GEMM rate",
    "x dynamic_rnn",
    "x PyTorch",
    "first loss",
)

# Wall seconds and CPU seconds of each step.
Times = list[tuple[float, float]]
# Times a number of steps.
TimeSteps = Callable[[int], Times]


class PeerKey(NamedTuple):
    """What is timed: a kernel or PyTorch, and its dtype."""

    peer: str
    dtype: str


@dataclasses.dataclass
class Peers:
    """What is timed.

    Attributes:
      time_steps: Times the steps of each peer, and products for the GEMM rate.
      first_losses: Loss of the first step of each peer, also of those that cannot run.
    """

    time_steps: dict[PeerKey, TimeSteps] = dataclasses.field(default_factory=dict)
    first_losses: dict[PeerKey, float] = dataclasses.field(default_factory=dict)

    def add(self, name: str, dtype: str, step: Callable[[], Any]) -> None:
        """Add a peer of this process, and make its first step."""
        key = PeerKey(name, dtype)
        self.first_losses[key] = float(step())
        self.time_steps[key] = lambda count: time_calls(lambda: float(step()), count)


def step_gflop(config: ModelConfig, batch_size: int, length: int) -> float:
    """Return the GFLOP of the matrix products of one step, forward and backward."""
    from rnn_scaling.models.workloads import WORKLOADS

    lengths = {"src_max_len": length, "tgt_max_len": length}
    flops = WORKLOADS["nmt"].flops_per_sample({**vars(config), **lengths})
    return batch_size * flops / 1e9


def make_arrays(
    config: ModelConfig, batch_size: int, length: int
) -> dict[str, np.ndarray]:
    """Return the weights by name and one batch, for each peer."""
    from rnn_scaling.models import seq2seq
    from rnn_scaling.models.workload import make_initial_value

    arrays = {}
    for spec in seq2seq.build(config, "CPU").variables:
        arrays[spec.name] = make_initial_value(spec, seed=1)
    generator = np.random.default_rng(1)
    for name in ("source", "target_input", "target_output"):
        arrays[name] = generator.integers(
            0, config.tgt_vocab_size, (length, batch_size)
        )
    return arrays


def build_tensorflow_step(
    config: ModelConfig, arrays: dict[str, np.ndarray]
) -> Callable[[], Any]:
    """Return a training step of `models` that returns the mean loss per word."""
    import tensorflow as tf

    from rnn_scaling.models import seq2seq
    from rnn_scaling.models.batch import Batch

    network = seq2seq.build(config, "CPU")
    length, batch_size = arrays["source"].shape
    lengths = tf.fill([batch_size], length)
    batch = Batch(
        tf.constant(arrays["source"]),
        lengths,
        tf.constant(arrays["target_input"]),
        tf.constant(arrays["target_output"]),
        lengths,
    )
    words = network.list_lookups(batch)
    variables = {}
    dense_names = []
    for spec in network.variables:
        variables[spec.name] = tf.Variable(arrays[spec.name])
        if spec.kind == "dense":
            dense_names.append(spec.name)
    apply_gradients = build_adam(variables)

    @tf.function
    def step() -> tf.Tensor:
        rows = {name: tf.gather(variables[name], ids) for name, ids in words.items()}
        dense = {name: variables[name].read_value() for name in dense_names}
        with tf.GradientTape() as tape:
            tape.watch([rows, dense])
            output = network.forward(dense, rows, batch, tf.constant([1, 1]))
            loss = output.loss_sum / (length * batch_size)
        gradients = tape.gradient(loss, {**rows, **dense})
        for name, ids in words.items():
            table = variables[name]
            gradients[name] = tf.math.unsorted_segment_sum(
                tf.reshape(gradients[name], [-1, table.shape[1]]),
                tf.reshape(ids, [-1]),
                table.shape[0],
            )
        apply_gradients(gradients)
        return loss

    return step


def build_adam(variables: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Return a function that applies gradients by the fused Adam operator."""
    import tensorflow as tf

    first_moments = {}
    second_moments = {}
    for name, variable in variables.items():
        first_moments[name] = tf.Variable(tf.zeros_like(variable))
        second_moments[name] = tf.Variable(tf.zeros_like(variable))
    beta1_power = tf.Variable(0.9)
    beta2_power = tf.Variable(0.999)

    def apply_gradients(gradients: dict[str, Any]) -> None:
        for name, variable in variables.items():
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first_moments[name].handle,
                v=second_moments[name].handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=1e-3,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                grad=gradients[name],
            )
        beta1_power.assign(beta1_power * 0.9)
        beta2_power.assign(beta2_power * 0.999)

    return apply_gradients


def build_gemms(dtype: str) -> TimeSteps:
    """Return a function that times products of the step's sizes, shape by shape.

    Its seconds are those of one GFLOP.
    """
    import tensorflow as tf

    operands = []
    for m, k, n in GEMM_SHAPES:
        a = tf.cast(tf.random.normal((m, k)), dtype)
        b = tf.cast(tf.random.normal((k, n)), dtype)
        operands.append((a, b, 2 * m * k * n / 1e9))

    def time_gemms(count: int) -> Times:
        times = []
        for a, b, gflop in operands:
            for wall_s, cpu_s in time_calls(lambda a=a, b=b: tf.matmul(a, b), count):
                times.append((wall_s / gflop, cpu_s / gflop))
        return times

    return time_gemms


def time_calls(call: Callable[[], Any], count: int) -> Times:
    """Return the times of calls that wait for their results."""
    times = []
    for _ in range(count):
        start_s = time.perf_counter()
        cpu_start_s = time.process_time()
        call()
        wall_s = time.perf_counter() - start_s
        times.append((wall_s, time.process_time() - cpu_start_s))
    return times


class TorchPeer:
    """The process of benchmarks/torch_peer.py."""

    def __init__(self, python: str, npz: Path) -> None:
        script = Path(__file__).with_name("torch_peer.py")
        self._process = subprocess.Popen(
            [python, str(script), str(npz)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(script.parents[1])},
        )

    def ask(self, dtype: str, count: int) -> dict[str, Any]:
        """Let it make steps, and return its answer."""
        self._process.stdin.write(f"step {dtype} {count}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            status = self._process.wait()
            raise RuntimeError(f"the PyTorch process ended with exit code {status}")
        return json.loads(answer)

    def time_steps(self, dtype: str, count: int) -> Times:
        """Return the times of a number of steps."""
        answer = self.ask(dtype, count)
        return list(zip(answer["wall_s"], answer["cpu_s"], strict=True))

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def build_peers(arrays: dict[str, np.ndarray], torch_peer: TorchPeer | None) -> Peers:
    """Return all peers of all dtypes."""
    peers = Peers()
    for dtype in FLAGS.dtypes:
        for kernel in encoder_table.list_encoders(FLAGS.unit_type):
            add_kernel(peers, kernel, dtype, arrays)
        if torch_peer:
            add_pytorch(peers, torch_peer, dtype)
        peers.time_steps[PeerKey("gemm", dtype)] = build_gemms(dtype)
    return peers


def add_kernel(
    peers: Peers, kernel: str, dtype: str, arrays: dict[str, np.ndarray]
) -> None:
    """Add a kernel without the project's own operators, and with them if they work."""
    from rnn_scaling.models.extension import operators

    config = ModelConfig(
        unit_type=FLAGS.unit_type, encoder_type=kernel, compute_dtype=dtype
    )
    has_own = kernel != "dynamic_rnn"
    show_progress(f"building {kernel} {dtype}")
    stock = f"{kernel}, stock" if has_own else kernel
    with mock.patch.object(operators, "is_usable", lambda dtype: False):
        peers.add(stock, dtype, build_tensorflow_step(config, arrays))
    if has_own and operators.is_usable(dtype):
        own = f"{kernel}, own operators ({operators.name_for(dtype)})"
        show_progress(f"building {own} {dtype}")
        peers.add(own, dtype, build_tensorflow_step(config, arrays))


def add_pytorch(peers: Peers, torch_peer: TorchPeer, dtype: str) -> None:
    """Add PyTorch, if it can train with the dtype."""
    key = PeerKey("PyTorch", dtype)
    show_progress(f"building PyTorch {dtype}")
    answer = torch_peer.ask(dtype, 1)
    peers.first_losses[key] = answer.get("loss", np.nan)
    if "error" in answer:
        show_progress(f"PyTorch {dtype} is n/a: {answer['error']}")
    else:
        peers.time_steps[key] = lambda count: torch_peer.time_steps(dtype, count)


def run_rounds(peers: Peers) -> dict[PeerKey, Times]:
    """Return the times of all peers in all rounds."""
    times: dict[PeerKey, Times] = {key: [] for key in peers.time_steps}
    for time_steps in peers.time_steps.values():
        time_steps(FLAGS.warmup)
    for number in range(FLAGS.rounds):
        for key, time_steps in peers.time_steps.items():
            times[key] += time_steps(FLAGS.steps)
        show_progress(f"round {number + 1} of {FLAGS.rounds}")
    return times


def make_table(
    times: dict[PeerKey, Times], first_losses: dict[PeerKey, float], gflop: float
) -> str:
    """Return the Markdown table. All but the wall time is of the median CPU time."""
    rows = []
    medians_s = {key: np.median(each, axis=0) for key, each in times.items()}
    for key in times:
        if key.peer == "gemm":
            continue
        wall_s, cpu_s = medians_s[key]
        ratios = []
        for baseline in ("dynamic_rnn", "PyTorch"):
            other = medians_s.get(PeerKey(baseline, key.dtype))
            ratios.append("n/a" if other is None else f"{other[1] / cpu_s:.2f}")
        gemm_rate = compute_gemm_rate(times[PeerKey("gemm", key.dtype)])
        rows.append(
            [
                *key,
                f"{wall_s * 1e3:.1f}",
                f"{cpu_s * 1e3:.1f}",
                f"{np.min(times[key], axis=0)[1] * 1e3:.1f}",
                f"{count_words() / cpu_s:.0f}",
                f"{gflop / cpu_s:.0f}",
                f"{gflop / cpu_s / gemm_rate:.0%}",
                *ratios,
                f"{first_losses[key]:.4f}",
            ]
        )
    for key in first_losses.keys() - times.keys():
        rows.append([*key, *["n/a"] * (len(HEAD) - len(key))])
    return format_table(HEAD, rows)


def compute_gemm_rate(times: Times) -> float:
    """Return the median GFLOP/s, in CPU time, of the shape that runs fastest."""
    cpu_s = np.reshape(
        [cpu for _, cpu in times], (FLAGS.rounds, len(GEMM_SHAPES), FLAGS.steps)
    )
    return float(1 / np.median(cpu_s, axis=(0, 2)).min())


def count_words() -> int:
    """Return the words of a step."""
    return 2 * FLAGS.batch_size * FLAGS.length


def show_progress(text: str) -> None:
    """Print a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> None:
    """Time all peers and print the table."""
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {argv[1:]}")
    if FLAGS.torch_python and FLAGS.unit_type != "lstm":
        raise app.UsageError(
            "--torch_python trains only an LSTM, got "
            f"--unit_type={FLAGS.unit_type}; leave out --torch_python"
        )
    # TensorFlow counts the cores when it is imported. PyTorch's process inherits them.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(FLAGS.inter_op)
    config = ModelConfig(unit_type=FLAGS.unit_type)
    arrays = make_arrays(config, FLAGS.batch_size, FLAGS.length)
    with start_torch_peer(config, arrays) as torch_peer:
        peers = build_peers(arrays, torch_peer)
        times = run_rounds(peers)
    gflop = step_gflop(config, FLAGS.batch_size, FLAGS.length)
    print(
        f"Preset small, {FLAGS.unit_type}, batch {FLAGS.batch_size}, "
        f"{FLAGS.length} + {FLAGS.length} words: {gflop:.1f} GFLOP and "
        f"{count_words()} words per step;"
    )
    print(
        f"1 core, inter_op={FLAGS.inter_op}, TensorFlow {tf.__version__}, "
        f"{FLAGS.rounds} rounds of {FLAGS.steps} steps."
    )
    for dtype in FLAGS.dtypes:
        rate = compute_gemm_rate(times[PeerKey("gemm", dtype)])
        print(f"GEMM rate {dtype}: {rate:.0f} GFLOP/s.")
    print("\n" + make_table(times, peers.first_losses, gflop))


@contextlib.contextmanager
def start_torch_peer(
    config: ModelConfig, arrays: dict[str, np.ndarray]
) -> Iterator[TorchPeer | None]:
    """Yield PyTorch's process, or None without --torch_python; end it."""
    if not FLAGS.torch_python:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        npz = Path(folder) / "network.npz"
        np.savez(npz, forget_bias=config.forget_bias, **arrays)
        torch_peer = TorchPeer(FLAGS.torch_python, npz)
        try:
            yield torch_peer
        finally:
            torch_peer.close()


if __name__ == "__main__":
    app.run(main)
