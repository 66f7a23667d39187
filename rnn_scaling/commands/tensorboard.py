"""python -m rnn_scaling tensorboard: TensorBoard with the report of the runs, and with the profiler's tab."""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib.util
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rnn_scaling.training.native_log import NativeLog

USAGE = """\
python -m rnn_scaling tensorboard [--logdir=logs] [--port=6006] ...    (or ./run.sh tensorboard)

Shows the runs that were trained with --log_dir: TensorBoard's tabs (Scalars, Graphs, Text, HParams), in the tab Report
the page that ./run.sh report makes of all runs, or of one, and with --profile the trace of --trace_batches.

    ./run.sh train --num_devices=2 --variable_update=replicated --log_dir=logs/replicated-2
    ./run.sh tensorboard                          http://localhost:6006
    ./run.sh tensorboard --logdir=logs/replicated-2 --port=6010

--logdir=DIR     the folder; every folder below it that holds event files is a run (default: logs)
--port=N         the port (default: 6006, or the next free one; 0: any free one)
--host=ADDRESS   who may connect: localhost, this machine alone (default), or an address of this machine
--bind_all       everybody who can reach this machine; nobody is asked for a password
--profile        with the tab Profile; ./run.sh installs what it needs (xprof: 40 packages, 230 MB), once
--helpfull       every flag of TensorBoard; all are passed on

The report of a run is at http://localhost:6006/data/plugin/rnn_scaling/report?run=NAME, of all runs without ?run=.
docs/tensorboard.md says what is to be seen where.

Exit status: 0 after --help, --helpfull, --version_tb or --inspect, 1 it could not start, 2 wrong use, 130 stopped with
Ctrl-C."""
DEFAULT_LOG_DIR = "logs"
EXIT_FAILED, EXIT_USAGE = 1, 2
MAX_PORT = 65_535
HELP_WORDS = ("--help", "-h", "-?", "-help")
PROFILE = "--profile"
CHATTY = ("tensorboard.plugins.profile",)  # logs every request, and a missing cache as an error with its traceback


class _RefusedError(ValueError):
    """A flag's value is not what it should be."""


class _Parser(argparse.ArgumentParser):
    """Knows TensorBoard's flags; raises where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise _RefusedError(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until Ctrl-C; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(word in HELP_WORDS for word in words):
        print(USAGE)
        return 0
    wants_profile, words = PROFILE in words, [word for word in words if word != PROFILE]
    has_profile = importlib.util.find_spec("xprof") is not None
    if wants_profile and not has_profile:
        return _fail(EXIT_FAILED, f"{PROFILE}: xprof is not installed; {_profile_command()} installs it")
    loaders = _loaders()
    parser = _parser(loaders)
    if "--helpfull" in words:
        print(parser.format_help())
        return 0
    lines = problems(words, parser)
    if not lines:
        flags = parser.parse_args(words)
        lines = _folder_problems(flags) + _port_problems(flags)
    if lines:
        return _fail(EXIT_USAGE, *lines)
    if flags.port and not flags.reuse_port and _is_taken("" if flags.bind_all else flags.host, flags.port):
        return _fail(EXIT_FAILED, f"--port={flags.port} is taken; name another, or none, to take the next free one")
    if not has_profile:
        print(f"without the tab Profile; {_profile_command()} adds it (40 packages, 230 MB)", file=sys.stderr)
    return _serve([*words, *_defaults(flags)], flags, loaders)


def _profile_command() -> str:
    """What installs the package of the tab Profile: run.sh in a clone, pip where the suite was installed."""
    if "RNN_SCALING_COMMAND" in os.environ:
        return f"{os.environ['RNN_SCALING_COMMAND']} tensorboard {PROFILE}"
    return f"{sys.executable} -m pip install 'rnn_scaling[profile]'"


def problems(words: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Everything that is wrong with a command line, one line each."""
    lines = []
    try:
        _, unknown = parser.parse_known_args(list(words))
        return [_stray(word, parser) for word in unknown]
    except _RefusedError as e:  # argparse names the first mistake alone
        first = _said(e)
    for word in words:
        try:
            _, unknown = parser.parse_known_args([word])
            lines += [_stray(each, parser) for each in unknown if each.startswith("-")]
        except _RefusedError as e:
            if "=" in word:
                lines.append(_said(e))
    return lines or [first]


def _loaders() -> list[Any]:
    """TensorBoard's plugins, those that are installed, and ours."""
    from tensorboard import default
    from tensorboard.backend import application

    from rnn_scaling.reports.tensorboard.report_plugin import ReportPlugin

    return [application.make_plugin_loader(plugin) for plugin in [*default.get_plugins(), ReportPlugin]]


def _parser(loaders: Sequence[Any]) -> argparse.ArgumentParser:
    parser = _Parser(prog="./run.sh tensorboard", usage="%(prog)s [--name=value ...]", add_help=False)
    for loader in loaders:
        loader.define_flags(parser)
    return parser


def _said(error: _RefusedError) -> str:
    """ "argument --port: invalid int value: 'x'" in the words of the other commands."""
    text = str(error).removeprefix("argument ").replace("<lambda> value", "value")
    return f"{text}; --help explains"


def _stray(word: str, parser: argparse.ArgumentParser) -> str:
    if not word.startswith("-"):
        return f"unexpected word {word!r}; a log folder is given as --logdir={word}"
    name = word.split("=")[0]
    known = [option for action in parser._actions for option in action.option_strings]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {close[0]}?" if close else "--helpfull lists the flags"
    return f"{name} is not a flag; {hint}"


def _folder_problems(flags: argparse.Namespace) -> list[str]:
    """What is wrong with the log folder. One that is not there yet may still come: that is a warning."""
    folder = Path(flags.logdir or DEFAULT_LOG_DIR).expanduser()
    if not _wants_folder(flags) or "://" in str(flags.logdir):
        return []
    if folder.exists() and not folder.is_dir():
        return [f"--logdir={folder} is a file; name the folder that it is in"]
    if not folder.exists():
        print(f"warning: {folder} is not there yet; ./run.sh train --log_dir={folder}/NAME makes it", file=sys.stderr)
    return []


def _port_problems(flags: argparse.Namespace) -> list[str]:
    if flags.port is None or 0 <= flags.port <= MAX_PORT:
        return []
    return [f"--port={flags.port} must be from 0 to {MAX_PORT}; 0 takes any free port"]


def _is_taken(host: str, port: int) -> bool:
    """True if another program listens there; found out before TensorBoard loads, which takes seconds."""
    try:
        addresses = socket.getaddrinfo(host or "localhost", port, type=socket.SOCK_STREAM)
    except OSError:  # an unknown host: TensorBoard says so
        return False
    for family, kind, protocol, _, address in addresses:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port just left is free
            try:
                probe.bind(address)
            except OSError as e:
                if e.errno == errno.EADDRINUSE:
                    return True
    return False


def _wants_folder(flags: argparse.Namespace) -> bool:
    return not (flags.logdir_spec or flags.db or flags.version_tb or flags.inspect or flags.grpc_data_provider)


def _defaults(flags: argparse.Namespace) -> list[str]:
    """The flags that are ours where the user gave none."""
    words = []
    if not flags.logdir and _wants_folder(flags):
        words.append(f"--logdir={DEFAULT_LOG_DIR}")
    if not flags.host and not flags.bind_all:
        words.append("--host=localhost")
    return words


def _serve(words: Sequence[str], flags: argparse.Namespace, loaders: Sequence[Any]) -> int:
    from tensorboard import program
    from tensorboard.plugins.base_plugin import FlagsError

    NativeLog()  # the profiler's tab loads TensorFlow, which greets at length, and logs in C++ for every request
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    board = program.TensorBoard(plugins=loaders)
    try:
        board.configure(["", *words])
        if flags.version_tb or flags.inspect:
            return board.main()
        url = board.launch()
    except FlagsError as e:
        return _fail(EXIT_USAGE, str(e))
    except program.TensorBoardServerException as e:
        return _fail(EXIT_FAILED, e.msg)
    print(f"{url}  (Ctrl-C stops it)", flush=True)
    threading.Event().wait()
    return 0


def _fail(status: int, *lines: str) -> int:
    for line in lines:
        print(f"error: {line}", file=sys.stderr)
    return status
