"""Confidence intervals of rates, ratios and sums.

Rates vary by percentages, so intervals of rates and ratios are symmetric in the
logarithm. docs/statistics.md has the formulas and the simulated coverage.
n: number of batches, k: number of runs.

All intervals of reports come from here, so a change moves printed numbers everywhere.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind, Note
from rnn_scaling.analysis.student import t_quantile

Numbers = Sequence[float] | np.ndarray
MIN_BATCHES = 10  # fewer batches do not show how much the rate of a run varies

LEVEL = 0.95
_MIN_ORDERED_RUNS = 6  # fewest runs whose order in time is analysed
_MAX_LOG = 700.0  # exp of more overflows
# An interval that reaches this far from its number, in the logarithm, shows nothing.
_MAX_LOG_HALF_WIDTH = math.log(10)
# Half an interval / its number, above which the number is useless.
_MAX_RELATIVE_HALF_WIDTH = 0.5
_NEGLIGIBLE_SLOPE = 1e-9  # rounding of a function that ignores an input


@dataclasses.dataclass(frozen=True, eq=False)
class Scatter:
    """The standard deviation of log rates between runs.

    Attributes:
      degrees: Degrees of freedom of the estimate.
      note: The rule of the estimate; None for the runs of one configuration.
      pool: The estimate that several intervals share. Its degrees count only once.
      spread: The largest ratio between the runs of one configuration.
    """

    deviation: float
    degrees: float
    note: Note | None = None
    pool: Scatter | None = None
    spread: float = 1.0


@dataclasses.dataclass(frozen=True)
class Interval:
    """A number with its 95 % confidence interval.

    Attributes:
      value: The number.
      low: The lower end; None if the data cannot give an interval.
      high: The upper end; None if the data cannot give an interval.
      kind: What the interval covers, or why it is missing.
      standard_error: In the unit of the number; None without an interval.
      degrees: The degrees of freedom of the standard error.
      run_counts: The number of runs behind each input.
      scatter: The scatter that the interval shares with others; None if it has its own.
      rounding: How far printed digits may move the number: its logarithm for a rate or
        a ratio, otherwise the number itself.
      rounding_half_width: The part of the half-width that is due to printed digits.
      spread: The largest ratio between the runs of one configuration.
      is_wide: Whether the ends show less than `spread` does.
    """

    value: float
    low: float | None = None
    high: float | None = None
    kind: IntervalKind = IntervalKind()
    standard_error: float | None = None
    degrees: float = 0.0
    run_counts: tuple[int, ...] = ()
    scatter: Scatter | None = None
    rounding: float = 0.0
    rounding_half_width: float = 0.0
    spread: float = 1.0
    is_wide: bool = False

    @classmethod
    def exact(
        cls, value: float, basis: Basis, run_counts: tuple[int, ...] = ()
    ) -> Interval:
        """Return a number without uncertainty."""
        kind = IntervalKind(basis)
        return cls(value, value, value, kind, 0.0, math.inf, run_counts)

    @property
    def ends(self) -> tuple[float, float] | None:
        """(low, high), or None."""
        if self.low is None or self.high is None:
            return None
        return self.low, self.high

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval, which is printed after "±"."""
        if self.ends is None:
            return None
        low, high = self.ends
        return (high - low) / 2

    @property
    def is_too_wide(self) -> bool:
        """Whether the interval is so wide that the number is useless."""
        return (
            self.half_width is not None
            and self.half_width > _MAX_RELATIVE_HALF_WIDTH * self.value
        )

    @property
    def is_corrected(self) -> bool:
        """Whether the number contains a rate that is corrected for load."""
        return Note.CORRECTED in self.kind.notes

    @property
    def relative_error(self) -> float | None:
        """The standard error as a share of the number."""
        if self.standard_error is None:
            return None
        return self.standard_error / self.value

    def with_rounding(self, rounding: float) -> Interval:
        """Return the interval of a rate, or a ratio, that logs printed with few digits.

        All runs may be rounded in the same direction, so both ends move by the whole
        amount.

        Args:
          rounding: How far the logarithm of the number may be off.
        """
        if not rounding:  # the usual case, of maybe thousands of runs
            return self
        if self.low is None or self.high is None:
            return dataclasses.replace(self, rounding=rounding)
        low = self.low * math.exp(-rounding)
        high = self.high * math.exp(rounding)
        return dataclasses.replace(
            self,
            low=low,
            high=high,
            kind=self.kind.with_note(Note.PRINTED),
            rounding=rounding,
            rounding_half_width=((high - low) - (self.high - self.low)) / 2,
        )

    def with_further_error(
        self, deviation: float, degrees: float, note: Note
    ) -> Interval:
        """Return the interval of a rate that has an independent second error.

        Args:
          deviation: Standard deviation of the error of the logarithm.
          degrees: Degrees of freedom of that estimate.
          note: The source of the error.
        """
        kind = self.kind.with_note(note)
        if self.relative_error is None:
            return dataclasses.replace(self, kind=kind)
        error, degrees = _add_variances(
            (self.relative_error, self.degrees), (deviation, degrees)
        )
        return _make_log_interval(
            math.log(self.value),
            error=error,
            degrees=degrees,
            run_counts=self.run_counts,
            kind=kind,
            scatter=self.scatter,
            spread=self.spread,
        )

    def scaled(self, factor: float) -> Interval:
        """Return the interval of the number times a factor above 0."""
        if not factor > 0:
            raise ValueError(f"expected a factor above 0, got {factor}")
        error = self.standard_error
        return dataclasses.replace(
            self._mapped(lambda number: number * factor),
            standard_error=None if error is None else error * factor,
            rounding_half_width=self.rounding_half_width * factor,
        )

    def inverse(self, factor: float = 1.0) -> Interval:
        """Return the interval of a factor above 0 divided by the number.

        The relative error stays the same.
        """
        scaled = self.scaled(factor / self.value**2)
        inverse = self._mapped(lambda number: factor / number)
        return dataclasses.replace(scaled, low=inverse.low, high=inverse.high)

    def shifted(self, shift: float) -> Interval:
        """Return the interval of the number plus `shift`."""
        return self._mapped(lambda number: number + shift)

    def subtracted_from(self, total: float) -> Interval:
        """Return the interval of `total` minus the number."""
        return self._mapped(lambda number: total - number)

    def _mapped(self, function: Callable[[float], float]) -> Interval:
        """Return the interval of a monotonic function of the number."""
        low = None
        high = None
        if self.ends:
            low, high = sorted(map(function, self.ends))
        return dataclasses.replace(self, value=function(self.value), low=low, high=high)

    def capped(self, limit: float) -> Interval:
        """Return the interval with its upper end lowered to `limit`.

        Linear error propagation does not know such limits. The number does not change.
        """
        limit = max(limit, self.value)
        if self.high is None or self.high <= limit:
            return self
        return dataclasses.replace(self, high=limit)

    def with_margin(self, margin: float, kind: IntervalKind) -> Interval:
        """Return the number with ends at a distance in its logarithm."""
        low = self.value * math.exp(-margin)
        high = self.value * math.exp(min(margin, _MAX_LOG))
        return dataclasses.replace(self, low=low, high=high, kind=kind)


def compute_interval_over_batches(
    step_s: Sequence[float], items: Sequence[float]
) -> Interval:
    """Return items per second of one run with the interval over its batches.

    The interval does not cover the differences between runs.
    """
    value = math.fsum(items) / math.fsum(step_s)
    error = compute_batch_standard_error(step_s, items)
    if error is None:
        return Interval(value, kind=IntervalKind(Basis.FEW_BATCHES), run_counts=(1,))
    kind = IntervalKind(Basis.BATCHES)
    return _make_log_interval(
        math.log(value),
        error=error,
        degrees=choose_num_cosines(len(step_s)),
        run_counts=(1,),
        kind=kind,
    )


def compute_interval_over_runs(
    rates: Sequence[float],
    scatter: Scatter | None = None,
    basis: Basis = Basis.RUNS,
) -> Interval:
    """Return the geometric mean of rates, with Student's t interval of their logarithms.

    Args:
      rates: One rate per process.
      scatter: The scatter of these runs, from `compute_shared_scatters`; by default
        their own, with k - 1 degrees of freedom.
      basis: RUNS, or PAIRS if the rates are ratios of pairs.
    """
    logs = _take_logarithms(rates)
    k = len(logs)
    spread = math.exp(max(logs) - min(logs))
    if scatter is None and k > 1:
        scatter = Scatter(compute_standard_deviation(logs), k - 1)
    mean = math.fsum(logs) / k
    if scatter is None:
        return _remove_ends(math.exp(mean), (k,))
    return _make_log_interval(
        mean,
        error=scatter.deviation / math.sqrt(k),
        degrees=scatter.degrees,
        run_counts=(k,),
        kind=_runs_kind((k,), [scatter], basis),
        scatter=scatter,
        spread=max(spread, scatter.spread),
    )


def compute_shared_scatters(groups: Sequence[Sequence[float]]) -> list[Scatter | None]:
    """Return the scatter of each configuration's runs.

    All configurations share one standard deviation of log rates, with a degree of
    freedom for every process beyond a configuration's first. A configuration whose own
    deviation is larger has that, with the degrees of all.

    Args:
      groups: Rates of each configuration's runs, all measured in the same way on
        the same machine.

    Returns:
      None for all if no configuration has two runs.
    """
    deviations = [
        compute_standard_deviation(_take_logarithms(rates)) for rates in groups
    ]
    degrees = [len(rates) - 1 for rates in groups]
    total_degrees = sum(degrees)
    if not total_degrees:
        return [None] * len(groups)
    squares = math.fsum(
        deviation**2 * count for deviation, count in zip(deviations, degrees)
    )
    deviation = math.sqrt(squares / total_degrees)
    spread = max(max(rates) / min(rates) for rates in groups)
    note = Note.POOLED if len(groups) > 1 else None
    common = Scatter(deviation, total_degrees, note, spread=spread)
    # Rounding can make the deviation of a single group larger than itself.
    limit = deviation * (1 + 1e-9)
    scatters: list[Scatter | None] = []
    for group_deviation in deviations:
        if group_deviation > limit:
            scatters.append(
                Scatter(
                    group_deviation,
                    degrees=total_degrees,
                    note=Note.POOLED,
                    pool=common,
                    spread=spread,
                )
            )
        else:
            scatters.append(common)
    return scatters


def compute_drifting_scatter(rates: Sequence[float]) -> Scatter | None:
    """Return the scatter of runs on a machine that may drift between them.

    This is their standard deviation; with _MIN_ORDERED_RUNS or more, the root of
    their long-run variance if that is larger. It is also larger in half of all series
    without drift, so the note names the rule and not a cause.

    Args:
      rates: One rate per process, in the order of time.

    Returns:
      None for a single process.
    """
    logs = _take_logarithms(rates)
    k = len(logs)
    if k < 2:
        return None
    deviation = compute_standard_deviation(logs)
    if k < _MIN_ORDERED_RUNS:
        return Scatter(deviation, k - 1)
    long_run_deviation = math.sqrt(estimate_long_run_variance(np.asarray(logs)))
    if long_run_deviation > deviation:
        return Scatter(long_run_deviation, choose_num_cosines(k), Note.ORDERED)
    return Scatter(deviation, k - 1, Note.ORDERED)


def compute_half_width_over_batches(step_s: Numbers, items: Numbers) -> float | None:
    """Return the relative 95 % half-width of a process's rate from its own batches.

    Returns:
      None below MIN_BATCHES batches.
    """
    error = compute_batch_standard_error(step_s, items)
    if error is None:
        return None
    return t_quantile((1 + LEVEL) / 2, choose_num_cosines(len(step_s))) * error


def divide_rates(
    numerator: Interval, denominator: Interval, drift: Scatter | None = None
) -> Interval:
    """Return the ratio of two independent rates.

    The degrees of freedom are from Welch's formula, or from a shared scatter.

    Args:
      numerator: The first rate.
      denominator: The second rate.
      drift: The scatter of log rates between sessions, if the rates were measured in
        two sessions.
    """
    rates = [numerator, denominator]
    value = numerator.value / denominator.value
    run_counts = numerator.run_counts + denominator.run_counts
    rounding = numerator.rounding + denominator.rounding
    errors = [rate.relative_error for rate in rates if rate.relative_error is not None]
    if len(errors) < 2:
        return _remove_ends(value, run_counts, rounding, rates)
    error, degrees = _combine_errors(errors, rates)
    if drift is not None:
        error, degrees = add_drift(error, degrees, drift)
    interval = _make_log_interval(
        math.log(value),
        error=error,
        degrees=degrees,
        run_counts=run_counts,
        kind=_runs_kind(
            run_counts, [*(rate.scatter for rate in rates), drift], inputs=rates
        ),
        spread=max(rate.spread for rate in rates),
    )
    return interval.with_rounding(rounding)


def add_drift(error: float, degrees: float, drift: Scatter) -> tuple[float, float]:
    """Return the standard error of a log ratio of two sessions, and its degrees.

    Each session moves its rate by the deviation of the drift, so its variance counts
    twice.

    Args:
      error: Standard error without drift.
      degrees: The degrees of freedom of the error.
      drift: The scatter of log rates between sessions.
    """
    drift_error = math.sqrt(2) * drift.deviation
    return _add_variances((error, degrees), (drift_error, drift.degrees))


def _add_variances(*errors: tuple[float, float]) -> tuple[float, float]:
    """Return the standard error of a sum of independent numbers, and its degrees.

    Args:
      *errors: (standard error, degrees of freedom) of each number.

    Source: Welch 1947, Satterthwaite 1946.
    """
    variance = math.fsum(error**2 for error, _ in errors)
    if not variance:
        return 0.0, errors[0][1]
    shares = math.fsum(error**4 / degrees for error, degrees in errors)
    return math.sqrt(variance), variance**2 / shares


def compute_paired_ratio(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Return after / before of runs that were made in pairs (A B A B).

    The interval is Student's t over the pairs: drift that a pair shares cancels.
    """
    ratios = [b / a for a, b in zip(before, after, strict=True)]
    return compute_interval_over_runs(ratios, basis=Basis.PAIRS)


def combine(function: Callable[..., float], inputs: Sequence[Interval]) -> Interval:
    """Return the interval of a smooth function of independent rates.

    The function may be a part of the efficiency loss, such as n * x1 - xn. The error
    is propagated to first order, with Welch-Satterthwaite degrees of freedom. A rate
    that occurs twice in the function is one input.
    """
    values = [rate.value for rate in inputs]
    value = float(function(*values))
    slopes = [find_slope(function, values, i) for i in range(len(values))]
    terms = [(change, rate) for change, rate in zip(slopes, inputs) if change]
    used_rates = [rate for _, rate in terms]
    if not terms:
        return Interval.exact(value, Basis.CONSTANT, _run_counts(inputs))
    errors = [
        abs(change) * rate.standard_error
        for change, rate in terms
        if rate.standard_error is not None
    ]
    run_counts = _run_counts(used_rates)
    if len(errors) < len(terms):
        return _remove_ends(value, run_counts, inputs=used_rates)
    error, degrees = _combine_errors(errors, used_rates)
    kind = _runs_kind(
        run_counts, [rate.scatter for rate in used_rates], inputs=used_rates
    )
    rounding = 0.0
    if any(rate.rounding for rate in inputs):
        rounding = _compute_rounding_effect(function, inputs, slopes)
    if rounding:
        kind = kind.with_note(Note.PRINTED)
    margin = t_quantile((1 + LEVEL) / 2, degrees) * error + rounding
    size = math.fsum(abs(change * rate.value) for change, rate in terms)
    return Interval(
        value,
        low=value - margin,
        high=value + margin,
        kind=kind,
        standard_error=error,
        degrees=degrees,
        run_counts=run_counts,
        rounding=rounding,
        rounding_half_width=rounding,
        spread=max(rate.spread for rate in used_rates),
        is_wide=margin > _MAX_LOG_HALF_WIDTH * size,
    )


def _run_counts(intervals: Iterable[Interval]) -> tuple[int, ...]:
    return tuple(itertools.chain.from_iterable(each.run_counts for each in intervals))


def _compute_rounding_effect(
    function: Callable[..., float], inputs: Sequence[Interval], slopes: Sequence[float]
) -> float:
    """Return how far a function may be off if all inputs are rounded the worst way."""

    def evaluate(sign: float) -> float:
        values = [
            rate.value * math.exp(sign * float(np.sign(change)) * rate.rounding)
            for rate, change in zip(inputs, slopes)
        ]
        return float(function(*values))

    return max(evaluate(1.0) - evaluate(0.0), evaluate(0.0) - evaluate(-1.0))


def find_slope(
    function: Callable[..., float], values: Sequence[float], i: int
) -> float:
    """Return the derivative of a function by input i; exactly 0 if it ignores it."""
    step = 1e-4 * abs(values[i]) or 1e-4
    above = function(*values[:i], values[i] + step, *values[i + 1 :])
    below = function(*values[:i], values[i] - step, *values[i + 1 :])
    change = (above - below) / (2 * step)
    return change if abs(change) > _NEGLIGIBLE_SLOPE else 0.0


def compute_standard_deviation(values: Sequence[float]) -> float:
    """Return the standard deviation; 0.0 for a single value."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    squares = math.fsum((value - mean) ** 2 for value in values)
    return math.sqrt(squares / (len(values) - 1))


def _combine_errors(
    errors: Sequence[float], terms: Sequence[Interval]
) -> tuple[float, float]:
    """Return the standard error of a sum of independent terms, and its degrees.

    Terms that share the estimate of their scatter have its degrees only once.

    Source: Welch 1947, Satterthwaite 1946.
    """
    variance = math.fsum(error**2 for error in errors)
    if not variance:
        return 0.0, min(term.degrees for term in terms)
    estimates: dict[int, list[float]] = {}  # [variance, degrees] of each estimate
    for error, term in zip(errors, terms):
        estimate: Scatter | Interval = term
        if term.scatter:
            estimate = term.scatter.pool or term.scatter
        sums = estimates.setdefault(id(estimate), [0.0, term.degrees])
        sums[0] += error**2
    shares = math.fsum(
        (partial / variance) ** 2 / degrees for partial, degrees in estimates.values()
    )
    return math.sqrt(variance), 1 / shares


def _take_logarithms(rates: Sequence[float]) -> list[float]:
    if not len(rates) or not all(rate > 0 and math.isfinite(rate) for rate in rates):
        raise ValueError(f"expected positive rates, got {list(rates)}")
    return [math.log(rate) for rate in rates]


def _make_log_interval(
    log_value: float,
    error: float,
    degrees: float,
    run_counts: tuple[int, ...],
    kind: IntervalKind,
    scatter: Scatter | None = None,
    spread: float = 1.0,
) -> Interval:
    """Return the interval of a number whose logarithm has this error."""
    value = math.exp(log_value)
    margin = t_quantile((1 + LEVEL) / 2, degrees) * error
    return Interval(
        value,
        low=math.exp(log_value - margin),
        high=math.exp(min(log_value + margin, _MAX_LOG)),
        kind=kind,
        standard_error=value * error,
        degrees=degrees,
        run_counts=run_counts,
        scatter=scatter,
        spread=spread,
        # A single process has no spread that could replace its interval.
        is_wide=margin > _MAX_LOG_HALF_WIDTH and spread > 1,
    )


def _runs_kind(
    run_counts: tuple[int, ...],
    scatters: Sequence[Scatter | None],
    basis: Basis = Basis.RUNS,
    inputs: Sequence[Interval] = (),
) -> IntervalKind:
    notes = [scatter.note for scatter in filter(None, scatters) if scatter.note]
    notes += _collect_inherited_notes(inputs)
    counts = sorted(set(run_counts))
    return IntervalKind(basis, tuple(counts), tuple(dict.fromkeys(notes)))


def _collect_inherited_notes(inputs: Iterable[Interval]) -> list[Note]:
    """Return the notes of numbers that their ratio or function has, too."""
    notes: dict[Note, None] = {}
    for number in inputs:
        notes |= dict.fromkeys(number.kind.inherited_notes)
    return list(notes)


def _remove_ends(
    value: float,
    run_counts: tuple[int, ...],
    rounding: float = 0.0,
    inputs: Iterable[Interval] = (),
) -> Interval:
    """Return a number whose runs are too few for an interval."""
    kind = IntervalKind(
        Basis.ONE_RUN_EACH if 1 in run_counts else Basis.NO_SCATTER,
        notes=tuple(_collect_inherited_notes(inputs)),
    )
    return Interval(value, kind=kind, run_counts=run_counts, rounding=rounding)


def compute_batch_standard_error(step_s: Numbers, items: Numbers) -> float | None:
    """Return the relative standard error of a process's rate from its own batches.

    The rate is a ratio of sums, so its error is the long-run error of
    seconds - items / rate, which includes autocorrelation. It is used with Student's t
    of `choose_num_cosines(n)` degrees of freedom.

    Returns:
      None below MIN_BATCHES batches.

    Source: Lazarus, Lewis, Stock and Watson, "HAR Inference", JBES 36(4), 2018,
    doi:10.1080/07350015.2018.1506926.
    """
    n = len(step_s)
    if n < MIN_BATCHES:
        return None
    seconds = np.asarray(step_s, float)
    work = np.asarray(items, float)
    total_s = seconds.sum()
    residual = (seconds - work * (total_s / work.sum())) / (total_s / n)
    return math.sqrt(estimate_long_run_variance(residual) / n)


def estimate_long_run_variance(values: np.ndarray) -> float:
    """Return n times the variance of the mean of a stationary series [n].

    It is estimated from the `choose_num_cosines(n)` slowest cosines.
    """
    n = len(values)
    centred = values - values.mean()
    # A cosine transform is the Fourier transform of the mirrored series.
    mirrored = np.fft.rfft(np.concatenate([centred, centred[::-1]]))
    order = np.arange(1, choose_num_cosines(n) + 1)
    cosine = (mirrored[order] * np.exp(-0.5j * math.pi * order / n)).real / 2
    return float(np.mean(cosine**2) * 2 / n)


def choose_num_cosines(n: int) -> int:
    """Return how many cosines estimate the long-run variance of n values."""
    return max(3, round(0.4 * n ** (2 / 3)))
