"""Judge the intervals of a report by real processes: sweeps with many repeats.

    python -m rnn_scaling sweep --encoder_type=cudnn_lstm --num_devices=1,2
        --repeats=24 --out=results/series
    python -m benchmarks.series results/series
    python -m benchmarks.series results/a results/b results/c

With one folder, parts of its rounds are compared with all of them: how often the
interval from k rounds, in a row or drawn at random, contains the mean of all rounds;
how often k runs and the next k of the same configuration are called different; how much
of the scatter is drift.

With several folders, complete sweeps are compared with each other: the first sentence
of each report, and how often two of them agree within their intervals.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from absl import app, flags

from benchmarks.comparison_coverage import change_between
from rnn_scaling.analysis import confidence, rows, significance
from rnn_scaling.analysis.comparison.drift import assume
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.rows import Row
from rnn_scaling.records import folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import conclusions
from rnn_scaling.reports.summary import summarise
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS

# Rounds of a sweep.
SIZES = (2, 3, 5, 8)
# Slow-down that compare lets pass.
LIMIT = 0.05


@dataclasses.dataclass(frozen=True)
class Series:
    """Configurations that ran in turns.

    Attributes:
      rows: Each with its processes in the order in which they ran.
    """

    rows: tuple[Row, ...]

    @property
    def rounds(self) -> int:
        """Number of processes that every configuration has."""
        return min(len(row.good_runs) for row in self.rows)

    def choose(self, rounds: Sequence[int]) -> list[Row]:
        """Return the rows of a sweep that had only these rounds."""
        chosen = []
        for row in self.rows:
            chosen += [row.good_runs[number] for number in rounds]
        return rows.build_rows(chosen)


def build_series(records: Sequence[RunRecord]) -> Series:
    """Return the good runs of records, in the order of their start."""
    good = []
    for record in records:
        if record.status == "ok" and record.throughput:
            good.append(record)
    good.sort(key=lambda record: record.environment.started or "")
    return Series(tuple(rows.build_rows(good)))


def find_rate(row: Row) -> Interval | None:
    """Return the rate of a row."""
    return row.rate


def find_efficiency(row: Row) -> Interval | None:
    """Return the efficiency of a row on several devices."""
    return row.metric(EFFICIENCY) if row.num_devices > 1 else None


QUANTITIES = {"rate": find_rate, "efficiency": find_efficiency}


def choose_rounds(
    num_rounds: int, size: int, random: np.random.Generator, draws: int
) -> Iterator[tuple[str, list[int]]]:
    """Yield how rounds were chosen, and the numbers of the chosen ones.

    Args:
      num_rounds: Number of rounds to choose from.
      size: Number of rounds to choose.
      random: Source of random numbers.
      draws: Number of random choices.
    """
    for first in range(num_rounds - size + 1):
        yield "in a row", list(range(first, first + size))
    if size < num_rounds:
        for _ in range(draws):
            chosen = random.choice(num_rounds, size, replace=False)
            yield "at random", sorted(chosen.tolist())


def list_coverage(series: Series, seed: int, draws: int) -> Iterator[list[str]]:
    """Intervals from a part of the rounds that hold the mean of all independent rounds."""
    random = np.random.default_rng(seed)
    whole = {row.key: row for row in series.choose(range(series.rounds))}
    hits = []
    for number in range(series.rounds):
        for row in series.choose([number]):
            rate = whole[row.key].rate
            hits.append(holds(row.rate_within_run, rate, 1 / series.rounds))
    yield ["rate", "1, over its batches", "", format_share(hits), ""]
    for size in SIZES:
        if size < series.rounds:
            yield from _list_coverage_of_size(series, whole, size, random, draws)


def _list_coverage_of_size(
    series: Series,
    whole: Mapping[Hashable, Row],
    size: int,
    random: np.random.Generator,
    draws: int,
) -> Iterator[list[str]]:
    """Yield the rows of parts of one number of rounds.

    Args:
      series: The series.
      whole: The rows of all rounds by their keys.
      size: Number of rounds of a part.
      random: Source of random numbers.
      draws: Number of random parts.
    """
    hits = collections.defaultdict(list)
    widths = collections.defaultdict(list)
    for how, chosen in choose_rounds(series.rounds, size, random, draws):
        for row in series.choose(chosen):
            for name, find in QUANTITIES.items():
                value = find(row)
                truth = find(whole[row.key])
                if value is None or truth is None or value.half_width is None:
                    continue
                hits[name, how].append(holds(value, truth, size / series.rounds))
                widths[name, how].append(value.half_width / value.value)
    for name, how in sorted(hits):
        width = f"{np.median(widths[name, how]):.1%}"
        yield [name, str(size), how, format_share(hits[name, how]), width]


def list_alarms(series: Series) -> Iterator[list[str]]:
    """Runs and the next runs of a configuration that are called different."""
    for size in SIZES:
        if 2 * size > series.rounds:
            continue
        found = []
        for row in series.rows:
            rates = rows.run_rates(row.good_runs)
            for first in range(len(rates) - 2 * size + 1):
                middle = first + size
                change = change_between_sessions(
                    rates[first:middle], rates[middle : middle + size]
                )
                found.append(significance.judge_ratio(change))
        different = [each.verdict != "no difference seen" for each in found]
        slower = [significance.gate(each, LIMIT) == "regression" for each in found]
        shares = [format_share(different), format_share(slower)]
        yield [str(size), str(len(found)), *shares]


def change_between_sessions(
    before: Sequence[float], after: Sequence[float]
) -> Interval:
    """Return after / before of two sessions, like `compare` without a history."""
    scatters = [
        confidence.compute_shared_scatters([side])[0] for side in (before, after)
    ]
    return change_between(before, after, assume(scatters))


def list_drift(series: Series) -> Iterator[list[str]]:
    """How alike neighbours in time are: 0 if processes are independent."""
    for row in series.rows:
        logs = np.log(rows.run_rates(row.good_runs))
        deviations = logs - logs.mean()
        correlation = 0.0
        if deviations.any():
            products = deviations[1:] @ deviations[:-1]
            correlation = float(products / (deviations @ deviations))
        neighbours = math.sqrt(float(np.mean(np.diff(logs) ** 2)) / 2)
        yield [
            make_label(row),
            str(len(logs)),
            f"{logs.std(ddof=1):.1%}",
            f"{neighbours:.1%}",
            f"{correlation:+.2f}",
        ]


def list_agreement(sweeps: Sequence[Series]) -> Iterator[list[str]]:
    """Pairs of sweeps that agree within the interval of their difference (aim: 95 %)."""
    for name, find in QUANTITIES.items():
        hits = []
        widths = []
        for one, other in itertools.combinations(sweeps, 2):
            others = {row.key: row for row in other.rows}
            for row in one.rows:
                values = [find(each) for each in (row, others.get(row.key)) if each]
                known = [each for each in values if each and each.half_width]
                if len(known) == 2:
                    ends = confidence.divide_rates(*known).ends
                    hits.append(bool(ends and ends[0] <= 1 <= ends[1]))
                    widths += [each.half_width / each.value for each in known]
        if hits:
            width = f"{np.median(widths):.1%}"
            yield [name, str(len(hits)), format_share(hits), width]


def list_efficiencies(sweeps: Sequence[Series]) -> Iterator[list[str]]:
    """Efficiency in each sweep, in percent."""
    for row in sweeps[0].rows:
        if row.num_devices == 1:
            continue
        cells = []
        for sweep in sweeps:
            others = {other.key: other for other in sweep.rows}
            other = others.get(row.key)
            efficiency = other.metric(EFFICIENCY) if other else None
            cells.append(format_percent(efficiency) if efficiency else "n/a")
        yield [make_label(row), *cells]


def holds(value: Interval | None, whole: Interval | None, share: float) -> bool:
    """Return whether an interval contains the true value.

    The mean of all processes estimates the true value. It contains the part itself:
    their logarithms differ by sqrt(1 - share) times as much as those of part and truth.

    Args:
      value: The interval from a part of the processes.
      whole: The interval from all of them.
      share: The share of the processes that are in the part, below 1.
    """
    if value is None or whole is None or value.ends is None:
        return False
    truth = value.value * (whole.value / value.value) ** (1 / math.sqrt(1 - share))
    return value.ends[0] <= truth <= value.ends[1]


def format_percent(value: Interval) -> str:
    """Return a value and its interval in percent."""
    text = f"{100 * value.value:.1f}"
    if value.ends is None:
        return text
    low, high = value.ends
    return f"{text} [{100 * low:.1f}, {100 * high:.1f}]"


def format_share(hits: Sequence[bool]) -> str:
    """Return the share of hits."""
    return f"{np.mean(hits):.0%}" if hits else "n/a"


def make_label(row: Row) -> str:
    """Return the name of a configuration."""
    options = row.options
    return f"{options['encoder_type']}-{options['variable_update']}-{row.num_devices}"


def main(argv: list[str]) -> None:
    """Print the tables."""
    paths = [Path(word) for word in argv[1:]]
    if not paths:
        raise app.UsageError(
            "no folder was given; name one or more folders that ./run.sh sweep "
            "--repeats=N wrote"
        )
    content = [folder.read(path) for path in paths]
    sweeps = []
    for each in content:
        sweeps.append(build_series([file.record for file in each.runs]))
    if len(sweeps) == 1:
        print_one_sweep(sweeps[0])
        return
    for path, each in zip(paths, content):
        summary = summarise(each, str(path))
        print(f"{path}: {conclusions.write_answer(summary)}")
    print_sweeps(sweeps, [str(path) for path in paths])


def print_sweeps(sweeps: Sequence[Series], names: Sequence[str]) -> None:
    """Print the tables of several sweeps."""
    print(f"\n{list_efficiencies.__doc__}\n")
    print(format_table(["configuration", *names], list(list_efficiencies(sweeps))))
    print(f"\n{list_agreement.__doc__}\n")
    head = ["quantity", "pairs", "agree", "± (median)"]
    print(format_table(head, list(list_agreement(sweeps))))


def print_one_sweep(series: Series) -> None:
    """Print the tables of one sweep."""
    print(f"{len(series.rows)} configurations, {series.rounds} rounds")
    print(f"\n{list_coverage.__doc__}\n")
    head = ["quantity", "processes", "taken", "holds the mean of all", "± (median)"]
    print(format_table(head, list(list_coverage(series, FLAGS.seed, FLAGS.draws))))
    print(f"\n{list_alarms.__doc__}\n")
    head = [
        "runs a side",
        "comparisons",
        "called different",
        f"regression beyond {LIMIT:.0%}",
    ]
    print(format_table(head, list(list_alarms(series))))
    print(f"\n{list_drift.__doc__}\n")
    head = [
        "configuration",
        "processes",
        "scatter",
        "scatter of neighbours",
        "correlation of neighbours",
    ]
    print(format_table(head, list(list_drift(series))))


# Tests import several benchmarks into one process, so flags are defined only here.
if __name__ == "__main__":
    flags.DEFINE_integer(
        "draws", 500, "number of random draws for each number of rounds", lower_bound=0
    )
    flags.DEFINE_integer("seed", 1, "seed of the draws")
    app.run(main)
