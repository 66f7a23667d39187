"""MLPerf runs -> their score: the mean time to target without the fastest and the slowest run (olympic mean). Pure.

Source: mlcommons/training_policies, training_rules.adoc, "Benchmark results": the lowest and the highest of the runs
are dropped, a run that does not reach the target counts as the slowest, and the mean of the others is the score.
"""

import statistics
from collections.abc import Sequence

from rnn_scaling.files.markdown import Table, Value
from rnn_scaling.importers import mlperf, outliers
from rnn_scaling.importers.common import ImportedLog

LEAST_RUNS = 5  # of the vision benchmarks; others ask for 10
COLUMNS = (
    "Benchmark", "Platform", "Accelerators", "Global batch size", "Runs", "Without a score", "Fastest (s)",
    "Slowest (s)", "Mean (s)", "Olympic mean (s)",
)  # fmt: skip
_GROUPED = COLUMNS[:4]
NOTE = (
    f"Olympic mean: of {LEAST_RUNS} runs or more, the mean without the fastest and the slowest; one run without a "
    "score counts as the slowest, with two there is none. MLPerf itself asks for 5 or 10 runs, by benchmark."
)


def table(logs: Sequence[ImportedLog]) -> Table | None:
    """The scores of the MLPerf runs of some logs, a row for each benchmark, platform, size and batch; None without."""
    rows = [_row(group, runs) for group, runs in _groups(logs).items()]
    return Table("MLPerf scores (time to target)", COLUMNS, tuple(rows)) if rows else None


def remarks(logs: Sequence[ImportedLog]) -> list[str]:
    """A sentence for each run that took far longer than its repeats, and for each group with runs without a score."""
    sentences = []
    for group, runs in _groups(logs).items():
        name = ", ".join(str(part) for part in group if part is not None)
        scored = [(source, seconds) for source, seconds in runs if seconds is not None]
        for i in outliers.slow([1 / seconds for _, seconds in scored]):
            usual = outliers.middle([seconds for _, seconds in scored])
            name, took = scored[i][:2]
            sentences.append(f"{name}: this run took {took:.0f} s to its target, others about {usual:.0f} s")
        if len(scored) < len(runs):
            without = ", ".join(source for source, seconds in runs if seconds is None)
            sentences.append(f"no score: {len(runs) - len(scored)} of {len(runs)} runs of {name} ({without})")
    return sentences


def _groups(logs: Sequence[ImportedLog]) -> dict[tuple[Value, ...], list[tuple[str, float | None]]]:
    """(source, seconds to target) of each run by what runs must share; None for a run without a score."""
    groups: dict[tuple[Value, ...], list[tuple[str, float | None]]] = {}
    for log in logs:
        for log_table in log.tables if log.format == mlperf.FORMAT else ():
            keys = zip(*(log_table.column(name) for name in _GROUPED))
            for key, status, seconds in zip(keys, log_table.column("Status"), log_table.column("Run (s)")):
                is_scored = status == "success" and isinstance(seconds, float) and seconds > 0
                groups.setdefault(key, []).append((log.source, seconds if is_scored else None))  # type: ignore[arg-type]
    return groups


def _row(group: tuple[Value, ...], runs: Sequence[tuple[str, float | None]]) -> tuple[Value, ...]:
    times = sorted(seconds for _, seconds in runs if seconds is not None)
    without = len(runs) - len(times)
    mean = statistics.fmean(times) if times else None
    return (
        *group, len(runs), without, times[0] if times else None, times[-1] if times else None, mean,
        olympic_mean(times, without),
    )  # fmt: skip


def olympic_mean(times: Sequence[float], without: int) -> float | None:
    """Mean seconds without the best and the worst run; None for fewer than LEAST_RUNS, or several without a score."""
    if len(times) + without < LEAST_RUNS or without > 1:
        return None
    ordered = sorted(times)
    return statistics.fmean(ordered[1:] if without else ordered[1:-1])
