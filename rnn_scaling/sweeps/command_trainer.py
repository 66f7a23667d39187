"""Runs a user's command in a sweep: gives it cores or GPUs, keeps its output, judges its record or its log."""

import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis import plausibility
from rnn_scaling.config.naming import HOW_RUN, TRAINER
from rnn_scaling.records import record
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Environment, Resolved
from rnn_scaling.records.importers.program_warnings import WarningLines
from rnn_scaling.records.importers.reading import REGEX, WALL, ImportedRun, NoMatch
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import Phases, PrintedOutput, RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import early_checks, failure, folder, template
from rnn_scaling.sweeps.command_plan import REPEAT, RESULT_FILE, CommandRun, number
from rnn_scaling.sweeps.estimate import Estimator, Limit
from rnn_scaling.sweeps.runs import Trainer
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import open_new
from rnn_scaling.system.files.terminal import PROGRESS
from rnn_scaling.system.machine import gpus, load
from rnn_scaling.system.machine.cores import available_cores, first_cores
from rnn_scaling.system.machine.environment import commit_of, read_environment
from rnn_scaling.system.processes import alive, process
from rnn_scaling.system.processes.process import Ended, OnLine, Task

RESULT_VARIABLE, DEVICES_VARIABLE, REPEAT_VARIABLE = (
    f"RNN_SCALING_{name}" for name in ("RESULT_FILE", "NUM_DEVICES", "REPEAT")
)
OF_A_PROCESS = (
    "python",
    "packages",
    "cuda",
    "commit",
)  # parts of an environment that describe this process
LAUNCH_LIMIT_S = 60.0
NOTHING = [sys.executable, "-I", "-S", "-c", ""]


@dataclasses.dataclass
class _Output:
    is_cut: bool = False  # the run printed more than its log may hold
    # When its lines came, in seconds of `time.monotonic`.
    arrivals: list[float] = dataclasses.field(default_factory=list)
    errors: failure.ErrorOutput = dataclasses.field(
        default_factory=failure.ErrorOutput
    )  # the lines that name an error
    warnings: WarningLines = dataclasses.field(default_factory=WarningLines)
    load: "load.Load | None" = None  # of other processes, during the run


class CommandTrainer(Trainer[CommandRun]):
    def __init__(self) -> None:
        # Here, so that --help does not wait for what they load.
        from rnn_scaling.analysis import steady_state
        from rnn_scaling.records.importers import importing

        self._find_steady_state = steady_state.analyse
        self._importing = importing
        self._output = _Output()  # of the last run
        self._launch_s: float | None = None  # duration of a program that does nothing
        # How numbers from logs were read, and which programs failed after they wrote their record.
        self.notes: list[str] = []

    def run(
        self,
        run: CommandRun,
        result_file: Path,
        limit: Limit,
        on_line: OnLine,
        following: object = None,
    ) -> Ended:
        cores, output = _cores(run), _Output()
        self._output = output
        task = Task(
            command(run, result_file),
            variables(run, result_file),
            cores,
            reads_stdout=True,
        )
        meter = load.LoadMeter(cores or available_cores(), load.sample_with_descendants)
        room = int(input_files.allowed_mb() * 1e6)
        watch = self._importing.watch(run.terms)
        if run.terms.formats == WALL and self._launch_s is None:
            nothing = dataclasses.replace(task, command=NOTHING)
            self._launch_s = process.run_together([nothing], LAUNCH_LIMIT_S).seconds
        with open_new(_log_of(result_file)) as log:

            def keep(line: str | None) -> None:
                nonlocal room
                if line is None:
                    return on_line(None)
                room -= len(line.encode()) + 1
                output.is_cut = output.is_cut or room < 0
                if not output.is_cut:
                    log.write(
                        f"{line}\n".replace("\0", "")
                    )  # a file with NUL is not read as text
                    log.flush()
                output.errors.see(line)
                output.warnings.see(line)
                seen = watch(line)
                return on_line(failure.progress(seen, run.unit) if seen else line)

            is_alive = bool if limit.is_rough else None
            ended = process.run_together(
                [task], limit.seconds, keep, is_alive, output.arrivals
            )
        for process_id in alive.leftovers(
            f"{RESULT_VARIABLE}={result_file.absolute()}"
        ):
            entry.warn(
                f"{run.label}: process {process_id} of this run still runs and slows later runs; end it"
            )
        output.load = meter.read()
        return ended

    def shown(self, run: CommandRun, result_file: Path) -> str:
        gpu_names = variables(run, result_file).get("CUDA_VISIBLE_DEVICES")
        where = [f"CUDA_VISIBLE_DEVICES={gpu_names}"] if gpu_names is not None else []
        cores = _cores(run)
        where += [f"taskset -c {','.join(map(str, cores))}"] if cores else []
        return " ".join([*where, shlex.join(command(run, result_file))])

    def result(
        self,
        run: CommandRun,
        result_file: Path,
        written: RunRecord | None,
        ended: Ended,
    ) -> RunRecord | None:
        """Its own record, completed with the sweep's options, or one that is read from its log."""
        if folder.is_result(written):
            return self._completed(run, written, ended, _log_of(result_file).name)
        if (
            ended.returncode
            or ended.timed_out
            or (written is not None and written.status == "interrupted")
        ):
            return None
        quotes_line = False
        if written is None:  # the file that stood there before the run is gone, too
            reason = f"its record cannot be read: {result_file.name}.unreadable"
        elif self._output.is_cut:
            reason = f"wrote no record, and printed more than --max_file_mb={input_files.allowed_mb()} keeps"
        else:
            try:
                terms = dataclasses.replace(
                    run.terms,
                    arrivals=self._output.arrivals,
                    seconds=ended.seconds,
                    launch_s=self._launch_s or 0.0,
                    find_steady_state=self._find_steady_state,
                )
                imported, reading = self._importing.read_run(
                    _log_of(result_file), terms
                )
                notes = self._importing.list_notes(reading)
                self.notes += [note for note in notes if note not in self.notes]
                return self._from_log(run, imported, ended)
            except record.RecordError as e:
                reason = f"its output is contradictory: {'. '.join(e.faults)}"
            except OSError as e:
                reason = (
                    f"wrote no record, and its log cannot be read: {e.strerror or e}"
                )
            except ValueError as e:
                reason = f"wrote no record, and {e}"
                # A pattern's errors quote the line that is wrong.
                is_pattern = run.terms.formats.startswith(REGEX)
                quotes_line = is_pattern and not isinstance(e, NoMatch)
        message = f"ended with exit status 0, but {reason}"
        if not quotes_line or self._output.errors.has_errors:
            message += f"; last output: {self._output.errors.text(ended.lines)}"
        return _failed(run, "NoRecord", _with_log(run, message))

    def reason(self, run: CommandRun, ended: Ended, limit: Limit) -> RunError:
        error = failure.reason(
            ended.returncode,
            ended.timed_out,
            [self._output.errors.text(ended.lines)],
            limit,
        )
        return dataclasses.replace(error, message=_with_log(run, error.message))

    def estimator(self) -> Estimator:
        return Estimator()

    def warnings(self, runs: Sequence[CommandRun], dry_run: bool) -> list[str]:
        lines, num_cores = [], len(available_cores())
        for run in runs:
            if run.num_cores:
                flag, cores = (
                    f"--num_devices={run.num_devices}",
                    int(run.config["cpu_cores_per_device"]),
                )
                lines += early_checks.crowded(flag, run.num_devices, cores, num_cores)
        varies = len({run.num_devices for run in runs}) > 1
        if varies and "num_devices" not in template.places(_template(runs[0])):
            lines.append(
                "--trainer has no place {num_devices}: the program sees the number of devices only in its cores or "
                f"GPUs, and in the variable {DEVICES_VARIABLE}"
            )
        return [*dict.fromkeys(lines), *([] if dry_run else early_checks.load_now())]

    def _completed(
        self, run: CommandRun, written: RunRecord, ended: Ended, log: str
    ) -> RunRecord:
        """The record that a run wrote with the sweep's options; a failed one where it contradicts them."""
        if wrong := _contradictions(run, written.config, "its record"):
            error = RunError(type="Contradiction", message=wrong)
            return dataclasses.replace(
                written,
                status="failed",
                error=error,
                options=Options(run.options),
                throughput=None,
            )
        # A Recorder of an older version wrote there how many steps it made, which may be fewer on more devices.
        config = {
            name: value
            for name, value in written.config.items()
            if name != "num_batches"
        }
        resolved, expected = written.resolved, _resolved(run)
        if resolved.cpu_affinity is None or resolved.device_type is None:
            resolved = dataclasses.replace(
                resolved,
                cpu_affinity=expected.cpu_affinity,
                device_type=expected.device_type,
            )
        if (
            expected.device_type == "GPU"
        ):  # a Recorder writes CPU unless its caller names the devices
            resolved = dataclasses.replace(resolved, device_type="GPU")
        unit, end = str(run.config.get("unit") or written.unit), written.ended
        if written.status == "ok" and (problem := _problem_at_end(ended)):
            self.notes.append(
                f"{run.label}: its program failed after it wrote its record ({problem}); see {log}"
            )
            end = problem
        warnings = self._output.warnings.lines()
        return dataclasses.replace(
            written,
            output=PrintedOutput(warnings=warnings) if warnings else None,
            options=Options({**config, **run.options}),
            resolved=resolved,
            unit=unit,
            ended=end,
        )

    def _from_log(
        self, run: CommandRun, imported: ImportedRun, ended: Ended
    ) -> RunRecord:
        """Return the record of a run that left only a log.

        It is a failed one if the log contradicts the sweep.
        """
        of_log = imported.record
        sizes = ("num_devices", "batch_size")
        known = {name: of_log.config[name] for name in sizes if name in of_log.config}
        if wrong := _contradictions(run, known, "its log"):
            return _failed(run, "Contradiction", wrong)
        output = of_log.output
        if warnings := self._output.warnings.lines():
            output = dataclasses.replace(output or PrintedOutput(), warnings=warnings)
        # The times of another run's log say nothing about the duration of this one.
        is_of_another = output is not None and plausibility.exceeds_process(output)
        made = dataclasses.replace(
            of_log,
            options=Options({**known, **run.options}),
            resolved=_resolved(run),
            phases=Phases(
                total=0.0 if is_of_another else ended.seconds,
                further={"process": ended.seconds},
            ),
            output=output,
            environment=self._machine(time.time() - ended.seconds),
            unit=str(run.config.get("unit") or of_log.unit or run.unit),
        )
        return record.from_json(made.to_json())

    def _machine(self, began: float) -> Environment:
        """The machine of a run that began at this time; the versions that its program loaded are unknown."""
        machine = {
            name: value
            for name, value in read_environment().items()
            if name not in OF_A_PROCESS
        }
        started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(began))
        others = dataclasses.asdict(self._output.load) if self._output.load else None
        return build(
            Environment,
            {
                **machine,
                "program_commit": commit_of(Path.cwd()),
                "started": started,
                "load": others,
                "clocks": None,
                "gpus_after": [],
            },
        )


def _template(run: CommandRun) -> str:
    return str(run.config["trainer_command"])


def command(run: CommandRun, result_file: Path) -> list[str]:
    places = {REPEAT: str(run.repeat), RESULT_FILE: str(result_file.absolute())}
    return template.filled(_template(run), {**run.texts, **places})


def _log_of(result_file: Path) -> Path:
    return result_file.with_name(f"{result_file.stem}.log.txt")


def _cores(run: CommandRun) -> list[int]:
    """The cores that all its processes share; empty: all."""
    return first_cores(run.num_cores) if run.num_cores else []


def variables(run: CommandRun, result_file: Path) -> dict[str, str]:
    """The variables that a run has in addition to those of this process."""
    variables = {
        RESULT_VARIABLE: str(result_file.absolute()),
        DEVICES_VARIABLE: str(run.num_devices),
        REPEAT_VARIABLE: str(run.repeat),
        # Else Python buffers its output, and a run that is killed loses its last lines.
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
        PROGRESS: os.environ.get(
            PROGRESS, "1"
        ),  # a Recorder prints its progress, which the display shows
    }
    if run.num_cores is None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus.gpu_ids()[: run.num_devices])
        variables["CUDA_DEVICE_ORDER"] = os.environ.get(
            "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
        )
    elif gpus.gpu_ids():  # else a program would use the GPUs
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables


def _resolved(run: CommandRun) -> Resolved:
    cores = available_cores()
    return Resolved(
        device_type="CPU" if run.num_cores else "GPU",
        cpu_affinity=tuple(_cores(run) or cores),
        oversubscribed=run.num_cores > len(cores) if run.num_cores else None,
    )


def _contradictions(run: CommandRun, found: Mapping[str, Any], source: str) -> str:
    """The options that differ between a run's record or log and the sweep; empty: none."""
    left_out = {TRAINER, "device", "cpu_cores_per_device", *HOW_RUN}
    names = [name for name in run.config if name in found and name not in left_out]
    # A program may write 256 as a text, and true as True.
    differing = [
        name
        for name in names
        if number(str(found[name]).lower()) != number(str(run.config[name]).lower())
    ]
    if not differing:
        return ""
    there, here = (
        ", ".join(f"{name}={options[name]}" for name in differing)
        for options in (found, run.config)
    )
    return f"{source} has {there}, but the sweep gave it {here}; does the program read what --trainer passes?"


def _problem_at_end(ended: Ended) -> str | None:
    """How a program failed; None: it did not."""
    if ended.timed_out:
        return "killed at its time limit"
    if ended.returncode < 0:
        return failure.killed(-ended.returncode)
    return f"exit status {ended.returncode}" if ended.returncode else None


def _failed(run: CommandRun, kind: str, message: str) -> RunRecord:
    error = RunError(type=kind, message=message[: failure.LONGEST_MESSAGE])
    return RunRecord(
        "failed", error, Options(run.options), resolved=_resolved(run), unit=run.unit
    )


def _with_log(run: CommandRun, message: str) -> str:
    """A message and the name of the run's log."""
    log = f"; see {run.label}.log.txt"
    return f"{message[: failure.LONGEST_MESSAGE - len(log)]}{log}"
