"""Compares the ways to sum gradients over workers of this machine, in turns: TensorFlow's, Horovod's and others.

    ./run.sh setup-horovod
    python -m benchmarks.horovod                                          2 and 3 workers, both gradients
    python -m benchmarks.horovod --workers=2 --gradients=small --modes=collective_all_reduce,replicated

Each mode has its own processes, with the engine and the update of the trainer. In every round each mode makes a few
steps while the processes of the other modes are stopped, so other load affects all modes and they do not affect each
other. Worker i has core i, modulo the number of cores. A mode of one process has all these cores and one device per
worker. The gradients are those of preset small (8.2 million parameters, half of them in embeddings, batch 32), or
80MB: four dense variables of 20 MB whose gradients are one multiplication, so that a step is exchange and update only.
A step takes as long as its slowest worker. Ratios are geometric means over the rounds with 95 % confidence intervals,
relative to the last mode.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import numpy as np
from absl import app, flags

from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import pool_sizes
from rnn_scaling.system.processes import parent_death_launcher

FLAGS = flags.FLAGS
flags.DEFINE_list(
    "modes",
    ["collective_all_reduce", "horovod"],
    "update modes, separated by commas; the ratios are relative to the last one",
)
flags.DEFINE_list("workers", ["2", "3"], "numbers of workers, separated by commas")
flags.DEFINE_list(
    "gradients",
    ["small", "80MB"],
    "gradients to exchange: small (as in --preset=small) or 80MB (four dense tensors)",
)
flags.DEFINE_integer(
    "rounds", 12, "number of rounds; each one times every mode", lower_bound=2
)
flags.DEFINE_integer(
    "steps", 8, "number of steps of each mode in a round", lower_bound=1
)
flags.DEFINE_string(
    "worker",
    "",
    "task of one process, as JSON; the benchmark sets it for its own processes",
)

STARTING_S = 180  # within which a process must answer that it is ready
Step = Callable[[], object]


class Cluster:
    """The processes of one mode; they make steps when asked and are stopped in between."""

    def __init__(self, mode: str, gradients: str, num_workers: int) -> None:
        self.mode = mode
        is_one = not registry.find_mode(mode).is_distributed
        cores = sorted(os.sched_getaffinity(0))
        addresses = [] if is_one else free_addresses(num_workers)
        self._processes, self._said = [], tempfile.TemporaryFile("w+")  # noqa: SIM115, lives as long as they do
        for index in range(1 if is_one else num_workers):
            bound = cores[:num_workers] if is_one else [cores[index % len(cores)]]
            task = {
                "mode": mode,
                "gradients": gradients,
                "index": index,
                "addresses": addresses,
                "cores": bound,
            }
            task["num_devices"] = num_workers if is_one else 1
            own = [
                sys.executable,
                "-m",
                "benchmarks.horovod",
                f"--worker={json.dumps(task)}",
            ]
            words = [
                sys.executable,
                parent_death_launcher.__file__,
                str(os.getpid()),
                *own,
            ]  # a process that rests dies with this one
            self._processes.append(
                subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=self._said,
                    text=True,
                )
            )
        self._answers()
        self.stop()

    def measure(self, count: int) -> tuple[float, float]:
        """Seconds of a step by the clock, its slowest worker's, and of CPU, of all workers: means of `count`."""
        self._signal(signal.SIGCONT)
        for process in self._processes:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
        wall_s, cpu_s = zip(*self._answers())
        self.stop()
        return max(wall_s) / count, sum(cpu_s) / count

    def stop(self) -> None:
        """Lets the processes rest."""
        self._signal(signal.SIGSTOP)

    def close(self) -> None:
        """Ends the processes."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _signal(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)

    def _answers(self) -> list[tuple[float, float]]:
        lines = [process.stdout.readline() for process in self._processes]
        if not all(lines):
            self._said.seek(0)
            raise RuntimeError(
                f"a process of {self.mode} ended: {self._said.read()[-2000:]}"
            )
        return [tuple(map(float, line.split())) for line in lines]


def free_addresses(count: int) -> list[str]:
    """HOST:PORT, as many different ones of this machine on which nobody listens."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def work(task: dict) -> None:
    """One process of a mode: says when it is ready, then how long each number of steps took that it is asked for."""
    os.sched_setaffinity(0, task["cores"])  # before TensorFlow counts them
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = (
        "3600"  # a process that rests is not lost
    )
    step = make_step(task)
    for count in itertools.chain([3], map(int, sys.stdin)):
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            step()
        print(time.perf_counter() - wall, time.process_time() - cpu, flush=True)


def make_step(task: dict) -> Step:
    """The step of one process, under the update mode that its task names."""
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.cluster import Place
    from rnn_scaling.training.engines.local import Request

    mode, num_devices, num_workers = (
        task["mode"],
        task["num_devices"],
        max(1, len(task["addresses"])),
    )
    given = {
        "variable_update": mode,
        "num_devices": num_devices,
        "num_workers": num_workers,
    }
    config = configs.resolve(
        {**given, "encoder_type": "cudnn_lstm"},
        num_gpus=0,
        num_cores=len(task["cores"]),
    )
    addresses = task["addresses"]
    place = (
        Place("worker", task["index"], {"worker": addresses}, timeout_s=STARTING_S)
        if addresses
        else None
    )
    engine = registry.load(
        registry.ENGINES, registry.VARIABLE_UPDATES[mode].engine
    ).start(
        Request(
            "cpu", num_devices, *pool_sizes(config, len(task["cores"])), place=place
        )
    )
    return (
        benchmark.build(config, engine)
        if task["gradients"] == "small"
        else bare_step(config, engine)
    )


def bare_step(config: configs.RunConfig, engine: object) -> Step:
    """Four dense variables of 20 MB, updated with half their values summed over the towers."""
    import tensorflow as tf

    from rnn_scaling.models.workload import VariableSpec
    from rnn_scaling.training import optimizers
    from rnn_scaling.training.replica import Setup, UpdateRule

    specs = [VariableSpec(f"dense_{i}", (5_000_000,), "dense") for i in range(4)]
    values = {spec.name: np.ones(spec.shape, np.float32) for spec in specs}
    mode = registry.load(registry.VARIABLE_UPDATES, config.update.variable_update)
    rule = UpdateRule(optimizers.build("sgd", 1e-6))
    update = mode.build(Setup(specs, values, engine, config.update, rule))

    def tower(index: int) -> dict[str, tf.Tensor]:
        return {name: weight * 0.5 for name, weight in update.weights(index).items()}

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        update.apply(update.run(tower))
        return tf.constant(0)

    return step


def compare(gradients: str, num_workers: int) -> list[str]:
    """A line a mode: its step, and what that is of the last mode's."""
    clusters: list[Cluster] = []
    try:
        for mode in FLAGS.modes:
            clusters.append(Cluster(mode, gradients, num_workers))
        rounds = []
        for number in range(FLAGS.rounds):
            order = clusters if number % 2 else clusters[::-1]
            measured = {cluster.mode: cluster.measure(FLAGS.steps) for cluster in order}
            rounds.append([measured[mode] for mode in FLAGS.modes])
            print(
                f"{gradients}, {num_workers} workers: round {number + 1} of {FLAGS.rounds}",
                file=sys.stderr,
            )
    finally:
        for cluster in clusters:
            cluster.close()
    times = np.array(rounds)  # [round, mode, (wall, CPU)]
    ratios = times / times[:, -1:]
    lines = []
    for index, mode in enumerate(FLAGS.modes):
        wall_ms, cpu_ms = 1e3 * np.median(times[:, index], axis=0)
        cells = [
            gradients,
            num_workers,
            mode,
            f"{wall_ms:.0f}",
            ratio_text(ratios[:, index, 0]),
        ]
        lines.append(
            "| "
            + " | ".join(
                map(str, [*cells, f"{cpu_ms:.0f}", ratio_text(ratios[:, index, 1])])
            )
            + " |"
        )
    return lines


def ratio_text(ratios: np.ndarray) -> str:
    """The geometric mean over the rounds and its 95 % interval."""
    logs = np.log(ratios)
    half = t_quantile(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    low, middle, high = np.exp(logs.mean() + np.array([-half, 0, half]))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(argv: Sequence[str]) -> None:
    if FLAGS.worker:
        return work(json.loads(FLAGS.worker))
    if len(argv) > 1:
        raise app.UsageError(f"unknown argument {argv[1]}")
    base = FLAGS.modes[-1]
    head = (
        "gradients",
        "workers",
        "mode",
        "step (ms)",
        f"x {base}",
        "CPU of all (ms a step)",
        f"CPU x {base}",
    )
    print(f"| {' | '.join(head)} |\n{'| --- ' * len(head)}|")
    for gradients in FLAGS.gradients:
        for num_workers in FLAGS.workers:
            print("\n".join(compare(gradients, int(num_workers))), flush=True)


if __name__ == "__main__":
    app.run(main)
