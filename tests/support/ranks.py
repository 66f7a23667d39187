"""A real cluster on this machine: one trainer per rank, started by environment variables."""

from __future__ import annotations

import functools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import forked


class Ranks:
    """The ranks of one run; none is left when the block ends.

    with Ranks(words, folder, 2, prepare={1: (slow, 0.05)}) as ranks:
        done = ranks.end()
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        size: int,
        prepare: Mapping[int, tuple[Any, ...]] | None = None,
        rewrites: bool = False,
    ) -> None:
        """Describe the cluster; entering the block starts it.

        Args:
          words: Command-line arguments of every rank.
          folder: Folder of the ranks' outputs.
          size: Number of ranks.
          prepare: Rank -> a module-level function and its arguments, called in the
            rank's process before the trainer starts.
          rewrites: Whether TensorFlow rewrites graphs, as it does for users; building
            a step then takes twice as long.
        """
        self._words = list(words)
        self._folder = folder
        self._size = size
        self._prepare = prepare or {}
        self._rewrites = rewrites
        self.trainers: list[forked.Trainer] = []

    def __enter__(self) -> Ranks:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        for rank in range(self._size):
            env = {
                **os.environ,
                "RNN_SCALING_RANK": str(rank),
                "RNN_SCALING_SIZE": str(self._size),
                "RNN_SCALING_MEETING": address,
            }
            env.pop("TF_CPP_MIN_LOG_LEVEL", None)
            folder = self._folder / f"rank_{rank}"
            folder.mkdir(parents=True, exist_ok=True)
            prepare = (_prepare, self._rewrites, *self._prepare.get(rank, ()))
            trainer = forked.Trainer(self._words, folder, env, prepare=prepare)
            self.trainers.append(trainer)
        return self

    def __exit__(self, *_: object) -> None:
        for trainer in self.trainers:
            trainer.kill()

    def end(self, timeout_s: float = 300) -> list[subprocess.CompletedProcess[str]]:
        """Wait until all ranks have ended; raise a TimeoutError if one takes longer."""
        deadline = time.monotonic() + timeout_s
        return [
            trainer.end(max(0.1, deadline - time.monotonic()))
            for trainer in self.trainers
        ]


def _prepare(
    rewrites: bool, function: Callable[..., None] | None = None, *args: Any
) -> None:
    if not rewrites:
        forked.build_as_written()
    if function:
        function(*args)


# Functions for `prepare`. TensorFlow is already loaded when they are called.


def slow_down_steps(step_s: float) -> None:
    """Delay each step by `step_s` seconds."""
    _run_before_each_step(lambda number: time.sleep(step_s))


def kill_itself(step: int, number: int = signal.SIGKILL) -> None:
    """Send this process a signal before this step, which then never begins."""

    def end(at: int) -> None:
        if at == step:
            os.kill(os.getpid(), number)
            time.sleep(600)

    _run_before_each_step(end)


def run_out_of_memory(step: int) -> None:
    """Let this step run out of memory."""

    def fail(at: int) -> None:
        if at == step:
            raise MemoryError("no memory for this test")

    _run_before_each_step(fail)


def keep_weights(path: str, initial_range: float = 1.0) -> None:
    """Save the weights after the last step.

    A large `initial_range` leads to gradients far above the tolerance.
    """
    from rnn_scaling.models import workload
    from rnn_scaling.training import benchmark
    from tests.support.training import replicas

    workload.INITIAL_RANGE = initial_range
    train = benchmark.run_batches

    def train_and_keep(config: Any, step: Any, **rest: Any) -> None:
        train(config, step, **rest)
        for tower, replica in enumerate(replicas(step._update)):
            np.savez(f"{path}.{tower}.npz", **replica)

    benchmark.run_batches = train_and_keep


def weights(path: str | Path, tower: int = 0) -> dict[str, np.ndarray]:
    """Load the weights that `keep_weights` saved."""
    with np.load(f"{path}.{tower}.npz") as content:
        return dict(content)


def signal_others(*signals: tuple[int, int, int]) -> None:
    """Send signals to other ranks from the process that runs the steps.

    Each signal is (step before which it is sent, rank, signal number).
    """
    from rnn_scaling.training.cluster import Cluster

    wait_for_others, pids = Cluster.wait_for_others, {}

    def keep(self: Cluster) -> Any:
        position = wait_for_others(self)
        pids.update({peer.rank: peer.pid for peer in self._joining.peers})
        return position

    Cluster.wait_for_others = keep  # type: ignore[method-assign]
    _run_before_each_step(
        lambda at: [
            os.kill(pids[rank], number) for step, rank, number in signals if step == at
        ]
    )


def _run_before_each_step(do: Callable[[int], Any]) -> None:
    from rnn_scaling.training.scheduled_step import ScheduledStep
    from rnn_scaling.training.train_step import TrainStep

    numbers = iter(range(1 << 30))

    def step(self: TrainStep, call: Callable[[TrainStep], Any]) -> Any:
        do(next(numbers))
        return call(self)

    for kind in (TrainStep, ScheduledStep):
        kind.__call__ = functools.partialmethod(step, kind.__call__)  # type: ignore
