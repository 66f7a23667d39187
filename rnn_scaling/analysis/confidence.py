"""Every number's uncertainty: intervals of rates, ratios and sums of them.

rates of processes -> shared_scatters -> interval_over_runs -> ratio (speedup, efficiency), combine (a sum's parts)

Rates vary by percentages, so intervals of rates and ratios are symmetric in the logarithm. docs/statistics.md has the
formulas and the simulated coverage. n: batches, k: processes.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from rnn_scaling.analysis.student import t_quantile

Numbers = Sequence[float] | np.ndarray
MIN_BATCHES = 10  # fewer batches of one process say too little about their own spread

LEVEL = 0.95
POOLED = "rows with the same number of devices share one variance, unless a row's own is larger"
ORDERED = "not narrower than the scatter of runs in order of time makes it"
MIN_ORDERED = 6  # processes from which on their order in time is looked at
ONE_RUN_EACH = "one run of each: --repeats=3 gives intervals"
PRINTED = "wider by half a unit of the last digits that logs printed"
LARGEST_LOG = 700.0  # whose exponential is still a number
WIDE = math.log(
    10
)  # half an interval's width, as a share of the number, from which on its ends say nothing


@dataclasses.dataclass(frozen=True, eq=False)
class Scatter:
    """A standard deviation of log rates between processes, and the degrees of freedom that it was estimated with."""

    deviation: float
    degrees: float
    note: str = ""  # whose it is
    pool: Scatter | None = (
        None  # intervals that hold the same object, or one of the same pool, have its degrees once
    )
    spread: float = 1.0  # how many times the runs of one configuration differ at most


@dataclasses.dataclass(frozen=True)
class Interval:
    """A number with its 95 % confidence interval; all arithmetic on intervals is here."""

    value: float
    low: float | None = None  # the ends are None when the data cannot give them
    high: float | None = None
    kind: str = ""  # what it is over, or why there is none
    standard_error: float | None = None  # in the number's own unit; None without ends
    degrees: float = 0.0
    run_counts: tuple[int, ...] = ()  # behind each input
    scatter: Scatter | None = (
        None  # what the interval shares with others; None where it stands for itself
    )
    # How far the ends reach further for the digits that logs printed, in the logarithm of a rate or a ratio, else in
    # the number's own unit.
    rounding: float = 0.0
    rounding_half_width: float = 0.0  # of the interval, due to printed digits
    spread: float = 1.0  # how many times the runs of one configuration behind the number differ at most
    is_wide: bool = False  # the ends say less than that

    @classmethod
    def exact(
        cls, value: float, kind: str, processes: tuple[int, ...] = ()
    ) -> Interval:
        """A number without uncertainty."""
        return cls(value, value, value, kind, 0.0, math.inf, processes)

    @property
    def ends(self) -> tuple[float, float] | None:
        """(low, high), or None."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def half_width(self) -> float | None:
        """Half the interval's width, in the number's own unit: what stands after "±"."""
        return None if self.ends is None else (self.ends[1] - self.ends[0]) / 2

    @property
    def relative_error(self) -> float | None:
        """The standard error as a share of the number."""
        return None if self.standard_error is None else self.standard_error / self.value

    def with_rounding(self, rounding: float) -> Interval:
        """The interval of a rate, or a ratio, that logs printed with few digits.

        What was rounded may have been anything between two bounds, the same in every run: it is added to both ends.
        `rounding`: by how much the number's logarithm may be off for that.
        """
        if not rounding:  # of nearly all runs, and there may be thousands
            return self
        if self.low is None or self.high is None:
            return dataclasses.replace(self, rounding=rounding)
        low = self.low * math.exp(-rounding)
        high = self.high * math.exp(rounding)
        rounding_half_width = ((high - low) - (self.high - self.low)) / 2
        kind = f"{self.kind}; {PRINTED}"
        return dataclasses.replace(
            self,
            low=low,
            high=high,
            kind=kind,
            rounding=rounding,
            rounding_half_width=rounding_half_width,
        )

    def scaled(self, factor: float) -> Interval:
        """The interval of `factor` (> 0) times the number: an efficiency is a speedup scaled by 1/n."""
        if not factor > 0:
            raise ValueError(f"expected a factor above 0, got {factor}")
        error = self.standard_error
        return dataclasses.replace(
            self._moved(lambda number: number * factor),
            standard_error=None if error is None else error * factor,
            rounding_half_width=self.rounding_half_width * factor,
        )

    def inverse(self, factor: float = 1.0) -> Interval:
        """The interval of `factor` (> 0) divided by the number; the relative error stays the same."""
        scaled = self.scaled(factor / self.value**2)
        moved = self._moved(lambda number: factor / number)
        return dataclasses.replace(scaled, low=moved.low, high=moved.high)

    def shifted(self, by: float) -> Interval:
        """The number and its ends, all moved."""
        return self._moved(lambda number: number + by)

    def subtracted_from(self, whole: float) -> Interval:
        """`whole` less the number, with the same ends."""
        return self._moved(lambda number: whole - number)

    def _moved(self, function: Callable[[float], float]) -> Interval:
        """Return the interval of a monotonic function of the number."""
        low, high = sorted(map(function, self.ends)) if self.ends else (None, None)
        return dataclasses.replace(self, value=function(self.value), low=low, high=high)

    def capped(self, most: float) -> Interval:
        """The same with no end above `most`, which linear error propagation does not know; the number stays."""
        if self.high is None or self.high <= max(most, self.value):
            return self
        return dataclasses.replace(self, high=max(most, self.value))

    def with_margin(self, margin: float, kind: str) -> Interval:
        """The same ratio with ends at this distance, in its logarithm."""
        low = self.value * math.exp(-margin)
        high = self.value * math.exp(min(margin, LARGEST_LOG))
        return dataclasses.replace(self, low=low, high=high, kind=kind)


def process_rate(step_s: Sequence[float], items: Sequence[float]) -> float:
    """Items a second of one process: all items / all seconds of the same batches."""
    return math.fsum(items) / math.fsum(step_s)


def interval_over_batches(step_s: Sequence[float], items: Sequence[float]) -> Interval:
    """Items a second of one process with the interval over its batches, which says nothing about other processes."""
    value = process_rate(step_s, items)
    n = len(step_s)
    error = batch_standard_error(step_s, items)
    if error is None:
        return Interval(
            value,
            kind=f"fewer than {MIN_BATCHES} batches give no interval",
            run_counts=(1,),
        )
    kind = "95 % CI over batches within one process; says nothing about other processes"
    return _log_interval(math.log(value), error, num_cosines(n), (1,), kind)


def interval_over_runs(
    rates: Sequence[float], shared: Scatter | None = None, noun: str = "processes"
) -> Interval:
    """The geometric mean of rates, one a process, with Student's t interval of their logarithms.

    `shared`: what these processes scatter by, as `shared_scatters` gives it; by default their own (k - 1 degrees).
    """
    logs = _logs(rates)
    k = len(logs)
    spread = math.exp(max(logs) - min(logs))
    if shared is None and k > 1:
        shared = Scatter(standard_deviation(logs), k - 1)
    mean = math.fsum(logs) / k
    if shared is None:
        return _log_interval(mean, None, 0.0, (k,), _no_interval((k,)))
    error = shared.deviation / math.sqrt(k)
    kind = _kind((k,), [shared], noun)
    return _log_interval(
        mean, error, shared.degrees, (k,), kind, shared, max(spread, shared.spread)
    )


def shared_scatters(groups: Sequence[Sequence[float]]) -> list[Scatter | None]:
    """What the processes of each configuration scatter by, where all are measured alike: on one machine, in one way.

    One standard deviation of log rates for all, with a degree of freedom for every process beyond a configuration's
    first. A configuration whose own deviation is larger is judged by that, with the degrees of all. None where nothing
    is known, as for single processes throughout.
    """
    deviations = [standard_deviation(_logs(rates)) for rates in groups]
    degrees = [len(rates) - 1 for rates in groups]
    if not (free := sum(degrees)):
        return [None] * len(groups)
    deviation = math.sqrt(
        math.fsum(deviation**2 * count for deviation, count in zip(deviations, degrees))
        / free
    )
    spread = max(max(rates) / min(rates) for rates in groups)
    common = Scatter(deviation, free, POOLED if len(groups) > 1 else "", spread=spread)
    limit = deviation * (1 + 1e-9)  # beyond rounding, which a single group has too
    return [
        Scatter(value, free, POOLED, common, spread) if value > limit else common
        for value in deviations
    ]


def drifting_scatter(rates: Sequence[float]) -> Scatter | None:
    """What processes scatter by where the machine may drift from run to run, as it does between two sittings.

    Their own standard deviation, or from MIN_ORDERED processes on the root of their long-run variance if that is
    larger. It is larger in half of all series without drift, too, so the note names the rule and no cause.
    """
    logs = _logs(rates)
    k = len(logs)
    deviation = standard_deviation(logs)
    if k < 2:
        return None
    if k < MIN_ORDERED:
        return Scatter(deviation, k - 1)
    slow = math.sqrt(long_run_variance(np.asarray(logs)))
    return (
        Scatter(slow, num_cosines(k), ORDERED)
        if slow > deviation
        else Scatter(deviation, k - 1, ORDERED)
    )


def half_width_over_batches(step_s: Numbers, items: Numbers) -> float | None:
    """Relative 95 % half-width of one process's rate from its own batches; None below MIN_BATCHES batches."""
    error = batch_standard_error(step_s, items)
    return (
        None
        if error is None
        else t_quantile((1 + LEVEL) / 2, num_cosines(len(step_s))) * error
    )


def ratio(numerator: Interval, denominator: Interval) -> Interval:
    """numerator / denominator of two independent rates, with Welch's degrees of freedom or their shared scatter's."""
    value = numerator.value / denominator.value
    both = [numerator, denominator]
    processes = numerator.run_counts + denominator.run_counts
    errors = [rate.relative_error for rate in both if rate.relative_error is not None]
    rounding = numerator.rounding + denominator.rounding
    if len(errors) < 2:
        return Interval(
            value, kind=_no_interval(processes), run_counts=processes, rounding=rounding
        )
    error, degrees = welch(errors, both)
    kind = _kind(processes, [rate.scatter for rate in both])
    spread = max(rate.spread for rate in both)
    return _log_interval(
        math.log(value), error, degrees, processes, kind, spread=spread
    ).with_rounding(rounding)


def paired_ratio(before: Sequence[float], after: Sequence[float]) -> Interval:
    """after / before for processes that ran in pairs (A B A B): t over the pairs; drift common to a pair cancels."""
    ratios = [b / a for a, b in zip(before, after, strict=True)]
    return interval_over_runs(ratios, noun="pairs of processes")


def combine(function: Callable[..., float], inputs: Sequence[Interval]) -> Interval:
    """Any smooth function of independent rates, as a part of the efficiency loss: n * x1 - xn.

    First-order error propagation with Welch-Satterthwaite degrees of freedom. A rate that occurs twice is one input.
    """
    values = [interval.value for interval in inputs]
    processes = tuple(count for interval in inputs for count in interval.run_counts)
    value = float(function(*values))
    slopes = [slope(function, values, i) for i in range(len(values))]
    used = [(by, interval) for by, interval in zip(slopes, inputs) if by]
    if not used:
        return Interval.exact(value, "the same whatever was measured", processes)
    errors = [
        abs(by) * rate.standard_error
        for by, rate in used
        if rate.standard_error is not None
    ]
    processes = tuple(count for _, rate in used for count in rate.run_counts)
    if len(errors) < len(used):
        return Interval(value, kind=_no_interval(processes), run_counts=processes)
    error, degrees = welch(errors, [rate for _, rate in used])
    rounding = (
        _by_rounding(function, inputs, slopes)
        if any(interval.rounding for interval in inputs)
        else 0.0
    )
    margin = t_quantile((1 + LEVEL) / 2, degrees) * error + rounding
    kind = "; ".join(
        [
            _kind(processes, [rate.scatter for _, rate in used]),
            *([PRINTED] if rounding else []),
        ]
    )
    return Interval(
        *(
            value,
            value - margin,
            value + margin,
            kind,
            error,
            degrees,
            processes,
            None,
            rounding,
            rounding,
        ),
        spread=max(rate.spread for _, rate in used),
        is_wide=margin > WIDE * math.fsum(abs(by * rate.value) for by, rate in used),
    )


def _by_rounding(
    function: Callable[..., float], inputs: Sequence[Interval], slopes: Sequence[float]
) -> float:
    """By how much a function may be off where every input is, each the way that moves it most."""

    def moved(sign: float) -> float:
        shifts = [
            math.copysign(interval.rounding, sign * by) if by else 0.0
            for interval, by in zip(inputs, slopes)
        ]
        return float(
            function(
                *(
                    interval.value * math.exp(shift)
                    for interval, shift in zip(inputs, shifts)
                )
            )
        )

    value = float(function(*(interval.value for interval in inputs)))
    return max(moved(1.0) - value, value - moved(-1.0))


def slope(function: Callable[..., float], values: Sequence[float], i: int) -> float:
    """How much a function changes for each unit of one input; exactly 0 where it ignores it."""
    step = 1e-4 * abs(values[i]) or 1e-4
    above = function(*values[:i], values[i] + step, *values[i + 1 :])
    below = function(*values[:i], values[i] - step, *values[i + 1 :])
    change = (above - below) / (2 * step)
    return (
        change if abs(change) > 1e-9 else 0.0
    )  # rounding of a function that ignores this input


def standard_deviation(values: Sequence[float]) -> float:
    """Standard deviation; 0.0 of a single value."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(
        math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
    )


def welch(errors: Sequence[float], terms: Sequence[Interval]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a sum of independent terms (Welch 1947, Satterthwaite 1946)."""
    variance = math.fsum(error**2 for error in errors)
    if not variance:
        return 0.0, min(term.degrees for term in terms)
    estimates: dict[
        int, list[float]
    ] = {}  # variance and degrees of each estimate of a scatter, which terms may share
    for error, term in zip(errors, terms):
        shared = term.scatter.pool or term.scatter if term.scatter else term
        estimates.setdefault(id(shared), [0.0, term.degrees])[0] += error**2
    shares = math.fsum(
        (part / variance) ** 2 / degrees for part, degrees in estimates.values()
    )
    return math.sqrt(variance), 1 / shares


def _logs(rates: Sequence[float]) -> list[float]:
    if not len(rates) or not all(rate > 0 and math.isfinite(rate) for rate in rates):
        raise ValueError(f"expected positive rates, got {list(rates)}")
    return [math.log(rate) for rate in rates]


def _log_interval(
    log_value: float,
    error: float | None,
    degrees: float,
    processes: tuple[int, ...],
    kind: str,
    shared: Scatter | None = None,
    spread: float = 1.0,
) -> Interval:
    value = math.exp(log_value)
    if error is None:
        return Interval(value, kind=kind, run_counts=processes)
    margin = t_quantile((1 + LEVEL) / 2, degrees) * error
    low = math.exp(log_value - margin)
    high = math.exp(min(log_value + margin, LARGEST_LOG))
    is_wide = (
        margin > WIDE and spread > 1
    )  # within one process there is nothing that differs
    return Interval(
        *(value, low, high, kind, value * error, degrees, processes, shared),
        spread=spread,
        is_wide=is_wide,
    )


def _kind(
    processes: tuple[int, ...],
    scatters: Sequence[Scatter | None],
    noun: str = "processes",
) -> str:
    counts = sorted(set(processes))
    words = "process" if counts == [1] else noun
    over = f"95 % CI over {' and '.join(map(str, counts))} {words}"
    notes = dict.fromkeys(
        scatter.note for scatter in scatters if scatter and scatter.note
    )
    return "; ".join([over, *notes])


def _no_interval(processes: tuple[int, ...]) -> str:
    return ONE_RUN_EACH if 1 in processes else "no interval"


def batch_standard_error(step_s: Numbers, items: Numbers) -> float | None:
    """Relative standard error of one process's rate from its own batches, autocorrelation included.

    The rate is a ratio of sums, so its error is the long-run error of seconds - items/rate, to be used with Student's
    t of `cosines(n)` degrees. None below MIN_BATCHES batches.

    Source: Lazarus, Lewis, Stock and Watson, "HAR Inference", JBES 36(4), 2018, doi:10.1080/07350015.2018.1506926.
    """
    n = len(step_s)
    if n < MIN_BATCHES:
        return None
    seconds = np.asarray(step_s, float)
    work = np.asarray(items, float)
    whole = seconds.sum()
    residual = (seconds - work * (whole / work.sum())) / (whole / n)
    return math.sqrt(long_run_variance(residual) / n)


def long_run_variance(values: np.ndarray) -> float:
    """n times the variance of the mean of a stationary series `[n]`, from its `cosines(n)` slowest cosines."""
    n = len(values)
    centred = values - values.mean()
    mirrored = np.fft.rfft(
        np.concatenate([centred, centred[::-1]])
    )  # a cosine transform is one of the mirrored series
    order = np.arange(1, num_cosines(n) + 1)
    cosine = (mirrored[order] * np.exp(-0.5j * math.pi * order / n)).real / 2
    return float(np.mean(cosine**2) * 2 / n)


def num_cosines(n: int) -> int:
    """How many cosines the long-run variance of n values is made of: 0.4 n^(2/3), at least 3."""
    return max(3, round(0.4 * n ** (2 / 3)))
