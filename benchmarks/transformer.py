"""Times a training step of the Transformer by this suite and by PyTorch's nn.Transformer, in turns on the same cores.

    python -m benchmarks.transformer --torch_python=/path/to/python [--rounds=8] [--threads=1] [--dtype=float32]

The network is preset transformer_base with a small batch. Each peer is a process with one thread per core, and is
stopped while another one works, so that other load affects all of them. All start from the same weights and see the
same batch in every step; the loss of the first step is printed for each and shows that they compute the same (with
--dropout above 0 it differs): forward, backward and fused Adam. The peer `gemm` makes the step's large products alone,
so its rate is what the machine gives. A ratio is the first peer's time / the other's in the same round, as in
benchmarks/resnet50.py. Above 1, the first peer is slower.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import numpy as np

from benchmarks.peers import (
    Peer,
    Run,
    measured,
    ratio_text,
    serve,
    start_tensorflow,
    timed,
)

STEADY_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
}


def ours(options: argparse.Namespace) -> tuple[float, Run]:
    """The suite's own step; the first of all peers writes weights and batch for PyTorch's."""
    from rnn_scaling.config import registry
    from rnn_scaling.config import run_config as configs
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines.local import Request

    sizes = {
        "src_max_len": options.length,
        "tgt_max_len": options.length,
        "batch_size": options.batch_size,
    }
    given = {
        "data_source": "constant",
        "variable_update": "independent",
        "learning_rate": 1e-4,
        **sizes,
    }
    given |= {
        "dropout": options.dropout,
        "label_smoothing": options.label_smoothing,
        "compute_dtype": options.dtype,
    }
    given |= {"preset": "transformer_base", "num_devices": 1}
    config = configs.resolve(given, num_gpus=0, num_cores=options.threads)
    mode = registry.VARIABLE_UPDATES[config.update.variable_update]
    request = Request(
        "cpu", 1, 2 if options.threads > 1 else 1, options.threads, config.model.xla
    )
    engine = registry.load(registry.ENGINES, mode.engine).start(request)
    step = benchmark.build(config, engine)
    write_arrays(options.npz, config, engine)
    return step().loss, timed(lambda: step().loss)


def write_arrays(npz: Path, config: object, engine: object) -> None:
    """Weights by name and the batch, ids [B, T]."""
    import tensorflow as tf

    from rnn_scaling.config import registry
    from rnn_scaling.models import workloads
    from rnn_scaling.models.attention import multi_head
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
    ids = {
        name: getattr(batch, name).numpy()
        for name in ("source", "target_input", "target_output")
    }
    positions = multi_head.encode_positions(
        config.data.src_max_len, config.model.num_units
    ).numpy()
    values = make_first_values(workload.variables, config.training.seed)
    np.savez(
        npz, positions=positions, num_heads=config.model.num_heads, **ids, **values
    )


def gemm(options: argparse.Namespace) -> tuple[float, Run]:
    """Products of the step's sizes; their GFLOP are in the place of a loss."""
    import tensorflow as tf

    start_tensorflow(options.threads)
    rows = options.batch_size * options.length
    shapes = [
        (rows, 512, 1536),
        (rows, 512, 2048),
        (rows, 2048, 512),
        (rows, 512, 32_000),
    ]
    operands = [
        (tf.random.normal((m, k)), tf.random.normal((k, n))) for m, k, n in shapes
    ]
    operands = [
        (tf.cast(a, options.dtype), tf.cast(b, options.dtype)) for a, b in operands
    ]

    def step() -> float:
        return float(
            tf.add_n(
                [tf.reduce_mean(tf.cast((a @ b)[0], tf.float32)) for a, b in operands]
            )
        )

    return sum(2e-9 * m * k * n for m, k, n in shapes), timed(step)


def command(name: str, options: argparse.Namespace, npz: Path) -> list[str]:
    """What starts a peer's process."""
    if name == "torch":
        script = Path(__file__).with_name("transformer_torch.py")
        words = [
            npz,
            options.threads,
            options.dtype,
            options.dropout,
            options.label_smoothing,
        ]
        return [options.torch_python, str(script), *map(str, words)]
    own = [
        f"--{n}={getattr(options, n)}"
        for n in (
            "threads",
            "batch_size",
            "length",
            "dtype",
            "dropout",
            "label_smoothing",
        )
    ]
    return [
        sys.executable,
        "-m",
        "benchmarks.transformer",
        f"--peer={name}",
        f"--npz={npz}",
        *own,
    ]


def compare(options: argparse.Namespace) -> list[str]:
    """A line a peer."""
    return table(
        options, *measured(options, lambda name, npz: command(name, options, npz))
    )


def table(
    options: argparse.Namespace, peers: list[Peer], times: np.ndarray
) -> list[str]:
    """times: [round, peer, (wall, CPU)] seconds."""
    gflop = step_gflop(options)
    head = (
        "peer",
        "step (ms)",
        "CPU (ms)",
        "words/s",
        "GFLOP/s",
        "first of it (wall)",
        "(CPU)",
        "first loss",
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for index, peer in enumerate(peers):
        wall_s, cpu_s = np.median(times[:, index], axis=0)
        ratios = [
            ratio_text(times[:, index, kind], times[:, 0, kind]) if index else "1"
            for kind in (0, 1)
        ]
        is_gemm = peer.name == "gemm"  # its first loss is its GFLOP
        of_peer = peer.first_loss if is_gemm else gflop
        words = (
            "" if is_gemm else f"{2 * options.batch_size * options.length / wall_s:.0f}"
        )
        loss = "" if is_gemm else f"{peer.first_loss:.5f}"
        cells = [
            peer.name,
            f"{1e3 * wall_s:.0f}",
            f"{1e3 * cpu_s:.0f}",
            words,
            f"{of_peer / wall_s:.0f}",
            *ratios,
            loss,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def step_gflop(options: argparse.Namespace) -> float:
    """Of the products of a step, forward and backward."""
    from rnn_scaling.models.config import TRANSFORMER_BASE
    from rnn_scaling.models.workloads import WORKLOADS

    sizes = {
        **TRANSFORMER_BASE,
        "src_max_len": options.length,
        "tgt_max_len": options.length,
    }
    return options.batch_size * WORKLOADS["transformer"].flops_per_sample(sizes) / 1e9


def work(options: argparse.Namespace) -> None:
    """One peer's process: its first loss, then the times of as many steps as it is asked for."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    loss, run = gemm(options) if options.peer == "gemm" else ours(options)
    serve(loss, run)


def parser() -> argparse.ArgumentParser:
    """Options of the benchmark and of its own processes."""
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
    parser.add_argument(
        "--rounds",
        type=int,
        default=8,
        help="number of rounds; each one times every peer",
    )
    parser.add_argument(
        "--steps", type=int, default=2, help="number of steps of each peer in a round"
    )
    parser.add_argument(
        "--warmup",
        type=int,
        default=2,
        help="number of steps of each peer before the first round",
    )
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
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("--npz", type=Path, help=argparse.SUPPRESS)
    return parser


def main() -> None:
    options = parser().parse_args()
    if options.peer:
        work(options)
        return
    if "torch" in options.peers and not options.torch_python:
        parser().error(
            "the peer torch needs --torch_python=PATH, a Python with PyTorch; "
            "./run.sh setup-frameworks torch makes one"
        )
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.environ.update(STEADY_MEMORY)
    print("\n".join(compare(options)))


if __name__ == "__main__":
    main()
