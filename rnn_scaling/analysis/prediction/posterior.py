"""What the measured points say of a model's coefficients: a grid of them with weights, and how well the model predicts.

With z(n) = log(n / rate(n)) a model says z(n) = a + log y(n) + error, where y(n) = 1 + the sum of coefficient x shape.
The errors are normal with variance s^2 w(n); w is known and s^2 has a scaled inverse chi-squared prior, so that a and s
are integrated in closed form, and predictions are t distributions (Gelman et al., "Bayesian Data Analysis", 3rd ed.,
2013, section 3.2). The coefficients are summed over a grid, which keeps them above 0.

Letters: K points; G rows of the grid; J terms.
"""

import dataclasses
import math

import numpy as np

NOISE = 0.012  # prior scale of s: how far log(rate) of a table is from a smooth curve
NOISE_DEGREES = 2.0  # its degrees of freedom
KNOWN_SPREAD = 0.25  # standard deviation of the logarithm of the known cost's coefficient
SHARES = np.linspace(0, 1, 13)  # of the loss at the largest n that is the first of two terms'


@dataclasses.dataclass(frozen=True)
class Posterior:
    """A model after the data."""

    coefficients: np.ndarray  # [G, J], of the terms; the last one is the known cost's if the model has it
    weights: np.ndarray  # [G], add up to 1
    location: np.ndarray  # [G], a
    scale: np.ndarray  # [G], of s
    location_error: float  # standard error of a, in s
    degrees: float
    evidence: float  # log density of all points after the first, each predicted from those before it
    left_out: float  # sum of the log density of each point, predicted from all others


def fit(
    z: np.ndarray, w: np.ndarray, shapes: np.ndarray, known: np.ndarray | None, base: np.ndarray, loss: float
) -> Posterior:
    """Fits one model.

    Args:
      z: [K], log(n / rate), in rising order of n.
      w: [K], variance of the errors in units of s^2.
      shapes: [J, K], J at most 2.
      known: [K], the known cost, or None.
      base: [K], factor of y that is certain, as of shared cores.
      loss: prior scale of what is lost at the largest n: half of all curves lose less.
    """
    coefficients, log_prior = _grid(z, shapes, known, base, loss)
    rows = shapes if known is None else np.vstack([shapes, known])
    d = z - np.log(base) - np.log1p(coefficients @ rows)  # [G, K]
    total, (location, scale, degrees) = _log_sum(d, w, log_prior)
    kept = [np.delete(np.arange(len(z)), i) for i in range(len(z))]
    left_out = sum(total - _log_sum(d[:, keep], w[keep], log_prior)[0] for keep in kept)
    log_weights = log_prior + _log_likelihood(d, w)
    weights = np.exp(log_weights - log_weights.max())
    first = _log_sum(d[:, :1], w[:1], log_prior)[0]
    return Posterior(
        coefficients,
        weights / weights.sum(),
        location,
        scale,
        1 / math.sqrt(float((1 / w).sum())),
        degrees,
        total - first,
        float(left_out),
    )


def _grid(
    z: np.ndarray, shapes: np.ndarray, known: np.ndarray | None, base: np.ndarray, loss: float
) -> tuple[np.ndarray, np.ndarray]:
    """(coefficients [G, J], log prior [G]): fine where the largest n's point is met, coarse elsewhere.

    The prior of the loss at the largest n is half a Cauchy distribution, that of two terms' shares in it uniform.
    """
    factors, factor_weights = np.ones(1), np.ones(1)
    if known is not None:
        steps = np.linspace(-2.5, 2.5, 11)
        factors, factor_weights = np.exp(KNOWN_SPREAD * steps), np.exp(-(steps**2) / 2)
    observed = math.exp(z[-1] - z[0]) / base[-1]
    largest = shapes[:, -1:] if len(shapes) else np.ones((0, 1))
    blocks, priors = [], []
    for factor, factor_weight in zip(factors, factor_weights / factor_weights.sum()):
        rest = observed - 1 - (0.0 if known is None else factor * known[-1])
        near = observed * np.linspace(-0.2, 0.2, 121) + rest
        totals = np.unique(np.concatenate([[0.0], np.geomspace(1e-4, 300, 60), near[near > 0]]))
        edges = np.concatenate([[0.0], (totals[1:] + totals[:-1]) / 2, [np.inf]])
        mass = np.diff(np.arctan(edges / loss)) * 2 / math.pi
        if not len(shapes):
            totals, mass = np.zeros(1), np.ones(1)
        shares = SHARES if len(shapes) == 2 else np.ones(1)
        split = np.stack([shares, 1 - shares])[: len(shapes)]  # [J, shares]
        block = (totals[:, None, None] * (split / largest).T[None]).reshape(len(totals) * len(shares), len(shapes))
        if known is not None:
            block = np.column_stack([block, np.full(len(block), factor)])
        blocks.append(block)
        priors.append(np.log(factor_weight * np.repeat(mass, len(shares)) / len(shares) + 1e-300))
    return np.concatenate(blocks), np.concatenate(priors)


def _sums(d: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(a [G], squares about it [G], sum of 1/w)."""
    precision = float((1 / w).sum())
    location = (d / w).sum(axis=1) / precision
    return location, ((d - location[:, None]) ** 2 / w).sum(axis=1), precision


def _log_likelihood(d: np.ndarray, w: np.ndarray) -> np.ndarray:
    """[G], log density of the points, with a and s integrated."""
    _, squares, precision = _sums(d, w)
    free, prior = d.shape[1] - 1, NOISE_DEGREES * NOISE**2
    constant = math.lgamma((NOISE_DEGREES + free) / 2) - math.lgamma(NOISE_DEGREES / 2) - free / 2 * math.log(math.pi)
    constant += NOISE_DEGREES / 2 * math.log(prior) - 0.5 * (math.log(precision) + float(np.log(w).sum()))
    return constant - (NOISE_DEGREES + free) / 2 * np.log(prior + squares)


def _log_sum(d: np.ndarray, w: np.ndarray, log_prior: np.ndarray) -> tuple[float, tuple[np.ndarray, np.ndarray, float]]:
    """(log density of the points over the grid, (a [G], scale of s [G], degrees))."""
    terms = log_prior + _log_likelihood(d, w)
    location, squares, _ = _sums(d, w)
    degrees = NOISE_DEGREES + d.shape[1] - 1
    scale = np.sqrt((NOISE_DEGREES * NOISE**2 + squares) / degrees)
    peak = terms.max()
    return float(peak + np.log(np.exp(terms - peak).sum())), (location, scale, degrees)
