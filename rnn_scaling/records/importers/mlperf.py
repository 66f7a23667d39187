"""MLPerf training logs: the events of one or more runs.

Formats: mlcommons/logging, mlperf_logging/mllog and compliance_checker/training_*/
common.yaml: ":::MLLOG {json}". Release 0.6 wrote ":::MLL SECONDS KEY: {json}", and
release 0.5 one event per line with other keys, whose value is JSON, or text without
quotation marks, or missing:

    :::MLPv0.5.0 gnmt 1541575316.437595129 (train.py:341) train_epoch: 0

Format of release 0.5: mlcommons/training_policies and mlperf_compliance 0.0.10,
mlperf_log.py and tags.py; checked with the logs of mlcommons/training_results_v0.5.

`formats` has an entry for it, and `reports.mlperf_scores` scores the runs.
"""

import dataclasses
import math
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling.records.importers.reading import (
    ImportedRun,
    LogFormat,
    Problems,
    Reading,
    Terms,
    make_reading,
    number_lines,
    read_exact_number,
    read_finite_number,
    run_record,
)
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value

_NOTE_OF_V05 = (
    "Release 0.5 of MLPerf reports no throughput: the rate is the samples of all "
    "epochs divided by the time outside evaluations. Some submissions print the batch "
    "of one worker as input_batch_size."
)
_V05 = re.compile(
    r":::MLPv0\.5\.\d (\w{1,80}) (\d{1,12}(?:\.\d{1,9})?) \([^)]{0,200}\) "
    r"(\w{1,80})(?:: (.*))?"
)
_SIZES_OF_V05 = (
    "input_batch_size", "preproc_num_train_examples", "input_size", "eval_target",
)  # fmt: skip


def _read_event_of_v05(text: str) -> dict[str, Any] | None:
    """Return the event of a line in the form of later releases; None for other text."""
    match = _V05.match(text)
    if match is None:
        return None
    benchmark, seconds, key, value_text = match.groups()
    value = _read_value(value_text)
    fields = value if isinstance(value, dict) else {}
    event = {
        "time_ms": 1000 * float(seconds),
        "key": key,
        "value": fields.get("value", value),
        "metadata": fields,
        "benchmark": benchmark,
    }
    if key == "run_stop" and "success" in fields:
        is_success = fields["success"] in (True, "true")
        event["metadata"] = {"status": "success" if is_success else "aborted"}
    return event


def _read_value(text: str | None) -> Any:
    try:
        return input_files.parse_json(text) if text else None
    except input_files.JsonError:
        return text


@dataclasses.dataclass
class OldRun:
    """The numbers of one run: its sizes, epochs and time of training."""

    # The first value of each of _SIZES_OF_V05 before the first evaluation.
    sizes: dict[str, float] = dataclasses.field(default_factory=dict)
    train_epochs: set[float] = dataclasses.field(default_factory=set)
    training_ms: float = 0.0
    training_since_ms: float | None = None  # None during an evaluation

    def take(self, key: str, value: Any, ms: float) -> None:
        """Add an event of a run that has not stopped, at a time in milliseconds."""
        if key in ("train_loop", "train_epoch", "eval_stop"):
            if self.training_since_ms is None:
                self.training_since_ms = ms
        elif key in ("eval_start", "run_stop"):
            if self.training_since_ms is not None:
                self.training_ms += max(0.0, ms - self.training_since_ms)
            self.training_since_ms = None
        number = read_finite_number(value)
        if number is None:
            return
        if key == "train_epoch":
            self.train_epochs.add(number)
        elif key in _SIZES_OF_V05 and number > 0 and not self.training_ms:
            self.sizes.setdefault(key, number)

    @property
    def progress(self) -> dict[str, float]:
        """Samples and epochs of the run, by the keys of later releases."""
        if not self.train_epochs:
            return {}
        epochs = float(len(self.train_epochs))
        progress = {"epoch_num": epochs}
        examples = self.sizes.get("preproc_num_train_examples")
        # An input_size below half of the examples is the width of an image.
        size = self.sizes.get("input_size", 0.0)
        samples = size if size >= (examples or 0.0) / 2 else examples
        if samples:
            progress["samples_count"] = epochs * samples
        return progress

    @property
    def rate(self) -> float | None:
        """Samples/s outside evaluations."""
        samples = self.progress.get("samples_count")
        if samples is None or self.training_ms <= 0:
            return None
        return 1e3 * samples / self.training_ms


LINE_PREFIX = ":::MLLOG "
_NO_SCORE = "no score"
_NO_DEVICES = (
    "Without number_of_nodes and accelerators_per_node the number of devices is "
    "unknown; the system's description (systems/NAME.json of a submission) has them: "
    "name it among the files."
)
NOTES = (
    "Run (s) is run_stop - run_start, MLPerf's time to target quality: it includes "
    "evaluations and the number of epochs that the batch size needed, so it is not a "
    "measure of speed alone.",
    "Throughput is the mean of what the run itself reported (tracked_stats, else "
    "*_throughput; never both), in samples/s of all accelerators by convention; the "
    "format does not define it.",
)
COLUMNS = (
    "Benchmark", "Platform", "Status", "Run (s)", "Init (s)", "Accelerators",
    "Global batch size", "Trained samples", "Epochs", "Last quality",
    "Mean throughput (samples/s)", "Throughput reports", "Seed",
)  # fmt: skip
_EXTRA = {
    "samples_count": "trained samples",
    "epoch_num": "epochs",
    "quality": "last quality",
}
_V06 = re.compile(r":::MLL (\d{1,12}\.\d{1,9}) (\w{1,80}): (\{.*)")
# Names of rates: keys of the value of "tracked_stats" in later releases, keys of events
# in older ones. If one rate is reported under several names, the first name counts.
_TRACKED = "tracked_stats"
_RATE_KEYS = (
    "throughput", "samples_per_sec", "epoch_train_throughput", "block_train_throughput",
)  # fmt: skip
_REPORTS = (*(f"{_TRACKED} {name}" for name in _RATE_KEYS), *_RATE_KEYS)
_SETTINGS = (
    "submission_benchmark", "submission_platform", "submission_org", "global_batch_size",
    "train_samples", "seed", "number_of_nodes", "accelerators_per_node",
)  # fmt: skip
# Keys that begin a new run if the last one has stopped.
_BEGINNINGS = (
    "init_start", "run_start", "cache_clear", "run_clear_caches", "submission_benchmark",
)  # fmt: skip
_PROGRESS = ("block_stop", "epoch_stop", "eval_accuracy", "eval_stop", "run_stop")


@dataclasses.dataclass
class LoggedRun:
    """The events of one run; times are in milliseconds since 1970."""

    line: int = 0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    # The first init_start, run_start and run_stop, which each rank may log.
    times_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    status: str = ""
    # The last samples_count, epoch_num and quality.
    progress: dict[str, float] = dataclasses.field(default_factory=dict)
    reports: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    old: OldRun | None = None  # only for logs of release 0.5

    @property
    def rates(self) -> list[float]:
        """The reported rates."""
        return next((self.reports[key] for key in _REPORTS if key in self.reports), [])

    @property
    def rate(self) -> float | None:
        """The mean of the reported rates, or the rate that the times imply."""
        if self.rates:
            return statistics.fmean(self.rates)
        return self.old.rate if self.old else None

    def seconds_between(self, first: str, last: str) -> float | None:
        """Return the time between two events; None if one of them is missing."""
        if first not in self.times_ms or last not in self.times_ms:
            return None
        return (self.times_ms[last] - self.times_ms[first]) / 1e3

    @property
    def seconds(self) -> float | None:
        """Time from run_start to run_stop."""
        return self.seconds_between("run_start", "run_stop")

    @property
    def devices(self) -> int | None:
        return count_accelerators(self.settings)

    @property
    def global_batch_size(self) -> int | None:
        number = read_finite_number(self.settings.get("global_batch_size"))
        return int(number) if number and number > 0 else None


@dataclasses.dataclass(frozen=True)
class MlperfReading(Reading):
    """The runs of a log, whose devices another file may contain."""

    logged: tuple[LoggedRun, ...] = ()

    @property
    def lacks_devices(self) -> bool:
        return any(run.devices is None for run in self.logged)

    def with_runs(self, logged: Iterable[LoggedRun]) -> "MlperfReading":
        """Return the reading with everything that follows from these runs."""
        runs = tuple(logged)
        scored = [run for run in runs if run.status == "success" and run.seconds]
        return dataclasses.replace(
            self,
            logged=runs,
            runs=tuple(map(_make_imported_run, scored)),
            tables=(Table("MLPerf runs", COLUMNS, tuple(map(_make_result_row, runs))),),
            notes=tuple(_list_notes(runs)),
        )


class Mlperf(LogFormat):
    """The log of one or more runs."""

    name = "mlperf"
    needles = (":::ML",)
    detected = (
        r":::MLLOG \{|:::MLL \d+\.\d+ \w+: \{|:::MLPv0\.5\.\d \w+ \d+(?:\.\d+)? \("
    )
    has_rates = True

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every run; a run that was aborted or has no run_stop has no rate."""
        problems = Problems()
        runs = [LoggedRun()]
        missing = "this MLPerf log contains no run_start"
        for line, text in number_lines(lines):
            start = text.find(":::ML")
            if start < 0:
                continue
            try:
                event = _read_event(text[start:].rstrip("\r\n"))
                if event is not None:
                    missing = "no score: this MLPerf log contains no run_start"
                    _take_event(event, line, runs, problems)
            except input_files.JsonError:
                reason = (
                    "this event is not complete JSON; the line is cut off, or two "
                    "ranks wrote into it"
                )
                problems.add(line, reason, "not JSON")
            except KeyError as e:
                problems.add(line, f"bad event: {e.args[0]!r} is missing", "bad event")
            except (ValueError, TypeError, AttributeError) as e:
                problems.add(line, f"bad event: {e}", "bad event")

        started_runs = [run for run in runs if "run_start" in run.times_ms]
        for run in started_runs:
            if run.old:
                run.progress |= run.old.progress
            _check(run, problems)
        reading = MlperfReading(self.name).with_runs(started_runs)
        checked = make_reading(
            self.name, problems, missing, runs=reading.runs, tables=reading.tables
        )
        return dataclasses.replace(reading, problems=checked.problems)


def _read_event(text: str) -> Any:
    """Return the event of a line in the form of the present release, or None."""
    if text.startswith(LINE_PREFIX):
        return input_files.parse_json(text[len(LINE_PREFIX) :])
    if match := _V06.match(text):
        event = input_files.parse_json(match[3])
        return {"time_ms": 1000 * float(match[1]), "key": match[2], **event}
    return _read_event_of_v05(text)


def _take_event(
    event: Mapping[str, Any], line: int, runs: list[LoggedRun], problems: Problems
) -> None:
    """Add an event to the last run, or begin a new run with it."""
    key = event["key"]
    value = event.get("value")
    metadata = event.get("metadata") or {}
    ms = read_finite_number(event["time_ms"])
    if ms is None or ms < 0:
        text = str(event["time_ms"])[:40]
        raise ValueError(f"expected time_ms in milliseconds since 1970, got {text}")

    run = _run_of_event(key, runs)
    has_stopped = "run_stop" in run.times_ms
    if "benchmark" in event and not has_stopped:
        _take_old_event(run, event, ms)

    if key in ("init_start", "run_start", "run_stop"):
        _take_time(run, event, line, problems)
    elif key == "eval_accuracy" and (quality := read_finite_number(value)) is not None:
        run.progress["quality"] = quality
    elif key in _SETTINGS and not (has_stopped and key in run.settings):
        run.settings[key] = value
    elif key == _TRACKED or key in _RATE_KEYS:
        _take_report(run, key, value)

    if "run_start" in run.times_ms and key in _PROGRESS:
        # Other ranks may report smaller numbers later.
        for name in ("samples_count", "epoch_num"):
            number = read_finite_number(metadata.get(name))
            if number is not None and number >= run.progress.get(name, 0):
                run.progress[name] = number


def _take_time(
    run: LoggedRun, event: Mapping[str, Any], line: int, problems: Problems
) -> None:
    """Take the time of a start or a stop, which each rank may log; the first counts."""
    key = event["key"]
    if key in run.times_ms:
        return
    if key == "run_stop" and "run_start" not in run.times_ms:
        problems.add(line, "run_stop has no run_start before it", "stop without start")
    else:
        run.times_ms[key] = float(event["time_ms"])
        if key == "run_start":
            run.line = line
        elif key == "run_stop":
            run.status = _read_status(run, event.get("metadata") or {})


def _run_of_event(key: str, runs: list[LoggedRun]) -> LoggedRun:
    """Return the run that an event belongs to; some events begin a run after a stop.

    A new run keeps the settings of the last one, unless it names its benchmark first.
    """
    last = runs[-1]
    if "run_stop" in last.times_ms and key in _BEGINNINGS:
        settings = {} if key == "submission_benchmark" else dict(last.settings)
        runs.append(LoggedRun(settings=settings))
    return runs[-1]


def _read_status(run: LoggedRun, metadata: Mapping[str, Any]) -> str:
    """Return the status of a stop, or the one that the target quality implies."""
    if "status" in metadata or run.old is None:
        return str(metadata.get("status", "no status"))
    # In release 0.5 a run may stop without naming its status.
    quality = run.progress.get("quality", -math.inf)
    has_reached_target = quality >= run.old.sizes.get("eval_target", math.inf)
    return "success" if has_reached_target else "no status"


def _take_old_event(run: LoggedRun, event: Mapping[str, Any], ms: float) -> None:
    """Add an event of release 0.5, whose lines name the benchmark."""
    if run.old is None:
        run.old = OldRun()
    run.old.take(event["key"], event["value"], ms)
    run.settings["submission_benchmark"] = event["benchmark"]
    if "input_batch_size" in run.old.sizes:
        run.settings["global_batch_size"] = run.old.sizes["input_batch_size"]


def _take_report(run: LoggedRun, key: str, value: Any) -> None:
    """Add the rates of an event to the reports of the run."""
    fields = value if isinstance(value, dict) else {key: value}
    rates = {name: fields[name] for name in _RATE_KEYS if name in fields}
    if any((read_finite_number(rate) or 0.0) <= 0 for rate in rates.values()):
        text = str(list(rates.values()))[:40]
        raise ValueError(f"expected a throughput above 0, got {text}")
    for name, rate in rates.items():
        report = f"{_TRACKED} {name}" if key == _TRACKED else name
        run.reports.setdefault(report, []).append(rate)


def _check(run: LoggedRun, problems: Problems) -> None:
    """Report why a run has no score."""
    fault = ""
    if run.seconds is None:
        fault = "the run has no run_stop; it was killed, or the log is cut short"
        run.status = "no run_stop"
    elif run.seconds <= 0:
        fault = f"run_stop is {abs(run.seconds):g} s before run_start"
        run.status = "bad times"
    elif run.status != "success":
        fault = f"the run ended with status {run.status!r}"
    if fault:
        problems.add(run.line, f"{_NO_SCORE}: {fault}", fault[:14])
    batch = run.settings.get("global_batch_size")
    if batch is not None and not run.global_batch_size:
        reason = f"expected a global_batch_size above 0, got {batch!r}"
        problems.add(run.line, reason, "batch")


def count_accelerators(settings: Mapping[str, Any]) -> int | None:
    """Return number_of_nodes x accelerators_per_node, or None if one is unknown.

    In the description of a system they are texts.
    """
    product = 1.0
    for name in ("number_of_nodes", "accelerators_per_node"):
        value = settings.get(name)
        if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
            value = int(value)
        number = read_finite_number(value)
        if not number or number < 0:
            return None
        product *= number
    return int(product)


def _make_result_row(run: LoggedRun) -> tuple[Value, ...]:
    settings = run.settings
    seed = settings.get("seed")
    return (
        format_cell(settings.get("submission_benchmark")),
        format_cell(settings.get("submission_platform")),
        run.status if run.status == "success" else f"{_NO_SCORE} ({run.status})",
        run.seconds,
        run.seconds_between("init_start", "run_start"),
        run.devices,
        run.global_batch_size,
        *(run.progress.get(name) for name in _EXTRA),
        run.rate,
        len(run.rates),
        seed if isinstance(seed, int) else None,
    )


def format_cell(value: Any) -> str | None:
    """Return a value as the text of a cell; None if it is empty."""
    return str(value)[:80] if value not in (None, "") else None


def _make_imported_run(run: LoggedRun) -> ImportedRun:
    # The number of machines is not part of the name: "4xNVIDIA DGX-1".
    platform = format_cell(run.settings.get("submission_platform")) or ""
    batch_size = run.global_batch_size
    devices = run.devices
    options: dict[str, Any] = {
        "model": format_cell(run.settings.get("submission_benchmark")),
        "machine": re.sub(r"^\d+\s?x\s?", "", platform) or None,
        "global_batch_size": batch_size,
        "num_devices": devices,
    }
    # The batch of each device, if it divides evenly.
    if batch_size and devices and batch_size % devices == 0:
        options |= {"global_batch_size": None, "batch_size": batch_size // devices}

    seconds = round(run.seconds or 0.0, 3)
    extra_numbers = {"time to target (s)": read_exact_number(seconds, 1e-3)}
    for name, title in _EXTRA.items():
        if name in run.progress:
            extra_numbers[title] = read_exact_number(run.progress[name])
    rate = run.rate
    record = run_record(Mlperf.name, options, "samples", rate)
    return ImportedRun(
        run.line, record, extra_numbers, read_exact_number(rate) if rate else None
    )


def _list_notes(runs: Sequence[LoggedRun]) -> list[str]:
    notes = list(NOTES)
    if any(run.old for run in runs):
        notes.append(_NOTE_OF_V05)
    if any(run.devices is None for run in runs):
        notes.append(_NO_DEVICES)
    return notes
