"""A run of another framework: our process makes the work, then becomes the framework's Python.

The process stays the same, so that its parent can end it together with its children. What is handed over
is a file without a name, which is gone with its last reader.
"""

import os
import signal
import sys
import tempfile
import threading
from typing import IO

from rnn_scaling import entry, registry
from rnn_scaling.processes import other_python
from rnn_scaling.processes.process import our_module
from rnn_scaling.records import record
from rnn_scaling.records.parts import RunError
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.trainers import handoff
from rnn_scaling.trainers.loop import interrupt
from rnn_scaling.training.native_log import LEVEL_VARIABLE, NativeLog
from rnn_scaling.training.preparation import prepare_process
from rnn_scaling.training.recording import killed
from rnn_scaling.training.session import TICK_S, describe
from rnn_scaling.training.state import RunState

_LAUNCHER = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RNN_SCALING_GROUP", "PYTHONHOME")


def run(config: RunConfig, started: float) -> int:
    """Hands the run over and does not return, unless it fails before: then the exit status.

    started: `time.perf_counter()` when the program started.
    """
    state = RunState(config, started=started)
    if not _save(config, state, "failed", killed()):
        return entry.EXIT_USAGE
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupt)
    native_log, had_level = None, LEVEL_VARIABLE in os.environ
    try:
        prepare_process(config, state, None)
        native_log = NativeLog()
        file = _made(config, state, started)
        if not had_level:  # the log's own, and in no record
            os.environ.pop(LEVEL_VARIABLE, None)
        _become(config, file, state)
    except KeyboardInterrupt as e:
        message = str(e) or "interrupted by SIGINT"
        entry.note(f"\n{message}")
        _save(config, state, "interrupted", RunError(type="Interrupted", message=message))
        return entry.EXIT_INTERRUPTED
    except Exception as e:
        kind, message, is_expected = describe(e, config)
        if native_log is not None and not is_expected:
            print(native_log.tail(), file=sys.stderr)
        _save(config, state, "failed", RunError(type=kind, message=message))
        return entry.fail(message)
    return entry.EXIT_FAILED  # not reached: the process is another


def environment(config: RunConfig, threads: int) -> dict[str, str]:
    """The variables of the framework's process; memory and what else a user sets are those of this one."""
    kept = {name: value for name, value in os.environ.items() if name not in _LAUNCHER}
    pools = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    return {**kept, **pools, "KERAS_BACKEND": config.frameworks.keras_backend}


def _made(config: RunConfig, state: RunState, started: float) -> IO[bytes]:
    """The work as a file; TensorFlow is busy in a thread, so that this one can answer Ctrl-C."""
    file, errors = tempfile.TemporaryFile(), []  # noqa: SIM115, the next process reads it

    def make() -> None:
        try:
            from rnn_scaling.trainers import reference  # loads TensorFlow

            handoff.write(reference.make(config, state, started), file)
            file.flush()
        except Exception as e:
            errors.append(e)

    worker = threading.Thread(target=make, daemon=True)
    worker.start()
    while worker.is_alive():
        worker.join(TICK_S)
    if errors:
        raise errors[0]
    return file


def _become(config: RunConfig, file: IO[bytes], state: RunState) -> None:
    name = config.frameworks.framework
    python, devices = other_python.path(name), config.devices
    cores = len(state.resolved["cpu_affinity"])
    threads = devices.cpu_cores_per_device if devices.device == "cpu" else max(1, cores // devices.num_devices)
    os.set_inheritable(file.fileno(), True)
    os.dup2(sys.stderr.fileno(), 2)  # which TensorFlow's own messages had
    sys.stdout.flush()
    sys.stderr.flush()
    words = [*our_module(registry.FRAMEWORKS[name].module, python), f"/dev/fd/{file.fileno()}"]
    os.execve(python, words, environment(config, threads))


def _save(config: RunConfig, state: RunState, status: str, error: RunError) -> bool:
    path = config.output.result_file
    try:
        if path:
            record.write(state.record(status, error), path)
    except OSError as e:
        entry.fail(f"--result_file={path}: {e.strerror or e}; the record was not written")
        return False
    return True
