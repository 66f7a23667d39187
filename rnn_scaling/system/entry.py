"""How every command starts and ends: words in, help and version, what is wrong with them, exit statuses, signals.

python -m rnn_scaling COMMAND -> leave(main)    the process: closed streams, Ctrl-C, SIGTERM, full disks, crashes
@command main(words)                            the call: an Answer is printed, a Refusal told on stderr
"""

import errno
import fcntl
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
EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_INTERNAL = 70  # a fault of this program (EX_SOFTWARE of sysexits.h): no answer to what was asked
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE, as other programs end whose reader (`| head`) has what it wanted
DEBUG = "RNN_SCALING_DEBUG"  # the environment variable with which a fault of this program shows where it is
# TensorFlow's errors of a graph begin with these words and the stack of the node; what happened comes after it.
_NOWHERE = "Graph execution error:"
_WHERE = ("Detected at node ", "  File ", "    ", "Stack trace for op")
# The function of its own that failed, with which TensorFlow begins other messages.
_FUNCTION_NODE = re.compile(r"^\{\{function_node \S+\}\} ")
LONGEST = 4000  # letters of a line that says what is wrong
_OWN_MODULES = ("rnn_scaling", "models", "benchmarks")
# Packages whose modules have other names, by module.
_PACKAGE_OF = {
    "absl": "absl-py",
    "mlperf_logging": "mlperf-logging",
    "pynvml": "nvidia-ml-py",
    "yaml": "pyyaml",
}
# Packages that only some commands need, by module.
_SET_UP_BY = {
    "horovod": "./run.sh setup-horovod",
    "jax": "./run.sh setup-frameworks jax",
    "torch": "./run.sh setup-frameworks torch",
    "xprof": "./run.sh tensorboard --profile",
}
_program = ""  # how the user calls commands; empty: not known yet
# Errors of a file or folder that the user has named, which no code foresees everywhere.
_STATUS_OF_FILE = {
    errno.ENAMETOOLONG: EXIT_USAGE,
    errno.ELOOP: EXIT_USAGE,
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ESTALE), EXIT_FAILED
    ),
}
_speaks = True  # whether warnings and notes are printed
# Terminal control: a sequence with parameters (CSI), a string to its end (OSC and its like), any other two characters.
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?|[^\n])|\x9b[0-?]*[ -/]*[@-~]"
)
# Characters without a picture that drive a terminal, end a line or turn what follows around: controls (C0, C1), marks
# and overrides of direction, separators, tags, halves of surrogate pairs.
_DRIVING = (
    "\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f"
)
_IN_A_LINE = re.compile(f"[{_DRIVING}]")
# Of these a stream keeps ends of lines and tabs. No command prints colours, so that a
# text from a file cannot bring any either.
_IN_A_STREAM = re.compile(rf"(?![\n\t])[{_DRIVING}]")


class PlainText(io.TextIOWrapper):
    """A stream that shows characters which would drive a terminal as their escapes.

    Every command writes through it, so no text of a file, a record or a log reaches a
    terminal in another way.
    """

    bars = False  # whether a line may be overwritten after a carriage return

    def write(self, text: str) -> int:
        super().write(_IN_A_STREAM.sub(self._shown, text))
        return len(text)

    def _shown(self, found: re.Match[str]) -> str:
        if found[0] == "\r" and self.bars:
            return "\r"
        return _escape(found[0])


class Answer(Exception):
    """What a command line asked to be told instead of anything being done: --help, --version."""


class Refusal(ValueError):
    """Why a command does nothing, one sentence in each of `lines`; `status` is its exit status."""

    def __init__(self, *lines: str, status: int = EXIT_USAGE) -> None:
        super().__init__("\n".join(lines))
        self.lines = list(lines)
        self.status = status


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
        except Exception as error:
            return _unforeseen(
                error,
                main.__module__.removeprefix("rnn_scaling.").removeprefix("commands."),
            )

    return answered


def fail(*lines: str, status: int = EXIT_FAILED) -> int:
    """Says on stderr what is wrong, a line each; returns the exit status."""
    for line in lines:
        print(f"error: {_shortened(plain(line))}", file=sys.stderr)
    return status


def warn(*lines: str) -> None:
    """Says on stderr what is to be known and stops nothing, a line each."""
    note(*(f"warning: {_shortened(plain(line))}" for line in lines))


def note(*lines: str) -> None:
    """Says on stderr how things are, a line each."""
    for line in lines if _speaks else ():
        print(line, file=sys.stderr)


def be_quiet() -> None:
    """Lets this process say only what ends it: of many that do the same, one speaks."""
    global _speaks
    _speaks = False


def first_line(error: Exception) -> str:
    """Return one line of an error: its message, or its type if it has none."""
    first, *others = (str(error).strip() or type(error).__name__).splitlines()
    if not first.startswith(_NOWHERE):
        return _FUNCTION_NODE.sub("", first)
    for line in others:
        if line.strip() and not line.startswith(_WHERE):
            return line
    return first


def plain(text: object) -> str:
    """A line with a name from outside: what would end it or drive a terminal is shown as its escape.

    >>> plain("a\\x1b[31m\\n")
    'a\\\\x1b[31m\\\\n'
    """
    return _IN_A_LINE.sub(lambda found: _escape(found[0]), str(text))


def _shortened(line: str) -> str:
    """The line, or of one that quotes a word without end its beginning, which names the flag, and its end, the rule."""
    half = LONGEST // 2
    return (
        line
        if len(line) <= LONGEST
        else f"{line[:half]}... ({len(line) - LONGEST:,} letters) ...{line[-half:]}"
    )


def printable(text: str, lines: bool = False) -> str:
    """A text from outside (of a log, a record) for a table, without anything that drives a terminal.

    >>> printable("a\\x1b[31mb\\x07c")
    'ab c'
    """
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(
        c if c.isprintable() or c in kept else " " for c in _ESCAPE.sub("", text)
    )


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte of a file name that is no UTF-8
        number -= 0xDC00
        return f"\\x{number:02x}"
    return ascii(character)[1:-1]


def missing_package(error: ImportError) -> str:
    """Return what to do about a Python package that cannot be imported.

    Returns:
      One sentence; empty if the module belongs to this suite or to Python itself, so
      that its absence is a fault of the program.
    """
    module = (error.name or "").partition(".")[0]
    if not module or module in _OWN_MODULES or module in sys.stdlib_module_names:
        return ""
    package = _PACKAGE_OF.get(module, module)
    remedy = _SET_UP_BY.get(module)
    if remedy:
        return f"{sys.executable} cannot import {package}; {remedy} installs it"
    return (
        f"{sys.executable} cannot import {package}; ./run.sh runs every command in an "
        f"environment that has it, or install it: {sys.executable} -m pip install "
        "-r requirements.txt -c constraints.txt"
    )


def _unforeseen(error: Exception, name: str) -> int:
    """Says in one line what no code had expected; 1 and 2 would be answers, so that a CI job would take it for one."""
    if isinstance(error, BrokenPipeError) or (
        isinstance(error, OSError) and error.errno == errno.ENOSPC
    ):
        raise error
    if (
        isinstance(error, OSError)
        and error.filename is not None
        and error.errno in _STATUS_OF_FILE
    ):
        return fail(
            f"{error.filename}: {error.strerror}", status=_STATUS_OF_FILE[error.errno]
        )
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    if isinstance(error, ImportError) and (sentence := missing_package(error)):
        return fail(f"{name}: {sentence}", status=EXIT_USAGE)
    what = ": ".join(
        filter(None, [type(error).__name__, *str(error).strip().splitlines()[:1]])
    )
    remedy = (
        f"this is a fault of the program: please report it; {DEBUG}=1 shows where it is"
    )
    return fail(f"{name}: {what}; {remedy}", status=EXIT_INTERNAL)


def program() -> str:
    """How the user calls commands, for what is printed to be pasted: `./run.sh`, `rnn-scaling`, ..."""
    return _program or "./run.sh"


def call_program(name: str) -> None:
    """Sets what `program` returns, unless it is known."""
    global _program
    _program = _program or name


def leave(main: Callable[[], int], at_once: bool = False) -> NoReturn:
    """Runs a command and ends the process with its exit status.

    Args:
      at_once: skip the interpreter's own clean-up, which takes seconds once TensorFlow's threads run.
    """
    try:
        if (
            signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        ):  # see the package's __init__
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _prepare_streams()
        if not at_once:  # TensorFlow's threads do not hear of it; the trainer has a handler of its own
            signal.signal(
                signal.SIGTERM, _interrupt
            )  # batch systems send it before they kill
        status = _run(main)
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # the end is near: a second Ctrl-C has nothing to stop
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
        return _unforeseen(e, "rnn_scaling")


def _prepare_streams() -> None:
    """Lets every command print: what the caller has closed goes nowhere, and not into a file that is opened later."""
    for name in (
        "stdin",
        "stdout",
        "stderr",
    ):  # in this order each takes its own number, the lowest that is free
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115, lives on
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):
            access = fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE
            if (
                access == os.O_RDONLY
            ):  # a shell has put its script where the caller had closed
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            line_buffering = stream.line_buffering
            encoding = stream.encoding
            # A terminal without ± shows ?, no traceback.
            shown = PlainText(
                stream.detach(), encoding, "replace", line_buffering=line_buffering
            )
            shown.bars = name == "stderr"
            setattr(sys, name, shown)


def _discard_output() -> None:
    """Silences the last flush of the interpreter; stdout and stderr may have no reader."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    try:
        sys.stderr.flush()
    except OSError:
        os.dup2(nowhere, sys.stderr.fileno())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
