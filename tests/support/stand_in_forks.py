"""Forks of this process in place of trainer and worker processes.

A fork saves the start of an interpreter and the imports. The start of real commands is
tested in processes/test_process.py and by all tests that run the real trainer.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.system.processes import parent_death_launcher

# Takes the arguments after the module's name; returns an exit status or another value
# that sys.exit accepts.
Main = Callable[[Sequence[str]], object]


def make_subprocess_stand_in(**mains: Main) -> types.SimpleNamespace:
    """Return a replacement for the module `subprocess` in `process`.

    It forks `python -m MODULE` if `mains` has an entry for the last part of MODULE, and
    really starts other commands.
    """

    def popen(command: Sequence[str], **given: Any) -> Any:
        # python -I parent_death_launcher.py PID python -m MODULE
        is_module, module = (*command, "", "")[5:7]
        main = mains.get(module.rpartition(".")[2])
        if main and is_module == "-m":
            return Fork(main, command[7:], given["env"])
        return subprocess.Popen(command, **given)

    numbers = {
        name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "STDOUT")
    }
    return types.SimpleNamespace(Popen=popen, **numbers)


class Fork:
    """A forked replacement for subprocess.Popen."""

    def __init__(
        self,
        main: Main,
        words: Sequence[str],
        env: Mapping[str, str],
        has_streams: bool = False,
    ) -> None:
        """Fork this process.

        Args:
          main: What the child does.
          words: Its arguments.
          env: Its environment.
          has_streams: Whether it has the streams of this process. Otherwise it has no
            stdout, and its stderr is read here.
        """
        self.returncode: int | None = None
        parent = os.getpid()
        reading, writing = (None, None) if has_streams else os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(main, words, env, writing, parent)
        self.stderr = None
        if not has_streams:
            os.close(writing)
            self.stderr = os.fdopen(reading, "rb", buffering=0)

    def wait(self) -> int:
        """Wait for the process and return its exit status, like Popen.wait."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process, like Popen.send_signal."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process, like Popen.kill."""
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[None, str]:
        """Return (None, stderr) after the end, like Popen.communicate without stdout."""
        with self.stderr:
            error_text = self.stderr.read().decode()
        self.wait()
        return None, error_text


def die_with_parent() -> None:
    """Let this process end when its parent ends."""
    death = parent_death_launcher.PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(death, signal.SIGKILL, 0, 0, 0)


def _become(
    main: Main,
    words: Sequence[str],
    env: Mapping[str, str],
    stderr: int | None,
    parent: int,
) -> None:
    """Run `main` in the forked child; never return."""
    try:
        os.setsid()
        die_with_parent()
        faulthandler.disable()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if stderr is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            os.dup2(stderr, 2)
            os.closerange(3, 1024)  # including the parent's lock file
            # The inherited objects would still treat their files as seekable.
            sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        os.environ.clear()
        os.environ.update(env)
        os._exit(_status(main, words) if os.getppid() == parent else 1)
    finally:
        os._exit(99)


def _status(main: Main, words: list[str]) -> int:
    try:
        status = main(words)
    except SystemExit as e:
        status = e.code
    except BaseException:
        status = traceback.format_exc()
    if isinstance(status, str):
        print(status, file=sys.stderr)
        status = 1
    sys.stderr.flush()
    return int(status or 0)  # type: ignore[call-overload]
