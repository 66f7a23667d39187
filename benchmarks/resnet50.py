"""Times a training step of ResNet-50 by this suite, by Keras' fit and by PyTorch, in turns on the same cores.

    python -m benchmarks.resnet50 --torch_python=/path/to/python [--rounds=8] [--peers=ours,keras,torch] [--threads=2]

Each peer is a process with one thread per core, and is stopped while another one works, so that other load affects all
of them. All start from the same weights and see the same batch in every step. The loss of the first step is printed for
each and shows that they compute the same: forward, backward and SGD in float32, with batch statistics.

Peers: ours, ours_nchw, ours_xla; keras (fit, as it compiles by default), keras_no_xla; torch, torch_channels_last,
torch_compiled. A ratio is the first peer's time / the other's in the same round: a geometric mean over the rounds with
its 95 % confidence interval. Above 1, the first peer is slower.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.peers import Run, measured, ratio_text, serve, start_tensorflow, timed

LEARNING_RATE = 0.01
OURS = {"ours": {}, "ours_nchw": {"data_format": "NCHW"}, "ours_xla": {"xla": True}}
KERAS = {"keras": "auto", "keras_no_xla": False}
TORCH = {
    "torch": "contiguous",
    "torch_channels_last": "channels_last",
    "torch_compiled": "compiled",
}


def command(name: str, options: argparse.Namespace, npz: Path) -> list[str]:
    """What starts a peer's process."""
    if name in TORCH:
        script = Path(__file__).with_name("resnet50_torch.py")
        return [
            options.torch_python,
            str(script),
            str(npz),
            str(options.threads),
            TORCH[name],
        ]
    own = [
        sys.executable,
        "-m",
        "benchmarks.resnet50",
        f"--peer={name}",
        f"--npz={npz}",
    ]
    return [*own, f"--threads={options.threads}", f"--batch_size={options.batch_size}"]


def ours(name: str, options: argparse.Namespace) -> tuple[float, Run]:
    """The suite's own step; the first of all peers writes weights and batch for the others."""
    from rnn_scaling.config import registry
    from rnn_scaling.config import run_config as configs
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines.local import Request

    given = {
        "model": "resnet50",
        "batch_size": options.batch_size,
        "data_source": "constant",
        "num_devices": 1,
    }
    given |= {
        "optimizer": "sgd",
        "learning_rate": LEARNING_RATE,
        "variable_update": "independent",
        **OURS[name],
    }
    config = configs.resolve(given, num_gpus=0, num_cores=options.threads)
    mode = registry.VARIABLE_UPDATES[config.update.variable_update]
    request = Request(
        "cpu", 1, 2 if options.threads > 1 else 1, options.threads, config.model.xla
    )
    engine = registry.load(registry.ENGINES, mode.engine).start(request)
    step = benchmark.build(config, engine)
    if not options.npz.exists():
        write_arrays(options.npz, config, engine, step)
    return step().loss, timed(lambda: step().loss)


def write_arrays(npz: Path, config: object, engine: object, step: object) -> None:
    """Weights by Keras' names and the batch, images [B, H, W, 3]."""
    import tensorflow as tf

    from rnn_scaling.config import registry
    from rnn_scaling.models import workloads
    from rnn_scaling.models.workload import make_first_values
    from rnn_scaling.training import benchmark

    workload = workloads.load(config.model.model).build(
        config.model, engine.device_type
    )
    feed = benchmark.build_feed(config, engine, workload)
    [batch] = (
        registry.load(registry.DATA_SOURCES, "constant")
        .build(feed)
        .next_batches(tf.constant(0, tf.int64))
    )
    images = batch.images.numpy()
    if config.model.data_format == "NCHW":
        images = images.transpose(0, 2, 3, 1)
    values = make_first_values(
        (*workload.variables, *workload.moving), config.training.seed
    )
    np.savez(npz, images=images, labels=batch.labels.numpy(), **values)


def keras_fit(name: str, options: argparse.Namespace) -> tuple[float, Run]:
    """Keras' fit on the same model."""
    import keras
    import tensorflow as tf

    with np.load(options.npz) as stored:
        arrays = dict(stored)
    images, labels = arrays.pop("images"), arrays.pop("labels")
    model = keras.applications.ResNet50(weights=None, classifier_activation=None)
    for variable in model.variables:
        variable.assign(arrays[variable.path])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(LEARNING_RATE), loss, jit_compile=KERAS[name])
    with tf.device("CPU:0"):
        batches = (
            tf.data.Dataset.from_tensors((tf.constant(images), tf.constant(labels)))
            .cache()
            .repeat()
        )

    def fit(steps: int) -> float:
        return model.fit(batches, steps_per_epoch=steps, epochs=1, verbose=0).history[
            "loss"
        ][0]

    def run(count: int) -> tuple[list[float], list[float]]:
        wall, cpu = time.perf_counter(), time.process_time()
        fit(count)
        return [(time.perf_counter() - wall) / count], [
            (time.process_time() - cpu) / count
        ]

    return fit(1), run


def work(options: argparse.Namespace) -> None:
    """One peer's process: its first loss, then the times of as many steps as it is asked for."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if options.peer in KERAS:
        start_tensorflow(options.threads)
    loss, run = (ours if options.peer in OURS else keras_fit)(options.peer, options)
    serve(loss, run)


def compare(options: argparse.Namespace) -> list[str]:
    """A line a peer."""
    peers, times = measured(options, lambda name, npz: command(name, options, npz))
    lines = [
        "| peer | step (ms) | CPU (ms) | images/s | first of it (wall) | (CPU) | first loss |",
        "|---" * 7 + "|",
    ]
    for index, peer in enumerate(peers):
        wall_s, cpu_s = np.median(times[:, index], axis=0)
        ratios = [
            ratio_text(times[:, index, kind], times[:, 0, kind]) if index else "1"
            for kind in (0, 1)
        ]
        cells = [
            peer.name,
            f"{1e3 * wall_s:.0f}",
            f"{1e3 * cpu_s:.0f}",
            f"{options.batch_size / wall_s:.1f}",
        ]
        lines.append(
            "| " + " | ".join([*cells, *ratios, f"{peer.first_loss:.5f}"]) + " |"
        )
    return lines


def parser() -> argparse.ArgumentParser:
    """Options of the benchmark and of its own processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers",
        type=lambda words: words.split(","),
        default=["ours", "keras", "keras_no_xla"],
        help="peers to time, separated by commas; the first one is a peer of this suite",
    )
    parser.add_argument(
        "--torch_python",
        default="",
        help="path of a Python with PyTorch, for the peers of PyTorch",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=8,
        help="number of rounds; each one times every peer",
    )
    parser.add_argument(
        "--steps", type=int, default=3, help="number of steps of each peer in a round"
    )
    parser.add_argument(
        "--warmup",
        type=int,
        default=2,
        help="number of steps of each peer before the first round",
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="number of cores of each peer"
    )
    parser.add_argument(
        "--batch_size", type=int, default=8, help="number of images per step"
    )
    parser.add_argument("--peer", default="", help=argparse.SUPPRESS)
    parser.add_argument("--npz", type=Path, help=argparse.SUPPRESS)
    return parser


def main() -> int:
    options = parser().parse_args()
    if options.peer:
        work(options)
        return 0
    unknown = set(options.peers) - {*OURS, *KERAS, *TORCH}
    if unknown or options.peers[0] not in OURS:
        sys.exit(
            f"error: --peers={','.join(options.peers)} must begin with a peer "
            "of this suite and contain only known peers; --help lists them"
        )
    if not options.torch_python and TORCH.keys() & set(options.peers):
        sys.exit(
            "error: peers of PyTorch need --torch_python=PATH, a Python that has torch"
        )
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    print("\n".join(compare(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
