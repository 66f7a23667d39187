"""Processes that start with TensorFlow loaded.

They are forks of a process that has imported TensorFlow and done nothing else; importing
it takes three seconds of one core. Tests of flags and of messages during the import start
the real command instead.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from rnn_scaling.commands import local_cluster, train
from rnn_scaling.system import entry
from rnn_scaling.system.processes import process
from rnn_scaling.training import cluster as clusters
from rnn_scaling.training import progress
from tests.support.stand_in_forks import Fork, die_with_parent

# Flags of a run of one cell and five batches.
TINY = [
    "--model=lm",
    "--num_encoder_layers=1",
    "--num_units=8",
    "--embedding_dim=8",
    "--tgt_vocab_size=40",
    "--tgt_max_len=3",
    "--batch_size=2",
    "--num_warmup_batches=2",
    "--num_batches=3",
]
# The same with a cell on each side, which is traced in twice the time.
TINY_NMT = [
    *TINY[1:],
    "--num_decoder_layers=1",
    "--direction=uni",
    "--src_vocab_size=50",
    "--src_max_len=4",
]
POLL_S = 0.02  # between two readings of a process's output
CONTEXT = multiprocessing.get_context("forkserver")
# What a run imports; the last one freezes all objects.
CONTEXT.set_forkserver_preload(
    [
        "tensorflow",
        "tensorflow.python.distribute.v1.all_reduce",
        "rnn_scaling.commands.run_files",
        "rnn_scaling.data.device",
        "rnn_scaling.inspection.observe",
        "rnn_scaling.inspection.step_inspection",
        "rnn_scaling.models.cells.lstm",
        "rnn_scaling.models.encoders.block_lstm",
        "rnn_scaling.models.seq2seq",
        "rnn_scaling.records.early_steps",
        "rnn_scaling.reports.table",
        "rnn_scaling.training.benchmark",
        "rnn_scaling.training.engines.collective",
        "rnn_scaling.training.native_log",
        "rnn_scaling.training.run",
        "rnn_scaling.training.variable_update.independent",
        "rnn_scaling.training.variable_update.replicated",
        "tests.support.forked",
        "tests.support.preloaded",
    ]
)


def call(function: Callable[..., Any], *args: Any, timeout_s: float = 180) -> Any:
    """Call a module-level function in a process of its own; return its result.

    Raises:
      TimeoutError: If it takes longer than `timeout_s`.
      EOFError: If its process ends without a result.
      RuntimeError: If it raises an exception; the message is its traceback.
    """
    receiving, sending = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_call, args=(sending, function, args), daemon=True)
    process.start()
    sending.close()
    try:
        if not receiving.poll(timeout_s):
            raise TimeoutError(
                f"{function.__name__}{args} took more than {timeout_s} s"
            )
        result, error = receiving.recv()
    finally:
        process.kill()
        process.join()
    if error:
        raise RuntimeError(error)
    return result


def _call(
    sending: Connection, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    try:
        sending.send((function(*args), ""))
    except BaseException:
        sending.send((None, traceback.format_exc()))


def build_as_written() -> None:
    """Run graphs as Python builds them, like the fixture with this name."""
    import tensorflow as tf

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


def build_as_written_and_report() -> None:
    """Do the same as `as_built`, and print the progress at once."""
    build_as_written()
    progress.PLAIN_INTERVAL_S = 0.2


class Trainer:
    """A forked `python -m rnn_scaling.train`, which need not import TensorFlow."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        env: Mapping[str, str],
        stdout: str = "",
        prepare: tuple[Any, ...] | None = None,
    ) -> None:
        """Start the trainer.

        Args:
          words: Its command-line arguments.
          folder: Folder of stdout.txt and stderr.txt.
          env: Its environment.
          stdout: Another file for its stdout.
          prepare: A module-level function and its arguments, called in the process
            before the trainer starts.
        """
        arguments = (dict(env), prepare or ())
        self._start(run_batches, words, folder, arguments, stdout)

    def _start(
        self, target, words, folder, arguments, stdout="", is_daemon=True
    ) -> None:
        self._words = list(words)
        self._out = Path(stdout or folder / "stdout.txt")
        self._err = folder / "stderr.txt"
        streams = (str(self._out), str(self._err))
        self._process = CONTEXT.Process(
            target=target, args=(self._words, *streams, *arguments), daemon=is_daemon
        )
        self._process.start()

    def wait_for(self, *starts: str, timeout_s: float = 300) -> None:
        """Wait until a line on stderr begins with one of these texts.

        Raises:
          EOFError: If the process ends before.
          TimeoutError: If it takes longer.
        """
        for _ in range(round(timeout_s / POLL_S)):
            has_ended = self._process.exitcode is not None
            err = self._read(self._err)
            if any(line.startswith(starts) for line in err.splitlines()):
                return
            if has_ended:
                raise EOFError(f"{self._words} ended without {starts}: {err}")
            self._process.join(POLL_S)
        raise TimeoutError(f"{self._words} took more than {timeout_s} s: {err}")

    @property
    def pid(self) -> int:
        """The PID of the process."""
        assert self._process.pid
        return self._process.pid

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, even if it is stopped."""
        self._process.kill()
        self._process.join()

    def end(self, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        """Wait for the end of the process.

        A process that takes longer than `timeout_s` is killed, and a TimeoutError is
        raised.
        """
        self._process.join(timeout_s)
        if self._process.exitcode is None:
            self._process.kill()
            raise TimeoutError(f"{self._words} took more than {timeout_s} s")
        out, err = self._read(self._out), self._read(self._err)
        return subprocess.CompletedProcess(
            self._words, self._process.exitcode, out, err
        )

    @staticmethod
    def _read(path: Path) -> str:
        return path.read_text() if path.is_file() else ""


def run_trainer(
    folder: Path, *words: str, prepare: tuple[Any, ...] = (build_as_written,)
) -> subprocess.CompletedProcess[str]:
    """Run a forked trainer, whose record is FOLDER/run.json."""
    folder.mkdir(exist_ok=True)
    own = ["--progress=false", f"--result_file={folder}/run.json"]
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    return Trainer([*own, *words], folder, env, prepare=prepare).end()


def _redirect(out: str, err: str, flags: int) -> None:
    """Let stdout and stderr be these files."""
    for number, path in ((1, out), (2, err)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | flags, 0o600), number)


def run_batches(
    words: list[str], out: str, err: str, env: dict[str, str], prepare: tuple[Any, ...]
) -> None:
    os.environ.clear()
    os.environ.update(env)
    _redirect(out, err, os.O_TRUNC)
    # The inherited object has the fork server's position in its file.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.argv = ["rnn_scaling.train", *words]
    if prepare:
        function, *args = prepare
        function(*args)
    entry.leave(train.main, at_once=True)


class LocalCluster(Trainer):
    """A forked `python -m rnn_scaling local-cluster`, with a fault in one of its ranks.

    The ranks start with TensorFlow loaded.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        faults: Mapping[int, Callable[[], None]] = {},
    ) -> None:  # noqa: B006
        """Start the cluster.

        Args:
          words: Command-line arguments.
          folder: Folder of stdout.txt and stderr.txt.
          faults: Rank -> a module-level function, called before its trainer begins.
        """
        # Not a daemon, which may have no children.
        self._start(_run_local_cluster, words, folder, (dict(faults),), is_daemon=False)


def _run_local_cluster(
    words: list[str], out: str, err: str, faults: dict[int, Callable[[], None]]
) -> None:
    die_with_parent()  # the fork server, which ends with the tests
    _redirect(out, err, os.O_APPEND)
    process.subprocess = types.SimpleNamespace(
        Popen=functools.partial(_fork_rank, faults=faults),
        PIPE=subprocess.PIPE,
        DEVNULL=subprocess.DEVNULL,
    )
    entry.leave(lambda: local_cluster.main(words))


def _fork_rank(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    stderr: int | None,
    faults: Mapping[int, Callable[[], None]],
    **_: Any,
) -> Fork:
    """Run the trainer in a fork, in place of subprocess.Popen.

    This process has loaded TensorFlow, so that the fork need not load it.
    """

    def main(words: Sequence[str]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        # A test need not wait for either.
        progress.PLAIN_INTERVAL_S = clusters.REPORT_S = 0.2
        build_as_written()  # tests of faults compare no numbers
        faults.get(int(env["RNN_SCALING_RANK"]), lambda: None)()
        sys.argv = ["rnn_scaling.train", *words]
        entry.leave(train.main, at_once=True)

    words = command[command.index("rnn_scaling.train") + 1 :]
    return Fork(main, words, env, has_streams=stderr is None)
