"""What is served and to whom: our flags, TensorBoard's own, and ours where the user gave none."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.files import input_files
from rnn_scaling.models.config import option
from rnn_scaling.settings import flags


@dataclasses.dataclass(frozen=True)
class TensorBoardOptions(flags.FileOptions):
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


def read(words: Sequence[str], groups: Sequence[type]) -> tuple[dict[str, Any], TensorBoardOptions]:
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
    input_files.allow(own.max_file_mb)
    if is_here and not folder.exists():  # it may still come
        made_by = f"{entry.program()} train --log_dir={shlex.quote(str(folder / 'NAME'))}"
        entry.warn(f"{folder} is not there yet; {made_by} makes it")
    return given, own


def _wants_folder(given: Mapping[str, Any]) -> bool:
    return not any(given.get(name) for name in ELSEWHERE)


def with_defaults(given: Mapping[str, Any], own: TensorBoardOptions) -> dict[str, Any]:
    """What TensorBoard is given: ours where the user gave none, so that only this machine may connect unless asked."""
    wanted = {
        name: value for name, value in given.items() if name not in ("profile", *flags.fields([flags.FileOptions]))
    }
    if _wants_folder(given):
        wanted.setdefault("logdir", own.logdir)
    if not own.bind_all:
        wanted.setdefault("host", own.host)
    return wanted
