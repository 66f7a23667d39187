"""A run of another framework: our process makes the work, then becomes the framework's Python.

The process stays the same, so that its parent can end it together with its children. What is handed over
is a file without a name, which is gone with its last reader.
"""

import os
import sys
import tempfile
from typing import IO

from rnn_scaling.config import registry
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.frameworks import handoff
from rnn_scaling.system import entry
from rnn_scaling.system.processes import other_python
from rnn_scaling.system.processes.process import our_module
from rnn_scaling.training import run as training
from rnn_scaling.training.native_log import LEVEL_VARIABLE
from rnn_scaling.training.observers import Observer

_LAUNCHER = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "RNN_SCALING_GROUP",
    "PYTHONHOME",
)


def run(config: RunConfig, observer: Observer, started: float) -> int:
    """Hands the run over and does not return, unless it fails before: then the exit status.

    observer: writes the record and prints notices. started: `time.perf_counter()` when the program started.
    """
    try:
        return _Handover(config, observer, started).run().exit_status
    except training.NotStartedError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)


class _Handover(training.Run):
    """A run up to the moment in which the framework takes its process over."""

    def __init__(self, config: RunConfig, observer: Observer, started: float) -> None:
        super().__init__(config, None, observer, started)
        self._started = started
        self._had_level = LEVEL_VARIABLE in os.environ

    def measure(self) -> None:
        try:
            from rnn_scaling.frameworks import reference  # loads TensorFlow

            file = tempfile.TemporaryFile()  # noqa: SIM115, the next process reads it
            work = reference.make(self.config, self.state, self._started)
            handoff.write(work, file)
            file.flush()
            if not self._had_level:  # the log's own, and in no record
                os.environ.pop(LEVEL_VARIABLE, None)
            _become(self.config, file, work.threads)
        except Exception as e:
            self.fail(e)


def environment(config: RunConfig, threads: int) -> dict[str, str]:
    """The variables of the framework's process; memory and what else a user sets are those of this one."""
    kept = {name: value for name, value in os.environ.items() if name not in _LAUNCHER}
    pools = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)
    )
    return {**kept, **pools, "KERAS_BACKEND": config.frameworks.keras_backend}


def _become(config: RunConfig, file: IO[bytes], threads: int) -> None:
    name = config.frameworks.framework
    python = other_python.path(name)
    os.set_inheritable(file.fileno(), True)
    os.dup2(sys.stderr.fileno(), 2)  # which TensorFlow's own messages had
    sys.stdout.flush()
    sys.stderr.flush()
    words = [
        *our_module(registry.FRAMEWORKS[name].module, python),
        f"/dev/fd/{file.fileno()}",
    ]
    os.execve(python, words, environment(config, threads))
