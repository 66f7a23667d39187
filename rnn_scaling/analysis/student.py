"""Student's t and Tukey's range: distribution, quantiles, the effect that a test finds. Importing SciPy takes 0.2 s."""

import functools
import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np


@functools.lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Student's t quantile for `probability` in [0.5, 1), any degrees > 0 (inf: normal)."""
    if not 0.5 <= probability < 1 or not degrees > 0:
        raise ValueError(
            f"expected a probability in [0.5, 1) and degrees above 0, got {probability} and {degrees}"
        )
    if probability == 0.5:
        return 0.0
    t = NormalDist().inv_cdf(
        probability
    )  # below the quantile, from where Newton's steps rise to it
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
    """P(T <= t) of Student's t for t >= 0."""
    if math.isinf(degrees):
        return NormalDist().cdf(t)
    return 1 - 0.5 * _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


@functools.lru_cache(maxsize=4096)
def t_detectable(probability: float, power: float, degrees: float) -> float:
    """The effect, in true standard errors, that takes a t statistic above `probability`'s quantile with `power`."""
    # The noncentral t is a normal with an estimated scale, averaged over the scale's distribution.
    critical = t_quantile(probability, degrees)
    normal = NormalDist()
    weights, scales = _scales(degrees)
    return _root(
        lambda effect: float(
            weights @ [normal.cdf(x) for x in effect - critical * scales]
        ),
        power,
        1.0,
    )


@functools.lru_cache(maxsize=1024)
def t_foreseeable(
    probability: float, power: float, known_by: float, degrees: float
) -> float:
    """The effect, in standard errors as estimated beforehand, that a later t test finds with `power`.

    Half of all estimates are too small, so the power is the mean over what the true error may be. `known_by`: degrees
    of freedom of the estimate.
    """
    critical, (z, _, below) = t_quantile(probability, degrees), _normal_table()
    (weights, scales), (known_weights, known_scales) = (
        _scales(min(free, 500.0)) for free in (degrees, known_by)
    )

    def reached(effect: float) -> float:
        found = np.interp(effect * known_scales[:, None] - critical * scales, z, below)
        return float(known_weights @ found @ weights)

    return _root(reached, power, 1.0)


@functools.lru_cache(maxsize=1024)
def range_quantile(probability: float, count: int, degrees: float) -> float:
    """How far the largest of two or more equal means is from the smallest, in standard errors of a difference of two.

    With `probability` no difference is larger, so intervals of this half-width hold for all pairs together.

    Source: Tukey, "The Problem of Multiple Comparisons", 1953; Kramer, Biometrics 12, 1956, for unequal numbers.
    """
    if count == 2:
        return t_quantile((1 + probability) / 2, degrees)
    weights, scales = _scales(
        min(degrees, 500.0), steps=100
    )  # with more of them the range changes by 0.1 %
    z, density, below = _normal_table()

    def probability_of(
        x: float,
    ) -> float:  # that the range of `count` numbers is at most x estimated deviations
        within = below - np.interp(
            z - x * scales[:, None], z, below, left=0.0, right=1.0
        )
        return float(weights @ (count * (within ** (count - 1) @ density)))

    return _root(probability_of, probability, 8.0) / math.sqrt(2)


def _root(rising: Callable[[float], float], value: float, high: float) -> float:
    """Where a rising function reaches a value, to one part in a million; `high`: a first upper bound."""
    low = 0.0
    while rising(high) < value:
        low = high
        high = 2 * high
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < value else (low, middle)
    return high


def _scales(degrees: float, steps: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """(weights, values) of a grid over what the estimated standard error can be of the true one."""
    s = (np.arange(steps) + 0.5) * (1 + 8 / math.sqrt(degrees)) / steps
    log_density = (degrees - 1) * np.log(s) - degrees * s**2 / 2
    weights = np.exp(log_density - log_density.max())
    return weights / weights.sum(), s


@functools.lru_cache(maxsize=1)
def _normal_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(z, P of the cell about z, P below z) of the standard normal."""
    z = np.linspace(-6, 6, 241)
    below = np.array([NormalDist().cdf(place) for place in z])
    density = np.exp(-(z**2) / 2)
    return z, density / density.sum(), below


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularized incomplete beta I_x(a, b): continued fraction 8.17.22 of the NIST DLMF, by Lentz's method."""
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
