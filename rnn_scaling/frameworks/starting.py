"""Start a run of another framework: this process becomes the framework's Python.

The process stays the same, so that its parent can end it together with its children.
The task is in a file without a name, which is deleted with its last reader.
"""

import os
import sys
import tempfile
from typing import IO

from rnn_scaling.config import registry
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.frameworks import handoff
from rnn_scaling.system import entry
from rnn_scaling.system.machine.onednn import ONEDNN_VARIABLE
from rnn_scaling.system.processes import other_python
from rnn_scaling.system.processes.process import make_module_command
from rnn_scaling.training import run as training
from rnn_scaling.training.native_log import LEVEL_VARIABLE
from rnn_scaling.training.observers import Observer

# Variables by which a framework would take this process for a rank of a launcher.
_LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "RNN_SCALING_GROUP",
    "PYTHONHOME",
)


def run(config: RunConfig, observer: Observer, started: float) -> int:
    """Replace this process with the framework's.

    Args:
      observer: Writes the record and prints notices.
      started: `time.perf_counter()` at the start of the program.

    Returns:
      The exit status, if the run fails before the process is replaced.
    """
    try:
        return _Handover(config, observer, started).run().exit_status
    except training.NotStartedError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)


class _Handover(training.Run):
    """A run until the framework replaces the process.

    `measure` runs in the working thread of `training.Run`. If it succeeds, exec ends
    both threads, and the framework's program continues the record (`frameworks.loop`).
    So `run` only returns if the run failed.
    """

    def __init__(self, config: RunConfig, observer: Observer, started: float) -> None:
        super().__init__(config, None, observer, started)
        self._started = started
        self._user_variables = set(os.environ)

    def measure(self) -> None:
        """Write the task, and replace this process."""
        try:
            from rnn_scaling.frameworks import reference  # loads TensorFlow

            file = tempfile.TemporaryFile()  # noqa: SIM115, the next process reads it
            task = reference.make_task(self.config, self.state, self._started)
            handoff.write(task, file)
            file.flush()
            # The suite set these for its own TensorFlow. The framework must not inherit
            # them unless the user has set them.
            frameworks = self.config.frameworks
            own_variables = [LEVEL_VARIABLE]
            is_tensorflow = frameworks.framework == "keras" and (
                frameworks.keras_backend == "tensorflow"
            )
            if not is_tensorflow:
                own_variables.append(ONEDNN_VARIABLE)
            for name in own_variables:
                if name not in self._user_variables:
                    os.environ.pop(name, None)
            _replace_process(self.config, file, task.threads)
        except Exception as e:
            self.fail(e)


def make_environment(config: RunConfig, threads: int) -> dict[str, str]:
    """Return the environment of this process without the launcher's variables."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in _LAUNCHER_VARIABLES
    }
    pools = dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)
    )
    return {**inherited, **pools, "KERAS_BACKEND": config.frameworks.keras_backend}


def _replace_process(config: RunConfig, file: IO[bytes], threads: int) -> None:
    """Replace this process with the framework's program, which reads `file`.

    On success it does not return.
    """
    name = config.frameworks.framework
    python = other_python.find_python(name)
    os.set_inheritable(file.fileno(), True)
    # Descriptor 2 received TensorFlow's own messages until now.
    os.dup2(sys.stderr.fileno(), 2)
    sys.stdout.flush()
    sys.stderr.flush()
    command = [
        *make_module_command(registry.FRAMEWORKS[name].module, python),
        f"/dev/fd/{file.fileno()}",
    ]
    os.execve(python, command, make_environment(config, threads))
