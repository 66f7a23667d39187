"""Processes that start with TensorFlow loaded: forked from one that has imported it and done nothing else.

Importing it costs three seconds of a core. What a process does before that (flags, messages of a first import) is left
to tests that start the real command.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rnn_scaling import entry, train

# Flags of a run of one cell a side and five batches.
TINY = [
    "--num_encoder_layers=1",
    "--num_decoder_layers=1",
    "--direction=uni",
    "--num_units=8",
    "--embedding_dim=8",
    "--src_vocab_size=50",
    "--tgt_vocab_size=40",
    "--src_max_len=4",
    "--tgt_max_len=3",
    "--batch_size=2",
    "--num_warmup_batches=2",
    "--num_batches=3",
]
NOBODY = "nobody"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tensorflow", "rnn_scaling.training.benchmark", "rnn_scaling.inspection.observe"])


def call(function: Callable[..., Any], *args: Any, timeout_s: float = 180) -> Any:
    """What a function gives in a process of its own, which ends with it.

    Args:
      function: of a module's top level.
      args: what it gets.
      timeout_s: how long it may take, in seconds.

    Raises:
      TimeoutError: if it takes longer.
      EOFError: if its process ends without a result.
      RuntimeError: with the traceback of what it raised.
    """
    receiving, sending = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_call, args=(sending, function, args), daemon=True)
    process.start()
    sending.close()
    try:
        if not receiving.poll(timeout_s):
            raise TimeoutError(f"{function.__name__}{args} took more than {timeout_s} s")
        result, error = receiving.recv()
    finally:
        process.kill()
        process.join()
    if error:
        raise RuntimeError(error)
    return result


def _call(sending: Connection, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    try:
        sending.send((function(*args), ""))
    except BaseException:
        sending.send((None, traceback.format_exc()))


class Trainer:
    """python -m rnn_scaling.train in a process of its own, without its import of TensorFlow."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        stdout: str = "",
        prepare: tuple[Any, ...] | None = None,
    ) -> None:
        """Args:
        words: of its command line.
        folder: where its stderr is kept, and its stdout.
        env: its whole environment.
        stdout: another file for its stdout; NOBODY: a pipe whose reader has gone.
        prepare: a function of a module's top level, and its arguments, to be called in the process before.
        """
        self._out, self._err = Path(stdout or folder / "stdout.txt"), folder / "stderr.txt"
        self._words = list(words)
        arguments = (self._words, str(self._out), str(self._err), dict(env), prepare or ())
        self._process = CONTEXT.Process(target=_train, args=arguments, daemon=True)
        self._process.start()

    def wait_for(self, *starts: str, timeout_s: float = 300) -> None:
        """Returns once a line on stderr begins with one of these words."""
        deadline = time.monotonic() + timeout_s
        while not any(line.startswith(starts) for line in self._read(self._err).splitlines()):
            assert self._process.exitcode is None, self._read(self._err)
            assert time.monotonic() < deadline, self._read(self._err)
            time.sleep(0.02)

    def send_signal(self, number: int) -> None:
        """Sends it to the process."""
        assert self._process.pid
        os.kill(self._process.pid, number)

    def kill(self) -> None:
        """Ends the process, frozen or not."""
        self._process.kill()
        self._process.join()

    def end(self, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Waits for its end.

        Raises:
          TimeoutError: if it takes longer; it is killed.
        """
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            self._process.kill()
            raise TimeoutError(f"{self._words} took more than {timeout_s} s")
        out, err = self._read(self._out), self._read(self._err)
        return subprocess.CompletedProcess(self._words, self._process.exitcode, out, err)

    @staticmethod
    def _read(path: Path) -> str:
        return path.read_text() if path.is_file() else ""


def _opened(path: str) -> int:
    """A file to write to, or a pipe whose reader has gone."""
    if path != NOBODY:
        return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def _train(words: list[str], out: str, err: str, env: dict[str, str], prepare: tuple[Any, ...]) -> None:
    os.environ.clear()
    os.environ.update(env)
    for number, path in ((1, out), (2, err)):
        os.dup2(_opened(path), number)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # the server's knows where its file stood
    sys.argv = ["rnn_scaling.train", *words]
    if prepare:
        function, *args = prepare
        function(*args)
    entry.leave(train.main, at_once=True)
