"""Student's t and Tukey's range: distributions, quantiles, and detectable effects.

SciPy has them too, but importing it takes 0.2 s.

All intervals and tests take their quantiles from here.
"""

import functools
import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

_MAX_DEGREES = 500.0  # more degrees hardly differ from a normal distribution


@functools.lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Return Student's t quantile.

    Args:
      probability: In [0.5, 1).
      degrees: Above 0; infinite for the normal distribution.
    """
    if not 0.5 <= probability < 1 or not degrees > 0:
        raise ValueError(
            "expected a probability in [0.5, 1) and degrees above 0, got"
            f" {probability} and {degrees}"
        )
    if probability == 0.5:
        return 0.0
    # Newton's method rises to the quantile from below.
    t = NormalDist().inv_cdf(probability)
    if math.isinf(degrees):
        return t
    log_scale = (
        math.lgamma((degrees + 1) / 2)
        - math.lgamma(degrees / 2)
        - 0.5 * math.log(degrees * math.pi)
    )
    for _ in range(200):
        density = math.exp(log_scale - (degrees + 1) / 2 * math.log1p(t * t / degrees))
        step = (probability - t_cdf(t, degrees)) / density
        t += step
        if abs(step) <= 1e-12 * t:
            break
    return t


def t_cdf(t: float, degrees: float) -> float:
    """Return P(T <= t) of Student's t for t >= 0."""
    if math.isinf(degrees):
        return NormalDist().cdf(t)
    return 1 - 0.5 * _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


@functools.lru_cache(maxsize=4096)
def t_detectable(probability: float, power: float, degrees: float) -> float:
    """Return the effect, in true standard errors, that a t test finds with `power`.

    Args:
      probability: The effect must exceed this quantile.
    """
    critical = t_quantile(probability, degrees)
    normal = NormalDist()
    weights, scales = _make_error_scale_grid(degrees)

    # The noncentral t is a normal with an estimated scale, averaged over the scales.
    def compute_power(effect: float) -> float:
        return float(weights @ [normal.cdf(x) for x in effect - critical * scales])

    return _find_root(compute_power, power, 1.0)


@functools.lru_cache(maxsize=1024)
def t_foreseeable(
    probability: float, power: float, pilot_degrees: float, degrees: float
) -> float:
    """Return the effect, in estimated standard errors, that a later t test finds.

    Half of all estimates are too small, so the power is the mean over the possible true
    errors.

    Args:
      probability: The effect must exceed this quantile.
      power: Probability that the test finds the effect.
      pilot_degrees: Degrees of freedom of the estimate.
      degrees: Degrees of freedom of the later test.
    """
    critical = t_quantile(probability, degrees)
    z, _, below = _make_normal_table()
    weights, scales = _make_error_scale_grid(min(degrees, _MAX_DEGREES))
    pilot_weights, pilot_scales = _make_error_scale_grid(
        min(pilot_degrees, _MAX_DEGREES)
    )

    def compute_power(effect: float) -> float:
        distances = effect * pilot_scales[:, None] - critical * scales
        return float(pilot_weights @ np.interp(distances, z, below) @ weights)

    return _find_root(compute_power, power, 1.0)


@functools.lru_cache(maxsize=1024)
def range_quantile(probability: float, count: int, degrees: float) -> float:
    """Return the range of two or more equal means.

    It is in standard errors of a difference of two. With `probability` no difference is
    larger, so intervals of this half-width hold for all pairs together.

    Source: Tukey, "The Problem of Multiple Comparisons", 1953; Kramer, Biometrics 12,
    1956, for unequal numbers.
    """
    if count == 2:
        return t_quantile((1 + probability) / 2, degrees)
    # With more degrees the range changes by 0.1 %.
    weights, scales = _make_error_scale_grid(min(degrees, _MAX_DEGREES), steps=100)
    z, density, below = _make_normal_table()

    def compute_probability(x: float) -> float:
        """Return P(range of `count` numbers <= x estimated deviations)."""
        starts = z - x * scales[:, None]
        covered = below - np.interp(starts, z, below, left=0.0, right=1.0)
        return float(weights @ (count * (covered ** (count - 1) @ density)))

    return _find_root(compute_probability, probability, 8.0) / math.sqrt(2)


def _find_root(rising: Callable[[float], float], value: float, high: float) -> float:
    """Return the point at which a rising function reaches a value, to one in a million.

    Args:
      high: A first upper bound.
    """
    low = 0.0
    while rising(high) < value:
        low = high
        high = 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        if rising(middle) < value:
            low = middle
        else:
            high = middle
    return high


def _make_error_scale_grid(
    degrees: float, steps: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """Return a grid over estimated / true standard error: (weights, ratios)."""
    s = (np.arange(steps) + 0.5) * (1 + 8 / math.sqrt(degrees)) / steps
    log_density = (degrees - 1) * np.log(s) - degrees * s**2 / 2
    weights = np.exp(log_density - log_density.max())
    return weights / weights.sum(), s


@functools.lru_cache(maxsize=1)
def _make_normal_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (z, P of the cell around z, P below z) of the standard normal."""
    z = np.linspace(-6, 6, 241)
    below = np.array([NormalDist().cdf(point) for point in z])
    density = np.exp(-(z**2) / 2)
    return z, density / density.sum(), below


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta I_x(a, b).

    Source: continued fraction 8.17.22 of the NIST DLMF, by Lentz's method.
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = (
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
    )
    upper = 1.0
    lower = 0.0
    fraction = 1.0
    for i in range(1000):
        m = i // 2
        if i == 0:
            term = 1.0
        elif i % 2:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / ((1 + term * lower) or 1e-300)
        upper = (1 + term / upper) or 1e-300
        fraction *= upper * lower
        if i and abs(upper * lower - 1) < 1e-15:
            break
    return math.exp(log_front) / a * (fraction - 1)
