"""python -m rnn_scaling tensorboard: TensorBoard on runs trained with --log_dir.

It starts TensorBoard's own program; `reports.tensorboard` writes the files that it
shows.
"""

import dataclasses
import importlib.util
import logging
import re
import shlex
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

USAGE = """\
Starts TensorBoard on the runs that were trained with --log_dir: Scalars, Graphs and
Text, and with --profile the trace of --trace_batches. All other flags are passed on to
TensorBoard; --helpfull lists them.

    ./run.sh train --num_devices=2 --variable_update=replicated \\
        --log_dir=logs/replicated-2
    ./run.sh tensorboard                          http://localhost:6006
    ./run.sh tensorboard --logdir=logs/replicated-2 --port=6010

docs/inspect.md describes each tab. `./run.sh report DIR` makes the report of a folder
of records.

Exit status: 0 after --help, --helpfull, --version_tb or --inspect; 1 it could not
start; 2 wrong use; 130 stopped with Ctrl-C."""

# These flags replace --logdir.
_WITHOUT_FOLDER = ("--logdir_spec", "--db", "--version_tb", "--grpc_data_provider")
# It logs every request, and a missing cache with a traceback.
_LOUD_LOGGERS = ("tensorboard.plugins.profile",)


@dataclasses.dataclass(frozen=True)
class TensorBoardOptions:
    """TensorBoard."""

    logdir: str = option(
        "logs",
        "folder to show; every folder in it that contains event files is a "
        "run; --log_dir is another name of this flag",
        shown="DIR",
    )
    port: int | None = option(
        None,
        "port to listen on; 0: any free port (default: 6006, or the next free port)",
        minimum=0,
        maximum=65_535,
    )
    host: str = option(
        "localhost",
        "address to listen on; localhost accepts only this machine",
        shown="ADDRESS",
    )
    bind_all: bool = option(
        False, "listen on all addresses; TensorBoard does not ask for a password"
    )
    profile: bool = option(
        False,
        "show the Profile tab; run.sh installs the packages for it once (xprof: 40 "
        "packages, 230 MB)",
    )


@entry.command
def main(words: Sequence[str]) -> int:
    """Run the command; return its exit status."""
    if "--helpfull" not in words:
        flags.answer(words, USAGE, [TensorBoardOptions], "tensorboard")
    options, passed_on = split(words)
    if options.profile and importlib.util.find_spec("xprof") is None:
        return entry.fail(
            f"--profile: xprof is not installed; {_make_profile_command()} installs it"
        )
    return _serve(make_tensorboard_command(options, passed_on))


def split(words: Sequence[str]) -> tuple[TensorBoardOptions, list[str]]:
    """Return this command's options, and the words that TensorBoard parses."""
    fields = flags.collect_fields([TensorBoardOptions])
    own_words: list[str] = []
    passed_on: list[str] = []
    for word in words:
        # The trainer's name of the same folder.
        word = re.sub("^--log_dir(?==|$)", "--logdir", word)
        name = word.removeprefix("--").removeprefix("no").partition("=")[0]
        (own_words if name in fields else passed_on).append(word)
    (options,) = flags.build(
        [TensorBoardOptions], *flags.parse_with_errors(own_words, fields)
    )
    return options, passed_on


def make_tensorboard_command(
    options: TensorBoardOptions, passed_on: Sequence[str]
) -> list[str]:
    """Return the command line of TensorBoard.

    Only this machine may connect unless the user allows others.
    """
    words = list(passed_on)
    if not any(word.startswith(_WITHOUT_FOLDER) for word in words):
        _check_folder(options.logdir)
        words.append(f"--logdir={options.logdir}")
    words.append("--bind_all" if options.bind_all else f"--host={options.host}")
    if options.port is not None:
        words.append(f"--port={options.port}")
    return words


def _check_folder(logdir: str) -> None:
    if "://" in logdir:  # TensorBoard reads remote folders itself
        return
    folder = Path(logdir).expanduser()
    if folder.is_file():
        raise entry.Refusal(
            f"--logdir={folder} is a file; name the folder that contains it"
        )
    if not folder.exists():
        command = f"{entry.get_program_name()} train --log_dir={shlex.quote(str(folder / 'NAME'))}"
        entry.warn(f"--logdir={folder} does not exist yet; {command} creates it")


def _serve(words: Sequence[str]) -> int:
    """Serve until Ctrl-C, or answer --inspect, --version_tb and --helpfull."""
    from tensorboard import default, program
    from tensorboard.plugins.base_plugin import FlagsError

    from rnn_scaling.training.native_log import NativeLog

    NativeLog()  # the tab Profile loads TensorFlow, whose C++ code would log every request
    for name in _LOUD_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    board = program.TensorBoard(plugins=default.get_plugins())
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


def _make_profile_command() -> str:
    """Return the command that installs xprof, in a clone or an installation."""
    if entry.get_program_name().endswith("run.sh"):
        return f"{entry.get_program_name()} tensorboard --profile"
    return f"{sys.executable} -m pip install 'rnn_scaling[profile]'"
