"""How training scales over devices, and why it falls short.

    import rnn_scaling

    # One run, in another process.
    record = rnn_scaling.run(num_devices=2, variable_update="replicated")
    # Many runs.
    rows = rnn_scaling.sweep("results/mine", num_devices=[1, 2], repeats=3)
    # The records of a folder.
    rows = rnn_scaling.load("results/mine")
    # Is `after` slower?
    report = rnn_scaling.compare("results/before", "results/after")
    # The clock and record of your own training loop.
    recorder = rnn_scaling.Recorder("run.json")

docs/api.md has examples. This import loads nothing else, and no call loads TensorFlow
into this process.
"""

from __future__ import annotations

import os
import signal
import sys

# Another program that runs with `python -m` may also import this package.
_is_module = sys.argv[0] == "-m" and "-m rnn_scaling" in " ".join(sys.orig_argv)
if _is_module or sys.argv[0].endswith("rnn-scaling"):
    # Until entry.leave handles Ctrl-C, it ends the program without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The caller's folder comes last, so that its numpy.py does not replace a library.
    sys.path.sort(key=lambda path: os.path.exists(path) and os.path.samefile(path, "."))

from typing import TYPE_CHECKING, Any  # noqa: E402, the first lines are for Ctrl-C

if TYPE_CHECKING:
    from rnn_scaling.commands.api import (
        FlagErrors,
        Recorder,
        RunFailed,
        answer,
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
    "answer",
    "compare",
    "load",
    "run",
    "sweep",
]
# Names with their own module, so that a user's program loads no other.
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
