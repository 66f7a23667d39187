"""MLPerf training: the events of one or more runs, and the description of a system.

Formats: mlcommons/logging, mlperf_logging/mllog and compliance_checker/training_*/
common.yaml: ":::MLLOG {json}"; release 0.6 wrote ":::MLL SECONDS KEY: {json}"; release
0.5 (`mlperf_v05`) one event per line without JSON. systems/NAME.json of a submission
says how many accelerators its logs were made on.
"""

import dataclasses
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.records.importers import mlperf_v05
from rnn_scaling.records.importers.reading import (
    Finding,
    FindingKind,
    ImportedRun,
    LineError,
    LogFormat,
    Problems,
    Reading,
    Terms,
    exact,
    finish,
    finite,
    numbered,
    run_record,
)
from rnn_scaling.records.options import Options
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value

NO_SCORE = "no score"
NO_DEVICES = (
    "Without number_of_nodes and accelerators_per_node the number of devices is unknown; "
    "the system's description (systems/NAME.json of a submission) has them: name it among "
    "the files."
)
NOTES = (
    "Run (s) is run_stop - run_start, MLPerf's time to target quality: it includes "
    "evaluations and the number of epochs that the batch size needed, so it is no measure "
    "of speed alone.",
    "Throughput is the mean of what the run itself reported (tracked_stats, else "
    "*_throughput; never both), in samples/s of all accelerators by convention; the "
    "format does not define it.",
)
COLUMNS = (
    "Benchmark", "Platform", "Status", "Run (s)", "Init (s)", "Accelerators",
    "Global batch size", "Trained samples", "Epochs", "Last quality",
    "Mean throughput (samples/s)", "Throughput reports", "Seed",
)  # fmt: skip
LEAST_RUNS = 5  # of the vision benchmarks; others ask for 10
LEAST_REPEATS = 4  # runs below which none can stand out
SLOWER = 0.8  # speed of a slow run, as a share of the median
SCATTERS = 5.0  # below the median; the scatter is that of the median deviation
_TO_DEVIATION = 1.4826  # normal distribution: deviation / median absolute deviation
SCORE_COLUMNS = (
    "Benchmark", "Platform", "Accelerators", "Global batch size", "Runs",
    "Without a score", "Fastest (s)", "Slowest (s)", "Mean (s)", "Olympic mean (s)",
)  # fmt: skip
_GROUPED = SCORE_COLUMNS[:4]
SCORE_NOTE = (
    f"Olympic mean: of {LEAST_RUNS} runs or more, the mean without the fastest and the "
    "slowest; one run without a score counts as the slowest, with two there is none. "
    "MLPerf itself asks for 5 or 10 runs, by benchmark."
)
SYSTEM_COLUMNS = {
    "System": "system_name", "Submitter": "submitter", "Nodes": "number_of_nodes",
    "Accelerators a node": "accelerators_per_node", "Accelerators": "",
    "Accelerator": "accelerator_model_name", "Framework": "framework",
}  # fmt: skip
_V06 = re.compile(r":::MLL (\d{1,12}\.\d{1,9}) (\w{1,80}): (\{.*)")
LINE_PREFIX = ":::MLLOG "
# Keys that hold a rate: in later releases within the value of "tracked_stats", in older
# ones of their own. Several of them report one rate twice; the first name counts.
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
    init_start: float | None = None
    start: float | None = None
    stop: float | None = None
    status: str = ""
    repeats: int = 0  # starts and stops of other ranks
    # "samples_count", "epoch_num" and "quality", as far as it came.
    reached: dict[str, float] = dataclasses.field(default_factory=dict)
    reports: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    old: mlperf_v05.Progress | None = None  # of a log of release 0.5

    @property
    def rates(self) -> list[float]:
        """The reported rates."""
        return next(
            (self.reports[name] for name in _REPORTS if name in self.reports), []
        )

    @property
    def rate(self) -> float | None:
        """The mean of the reported rates, or the one that follows from times."""
        if self.rates:
            return statistics.fmean(self.rates)
        return self.old.rate if self.old else None

    @property
    def seconds(self) -> float | None:
        """Time from run_start to run_stop."""
        if self.start is None or self.stop is None:
            return None
        return (self.stop - self.start) / 1e3


class Mlperf(LogFormat):
    """The log of one or more runs; see `reading`."""

    name = "mlperf"
    has_rates = True

    def detect(self, text: str) -> bool:
        """Return whether a text has an event."""
        event = (
            r":::MLLOG \{|:::MLL \d+\.\d+ \w+: \{|"
            r":::MLPv0\.5\.\d \w+ \d+(?:\.\d+)? \("
        )
        return ":::ML" in text and re.search(event, text) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every run; one without run_stop, or aborted, has no rate."""
        problems = Problems()
        runs = [_Run()]
        nothing = "no run_start in this MLPerf log"
        for line, text in numbered(lines):
            begin = text.find(":::ML")
            if begin < 0:
                continue
            try:
                event = _read_event(text[begin:].rstrip("\r\n"))
                if event is not None:
                    nothing = "no score: no run_start in this MLPerf log"
                    _take(event, line, runs, problems)
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
            if problems.too_many(line, len(runs), "runs"):
                break
        started = [run for run in runs if run.start is not None]
        for run in started:
            if run.old:
                run.reached |= run.old.reached
            _judge(run, problems)
        scored = [run for run in started if run.status == "success" and run.seconds]
        table = Table("MLPerf runs", COLUMNS, tuple(_row(run) for run in started))
        return finish(
            self.name,
            problems,
            nothing,
            runs=[_imported(run) for run in scored],
            tables=[table],
            notes=[*NOTES, *_notes(started)],
        )


class MlperfSystem(LogFormat):
    """The description of a system."""

    name = "mlperf_system"

    def detect(self, text: str) -> bool:
        """Return whether a text has the keys of a description."""
        keys = ('"system_name"', '"number_of_nodes"', '"accelerators_per_node"')
        return all(key in text for key in keys)

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the one description of a file."""
        try:
            system = input_files.parse_json("".join(lines))
        except input_files.JsonError:
            raise LineError(1, "no whole JSON of a system's description") from None
        devices = accelerators(system) if isinstance(system, dict) else None
        if devices is None:
            raise LineError(
                1,
                "number_of_nodes and accelerators_per_node are not both there, or no "
                "numbers above 0",
            )
        cells = [_text(system.get(key)) for key in SYSTEM_COLUMNS.values()]
        row: list[Value] = [*cells]
        row[list(SYSTEM_COLUMNS).index("Accelerators")] = devices
        table = Table("MLPerf system", tuple(SYSTEM_COLUMNS), (tuple(row),))
        note = "Accelerators = number_of_nodes x accelerators_per_node."
        return finish(self.name, Problems(), "", tables=[table], notes=[note])


def _read_event(text: str) -> Any:
    """Return the event of a line in the form of the present release, or None."""
    if text.startswith(LINE_PREFIX):
        return input_files.parse_json(text[len(LINE_PREFIX) :])
    if match := _V06.match(text):
        event = input_files.parse_json(match[3])
        return {"time_ms": 1000 * float(match[1]), "key": match[2], **event}
    return mlperf_v05.read_event(text)


def _take(
    event: Mapping[str, Any], line: int, runs: list[_Run], problems: Problems
) -> None:
    """Take one event into the last run, or begin a new one."""
    key = event["key"]
    value = event.get("value")
    metadata = event.get("metadata") or {}
    ms = finite(event["time_ms"])
    if ms is None or ms < 0:
        shown = str(event["time_ms"])[:40]
        raise ValueError(f"expected time_ms in milliseconds since 1970, got {shown}")
    run = runs[-1]
    if run.stop is not None and key in _BEGINNINGS:
        settings = {} if key == "submission_benchmark" else dict(run.settings)
        run = _Run(settings=settings)
        runs.append(run)
    if "benchmark" in event and run.stop is None:
        _take_old(run, event, ms)
    if key == "init_start" and run.init_start is None:
        run.init_start = ms
    elif key == "run_start" and run.start is None:
        run.start = ms
        run.line = line
    elif key == "run_start" or (key == "run_stop" and run.stop is not None):
        run.repeats += 1  # the line of another rank; the first one counts
    elif key == "run_stop" and run.start is None:
        problems.add(line, "run_stop without a run_start", "stop without start")
    elif key == "run_stop":
        run.stop = ms
        run.status = str(metadata.get("status", "no status"))
        if "status" not in metadata and run.old and run.old.has_reached(run.reached):
            run.status = "success"  # release 0.5 may stop without a word about it
    elif key == "eval_accuracy" and (quality := finite(value)) is not None:
        run.reached["quality"] = quality
    elif key in _SETTINGS and not (run.stop is not None and key in run.settings):
        run.settings[key] = value
    if key == _TRACKED or key in _RATE_KEYS:
        _report(run, key, value)
    if run.start is not None and key in _PROGRESS:
        for name in ("samples_count", "epoch_num"):
            number = finite(metadata.get(name))
            if number is not None and number >= run.reached.get(name, 0):
                run.reached[name] = number


def _take_old(run: _Run, event: Mapping[str, Any], ms: float) -> None:
    """Take an event of release 0.5, whose lines name the benchmark."""
    if run.old is None:
        run.old = mlperf_v05.Progress()
    run.old.take(event["key"], event["value"], event["metadata"].get("epoch"), ms)
    run.settings["submission_benchmark"] = event["benchmark"]
    if run.old.batch_size is not None:
        run.settings["global_batch_size"] = run.old.batch_size


def _report(run: _Run, key: str, value: Any) -> None:
    """Add the rates of an event to those of the run."""
    named = value if isinstance(value, dict) else {key: value}
    rates = {name: named[name] for name in _RATE_KEYS if name in named}
    if any((finite(rate) or 0.0) <= 0 for rate in rates.values()):
        shown = str(list(rates.values()))[:40]
        raise ValueError(f"expected a throughput above 0, got {shown}")
    for name, rate in rates.items():
        report = f"{_TRACKED} {name}" if key == _TRACKED else name
        run.reports.setdefault(report, []).append(rate)


def _judge(run: _Run, problems: Problems) -> None:
    """Note why a run has no score."""
    if run.stop is None:
        reason = "a run without run_stop; it was killed, or the log is cut short"
        problems.add(run.line, f"{NO_SCORE}: {reason}", "no stop")
        run.status = "no run_stop"
    elif run.stop <= (run.start or 0):
        early_s = -(run.seconds or 0)
        reason = f"{NO_SCORE}: run_stop is {early_s:g} s before run_start"
        problems.add(run.line, reason, "negative")
        run.status = "bad times"
    elif run.status != "success":
        reason = f"{NO_SCORE}: the run ended with status {run.status!r}"
        problems.add(run.line, reason, "status")
    batch = run.settings.get("global_batch_size")
    if batch is not None and not (finite(batch) or 0) > 0:
        reason = f"expected a global_batch_size above 0, got {batch!r}"
        problems.add(run.line, reason, "batch")


def accelerators(settings: Mapping[str, Any]) -> int | None:
    """Return number_of_nodes x accelerators_per_node; None if one is not known.

    A description of a system has them as texts.
    """
    product = 1.0
    for name in ("number_of_nodes", "accelerators_per_node"):
        value = settings.get(name)
        if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII):
            value = int(value)
        number = finite(value)
        if not number or number < 0:
            return None
        product *= number
    return int(product)


def _row(run: _Run) -> tuple[Value, ...]:
    settings = run.settings
    init_s = None
    if run.start and run.init_start is not None:
        init_s = (run.start - run.init_start) / 1e3
    status = run.status if run.status == "success" else f"{NO_SCORE} ({run.status})"
    batch = finite(settings.get("global_batch_size"))
    seed = settings.get("seed")
    return (
        _text(settings.get("submission_benchmark")),
        _text(settings.get("submission_platform")),
        status,
        run.seconds,
        init_s,
        accelerators(settings),
        int(batch) if batch else None,
        *(run.reached.get(name) for name in ("samples_count", "epoch_num", "quality")),
        run.rate,
        len(run.rates),
        seed if isinstance(seed, int) else None,
    )


def _text(value: Any) -> str | None:
    return str(value)[:80] if value not in (None, "") else None


def _imported(run: _Run) -> ImportedRun:
    # Without how many of it: "NVIDIA DGX-1" of 1x and 4xNVIDIA DGX-1.
    platform = _text(run.settings.get("submission_platform")) or ""
    options: dict[str, Any] = {
        "model": _text(run.settings.get("submission_benchmark")),
        "machine": re.sub(r"^\d+\s?x\s?", "", platform) or None,
    }
    batch = finite(run.settings.get("global_batch_size"))
    if batch and batch > 0:
        options["global_batch_size"] = int(batch)
    options |= sizes(options, accelerators(run.settings))
    extra = {"time to target (s)": exact(round(run.seconds or 0.0, 3), 1e-3)}
    for name, title in (
        ("samples_count", "trained samples"),
        ("epoch_num", "epochs"),
        ("quality", "last quality"),
    ):
        if name in run.reached:
            extra[title] = exact(run.reached[name])
    rate = run.rate
    record = run_record("mlperf", options, "samples", rate)
    return ImportedRun(run.line, record, extra, exact(rate) if rate else None)


def sizes(options: Mapping[str, Any], devices: int | None) -> dict[str, Any]:
    """Return the options of a number of devices and of a global batch over them."""
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
    repeats = sum(run.repeats for run in runs)
    if repeats:
        notes.append(
            f"{repeats} lines of run_start and run_stop repeat an earlier one of the same "
            "run (several ranks log): the first of each counts."
        )
    if any(run.old for run in runs):
        notes.append(mlperf_v05.NOTE)
    if any(accelerators(run.settings) is None for run in runs):
        notes.append(NO_DEVICES)
    return notes


def join(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings, those of runs without devices with that of their system.

    A submission has results/SYSTEM/BENCHMARK/result_0.txt and systems/SYSTEM.json. The
    description of a log is the file at that place, else a given one of that name; the
    only given one of another name serves logs whose path names no system.
    """
    systems = [reading for reading in readings if reading.format == MlperfSystem.name]
    lacking = [
        reading
        for reading in readings
        if reading.format == Mlperf.name
        and None in reading.tables[0].column("Accelerators")
    ]
    # What the path of one log names is the system of that log, and of no other.
    is_named = any(_named(Path(reading.source), systems) for reading in lacking)
    only = systems if len(systems) == 1 and not is_named else []
    joined = []
    for reading in readings:
        if any(reading is each for each in lacking):
            reading = _with_system(reading, systems, only)
        joined.append(reading)
    return joined


def _with_system(
    reading: Reading, systems: Sequence[Reading], only: Sequence[Reading]
) -> Reading:
    path = Path(reading.source)
    place = _place(path)
    fitting = _beside(place) or _named(path, systems)
    if not fitting and place is None:
        fitting = list(only)
    if fitting:
        return _filled(reading, fitting[0])
    if not systems:
        return reading
    text = (
        "its path names none of the given descriptions; one is found by the name of a "
        "folder of the log's"
    )
    if place is not None:
        text = (
            f"no given description describes system {place.stem}, which its folder names; "
            f"{place.name} would be used"
        )
    return dataclasses.replace(reading, notes=(*reading.notes, f"{path}: {text}."))


def _filled(reading: Reading, system: Reading) -> Reading:
    """Return the runs with the number of devices, and the platform, of their system."""
    devices = _cell(system, "Accelerators")
    assert isinstance(devices, int)
    table = reading.tables[0]
    has_platform = any(table.column("Platform"))
    name = None if has_platform else str(_cell(system, "System") or "") or None
    values = {"Accelerators": devices, "Platform": name}
    rows = [
        tuple(
            values.get(column) if cell is None else cell
            for column, cell in zip(table.columns, row)
        )
        for row in table.rows
    ]
    runs = []
    for run in reading.runs:
        options = dict(run.options)
        if "num_devices" not in options:
            options |= sizes(options, devices)
        if name:
            options["machine"] = name
        known = {key: value for key, value in options.items() if value is not None}
        record = dataclasses.replace(run.record, options=Options(known))
        runs.append(dataclasses.replace(run, record=record))
    notes = [note for note in reading.notes if note != NO_DEVICES]
    notes.append(f"{reading.source}: {devices} accelerators, as {system.source} says.")
    return dataclasses.replace(
        reading,
        runs=tuple(runs),
        tables=(Table(table.title, table.columns, tuple(rows)),),
        notes=tuple(notes),
    )


def _named(path: Path, systems: Sequence[Reading]) -> list[Reading]:
    """Return the given description that a log's path names.

    That is by its folder below results/, else by the innermost folder.
    """
    place = _place(path)
    folders = [place.stem] if place else [above.name for above in path.parents]
    for folder in filter(None, folders):
        for system in systems:
            if folder in (Path(system.source).stem, _cell(system, "System")):
                return [system]
    return []


def _cell(system: Reading, name: str) -> Value:
    return system.tables[0].column(name)[0]


def _place(path: Path) -> Path | None:
    """Return where the description of a log in results/SYSTEM/... is; None for others."""
    for log_path in (path, path.absolute()):
        for folder in log_path.parents:
            if folder.parent.name == "results":
                return folder.parent.parent / "systems" / f"{folder.name}.json"
    return None


def _beside(place: Path | None) -> list[Reading]:
    """Return the description at its place, if there is one that can be read."""
    if place is None or not place.is_file():
        return []
    try:
        text = input_files.read_bytes(place).decode("utf-8-sig")
        reading = MlperfSystem().read([text], Terms())
    except (OSError, ValueError):
        return []
    return [dataclasses.replace(reading, source=str(place))]


def scores(
    readings: Sequence[Reading],
) -> tuple[Table | None, list[tuple[str, Finding]]]:
    """Return the scores of the runs of all logs, and what stands out, with its log.

    Runs of one benchmark, platform, size and batch are repeats.
    """
    groups: dict[tuple[Value, ...], list[tuple[str, float | None]]] = {}
    for reading in readings:
        for table in reading.tables if reading.format == Mlperf.name else ():
            for row in table.rows:
                cells = dict(zip(table.columns, row))
                seconds = cells["Run (s)"] if cells["Status"] == "success" else None
                scored_s = seconds if isinstance(seconds, float) else None
                key = tuple(cells[name] for name in _GROUPED)
                groups.setdefault(key, []).append((reading.source, scored_s))
    rows = []
    findings = []
    for key, runs in groups.items():
        times = sorted(seconds for _, seconds in runs if seconds is not None)
        without = len(runs) - len(times)
        ends = (times[0], times[-1], statistics.fmean(times)) if times else (None,) * 3
        rows.append((*key, len(runs), without, *ends, olympic_mean(times, without)))
        limit_s = _slowest_usual(times)
        for source, seconds in runs:
            if seconds is not None and seconds > limit_s:
                values = {"seconds": seconds, "usual": statistics.median(times)}
                findings.append((source, Finding(FindingKind.SLOW_RUN, 0, values)))
        if without:
            failed = [source for source, seconds in runs if seconds is None]
            group = ", ".join(str(part) for part in key if part is not None)
            finding = Finding(
                FindingKind.NO_SCORE,
                0,
                {"count": without, "total": len(runs), "group": group},
            )
            findings.append((", ".join(failed), finding))
    if not rows:
        return None, []
    return Table("MLPerf scores (time to target)", SCORE_COLUMNS, tuple(rows)), findings


def _slowest_usual(times: Sequence[float]) -> float:
    """Return the seconds above which a run is far slower than its repeats."""
    if len(times) < LEAST_REPEATS:
        return float("inf")
    speeds = [1 / seconds for seconds in times]
    middle = statistics.median(speeds)
    deviation = statistics.median(abs(speed - middle) for speed in speeds)
    limit = min(SLOWER * middle, middle - SCATTERS * _TO_DEVIATION * deviation)
    return 1 / limit if limit > 0 else float("inf")


def olympic_mean(times: Sequence[float], without: int) -> float | None:
    """Return the mean seconds without the best and the worst run.

    None for fewer than LEAST_RUNS, or if several have no score. Source:
    mlcommons/training_policies, training_rules.adoc, "Benchmark results": the lowest and
    the highest run are dropped, and a run that does not reach the target counts as the
    slowest.
    """
    if len(times) + without < LEAST_RUNS or without > 1:
        return None
    ordered = sorted(times)
    return statistics.fmean(ordered[1:] if without else ordered[1:-1])
