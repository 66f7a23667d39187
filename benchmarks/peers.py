"""Peers of a benchmark: processes that make training steps in turns, each stopped while another one works.

A peer calls `serve`; it may run under another Python, which needs NumPy only.
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

Run = Callable[[int], tuple[list[float], list[float]]]
"""Makes so many steps -> wall and CPU seconds of each."""


class Peer:
    """A process that makes steps when asked and is stopped in between."""

    def __init__(self, name: str, command: list[str], log: Path) -> None:
        """log: the file for its stderr."""
        self.name, self._log = name, log
        words = [
            sys.executable,
            parent_death_launcher.__file__,
            str(os.getpid()),
            *command,
        ]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
        with log.open("w") as stderr:
            self._process = subprocess.Popen(
                words, stderr=stderr, env=environment, **pipes
            )
        self.first_loss = self._answer()["loss"]
        self._process.send_signal(signal.SIGSTOP)

    def measure(self, count: int) -> np.ndarray:
        """(wall, CPU) seconds of a step, means of `count`."""
        self._process.send_signal(signal.SIGCONT)
        print(count, file=self._process.stdin, flush=True)
        answer = self._answer()
        self._process.send_signal(signal.SIGSTOP)
        return np.array([np.mean(answer["wall_s"]), np.mean(answer["cpu_s"])])

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict:
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        sys.exit(
            f"error: the process of {self.name} ended: {self._log.read_text()[-2000:]}"
        )


def measured(
    options: argparse.Namespace, command: Callable[[str, Path], list[str]]
) -> tuple[list[Peer], np.ndarray]:
    """The peers of --peers after --rounds in turns, and their times: [round, peer, (wall, CPU)] seconds of a step.

    Args:
      command: (name of a peer, file of weights and batch) -> what starts its process.
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
                seconds = {
                    peer.name: peer.measure(options.steps)
                    for peer in (peers if number % 2 else peers[::-1])
                }
                rounds.append([seconds[peer.name] for peer in peers])
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
        finally:
            for peer in peers:
                peer.close()
    return peers, np.array(rounds)


def serve(loss: float, run: Run) -> None:
    """A peer's side: tells its first loss, then the times of as many steps as each line asks for."""
    print(json.dumps({"loss": loss}), flush=True)
    for line in sys.stdin:
        wall_s, cpu_s = run(int(line))
        print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s}), flush=True)


def timed(step: Callable[[], object]) -> Run:
    """A `Run` of single steps, which end before they return."""

    def run(count: int) -> tuple[list[float], list[float]]:
        wall_s, cpu_s = [], []
        for _ in range(count):
            wall, cpu = time.perf_counter(), time.process_time()
            step()
            wall_s.append(time.perf_counter() - wall)
            cpu_s.append(time.process_time() - cpu)
        return wall_s, cpu_s

    return run


def start_tensorflow(threads: int) -> None:
    """Sets TensorFlow's pools as the trainer does for one device with so many cores."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(2 if threads > 1 else 1)


def ratio_text(of_peer: np.ndarray, of_first: np.ndarray) -> str:
    """What the first peer's step is of another's."""
    from rnn_scaling.analysis.confidence import paired_ratio

    interval = paired_ratio(list(of_peer), list(of_first))
    ends = (
        ""
        if interval.ends is None
        else f" ({interval.ends[0]:.2f} to {interval.ends[1]:.2f})"
    )
    return f"{interval.value:.2f}{ends}"
