"""The start and the end of every command: arguments, errors, exit statuses, signals.

python -m rnn_scaling COMMAND -> leave(main)
    The process: closed streams, Ctrl-C, SIGTERM, full disks, crashes.
@command main(words)
    The call: an Answer is printed on stdout, a Refusal on stderr.

Exit statuses are part of the interface that scripts of users read, and sweeps recognise
interrupted runs by them: never change one.
"""

import errno
import fcntl
import functools
import io
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

VERSION = "0.1.0"
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_INTERNAL = 70  # a fault of this program (EX_SOFTWARE of sysexits.h)
_EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, if the reader (`| head`) has closed the pipe
DEBUG = "RNN_SCALING_DEBUG"  # the variable that adds a traceback to such a fault
# TensorFlow's graph errors begin with this line and the stack of the node; the cause
# comes after them.
_GRAPH_ERROR = "Graph execution error:"
_STACK_LINES = ("Detected at node ", "  File ", "    ", "Stack trace for op")
# TensorFlow begins other messages with the name of its function that failed.
_FUNCTION_NODE = re.compile(r"^\{\{function_node \S+\}\} ")
_MAX_CHARACTERS = 4000  # characters of an error or a warning
_OWN_MODULES = ("rnn_scaling", "models", "benchmarks")
# Packages whose modules have other names, by module.
_PACKAGES = {
    "absl": "absl-py",
    "mlperf_logging": "mlperf-logging",
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
}
# Commands that install packages which only some commands need, by module.
_SET_UP_BY = {
    "horovod": "./run.sh setup-horovod",
    "jax": "./run.sh setup-frameworks jax",
    "torch": "./run.sh setup-frameworks torch",
    "xprof": "./run.sh tensorboard --profile",
}
_program = ""  # how the user calls commands, or "" before `set_program_name`
# Errors of files that the user has named. No code handles them at every place.
_FILE_ERROR_STATUSES = {
    errno.ENAMETOOLONG: EXIT_USAGE,
    errno.ELOOP: EXIT_USAGE,
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE), EXIT_FAILED
    ),
}
_prints_notes = True  # whether warnings and notes are printed
# Terminal control: a sequence with parameters (CSI), a string with its end (such as
# OSC), any other two characters.
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?|[^\n])|\x9b[0-?]*[ -/]*[@-~]"
)
# Invisible characters that control a terminal, end a line or reverse the text: controls
# (C0, C1), marks and overrides of direction, separators, tags, surrogates.
_CONTROLS = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_A_LINE = re.compile(f"[{_CONTROLS}]")
# A stream keeps line breaks and tabs. No command prints colours, so no text of a file
# can.
_IN_A_STREAM = re.compile(rf"(?![\n\t])[{_CONTROLS}]")


class PlainText(io.TextIOWrapper):
    """A stream that writes characters which control a terminal as their escapes.

    Every command writes through it, so that no text of a file, a record or a log
    controls the terminal.

    Attributes:
      has_bars: Whether a carriage return is kept, after which a bar is overwritten.
    """

    has_bars = False

    def write(self, text: str) -> int:
        super().write(_IN_A_STREAM.sub(self._replacement, text))
        return len(text)

    def _replacement(self, match: re.Match[str]) -> str:
        if match[0] == "\r" and self.has_bars:
            return "\r"
        return _escape(match[0])


class Answer(Exception):
    """The text of --help or --version, printed instead of running the command."""


class Refusal(ValueError):
    """The reasons why a command does nothing, one per line, and its exit status."""

    def __init__(self, *lines: str, status: int = EXIT_USAGE) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)
        self.status = status


def require_folders(paths: Iterable[Path]) -> None:
    """Check the folders of run records that a command reads.

    Raises:
      Refusal: With a line for each path that is not a folder.
    """
    faults = []
    for path in paths:
        if not path.is_dir():
            fault = "is not a folder" if path.exists() else "does not exist"
            faults.append(f"{path} {fault}; name a folder of run records")
    if faults:
        raise Refusal(*faults)


def command(main: Callable[..., int]) -> Callable[..., int]:
    """Wrap a main that gets the process's arguments if called without any."""

    @functools.wraps(main)
    def run(argv: Any = None, *arguments: Any, **options: Any) -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        try:
            return main(words, *arguments, **options)
        except Answer as answer:
            print(answer)
            return EXIT_OK
        except Refusal as refusal:
            return fail(*refusal.lines, status=refusal.status)
        except Exception as error:
            module = main.__module__.removeprefix("rnn_scaling.")
            return _report_fault(error, module.removeprefix("commands."))

    return run


def fail(*lines: str, status: int = EXIT_FAILED) -> int:
    """Print errors on stderr, one per line; return the exit status."""
    for line in lines:
        print(f"error: {_shorten(make_plain(line))}", file=sys.stderr)
    return status


def warn(*lines: str) -> None:
    """Print warnings on stderr, one per line."""
    note(*(f"warning: {_shorten(make_plain(line))}" for line in lines))


def note(*lines: str) -> None:
    """Print notes on stderr, one per line."""
    if _prints_notes:
        for line in lines:
            print(line, file=sys.stderr)


def be_quiet() -> None:
    """Print only errors from now on, because another process prints the same notes."""
    global _prints_notes
    _prints_notes = False


def find_first_line(error: Exception) -> str:
    """Return the first line of an error's message, or its type without a message."""
    first, *later = (str(error).strip() or type(error).__name__).splitlines()
    if not first.startswith(_GRAPH_ERROR):
        return _FUNCTION_NODE.sub("", first)
    for line in later:
        if line.strip() and not line.startswith(_STACK_LINES):
            return line
    return first


def make_plain(text: object) -> str:
    """Make external text safe for one line: escape line breaks and terminal controls.

    >>> plain("a\\x1b[31m\\n")
    'a\\\\x1b[31m\\\\n'
    """
    return _IN_A_LINE.sub(lambda match: _escape(match[0]), str(text))


def _shorten(line: str) -> str:
    """Leave out the middle of a very long line, which quotes a long value.

    Its beginning contains the flag, and its end the rule.
    """
    if len(line) <= _MAX_CHARACTERS:
        return line
    half = _MAX_CHARACTERS // 2
    left_out = len(line) - _MAX_CHARACTERS
    return f"{line[:half]}... ({left_out:,} letters) ...{line[-half:]}"


def make_printable(text: str, lines: bool = False) -> str:
    """Return external text (of a log, a record) for a table, without terminal controls.

    >>> printable("a\\x1b[31mb\\x07c")
    'ab c'
    """
    if text.isprintable():
        return text
    allowed = "\n" if lines else ""
    text = _ESCAPE.sub("", text)
    return "".join(c if c.isprintable() or c in allowed else " " for c in text)


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file name that is not UTF-8
        number -= 0xDC00
        return f"\\x{number:02x}"
    return ascii(character)[1:-1]


def explain_missing_package(error: ImportError) -> str:
    """Name a Python package that cannot be imported, and the command that installs it.

    Returns:
      One sentence, or "" if the module belongs to this suite or to Python. Then its
      absence is a fault of the program.
    """
    module = (error.name or "").partition(".")[0]
    if not module or module in _OWN_MODULES or module in sys.stdlib_module_names:
        return ""
    package = _PACKAGES.get(module, module)
    remedy = _SET_UP_BY.get(module)
    if remedy:
        return f"{sys.executable} cannot import {package}; {remedy} installs it"
    return (
        f"{sys.executable} cannot import {package}; ./run.sh runs every command in an "
        f"environment that has it, or install it: {sys.executable} -m pip install "
        "-r requirements.txt -c constraints.txt"
    )


def _report_fault(error: Exception, name: str) -> int:
    """Print an unexpected error in one line; return the exit status.

    Statuses 1 and 2 are results of a command, so CI jobs need another one.
    """
    if isinstance(error, BrokenPipeError) or (
        isinstance(error, OSError) and error.errno == errno.ENOSPC
    ):
        raise error
    if (
        isinstance(error, OSError)
        and error.filename is not None
        and error.errno in _FILE_ERROR_STATUSES
    ):
        status = _FILE_ERROR_STATUSES[error.errno]
        return fail(f"{error.filename}: {error.strerror}", status=status)
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, ImportError) and (sentence := explain_missing_package(error)):
        return fail(f"{name}: {sentence}", status=EXIT_USAGE)
    cause = type(error).__name__
    if message := str(error).strip():
        cause += f": {message.splitlines()[0]}"
    remedy = (
        f"this is a fault of the program: please report it; {DEBUG}=1 shows where it is"
    )
    return fail(f"{name}: {cause}; {remedy}", status=EXIT_INTERNAL)


def get_program_name() -> str:
    """Return the word that starts commands to paste, such as `./run.sh`."""
    return _program or "./run.sh"


def set_program_name(name: str) -> None:
    """Set the result of `get_program_name`; only the first call counts."""
    global _program
    _program = _program or name


def leave(main: Callable[[], int], at_once: bool = False) -> NoReturn:
    """Run a command and end the process with its exit status.

    Args:
      main: The command.
      at_once: Skip the clean-up of the interpreter, which takes seconds once
        TensorFlow's threads run.
    """
    try:
        # See the package's __init__.
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _prepare_streams()
        if not at_once:  # The trainer has another handler.
            # Batch systems send SIGTERM before they kill.
            signal.signal(signal.SIGTERM, _interrupt)
        status = _run(main)
        # After the command a second Ctrl-C has nothing to stop.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        return _EXIT_BROKEN_PIPE
    except Exception as e:
        if isinstance(e, OSError) and e.errno == errno.ENOSPC:
            _discard_output()
            return fail(f"output: {e.strerror}")
        return _report_fault(e, "rnn_scaling")


def _prepare_streams() -> None:
    """Let every command print, even if the caller has closed a stream.

    Output to a closed stream is lost. Otherwise it would go into a file that is opened
    later and gets the number of the stream. The order of the names matters: each file
    takes the lowest free number.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, stays open
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            access = fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
            if access == os.O_RDONLY:  # A shell reads its script from this number.
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            line_buffering = stream.line_buffering
            encoding = stream.encoding
            # A terminal without ± shows ?; without "replace" the command would fail.
            plain_stream = PlainText(
                stream.detach(), encoding, "replace", line_buffering=line_buffering
            )
            plain_stream.has_bars = name == "stderr"
            setattr(sys, name, plain_stream)


def _discard_output() -> None:
    """Discard the interpreter's last flush; stdout and stderr may have no reader."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(null_device, sys.stderr.fileno())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
