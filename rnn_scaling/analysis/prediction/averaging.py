"""An average over the models of `models.py`: a set of equally likely curves.

With z(n) = log(n / rate(n)), less the certain effect of shared cores, a model is
z(n) = a + log y(n) + error, where y(n) = 1 + the sum of coefficient x shape. The errors
are normal with variance s^2 w(n); w is known and s^2 has a scaled inverse chi-squared
prior, so that a and s are integrated in closed form, and predictions are t
distributions (Gelman et al., "Bayesian Data Analysis", 3rd ed., 2013, section 3.2). The
coefficients are summed over a grid, which keeps them above 0.

The weight of a model is its weight before the data times exp((L + F) / 2). L is the sum
of the log densities of each point as predicted from all others (Yao et al., "Using
Stacking to Average Bayesian Predictive Distributions", Bayesian Analysis 13, 2018:
pseudo-BMA). F is the same sum with each point predicted from the points before it,
because extrapolation is the purpose (Dawid, "The Prequential Approach", JRSS A 147,
1984).

A drawn curve differs from the average by noise and fit, by its model, by a drift that
no model has, which grows with log2(n / largest measured n), and, if the links are
unknown, by the chance that the exchange leaves a machine or a switch. docs/predict.md
explains it and has the share of intervals that held.

Letters: S curves; J terms; K measured points; N numbers of devices; G rows of a model's
grid; d = z - log y.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.prediction import models
from rnn_scaling.analysis.prediction.curves import WEAK, Curve, Knowledge, MeasuredPoint

_DRAWS = 20_000
# The constants are calibrated on simulated curves and on the development half of
# docs/results/prediction/public.csv.
# Prior: half of all curves lose less than this share of a device's step per doubling.
_LOSS_PER_DOUBLING = 0.07
# Scale of the part of log(rate) that no model has, one doubling beyond the largest
# measured n; it grows as the root.
_DRIFT = 0.01
_DRIFT_OF_LOSS = 0.1  # the same, as a share of log y, downwards
# Upwards: on the development half, 12 of the 24 misses up to 8 times the fitted devices
# were above their intervals with 0.1, and 3 of 16 with 0.2.
_DRIFT_OF_LOSS_UPWARDS = 0.2
_DRIFT_DEGREES = 4.0  # degrees of freedom of its t distribution
# Chance that a doubling beyond the measured n leaves a machine or a switch, if links
# are unknown.
_STEP_CHANCE = 0.1
# Chance that leaving a machine makes steps longer, if it happens but its cost is
# unknown.
_CROSSED_CHANCE = 0.5
# Half of these make a step longer by less than this share, some by several times
# (Cauchy).
_STEP_LOSS = 0.1
# Prior scale of s: the distance of a table's log(rate) from a smooth curve.
NOISE = 0.012
_NOISE_DEGREES = 2.0  # degrees of freedom of NOISE
# Standard deviation of the logarithm of the known cost's coefficient.
_KNOWN_SPREAD = 0.25
# Shares of the loss at the largest n that the first of two terms has.
_SHARES = np.linspace(0, 1, 13)


@dataclasses.dataclass(frozen=True)
class Average:
    """S equally likely curves: log(rate) = log n + offset - log y(n).

    y = core_slowdown x (1 + coefficients @ shapes).
    """

    terms: Sequence[models.Term]
    coefficients: np.ndarray  # [S, J]
    offset: np.ndarray  # [S], -a, and the error of a measured point
    drift: np.ndarray  # [S], standard t
    # [S], uniform in 0 to 1; a curve has the step if its chance is above the threshold.
    step_threshold: np.ndarray
    # [S], log of the factor of a step that leaves a machine.
    step_size: np.ndarray
    curve: Curve
    weights: dict[str, float]  # model -> weight, largest first

    def losses(self, n: int) -> np.ndarray:
        """Return the share of one device's step that each term adds, [S, J].

        Independent replicas only have the losses of their machine.
        """
        if self.curve.knowledge.algorithm == "none" and self.curve.scaling == WEAK:
            n = self.curve.local_devices(n)
        return self.coefficients * _evaluate_shapes(self.terms, [n])[:, 0]

    def log_y(self, n: int) -> np.ndarray:
        """Return the log of the step's time over one device's, [S]."""
        slowdown = self.curve.core_slowdown(n)
        return np.log(slowdown) + np.log1p(self.losses(n).sum(axis=1))

    def log_rates(self, n: int) -> np.ndarray:
        """Return the log of the rates that would be measured, [S]."""
        largest = self.curve.points[-1].devices
        log_y = self.log_y(n)
        doublings = max(0.0, math.log2(n / largest))
        # The slowdown by shared cores is certain.
        uncertain = log_y - math.log(self.curve.core_slowdown(n))
        share = np.where(self.drift > 0, _DRIFT_OF_LOSS_UPWARDS, _DRIFT_OF_LOSS)
        with_loss = math.sqrt(doublings) * np.hypot(_DRIFT, share * uncertain)
        without_loss = math.sqrt(doublings) * _DRIFT
        # A drift can make up for the loss, but no more: the ideal is the limit.
        limit = uncertain + self.drift * without_loss
        drift = np.minimum(self.drift * with_loss, limit)
        chance = compute_step_chance(self.curve.knowledge, largest, n)
        step = np.where(self.step_threshold < chance, self.step_size, 0.0)
        return math.log(n) + self.offset - log_y + drift - step


def compute_step_chance(knowledge: Knowledge, largest: float, n: float) -> float:
    """Return the probability that n devices use a slower link than `largest` devices.

    A link whose cost is a known term does not count.
    """
    if n <= largest or knowledge.algorithm == "none":
        return 0.0
    if not knowledge.links:
        return 1 - (1 - _STEP_CHANCE) ** math.log2(n / largest)
    knows_exchange = models.knows_exchange(knowledge)
    for link, outer in zip(knowledge.links, (*knowledge.links[1:], None)):
        has_cost = outer and math.isfinite(outer.bytes_per_s) and knows_exchange
        if link.devices and largest <= link.devices < n and not has_cost:
            return _CROSSED_CHANCE
    return 0.0


def average(curve: Curve) -> Average:
    """Fit every candidate to the curve's points, two or more with positive rates.

    Then draw curves from all candidates together, each as often as its weight says.
    Equal curves give equal draws, because the random numbers have a fixed seed.
    """
    known_terms = _build_known_terms(curve)
    candidates = models.list_candidates(curve, bool(known_terms))
    posteriors = _fit_candidates(curve, candidates, known_terms)
    log_weights = np.log([candidate.weight for candidate in candidates])
    log_weights += [posterior.score for posterior in posteriors]
    shares = np.exp(log_weights - log_weights.max())
    shares /= shares.sum()

    # Each row is a curve of one candidate's grid.
    row_weights = [
        share * posterior.weights for share, posterior in zip(shares, posteriors)
    ]
    cumulative = np.cumsum(np.concatenate(row_weights))
    rows = np.searchsorted(cumulative, (np.arange(_DRAWS) + 0.5) / _DRAWS)
    rows = np.minimum(rows, len(cumulative) - 1)
    w = list_variances(curve.points)
    random = np.random.default_rng(0)
    degrees = _NOISE_DEGREES + len(w) - 1
    s = np.concatenate([posterior.scale for posterior in posteriors])[rows]
    s *= np.sqrt(degrees / random.chisquare(degrees, _DRAWS))
    a = np.concatenate([posterior.location for posterior in posteriors])[rows]
    a += s / math.sqrt(float((1 / w).sum())) * random.standard_normal(_DRAWS)
    error = s * math.sqrt(float(w.mean())) * random.standard_normal(_DRAWS)

    terms, coefficients = _align_coefficients(candidates, posteriors, known_terms)
    names = [candidate.name for candidate in candidates]
    weights = sorted(zip(names, shares.tolist()), key=lambda item: -item[1])
    return Average(
        terms,
        coefficients=coefficients[rows],
        offset=error - a,
        drift=random.standard_t(_DRIFT_DEGREES, _DRAWS),
        step_threshold=random.random(_DRAWS),
        step_size=np.log1p(_STEP_LOSS * np.abs(random.standard_cauchy(_DRAWS))),
        curve=curve,
        weights=dict(weights),
    )


def _fit_candidates(
    curve: Curve,
    candidates: Sequence[models.Model],
    known_terms: Sequence[models.Term],
) -> list[Posterior]:
    """Return the fit of each candidate to the curve's points."""
    n = [point.devices for point in curve.points]
    slowdowns = np.array(list(map(curve.core_slowdown, n)))
    z = np.log(n / np.array([point.rate for point in curve.points]) / slowdowns)
    w = list_variances(curve.points)
    known_cost = _evaluate_shapes(known_terms, n).sum(axis=0)
    loss = _LOSS_PER_DOUBLING * max(1.0, math.log2(n[-1] / n[0]))
    posteriors = []
    for candidate in candidates:
        cost = known_cost if candidate.uses_known else None
        posteriors.append(_fit(z, w, _evaluate_shapes(candidate.terms, n), cost, loss))
    return posteriors


def _align_coefficients(
    candidates: Sequence[models.Model],
    posteriors: Sequence[Posterior],
    known_terms: Sequence[models.Term],
) -> tuple[list[models.Term], np.ndarray]:
    """Return the terms of all candidates, and the coefficients of each grid row, [G, J].

    A term that a candidate lacks has the coefficient 0. The rows of all candidates
    follow each other.
    """
    used_terms = itertools.chain.from_iterable(
        candidate.terms for candidate in candidates
    )
    terms = list(dict.fromkeys(used_terms))
    blocks = []
    for candidate, posterior in zip(candidates, posteriors):
        block = np.zeros((len(posterior.weights), len(terms) + len(known_terms)))
        columns = [terms.index(term) for term in candidate.terms]
        block[:, columns] = posterior.coefficients[:, :-1]
        # The known terms share the last coefficient.
        block[:, len(terms) :] = posterior.coefficients[:, -1:]
        blocks.append(block)
    return [*terms, *known_terms], np.concatenate(blocks)


def _build_known_terms(curve: Curve) -> list[models.Term]:
    """Return `models.exchange_terms` and the loss of independent replicas.

    The loss excludes the slowdown by shared cores.
    """
    terms = models.exchange_terms(curve)
    knowledge = curve.knowledge
    if len(knowledge.independent) > 1:
        replicas = dataclasses.replace(
            curve,
            points=knowledge.independent,
            knowledge=Knowledge(cores=knowledge.cores),
        )
        average_model = average(replicas)

        def compute_contention(n: np.ndarray) -> np.ndarray:
            local = map(curve.local_devices, n.astype(int).tolist())
            losses = [average_model.losses(devices).sum(axis=1) for devices in local]
            return np.median(losses, axis=1)

        terms.append(models.Term("contention", models.CONTENTION, compute_contention))
    return terms


def list_variances(points: Sequence[MeasuredPoint]) -> np.ndarray:
    """Return the variance of log(rate) in units of NOISE squared, [K].

    It contains the variance between runs, of rounding, and about a curve. An error with
    few degrees of freedom counts for more, because its t distribution is wider.
    """
    errors = np.array([point.error or 0.0 for point in points])
    degrees = np.maximum([point.degrees for point in points], 1.0)
    roundings = np.array([point.rounding for point in points])
    log_variances = errors**2 * (1 + 3 / degrees) + roundings**2 / 3
    return np.asarray(1 + log_variances / NOISE**2)


def _evaluate_shapes(terms: Sequence[models.Term], n: Sequence[float]) -> np.ndarray:
    """Return the shape of each term on n devices, [J, N]."""
    devices = np.asarray(n, float)
    shapes = [term.shape(devices) for term in terms]
    return np.array(shapes).reshape(len(terms), len(devices))


@dataclasses.dataclass(frozen=True)
class Posterior:
    """A model after the data."""

    coefficients: np.ndarray  # [G, J + 1], terms, and last the known cost
    weights: np.ndarray  # [G], with the sum 1
    location: np.ndarray  # [G], a
    scale: np.ndarray  # [G], scale of s
    score: float  # (L + F) / 2


def _fit(
    z: np.ndarray,
    w: np.ndarray,
    shapes: np.ndarray,
    known_cost: np.ndarray | None,
    loss: float,
) -> Posterior:
    """Fit one model.

    Args:
      z: [K], in rising order of n.
      w: [K], variance of the errors in units of s^2.
      shapes: [J, K], J at most 2.
      known_cost: [K], None for a model without it.
      loss: Prior scale of the loss at the largest n: half of all curves lose less.
    """
    steps = np.zeros(1) if known_cost is None else np.linspace(-2.5, 2.5, 11)
    factor_weights = np.exp(-(steps**2) / 2)
    factor_weights /= factor_weights.sum()
    factors = np.exp(_KNOWN_SPREAD * steps)
    if known_cost is None:
        factors = np.zeros(1)
        known_cost = np.zeros(len(z))
    blocks = []
    priors = []
    observed = math.exp(z[-1] - z[0])
    for factor, factor_weight in zip(factors, factor_weights):
        block, mass = _make_coefficient_grid(
            observed, factor * known_cost[-1], shapes[:, -1:], loss
        )
        blocks.append(np.column_stack([block, np.full(len(block), factor)]))
        priors.append(np.log(factor_weight * mass + 1e-300))
    coefficients = np.concatenate(blocks)
    log_prior = np.concatenate(priors)
    d = z - np.log1p(coefficients @ np.vstack([shapes, known_cost]))  # [G, K]

    likelihood, location, squares = _integrate_location_and_scale(d, w)
    log_weights = log_prior + likelihood
    total = _compute_log_sum(log_weights)
    left_out = math.fsum(
        total - _compute_log_sum(log_prior + likelihood_of_others)
        for likelihood_of_others in _leave_one_out_densities(d, w, location, squares)
    )
    first = _compute_log_sum(
        log_prior + _integrate_location_and_scale(d[:, :1], w[:1])[0]
    )
    weights = np.exp(log_weights - log_weights.max())
    degrees = _NOISE_DEGREES + len(z) - 1
    scale = np.sqrt((_NOISE_DEGREES * NOISE**2 + squares) / degrees)
    score = (left_out + total - first) / 2
    return Posterior(
        coefficients,
        weights=weights / weights.sum(),
        location=location,
        scale=scale,
        score=score,
    )


def _make_coefficient_grid(
    observed: float, known_cost: float, shapes: np.ndarray, loss: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of a model to sum over, and their prior.

    The grid is fine near the measured point of the largest n, and coarse elsewhere. The
    prior of the loss at the largest n is half a Cauchy distribution; the prior of the
    shares of two terms in it is uniform.

    Args:
      observed: y at the largest n.
      known_cost: The known cost at the largest n.
      shapes: [J, 1], at the largest n.
      loss: Half of all curves lose less at the largest n.

    Returns:
      [rows, J] and [rows].
    """
    if not len(shapes):
        return np.zeros((1, 0)), np.ones(1)
    fine = observed * np.linspace(-0.2, 0.2, 121) + observed - 1 - known_cost
    coarse = np.geomspace(1e-4, 300, 60)
    totals = np.unique(np.concatenate([[0.0], coarse, fine[fine > 0]]))
    edges = np.concatenate([[0.0], (totals[1:] + totals[:-1]) / 2, [np.inf]])
    mass = np.diff(np.arctan(edges / loss)) * 2 / math.pi
    shares = np.ones((1, 1))  # [J, shares]
    if len(shapes) == 2:
        shares = np.stack([_SHARES, 1 - _SHARES])
    num_shares = shares.shape[1]
    rows = totals[:, None, None] * (shares / shapes).T  # [totals, shares, J]
    prior = np.repeat(mass, num_shares) / num_shares
    return rows.reshape(-1, len(shapes)), prior


def _integrate_location_and_scale(
    d: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the log density with a and s integrated, a, and the squares about a, [G]."""
    precision = float((1 / w).sum())
    location = (d / w).sum(axis=1) / precision
    squares = ((d - location[:, None]) ** 2 / w).sum(axis=1)
    logs = _compute_log_density(d.shape[1], precision, float(np.log(w).sum()), squares)
    return logs, location, squares


def _leave_one_out_densities(
    d: np.ndarray, w: np.ndarray, location: np.ndarray, squares: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the log density of all points except one, [G], for each point in turn.

    The squares of a point are subtracted from the sum of all, so that the time is
    linear in the number of points.

    Args:
      d: [G, K], K at least 2.
      w: [K], variance of the errors in units of s^2.
      location: [G], a of all points.
      squares: [G], squares of all points about it.
    """
    precision = float((1 / w).sum())
    log_variances = np.log(w)
    for i, variance in enumerate(w):
        precision_of_others = precision - 1 / variance
        point_squares = (
            (d[:, i] - location) ** 2 / variance * (precision / precision_of_others)
        )
        yield _compute_log_density(
            len(w) - 1,
            precision_of_others,
            float(log_variances.sum() - log_variances[i]),
            np.maximum(squares - point_squares, 0.0),
        )


def _compute_log_density(
    count: int, precision: float, log_variances: float, squares: np.ndarray
) -> np.ndarray:
    """Return the log density of points with a and s integrated, [G].

    Args:
      count: Number of points.
      precision: Sum of 1 / w.
      log_variances: Sum of log(w).
      squares: [G], sum of squares about a, in units of w.
    """
    degrees = count - 1
    prior = _NOISE_DEGREES * NOISE**2
    constant = (
        math.lgamma((_NOISE_DEGREES + degrees) / 2)
        - math.lgamma(_NOISE_DEGREES / 2)
        - degrees / 2 * math.log(math.pi)
        + _NOISE_DEGREES / 2 * math.log(prior)
        - 0.5 * (math.log(precision) + log_variances)
    )
    return constant - (_NOISE_DEGREES + degrees) / 2 * np.log(prior + squares)


def _compute_log_sum(logs: np.ndarray) -> float:
    """Return the logarithm of the sum of exp(logs), without overflow."""
    return float(logs.max() + np.log(np.exp(logs - logs.max()).sum()))
