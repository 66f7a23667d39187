"""The processes of a benchmark whose peers make training steps in turns.

Each peer is stopped while another one works. A peer calls `serve`; it may run under
another Python, which needs only NumPy.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rnn_scaling.system.processes import parent_death_launcher

# Makes a number of steps; returns wall seconds and CPU seconds, each per step.
TimeSteps = Callable[[int], tuple[list[float], list[float]]]


class Peer:
    """A process that makes steps when asked and is stopped in between."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        """Start the process and stop it after its first step.

        Args:
          log: File for its stderr.
        """
        self.name = name
        self._log = log
        launcher = [sys.executable, parent_death_launcher.__file__, str(os.getpid())]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                [*launcher, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=environment,
            )
        self.first_loss = self._read_answer()["loss"]
        self._process.send_signal(signal.SIGSTOP)

    def measure(self, count: int) -> np.ndarray:
        """Make `count` steps.

        Returns:
          Wall seconds and CPU seconds per step.
        """
        self._process.send_signal(signal.SIGCONT)
        print(count, file=self._process.stdin, flush=True)
        answer = self._read_answer()
        self._process.send_signal(signal.SIGSTOP)
        return np.array([np.mean(answer["wall_s"]), np.mean(answer["cpu_s"])])

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _read_answer(self) -> dict:
        """Return the next line of JSON that the process prints."""
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        end_of_log = self._log.read_text()[-2000:]
        sys.exit(f"error: the process of {self.name} ended: {end_of_log}")


def measure_peers(
    options: argparse.Namespace, command: Callable[[str, Path], list[str]]
) -> tuple[list[Peer], np.ndarray]:
    """Start the peers of --peers and time them in turns.

    Args:
      options: --peers, --warmup, --rounds and --steps are used.
      command: Returns the command line of a peer, given its name and the path of the
        file in which the first peer stores weights and batch for the others.

    Returns:
      The peers, which have ended, and the seconds per step
      [round, peer, (wall, CPU)].
    """
    peers: list[Peer] = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name in options.peers:
                words = command(name, Path(folder, "network.npz"))
                peers.append(Peer(name, words, Path(folder, name)))
                print(f"{name} is ready", file=sys.stderr)
            for peer in peers:
                peer.measure(options.warmup)
            rounds = []
            for number in range(options.rounds):
                rounds.append(_measure_round(peers, options.steps, number % 2 == 0))
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        finally:
            for peer in peers:
                peer.close()
    return peers, np.array(rounds)


def _measure_round(
    peers: list[Peer], num_steps: int, is_backwards: bool
) -> list[np.ndarray]:
    """Return wall and CPU seconds per step of each peer, in the order of `peers`.

    Args:
      is_backwards: Whether the last peer is measured first.
    """
    order = list(peers)
    if is_backwards:
        order.reverse()
    seconds = {peer.name: peer.measure(num_steps) for peer in order}
    return [seconds[peer.name] for peer in peers]


def serve(first_loss: float, time_steps: TimeSteps) -> None:
    """Be a peer: print the first loss, then the times of the steps of each request.

    A request is a line of stdin with a number of steps. The end of stdin ends the loop.
    """
    print(json.dumps({"loss": first_loss}), flush=True)
    for line in sys.stdin:
        wall_s, cpu_s = time_steps(int(line))
        print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s}), flush=True)


def time_each(step: Callable[[], object]) -> TimeSteps:
    """Return a function that times each call of `step`, which waits for its result."""

    def time_steps(count: int) -> tuple[list[float], list[float]]:
        wall_s = []
        cpu_s = []
        for _ in range(count):
            wall_start = time.perf_counter()
            cpu_start = time.process_time()
            step()
            wall_s.append(time.perf_counter() - wall_start)
            cpu_s.append(time.process_time() - cpu_start)
        return wall_s, cpu_s

    return time_steps


def set_tensorflow_threads(num_cores: int) -> None:
    """Set TensorFlow's thread pools as the trainer does for one device."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(num_cores)
    tf.config.threading.set_inter_op_parallelism_threads(2 if num_cores > 1 else 1)


def format_ratios(times: np.ndarray, index: int) -> list[str]:
    """Return the first peer's time / a peer's time: wall and CPU.

    Args:
      times: Seconds per step [round, peer, (wall, CPU)].
      index: Number of the peer.
    """
    from rnn_scaling.analysis.confidence import compute_paired_ratio

    if index == 0:
        return ["1", "1"]
    texts = []
    for kind in (0, 1):
        interval = compute_paired_ratio(
            list(times[:, index, kind]), list(times[:, 0, kind])
        )
        text = f"{interval.value:.2f}"
        if interval.ends is not None:
            low, high = interval.ends
            text += f" ({low:.2f} to {high:.2f})"
        texts.append(text)
    return texts


def add_round_options(
    parser: argparse.ArgumentParser, *, steps: int, warmup: int
) -> None:
    """Add --rounds, --steps and --warmup with these defaults."""
    parser.add_argument(
        "--rounds",
        type=int,
        default=8,
        help="number of rounds; each one times every peer",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=steps,
        help="number of steps of each peer in a round",
    )
    parser.add_argument(
        "--warmup",
        type=int,
        default=warmup,
        help="number of steps of each peer before the first round",
    )
