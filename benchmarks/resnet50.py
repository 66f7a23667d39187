"""Time a training step of ResNet-50 by this suite, by Keras' fit and by PyTorch.

    python -m benchmarks.resnet50 --torch_python=/path/to/python
        [--rounds=8] [--peers=ours,keras,torch] [--threads=2]

The peers take turns on the same cores. Each peer is a process with one thread per core,
and is stopped while another one works, so that other load affects all of them. All
start from the same weights and see the same batch in every step. The loss of the first
step is printed for each and shows that they compute the same: forward, backward and SGD
in float32, with batch statistics.

Peers: ours, ours_nchw, ours_xla; keras (fit, compiled as by default), keras_no_xla;
torch, torch_channels_last, torch_compiled. A ratio is the first peer's time / the
other's in the same round: a geometric mean over the rounds with its 95 % confidence
interval. Above 1, the first peer is slower.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

LEARNING_RATE = 0.01
# Peers of this suite, and the options in which they differ.
OWN_OPTIONS: dict[str, dict[str, Any]] = {
    "ours": {},
    "ours_nchw": {"data_format": "NCHW"},
    "ours_xla": {"xla": True},
}
# Peers of Keras, and their argument `jit_compile`.
KERAS_JIT_COMPILE: dict[str, Any] = {"keras": "auto", "keras_no_xla": False}
# Peers of PyTorch, and the argument FORM of resnet50_torch.py.
TORCH_FORMS = {
    "torch": "contiguous",
    "torch_channels_last": "channels_last",
    "torch_compiled": "compiled",
}
HEAD = (
    "peer",
    "step (ms)",
    "CPU (ms)",
    "images/s",
    "first of it (wall)",
    "(CPU)",
    "first loss",
)


def main() -> None:
    options = parse_options()
    if options.peer:
        serve_peer(options)
        return
    check_peers(options)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    peers, times = measure_peers(
        options, lambda name, npz: make_peer_command(name, options, npz)
    )
    rows = make_table_rows(options.batch_size, peers, times)
    print(format_table(HEAD, rows, padded=False), end="")


def parse_options() -> argparse.Namespace:
    """Return the options of the benchmark and of the processes that it starts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers",
        type=lambda words: words.split(","),
        default=["ours", "keras", "keras_no_xla"],
        help="peers to time, separated by commas; "
        "the first one is a peer of this suite",
    )
    parser.add_argument(
        "--torch_python",
        default="",
        help="path of a Python with PyTorch, for the peers of PyTorch",
    )
    add_round_options(parser, steps=3, warmup=2)
    parser.add_argument(
        "--threads", type=int, default=2, help="number of cores of each peer"
    )
    parser.add_argument(
        "--batch_size", type=int, default=8, help="number of images per step"
    )
    parser.add_argument("--peer", default="", help=argparse.SUPPRESS)
    parser.add_argument("--npz", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def check_peers(options: argparse.Namespace) -> None:
    """Exit if --peers contains an unknown peer or one that cannot be started."""
    unknown = set(options.peers) - {*OWN_OPTIONS, *KERAS_JIT_COMPILE, *TORCH_FORMS}
    if unknown or options.peers[0] not in OWN_OPTIONS:
        sys.exit(
            f"error: --peers={','.join(options.peers)} must begin with a peer "
            "of this suite and contain only known peers; --help lists them"
        )
    if not options.torch_python and TORCH_FORMS.keys() & set(options.peers):
        sys.exit(
            "error: peers of PyTorch need --torch_python=PATH, a Python that has torch"
        )


def make_peer_command(name: str, options: argparse.Namespace, npz: Path) -> list[str]:
    """Return the command line that starts a peer.

    Args:
      npz: File of weights and batch.
    """
    if name in TORCH_FORMS:
        return [
            options.torch_python,
            str(Path(__file__).with_name("resnet50_torch.py")),
            str(npz),
            str(options.threads),
            TORCH_FORMS[name],
        ]
    return [
        sys.executable,
        "-m",
        "benchmarks.resnet50",
        f"--peer={name}",
        f"--npz={npz}",
        f"--threads={options.threads}",
        f"--batch_size={options.batch_size}",
    ]


def serve_peer(options: argparse.Namespace) -> None:
    """Be the process of one peer."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.peer in KERAS_JIT_COMPILE:
        set_tensorflow_threads(options.threads)
        first_loss, time_steps = start_keras(options)
    else:
        first_loss, time_steps = start_own(options)
    serve(first_loss, time_steps)


def start_own(options: argparse.Namespace) -> tuple[float, TimeSteps]:
    """Build this suite's step and make the first one.

    The first of all peers stores weights and batch for the others.

    Returns:
      The loss of the first step, and what times further steps.
    """
    from benchmarks.own_step import OwnStep

    settings = {
        "model": "resnet50",
        "batch_size": options.batch_size,
        "optimizer": "sgd",
        "learning_rate": LEARNING_RATE,
        **OWN_OPTIONS[options.peer],
    }
    step = OwnStep(settings, options.threads)
    if not options.npz.exists():
        store_arrays(options.npz, step)
    return step.run(), time_each(step.run)


def store_arrays(npz: Path, step: OwnStep) -> None:
    """Store the weights by Keras' names, and the batch with images [B, H, W, 3]."""
    workload = step.build_workload()
    batch = step.read_batch(workload)
    images = batch.images.numpy()
    if step.config.model.data_format == "NCHW":
        images = images.transpose(0, 2, 3, 1)
    values = step.first_values((*workload.variables, *workload.moving))
    np.savez(npz, images=images, labels=batch.labels.numpy(), **values)


def start_keras(options: argparse.Namespace) -> tuple[float, TimeSteps]:
    """Build Keras' model and make the first step by its `fit`.

    Returns:
      The loss of the first step, and what times further steps.
    """
    import keras
    import tensorflow as tf

    with np.load(options.npz) as stored:
        arrays = dict(stored)
    images = arrays.pop("images")
    labels = arrays.pop("labels")
    model = keras.applications.ResNet50(weights=None, classifier_activation=None)
    for variable in model.variables:
        variable.assign(arrays[variable.path])
    model.compile(
        keras.optimizers.SGD(LEARNING_RATE),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=KERAS_JIT_COMPILE[options.peer],
    )
    with tf.device("CPU:0"):
        batch = (tf.constant(images), tf.constant(labels))
        batches = tf.data.Dataset.from_tensors(batch).cache().repeat()

    def fit(num_steps: int) -> float:
        fitted = model.fit(batches, steps_per_epoch=num_steps, epochs=1, verbose=0)
        return fitted.history["loss"][0]

    def time_steps(count: int) -> tuple[list[float], list[float]]:
        wall_start = time.perf_counter()
        cpu_start = time.process_time()
        fit(count)
        wall_s = time.perf_counter() - wall_start
        cpu_s = time.process_time() - cpu_start
        return [wall_s / count], [cpu_s / count]

    return fit(1), time_steps


def make_table_rows(
    batch_size: int, peers: list[Peer], times: np.ndarray
) -> list[list]:
    """Return the row of each peer.

    Args:
      times: Seconds per step [round, peer, (wall, CPU)].
    """
    rows = []
    for index, peer in enumerate(peers):
        wall_s, cpu_s = np.median(times[:, index], axis=0)
        cells = [
            peer.name,
            f"{1e3 * wall_s:.0f}",
            f"{1e3 * cpu_s:.0f}",
            f"{batch_size / wall_s:.1f}",
            *format_ratios(times, index),
            f"{peer.first_loss:.5f}",
        ]
        rows.append(cells)
    return rows


if __name__ == "__main__":
    main()
