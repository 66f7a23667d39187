"""How every command ends: its exit status, Ctrl-C, and a reader that has gone away."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as other programs end whose reader (`| head`) has what it wanted


def leave(main: Callable[[], int], at_once: bool = False) -> NoReturn:
    """Runs a command and ends the process with its exit status.

    Args:
      main: the command.
      at_once: skip the interpreter's own clean-up, which takes seconds once TensorFlow's threads run.
    """
    if sys.stderr is None:  # closed by the caller; what nobody reads goes nowhere
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, it lives as long as the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without ± shows ?, and not a traceback
            stream.reconfigure(errors="replace")
    try:
        status = main()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        status = EXIT_BROKEN_PIPE
        # The interpreter flushes once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as e:
        if e.errno != errno.ENOSPC:
            raise
        print(f"error: output: {e.strerror}", file=sys.stderr)
        status = 1
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        status = EXIT_INTERRUPTED
    if at_once:
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
