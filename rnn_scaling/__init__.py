"""How training scales over devices, and why it falls short.

    import rnn_scaling

    record = rnn_scaling.run(num_devices=2, variable_update="replicated")    one run, in a process of its own
    rows = rnn_scaling.sweep("results/mine", num_devices=[1, 2], repeats=3)   many
    rows = rnn_scaling.load("results/mine")                                   what a folder of records says
    report = rnn_scaling.compare("results/before", "results/after")           is after slower?
    rnn_scaling.Recorder("run.json")                                          clock and record for a loop of your own

docs/api.md has them with examples. Importing this loads nothing else; no call loads TensorFlow into this process.
"""

from __future__ import annotations

import os
import signal
import sys

# A user's `python -m` may import this package, too.
_by_name = sys.argv[0] == "-m" and "-m rnn_scaling" in " ".join(sys.orig_argv)
if _by_name or sys.argv[0].endswith(
    "rnn-scaling"
):  # one of our programs, with nothing to keep yet
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(
            signal.SIGINT, signal.SIG_DFL
        )  # Ctrl-C ends it without a traceback, until entry.leave listens
    # The caller's folder comes last, so that its numpy.py or profile.py does not replace a library.
    sys.path.sort(key=lambda path: os.path.exists(path) and os.path.samefile(path, "."))

from typing import TYPE_CHECKING, Any  # noqa: E402, the first lines are for Ctrl-C

if TYPE_CHECKING:
    from rnn_scaling.commands.api import (
        FlagErrors,
        Recorder,
        RunFailed,
        compare,
        load,
        run,
        sweep,
    )

    __version__: str

__all__ = [
    "FlagErrors",
    "Recorder",
    "RunFailed",
    "__version__",
    "compare",
    "load",
    "run",
    "sweep",
]
# What is loaded without the other names: a user's program needs no more than this.
_MODULES = {
    "FlagErrors": "rnn_scaling.config.flags",
    "Recorder": "rnn_scaling.training.recorder",
    "RunFailed": "rnn_scaling.sweeps.invocations",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    import importlib

    if name == "__version__":
        return importlib.import_module("rnn_scaling.system.entry").VERSION
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "rnn_scaling.commands.api")
    return getattr(importlib.import_module(module), name)
