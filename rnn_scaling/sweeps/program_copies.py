"""Copies of a one-device command, which exchange nothing and so show contention.

Each copy has its own cores or GPU, its own log and its own result file, in the folder
COPIES next to the records. The rate of the run is the sum of the copies' rates.

_LOG_FORMAT is stored in records.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from rnn_scaling.records import record
from rnn_scaling.records.importers.reading import ImportedRun, Terms
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import Throughput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import folder
from rnn_scaling.sweeps.command_lines import GPU_VARIABLE, make_program_command
from rnn_scaling.sweeps.placeholders import REPEAT
from rnn_scaling.sweeps.program_plan import ProgramRun
from rnn_scaling.system.machine import gpus
from rnn_scaling.system.machine.cores import list_first_cores
from rnn_scaling.system.processes.process import Task

_COPIES = "copies"  # a folder, so that a report does not read the copies as runs
_LOG_FORMAT = "copies"
# The shell only redirects the output to the file $0.
_WITH_LOG = ("sh", "-c", 'exec "$@" >"$0" 2>&1')

ReadLog = Callable[[Path, Terms], ImportedRun]


@dataclasses.dataclass(frozen=True)
class Copy:
    """One process of a run."""

    number: int
    result_file: Path

    @property
    def log(self) -> Path:
        return self.result_file.with_suffix(".log.txt")


def list_copies(run: ProgramRun, result_file: Path) -> list[Copy]:
    """Return the copies of a run."""
    place = result_file.parent / _COPIES
    copies = []
    for number in range(run.num_copies):
        copies.append(Copy(number, place / f"{result_file.stem}.{number}.json"))
    return copies


def build_tasks(run: ProgramRun, result_file: Path) -> list[Task]:
    """Return the processes of a run, and prepare the files that they write."""
    cores_per_copy = run.num_cores and run.num_cores // run.num_copies
    tasks = []
    for copy in list_copies(run, result_file):
        copy.result_file.parent.mkdir(exist_ok=True)
        copy.result_file.unlink(missing_ok=True)
        command = make_program_command(
            run.template,
            {**run.texts, REPEAT: str(run.repeat)},
            copy.result_file,
            num_devices=1,
            num_cores=cores_per_copy,
        )
        variables = dict(command.variables)
        cores: list[int] = []
        if cores_per_copy:
            cores = list_first_cores(cores_per_copy, copy.number)
        else:
            variables[GPU_VARIABLE] = gpus.list_gpu_ids()[copy.number]
        words = [*_WITH_LOG, str(copy.log), *command.words]
        tasks.append(Task(words, variables, cores))
    return tasks


def add_rates(run: ProgramRun, result_file: Path, read_log: ReadLog) -> RunRecord:
    """Return a record with the sum of the copies' rates; other parts are unknown.

    Args:
      run: The run.
      result_file: The file of its record.
      read_log: Reads the log of a copy.

    Raises:
      ValueError: If a copy has no rate; with the reason.
    """
    total = 0.0
    unit = run.unit
    rounding = 0.0
    for copy in list_copies(run, result_file):
        measured_record = record.find(copy.result_file)
        if not folder.is_result(measured_record):
            try:
                measured_record = read_log(copy.log, run.terms).record
            except (OSError, ValueError) as e:
                raise ValueError(
                    f"copy {copy.number} of the program has no rate: {e}"
                ) from None
        throughput = measured_record.throughput
        if throughput is None or not throughput.items_per_second:
            raise ValueError(f"copy {copy.number} of the program has no rate")
        total += throughput.items_per_second
        unit = measured_record.unit or unit
        rounding = max(rounding, measured_record.log_rounding or 0.0)
    return RunRecord(
        "ok",
        None,
        Options(run.options),
        throughput=Throughput(items=None, seconds=None, items_per_second=total),
        log_format=_LOG_FORMAT,
        log_rounding=rounding or None,
        unit=unit,
    )


def read_last_line(run: ProgramRun, result_file: Path, number: int) -> str:
    """Return the last line that a copy printed, with its number; "" without output."""
    log = list_copies(run, result_file)[number].log
    try:
        lines = log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    printed_lines = [line for line in lines if line.strip()]
    return f"copy {number}: {printed_lines[-1]}" if printed_lines else ""
