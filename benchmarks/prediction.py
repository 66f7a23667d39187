"""Score predictions for more devices on public tables, beside those of simple laws.

    python -m benchmarks.prediction [--half=seeds,development,test] [--misses]

Each curve of docs/results/prediction/public.csv is cut. The first points are fitted, at
least 2, or 3 of 5 or more; all later ones are predicted. Every cut and every predicted
number of devices is a case. A case is inside if the 95 % interval contains the printed
rate. Its error is |predicted / printed - 1|.

docs/results/prediction/scores.md has the output, and docs/predict.md its main tables.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks import public_tables, scaling_laws
from benchmarks.public_tables import GROUPS, HALVES, PublicCurve
from rnn_scaling.analysis.prediction.curves import CannotPredict, MeasuredPoint
from rnn_scaling.analysis.prediction.predicting import predict
from rnn_scaling.system.files.markdown import format_table

# Ranges of the predicted number of devices / the largest fitted one: above, and up to.
FACTORS = ((1, 2), (2, 4), (4, 8), (8, np.inf))
# The largest factor in tables that are not by factor.
NEAR = 8
# A rate that is less than this share above the fitted ones has stopped growing.
GROWTH = 0.05
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
SIDES = ("inside", "refused", "below", "above")
# The five timing tables of the seed documents, and a table that turns over.
FIVE = "seeds/002"
FALLING = "tensorflow/benchmarks:issues/359"
INTRODUCTION = f"""\
# Scores of predictions

[How predictions work](../../predict.md#how-often-predictions-held) explains the columns. The tables of public
cases are the output of `python -m benchmarks.prediction`. They have predictions of up to {NEAR} times the largest
fitted number of devices, except by distance. "inside" counts every case once, "by document" every document once.

"""


class Range(NamedTuple):
    """A predicted rate and the ends of its interval, in items/s."""

    low: float
    value: float
    high: float


@dataclasses.dataclass(frozen=True)
class Case:
    """One predicted number of devices of one cut.

    Attributes:
      public: The whole curve.
      fitted: Its points that are fitted.
      truth: The point that is predicted.
      predicted: The prediction; None if it is refused.
      rates_by_law: The rates that the laws of scaling_laws.LAWS predict.
      reason: Why the prediction is refused.
    """

    public: PublicCurve
    fitted: tuple[MeasuredPoint, ...]
    truth: MeasuredPoint
    predicted: Range | None
    rates_by_law: tuple[float, ...]
    reason: str = ""

    @property
    def source(self) -> str:
        """The document."""
        return self.public.curve.source

    @property
    def factor(self) -> float:
        """The predicted number of devices as a multiple of the largest fitted one."""
        return self.truth.devices / self.fitted[-1].devices

    @property
    def growth(self) -> float:
        """The printed rate as a multiple of the highest fitted one."""
        return self.truth.rate / max(point.rate for point in self.fitted)

    @property
    def is_last(self) -> bool:
        """Whether the curve has no later point."""
        return self.truth is self.public.curve.points[-1]

    @property
    def is_inside(self) -> bool:
        """Whether the interval contains the printed rate."""
        return self.side == "inside"

    @property
    def half_width(self) -> float:
        """Half the interval's width, as a share of the predicted rate."""
        if self.predicted is None:
            return np.nan
        return (self.predicted.high - self.predicted.low) / 2 / self.predicted.value

    @property
    def outcome(self) -> str:
        """How the printed rate continues the fitted ones."""
        if self.growth < 1:
            return "falls"
        return "stops growing" if self.growth < 1 + GROWTH else "grows"

    @property
    def side(self) -> str:
        """Where the printed rate is: one of SIDES."""
        if self.predicted is None:
            return "refused"
        if self.truth.rate < self.predicted.low:
            return "below"
        return "inside" if self.truth.rate <= self.predicted.high else "above"

    def error_of(self, rate: float) -> float:
        """Return the error of a predicted rate, as a share of the printed one."""
        return abs(rate / self.truth.rate - 1)


def list_cases(public: PublicCurve) -> Iterator[Case]:
    """Yield the cases of all cuts of a curve."""
    count = len(public.curve.points)
    for num_fitted in range(3 if count >= 5 else 2, count):
        yield from _list_cases_of_cut(public, num_fitted)


def _list_cases_of_cut(public: PublicCurve, num_fitted: int) -> Iterator[Case]:
    fitted = public.curve.points[:num_fitted]
    later = public.curve.points[num_fitted:]
    more = [point.devices for point in later]
    predicted: list[Range | None] = [None] * len(later)
    reason = ""
    try:
        curve = dataclasses.replace(public.curve, points=fitted)
        for number, point in enumerate(predict(curve, more).points):
            rate = point.rate
            predicted[number] = Range(rate.low or 0.0, rate.value, rate.high or np.inf)
    except CannotPredict as refusal:
        reason = refusal.statement.kind
    devices, rates = np.array([[point.devices, point.rate] for point in fitted]).T
    by_law = []
    for law in scaling_laws.LAWS:
        by_law.append(
            scaling_laws.extrapolate(
                law, devices, rates, public.curve.scaling, np.array(more)
            )
        )
    for number, truth in enumerate(later):
        rates_by_law = tuple(float(each[number]) for each in by_law)
        yield Case(public, fitted, truth, predicted[number], rates_by_law, reason)


def compute_weighted_quantile(
    values: Sequence[float], weights: Sequence[float], share: float
) -> float:
    """Return the smallest value that at least a share of the weight does not exceed."""
    order = np.argsort(values)
    sums = np.cumsum(np.asarray(weights)[order])
    # The sum may be below the share by a rounding.
    place = np.searchsorted(sums, share * sums[-1] * (1 - 1e-12))
    return float(np.asarray(values)[order][place])


def score(cases: Sequence[Case], unit: Callable[[Case], object] = id) -> list[str]:
    """Return the cells of HEAD.

    Args:
      cases: The cases.
      unit: Cases with the same unit share a weight of 1.
    """
    answered = [case for case in cases if case.predicted is not None]
    curves = {(case.source, case.public.curve.name) for case in cases}
    cells = [str(len(curves)), str(len(cases)), str(len(cases) - len(answered))]
    if not answered:
        return cells + ["n/a"] * (len(HEAD) - len(cells))
    sizes = collections.Counter(map(unit, answered))
    weights = [1 / sizes[unit(case)] for case in answered]
    inside = np.average([case.is_inside for case in answered], weights=weights)
    cells.append(f"{inside:.0%}")
    cells.append(f"{share_inside_by_document(answered):.0%}")
    errors = [case.error_of(case.predicted.value) for case in answered]
    cells.append(f"{compute_weighted_quantile(errors, weights, 0.5):.1%}")
    cells.append(f"{compute_weighted_quantile(errors, weights, 0.9):.1%}")
    half_widths = [case.half_width for case in answered]
    cells.append(f"{compute_weighted_quantile(half_widths, weights, 0.5):.0%}")
    for number in range(len(scaling_laws.LAWS)):
        errors = [case.error_of(case.rates_by_law[number]) for case in answered]
        median = compute_weighted_quantile(errors, weights, 0.5)
        largest = compute_weighted_quantile(errors, weights, 0.9)
        cells.append(f"{median:.1%} / {largest:.1%}")
    return cells


def share_inside_by_document(cases: Sequence[Case]) -> float:
    """Return the share of answered cases that are inside, with one vote per document.

    Points of one document err together: a share by points is mostly that of the
    documents with many points.
    """
    votes: dict[str, list[bool]] = {}
    for case in cases:
        votes.setdefault(case.source, []).append(case.is_inside)
    return float(np.mean([np.mean(inside) for inside in votes.values()]))


def score_by_group(cases: Sequence[Case]) -> str:
    """Return the scores of each group of documents."""
    groups = {}
    for name in GROUPS:
        groups[name] = [case for case in cases if case.public.group == name]
    return make_score_table("group", groups)


def score_by_half(cases: Sequence[Case]) -> str:
    """Return the scores of the curves that chose the predictor's constants, and others."""
    halves: dict[str, Sequence[Case]] = {}
    for name in HALVES:
        halves[name] = [case for case in cases if case.public.half == name]
    return make_score_table("half", {**halves, "all": cases})


def score_by_factor(cases: Sequence[Case]) -> str:
    """Return the scores by the distance from the largest fitted number of devices."""
    ranges = {}
    for above, limit in FACTORS:
        name = f"up to {limit:g}" if limit < np.inf else f"above {above:g}"
        ranges[name] = [case for case in cases if above < case.factor <= limit]
    return make_score_table("times the fitted devices", ranges)


def score_by_weight(cases: Sequence[Case]) -> str:
    """Return the scores with the same weight for each case, curve and document."""
    units: dict[str, Callable[[Case], object]] = {
        "case": id,
        "curve": lambda case: (case.source, case.public.curve.name),
        "document": lambda case: case.source,
    }
    rows = [[name, *score(cases, unit)] for name, unit in units.items()]
    return make_table(["same weight for each", *HEAD], rows)


def make_score_table(title: str, groups: Mapping[str, Sequence[Case]]) -> str:
    """Return a table with the scores of each group that has cases."""
    rows = [[name, *score(cases)] for name, cases in groups.items() if cases]
    return make_table([title, *HEAD], rows)


def make_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return format_table(head, rows, padded=False)


def list_in_full(cases: Sequence[Case], source: str, only_last: bool) -> str:
    """Return a row for each number of devices of a source, fitted to 1 to 4 devices.

    Args:
      cases: The cases.
      source: The document.
      only_last: Whether only the last number of devices of each curve is shown.
    """
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
        is_fitted_to_four = case.source == source and case.fitted[-1].devices == 4
        if not is_fitted_to_four or (only_last and not case.is_last):
            continue
        cells = ["refused", *["n/a"] * 4]
        if case.predicted:
            cells = [
                f"{case.predicted.value:,.0f}",
                f"{case.predicted.low:,.0f}",
                f"{case.predicted.high:,.0f}",
                f"{case.error_of(case.predicted.value):.1%}",
                f"{case.half_width:.0%}",
            ]
        name = case.public.curve.name
        printed = f"{case.truth.rate:,.0f}"
        errors_of_laws = [f"{case.error_of(rate):.1%}" for rate in case.rates_by_law]
        rows.append([name, str(case.truth.devices), printed, *cells, *errors_of_laws])
    return make_table(head, rows)


def count_by_outcome(cases: Sequence[Case]) -> str:
    """Return where printed rates that grow, stop growing or fall are."""
    rows = []
    for outcome in ("grows", "stops growing", "falls"):
        sides = [case.side for case in cases if case.outcome == outcome]
        counts = [str(sides.count(side)) for side in SIDES]
        rows.append([outcome, str(len(sides)), *counts])
    return make_table(["the printed rate", "cases", *SIDES], rows)


def list_refused(cases: Sequence[Case]) -> str:
    """Return the refused cuts, and how the rate continued."""
    head = [
        "refused curve",
        "fitted",
        "reason",
        "printed on",
        "times the highest fitted rate",
    ]
    rows = []
    for case in cases:
        if case.predicted is None and case.is_last:
            rows.append(
                [
                    f"{case.source}: {case.public.curve.name}",
                    ", ".join(str(point.devices) for point in case.fitted),
                    case.reason,
                    str(case.truth.devices),
                    f"{case.growth:.2f}",
                ]
            )
    return make_table(head, rows)


def list_misses(cases: Sequence[Case]) -> str:
    """Return the cases outside of their intervals."""
    head = ["source", "table", "fitted", "printed", "predicted", "printed is"]
    rows = []
    for case in cases:
        if case.predicted is None or case.is_inside:
            continue
        fitted = [f"{point.devices}:{point.rate:.5g}" for point in case.fitted]
        rows.append(
            [
                case.source,
                case.public.curve.name,
                " ".join(fitted),
                f"{case.truth.devices}:{case.truth.rate:.5g}",
                " ".join(f"{rate:.5g}" for rate in case.predicted),
                case.side,
            ]
        )
    return make_table(head, rows)


def make_document(cases: Sequence[Case]) -> str:
    """Return all tables with their headings."""
    near = [case for case in cases if case.factor <= NEAR]
    tables = {
        "By half": score_by_half(near),
        "By source": score_by_group(near),
        "By weight": score_by_weight(near),
        "By distance": score_by_factor(cases),
        "By what the printed rate does": count_by_outcome(near),
        "The five timing tables of the seeds, fitted to 1 to 4 GPUs": list_in_full(
            cases, FIVE, only_last=True
        ),
        "A table that turns over, fitted to 1 to 4 GPUs": list_in_full(
            cases, FALLING, only_last=False
        ),
        "Refused curves": list_refused(cases),
    }
    sections = [f"## {title}\n\n{table}" for title, table in tables.items()]
    return INTRODUCTION + "\n".join(sections)


def main() -> None:
    """Print the tables."""
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
    cases = []
    for public in public_tables.read():
        if public.half in halves:
            cases += list_cases(public)
    print(make_document(cases))
    if options.misses:
        print(list_misses(cases))


if __name__ == "__main__":
    main()
