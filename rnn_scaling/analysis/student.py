"""Student's t: distribution, quantiles, the effect that a test finds. Importing SciPy takes 0.2 s."""

from __future__ import annotations

import functools
import math
from statistics import NormalDist

import numpy as np


@functools.lru_cache(maxsize=4096)
def t_quantile(probability: float, degrees: float) -> float:
    """Student's t quantile for `probability` in [0.5, 1), any degrees > 0 (inf: normal)."""
    if not 0.5 <= probability < 1 or not degrees > 0:
        raise ValueError(f"expected a probability in [0.5, 1) and degrees above 0, got {probability} and {degrees}")
    if probability == 0.5:
        return 0.0
    t = NormalDist().inv_cdf(probability)  # below the quantile, from where Newton's steps rise to it
    if math.isinf(degrees):
        return t
    log_scale = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - 0.5 * math.log(degrees * math.pi)
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
    """The effect, in true standard errors, for which a t statistic exceeds the quantile of `probability` with `power`.

    The noncentral t as a normal with an estimated scale, averaged over the scale's distribution. An effect in the other
    direction is not counted as found.

    Args:
      probability: of the quantile, as 0.975 of a two-sided 5 % test.
      power: chance to find the effect, as 0.8.
      degrees: of freedom.
    """
    critical = t_quantile(probability, degrees)
    # Estimated over true standard error; its density is proportional to s^(degrees - 1) exp(-degrees s^2 / 2).
    s = (np.arange(200) + 0.5) * (1 + 8 / math.sqrt(degrees)) / 200
    log_density = (degrees - 1) * np.log(s) - degrees * s**2 / 2
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    normal, effect = NormalDist(), critical + t_quantile(power, degrees)
    for _ in range(20):
        x = effect - critical * s
        reached = float(weights @ [normal.cdf(each) for each in x])
        step = (power - reached) / float(weights @ np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))
        effect += step
        if abs(step) < 1e-7 * effect:
            break
    return effect


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Regularized incomplete beta I_x(a, b): continued fraction 8.17.22 of the NIST DLMF, by Lentz's method."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    upper, lower, fraction = 1.0, 0.0, 1.0
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
