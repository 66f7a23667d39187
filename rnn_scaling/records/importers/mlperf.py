"""MLPerf training logs: the events of one or more runs.

Formats: mlcommons/logging, mlperf_logging/mllog and compliance_checker/training_*/
common.yaml: ":::MLLOG {json}". Release 0.6 wrote ":::MLL SECONDS KEY: {json}", and
release 0.5 (`mlperf_v05`) one event per line without JSON.
"""

import dataclasses
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling.records.importers import mlperf_v05
from rnn_scaling.records.importers.reading import (
    ImportedRun,
    LogFormat,
    Problems,
    Reading,
    Terms,
    exact_number,
    finite_number,
    make_reading,
    number_lines,
    run_record,
)
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value

LINE_PREFIX = ":::MLLOG "
NO_SCORE = "no score"
NO_DEVICES = (
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
_EVENT = re.compile(
    r":::MLLOG \{|:::MLL \d+\.\d+ \w+: \{|:::MLPv0\.5\.\d \w+ \d+(?:\.\d+)? \("
)
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
class _Run:
    """One run so far; times in milliseconds since the epoch."""

    line: int = 0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    init_ms: float | None = None
    start_ms: float | None = None
    stop_ms: float | None = None
    status: str = ""
    num_repeated: int = 0  # starts and stops that other ranks had logged before
    # The last samples_count, epoch_num and quality.
    reached: dict[str, float] = dataclasses.field(default_factory=dict)
    reports: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    old: mlperf_v05.OldRun | None = None  # of a log of release 0.5

    @property
    def rates(self) -> list[float]:
        """The reported rates."""
        for name in _REPORTS:
            if name in self.reports:
                return self.reports[name]
        return []

    @property
    def rate(self) -> float | None:
        """The mean of the reported rates, or the rate that the times imply."""
        if self.rates:
            return statistics.fmean(self.rates)
        return self.old.rate if self.old else None

    @property
    def seconds(self) -> float | None:
        """Time from run_start to run_stop."""
        if self.start_ms is None or self.stop_ms is None:
            return None
        return (self.stop_ms - self.start_ms) / 1e3


class Mlperf(LogFormat):
    """The log of one or more runs."""

    name = "mlperf"
    has_rates = True

    def detect(self, text: str) -> bool:
        """Return whether a text contains an event."""
        return ":::ML" in text and _EVENT.search(text) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every run; a run that was aborted or has no run_stop has no rate."""
        problems = Problems()
        runs = [_Run()]
        missing = "no run_start in this MLPerf log"
        for line, text in number_lines(lines):
            start = text.find(":::ML")
            if start < 0:
                continue
            try:
                event = _read_event(text[start:].rstrip("\r\n"))
                if event is not None:
                    missing = "no score: no run_start in this MLPerf log"
                    _take_event(event, line, runs, problems)
            except input_files.JsonError:
                reason = (
                    "no whole JSON in this event; the line is cut, or two ranks wrote "
                    "into it"
                )
                problems.add(line, reason, "not JSON")
            except KeyError as e:
                problems.add(line, f"bad event: {e.args[0]!r} is missing", "bad event")
            except (ValueError, TypeError, AttributeError) as e:
                problems.add(line, f"bad event: {e}", "bad event")
            if problems.is_over_limit(line, len(runs), "runs"):
                break

        started = [run for run in runs if run.start_ms is not None]
        for run in started:
            if run.old:
                run.reached |= run.old.reached
            _check(run, problems)
        scored = [run for run in started if run.status == "success" and run.seconds]
        return make_reading(
            self.name,
            problems,
            missing,
            runs=map(_imported_run, scored),
            tables=[Table("MLPerf runs", COLUMNS, tuple(map(_row, started)))],
            notes=[*NOTES, *_notes(started)],
        )


def _read_event(text: str) -> Any:
    """Return the event of a line in the form of the present release, or None."""
    if text.startswith(LINE_PREFIX):
        return input_files.parse_json(text[len(LINE_PREFIX) :])
    if match := _V06.match(text):
        event = input_files.parse_json(match[3])
        return {"time_ms": 1000 * float(match[1]), "key": match[2], **event}
    return mlperf_v05.read_event(text)


def _take_event(
    event: Mapping[str, Any], line: int, runs: list[_Run], problems: Problems
) -> None:
    """Add an event to the last run, or begin a new run with it."""
    key = event["key"]
    value = event.get("value")
    metadata = event.get("metadata") or {}
    ms = finite_number(event["time_ms"])
    if ms is None or ms < 0:
        shown = str(event["time_ms"])[:40]
        raise ValueError(f"expected time_ms in milliseconds since 1970, got {shown}")

    run = runs[-1]
    if run.stop_ms is not None and key in _BEGINNINGS:
        settings = {} if key == "submission_benchmark" else dict(run.settings)
        run = _Run(settings=settings)
        runs.append(run)
    has_stopped = run.stop_ms is not None
    if "benchmark" in event and not has_stopped:
        _take_old_event(run, event, ms)

    if key == "init_start" and run.init_ms is None:
        run.init_ms = ms
    elif key == "run_start":
        _take_start(run, ms, line)
    elif key == "run_stop":
        _take_stop(run, ms, metadata, line, problems)
    elif key == "eval_accuracy" and (quality := finite_number(value)) is not None:
        run.reached["quality"] = quality
    elif key in _SETTINGS and not (has_stopped and key in run.settings):
        run.settings[key] = value
    elif key == _TRACKED or key in _RATE_KEYS:
        _take_report(run, key, value)

    if run.start_ms is not None and key in _PROGRESS:
        for name in ("samples_count", "epoch_num"):
            number = finite_number(metadata.get(name))
            if number is not None and number >= run.reached.get(name, 0):
                run.reached[name] = number


def _take_start(run: _Run, ms: float, line: int) -> None:
    if run.start_ms is not None:  # Another rank logs the start as well.
        run.num_repeated += 1
        return
    run.start_ms = ms
    run.line = line


def _take_stop(
    run: _Run, ms: float, metadata: Mapping[str, Any], line: int, problems: Problems
) -> None:
    if run.stop_ms is not None:
        run.num_repeated += 1
        return
    if run.start_ms is None:
        problems.add(line, "run_stop without a run_start", "stop without start")
        return
    run.stop_ms = ms
    run.status = str(metadata.get("status", "no status"))
    # In release 0.5 a run may stop without naming its status.
    if "status" not in metadata and run.old and run.old.has_reached(run.reached):
        run.status = "success"


def _take_old_event(run: _Run, event: Mapping[str, Any], ms: float) -> None:
    """Add an event of release 0.5, whose lines name the benchmark."""
    if run.old is None:
        run.old = mlperf_v05.OldRun()
    run.old.take(event["key"], event["value"], event["metadata"].get("epoch"), ms)
    run.settings["submission_benchmark"] = event["benchmark"]
    if run.old.batch_size is not None:
        run.settings["global_batch_size"] = run.old.batch_size


def _take_report(run: _Run, key: str, value: Any) -> None:
    """Add the rates of an event to the reports of the run."""
    named = value if isinstance(value, dict) else {key: value}
    rates = {name: named[name] for name in _RATE_KEYS if name in named}
    if any((finite_number(rate) or 0.0) <= 0 for rate in rates.values()):
        shown = str(list(rates.values()))[:40]
        raise ValueError(f"expected a throughput above 0, got {shown}")
    for name, rate in rates.items():
        report = f"{_TRACKED} {name}" if key == _TRACKED else name
        run.reports.setdefault(report, []).append(rate)


def _check(run: _Run, problems: Problems) -> None:
    """Report why a run has no score."""
    if run.stop_ms is None:
        reason = "a run without run_stop; it was killed, or the log is cut short"
        problems.add(run.line, f"{NO_SCORE}: {reason}", "no stop")
        run.status = "no run_stop"
    elif (run.seconds or 0) <= 0:
        early_s = -(run.seconds or 0)
        reason = f"{NO_SCORE}: run_stop is {early_s:g} s before run_start"
        problems.add(run.line, reason, "negative")
        run.status = "bad times"
    elif run.status != "success":
        reason = f"{NO_SCORE}: the run ended with status {run.status!r}"
        problems.add(run.line, reason, "status")

    batch = run.settings.get("global_batch_size")
    if batch is not None and not (finite_number(batch) or 0) > 0:
        reason = f"expected a global_batch_size above 0, got {batch!r}"
        problems.add(run.line, reason, "batch")


def count_accelerators(settings: Mapping[str, Any]) -> int | None:
    """Return number_of_nodes x accelerators_per_node; None if one is not known.

    In the description of a system they are texts.
    """
    product = 1.0
    for name in ("number_of_nodes", "accelerators_per_node"):
        value = settings.get(name)
        if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
            value = int(value)
        number = finite_number(value)
        if not number or number < 0:
            return None
        product *= number
    return int(product)


def _row(run: _Run) -> tuple[Value, ...]:
    settings = run.settings
    init_s = None
    if run.start_ms and run.init_ms is not None:
        init_s = (run.start_ms - run.init_ms) / 1e3
    status = run.status if run.status == "success" else f"{NO_SCORE} ({run.status})"
    batch = finite_number(settings.get("global_batch_size"))
    seed = settings.get("seed")
    return (
        short_text(settings.get("submission_benchmark")),
        short_text(settings.get("submission_platform")),
        status,
        run.seconds,
        init_s,
        count_accelerators(settings),
        int(batch) if batch else None,
        *(run.reached.get(name) for name in _EXTRA),
        run.rate,
        len(run.rates),
        seed if isinstance(seed, int) else None,
    )


def short_text(value: Any) -> str | None:
    """Return a value as the text of a cell; None if it is empty."""
    return str(value)[:80] if value not in (None, "") else None


def _imported_run(run: _Run) -> ImportedRun:
    settings = run.settings
    # The number of machines is not part of the name: "4xNVIDIA DGX-1".
    platform = short_text(settings.get("submission_platform")) or ""
    options: dict[str, Any] = {
        "model": short_text(settings.get("submission_benchmark")),
        "machine": re.sub(r"^\d+\s?x\s?", "", platform) or None,
    }
    batch = finite_number(settings.get("global_batch_size"))
    if batch and batch > 0:
        options["global_batch_size"] = int(batch)
    options |= device_options(options, count_accelerators(settings))

    seconds = round(run.seconds or 0.0, 3)
    extra = {"time to target (s)": exact_number(seconds, 1e-3)}
    for name, title in _EXTRA.items():
        if name in run.reached:
            extra[title] = exact_number(run.reached[name])
    rate = run.rate
    record = run_record(Mlperf.name, options, "samples", rate)
    return ImportedRun(run.line, record, extra, exact_number(rate) if rate else None)


def device_options(options: Mapping[str, Any], devices: int | None) -> dict[str, Any]:
    """Return the number of devices, and the batch of each if it divides evenly."""
    total = options.get("global_batch_size")
    if devices is None or not total or total % devices:
        return {"num_devices": devices}
    return {
        "num_devices": devices,
        "batch_size": total // devices,
        "global_batch_size": None,
    }


def _notes(runs: Sequence[_Run]) -> list[str]:
    notes = []
    num_repeated = sum(run.num_repeated for run in runs)
    if num_repeated:
        notes.append(
            f"{num_repeated} lines of run_start and run_stop repeat an earlier one of "
            "the same run (several ranks log): the first of each counts."
        )
    if any(run.old for run in runs):
        notes.append(mlperf_v05.NOTE)
    if any(count_accelerators(run.settings) is None for run in runs):
        notes.append(NO_DEVICES)
    return notes
