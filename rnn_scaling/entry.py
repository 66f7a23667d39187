"""How every command starts and ends: words in, help and version, what is wrong with them, exit statuses, signals.

python -m rnn_scaling COMMAND -> leave(main)    the process: closed streams, Ctrl-C, SIGTERM, full disks, crashes
@command main(words)                            the call: an Answer is printed, a Refusal told on stderr
"""

from __future__ import annotations

import errno
import functools
import io
import os
import re
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

VERSION = "0.1.0"  # of this package
EXIT_OK, EXIT_FAILED, EXIT_USAGE = 0, 1, 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as other programs end whose reader (`| head`) has what it wanted
# Terminal control: a sequence with parameters (CSI), a string to its end (OSC and its like), any other two characters.
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?|[^\n])|\x9b[0-?]*[ -/]*[@-~]"
)
PROGRAM = "RNN_SCALING_COMMAND"  # the environment variable by which run.sh says that it was called; children inherit it


class Answer(Exception):
    """What a command line asked to be told instead of anything being done: --help, --version."""


class Refusal(ValueError):
    """Why a command does nothing, one sentence in each of `lines`; `status` is its exit status."""

    def __init__(self, *lines: str, status: int = EXIT_USAGE) -> None:
        super().__init__("\n".join(lines))
        self.lines, self.status = list(lines), status


def command(main: Callable[..., int]) -> Callable[..., int]:
    """Makes a main that gets the words of the command line, those of the process if it is called with none."""

    @functools.wraps(main)
    def answered(argv: Any = None, *rest: Any, **options: Any) -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        try:
            return main(words, *rest, **options)
        except Answer as answer:
            print(answer)
            return EXIT_OK
        except Refusal as refusal:
            return fail(*refusal.lines, status=refusal.status)

    return answered


def fail(*lines: str, status: int = EXIT_FAILED) -> int:
    """Says on stderr what is wrong, a line each; returns the exit status."""
    for line in lines:
        print(f"error: {printable(line)}", file=sys.stderr)
    return status


def printable(text: str, lines: bool = False) -> str:
    """A text from outside (a file's name, a log, a record) without anything that drives a terminal.

    Args:
      text: any; whole escape sequences go, other characters that do not print become spaces.
      lines: keep the ends of lines.

    >>> printable("a\\x1b[31mb\\x07c")
    'ab c'
    """
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(c if c.isprintable() or c in kept else " " for c in _ESCAPE.sub("", text))


def program() -> str:
    """How the user calls commands, for what is printed to be pasted: `./run.sh`, `rnn-scaling`, ..."""
    return os.environ.get(PROGRAM) or "./run.sh"


def leave(main: Callable[[], int], at_once: bool = False) -> NoReturn:
    """Runs a command and ends the process with its exit status.

    Args:
      main: the command.
      at_once: skip the interpreter's own clean-up, which takes seconds once TensorFlow's threads run.
    """
    try:
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:  # see the package's __init__
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _prepare_streams()
        if not at_once:  # TensorFlow's threads do not hear of it; the trainer has a handler of its own
            signal.signal(signal.SIGTERM, _interrupt)  # batch systems send it before they kill
        status = _run(main)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end is near: a second Ctrl-C has nothing to stop
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("interrupted", file=sys.stderr)
        status = EXIT_INTERRUPTED
    if at_once:
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


def _run(main: Callable[[], int]) -> int:
    try:
        status = main()
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return EXIT_BROKEN_PIPE
    except Exception as e:
        if isinstance(e, OSError) and e.errno == errno.ENOSPC:
            _discard_output()
            return fail(f"output: {e.strerror}")
        import traceback

        traceback.print_exc()
        return EXIT_FAILED


def _prepare_streams() -> None:
    """Lets every command print: what the caller has closed goes nowhere, and not into a file that is opened later."""
    for name in ("stdin", "stdout", "stderr"):  # in this order each takes its own number, the lowest that is free
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115, lives on
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):  # a terminal without ± shows ?, no traceback
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """The interpreter flushes once more when it ends, and nobody may hear of it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
