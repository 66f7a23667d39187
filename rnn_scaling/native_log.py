"""Keeps what TensorFlow's C++ code writes to stderr out of the way, and shows it when a run fails."""

from __future__ import annotations

import faulthandler
import os
import sys
import tempfile

LEVEL_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"


class NativeLog:
    """Sends file descriptor 2 to a temporary file; Python's own sys.stderr still reaches the user.

    TensorFlow 2.21 writes some messages whatever TF_CPP_MIN_LOG_LEVEL says. A user who sets that variable
    wants to see them, and nothing is hidden.
    """

    def __init__(self) -> None:
        self._file = None
        if LEVEL_VARIABLE in os.environ:
            return
        os.environ[LEVEL_VARIABLE] = "1"
        sys.stderr.flush()
        terminal = os.fdopen(os.dup(2), "w", buffering=1, encoding="utf-8", errors="replace")
        self._file = tempfile.TemporaryFile()  # noqa: SIM115, it lives as long as the process
        os.dup2(self._file.fileno(), 2)
        sys.stderr = terminal
        faulthandler.enable(file=terminal)  # a crash inside TensorFlow must not be silent

    def tail(self, lines: int = 20) -> str:
        """The last lines that were kept back, as text; empty when nothing was."""
        if self._file is None:
            return ""
        self._file.seek(0)
        return "\n".join(self._file.read().decode("utf-8", "replace").splitlines()[-lines:])
