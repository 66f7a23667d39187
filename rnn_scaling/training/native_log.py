"""Keeps what TensorFlow's C++ code writes to stderr out of the way, and shows it when a run fails."""

import faulthandler
import os
import sys
import tempfile
from typing import NoReturn

from rnn_scaling.system import entry

LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"


class NativeLog:
    """Sends file descriptor 2 to a temporary file; Python's own sys.stderr still reaches the user.

    TensorFlow 2.21 writes some messages whatever TF_CPP_MIN_LOG_LEVEL says. If the user sets that variable, nothing is
    hidden.

    A failed CHECK or a crash in C++ ends the process with no Python to run, and the file with it. So a small process
    waits beside this one: what Python's faulthandler says then goes through it to the user, after the file's end.
    """

    def __init__(self) -> None:
        """To be called before there are threads: it forks."""
        self._file = None
        if LEVEL_VARIABLE in os.environ:
            return
        os.environ[LEVEL_VARIABLE] = "1"
        sys.stderr.flush()
        terminal = entry.PlainText(
            os.fdopen(os.dup(2), "wb"), "utf-8", "replace", line_buffering=True
        )
        terminal.bars = True
        self._file = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        crash_reader, self._crash = os.pipe()
        ready_reader, ready = os.pipe()
        if os.fork() == 0:
            _wait_for_a_crash(
                crash_reader, terminal.fileno(), self._file.fileno(), ready
            )
        os.close(crash_reader)
        os.close(ready)
        os.read(
            ready_reader, 1
        )  # until it has left the group, a signal to the group would end it too
        os.close(ready_reader)
        os.dup2(self._file.fileno(), 2)
        sys.stderr = terminal
        faulthandler.enable(file=self._crash)

    def tail(self, lines: int = 20) -> str:
        """The last suppressed lines as text; "" if there are none."""
        return "" if self._file is None else _tail(self._file.fileno(), lines)


def _tail(file: int, lines: int) -> str:
    # pread, as the writer's position is shared by every process that has the file.
    content = os.pread(file, os.fstat(file).st_size, 0)
    return "\n".join(content.decode("utf-8", "replace").splitlines()[-lines:])


def _wait_for_a_crash(crash: int, terminal: int, log: int, ready: int) -> NoReturn:
    """Copies `crash` to `terminal` until its writer has ended, after the end of `log`; silent when nothing comes.

    It writes a byte to `ready` when it no longer belongs to its parent's process group.
    """
    try:
        # Out of the group, which Ctrl-C and a sweep's time limit end, and of what a reader of stdout waits for.
        os.setsid()
        os.write(ready, b".")
        os.dup2(terminal, 2)
        os.dup2(crash, 0)
        os.dup2(log, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        text = os.read(0, 1 << 16)
        if text:
            os.write(2, f"TensorFlow's last messages:\n{_tail(1, 20)}\n\n".encode())
        while text:
            os.write(2, text)
            text = os.read(0, 1 << 16)
    finally:
        os._exit(0)
