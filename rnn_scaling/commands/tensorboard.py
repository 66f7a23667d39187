"""python -m rnn_scaling tensorboard: TensorBoard with the report of the runs, and with the profiler's tab."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.reports.tensorboard import command_line
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


@entry.command
def main(words: Sequence[str]) -> int:
    """Serves until Ctrl-C; returns the exit status."""
    if "--helpfull" not in words:
        flags.answer(words, USAGE, [command_line.TensorBoardOptions], "tensorboard")
    from rnn_scaling.reports.tensorboard import serving

    plugins = serving.loaders()
    groups = [
        command_line.TensorBoardOptions,
        serving.options(plugins, without=list(flags.fields([command_line.TensorBoardOptions]))),
    ]
    flags.answer(words, USAGE, groups, "tensorboard")
    given, own = command_line.read(words, groups)
    has_profile = importlib.util.find_spec("xprof") is not None
    if own.profile and not has_profile:
        return entry.fail(f"--profile: xprof is not installed; {_profile_command()} installs it")
    if own.port and given.get("reuse_port") != "true" and serving.is_taken("" if own.bind_all else own.host, own.port):
        return entry.fail(f"--port={own.port} is taken; name another, or none, to take the next free one")
    if not has_profile:
        print(f"without the tab Profile; {_profile_command()} adds it (40 packages, 230 MB)", file=sys.stderr)
    from rnn_scaling.training.native_log import NativeLog

    NativeLog()  # the profiler's tab loads TensorFlow, which greets at length, and logs in C++ for every request
    return serving.serve(serving.spell(command_line.with_defaults(given, own)), plugins)


def _profile_command() -> str:
    """What installs the package of the tab Profile: run.sh in a clone, pip where the suite was installed."""
    if entry.program().endswith("run.sh"):
        return f"{entry.program()} tensorboard --profile"
    return f"{sys.executable} -m pip install 'rnn_scaling[profile]'"
