"""Find levels in a noisy series: outliers, cycles, changes of level and drift.

The functions are pure. docs/statistics.md has the sources, and compares candidates.
y: the series [n], such as log seconds.

`find_change_points` finds the levels of rates in histories, and the levels within a run
for `steady_state`.
"""

import functools
import math
from collections.abc import Sequence

import numpy as np

_WINDOW = 200  # batches over which outlier bounds are computed
MIN_SIZE = 5  # batches of the shortest level
# The search takes n^2, so longer series are searched on block means, then refined.
_MAX_POINTS = 600
_MAX_CYCLE_LENGTH = 200
# Clocks and rounding: no series is known better than this (log seconds).
_SCALE_FLOOR = 0.0005
# Neighbours with a higher correlation belong to a change of level.
_MAX_CORRELATION = 0.85
# Mean of the smaller three quarters of |z| for a standard normal z.
_TRIMMED_MEAN = 0.51491
_BISECTIONS = 30


def compute_robust_scale(values: np.ndarray) -> float:
    """Return the standard deviation of a centred normal sample.

    It is estimated from the smaller three quarters of the magnitudes.
    """
    if not len(values):
        return 0.0
    magnitudes = np.sort(np.abs(values))
    count = max(1, math.ceil(0.75 * len(magnitudes)))
    return float(magnitudes[:count].mean() / _TRIMMED_MEAN)


def estimate_noise(y: np.ndarray) -> float:
    """Return n times the variance of a mean of n values.

    This is the smaller of two estimates: jumps spoil one, slow changes the other.
    """
    return min(
        _estimate_noise_of_differences(y),
        _estimate_noise_of_residuals(y - _fit(y, 2), 3),
    )


def estimate_noise_of_levels(y: np.ndarray, cuts: Sequence[int]) -> float:
    """Return the noise of a series around one line between every two cuts.

    It is more exact than `estimate_noise`, but too large if cuts are missing.
    """
    edges = [0, *cuts, len(y)]
    lines = [_fit(y[a:b], 1) for a, b in zip(edges, edges[1:])]
    return _estimate_noise_of_residuals(y - np.concatenate(lines), 2 * len(lines))


def _fit(y: np.ndarray, degree: int) -> np.ndarray:
    """Return the least-squares polynomial at each value."""
    basis = _make_orthonormal_polynomials(len(y), degree)
    return basis @ (y @ basis)


@functools.lru_cache(maxsize=64)  # the runs of a folder have few lengths
def _make_orthonormal_polynomials(n: int, degree: int) -> np.ndarray:
    """Return orthonormal polynomials up to a degree, [n, degree + 1].

    A fit is a projection on them.
    """
    points = np.linspace(-1, 1, n)
    return np.linalg.qr(np.polynomial.legendre.legvander(points, degree))[0]


def _estimate_noise_of_residuals(residual: np.ndarray, parameters: int) -> float:
    """Return the noise from the residuals of a fit with some parameters."""
    n = len(residual)
    free = max(1, n - parameters)
    variance = max(float(residual @ residual) / free, _SCALE_FLOOR**2)
    r = float(residual[1:] @ residual[:-1]) / (free * variance)
    # Each fitted parameter lowers the correlation (a mean: Kendall 1954).
    r += (1 + 3 * r) * parameters / n
    return _estimate_first_order_noise(variance, r)


def _estimate_noise_of_differences(y: np.ndarray) -> float:
    """Return the noise from the robust variances v_k of differences at lag k = 1 to 4.

    In a first-order process with correlation r of neighbours, v_k is proportional to
    1 - r^k, so r solves (v2 + v3 + v4) / v1 = 3 + 3r + 2r^2 + r^3.
    """
    variances = []
    for lag in (1, 2, 3, 4):
        differences = y[lag:] - y[:-lag]
        scale = compute_robust_scale(differences - np.median(differences))
        variances.append(max(scale**2 / 2, _SCALE_FLOOR**2))
    ratio = sum(variances[1:]) / variances[0]
    low = 0.0
    high = _MAX_CORRELATION
    for _ in range(_BISECTIONS):
        r = (low + high) / 2
        if ratio > 3 + 3 * r + 2 * r**2 + r**3:
            low = r
        else:
            high = r
    return _estimate_first_order_noise(variances[0] / (1 - low), low)


def _estimate_first_order_noise(variance: float, correlation: float) -> float:
    r = min(max(correlation, 0.0), _MAX_CORRELATION)
    return variance * (1 + r) / (1 - r)


def compute_outlier_bounds(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds [n] beyond which values are outliers.

    They are the median -+ 3 (P90 - P10) of a window of 200 values.

    Source: Barrett, Bolz-Tereick, Killick, Mount and Tratt, "Virtual Machine Warmup
    Blows Hot and Cold", OOPSLA 2017.
    """
    windows = np.array_split(y, max(1, round(len(y) / _WINDOW)))
    lows, highs = zip(*map(_compute_window_bounds, windows))
    wide_lows = []
    wide_highs = []
    # Values before a change are not outliers even if the change fills their window, so
    # neighbouring windows share the wider bounds.
    for i in range(len(windows)):
        neighbours = slice(max(0, i - 1), i + 2)
        wide_lows.append(min(lows[neighbours]))
        wide_highs.append(max(highs[neighbours]))
    sizes = [len(window) for window in windows]
    return np.repeat(wide_lows, sizes), np.repeat(wide_highs, sizes)


def _compute_window_bounds(window: np.ndarray) -> tuple[float, float]:
    p10, median, p90 = np.percentile(window, (10, 50, 90)).tolist()
    reach = 3 * max(p90 - p10, 2.56 * _SCALE_FLOOR)
    return median - reach, median + reach


def compute_item_cost(log_s: np.ndarray, log_items: np.ndarray) -> np.ndarray:
    """Return log seconds per item, as if every batch had the same number of items.

    A step has costs that do not grow with its items, so an item of a short batch costs
    more. The exponent is the least-absolute-deviations slope of differences between
    neighbours, which changes of level hardly affect.
    """
    per_item = log_s - log_items
    dx = np.diff(log_items)
    dy = np.diff(per_item)
    differs = np.abs(dx) > 1e-9
    if not differs.any():
        return per_item
    slopes = dy[differs] / dx[differs]
    weights = np.abs(dx[differs])
    order = np.argsort(slopes, kind="stable")
    middle = np.searchsorted(np.cumsum(weights[order]), weights.sum() / 2)
    return per_item - slopes[order][middle] * (log_items - log_items.mean())


def find_cycle_length(y: np.ndarray) -> int | None:
    """Return the period after which values repeat, by the Bayes information criterion.

    Returns:
      None without a period that was seen at least four times.
    """
    n = len(y)
    centred = y - y.mean()
    best = None
    best_gain = 0.0
    for period in range(2, min(n // 4, _MAX_CYCLE_LENGTH) + 1):
        cycles = centred[n % period :].reshape(-1, period)
        size = cycles.size
        total = float(np.sum((cycles - cycles.mean()) ** 2))
        phases = cycles.mean(axis=0)
        residual = max(float(np.sum((cycles - phases) ** 2)), size * _SCALE_FLOOR**2)
        error = math.sqrt(residual / size) / math.sqrt(len(cycles))
        if total <= residual or phases.max() - phases.min() < 4 * error:
            continue
        gain = size * math.log(total / residual) - (period - 1) * math.log(size)
        # There are many candidates for a long cycle, and smooth noise resembles one
        # for a few periods.
        if gain > max(best_gain, 10 + 0.1 * size) and residual < 0.6 * total:
            best = period
            best_gain = gain
    return best


def remove_cycle(y: np.ndarray, period: int, first: int) -> np.ndarray:
    """Subtract the mean of each phase over y[first:], without changing the level."""
    phase = np.arange(len(y)) % period
    tail = y[first:]
    tail_phase = phase[first:]
    effect = np.array([tail[tail_phase == p].mean() for p in range(period)])
    return y - (effect - effect.mean())[phase]


def find_change_points(y: np.ndarray, long_run: float) -> list[int]:
    """Return the indices at which the level changes.

    The cuts minimise the squared error, with a penalty of 3 * long_run * ln n for each.
    They are exact up to _MAX_POINTS values. Longer series are cut exactly on block
    means, and then refined to the batch.

    Source: Killick, Fearnhead and Eckley, "Optimal Detection of Changepoints With a
    Linear Computational Cost", JASA 107(500), 2012, doi:10.1080/01621459.2012.737745
    (the cost and its recursion).
    """
    n = len(y)
    block = math.ceil(n / _MAX_POINTS)
    penalty = 3 * long_run * math.log(n) / block
    if block == 1:
        return _find_optimal_partition(y, penalty, MIN_SIZE)
    lead = n % block  # values before the first block
    means = y[lead:].reshape(-1, block).mean(axis=1)
    cuts = []
    for cut in _find_optimal_partition(means, penalty, max(2, MIN_SIZE // block)):
        cuts.append(lead + cut * block)
    edges = [0, *cuts, n]
    refined_cuts = []
    for start, cut, stop in zip(edges, edges[1:], edges[2:]):
        refined_cuts.append(_find_best_cut(y, start, stop, cut, block))
    return _drop_weak_cuts(y, refined_cuts, penalty * block)


def find_trend(y: np.ndarray) -> float:
    """Return the least-squares change of y from its first value to its last."""
    if len(y) < 2:
        return 0.0
    t = np.arange(len(y)) - (len(y) - 1) / 2
    return float(t @ y / (t @ t)) * (len(y) - 1)


def has_drift(y: np.ndarray, long_run: float, tolerance: float) -> bool:
    """Return whether y changes over its whole length.

    The change must exceed `tolerance`, and four standard errors.
    """
    return abs(find_trend(y)) > max(tolerance, 4 * math.sqrt(12 * long_run / len(y)))


def may_continue(y: np.ndarray, cut: int, long_run: float) -> bool:
    """Return whether a change before `cut` may continue after it.

    A line must fit y better than two levels, and the slope of y[cut:] must be at most
    two standard errors flatter than the line.
    """
    n = len(y)
    num_after = n - cut
    t = np.arange(n) - (n - 1) / 2
    slope = float(t @ y / (t @ t))
    levels = np.concatenate(
        [np.full(cut, y[:cut].mean()), np.full(num_after, y[cut:].mean())]
    )
    line_error = float(np.sum((y - y.mean() - t * slope) ** 2))
    level_error = float(np.sum((y - levels) ** 2))
    flatter = abs(slope) * (num_after - 1) - math.copysign(1.0, slope) * find_trend(
        y[cut:]
    )
    max_flatter = 2 * math.sqrt(12 * long_run / num_after)
    return line_error < level_error and flatter < max_flatter


def _find_optimal_partition(y: np.ndarray, penalty: float, min_size: int) -> list[int]:
    """Return the cuts with the least squared error plus penalties.

    Args:
      y: [n].
      penalty: Squared error that each cut must save.
      min_size: Values of the shortest level.
    """
    n = len(y)
    s1 = np.concatenate([[0.0], np.cumsum(y - y.mean())])
    s2 = np.concatenate([[0.0], np.cumsum((y - y.mean()) ** 2)])
    index = np.arange(n + 1)
    length = np.maximum(index[:, None] - index, 1)
    # Squared error of one level from start to end, [end, start].
    cost = s2[:, None] - s2 - (s1[:, None] - s1) ** 2 / length
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


def _drop_weak_cuts(y: np.ndarray, cuts: list[int], penalty: float) -> list[int]:
    """Drop the cuts that gain less than the penalty.

    A block that contains a change looks like a level.
    """
    while cuts:
        edges = [0, *cuts, len(y)]
        gains = []
        for a, b, c in zip(edges, edges[1:], edges[2:]):
            distance = y[a:b].mean() - y[b:c].mean()
            gains.append(distance**2 * (b - a) * (c - b) / (c - a))
        weakest = gains.index(min(gains))
        if gains[weakest] >= penalty:
            break
        cuts = cuts[:weakest] + cuts[weakest + 1 :]
    return cuts


def _find_best_cut(y: np.ndarray, start: int, stop: int, cut: int, reach: int) -> int:
    """Return the cut within `reach` of `cut` that splits y[start:stop] best."""
    sums = np.cumsum(y[start:stop])
    cuts = np.arange(max(start + 1, cut - reach), min(stop - 1, cut + reach) + 1)
    sizes = cuts - start
    left = sums[sizes - 1]
    right = sums[-1] - left
    gain = left**2 / sizes + right**2 / (stop - start - sizes)
    return int(cuts[np.argmax(gain)])
