"""Makes the runs of a user's own command: gives it cores or GPUs, keeps its output, judges its record or its log."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.files import input_files
from rnn_scaling.files.output_files import open_new
from rnn_scaling.files.terminal import PROGRESS
from rnn_scaling.importers import log_formats
from rnn_scaling.importers.log_formats import Reader, Reading, Timing
from rnn_scaling.machine import gpus, load
from rnn_scaling.machine.cores import available_cores, first_cores
from rnn_scaling.machine.environment import read_environment
from rnn_scaling.processes import leftovers, process
from rnn_scaling.processes.process import Ended, OnLine, Task
from rnn_scaling.records import record
from rnn_scaling.records.decoding import build
from rnn_scaling.records.environment import Environment, Resolved
from rnn_scaling.records.parts import Batches, Phases, RunError, Throughput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.naming import HOW_RUN, TRAINER
from rnn_scaling.sweeps import failure, folder, forewarning, template
from rnn_scaling.sweeps.any_trainer import REPEAT, RESULT_FILE, TheirRun, number
from rnn_scaling.sweeps.estimate import Estimator
from rnn_scaling.sweeps.last_words import LastWords
from rnn_scaling.sweeps.limit import Limit
from rnn_scaling.sweeps.runs import AnyRun, Trainer

RESULT_VARIABLE, DEVICES_VARIABLE, REPEAT_VARIABLE = (
    f"RNN_SCALING_{name}" for name in ("RESULT_FILE", "NUM_DEVICES", "REPEAT")
)
OF_A_PROCESS = ("python", "packages", "cuda", "commit")  # in an environment: of whoever reads it, not of the machine
NO_ROUNDING = 1e-6  # share of a rate
LAUNCH_LIMIT_S = 60.0
NOTHING = [sys.executable, "-I", "-S", "-c", ""]


class TheirTrainer(Trainer):
    """Makes runs of `any_trainer.plan`."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._load: load.Load | None = None  # of others, during the run that was made last
        self._is_cut = False  # whether that run printed more than is kept
        self._arrivals: list[float] = []  # when its lines came
        self._words = LastWords()  # of that run
        self._launch_s: float | None = None  # that a program which does nothing takes
        self._notes: list[str] = []

    def run(self, run: AnyRun, result_file: Path, limit: Limit, on_line: OnLine) -> Ended:
        theirs, log = _theirs(run), _log_of(result_file)
        cores = _cores(theirs)
        task = Task(command(theirs, result_file), variables(theirs, result_file), cores, reads_stdout=True)
        meter = load.LoadMeter(cores or available_cores(), load.sample_with_descendants)
        room, self._is_cut, self._arrivals, self._words = int(input_files.allowed_mb() * 1e6), False, [], LastWords()
        look = self._reader.watch(theirs.terms)
        if theirs.terms.formats == log_formats.WALL and self._launch_s is None:
            nothing = dataclasses.replace(task, command=NOTHING)
            self._launch_s = process.run_together([nothing], LAUNCH_LIMIT_S).seconds
        with open_new(log) as kept:

            def keep(line: str | None) -> None:
                nonlocal room
                if line is None:
                    return on_line(None)
                if not self._is_cut:
                    room -= len(line.encode()) + 1
                    self._is_cut = room < 0
                    kept.write("" if self._is_cut else f"{line}\n".replace("\0", ""))  # of which no text is read
                    kept.flush()
                self._words.see(line)
                seen = look(line)
                return on_line(failure.progress(seen, theirs.unit) if seen else line)

            is_alive = bool if limit.is_rough else None
            ended = process.run_together([task], limit.seconds, keep, is_alive, self._arrivals)
        for left in leftovers.find(f"{RESULT_VARIABLE}={result_file.absolute()}"):
            entry.warn(f"{run.label}: process {left} of this run still runs and slows later runs; kill ends it")
        self._load = meter.read()
        return ended

    def shown(self, run: AnyRun, result_file: Path) -> str:
        theirs = _theirs(run)
        gpu_names = variables(theirs, result_file).get("CUDA_VISIBLE_DEVICES")
        where = [f"CUDA_VISIBLE_DEVICES={gpu_names}"] if gpu_names is not None else []
        cores = _cores(theirs)
        where += [f"taskset -c {','.join(map(str, cores))}"] if cores else []
        return " ".join([*where, shlex.join(command(theirs, result_file))])

    def result(self, run: AnyRun, result_file: Path, written: RunRecord | None, ended: Ended) -> RunRecord | None:
        """Its own record with what the sweep knows, or one of what its log tells.

        Arguments as in `runs.Trainer.result`.
        """
        theirs = _theirs(run)
        if folder.is_result(written):
            completed = _completed(theirs, written)
            if completed.status == "ok" and (badly := _badly(ended)):
                kept = f"its program ended badly after its record was written ({badly})"
                self._notes.append(f"{run.label}: {kept}; the record counts, {_log_of(result_file).name} may say why")
                return dataclasses.replace(completed, ended=badly)
            return completed
        if ended.returncode or ended.timed_out or (written is not None and written.status == "interrupted"):
            return None
        if written is None:
            reason = f"left a record that cannot be read: {result_file.name}.unreadable"
        elif self._is_cut:
            most = input_files.allowed_mb()
            reason = f"wrote no record, and printed more than the {most} MB that are kept; --max_file_mb keeps more"
        else:
            try:
                timing = Timing(self._arrivals, ended.seconds, self._launch_s or 0.0)
                terms = dataclasses.replace(theirs.terms, timing=timing)
                reading = self._reader.read(_log_of(result_file), terms)
                return self._from_log(theirs, reading, ended)
            except record.RecordError as e:
                reason = f"its output tells what cannot be: {'. '.join(e.faults)}"
            except OSError as e:
                reason = f"wrote no record, and its log cannot be read: {e.strerror or e}"
            except ValueError as e:
                reason = f"wrote no record, and {e}"
        words = f"ended well, but {reason}; last said: {self._words.text(ended.lines)}"
        return _failed(theirs, "NoRecord", _with_log(run, words))

    def reason(self, run: AnyRun, ended: Ended, limit: Limit) -> RunError:
        error = failure.reason(ended.returncode, ended.timed_out, [self._words.text(ended.lines)], limit)
        return dataclasses.replace(error, message=_with_log(run, error.message))

    def estimator(self) -> Estimator:
        return Estimator(is_reckoned=False)

    def forewarnings(self, runs: Sequence[AnyRun], dry_run: bool) -> list[str]:
        theirs = [_theirs(run) for run in runs]
        cores = len(available_cores())
        lines = [line for run in theirs if run.num_cores for line in _crowding(run, cores)]
        varies = len({run.num_devices for run in theirs}) > 1
        if varies and "num_devices" not in template.places(_text(theirs[0])):
            lines.append(
                "--trainer has no place {num_devices}: the program learns of its devices by the cores or GPUs that it "
                f"is given, and by the variable {DEVICES_VARIABLE}, alone"
            )
        busy = None if dry_run else forewarning.load_now()
        return [*dict.fromkeys(lines), *([busy] if busy else [])]

    @property
    def notes(self) -> list[str]:
        """What the numbers mean that were read from logs, and which runs' programs ended badly after their record."""
        return self._notes

    def _from_log(self, run: TheirRun, reading: Reading, ended: Ended) -> RunRecord:
        """The record of a run of which the log alone tells; a failed one where it contradicts the sweep.

        Raises:
          RecordError: if what the log tells is none that a run can have left.
        """
        of_log = {"num_devices": reading.devices, "batch_size": reading.batch_size}
        of_log = {name: value for name, value in of_log.items() if value is not None}
        if wrong := _contradictions(run, of_log, "its log"):
            return _failed(run, "Contradiction", wrong)
        self._notes += [note for note in reading.notes if note not in self._notes]
        cores, count = _cores(run), len(reading.seconds)
        if count:
            items, seconds = (math.fsum(each[reading.warmup :]) for each in (reading.items, reading.seconds))
            throughput = Throughput(items=_whole(items), seconds=seconds, items_per_second=items / seconds)
        else:
            throughput = Throughput(items=None, seconds=None, items_per_second=reading.rate)
        made = RunRecord(
            status="ok",
            error=None,
            config={**of_log, **run.options},
            resolved=_resolved(run, cores),
            batches=Batches(
                warmup=reading.warmup,
                measured=count - reading.warmup,
                seconds=reading.seconds,
                items=tuple(_whole(each) for each in reading.items),
                loss=reading.loss,
            ),
            throughput=throughput,
            phases=Phases(total=ended.seconds, further={"process": ended.seconds}),
            environment=self._machine(time.time() - ended.seconds),
            unit=str(run.config.get("unit") or reading.unit or run.unit),
            log_format=reading.format,
            log_rounding=reading.rounding if reading.rounding > NO_ROUNDING else None,
            log_clock=reading.clock or None,
        )
        return record.from_json(made.to_json())

    def _machine(self, began: float) -> Environment:
        """The machine of a run that began at this time; what its program loaded is not known."""
        machine = {name: value for name, value in read_environment().items() if name not in OF_A_PROCESS}
        started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(began))
        others = dataclasses.asdict(self._load) if self._load else None
        return build(Environment, {**machine, "started": started, "load": others, "clocks": None, "gpus_after": []})


def _theirs(run: AnyRun) -> TheirRun:
    assert isinstance(run, TheirRun)  # a sweep is of runs of one kind
    return run


def _text(run: TheirRun) -> str:
    """The command as the user gave it."""
    return str(run.config["trainer_command"])


def command(run: TheirRun, result_file: Path) -> list[str]:
    """The words of a run."""
    own = {REPEAT: str(run.repeat), RESULT_FILE: str(result_file.absolute())}
    return template.parse(_text(run)).filled({**run.texts, **own})


def _log_of(result_file: Path) -> Path:
    """Where the output of a run is kept."""
    return result_file.with_name(f"{result_file.stem}.log.txt")


def _cores(run: TheirRun) -> list[int]:
    """The cores that all its processes share; empty: whatever there are."""
    return first_cores(run.num_cores) if run.num_cores else []


def variables(run: TheirRun, result_file: Path) -> dict[str, str]:
    """What the environment of a run has besides this process's own; arguments as in `command`."""
    variables = {
        RESULT_VARIABLE: str(result_file.absolute()),
        DEVICES_VARIABLE: str(run.num_devices),
        REPEAT_VARIABLE: str(run.repeat),
        # Else Python keeps lines back while nobody looks on, and a run that is killed loses its last words.
        "PYTHONUNBUFFERED": os.environ.get("PYTHONUNBUFFERED", "1"),
        PROGRESS: os.environ.get(PROGRESS, "1"),  # a Recorder's; the display follows its lines
    }
    if run.num_cores is None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(gpus.gpu_ids()[: run.num_devices])
        variables["CUDA_DEVICE_ORDER"] = os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    elif gpus.gpu_ids():  # else a program takes the GPUs that it sees
        variables["CUDA_VISIBLE_DEVICES"] = ""
    return variables


def _resolved(run: TheirRun, cores: Sequence[int]) -> Resolved:
    wants = run.num_cores or 0
    return Resolved(
        device_type="CPU" if run.num_cores else "GPU",
        cpu_affinity=tuple(cores or available_cores()),
        oversubscribed=wants > len(available_cores()) if run.num_cores else None,
    )


def _completed(run: TheirRun, written: RunRecord) -> RunRecord:
    """The record that a run wrote with the sweep's options; a failed one where it contradicts them."""
    if wrong := _contradictions(run, written.config, "its record"):
        error = RunError(type="Contradiction", message=wrong)
        return dataclasses.replace(written, status="failed", error=error, config=run.options, throughput=None)
    # A Recorder of an older version wrote there how many steps it made, which may be fewer on more devices.
    own = {name: value for name, value in written.config.items() if name != "num_batches"}
    resolved, known = written.resolved, _resolved(run, _cores(run))
    if resolved.cpu_affinity is None or resolved.device_type is None:
        resolved = dataclasses.replace(resolved, cpu_affinity=known.cpu_affinity, device_type=known.device_type)
    if known.device_type == "GPU":  # a Recorder that is not told says CPU
        resolved = dataclasses.replace(resolved, device_type="GPU")
    unit = str(run.config.get("unit") or written.unit)
    return dataclasses.replace(written, config={**own, **run.options}, resolved=resolved, unit=unit)


def _contradictions(run: TheirRun, told: Mapping[str, Any], who: str) -> str:
    """What a run says of its options that is not what the sweep says; empty: nothing."""
    left_out = {TRAINER, "device", "cpu_cores_per_device", *HOW_RUN}
    names = [name for name in run.config if name in told and name not in left_out]
    unlike = [name for name in names if _read(told[name]) != _read(run.config[name])]
    if not unlike:
        return ""
    said, meant = (", ".join(f"{name}={options[name]}" for name in unlike) for options in (told, run.config))
    return f"{who} says {said}, and this run is of {meant}; does the program use what --trainer hands it?"


def _read(value: Any) -> Any:
    """An option however it was written: a program may tell 256 as a text, and true as True."""
    return number(str(value).lower())


def _badly(ended: Ended) -> str | None:
    """How a program ended, in a few words; None: well."""
    if ended.timed_out:
        return "killed at its limit of time"
    if ended.returncode < 0:
        return failure.killed(-ended.returncode)
    return f"exit status {ended.returncode}" if ended.returncode else None


def _failed(run: TheirRun, kind: str, message: str) -> RunRecord:
    error = RunError(type=kind, message=message[: failure.LONGEST_MESSAGE])
    return RunRecord("failed", error, run.options, resolved=_resolved(run, _cores(run)), unit=run.unit)


def _crowding(run: TheirRun, num_cores: int) -> list[str]:
    each = int(run.config["cpu_cores_per_device"])
    return forewarning.crowded(f"--num_devices={run.num_devices}", run.num_devices, each, num_cores)


def _with_log(run: AnyRun, message: str) -> str:
    """A message and the file that has all of the output."""
    log = f"; see {run.label}.log.txt"
    return f"{message[: failure.LONGEST_MESSAGE - len(log)]}{log}"


def _whole(value: float) -> int:
    """A number of items as records have it: whole where it is."""
    return int(value) if float(value).is_integer() else value  # type: ignore[return-value]
