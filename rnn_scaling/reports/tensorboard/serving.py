"""TensorBoard with our plugin: its flags as options of ours, and the server."""

from __future__ import annotations

import argparse
import dataclasses
import errno
import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling import entry
from rnn_scaling.models.config import option

CHATTY = ("tensorboard.plugins.profile",)  # logs every request, and a missing cache as an error with its traceback


def loaders() -> list[Any]:
    """TensorBoard's plugins, those that are installed, and ours."""
    from tensorboard import default
    from tensorboard.backend import application

    from rnn_scaling.reports.tensorboard.report_plugin import ReportPlugin

    return [application.make_plugin_loader(plugin) for plugin in [*default.get_plugins(), ReportPlugin]]


def options(plugins: Sequence[Any], without: Sequence[str] = ()) -> type:
    """The flags of TensorBoard and its plugins as an option dataclass; values stay text, for TensorBoard to parse.

    Args:
      plugins: from `loaders`.
    """
    parser = argparse.ArgumentParser(add_help=False)
    for plugin in plugins:
        plugin.define_flags(parser)
    declared = [
        (action.dest, "bool" if action.nargs == 0 else "str", _option(action))
        for action in parser._actions
        if action.dest not in without
    ]
    made = dataclasses.make_dataclass("TensorBoardFlags", declared, frozen=True)
    made.__doc__ = "TensorBoard's own."
    return made


def _option(action: argparse.Action) -> Any:
    """One flag of argparse as an option of ours."""
    text = " ".join(((action.help or "") % vars(action)).split()) or "see TensorBoard's documentation"
    text += "" if "default: " in text else " (default: TensorBoard's)"
    return option(False, text) if action.nargs == 0 else option("", text, parse=_checked(action))


def _checked(action: argparse.Action) -> Callable[[str], str]:
    kind: Callable[[str], Any] = action.type if callable(action.type) else str
    choices = list(action.choices or ())

    def parse(text: str) -> str:
        try:
            value = kind(text)
        except (argparse.ArgumentTypeError, TypeError, ValueError):
            raise ValueError("a whole number" if action.type is int else "what TensorBoard can read") from None
        if choices and value not in choices:
            raise ValueError(f"one of {', '.join(str(choice).lower() for choice in choices)}")
        return text

    return parse


def spell(given: Mapping[str, Any]) -> list[str]:
    """Flags as TensorBoard reads them: one that takes no value stands without."""
    words = []
    for name, value in given.items():
        words += [f"--{name}={value}"] if not isinstance(value, bool) else [f"--{name}"] if value else []
    return words


def is_taken(host: str, port: int) -> bool:
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


def serve(words: Sequence[str], plugins: Sequence[Any]) -> int:
    """Serves until Ctrl-C, or answers --inspect and --version_tb.

    Args:
      plugins: from `loaders`.

    Returns:
      The exit status.

    Raises:
      Refusal: if it cannot start.
    """
    from tensorboard import program
    from tensorboard.plugins.base_plugin import FlagsError

    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    board = program.TensorBoard(plugins=plugins)
    try:
        board.configure(["", *words])
        if board.flags.version_tb or board.flags.inspect:
            return board.main()
        url = board.launch()
    except FlagsError as e:
        raise entry.Refusal(str(e)) from None
    except program.TensorBoardServerException as e:
        raise entry.Refusal(e.msg, status=entry.EXIT_FAILED) from None
    print(f"{url}  (Ctrl-C stops it)", flush=True)
    threading.Event().wait()
    return entry.EXIT_OK
