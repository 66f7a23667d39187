"""Stand-ins for trainers and workers as forks of this process, which has imported them: they cost no interpreter.

That real commands start, tethered, is asked in processes/test_process.py and wherever the real trainer runs.
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

from rnn_scaling.system.processes import tether

Main = Callable[
    [Sequence[str]], object
]  # its exit status or what sys.exit takes, from the words after its module's


def as_subprocess(**mains: Main) -> types.SimpleNamespace:
    """What `process` is to have for `subprocess`: forks `python -m MODULE` whose last name is given, starts others."""

    def popen(command: Sequence[str], **given: Any) -> Any:
        _, _, _, _, _, is_module, module, *words = (
            *command,
            "",
            "",
        )  # python -I tether.py PID python -m MODULE
        main = mains.get(module.rpartition(".")[2]) if is_module == "-m" else None
        return (
            Fork(main, words[:-2], given["env"])
            if main
            else subprocess.Popen(command, **given)
        )

    numbers = {
        name: getattr(subprocess, name) for name in ("PIPE", "DEVNULL", "STDOUT")
    }
    return types.SimpleNamespace(Popen=popen, **numbers)


class Fork:
    """Stands for subprocess.Popen."""

    def __init__(self, main: Main, words: list[str], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        parent = os.getpid()
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become(main, words, env, writing, parent)
        os.close(writing)
        self.stderr = os.fdopen(reading, "rb", buffering=0)

    def wait(self) -> int:
        """As Popen's."""
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode

    def send_signal(self, number: int) -> None:
        """As Popen's."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """As Popen's."""
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[None, str]:
        """As Popen's, of a process whose stdout goes nowhere."""
        with self.stderr:
            said = self.stderr.read().decode()
        self.wait()
        return None, said


def _become(
    main: Main, words: list[str], env: Mapping[str, str], stderr: int, parent: int
) -> None:
    """Does not return."""
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(tether.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        faulthandler.disable()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(stderr, 2)
        os.closerange(3, 1024)  # a lock of the parent's, too
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
