"""How well the intervals of a report hold on real processes: `sweep --repeats=N`, recorded once or several times.

    python -m rnn_scaling sweep --encoder_type=cudnn_lstm --num_devices=1,2 --repeats=24 --out=results/series
    python -m benchmarks.series results/series                   parts of one long series against all of it
    python -m benchmarks.series results/a results/b results/c    complete sweeps against each other

For one folder: how often the interval from k rounds, in a row or drawn at random, contains the mean of all rounds; how
often k runs and the next k of the same configuration are called different; how much of the scatter is drift. For
several folders: the first sentence of each report, and how often two of them agree within their intervals.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
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
from rnn_scaling.reports import conclusions, summary_builder
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS
SIZES = (2, 3, 5, 8)  # rounds of a sweep
LIMIT = 0.05  # slow-down that compare lets pass


@dataclasses.dataclass(frozen=True)
class Series:
    """Configurations that ran in turns. `rows`: each with its processes in the order in which they ran."""

    rows: tuple[Row, ...]

    @property
    def rounds(self) -> int:
        """Processes that every configuration has."""
        return min(len(row.good_runs) for row in self.rows)

    def taken(self, rounds: Sequence[int]) -> list[Row]:
        """The rows of a sweep that had these rounds alone."""
        return rows.build_rows([row.good_runs[i] for row in self.rows for i in rounds])


def series_of(records: Sequence[RunRecord]) -> Series:
    """The good runs of records, in the order of their start."""
    ordered = sorted(
        (r for r in records if r.status == "ok" and r.throughput),
        key=lambda r: r.environment.started or "",
    )
    return Series(tuple(rows.build_rows(ordered)))


Numbers = Callable[[Row], "Interval | None"]
QUANTITIES: dict[str, Numbers] = {
    "rate": lambda row: row.rate,
    "efficiency": lambda row: row.metric(EFFICIENCY) if row.num_devices > 1 else None,
}


def choices(
    rounds: int, k: int, rng: np.random.Generator, draws: int
) -> Iterator[tuple[str, list[int]]]:
    """("in a row", rounds) for every window of k, and ("at random", rounds) for so many draws."""
    for first in range(rounds - k + 1):
        yield "in a row", list(range(first, first + k))
    for _ in range(draws if k < rounds else 0):
        yield "at random", sorted(rng.choice(rounds, k, replace=False).tolist())


def coverage(series: Series, seed: int, draws: int) -> Iterator[list[str]]:
    """How often the interval of a part of the rounds holds the mean of all, as if this did not have the part in it."""
    rng = np.random.default_rng(seed)
    whole = {row.key: row for row in series.taken(range(series.rounds))}
    batches = [
        holds(row.rate_within_run, whole[row.key].rate, 1 / series.rounds)
        for i in range(series.rounds)
        for row in series.taken([i])
    ]
    yield ["rate", "1, over its batches", "", _share(batches), ""]
    for k in (k for k in SIZES if k < series.rounds):
        hits: dict[tuple[str, str], list[tuple[bool, float]]] = {}
        for how, chosen in choices(series.rounds, k, rng, draws):
            for row in series.taken(chosen):
                for name, of in QUANTITIES.items():
                    value, truth = of(row), of(whole[row.key])
                    if (
                        value is not None
                        and truth is not None
                        and value.half_width is not None
                    ):
                        held = holds(value, truth, k / series.rounds)
                        hits.setdefault((name, how), []).append(
                            (held, value.half_width / value.value)
                        )
        for (name, how), each in sorted(hits.items()):
            yield [
                name,
                str(k),
                how,
                _share([hit for hit, _ in each]),
                f"{np.median([w for _, w in each]):.1%}",
            ]


def alarms(series: Series) -> Iterator[list[str]]:
    """How often k runs and the next k of the same configuration are called different though nothing was changed."""
    for k in (k for k in SIZES if 2 * k <= series.rounds):
        found = []
        for row in series.rows:
            rates = rows.run_rates(row.good_runs)
            pairs = [
                (rates[i : i + k], rates[i + k : i + 2 * k])
                for i in range(len(rates) - 2 * k + 1)
            ]
            found += [
                significance.judge_ratio(_between_sessions(*pair)) for pair in pairs
            ]
        different = _share([each.verdict != "no difference seen" for each in found])
        yield [
            str(k),
            str(len(found)),
            different,
            _share([significance.gate(f, LIMIT) == "regression" for f in found]),
        ]


def _between_sessions(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Return after / before of two sessions, like `compare` without a history."""
    scatters = [confidence.shared_scatters([side])[0] for side in (before, after)]
    return change_between(before, after, assume(scatters))


def drift(series: Series) -> Iterator[list[str]]:
    """How much neighbours in time are alike: 0 where processes are independent."""
    for row, title in zip(series.rows, _labels(series.rows)):
        logs = np.log(rows.run_rates(row.good_runs))
        off = logs - logs.mean()
        correlation = float(off[1:] @ off[:-1] / (off @ off)) if off.any() else 0.0
        neighbours = math.sqrt(float(np.mean(np.diff(logs) ** 2)) / 2)
        yield [
            title,
            str(len(logs)),
            f"{logs.std(ddof=1):.1%}",
            f"{neighbours:.1%}",
            f"{correlation:+.2f}",
        ]


def agreement(sweeps: Sequence[Series]) -> Iterator[list[str]]:
    """How often two sweeps differ by no more than the interval of their difference says: in 95 % if all is well."""
    for name, of in QUANTITIES.items():
        hits, widths = [], []
        for one, other in itertools.combinations(sweeps, 2):
            others = {row.key: row for row in other.rows}
            for row in one.rows:
                values = [of(each) for each in (row, others.get(row.key)) if each]
                known = [
                    value for value in values if value is not None and value.half_width
                ]
                if len(known) == 2:
                    ends = confidence.divide_rates(*known).ends
                    hits.append(bool(ends and ends[0] <= 1 <= ends[1]))
                    widths += [
                        value.half_width / value.value
                        for value in known
                        if value.half_width
                    ]
        if hits:
            yield [name, str(len(hits)), _share(hits), f"{np.median(widths):.1%}"]


def values(sweeps: Sequence[Series]) -> Iterator[list[str]]:
    """Efficiency in each sweep, in percent."""
    for row, title in zip(sweeps[0].rows, _labels(sweeps[0].rows)):
        if row.num_devices > 1:
            each = [
                next((other for other in sweep.rows if other.key == row.key), None)
                for sweep in sweeps
            ]
            shown = [other.metric(EFFICIENCY) if other else None for other in each]
            yield [title, *("n/a" if v is None else _percent(v) for v in shown)]


def _percent(value: Interval) -> str:
    ends = value.ends
    return f"{100 * value.value:.1f}" + (
        f" [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]" if ends else ""
    )


def holds(value: Interval | None, whole: Interval | None, share: float) -> bool:
    """Whether an interval holds the true value, of which the mean of all processes is an estimate.

    The mean of all holds the part itself: their logs differ by sqrt(1 - share) as much as part and truth do.

    Args:
      value: from a part of the processes.
      whole: from all of them.
      share: of the processes that are in the part, below 1.
    """
    if value is None or whole is None or value.ends is None:
        return False
    truth = value.value * (whole.value / value.value) ** (1 / math.sqrt(1 - share))
    return value.ends[0] <= truth <= value.ends[1]


def _share(hits: Sequence[bool]) -> str:
    return f"{np.mean(hits):.0%}" if hits else "n/a"


def _labels(members: Sequence[Row]) -> list[str]:
    named = [
        (
            str(r.options["encoder_type"]),
            str(r.options["variable_update"]),
            str(r.num_devices),
        )
        for r in members
    ]
    return ["-".join(words) for words in named]


def main(argv: list[str]) -> None:
    """Prints the tables."""
    paths = [Path(word) for word in argv[1:]]
    if not paths:
        raise app.UsageError(
            "no folder was given; name one or more folders that ./run.sh sweep "
            "--repeats=N wrote"
        )
    content = [folder.read(path) for path in paths]
    sweeps = [series_of([file.record for file in each.runs]) for each in content]
    if len(sweeps) > 1:
        for path, each in zip(paths, content):
            print(
                f"{path}: {conclusions.answer_text(summary_builder.summarise(each, str(path)))}"
            )
        print(f"\n{values.__doc__}\n")
        print(format_table(["configuration", *map(str, paths)], list(values(sweeps))))
        print(f"\n{agreement.__doc__}\n")
        print(
            format_table(
                ["quantity", "pairs", "agree", "± (median)"], list(agreement(sweeps))
            )
        )
        return
    (series,) = sweeps
    print(
        f"{len(series.rows)} configurations, {series.rounds} rounds\n\n{coverage.__doc__}\n"
    )
    table = list(coverage(series, FLAGS.seed, FLAGS.draws))
    print(
        format_table(
            ["quantity", "processes", "taken", "holds the mean of all", "± (median)"],
            table,
        )
    )
    print(f"\n{alarms.__doc__}\n")
    print(
        format_table(
            [
                "runs a side",
                "comparisons",
                "called different",
                f"regression beyond {LIMIT:.0%}",
            ],
            list(alarms(series)),
        )
    )
    print(f"\n{drift.__doc__}\n")
    head = [
        "configuration",
        "processes",
        "scatter",
        "scatter of neighbours",
        "correlation of neighbours",
    ]
    print(format_table(head, list(drift(series))))


if (
    __name__ == "__main__"
):  # flags are defined here: the tests import several benchmarks in one process
    flags.DEFINE_integer(
        "draws", 500, "number of random draws for each number of rounds", lower_bound=0
    )
    flags.DEFINE_integer("seed", 1, "seed of the draws")
    app.run(main)
