"""The command line of a run for every trainer: its words, variables and cores.

This suite's trainer gets flags; with --framework it trains in another framework. A
program of the user gets the values of the run in the places of its command.

Programs of users read the three RNN_SCALING variables (docs/any_trainer.md): never
rename one. hooks/trace.py repeats the name of RESULT_VARIABLE.
"""

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps import placeholders
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import PROGRESS, RESULT_VARIABLE
from rnn_scaling.system.machine import gpus
from rnn_scaling.system.machine.cores import list_first_cores
from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.process import Task

TRAINER = process.make_module_command("rnn_scaling.train")
LOCAL_CLUSTER = "local-cluster"
GPU_VARIABLE = "CUDA_VISIBLE_DEVICES"
# With these variables a program of the user gets the facts of its run.
DEVICES_VARIABLE = "RNN_SCALING_NUM_DEVICES"
_REPEAT_VARIABLE = "RNN_SCALING_REPEAT"


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """A process and what it needs to start."""

    words: Sequence[str]
    # Added to the variables of this process.
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cores: Sequence[int] = ()  # empty if the process may use all cores
    # A shorter line for people that makes the same run, or an empty text.
    typed: str = ""

    @property
    def text(self) -> str:
        """The line that a person would type to make the same run."""
        parts = []
        if GPU_VARIABLE in self.variables:
            parts.append(f"{GPU_VARIABLE}={self.variables[GPU_VARIABLE]}")
        if self.cores:
            parts.append(f"taskset -c {','.join(map(str, self.cores))}")
        parts.append(self.typed or shlex.join(self.words))
        return " ".join(parts)

    def make_task(self, **settings: Any) -> Task:
        """Return the task of this process, with more fields of `Task`."""
        return Task(self.words, self.variables, self.cores, **settings)


def format_flags(options: Mapping[str, Any]) -> list[str]:
    """Return options by name as words of a command line."""
    return [spell(name, value) for name, value in options.items()]


def make_suite_command(
    config: RunConfig,
    flags: Sequence[str],
    trainer: Sequence[str] = TRAINER,
    launch: str = "",
) -> CommandLine:
    """Return the command line of a run of this suite's trainer, or of each rank.

    Args:
      config: The configuration of the run.
      flags: The flags of the run.
      trainer: The command of one rank, without its flags.
      launch: A launcher with its flags; empty if the ranks start on this machine.
    """
    launcher = []
    if launch:
        launcher = [*shlex.split(launch), "-n", str(config.num_processes)]
    program = shlex.join(trainer)
    if tuple(trainer) == TRAINER:
        program = f"{entry.get_program_name()} train"
        if config.num_processes > 1 and not launch:
            program = (
                f"{entry.get_program_name()} {_make_local_cluster_words(config)} --"
            )
    typed = f"{program} {shlex.join(flags)}"
    if launcher:
        typed = f"{shlex.join(launcher)} {typed}"
    return CommandLine([*launcher, *trainer, *flags], typed=typed)


def _make_local_cluster_words(config: RunConfig) -> str:
    """Return the command that starts all ranks of a run here, up to "--"."""
    words = f"{LOCAL_CLUSTER} --workers={config.cluster.num_workers}"
    if config.mode.has_servers:
        words += f" --ps={config.cluster.num_ps}"
    return words


def make_program_command(
    template: str,
    texts: Mapping[str, str],
    result_file: Path,
    *,
    num_devices: int,
    num_cores: int | None,
) -> CommandLine:
    """Return the command line of a run of the user's program.

    Args:
      template: The command with its places.
      texts: The text of each place except RESULT_FILE.
      result_file: The file of the record.
      num_devices: Devices of the run.
      num_cores: The cores of the run; None if it runs on GPUs and may use all cores.
    """
    path = str(result_file.absolute())
    variables = {
        RESULT_VARIABLE: path,
        DEVICES_VARIABLE: str(num_devices),
        _REPEAT_VARIABLE: texts[placeholders.REPEAT],
        # Otherwise Python buffers its output, and a killed run loses its last lines.
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
        # A Recorder prints its progress, which the display shows.
        PROGRESS: os.environ.get(PROGRESS, "1"),
    }
    cores = []
    if num_cores is not None:
        cores = list_first_cores(num_cores)
        # Otherwise the program would use the GPUs.
        if gpus.list_gpu_ids():
            variables[GPU_VARIABLE] = ""
    else:
        variables[GPU_VARIABLE] = ",".join(gpus.list_gpu_ids()[:num_devices])
        variables["CUDA_DEVICE_ORDER"] = os.environ.get(
            "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
        )
    values = {**texts, placeholders.RESULT_FILE: path}
    words = placeholders.fill_words(template, values)
    return CommandLine(words, variables, cores)
