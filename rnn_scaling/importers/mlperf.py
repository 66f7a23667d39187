"""MLPerf training logs: the events of one or more runs, and their score, the mean time to target without extremes.

Format: mlcommons/logging, mlperf_logging/mllog and compliance_checker/training_*/common.yaml: ":::MLLOG {json}".
Release 0.6 wrote ":::MLL SECONDS KEY: {json}"; for release 0.5 see mlperf_v05.py.
"""

import dataclasses
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling.importers import mlperf_v05, outliers
from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    ScalingRow,
    detector,
    exact,
    finish,
    finite,
    numbered,
)
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table, Value

FORMAT = "mlperf"
TOKEN = ":::MLLOG "
_V06 = re.compile(r":::MLL (\d{1,12}\.\d{1,9}) (\w{1,80}): (\{.*)")
detect = detector(
    r":::MLLOG \{|:::MLL \d+\.\d+ \w+: \{|:::MLPv0\.5\.\d \w+ \d+(?:\.\d+)? \(", ":::ML"
)
TITLE = "MLPerf runs"
NO_SCORE = "no score"
NO_DEVICES = (
    "Without number_of_nodes and accelerators_per_node the number of devices is unknown; the system's description "
    "(systems/NAME.json of a submission) has them: name it among the files."
)
COLUMNS = (
    "Benchmark", "Platform", "Status", "Run (s)", "Init (s)", "Accelerators", "Global batch size", "Trained samples",
    "Epochs", "Last quality", "Mean throughput (samples/s)", "Throughput reports", "Seed",
)  # fmt: skip
NOTES = (
    "Run (s) is run_stop - run_start, MLPerf's time to target quality: it includes evaluations and the number of "
    "epochs that the batch size needed, so it is no measure of speed alone.",
    "Throughput is the mean of what the run itself reported (tracked_stats, else *_throughput; never both), "
    "in samples/s of all accelerators by convention; the format does not define it.",
)
LEAST_RUNS = 5  # of the vision benchmarks; others ask for 10
SCORE_COLUMNS = (
    "Benchmark", "Platform", "Accelerators", "Global batch size", "Runs", "Without a score", "Fastest (s)",
    "Slowest (s)", "Mean (s)", "Olympic mean (s)",
)  # fmt: skip
_GROUPED = SCORE_COLUMNS[:4]
SCORE_NOTE = (
    f"Olympic mean: of {LEAST_RUNS} runs or more, the mean without the fastest and the slowest; one run without a "
    "score counts as the slowest, with two there is none. MLPerf itself asks for 5 or 10 runs, by benchmark."
)
# Keys that hold a rate: in later releases within the value of "tracked_stats", in older ones of their own.
_RATE_KEYS = (
    "throughput",
    "samples_per_sec",
    "epoch_train_throughput",
    "block_train_throughput",
)
_TRACKED = "tracked_stats"
_REPORTS = (*(f"{_TRACKED} {name}" for name in _RATE_KEYS), *_RATE_KEYS)
_SETTINGS = (
    "submission_benchmark", "submission_platform", "submission_org", "global_batch_size", "train_samples", "seed",
    "number_of_nodes", "accelerators_per_node",
)  # fmt: skip


# Keys that begin a new run if the last one has stopped.
_BEGINNINGS = (
    "init_start",
    "run_start",
    "cache_clear",
    "run_clear_caches",
    "submission_benchmark",
)


@dataclasses.dataclass
class _MlperfRun:
    """One run so far; times in milliseconds since the epoch."""

    line: int = 0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    init_start: float | None = None
    start: float | None = None
    stop: float | None = None
    status: str = ""
    repeats: int = 0
    samples: float | None = None
    epochs: float | None = None
    quality: float | None = None
    reports: dict[str, tuple[int, float]] = dataclasses.field(
        default_factory=dict
    )  # number and mean rate by name
    old: mlperf_v05.Progress | None = None  # of a log of release 0.5

    @property
    def rate(self) -> tuple[int, float]:
        """Number and mean of the reported rates, under the first name of _REPORTS.

        Several names report one rate twice. The number is 0 for a rate that follows
        from times, and for no rate, which is 0.
        """
        for name in _REPORTS:
            if name in self.reports:
                return self.reports[name]
        computed = self.old.rate if self.old else None
        return 0, computed or 0.0

    @property
    def seconds(self) -> float | None:
        """run_stop - run_start."""
        return (
            None
            if self.start is None or self.stop is None
            else (self.stop - self.start) / 1e3
        )


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Read every run; one without run_stop, or aborted, has no time to target.

    Raises:
      LogError: If no run started.
    """
    problems = Problems()
    runs = [_MlperfRun()]
    nothing = "no run_start in this MLPerf log"
    for line, text in numbered(lines):
        begin = text.find(":::ML")
        if begin < 0:
            continue
        try:
            event = _read_event(text[begin:])
        except input_files.JsonError:
            problems.add(
                line,
                "no whole JSON in this event; the line is cut, or two ranks wrote into it",
                "not JSON",
            )
            continue
        if event is None:
            continue
        nothing = "no score: no run_start in this MLPerf log"
        try:
            _event(event, line, runs, problems)
        except (ValueError, TypeError, KeyError, AttributeError) as e:
            reason = f"{e.args[0]!r} is missing" if isinstance(e, KeyError) else str(e)
            problems.add(line, f"bad event: {reason}", "bad event")
        if problems.too_many(line, len(runs), "runs"):
            break
    started = [run for run in runs if run.start is not None]
    for run in started:
        if run.old:
            run.epochs = run.old.epochs
            run.samples = run.old.samples
        _check(run, problems)
    rows = [
        _scaling_row(run, source)
        for run in started
        if run.status == "success" and run.seconds
    ]
    every = Table(TITLE, COLUMNS, tuple(_row(run) for run in started))
    return finish(
        FORMAT, source, rows, [every], [*NOTES, *_notes(started)], problems, nothing
    )


def _read_event(text: str) -> Any:
    """Return the event of a line in the form of the present release, or None.

    Raises:
      JsonError: If the JSON of the line is not complete.
    """
    if text.startswith(TOKEN):
        return input_files.parse_json(text[len(TOKEN) :])
    if match := _V06.match(text):
        return {
            "time_ms": 1000 * float(match[1]),
            "key": match[2],
            **input_files.parse_json(match[3]),
        }
    return mlperf_v05.read_event(text)


def _event(
    event: Mapping[str, Any], line: int, runs: list[_MlperfRun], problems: Problems
) -> None:
    """Take one event into the last run, or begin a new one."""
    key = event["key"]
    value = event.get("value")
    metadata = event.get("metadata") or {}
    ms = _time_ms(event)
    run = runs[-1]
    if run.stop is not None and key in _BEGINNINGS:
        run = _MlperfRun(
            settings={} if key == "submission_benchmark" else dict(run.settings)
        )
        runs.append(run)
    _take_old(run, event, ms)
    if key == "init_start" and run.init_start is None:
        run.init_start = ms
    elif key == "run_start" and run.start is None:
        run.start = ms
        run.line = line
    elif key == "run_start":
        run.repeats += 1
    elif key == "run_stop":
        _stop(run, ms, metadata, line, problems)
    elif key == "eval_accuracy":
        run.quality = finite(value)
    elif key in _SETTINGS and not (run.stop is not None and key in run.settings):
        run.settings[key] = value
    _report(run, key, value)
    _progress(run, key, metadata)


def _take_old(run: _MlperfRun, event: Mapping[str, Any], ms: float) -> None:
    """Take an event of release 0.5, whose lines name the benchmark."""
    if "benchmark" not in event or run.stop is not None:
        return
    if run.old is None:
        run.old = mlperf_v05.Progress()
    run.old.take(event["key"], event["value"], event["metadata"].get("epoch"), ms)
    run.settings["submission_benchmark"] = event["benchmark"]
    if run.old.batch_size is not None:
        run.settings["global_batch_size"] = run.old.batch_size


def _time_ms(event: Mapping[str, Any]) -> float:
    ms = finite(event["time_ms"])
    if ms is None or ms < 0:
        raise ValueError(
            f"expected time_ms in milliseconds since 1970, got {str(event['time_ms'])[:40]}"
        )
    return ms


def _stop(
    run: _MlperfRun,
    ms: float,
    metadata: Mapping[str, Any],
    line: int,
    problems: Problems,
) -> None:
    if run.start is None:
        problems.add(line, "run_stop without a run_start", "stop without start")
    elif run.stop is None:
        run.stop = ms
        run.status = str(metadata.get("status", "no status"))
        is_reached = run.old is not None and run.old.reached_target(run.quality)
        if "status" not in metadata and is_reached:
            run.status = "success"  # release 0.5 may stop without a word about it
    else:
        run.repeats += 1  # another rank's line; the first one counts


def _report(run: _MlperfRun, key: str, value: Any) -> None:
    """Adds the rates of an event to the means of the run. Raises ValueError for one that is no positive number."""
    if key != _TRACKED and key not in _RATE_KEYS:
        return
    named = value if isinstance(value, dict) else {key: value}
    rates = {name: named[name] for name in _RATE_KEYS if name in named}
    if any((finite(rate) or 0.0) <= 0 for rate in rates.values()):
        raise ValueError(
            f"expected a throughput above 0, got {str(list(rates.values()))[:40]}"
        )
    for name, rate in rates.items():
        report = f"{_TRACKED} {name}" if key == _TRACKED else name
        count, mean = run.reports.get(report, (0, 0.0))
        run.reports[report] = count + 1, mean + (rate - mean) / (count + 1)


def _progress(run: _MlperfRun, key: str, metadata: Mapping[str, Any]) -> None:
    """Keeps how far the run came: samples_count and epoch_num of blocks, evaluations and the end."""
    if run.start is None or key not in (
        "block_stop",
        "epoch_stop",
        "eval_accuracy",
        "eval_stop",
        "run_stop",
    ):
        return
    for name, field in (("samples_count", "samples"), ("epoch_num", "epochs")):
        number = finite(metadata.get(name))
        if number is not None and number >= (getattr(run, field) or 0):
            setattr(run, field, number)


def _check(run: _MlperfRun, problems: Problems) -> None:
    if run.stop is None:
        problems.add(
            run.line,
            "no score: a run without run_stop; it was killed, or the log is cut short",
            "no stop",
        )
        run.status = "no run_stop"
    elif run.stop <= (run.start or 0):
        problems.add(
            run.line,
            f"no score: run_stop is {-(run.seconds or 0):g} s before run_start",
            "negative",
        )
        run.status = "bad times"
    elif run.status != "success":
        problems.add(
            run.line, f"no score: the run ended with status {run.status!r}", "status"
        )
    batch = run.settings.get("global_batch_size")
    if batch is not None and not (finite(batch) or 0) > 0:
        problems.add(
            run.line, f"expected a global_batch_size above 0, got {batch!r}", "batch"
        )


def accelerators(settings: Mapping[str, Any]) -> int | None:
    """number_of_nodes x accelerators_per_node, of a log or a system's description, which has them as texts."""
    nodes, per_node = (
        finite(
            int(value)
            if isinstance(value, str) and re.fullmatch(r"\d{1,9}", value, re.ASCII)
            else value
        )
        for value in (
            settings.get("number_of_nodes"),
            settings.get("accelerators_per_node"),
        )
    )
    return (
        int(nodes * per_node)
        if nodes and per_node and nodes > 0 and per_node > 0
        else None
    )


def _row(run: _MlperfRun) -> tuple:
    settings = run.settings
    init = (
        (run.start - run.init_start) / 1e3
        if run.start and run.init_start is not None
        else None
    )
    status = run.status if run.status == "success" else f"{NO_SCORE} ({run.status})"
    texts = (
        _text(settings.get("submission_benchmark")),
        _text(settings.get("submission_platform")),
        status,
    )
    batch, seed = finite(settings.get("global_batch_size")), settings.get("seed")
    reports, rate = run.rate
    return (
        *texts, run.seconds, init, accelerators(run.settings), int(batch) if batch else None, run.samples, run.epochs,
        run.quality, rate or None, reports, seed if isinstance(seed, int) else None,
    )  # fmt: skip


def _text(value: Any) -> str | None:
    return str(value)[:80] if value not in (None, "") else None


def _scaling_row(run: _MlperfRun, source: str) -> ScalingRow:
    batch = finite(run.settings.get("global_batch_size"))
    # Without how many of it: "gnmt, NVIDIA DGX-1" of 1x and 4xNVIDIA DGX-1.
    machine = re.sub(
        r"^\d+\s?x\s?", "", _text(run.settings.get("submission_platform")) or ""
    )
    reached = {
        "trained samples": run.samples,
        "epochs": run.epochs,
        "last quality": run.quality,
    }
    extra = {
        name: exact(number) for name, number in reached.items() if number is not None
    }
    return ScalingRow(
        source,
        run.line,
        series=", ".join(
            filter(None, (_text(run.settings.get("submission_benchmark")), machine))
        ),
        devices=accelerators(run.settings),
        global_batch_size=exact(batch) if batch and batch > 0 else None,
        # As `extra`, not as `seconds`: the run's time holds evaluations, its reported rate does not.
        rate=exact(run.rate[1]) if run.rate[1] else None,
        rate_unit="samples/s",
        extra={
            "time to target (s)": Printed(
                run.seconds or 0.0, 1e-3, f"{run.seconds:.3f}"
            ),
            **extra,
        },
    )


def _notes(runs: list[_MlperfRun]) -> list[str]:
    notes = []
    repeats = sum(run.repeats for run in runs)
    if repeats:
        notes.append(
            f"{repeats} lines of run_start and run_stop repeat an earlier one of the same run (several ranks log): the "
            "first of each counts."
        )
    if any(run.old for run in runs):
        notes.append(mlperf_v05.NOTE)
    if any(accelerators(run.settings) is None for run in runs):
        notes.append(NO_DEVICES)
    return notes


def scores(logs: Sequence[ImportedLog]) -> Table | None:
    """The scores of the MLPerf runs of some logs, a row for each benchmark, platform, size and batch; None without."""
    rows = [_score(group, runs) for group, runs in _groups(logs).items()]
    return (
        Table("MLPerf scores (time to target)", SCORE_COLUMNS, tuple(rows))
        if rows
        else None
    )


def score_remarks(logs: Sequence[ImportedLog]) -> list[str]:
    """A sentence for each run that took far longer than its repeats, and for each group with runs without a score."""
    sentences = []
    for group, runs in _groups(logs).items():
        name = ", ".join(str(part) for part in group if part is not None)
        scored = [(source, seconds) for source, seconds in runs if seconds is not None]
        for i in outliers.slow([1 / seconds for _, seconds in scored]):
            usual = outliers.middle([seconds for _, seconds in scored])
            name, took = scored[i][:2]
            sentences.append(
                f"{name}: this run took {took:.0f} s to its target, others about {usual:.0f} s"
            )
        if len(scored) < len(runs):
            without = ", ".join(source for source, seconds in runs if seconds is None)
            sentences.append(
                f"no score: {len(runs) - len(scored)} of {len(runs)} runs of {name} ({without})"
            )
    return sentences


def _groups(
    logs: Sequence[ImportedLog],
) -> dict[tuple[Value, ...], list[tuple[str, float | None]]]:
    """(source, seconds to target) of each run by what runs must share; None for a run without a score."""
    groups: dict[tuple[Value, ...], list[tuple[str, float | None]]] = {}
    for log in logs:
        for log_table in log.tables if log.format == FORMAT else ():
            keys = zip(*(log_table.column(name) for name in _GROUPED))
            for key, status, seconds in zip(
                keys, log_table.column("Status"), log_table.column("Run (s)")
            ):
                scored_s = None
                if status == "success" and isinstance(seconds, float) and seconds > 0:
                    scored_s = seconds
                groups.setdefault(key, []).append((log.source, scored_s))
    return groups


def _score(
    group: tuple[Value, ...], runs: Sequence[tuple[str, float | None]]
) -> tuple[Value, ...]:
    times = sorted(seconds for _, seconds in runs if seconds is not None)
    without = len(runs) - len(times)
    mean = statistics.fmean(times) if times else None
    return (
        *group, len(runs), without, times[0] if times else None, times[-1] if times else None, mean,
        olympic_mean(times, without),
    )  # fmt: skip


def olympic_mean(times: Sequence[float], without: int) -> float | None:
    """Mean seconds without the best and the worst run; None for fewer than LEAST_RUNS, or several without a score.

    Source: mlcommons/training_policies, training_rules.adoc, "Benchmark results": the lowest and the highest run are
    dropped, a run that does not reach the target counts as the slowest, and the mean of the others is the score.
    """
    if len(times) + without < LEAST_RUNS or without > 1:
        return None
    ordered = sorted(times)
    return statistics.fmean(ordered[1:] if without else ordered[1:-1])
