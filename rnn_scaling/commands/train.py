"""python -m rnn_scaling train: one run, with a table and a record.

Flags become a configuration, whose conflicts end the command with status 2;
`training.run` returns the record, and the record becomes the table.

It only parses, runs and prints; observers (`run_files`, progress, inspection) write
files.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.system import entry

# Loaded in functions, because entry.leave handles Ctrl-C only after this file is
# loaded.
if TYPE_CHECKING:
    from rnn_scaling.cluster.launch import Launch
    from rnn_scaling.config.run_config import RunConfig
    from rnn_scaling.training.observers import Observer
    from rnn_scaling.training.run import RunResult

USAGE = """\
Trains a network on one or more devices and reports its speed in words, tokens or images
per second.

    ./run.sh train
    ./run.sh train --variable_update=replicated --num_devices=2
    ./run.sh train --model=lm --device=gpu --num_devices=0
    ./run.sh train --decode --beam_size=4    translates; docs/train.md

Exit status: 0 done; 1 the run failed; 2 wrong flags; 130 interrupted."""

_KEPT_BYTES = "4000000000"  # no array is larger
_STARTED = time.perf_counter()


@entry.command
def main(words: Sequence[str]) -> int:
    """Run a command line; return its exit status."""
    from rnn_scaling.cluster.failure import ClusterError
    from rnn_scaling.config import flags, naming
    from rnn_scaling.config import run_config as configs

    flags.answer(words, USAGE, configs.GROUPS, "train")
    try:
        config, launch = read_configuration(words)
        _keep_memory(config)
        if config.frameworks.framework != naming.OWN_FRAMEWORK:
            from rnn_scaling.commands.run_files import Notices, RecordFiles
            from rnn_scaling.frameworks import starting
            from rnn_scaling.training.observers import Observers

            observers = Observers([RecordFiles(config.output), Notices()])
            return starting.run(config, observers, _STARTED)
        return measure(config, launch)
    except ClusterError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)


def measure(config: RunConfig, launch: Launch | None) -> int:
    """Run once, and print the result at rank 0; return the exit status."""
    from rnn_scaling.training import run as training
    from rnn_scaling.training.observers import Observers

    observers = _make_observers(training.make_rank_config(config, launch), launch)
    try:
        result = training.run(config, launch, Observers(list(observers)), _STARTED)
    except training.NotStartedError as e:
        return entry.fail(str(e), status=entry.EXIT_USAGE)
    if result.record.status == "ok" and _is_first(launch):
        _print_result(result)
    return result.exit_status


def _is_first(launch: Launch | None) -> bool:
    return launch is None or launch.rank == 0


def _make_observers(config: RunConfig, launch: Launch | None) -> Iterator[Observer]:
    """Yield the observers of a run; each loads TensorFlow only when the run begins."""
    from rnn_scaling.commands.run_files import EventFiles, Notices, RecordFiles
    from rnn_scaling.inspection.step_inspection import StepInspection
    from rnn_scaling.training.progress import ProgressLine

    yield RecordFiles(config.output)
    yield Notices()
    yield ProgressLine()
    if config.output.log_dir and _is_first(launch):
        yield EventFiles(config.output.log_dir)
    yield StepInspection()


def _print_result(result: RunResult) -> None:
    """Print the table of a run on stdout, and cautions about it on stderr."""
    from rnn_scaling.analysis import learning
    from rnn_scaling.reports import steady_state, table
    from rnn_scaling.system.files.terminal import print_fitted

    record = result.record
    entry.warn(*result.cautions)
    if record.steady_state:
        entry.note(steady_state.run_text(record))
    if growth := learning.find_loss_growth(record.batches.loss):
        entry.warn(f"the loss grew {growth:,.3g}-fold: {learning.REMEDY}")
    print_fitted(table.render_runs([record]))


def read_configuration(
    words: Sequence[str], defaults: Mapping[str, Any] | None = None
) -> tuple[RunConfig, Launch | None]:
    """Read a command line.

    Args:
      words: The command line.
      defaults: Values that replace the defaults of the trainer.

    Returns:
      The configuration of the run, and the rank of this process; None instead of the
      rank if no launcher started several processes.

    Raises:
      FlagErrors: If anything is wrong; it names everything.
    """
    from rnn_scaling.cluster import launch as launches
    from rnn_scaling.config import conflicts, flags
    from rnn_scaling.config import run_config as configs
    from rnn_scaling.system.machine.cores import list_available_cores, share_of_cores
    from rnn_scaling.system.machine.gpus import count_visible_gpus

    options, lines = flags.parse_with_errors(words, configs.OPTIONS)
    options = {**(defaults or {}), **options}
    address = str(options.get("coordinator_address", ""))
    launch = launches.detect_launch(os.environ, address, socket.gethostname())
    num_gpus = count_visible_gpus()
    num_cores = len(list_available_cores())
    if launch is not None:
        num_cores = share_of_cores(launch.local_size)
        # Otherwise the launcher chose the GPUs of this process.
        if "CUDA_VISIBLE_DEVICES" not in os.environ:
            num_gpus = -(-num_gpus // launch.local_size)
        options = configs.add_launcher_size(options, launch.size, launch.num_ps)
    config = configs.resolve(options, num_gpus=num_gpus, num_cores=num_cores)
    lines += conflicts.find_problems(config, options, num_gpus=num_gpus)
    lines += filter(None, [conflicts.keeps_trace(config)])
    # Only a mode without conflicts has a number of processes.
    if lines := lines or [*check_start(config, launch)]:
        raise flags.FlagErrors(lines)
    if _is_first(launch) and configs.find_implied_options(options):
        entry.note(
            "--data_source=host is assumed: --prefetch_data_to_device needs batches "
            "that the host makes"
        )
    devices = config.devices
    is_default = launch is None and "num_devices" not in options
    if is_default and devices.device == "gpu" and num_gpus > devices.num_devices:
        entry.note(
            f"--num_devices={devices.num_devices} is assumed, but {num_gpus} GPUs are "
            "visible; --num_devices=0 uses all"
        )
    return config, launch


def check_start(config: RunConfig, launch: Launch | None) -> Iterator[str]:
    """Yield at most one reason why a run cannot start with the existing processes.

    Args:
      config: The configuration of the run.
      launch: The rank of this process; None if no launcher started several processes.
    """
    mode_flag = f"--variable_update={config.update.variable_update}"
    num_needed = config.num_processes
    if launch is None:
        if num_needed > 1:
            need = _describe_need(config)
            yield f"{need}, but only one was started; {_launch_command(config)}"
        return
    num_ps = config.list_roles().count("ps")
    if not config.mode.is_distributed:
        yield (
            f"{mode_flag} runs in one process, but {launch.launcher} started "
            f"{launch.size}, which would all do the same work; use a mode of several "
            "workers, such as collective_all_reduce, or start one process"
        )
    elif launch.size != num_needed:
        yield (
            f"{_describe_need(config)}, but {launch.launcher} started {launch.size}; "
            f"start {num_needed}, or change these flags"
        )
    elif launch.num_ps not in (None, num_ps):
        yield (
            f"{mode_flag}: the number of parameter servers must be {num_ps}, but is "
            f"{launch.num_ps} in {launch.launcher}; list {num_ps} there, or change "
            "--num_ps"
        )


def _describe_need(config: RunConfig) -> str:
    """Return how many processes the flags need."""
    roles = config.list_roles()
    flags = f"--num_workers={config.cluster.num_workers}"
    if "ps" in roles:
        flags += f" and --num_ps={config.cluster.num_ps}"
    coordinator = " (one of them the coordinator)" if "coordinator" in roles else ""
    mode = f"--variable_update={config.update.variable_update}"
    return f"{flags} with {mode} need {len(roles)} processes{coordinator}"


def _launch_command(config: RunConfig) -> str:
    """Return the commands that start enough processes."""
    servers = f" --ps={config.cluster.num_ps}" if "ps" in config.list_roles() else ""
    workers = config.cluster.num_workers
    count = config.num_processes
    return (
        f"use ./run.sh local-cluster --workers={workers}{servers} -- ... on this "
        f"machine, or mpirun -np {count} or srun -n {count} on several"
    )


def _keep_memory(config: RunConfig) -> None:
    """Start the program again if glibc has to keep freed memory.

    glibc reads these variables only when a process starts.
    """
    if config.frameworks.malloc != "keep":
        return
    variables = {
        "MALLOC_TRIM_THRESHOLD_": _KEPT_BYTES,
        "MALLOC_MMAP_THRESHOLD_": _KEPT_BYTES,
    }
    if any(os.environ.get(name) != value for name, value in variables.items()):
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **variables})
