"""How often predictions for more devices hold on public tables, and how far off they and simple laws are.

    python -m benchmarks.prediction [--half=seeds,development,test] [--misses]

Each curve of docs/results/prediction/public.csv is cut: its first points are fitted, at least 2 (3 of 5 or more), and
all later ones are predicted. Every cut and every predicted number of devices is a case. A case is inside if the 95 %
interval contains the printed rate. Its error is |predicted / printed - 1|. docs/results/prediction/scores.md has the
output, and docs/predict.md its main tables.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from benchmarks import public_tables, scaling_laws
from benchmarks.public_tables import GROUPS, HALVES, PublicCurve
from rnn_scaling.analysis.prediction.curves import CannotPredict, MeasuredPoint
from rnn_scaling.analysis.prediction.predicting import predict

FACTORS = (
    (1, 2),
    (2, 4),
    (4, 8),
    (8, np.inf),
)  # above and up to: predicted number / largest fitted one
NEAR = 8  # the largest factor in tables that are not by factor
GROWS = 0.05  # a rate that is higher than all fitted ones by less than this has stopped growing
HEAD = (
    "curves",
    "cases",
    "refused",
    "inside",
    "by document",
    "median error",
    "90 % below",
    "median ±",
    *scaling_laws.LAWS,
)
FIVE = "seeds/002"  # the five timing tables
FALLING = "tensorflow/benchmarks:issues/359"  # a table that turns over
INTRODUCTION = f"""\
# Scores of predictions

[How predictions work](../../predict.md#how-often-predictions-held) explains the columns. The tables of public
cases are the output of `python -m benchmarks.prediction`. They have predictions of up to {NEAR} times the largest
fitted number of devices, except by distance. "inside" counts every case once, "by document" every document once.

"""


@dataclasses.dataclass(frozen=True)
class Case:
    """One predicted number of devices of one cut."""

    public: PublicCurve
    fitted: tuple[MeasuredPoint, ...]
    truth: MeasuredPoint
    predicted: (
        tuple[float, float, float] | None
    )  # low, value and high of the rate; None: refused
    laws: tuple[float, ...]  # rates by scaling_laws.LAWS
    reason: str = ""  # why it is refused

    @property
    def factor(self) -> float:
        return self.truth.devices / self.fitted[-1].devices

    @property
    def is_inside(self) -> bool:
        return (
            self.predicted is not None
            and self.predicted[0] <= self.truth.rate <= self.predicted[2]
        )

    @property
    def half_width(self) -> float:
        """Half the interval's width, as a share of the predicted rate."""
        low, value, high = self.predicted or (np.nan,) * 3
        return (high - low) / 2 / value

    @property
    def outcome(self) -> str:
        """What the printed rate does after the fitted ones."""
        ratio = self.truth.rate / max(point.rate for point in self.fitted)
        return (
            "falls" if ratio < 1 else "stops growing" if ratio < 1 + GROWS else "grows"
        )

    @property
    def side(self) -> str:
        """Where the printed rate is."""
        if self.predicted is None:
            return "refused"
        return (
            "inside"
            if self.is_inside
            else "below"
            if self.truth.rate < self.predicted[0]
            else "above"
        )

    def error(self, rate: float) -> float:
        return abs(rate / self.truth.rate - 1)


def cuts(public: PublicCurve) -> Iterator[int]:
    """Numbers of points to fit."""
    count = len(public.curve.points)
    return iter(range(3 if count >= 5 else 2, count))


def cases_of(public: PublicCurve) -> Iterator[Case]:
    """The cases of all cuts."""
    for kept in cuts(public):
        fitted, later = public.curve.points[:kept], public.curve.points[kept:]
        more = np.array([point.devices for point in later])
        n, rates = np.array([[point.devices, point.rate] for point in fitted]).T
        laws = [
            scaling_laws.extrapolated(law, n, rates, public.curve.scaling, more)
            for law in scaling_laws.LAWS
        ]
        intervals: list[tuple[float, float, float] | None] = [None] * len(later)
        reason = ""
        try:
            points = predict(
                dataclasses.replace(public.curve, points=fitted), more.tolist()
            ).points
            intervals = [
                (point.rate.low or 0.0, point.rate.value, point.rate.high or np.inf)
                for point in points
            ]
        except CannotPredict as refusal:
            reason = refusal.statement.kind
        for k, truth in enumerate(later):
            yield Case(
                public,
                fitted,
                truth,
                intervals[k],
                tuple(float(law[k]) for law in laws),
                reason,
            )


def weighted_quantile(
    values: Sequence[float], weights: Sequence[float], share: float
) -> float:
    """The smallest value that at least a share of the weight does not exceed."""
    order = np.argsort(values)
    reached = np.cumsum(np.asarray(weights)[order])
    return float(
        np.asarray(values)[order][
            np.searchsorted(reached, share * reached[-1] * (1 - 1e-12))
        ]
    )


def scores(cases: Sequence[Case], unit: Callable[[Case], object] = id) -> list[str]:
    """The cells of HEAD. Cases with the same `unit` share a weight of 1."""
    answered = [case for case in cases if case.predicted is not None]
    sizes = collections.Counter(map(unit, answered))
    weights = [1 / sizes[unit(case)] for case in answered]
    curves = len({_curve(case) for case in cases})
    cells = [str(curves), str(len(cases)), str(len(cases) - len(answered))]
    if not answered:
        return cells + ["n/a"] * (len(HEAD) - len(cells))
    inside = [case.is_inside for case in answered]
    cells.append(f"{np.average(inside, weights=weights):.0%}")
    cells.append(f"{inside_by_document(answered):.0%}")
    errors = [case.error(case.predicted[1]) for case in answered if case.predicted]
    cells += [
        f"{weighted_quantile(errors, weights, share):.1%}" for share in (0.5, 0.9)
    ]
    cells.append(
        f"{weighted_quantile([case.half_width for case in answered], weights, 0.5):.0%}"
    )
    for k in range(len(scaling_laws.LAWS)):
        errors = [case.error(case.laws[k]) for case in answered]
        cells.append(
            " / ".join(
                f"{weighted_quantile(errors, weights, share):.1%}"
                for share in (0.5, 0.9)
            )
        )
    return cells


def inside_by_document(cases: Sequence[Case]) -> float:
    """Return the share of answered cases that are inside, with one vote per document.

    Points of one document err together: a share by points is mostly that of the
    documents with many points.
    """
    votes: dict[str, list[bool]] = {}
    for case in cases:
        votes.setdefault(_source(case), []).append(case.is_inside)
    return float(np.mean([np.mean(inside) for inside in votes.values()]))


def _curve(case: Case) -> tuple[str, str]:
    return case.public.curve.source, case.public.curve.name


def _source(case: Case) -> str:
    return case.public.curve.source


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def by_group(cases: Sequence[Case]) -> str:
    """Scores of each group of documents."""
    return _table(
        "group",
        {
            name: [case for case in cases if case.public.group == name]
            for name in GROUPS
        },
    )


def by_half(cases: Sequence[Case]) -> str:
    """Scores of the curves that the constants of the predictor were chosen with, and of the others."""
    return _table(
        "half",
        {name: [case for case in cases if case.public.half == name] for name in HALVES}
        | {"all": cases},
    )


def by_factor(cases: Sequence[Case]) -> str:
    """Scores by how far the predicted number is from the largest fitted one."""
    names = [
        f"up to {limit:g}" if limit < np.inf else f"above {above:g}"
        for above, limit in FACTORS
    ]
    chosen = [
        [case for case in cases if above < case.factor <= limit]
        for above, limit in FACTORS
    ]
    return _table("times the fitted devices", dict(zip(names, chosen)))


def _table(title: str, rows: dict[str, Sequence[Case]]) -> str:
    return markdown(
        [title, *HEAD],
        [[name, *scores(chosen)] for name, chosen in rows.items() if chosen],
    )


def by_weight(cases: Sequence[Case]) -> str:
    """Scores with the same weight for each case, each curve and each document."""
    units = {"case": id, "curve": _curve, "document": _source}
    return markdown(
        ["same weight for each", *HEAD],
        [[name, *scores(cases, unit)] for name, unit in units.items()],
    )


def in_full(cases: Sequence[Case], source: str, is_last: bool) -> str:
    """The curves of a source, fitted to 1-4 devices: each later number of devices, or only the last."""
    head = [
        "table",
        "devices",
        "printed",
        "predicted",
        "low",
        "high",
        "error",
        "±",
        *scaling_laws.LAWS,
    ]
    rows = []
    for case in cases:
        is_shown = case.truth is case.public.curve.points[-1] or not is_last
        if _source(case) == source and case.fitted[-1].devices == 4 and is_shown:
            cells = ["refused", *["n/a"] * 4]
            if case.predicted:
                low, value, high = case.predicted
                cells = [
                    *(f"{rate:,.0f}" for rate in (value, low, high)),
                    f"{case.error(value):.1%}",
                ]
                cells.append(f"{case.half_width:.0%}")
            laws = [f"{case.error(rate):.1%}" for rate in case.laws]
            rows.append(
                [
                    case.public.curve.name,
                    str(case.truth.devices),
                    f"{case.truth.rate:,.0f}",
                    *cells,
                    *laws,
                ]
            )
    return markdown(head, rows)


def by_outcome(cases: Sequence[Case]) -> str:
    """Where printed rates that grow, stop growing or fall are."""
    sides = ("inside", "refused", "below", "above")
    rows = []
    for outcome in ("grows", "stops growing", "falls"):
        found = [case for case in cases if case.outcome == outcome]
        counts = collections.Counter(case.side for case in found)
        rows.append([outcome, str(len(found)), *(str(counts[side]) for side in sides)])
    return markdown(["the printed rate", "cases", *sides], rows)


def refused(cases: Sequence[Case]) -> str:
    """The refused cuts, and what the rate did later."""
    rows = []
    for case in cases:
        last = case.truth is case.public.curve.points[-1]
        if case.predicted is None and last:
            ratio = case.truth.rate / max(point.rate for point in case.fitted)
            name = f"{_source(case)}: {case.public.curve.name}"
            devices = ", ".join(str(point.devices) for point in case.fitted)
            rows.append(
                [name, devices, case.reason, str(case.truth.devices), f"{ratio:.2f}"]
            )
    return markdown(
        [
            "refused curve",
            "fitted",
            "reason",
            "printed on",
            "times the highest fitted rate",
        ],
        rows,
    )


def misses(cases: Sequence[Case]) -> str:
    """The cases outside of their intervals."""
    rows = []
    for case in cases:
        if case.predicted and not case.is_inside:
            fitted = " ".join(
                f"{point.devices}:{point.rate:.5g}" for point in case.fitted
            )
            low, value, high = case.predicted
            rates = (
                f"{case.truth.devices}:{case.truth.rate:.5g}",
                f"{low:.5g} {value:.5g} {high:.5g}",
            )
            rows.append(
                [_source(case), case.public.curve.name, fitted, *rates, case.side]
            )
    return markdown(
        ["source", "table", "fitted", "printed", "predicted", "printed is"], rows
    )


def text(cases: Sequence[Case]) -> str:
    """All tables with their headings."""
    near = [case for case in cases if case.factor <= NEAR]
    tables = {
        "By half": by_half(near),
        "By source": by_group(near),
        "By weight": by_weight(near),
        "By distance": by_factor(cases),
        "By what the printed rate does": by_outcome(near),
        "The five timing tables of the seeds, fitted to 1 to 4 GPUs": in_full(
            cases, FIVE, True
        ),
        "A table that turns over, fitted to 1 to 4 GPUs": in_full(
            cases, FALLING, False
        ),
        "Refused curves": refused(cases),
    }
    return INTRODUCTION + "\n".join(
        f"## {title}\n\n{table}" for title, table in tables.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--half",
        default=",".join(HALVES),
        help="curves to predict, separated by commas: seeds, development or test",
    )
    parser.add_argument(
        "--misses",
        action="store_true",
        help="also list the cases whose rate is outside of its interval",
    )
    options = parser.parse_args()
    halves = options.half.split(",")
    if unknown := set(halves) - set(HALVES):
        parser.error(f"--half={','.join(sorted(unknown))}: use {', '.join(HALVES)}")
    cases = [
        case
        for public in public_tables.read()
        if public.half in halves
        for case in cases_of(public)
    ]
    print(text(cases))
    if options.misses:
        print(misses(cases))


if __name__ == "__main__":
    main()
