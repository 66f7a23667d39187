"""The other processes of a trainer with one a device: rank 0 starts them, and none outlives it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from rnn_scaling.processes.process import TETHER

RANK, SIZE, GROUP = "RANK", "WORLD_SIZE", "RNN_SCALING_GROUP"
GRACE_S = 5.0  # within which rank 0 itself must notice that another has gone


class Ranks:
    """Ranks 1 to `size` - 1, which run the program that rank 0 runs."""

    def __init__(self, size: int, address: str, file: str, give_up: Callable[[str], object]) -> None:
        """give_up: called with the cause, where a rank has failed and rank 0 goes on regardless."""
        descriptors = [int(file.rpartition("/")[2])] if file.startswith("/dev/fd/") else []
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-I", str(TETHER), str(os.getpid()), sys.executable, *sys.orig_argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                pass_fds=descriptors,
                text=True,
                env={**os.environ, RANK: str(rank), SIZE: str(size), GROUP: address},
            )
            for rank in range(1, size)
        ]
        self._cause, self._has_failed = "", threading.Event()
        self._give_up = give_up
        self._is_over = False
        self._watchers = [threading.Thread(target=self._watch, args=(rank,), daemon=True) for rank in range(1, size)]
        for watcher in self._watchers:
            watcher.start()

    def failure(self, wait_s: float) -> str:
        """Why a rank has failed, waiting so long for one that is failing; empty: none has."""
        self._is_over = True
        self._has_failed.wait(wait_s)
        return self._cause

    def wait(self) -> str:
        """Waits for the ends of all; returns why one failed, empty: none has."""
        self._is_over = True
        for watcher in self._watchers:
            watcher.join()
        return self._cause

    def end(self) -> None:
        self._is_over = True
        for process in self._processes:
            process.kill()
            process.wait()

    def _watch(self, rank: int) -> None:
        process = self._processes[rank - 1]
        assert process.stdout is not None
        output, status = process.stdout.read(), process.wait()
        if status == 0:
            return
        how = f"ended with signal {-status}" if status < 0 else f"failed with status {status}"
        with contextlib.suppress(IndexError, json.JSONDecodeError):
            how = json.loads(output.splitlines()[-1])
        self._cause = self._cause or f"rank {rank}: {how}"
        self._has_failed.set()
        time.sleep(GRACE_S)
        if not self._is_over:
            self._give_up(self._cause)
