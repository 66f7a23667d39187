"""Compare the ways to sum gradients over workers of this machine, interleaved.

    ./run.sh setup-horovod
    python -m benchmarks.horovod    2 and 3 workers, both gradients
    python -m benchmarks.horovod --workers=2 --gradients=small
        --modes=collective_all_reduce,replicated

Each mode has its own processes, with the engine and the update of the trainer. In every
round each mode makes a few steps while the processes of the other modes are stopped, so
other load affects all modes and they do not affect each other. Worker i has core i,
modulo the number of cores. A mode of one process has all these cores and one device per
worker.

The gradients are those of preset small (8.2 million parameters, half of them in
embeddings, batch 32), or 80MB: four dense variables of 20 MB whose gradients are one
multiplication, so that a step is exchange and update only.

A step takes as long as its slowest worker. Ratios are geometric means over the rounds
with 95 % confidence intervals, relative to the last mode.
"""

from __future__ import annotations

import dataclasses
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
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from absl import app, flags

from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import choose_pool_sizes
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

# A process must be ready within this time.
START_LIMIT_S = 180
NUM_STEPS_BEFORE = 3
NUM_DENSE_VARIABLES = 4
DENSE_VALUES = 5_000_000

Step = Callable[[], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """What one process does.

    Attributes:
      mode: Update mode.
      gradients: "small" or "80MB".
      index: Number of the worker.
      addresses: HOST:PORT of all workers; empty if the mode has one process.
      cores: Cores of the process.
      num_devices: Devices of the process.
    """

    mode: str
    gradients: str
    index: int
    addresses: Sequence[str]
    cores: Sequence[int]
    num_devices: int


class Cluster:
    """The processes of one mode, which are stopped unless they make steps."""

    def __init__(self, mode: str, gradients: str, num_workers: int) -> None:
        self.mode = mode
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the processes
        self._processes = []
        for task in list_tasks(mode, gradients, num_workers):
            self._processes.append(self._start(task))
        self._read_times()
        self._send(signal.SIGSTOP)

    def measure(self, count: int) -> tuple[float, float]:
        """Make steps.

        Returns:
          The mean wall seconds of a step of the slowest worker, and the mean CPU seconds
          of a step of all workers.
        """
        self._send(signal.SIGCONT)
        for process in self._processes:
            process.stdin.write(f"{count}\n")
            process.stdin.flush()
        wall_s, cpu_s = zip(*self._read_times())
        self._send(signal.SIGSTOP)
        return max(wall_s) / count, sum(cpu_s) / count

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._stderr.close()

    def _start(self, task: Task) -> subprocess.Popen[str]:
        # A stopped process must end when this one ends.
        words = [sys.executable, parent_death_launcher.__file__, str(os.getpid())]
        words += [sys.executable, "-m", "benchmarks.horovod"]
        words.append(f"--worker={json.dumps(dataclasses.asdict(task))}")
        return subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )

    def _send(self, number: int) -> None:
        for process in self._processes:
            process.send_signal(number)

    def _read_times(self) -> list[tuple[float, float]]:
        """Return wall and CPU seconds of each process."""
        times = []
        for process in self._processes:
            line = process.stdout.readline()
            if not line:
                self._stderr.seek(0)
                last = self._stderr.read()[-2000:]
                raise RuntimeError(f"a process of {self.mode} ended: {last}")
            wall_s, cpu_s = map(float, line.split())
            times.append((wall_s, cpu_s))
        return times


def list_tasks(mode: str, gradients: str, num_workers: int) -> Iterator[Task]:
    """Yield the tasks of the processes of a mode."""
    cores = sorted(os.sched_getaffinity(0))
    if not registry.find_mode(mode).is_distributed:
        yield Task(mode, gradients, 0, [], cores[:num_workers], num_workers)
        return
    addresses = find_free_addresses(num_workers)
    for index in range(num_workers):
        core = cores[index % len(cores)]
        yield Task(mode, gradients, index, addresses, [core], 1)


def find_free_addresses(count: int) -> list[str]:
    """Return HOST:PORT of different ports of this machine on which nobody listens."""
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [f"127.0.0.1:{probe.getsockname()[1]}" for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def run_worker(task: Task) -> None:
    """Make steps whenever stdin has their number; print their wall and CPU seconds."""
    # TensorFlow counts the cores when it is imported.
    os.sched_setaffinity(0, task.cores)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # A stopped process is not lost.
    os.environ["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "3600"
    step = build_step(task)
    for count in itertools.chain([NUM_STEPS_BEFORE], map(int, sys.stdin)):
        wall_s = time.perf_counter()
        cpu_s = time.process_time()
        for _ in range(count):
            step()
        wall_s = time.perf_counter() - wall_s
        print(wall_s, time.process_time() - cpu_s, flush=True)


def build_step(task: Task) -> Step:
    """Return the step of a process."""
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.cluster import RankPosition
    from rnn_scaling.training.engines.local import Request

    config = configs.resolve(
        {
            "variable_update": task.mode,
            "num_devices": task.num_devices,
            "num_workers": max(1, len(task.addresses)),
            "encoder_type": "cudnn_lstm",
        },
        num_gpus=0,
        num_cores=len(task.cores),
    )
    position = None
    if task.addresses:
        hosts = {"worker": task.addresses}
        position = RankPosition("worker", task.index, hosts, timeout_s=START_LIMIT_S)
    engine_name = registry.VARIABLE_UPDATES[task.mode].engine
    engine = registry.load(registry.ENGINES, engine_name).start(
        Request(
            "cpu",
            task.num_devices,
            *choose_pool_sizes(config, len(task.cores)),
            position=position,
        )
    )
    if task.gradients == "small":
        return benchmark.build(config, engine)
    return build_bare_step(config, engine)


def build_bare_step(config: configs.RunConfig, engine: object) -> Step:
    """Return a step that only updates dense variables, by half of their values."""
    import tensorflow as tf

    from rnn_scaling.models.workload import VariableSpec
    from rnn_scaling.training import optimizers
    from rnn_scaling.training.replica import Setup, UpdateRule

    specs = []
    values = {}
    for number in range(NUM_DENSE_VARIABLES):
        spec = VariableSpec(f"dense_{number}", (DENSE_VALUES,), "dense")
        specs.append(spec)
        values[spec.name] = np.ones(spec.shape, np.float32)
    mode = registry.load(registry.VARIABLE_UPDATES, config.update.variable_update)
    rule = UpdateRule(optimizers.build("sgd", 1e-6))
    update = mode.build(Setup(specs, values, engine, config.update, rule))

    def make_gradients(index: int) -> dict[str, tf.Tensor]:
        return {
            name: weight * 0.5 for name, weight in update.read_weights(index).items()
        }

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        update.apply(update.run(make_gradients))
        return tf.constant(0)

    return step


def compare(gradients: str, num_workers: int) -> list[list[str]]:
    """Return the row of each mode."""
    times = measure_rounds(gradients, num_workers)
    ratios = times / times[:, -1:]
    rows = []
    for index, mode in enumerate(FLAGS.modes):
        wall_ms, cpu_ms = 1e3 * np.median(times[:, index], axis=0)
        rows.append(
            [
                gradients,
                str(num_workers),
                mode,
                f"{wall_ms:.0f}",
                format_ratio(ratios[:, index, 0]),
                f"{cpu_ms:.0f}",
                format_ratio(ratios[:, index, 1]),
            ]
        )
    return rows


def measure_rounds(gradients: str, num_workers: int) -> np.ndarray:
    """Return wall and CPU seconds of a step, [round, mode, 2]."""
    clusters: list[Cluster] = []
    rounds = []
    try:
        for mode in FLAGS.modes:
            clusters.append(Cluster(mode, gradients, num_workers))
        for number in range(FLAGS.rounds):
            order = clusters if number % 2 else clusters[::-1]
            measured = {cluster.mode: cluster.measure(FLAGS.steps) for cluster in order}
            rounds.append([measured[mode] for mode in FLAGS.modes])
            print(
                f"{gradients}, {num_workers} workers: "
                f"round {number + 1} of {FLAGS.rounds}",
                file=sys.stderr,
            )
    finally:
        for cluster in clusters:
            cluster.close()
    return np.array(rounds)


def format_ratio(ratios: np.ndarray) -> str:
    """Return the geometric mean over the rounds and its 95 % interval."""
    logs = np.log(ratios)
    quantile = t_quantile(0.975, len(logs) - 1)
    half_width = quantile * logs.std(ddof=1) / math.sqrt(len(logs))
    low, middle, high = np.exp(logs.mean() + np.array([-half_width, 0, half_width]))
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(argv: Sequence[str]) -> None:
    """Print a row for each mode, number of workers and gradients."""
    if FLAGS.worker:
        run_worker(Task(**json.loads(FLAGS.worker)))
        return
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
    print(f"| {' | '.join(head)} |")
    print("| --- " * len(head) + "|")
    for gradients in FLAGS.gradients:
        for num_workers in FLAGS.workers:
            for cells in compare(gradients, int(num_workers)):
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    app.run(main)
