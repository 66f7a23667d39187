"""Levels of a noisy series: robust scale, outliers, cycles, changes of level and drift. Pure functions on arrays.

y: the series (log seconds), [n]. Sources and the choice among candidates: docs/statistics.md.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

WINDOW = 200  # batches over which outlier bounds are taken
MIN_SIZE = 5  # batches of the shortest level
MAX_POINTS = (
    600  # longer series are searched on block means, then refined: the search takes n^2
)
LONGEST_CYCLE = 200
SCALE_FLOOR = (
    0.0005  # clocks and rounding: no series is known better than this (log seconds)
)
MOST_CORRELATION = (
    0.85  # of neighbours; what is smoother than that is a change of level
)
# Mean of the smaller three quarters of |z| for a standard normal z.
TRIMMED_MEAN = 0.51491


def robust_scale(values: np.ndarray) -> float:
    """Standard deviation of a centred normal sample from the smaller three quarters of its magnitudes."""
    if not len(values):
        return 0.0
    magnitudes = np.sort(np.abs(values))
    return float(
        magnitudes[: max(1, math.ceil(0.75 * len(magnitudes)))].mean() / TRIMMED_MEAN
    )


def noise(y: np.ndarray) -> float:
    """n times the variance of a mean of n values: the smaller of two estimates, which jumps and slow changes spoil."""
    return min(_noise_of_differences(y), noise_of_residuals(y - _fitted(y, 2), 3))


def noise_about(y: np.ndarray, cuts: Sequence[int]) -> float:
    """Noise of a series about a line in each part between `cuts`; more exact than `noise`, blind to missing cuts."""
    edges = [0, *cuts, len(y)]
    lines = [_fitted(y[a:b], 1) for a, b in zip(edges, edges[1:])]
    return noise_of_residuals(y - np.concatenate(lines), 2 * len(lines))


def _fitted(y: np.ndarray, degree: int) -> np.ndarray:
    """The polynomial of least squares at each value."""
    basis = _polynomials(len(y), degree)
    return basis @ (y @ basis)


@functools.lru_cache(maxsize=64)  # the runs of a folder have few lengths
def _polynomials(n: int, degree: int) -> np.ndarray:
    """Orthonormal polynomials up to a degree at n places, `[n, degree + 1]`: a fit is a projection on them."""
    return np.linalg.qr(
        np.polynomial.legendre.legvander(np.linspace(-1, 1, n), degree)
    )[0]


def noise_of_residuals(residual: np.ndarray, parameters: int) -> float:
    """Noise from residuals after a fit of so many parameters."""
    free = max(1, len(residual) - parameters)
    variance = max(float(residual @ residual) / free, SCALE_FLOOR**2)
    r = float(residual[1:] @ residual[:-1]) / (free * variance)
    r += (
        (1 + 3 * r) * parameters / len(residual)
    )  # each parameter takes correlation away (Kendall 1954, for a mean)
    return _first_order(variance, r)


def _noise_of_differences(y: np.ndarray) -> float:
    """With correlation r of neighbours in a first-order process, differences at lag k vary in proportion to 1 - r^k.

    r solves (v2 + v3 + v4) / v1 = 3 + 3r + 2r^2 + r^3, v being the robust variance of differences.
    """
    differences = (y[lag:] - y[:-lag] for lag in (1, 2, 3, 4))
    v1, *later = (
        max(robust_scale(d - np.median(d)) ** 2 / 2, SCALE_FLOOR**2)
        for d in differences
    )
    low = 0.0
    high = MOST_CORRELATION
    for _ in range(30):
        r = (low + high) / 2
        low, high = (
            (r, high) if sum(later) / v1 > 3 + 3 * r + 2 * r**2 + r**3 else (low, r)
        )
    return _first_order(v1 / (1 - low), low)


def _first_order(variance: float, correlation: float) -> float:
    r = min(max(correlation, 0.0), MOST_CORRELATION)
    return variance * (1 + r) / (1 - r)


def outlier_bounds(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds `[n]` beyond which a value is an outlier: median -+ 3 (P90 - P10) of a window of 200.

    Source: Barrett, Bolz-Tereick, Killick, Mount and Tratt, "Virtual Machine Warmup Blows Hot and Cold", OOPSLA 2017.
    """
    windows = np.array_split(y, max(1, round(len(y) / WINDOW)))
    lows, highs = zip(*map(_window_bounds, windows))
    # The wider of neighbouring windows: values before a change are no outliers though the change fills their window.
    near = [slice(max(0, i - 1), i + 2) for i in range(len(windows))]
    sizes = [len(window) for window in windows]
    return np.repeat([min(lows[i]) for i in near], sizes), np.repeat(
        [max(highs[i]) for i in near], sizes
    )


def _window_bounds(window: np.ndarray) -> tuple[float, float]:
    p10, middle, p90 = np.percentile(window, (10, 50, 90)).tolist()
    reach = 3 * max(p90 - p10, 2.56 * SCALE_FLOOR)
    return middle - reach, middle + reach


def item_cost(log_s: np.ndarray, log_items: np.ndarray) -> np.ndarray:
    """Log seconds an item, as if every batch had the same number of items.

    A step has costs that do not grow with its items, so that an item of a short batch costs more. The exponent is the
    least-absolute-deviations slope of differences between neighbours, which changes of level hardly move.
    """
    per_item = log_s - log_items
    dx = np.diff(log_items)
    dy = np.diff(per_item)
    moved = np.abs(dx) > 1e-9
    if not moved.any():
        return per_item
    slopes = dy[moved] / dx[moved]
    weights = np.abs(dx[moved])
    order = np.argsort(slopes, kind="stable")
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return per_item - slopes[order][middle] * (log_items - log_items.mean())


def cycle_length(y: np.ndarray) -> int | None:
    """Period p after which values repeat, seen at least four times, by the Bayes information criterion; or None."""
    n = len(y)
    centred = y - y.mean()
    best = None
    best_gain = 0.0
    for period in range(2, min(n // 4, LONGEST_CYCLE) + 1):
        used = centred[n % period :].reshape(-1, period)
        total = float(np.sum((used - used.mean()) ** 2))
        phases = used.mean(axis=0)
        rest = max(float(np.sum((used - phases) ** 2)), used.size * SCALE_FLOOR**2)
        if total <= rest or phases.max() - phases.min() < 4 * math.sqrt(
            rest / used.size
        ) / math.sqrt(len(used)):
            continue
        gain = used.size * math.log(total / rest) - (period - 1) * math.log(used.size)
        # A long cycle has many candidates beside it, and smooth noise resembles one for a few periods.
        if gain > max(best_gain, 10 + 0.1 * used.size) and rest < 0.6 * total:
            best = period
            best_gain = gain
    return best


def without_cycle(y: np.ndarray, period: int, since: int) -> np.ndarray:
    """y less the mean of each phase over y[since:], level kept."""
    phase = np.arange(len(y)) % period
    tail = y[since:]
    tail_phase = phase[since:]
    effect = np.array([tail[tail_phase == p].mean() for p in range(period)])
    return y - (effect - effect.mean())[phase]


def change_points(y: np.ndarray, long_run: float) -> list[int]:
    """Indices where the level changes, by least squares with a penalty of 3 * long_run * ln n for each change.

    Exact up to MAX_POINTS values; beyond, exact on block means and refined to the batch.

    Source: Killick, Fearnhead and Eckley, "Optimal Detection of Changepoints With a Linear Computational Cost",
      JASA 107(500), 2012, doi:10.1080/01621459.2012.737745 (the cost and its recursion).
    """
    n = len(y)
    block = math.ceil(n / MAX_POINTS)
    whole = n - n % block
    means = y[n - whole :].reshape(-1, block).mean(axis=1)
    penalty = 3 * long_run * math.log(n) / block
    block_cuts = _optimal_partition(
        means, penalty, max(2, MIN_SIZE // block) if block > 1 else MIN_SIZE
    )
    cuts = [n - whole + cut * block for cut in block_cuts]
    if block == 1:
        return cuts
    edges = [0, *cuts, n]
    cuts = [
        _best_cut(y, edges[i], edges[i + 2], edges[i + 1], block)
        for i in range(len(cuts))
    ]
    return _worthwhile(y, cuts, penalty * block)


def trend(y: np.ndarray) -> float:
    """Least-squares change of y from its first value to its last."""
    t = np.arange(len(y)) - (len(y) - 1) / 2
    return float(t @ y / (t @ t)) * (len(y) - 1) if len(y) > 1 else 0.0


def drifts(y: np.ndarray, long_run: float, tolerance: float) -> bool:
    """True if y goes on changing by more than `tolerance` over the whole series, at four standard errors."""
    return abs(trend(y)) > max(tolerance, 4 * math.sqrt(12 * long_run / len(y)))


def goes_on(y: np.ndarray, cut: int, long_run: float) -> bool:
    """True if a change before `cut` goes on after it: a line fits better than two levels, and y[cut:] may follow it.

    "May": its own slope is at most two standard errors flatter than the line's.
    """
    n = len(y)
    rest = len(y) - cut
    t = np.arange(n) - (n - 1) / 2
    slope = float(t @ y / (t @ t))
    levels = np.concatenate(
        [np.full(cut, y[:cut].mean()), np.full(rest, y[cut:].mean())]
    )
    line_error = float(np.sum((y - y.mean() - t * slope) ** 2))
    level_error = float(np.sum((y - levels) ** 2))
    flatter = abs(slope) * (rest - 1) - math.copysign(1.0, slope) * trend(y[cut:])
    return line_error < level_error and flatter < 2 * math.sqrt(12 * long_run / rest)


def _optimal_partition(y: np.ndarray, penalty: float, min_size: int) -> list[int]:
    n = len(y)
    s1 = np.concatenate([[0.0], np.cumsum(y - y.mean())])
    s2 = np.concatenate([[0.0], np.cumsum((y - y.mean()) ** 2)])
    place = np.arange(n + 1)
    length = np.maximum(place[:, None] - place, 1)
    cost = (
        s2[:, None] - s2 - (s1[:, None] - s1) ** 2 / length
    )  # of one level, [end, start]
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    last = np.zeros(n + 1, int)
    for end in range(min_size, n + 1):
        starts = end - min_size + 1
        costs = best[:starts] + cost[end, :starts]
        last[end] = costs.argmin()
        best[end] = costs[last[end]] + penalty
    cuts = []
    end = n
    while end > 0 and last[end] > 0:
        end = int(last[end])
        cuts.append(end)
    return cuts[::-1]


def _worthwhile(y: np.ndarray, cuts: list[int], penalty: float) -> list[int]:
    """The cuts without those that gain less than the penalty: a block that a change falls into looks like a level."""
    while cuts:
        edges = [0, *cuts, len(y)]
        gains = []
        for a, b, c in zip(edges, edges[1:], edges[2:]):
            apart = y[a:b].mean() - y[b:c].mean()
            gains.append(apart**2 * (b - a) * (c - b) / (c - a))
        if min(gains) >= penalty:
            break
        cuts = cuts[: gains.index(min(gains))] + cuts[gains.index(min(gains)) + 1 :]
    return cuts


def _best_cut(y: np.ndarray, start: int, stop: int, near: int, reach: int) -> int:
    """The cut within `reach` of `near` that splits y[start:stop] best."""
    s1 = np.cumsum(y[start:stop])
    cuts = np.arange(max(start + 1, near - reach), min(stop - 1, near + reach) + 1)
    left = cuts - start
    gain = s1[left - 1] ** 2 / left + (s1[-1] - s1[left - 1]) ** 2 / (
        stop - start - left
    )
    return int(cuts[np.argmax(gain)])
