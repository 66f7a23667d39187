"""Hide the messages of TensorFlow's C++ code on stderr until a run fails.

A command that loads TensorFlow creates one first.
"""

import faulthandler
import os
import sys
import tempfile
from typing import NoReturn

from rnn_scaling.system import entry

LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"


class NativeLog:
    """Redirects file descriptor 2 to a temporary file, but not sys.stderr.

    TensorFlow 2.21 writes some messages in spite of TF_CPP_MIN_LOG_LEVEL. If the user
    sets that variable, nothing is hidden.

    A failed CHECK or a crash in C++ ends the process, so that no Python code could
    print the file. Therefore a small process waits for a crash. It prints the last
    lines of the file and then the output of Python's faulthandler.

    Create at most one per process, and keep it: the redirection lasts until the end.
    """

    def __init__(self) -> None:
        """Redirect the messages; call it before threads start, because it forks."""
        self._file = None
        if LEVEL_VARIABLE in os.environ:
            return
        os.environ[LEVEL_VARIABLE] = "1"
        sys.stderr.flush()
        terminal = entry.PlainText(
            os.fdopen(os.dup(2), "wb"), "utf-8", "replace", line_buffering=True
        )
        # The progress bar of a run goes through this stream.
        terminal.has_bars = True
        # The file stays open as long as the process runs.
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        crash_reader, self._crash = os.pipe()
        ready_reader, ready = os.pipe()
        if os.fork() == 0:
            _run_crash_watcher(
                crash_reader, terminal.fileno(), self._file.fileno(), ready
            )
        os.close(crash_reader)
        os.close(ready)
        # Wait until the watcher has left the process group, whose signals would end it.
        os.read(ready_reader, 1)
        os.close(ready_reader)
        os.dup2(self._file.fileno(), 2)
        sys.stderr = terminal
        faulthandler.enable(file=self._crash)

    def read_tail(self, lines: int = 20) -> str:
        """Return the last hidden lines."""
        return "" if self._file is None else _read_tail(self._file.fileno(), lines)


def _read_tail(file: int, lines: int) -> str:
    # pread, because all processes that have the file share one position.
    content = os.pread(file, os.fstat(file).st_size, 0)
    return "\n".join(content.decode("utf-8", "replace").splitlines()[-lines:])


def _run_crash_watcher(crash: int, terminal: int, log: int, ready: int) -> NoReturn:
    """Copy `crash` to `terminal` until its writer ends, after the last lines of `log`.

    Nothing is printed if `crash` stays empty.

    Args:
      crash: A pipe that receives the output of faulthandler.
      terminal: The user's stderr.
      log: The file with TensorFlow's messages.
      ready: A pipe that receives a byte when this process has left its parent's process
        group.
    """
    try:
        # Ctrl-C and the time limit of a sweep end the process group. A reader of stdout
        # must not wait for this process.
        os.setsid()
        os.write(ready, b".")
        # The three files must survive closerange, so they get the numbers 0 to 2.
        os.dup2(terminal, 2)
        os.dup2(crash, 0)
        os.dup2(log, 1)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        text = os.read(0, 1 << 16)
        if text:
            os.write(
                2, f"TensorFlow's last messages:\n{_read_tail(1, 20)}\n\n".encode()
            )
        while text:
            os.write(2, text)
            text = os.read(0, 1 << 16)
    finally:
        os._exit(0)
