"""Scores of MLPerf: the times to target of the runs of all logs, in groups of repeats.

`imports` shows the scores of logs that contain a time to a target.
"""

import statistics
from collections.abc import Sequence

from rnn_scaling.analysis import outliers
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.importers.mlperf import Mlperf
from rnn_scaling.records.importers.reading import Reading
from rnn_scaling.system.files.markdown import Table, Value

_MIN_RUNS = 5  # runs of vision benchmarks; other benchmarks need 10
_COLUMNS = (
    "Benchmark", "Platform", "Accelerators", "Global batch size", "Runs",
    "Without a score", "Fastest (s)", "Slowest (s)", "Mean (s)", "Olympic mean (s)",
)  # fmt: skip
_GROUPED = _COLUMNS[:4]
NOTE = (
    "Olympic mean: the mean without the fastest and the slowest run, for at "
    f"least {_MIN_RUNS} runs. One run without a score counts as the slowest; "
    "with two such runs there is no mean. MLPerf itself requires 5 or 10 "
    "runs, depending on the benchmark."
)
_Scores = list[tuple[str, float | None]]  # source and seconds of each run


def find_scores(readings: Sequence[Reading]) -> tuple[Table | None, list[Statement]]:
    """Return the scores of the runs of all logs, and the outliers.

    Runs of one benchmark, platform, size and batch are repeats.
    """
    groups: dict[tuple[Value, ...], _Scores] = {}
    for reading in readings:
        if reading.format == Mlperf.name:
            _add_runs(groups, reading)
    if not groups:
        return None, []
    rows = []
    outlying: list[Statement] = []
    for key, runs in groups.items():
        times = sorted(seconds for _, seconds in runs if seconds is not None)
        num_failed = len(runs) - len(times)
        ends = (times[0], times[-1], statistics.fmean(times)) if times else (None,) * 3
        mean = compute_olympic_mean(times, num_failed)
        rows.append((*key, len(runs), num_failed, *ends, mean))
        limit = outliers.find_slow_limit([1 / seconds for seconds in times])
        for source, seconds in runs:
            if seconds is not None and 1 / seconds < limit:
                outlying.append(
                    state(
                        "import-slow-run",
                        source,
                        seconds=seconds,
                        usual=statistics.median(times),
                    )
                )
        if num_failed:
            failed_sources = ", ".join(
                source for source, seconds in runs if seconds is None
            )
            group = ", ".join(str(value) for value in key if value is not None)
            outlying.append(
                state(
                    "import-no-score",
                    failed_sources,
                    count=num_failed,
                    total=len(runs),
                    group=group,
                )
            )
    return Table("MLPerf scores (time to target)", _COLUMNS, tuple(rows)), outlying


def _add_runs(groups: dict[tuple[Value, ...], _Scores], reading: Reading) -> None:
    (table,) = reading.tables
    for row in table.rows:
        cells = dict(zip(table.columns, row))
        seconds = cells["Run (s)"]
        is_scored = cells["Status"] == "success" and isinstance(seconds, float)
        group = groups.setdefault(tuple(cells[name] for name in _GROUPED), [])
        group.append(
            (reading.source, float(seconds) if is_scored and seconds else None)
        )


def compute_olympic_mean(times: Sequence[float], num_failed: int) -> float | None:
    """Return the mean seconds without the fastest and the slowest run.

    A run that did not reach the target counts as the slowest.

    Args:
      times: Seconds of the runs with a score.
      num_failed: Number of runs without a score.

    Returns:
      None for fewer than _MIN_RUNS, or if several runs have no score.

    Source: mlcommons/training_policies, training_rules.adoc, "Benchmark results".
    """
    if len(times) + num_failed < _MIN_RUNS or num_failed > 1:
        return None
    ordered = sorted(times)
    return statistics.fmean(ordered[1:] if num_failed else ordered[1:-1])
