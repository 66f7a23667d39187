"""python -m rnn_scaling tensorboard: TensorBoard with the report of the runs, and with the profiler's tab."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.config import option
from rnn_scaling import entry
from rnn_scaling.settings import flags

USAGE = """\
Shows the runs that were trained with --log_dir: TensorBoard's tabs (Scalars, Graphs, Text, HParams), in the tab Report
the page that ./run.sh report makes of all runs, or of one, and with --profile the trace of --trace_batches.

    ./run.sh train --num_devices=2 --variable_update=replicated --log_dir=logs/replicated-2
    ./run.sh tensorboard                          http://localhost:6006
    ./run.sh tensorboard --logdir=logs/replicated-2 --port=6010

The report of a run is at http://localhost:6006/data/plugin/rnn_scaling/report?run=NAME, of all runs without ?run=.
docs/tensorboard.md says what is to be seen where.

Exit status: 0 after --help, --helpfull, --version_tb or --inspect, 1 it could not start, 2 wrong use, 130 stopped with
Ctrl-C."""


@dataclasses.dataclass(frozen=True)
class TensorBoardOptions:
    """TensorBoard; all flags of its own are passed on, --helpfull lists them."""

    logdir: str = option("logs", "the folder; every folder below it that holds event files is a run", shown="DIR")
    port: int | None = option(
        None, "the port (default: 6006, or the next free one; 0: any free one)", minimum=0, maximum=65_535
    )
    host: str = option(
        "localhost", "who may connect: localhost, this machine alone, or an address of this machine", shown="ADDRESS"
    )
    bind_all: bool = option(False, "everybody who can reach this machine may connect; nobody is asked for a password")
    profile: bool = option(
        False, "with the tab Profile; run.sh installs what it needs (xprof: 40 packages, 230 MB), once"
    )


ELSEWHERE = ("logdir_spec", "db", "version_tb", "inspect", "grpc_data_provider")  # flags that need no log folder


@entry.command
def main(words: Sequence[str]) -> int:
    """Serves until Ctrl-C; returns the exit status."""
    if "--helpfull" not in words:
        flags.answer(words, USAGE, [TensorBoardOptions], "tensorboard")
    from rnn_scaling.reports.tensorboard import serving

    plugins = serving.loaders()
    groups = [TensorBoardOptions, serving.options(plugins, without=list(flags.fields([TensorBoardOptions])))]
    flags.answer(words, USAGE, groups, "tensorboard")
    given, own = _read(words, groups)
    has_profile = importlib.util.find_spec("xprof") is not None
    if own.profile and not has_profile:
        return entry.fail(f"--profile: xprof is not installed; {_profile_command()} installs it")
    if own.port and given.get("reuse_port") != "true" and serving.is_taken("" if own.bind_all else own.host, own.port):
        return entry.fail(f"--port={own.port} is taken; name another, or none, to take the next free one")
    if not has_profile:
        print(f"without the tab Profile; {_profile_command()} adds it (40 packages, 230 MB)", file=sys.stderr)
    from rnn_scaling.training.native_log import NativeLog

    NativeLog()  # the profiler's tab loads TensorFlow, which greets at length, and logs in C++ for every request
    return serving.serve(serving.spell(_with_defaults(given, own)), plugins)


def _read(words: Sequence[str], groups: Sequence[type]) -> tuple[dict[str, Any], TensorBoardOptions]:
    """The flags that were given, and ours with their defaults.

    Raises:
      FlagErrors: naming everything that is wrong.
    """
    lines: list[str] = []
    try:
        given = flags.parse(words, flags.fields(groups))
    except flags.FlagErrors as e:
        given, lines = e.given, e.lines
    folder = Path(given.get("logdir", TensorBoardOptions.logdir)).expanduser()
    is_here = _wants_folder(given) and "://" not in str(given.get("logdir"))
    if is_here and folder.exists() and not folder.is_dir():
        lines.append(f"--logdir={folder} is a file; name the folder that it is in")
    own = flags.build(groups, given, lines)[0]
    if is_here and not folder.exists():  # it may still come
        made_by = f"{entry.program()} train --log_dir={folder}/NAME"
        print(f"warning: {folder} is not there yet; {made_by} makes it", file=sys.stderr)
    return given, own


def _wants_folder(given: Mapping[str, Any]) -> bool:
    return not any(given.get(name) for name in ELSEWHERE)


def _with_defaults(given: Mapping[str, Any], own: TensorBoardOptions) -> dict[str, Any]:
    """What TensorBoard is given: ours where the user gave none, so that only this machine may connect unless asked."""
    wanted = {name: value for name, value in given.items() if name != "profile"}
    if _wants_folder(given):
        wanted.setdefault("logdir", own.logdir)
    if not own.bind_all:
        wanted.setdefault("host", own.host)
    return wanted


def _profile_command() -> str:
    """What installs the package of the tab Profile: run.sh in a clone, pip where the suite was installed."""
    if os.environ.get(entry.PROGRAM) == "./run.sh":
        return "./run.sh tensorboard --profile"
    return f"{sys.executable} -m pip install 'rnn_scaling[profile]'"
