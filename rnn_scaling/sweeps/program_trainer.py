"""Run a user's program in a sweep, keep its output, and judge its record or log.

`conduct` knows only the interface `runs.Trainer`. Everything that is special about a
user's program is here and in the modules `program_*`.
"""

import dataclasses
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rnn_scaling.analysis import plausibility
from rnn_scaling.config.naming import HOW_RUN, TRAINER
from rnn_scaling.records import record
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Environment, Resolved
from rnn_scaling.records.importers.program_warnings import WarningLines
from rnn_scaling.records.importers.reading import (
    REGEX,
    WALL,
    ImportedRun,
    NoMatch,
    Terms,
)
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import Phases, PrintedOutput, RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import (
    early_checks,
    failure,
    folder,
    placeholders,
    program_copies,
)
from rnn_scaling.sweeps.axes import parse_number
from rnn_scaling.sweeps.command_lines import (
    DEVICES_VARIABLE,
    CommandLine,
    make_program_command,
)
from rnn_scaling.sweeps.estimate import Estimator, Limit
from rnn_scaling.sweeps.program_plan import ProgramRun
from rnn_scaling.sweeps.runs import Trainer
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import open_new
from rnn_scaling.system.files.terminal import RESULT_VARIABLE
from rnn_scaling.system.machine import load
from rnn_scaling.system.machine.cores import list_available_cores, list_first_cores
from rnn_scaling.system.machine.environment import read_commit, read_environment
from rnn_scaling.system.processes import alive, process
from rnn_scaling.system.processes.process import OnLine, ProcessOutcome

# Parts of an environment that describe this process and not the user's program.
_OWN_PARTS = ("python", "packages", "cuda", "commit")
_LAUNCH_LIMIT_S = 60.0  # time limit of an empty program
_EMPTY_PROGRAM = [sys.executable, "-I", "-S", "-c", ""]


@dataclasses.dataclass
class _Output:
    """The output of a run."""

    is_cut: bool = False  # the run printed more than its log may hold
    # When its lines came, in seconds of `time.monotonic`.
    arrivals: list[float] = dataclasses.field(default_factory=list)
    errors: failure.ErrorOutput = dataclasses.field(default_factory=failure.ErrorOutput)
    warnings: WarningLines = dataclasses.field(default_factory=WarningLines)
    # The load of other processes during the run.
    load: "load.Load | None" = None


class _LogWriter:
    """Writes the lines of a run into its log, until the log has its largest size."""

    def __init__(self, log: TextIO, output: _Output) -> None:
        self._log = log
        self._output = output
        self._free_bytes = int(input_files.find_allowed_mb() * 1e6)

    def write(self, line: str) -> None:
        """Write a line, or mark the output as cut if it does not fit."""
        self._free_bytes -= len(line.encode()) + 1
        if self._free_bytes < 0:
            self._output.is_cut = True
        if not self._output.is_cut:
            # A file with NUL is not read as text.
            self._log.write(f"{line}\n".replace("\0", ""))
            self._log.flush()


def _time_empty_program(command: CommandLine) -> float:
    """Return the seconds from the start to the end of a program that does nothing."""
    empty_command = dataclasses.replace(command, words=_EMPTY_PROGRAM)
    task = empty_command.make_task(reads_stdout=True)
    return process.run_together([task], _LAUNCH_LIMIT_S).seconds


def _warn_about_leftovers(run: ProgramRun, result_file: Path) -> None:
    """Warn about each process of a run that has not ended with its program."""
    leftovers = alive.find_leftovers(f"{RESULT_VARIABLE}={result_file.absolute()}")
    for process_id in leftovers:
        entry.warn(
            f"{run.label}: process {process_id} of this run still runs and slows "
            "later runs; end it"
        )


class ProgramTrainer(Trainer[ProgramRun]):
    """Makes runs of a program of the user, and reads its log if it writes no record."""

    def __init__(self) -> None:
        # Imported here, so that --help does not wait for the modules that they load.
        from rnn_scaling.analysis import steady_state
        from rnn_scaling.records.importers import importing

        self._find_steady_state = steady_state.analyse
        self._importing = importing
        self._output = _Output()  # output of the last run
        # Seconds that an empty program takes; None until it is needed.
        self._launch_s: float | None = None
        # How numbers were read from logs, and which programs failed after they wrote
        # their record.
        self.notes: list[str] = []

    def build_command(self, run: ProgramRun, result_file: Path) -> CommandLine:
        command = make_program_command(
            run.template,
            {**run.texts, placeholders.REPEAT: str(run.repeat)},
            result_file,
            num_devices=run.num_devices,
            num_cores=run.num_cores,
        )
        if run.num_copies:
            typed = f"{run.num_copies} x {shlex.join(command.words)}"
            return dataclasses.replace(command, typed=typed)
        return command

    def run(
        self,
        run: ProgramRun,
        result_file: Path,
        limit: Limit,
        on_line: OnLine,
        following: object = None,
    ) -> ProcessOutcome:
        """Run the program, and keep its output in a log."""
        output = _Output()
        self._output = output
        if run.num_copies:
            return self._run_copies(run, result_file, limit, on_line)
        command = self.build_command(run, result_file)
        if run.terms.formats == WALL and self._launch_s is None:
            self._launch_s = _time_empty_program(command)
        meter = load.LoadMeter(
            command.cores or list_available_cores(), load.sample_with_descendants
        )
        watch = self._importing.watch(run.terms)
        with open_new(_make_log_path(result_file)) as log:
            writer = _LogWriter(log, output)

            def read_line(line: str | None) -> None:
                if line is None:
                    return on_line(None)
                writer.write(line)
                output.errors.read(line)
                output.warnings.see(line)
                progress = watch(line)
                if progress:
                    line = failure.format_progress(progress, run.unit)
                return on_line(line)

            is_progress = bool if limit.is_rough else None
            outcome = process.run_together(
                [command.make_task(reads_stdout=True)],
                limit.seconds,
                read_line,
                is_progress,
                output.arrivals,
            )
        _warn_about_leftovers(run, result_file)
        output.load = meter.read()
        return outcome

    def _run_copies(
        self, run: ProgramRun, result_file: Path, limit: Limit, on_line: OnLine
    ) -> ProcessOutcome:
        """Run copies of the command for one device at the same time."""
        tasks = program_copies.build_tasks(run, result_file)
        cores = (
            list_first_cores(run.num_cores) if run.num_cores else list_available_cores()
        )
        meter = load.LoadMeter(cores, load.sample_with_descendants)
        outcome = process.run_together(tasks, limit.seconds, on_line)
        self._output.load = meter.read()
        last_line = program_copies.read_last_line(run, result_file, outcome.task)
        return dataclasses.replace(outcome, lines=[last_line])

    def _judge_copies(
        self, run: ProgramRun, result_file: Path, outcome: ProcessOutcome
    ) -> RunRecord | None:
        """Return the record of copies; None if one of them failed."""
        if any(outcome.returncodes) or outcome.timed_out:
            return None

        def read_log(log: Path, terms: Terms) -> ImportedRun:
            with_search = dataclasses.replace(
                terms, find_steady_state=self._find_steady_state
            )
            return self._importing.read_run(log, with_search)[0]

        try:
            measured = program_copies.add_rates(run, result_file, read_log)
        except ValueError as e:
            return _make_failed_record(run, "NoRecord", f"ended well, but {e}")
        return dataclasses.replace(
            measured,
            resolved=_resolve(run),
            phases=Phases(total=outcome.seconds),
            environment=self._read_environment(time.time() - outcome.seconds),
        )

    def judge(
        self,
        run: ProgramRun,
        result_file: Path,
        written: RunRecord | None,
        outcome: ProcessOutcome,
    ) -> RunRecord | None:
        """Return the program's record with the sweep's options, or one from its log."""
        if run.num_copies:
            return self._judge_copies(run, result_file, outcome)
        log = _make_log_path(result_file)
        if folder.is_result(written):
            return self._complete(run, written, outcome, log.name)
        is_interrupted = written is not None and written.status == "interrupted"
        if outcome.returncode or outcome.timed_out or is_interrupted:
            return None
        # The placeholder that was written before the run is gone.
        if written is None:
            file = f"{result_file.name}.unreadable"
            return self._fail(run, outcome, f"its record cannot be read: {file}")
        if self._output.is_cut:
            limit = f"--max_file_mb={input_files.find_allowed_mb()}"
            reason = f"wrote no record, and printed more than {limit} keeps"
            return self._fail(run, outcome, reason)
        try:
            return self._read_log(run, log, outcome)
        except record.RecordError as e:
            reason = f"its output is contradictory: {'. '.join(e.faults)}"
        except OSError as e:
            reason = f"wrote no record, and its log cannot be read: {e.strerror or e}"
        except ValueError as e:
            reason = f"wrote no record, and {e}"
            # A pattern's errors quote the line that is wrong.
            is_pattern = run.terms.formats.startswith(REGEX)
            if is_pattern and not isinstance(e, NoMatch):
                return self._fail(run, outcome, reason, quotes_line=True)
        return self._fail(run, outcome, reason)

    def explain(
        self, run: ProgramRun, outcome: ProcessOutcome, limit: Limit
    ) -> RunError:
        last_output = self._output.errors.summarize(outcome.lines)
        error = failure.explain_end(
            outcome.returncode, outcome.timed_out, [last_output], limit
        )
        return dataclasses.replace(error, message=_name_log(run, error.message))

    def make_estimator(self) -> Estimator:
        return Estimator()

    def list_warnings(self, runs: Sequence[ProgramRun], dry_run: bool) -> list[str]:
        lines = []
        num_cores = len(list_available_cores())
        for run in runs:
            if run.num_cores:
                lines += early_checks.check_device_cores(
                    f"--num_devices={run.num_devices}",
                    run.num_devices,
                    int(run.config["cpu_cores_per_device"]),
                    num_cores,
                )
        counts = {run.num_devices for run in runs}
        places = placeholders.find_places(runs[0].template)
        if len(counts) > 1 and "num_devices" not in places:
            lines.append(
                "--trainer has no placeholder {num_devices}: the program sees the "
                "number of devices only in its cores or GPUs, and in the variable "
                f"{DEVICES_VARIABLE}"
            )
        lines = list(dict.fromkeys(lines))
        if not dry_run:
            lines += early_checks.check_load()
        return lines

    def _complete(
        self, run: ProgramRun, written: RunRecord, outcome: ProcessOutcome, log: str
    ) -> RunRecord:
        """Add the sweep's options to a record; fail it if it contradicts them."""
        if contradiction := _find_contradiction(run, written.config, "its record"):
            return dataclasses.replace(
                written,
                status="failed",
                error=RunError(type="Contradiction", message=contradiction),
                options=Options(run.options),
                throughput=None,
            )
        # A Recorder of an older version wrote there how many steps it made, which may
        # be fewer on more devices.
        config = dict(written.config)
        config.pop("num_batches", None)
        end = written.ended
        problem = _describe_exit(outcome)
        if written.status == "ok" and problem:
            self.notes.append(
                f"{run.label}: its program failed after it wrote its record "
                f"({problem}); see {log}"
            )
            end = problem
        warnings = self._output.warnings.lines()
        return dataclasses.replace(
            written,
            output=PrintedOutput(warnings=warnings) if warnings else None,
            options=Options({**config, **run.options}),
            resolved=_complete_resolved(run, written.resolved),
            unit=str(run.config.get("unit") or written.unit),
            ended=end,
        )

    def _read_log(
        self, run: ProgramRun, log: Path, outcome: ProcessOutcome
    ) -> RunRecord:
        """Return the record of a run that left only a log."""
        terms = dataclasses.replace(
            run.terms,
            arrivals=self._output.arrivals,
            seconds=outcome.seconds,
            launch_s=self._launch_s or 0.0,
            find_steady_state=self._find_steady_state,
        )
        imported, reading = self._importing.read_run(log, terms)
        for note in self._importing.list_notes(reading):
            if note not in self.notes:
                self.notes.append(note)
        return self._build_record(run, imported, outcome)

    def _build_record(
        self, run: ProgramRun, imported: ImportedRun, outcome: ProcessOutcome
    ) -> RunRecord:
        """Return a log as a record; a failed one if the log contradicts the sweep."""
        logged = imported.record
        sizes: dict[str, Any] = {}
        for name in ("num_devices", "batch_size"):
            if name in logged.config:
                sizes[name] = logged.config[name]
        if contradiction := _find_contradiction(run, sizes, "its log"):
            return _make_failed_record(run, "Contradiction", contradiction)
        output = logged.output
        if warnings := self._output.warnings.lines():
            output = dataclasses.replace(output or PrintedOutput(), warnings=warnings)
        # If the log is from another run, this process has a different duration.
        total_s = outcome.seconds
        if output is not None and plausibility.exceeds_process(output):
            total_s = 0.0
        complete = dataclasses.replace(
            logged,
            options=Options({**sizes, **run.options}),
            resolved=_resolve(run),
            phases=Phases(total=total_s, extra_fields={"process": outcome.seconds}),
            output=output,
            environment=self._read_environment(time.time() - outcome.seconds),
            unit=str(run.config.get("unit") or logged.unit or run.unit),
        )
        return record.from_json(complete.to_json())

    def _read_environment(self, start_s: float) -> Environment:
        """Return the machine of a run that began at this time.

        The versions that its program loaded are unknown.
        """
        fields = dict(read_environment())
        for name in _OWN_PARTS:
            fields.pop(name, None)
        other_load = self._output.load
        fields |= {
            "program_commit": read_commit(Path.cwd()),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(start_s)),
            "load": dataclasses.asdict(other_load) if other_load else None,
            "clocks": None,
            "gpus_after": [],
        }
        return build(Environment, fields)

    def _fail(
        self,
        run: ProgramRun,
        outcome: ProcessOutcome,
        reason: str,
        quotes_line: bool = False,
    ) -> RunRecord:
        """Return the failed record of a program that ended well but has no result."""
        message = f"ended with exit status 0, but {reason}"
        errors = self._output.errors
        if errors.has_errors or not quotes_line:
            message += f"; last output: {errors.summarize(outcome.lines)}"
        return _make_failed_record(run, "NoRecord", _name_log(run, message))


def _make_log_path(result_file: Path) -> Path:
    return result_file.with_name(f"{result_file.stem}.log.txt")


def _resolve(run: ProgramRun) -> Resolved:
    """Return the devices that the sweep gave to a run."""
    cores = list_available_cores()
    if not run.num_cores:
        return Resolved(device_type="GPU", cpu_affinity=tuple(cores))
    return Resolved(
        device_type="CPU",
        cpu_affinity=tuple(list_first_cores(run.num_cores) or cores),
        oversubscribed=run.num_cores > len(cores),
    )


def _complete_resolved(run: ProgramRun, written: Resolved) -> Resolved:
    """Return the devices in a record, completed by the devices that the sweep gave."""
    expected = _resolve(run)
    if written.cpu_affinity is None or written.device_type is None:
        written = dataclasses.replace(
            written,
            cpu_affinity=expected.cpu_affinity,
            device_type=expected.device_type,
        )
    # A Recorder writes CPU unless its caller names the devices.
    if expected.device_type == "GPU":
        written = dataclasses.replace(written, device_type="GPU")
    return written


def _find_contradiction(
    run: ProgramRun, recorded_options: Mapping[str, Any], source: str
) -> str:
    """Describe how a record or log contradicts the sweep; "" if it does not.

    Args:
      run: The run, with the options of the sweep.
      recorded_options: The options in the record or log.
      source: "its record" or "its log".
    """
    ignored = {TRAINER, "device", "cpu_cores_per_device", *HOW_RUN}
    found_parts = []
    sweep_parts = []
    for name, value in run.config.items():
        if name not in recorded_options or name in ignored:
            continue
        # A program may write 256 as a text, and true as True.
        if parse_number(str(recorded_options[name]).lower()) != parse_number(
            str(value).lower()
        ):
            found_parts.append(f"{name}={recorded_options[name]}")
            sweep_parts.append(f"{name}={value}")
    if not found_parts:
        return ""
    return (
        f"{source} has {', '.join(found_parts)}, but the sweep gave it "
        f"{', '.join(sweep_parts)}; does the program read what --trainer passes?"
    )


def _describe_exit(outcome: ProcessOutcome) -> str | None:
    """Describe how a program failed; None if it succeeded."""
    if outcome.timed_out:
        return "killed at its time limit"
    if outcome.returncode < 0:
        return failure.describe_signal(-outcome.returncode)
    return f"exit status {outcome.returncode}" if outcome.returncode else None


def _make_failed_record(run: ProgramRun, kind: str, message: str) -> RunRecord:
    error = RunError(type=kind, message=message[: failure.MAX_MESSAGE_LENGTH])
    return RunRecord(
        "failed", error, Options(run.options), resolved=_resolve(run), unit=run.unit
    )


def _name_log(run: ProgramRun, message: str) -> str:
    """Return a message with the name of the run's log."""
    end = f"; see {run.label}.log.txt"
    return f"{message[: failure.MAX_MESSAGE_LENGTH - len(end)]}{end}"
