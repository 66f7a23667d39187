"""Training steps of one network with each CPU kernel and with PyTorch, interleaved in one run, one thread on one core.

    python -m benchmarks.kernels --torch_python=/path/to/python [--rounds=8] [--dtypes=float32,bfloat16]
    python -m benchmarks.kernels --unit_type=gru                     kernels of another cell; PyTorch's is an LSTM

Kernels that can use the project's own operators are timed without ("stock") and with them, by the best instruction set
of the processor or by that of RNN_SCALING_OPERATORS. PyTorch has no bfloat16 LSTM on some processors: n/a.
Every round times a few steps of each peer and the machine's GEMM rate, so that other load affects all of them. A step
is embedding, encoder, decoder, loss, gradients and fused Adam, from the same weights and batch. The loss of the first
step must be equal for all peers. The table goes to stdout. Rates and ratios use the CPU time of the step's process,
which equals wall time on a quiet machine.

PyTorch returns its large arrays to the system at each step, and glibc faults their pages in again. To avoid that:

    MALLOC_TRIM_THRESHOLD_=4000000000 MALLOC_MMAP_THRESHOLD_=4000000000 python -m benchmarks.kernels ...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from absl import app, flags

from rnn_scaling.models import kernels
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.kernels import UNIT_TYPES

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

GEMM_SHAPES = ((1024, 1024, 1024), (960, 256, 8000), (512, 960, 1024))
Times = list[tuple[float, float]]
"""(wall seconds, CPU seconds of the process) of each step."""
TimeSteps = Callable[[int], Times]


def step_gflop(config: ModelConfig, batch_size: int, length: int) -> float:
    """Multiplications and additions of the matrix products of one step, forward and backward, in GFLOP."""
    from rnn_scaling.models.workloads import WORKLOADS

    lengths = {"src_max_len": length, "tgt_max_len": length}
    return (
        batch_size
        * WORKLOADS["nmt"].flops_per_sample({**vars(config), **lengths})
        / 1e9
    )


def make_arrays(
    config: ModelConfig, batch_size: int, length: int
) -> dict[str, np.ndarray]:
    """Weights by name and one batch, for every peer."""
    from rnn_scaling.models import seq2seq
    from rnn_scaling.models.workload import make_initial_value

    arrays = {
        spec.name: make_initial_value(spec, seed=1)
        for spec in seq2seq.build(config, "CPU").variables
    }
    generator = np.random.default_rng(1)
    for name in ("source", "target_input", "target_output"):
        arrays[name] = generator.integers(
            0, config.tgt_vocab_size, (length, batch_size)
        )
    return arrays


def tensorflow_step(
    config: ModelConfig, arrays: dict[str, np.ndarray]
) -> Callable[[], Any]:
    """One training step of `models` with raw fused Adam; returns the mean loss a word."""
    import tensorflow as tf

    from rnn_scaling.models import seq2seq
    from rnn_scaling.models.batch import Batch

    network = seq2seq.build(config, "CPU")
    specs = seq2seq.build(config, "CPU").variables
    variables = {spec.name: tf.Variable(arrays[spec.name]) for spec in specs}
    slots = {
        name: [tf.Variable(tf.zeros_like(v)) for _ in "mv"]
        for name, v in variables.items()
    }
    powers = [tf.Variable(0.9), tf.Variable(0.999)]
    length, batch_size = arrays["source"].shape
    lengths = tf.fill([batch_size], length)
    source, target_input, target_output = (
        tf.constant(arrays[name])
        for name in ("source", "target_input", "target_output")
    )
    batch = Batch(source, lengths, target_input, target_output, lengths)
    words = network.lookups(batch)

    @tf.function
    def step() -> tf.Tensor:
        rows = {name: tf.gather(variables[name], ids) for name, ids in words.items()}
        dense = {
            spec.name: variables[spec.name].read_value()
            for spec in specs
            if spec.kind == "dense"
        }
        with tf.GradientTape() as tape:
            tape.watch([rows, dense])
            loss = network.forward(dense, rows, batch, tf.constant([1, 1])).loss_sum / (
                length * batch_size
            )
        gradients = tape.gradient(loss, {**rows, **dense})
        for name, ids in words.items():
            flat = tf.reshape(gradients[name], [-1, variables[name].shape[1]])
            gradients[name] = tf.math.unsorted_segment_sum(
                flat, tf.reshape(ids, [-1]), variables[name].shape[0]
            )
        for name, variable in variables.items():
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=slots[name][0].handle,
                v=slots[name][1].handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=1e-3,
                beta1=0.9,
                beta2=0.999,
                epsilon=1e-7,
                grad=gradients[name],
            )
        powers[0].assign(powers[0] * 0.9)
        powers[1].assign(powers[1] * 0.999)
        return loss

    return step


def gemm_times(dtype: str) -> TimeSteps:
    """Times products of the step's sizes, shape by shape; the seconds are those of one GFLOP."""
    import tensorflow as tf

    operands = [
        (
            tf.cast(tf.random.normal((m, k)), dtype),
            tf.cast(tf.random.normal((k, n)), dtype),
            2 * m * k * n / 1e9,
        )
        for m, k, n in GEMM_SHAPES
    ]

    def measure(count: int) -> Times:
        times = []
        for a, b, gflop in operands:
            for wall, cpu in time_calls(lambda a=a, b=b: tf.matmul(a, b), count):
                times.append((wall / gflop, cpu / gflop))
        return times

    return measure


def timed(step: Callable[[], Any]) -> tuple[TimeSteps, float]:
    """A function that times `count` steps, and the loss of the first step, which is made here."""
    first_loss = float(step())
    return lambda count: time_calls(lambda: float(step()), count), first_loss


def time_calls(call: Callable[[], Any], count: int) -> Times:
    """Calls `count` times; `call` waits for its result."""
    times = []
    for _ in range(count):
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
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
        self._process.stdin.write(f"step {dtype} {count}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(
                f"the PyTorch process ended with exit code {self._process.wait()}"
            )
        return json.loads(answer)

    def time_steps(self, dtype: str, count: int) -> Times:
        answer = self.ask(dtype, count)
        return list(zip(answer["wall_s"], answer["cpu_s"], strict=True))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()


def make_peers(
    arrays: dict[str, np.ndarray], torch_peer: TorchPeer | None
) -> tuple[dict, dict]:
    """(peer, dtype) -> function that times steps, and -> loss of the first step."""
    from rnn_scaling.models.extension import operators

    peers: dict[tuple[str, str], TimeSteps] = {}
    losses: dict[tuple[str, str], float] = {}
    for dtype in FLAGS.dtypes:
        for kernel in kernels.list_kernels(FLAGS.unit_type):
            config = ModelConfig(
                unit_type=FLAGS.unit_type, encoder_type=kernel, compute_dtype=dtype
            )
            _progress(f"building {kernel} {dtype}")
            stock = kernel if kernel == "dynamic_rnn" else f"{kernel}, stock"
            with mock.patch.object(operators, "is_usable", lambda dtype: False):
                peers[stock, dtype], losses[stock, dtype] = timed(
                    tensorflow_step(config, arrays)
                )
            own = f"{kernel}, own operators ({operators.name_for(dtype)})"
            if kernel != "dynamic_rnn" and operators.is_usable(dtype):
                _progress(f"building {own} {dtype}")
                peers[own, dtype], losses[own, dtype] = timed(
                    tensorflow_step(config, arrays)
                )
        if torch_peer:
            _progress(f"building PyTorch {dtype}")
            answer = torch_peer.ask(dtype, 1)
            losses["PyTorch", dtype] = answer.get("loss", np.nan)
            if "error" in answer:
                _progress(f"PyTorch {dtype} is n/a: {answer['error']}")
            else:
                peers["PyTorch", dtype] = lambda count, dtype=dtype: (
                    torch_peer.time_steps(dtype, count)
                )
        peers["gemm", dtype] = gemm_times(dtype)
    return peers, losses


def run_rounds(peers: dict[tuple[str, str], TimeSteps]) -> dict[tuple[str, str], Times]:
    """Every peer's values of all rounds."""
    values: dict[tuple[str, str], Times] = {key: [] for key in peers}
    for measure in peers.values():
        measure(FLAGS.warmup)
    for number in range(FLAGS.rounds):
        for key, measure in peers.items():
            values[key] += measure(FLAGS.steps)
        _progress(f"round {number + 1} of {FLAGS.rounds}")
    return values


def table(
    values: dict[tuple[str, str], Times], losses: dict, gflop: float, words: int
) -> str:
    """The Markdown table; everything but the wall time is of the median CPU time."""
    header = (
        "peer",
        "dtype",
        "wall (ms, median)",
        "CPU (ms, median)",
        "CPU (ms, least)",
        "words/s",
        "GFLOP/s",
    )
    header += ("share of the GEMM rate", "x dynamic_rnn", "x PyTorch", "first loss")
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    median_s = {key: np.median(times, axis=0) for key, times in values.items()}
    for (peer, dtype), times in values.items():
        if peer == "gemm":
            continue
        wall, cpu = median_s[peer, dtype]
        others = (
            median_s.get((baseline, dtype)) for baseline in ("dynamic_rnn", "PyTorch")
        )
        ratios = [
            "n/a" if other is None else f"{other[1] / cpu:.2f}" for other in others
        ]
        share = gflop / cpu / gemm_rate(values["gemm", dtype])
        cells = [
            peer,
            dtype,
            f"{wall * 1e3:.1f}",
            f"{cpu * 1e3:.1f}",
            f"{np.min(times, axis=0)[1] * 1e3:.1f}",
        ]
        cells += [
            f"{words / cpu:.0f}",
            f"{gflop / cpu:.0f}",
            f"{share:.0%}",
            *ratios,
            f"{losses[peer, dtype]:.4f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    for key in losses.keys() - values.keys():
        lines.append(f"| {' | '.join([*key, *['n/a'] * (len(header) - 2)])} |")
    return "\n".join(lines)


def gemm_rate(times: Times) -> float:
    """The median GFLOP/s, in CPU time, of the shape that runs fastest."""
    cpu_s = np.reshape(
        [cpu for _, cpu in times], (FLAGS.rounds, len(GEMM_SHAPES), FLAGS.steps)
    )
    return float(1 / np.median(cpu_s, axis=(0, 2)).min())


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unknown arguments: {argv[1:]}")
    if FLAGS.torch_python and FLAGS.unit_type != "lstm":
        raise app.UsageError(
            "--torch_python trains only an LSTM, got "
            f"--unit_type={FLAGS.unit_type}; leave out --torch_python"
        )
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(
        0, {core}
    )  # before TensorFlow counts the cores; PyTorch's process inherits it
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(FLAGS.inter_op)
    config = ModelConfig(unit_type=FLAGS.unit_type)
    arrays = make_arrays(config, FLAGS.batch_size, FLAGS.length)
    torch_peer = None
    with tempfile.TemporaryDirectory() as folder:
        if FLAGS.torch_python:
            npz = Path(folder) / "network.npz"
            np.savez(npz, forget_bias=config.forget_bias, **arrays)
            torch_peer = TorchPeer(FLAGS.torch_python, npz)
        try:
            peers, losses = make_peers(arrays, torch_peer)
            values = run_rounds(peers)
        finally:
            if torch_peer:
                torch_peer.close()
    gflop = step_gflop(config, FLAGS.batch_size, FLAGS.length)
    words = 2 * FLAGS.batch_size * FLAGS.length
    sizes = f"batch {FLAGS.batch_size}, {FLAGS.length} + {FLAGS.length} words"
    print(
        f"Preset small, {FLAGS.unit_type}, {sizes}: {gflop:.1f} GFLOP and {words} words a step;"
    )
    rounds = f"{FLAGS.rounds} rounds of {FLAGS.steps} steps"
    print(f"1 core, inter_op={FLAGS.inter_op}, TensorFlow {tf.__version__}, {rounds}.")
    for dtype in FLAGS.dtypes:
        print(f"GEMM rate {dtype}: {gemm_rate(values['gemm', dtype]):.0f} GFLOP/s.")
    print("\n" + table(values, losses, gflop, words))


if __name__ == "__main__":
    app.run(main)
