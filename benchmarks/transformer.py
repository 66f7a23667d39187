"""Time a training step of the Transformer by this suite and by PyTorch.

    python -m benchmarks.transformer --torch_python=/path/to/python
        [--rounds=8] [--threads=1] [--dtype=float32]

The network is preset transformer_base with a small batch, and PyTorch's nn.Transformer.
The peers take turns on the same cores. Each peer is a process with one thread per core,
and is stopped while another one works, so that other load affects all of them. All
start from the same weights and see the same batch in every step. The loss of the first
step is printed for each and shows that they compute the same (with --dropout above 0 it
differs): forward, backward and fused Adam.

The peer `gemm` makes only the step's large products, so its rate is what the machine
can reach. A ratio is the first peer's time / the other's in the same round, as in
benchmarks/resnet50.py. Above 1, the first peer is slower.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.peers import (
    Peer,
    TimeSteps,
    add_round_options,
    format_ratios,
    measure_peers,
    serve,
    set_tensorflow_threads,
    time_each,
)
from rnn_scaling.system.files.markdown import format_table

if TYPE_CHECKING:
    from benchmarks.own_step import OwnStep

# With these, glibc keeps freed arrays and does not fault their pages in again.
STEADY_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
}
# Options that a process of this program receives.
PEER_OPTIONS = (
    "threads",
    "batch_size",
    "length",
    "dtype",
    "dropout",
    "label_smoothing",
)
# Products of a step: columns of the first matrix, columns of the second one.
GEMM_SHAPES = (
    (512, 1536),  # attention: queries, keys and values
    (512, 2048),  # feed-forward: inner layer
    (2048, 512),  # feed-forward: outer layer
    (512, 32_000),  # projection to the vocabulary
)
HEAD = (
    "peer",
    "step (ms)",
    "CPU (ms)",
    "words/s",
    "GFLOP/s",
    "first of it (wall)",
    "(CPU)",
    "first loss",
)


def main() -> None:
    parser = build_parser()
    options = parser.parse_args()
    if options.peer:
        serve_peer(options)
        return
    if "torch" in options.peers and not options.torch_python:
        parser.error(
            "the peer torch needs --torch_python=PATH, a Python with PyTorch; "
            "./run.sh setup-frameworks torch makes one"
        )
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.environ.update(STEADY_MEMORY)
    peers, times = measure_peers(
        options, lambda name, npz: make_peer_command(name, options, npz)
    )
    print(
        format_table(HEAD, make_table_rows(options, peers, times), padded=False), end=""
    )


def build_parser() -> argparse.ArgumentParser:
    """Return the options of the benchmark and of the processes that it starts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers",
        type=lambda words: words.split(","),
        default=["ours", "torch", "gemm"],
        help="peers to time, separated by commas: ours, torch or gemm",
    )
    parser.add_argument(
        "--torch_python",
        default="",
        help="path of a Python with PyTorch, for the peer torch",
    )
    add_round_options(parser, steps=2, warmup=2)
    add_network_options(parser)
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--npz", type=Path, help=argparse.SUPPRESS)
    return parser


def add_network_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that change what a step computes, and its threads."""
    parser.add_argument(
        "--batch_size", type=int, default=16, help="number of sentence pairs per step"
    )
    parser.add_argument(
        "--length", type=int, default=32, help="number of words in each sentence"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="number of cores, and of threads of each peer",
    )
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "bfloat16"),
        help="data type of the matrix products",
    )
    parser.add_argument(
        "--dropout",
        type=float,
        default=0.0,
        help="share of the elements that dropout sets to zero",
    )
    parser.add_argument(
        "--label_smoothing",
        type=float,
        default=0.1,
        help="share of each target that is spread over all words",
    )


def make_peer_command(name: str, options: argparse.Namespace, npz: Path) -> list[str]:
    """Return the command line that starts a peer.

    Args:
      npz: File of weights and batch.
    """
    if name == "torch":
        return [
            options.torch_python,
            str(Path(__file__).with_name("transformer_torch.py")),
            str(npz),
            str(options.threads),
            options.dtype,
            str(options.dropout),
            str(options.label_smoothing),
        ]
    words = [
        sys.executable,
        "-m",
        "benchmarks.transformer",
        f"--peer={name}",
        f"--npz={npz}",
    ]
    for option in PEER_OPTIONS:
        words.append(f"--{option}={getattr(options, option)}")
    return words


def serve_peer(options: argparse.Namespace) -> None:
    """Be the process of one peer."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.peer == "gemm":
        first_loss, time_steps = start_gemm(options)
    else:
        first_loss, time_steps = start_own(options)
    serve(first_loss, time_steps)


def start_own(options: argparse.Namespace) -> tuple[float, TimeSteps]:
    """Build this suite's step, store weights and batch for PyTorch, make a first step.

    Returns:
      The loss of the first step, and what times further steps.
    """
    from benchmarks.own_step import OwnStep

    settings = {
        "preset": "transformer_base",
        "src_max_len": options.length,
        "tgt_max_len": options.length,
        "batch_size": options.batch_size,
        "learning_rate": 1e-4,
        "dropout": options.dropout,
        "label_smoothing": options.label_smoothing,
        "compute_dtype": options.dtype,
    }
    step = OwnStep(settings, options.threads)
    store_arrays(options.npz, step)
    return step.run(), time_each(step.run)


def store_arrays(npz: Path, step: OwnStep) -> None:
    """Store the weights by name, the positions, and the ids [B, T] of the batch."""
    from rnn_scaling.models.attention import multi_head

    workload = step.build_workload()
    batch = step.read_batch(workload)
    config = step.config
    positions = multi_head.encode_positions(
        config.data.src_max_len, config.model.num_units
    )
    np.savez(
        npz,
        positions=positions.numpy(),
        num_heads=config.model.num_heads,
        source=batch.source.numpy(),
        target_input=batch.target_input.numpy(),
        target_output=batch.target_output.numpy(),
        **step.first_values(workload.variables),
    )


def start_gemm(options: argparse.Namespace) -> tuple[float, TimeSteps]:
    """Build products of the step's sizes.

    Returns:
      The GFLOP of all products, and what times them.
    """
    import tensorflow as tf

    set_tensorflow_threads(options.threads)
    num_rows = options.batch_size * options.length
    operands = []
    gflop = 0.0
    for inner, columns in GEMM_SHAPES:
        left = tf.cast(tf.random.normal((num_rows, inner)), options.dtype)
        right = tf.cast(tf.random.normal((inner, columns)), options.dtype)
        operands.append((left, right))
        gflop += 2e-9 * num_rows * inner * columns

    def step() -> float:
        means = []
        for left, right in operands:
            means.append(tf.reduce_mean(tf.cast((left @ right)[0], tf.float32)))
        return float(tf.add_n(means))

    return gflop, time_each(step)


def make_table_rows(
    options: argparse.Namespace, peers: list[Peer], times: np.ndarray
) -> list[list]:
    """Return the row of each peer.

    Args:
      times: Seconds per step [round, peer, (wall, CPU)].
    """
    rows = []
    for index, peer in enumerate(peers):
        wall_s, cpu_s = np.median(times[:, index], axis=0)
        if peer.name == "gemm":
            # It reports its GFLOP in place of a loss.
            gflop = peer.first_loss
            words_per_s = ""
            first_loss = ""
        else:
            gflop = step_gflop(options)
            words_per_s = f"{2 * options.batch_size * options.length / wall_s:.0f}"
            first_loss = f"{peer.first_loss:.5f}"
        cells = [
            peer.name,
            f"{1e3 * wall_s:.0f}",
            f"{1e3 * cpu_s:.0f}",
            words_per_s,
            f"{gflop / wall_s:.0f}",
            *format_ratios(times, index),
            first_loss,
        ]
        rows.append(cells)
    return rows


def step_gflop(options: argparse.Namespace) -> float:
    """Return the GFLOP of a step's matrix products, forward and backward."""
    from rnn_scaling.models.config import TRANSFORMER_BASE
    from rnn_scaling.models.workloads import WORKLOADS

    sizes = {
        **TRANSFORMER_BASE,
        "src_max_len": options.length,
        "tgt_max_len": options.length,
    }
    return options.batch_size * WORKLOADS["transformer"].flops_per_sample(sizes) / 1e9


if __name__ == "__main__":
    main()
