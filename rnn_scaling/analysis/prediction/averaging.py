"""An average over the models of `models.py`, as a set of equally likely curves that are drawn from it.

With z(n) = log(n / rate(n)), less what is certain of shared cores, a model says z(n) = a + log y(n) + error, where
y(n) = 1 + the sum of coefficient x shape.
The errors are normal with variance s^2 w(n); w is known and s^2 has a scaled inverse chi-squared prior, so that a and s
are integrated in closed form, and predictions are t distributions (Gelman et al., "Bayesian Data Analysis", 3rd ed.,
2013, section 3.2). The coefficients are summed over a grid, which keeps them above 0.

Weights: a model's weight before the data times exp((L + F) / 2). L adds up the log density of each point as predicted
from all others (Yao et al., "Using Stacking to Average Bayesian Predictive Distributions", Bayesian Analysis 13, 2018:
pseudo-BMA). F adds up that of each point as predicted from those before it, because extrapolation is the purpose
(Dawid, "The Prequential Approach", JRSS A 147, 1984).

A drawn curve differs from the average by noise and fit, by its model, by what no model has, which grows with
log2(n / largest measured n), and, where the links are unknown, by the chance that the exchange leaves a machine or a
switch. docs/methods/prediction.md explains it and says how often it held.

Letters: S curves; J terms; K measured points; N numbers of devices; G rows of a model's grid; d = z - log y.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.prediction import models
from rnn_scaling.analysis.prediction.curves import WEAK, Curve, Knowledge, MeasuredPoint

DRAWS = 20_000
# Calibrated on simulated curves and on the development half of docs/results/prediction/public.csv.
# Prior: half of all curves lose less than this share of a device's step per doubling.
LOSS_PER_DOUBLING = 0.07
# Scale of log(rate) that no model has, one doubling beyond the largest measured n; it
# grows as the root.
DRIFT = 0.01
DRIFT_OF_LOSS = 0.1  # the same, as a share of log y, downwards
# Upwards: on the development half, 12 of the 24 misses up to 8 times the fitted devices
# were above their intervals with 0.1, and 3 of 16 with 0.2.
DRIFT_OF_LOSS_UPWARDS = 0.2
DRIFT_DEGREES = 4.0  # of its t distribution
# Chance that a doubling beyond the measured n leaves a machine or a switch, if links are
# unknown.
STEP_CHANCE = 0.1
# Chance that leaving a machine makes steps longer, if it happens but its cost is unknown.
CROSSED_CHANCE = 0.5
# Half of these make a step longer by less than this share, some by several times (Cauchy).
STEP_LOSS = 0.1
# Prior scale of s: how far log(rate) of a table is from a smooth curve.
NOISE = 0.012
NOISE_DEGREES = 2.0  # its degrees of freedom
# Standard deviation of the logarithm of the known cost's coefficient.
KNOWN_SPREAD = 0.25
# Shares of the loss at the largest n that the first of two terms has.
SHARES = np.linspace(0, 1, 13)


@dataclasses.dataclass(frozen=True)
class Average:
    """S equally likely curves: log(rate) = log n + offset - log y(n), y = crowding x (1 + coefficients @ shapes)."""

    terms: Sequence[models.Term]
    coefficients: np.ndarray  # [S, J]
    offset: np.ndarray  # [S], -a, and the error of a measured point
    drift: np.ndarray  # [S], standard normal
    step_place: np.ndarray  # [S], uniform in 0 to 1
    step_size: (
        np.ndarray
    )  # [S], log of how much longer a step takes, if the exchange leaves a machine
    curve: Curve
    weights: dict[str, float]  # of each model, largest first

    def losses(self, n: int) -> np.ndarray:
        """[S, J], what each term adds to one device's step. Independent replicas know only those of their machine."""
        if self.curve.knowledge.algorithm == "none" and self.curve.scaling == WEAK:
            n = self.curve.sharing(n)
        return self.coefficients * shapes_at(self.terms, [n])[:, 0]

    def log_y(self, n: int) -> np.ndarray:
        """[S], log of how much longer the step is than one device's."""
        return np.log(self.curve.crowding(n)) + np.log1p(self.losses(n).sum(axis=1))

    def log_rates(self, n: int) -> np.ndarray:
        """[S], of what would be measured."""
        largest = self.curve.points[-1].devices
        log_y = self.log_y(n)
        doublings = max(0.0, math.log2(n / largest))
        # That cores are shared is certain.
        unsure = log_y - math.log(self.curve.crowding(n))
        share = np.where(self.drift > 0, DRIFT_OF_LOSS_UPWARDS, DRIFT_OF_LOSS)
        of_loss = math.sqrt(doublings) * np.hypot(DRIFT, share * unsure)
        without_loss = math.sqrt(doublings) * DRIFT
        # A drift can make up for the loss, but no more: the ideal is the limit.
        drift = np.minimum(self.drift * of_loss, unsure + self.drift * without_loss)
        step = np.where(
            self.step_place < step_chance(self.curve.knowledge, largest, n),
            self.step_size,
            0.0,
        )
        return math.log(n) + self.offset - log_y + drift - step


def step_chance(known: Knowledge, largest: float, n: float) -> float:
    """Probability that n devices use a slower link, whose cost is in no term, and that `largest` ones do not."""
    if n <= largest or known.algorithm == "none":
        return 0.0
    if not known.links:
        return 1 - (1 - STEP_CHANCE) ** math.log2(n / largest)
    for link, outer in zip(known.links, (*known.links[1:], None)):
        has_cost = (
            outer and math.isfinite(outer.bytes_per_s) and models.knows_exchange(known)
        )
        if link.devices and largest <= link.devices < n and not has_cost:
            return CROSSED_CHANCE
    return 0.0


def average(curve: Curve) -> Average:
    """Fit every candidate to the curve's points, two or more with positive rates."""
    points = curve.points
    n = [point.devices for point in points]
    w = variances(points)
    known = known_terms(curve)
    one_device = [
        point.devices / point.rate / curve.crowding(point.devices) for point in points
    ]
    z = np.log(one_device)
    cost = shapes_at(known, n).sum(axis=0)
    loss = LOSS_PER_DOUBLING * max(1.0, math.log2(n[-1] / n[0]))
    candidates = models.candidates(curve, bool(known))
    free: dict[models.Term, None] = {}
    for candidate in candidates:
        free |= dict.fromkeys(candidate.terms)
    terms = [*free]
    fits = []
    blocks = []
    scores = []
    for candidate in candidates:
        shapes = shapes_at(candidate.terms, n)
        fitted = _fit(z, w, shapes, cost if candidate.uses_known else None, loss)
        block = np.zeros((len(fitted.weights), len(terms) + len(known)))
        columns = [terms.index(term) for term in candidate.terms]
        block[:, columns] = fitted.coefficients[:, :-1]
        # The known terms share the last coefficient.
        block[:, len(terms) :] = fitted.coefficients[:, -1:]
        fits.append(fitted)
        blocks.append(block)
        scores.append(math.log(candidate.weight) + fitted.score)
    shares = np.exp(np.array(scores) - max(scores))
    shares /= shares.sum()
    weighted = [share * fitted.weights for share, fitted in zip(shares, fits)]
    likely = np.cumsum(np.concatenate(weighted))
    rows = np.searchsorted(likely, (np.arange(DRAWS) + 0.5) / DRAWS)
    rows = np.minimum(rows, len(likely) - 1)
    random = np.random.default_rng(0)
    degrees = NOISE_DEGREES + len(n) - 1
    s = np.concatenate([fitted.scale for fitted in fits])[rows]
    s *= np.sqrt(degrees / random.chisquare(degrees, DRAWS))
    a = np.concatenate([fitted.location for fitted in fits])[rows]
    a += s / math.sqrt(float((1 / w).sum())) * random.standard_normal(DRAWS)
    error = s * math.sqrt(float(w.mean())) * random.standard_normal(DRAWS)
    names = [candidate.name for candidate in candidates]
    weights = sorted(zip(names, shares.tolist()), key=lambda item: -item[1])
    return Average(
        [*terms, *known],
        np.concatenate(blocks)[rows],
        error - a,
        random.standard_t(DRIFT_DEGREES, DRAWS),
        random.random(DRAWS),
        np.log1p(STEP_LOSS * np.abs(random.standard_cauchy(DRAWS))),
        curve,
        dict(weights),
    )


def known_terms(curve: Curve) -> list[models.Term]:
    """Return `models.exchange_terms`, and what independent replicas lose besides sharing cores."""
    terms = models.exchange_terms(curve)
    known = curve.knowledge
    if len(known.independent) > 1:
        knowledge = Knowledge(cores=known.cores)
        replicas = dataclasses.replace(
            curve, points=known.independent, knowledge=knowledge
        )
        fitted = average(replicas)

        def contention(n: np.ndarray) -> np.ndarray:
            sharing = [curve.sharing(int(count)) for count in n]
            return np.array(
                [np.median(fitted.losses(count).sum(axis=1)) for count in sharing]
            )

        terms.append(models.Term("contention", models.CONTENTION, contention))
    return terms


def variances(points: Sequence[MeasuredPoint]) -> np.ndarray:
    """Return the variance of log(rate) in units of NOISE squared, [K].

    It is that between processes, of digits, and about a curve. An error of few degrees of freedom counts for more, as
    its t distribution is wider.
    """
    found = []
    for point in points:
        error = (point.error or 0.0) ** 2 * (1 + 3 / max(point.degrees, 1.0))
        found.append(error + point.rounding**2 / 3)
    return 1 + np.array(found) / NOISE**2


def shapes_at(terms: Sequence[models.Term], n: Sequence[float]) -> np.ndarray:
    """Return what each term adds on n devices, [J, N]."""
    devices = np.asarray(n, float)
    shapes = [term.shape(devices) for term in terms]
    return np.array(shapes).reshape(len(terms), len(devices))


@dataclasses.dataclass(frozen=True)
class Posterior:
    """A model after the data."""

    coefficients: np.ndarray  # [G, J + 1], of the terms and of the known cost
    weights: np.ndarray  # [G], add up to 1
    location: np.ndarray  # [G], a
    scale: np.ndarray  # [G], of s
    score: float  # mean of the log densities of all points: each from those before it, and each from all others


def _fit(
    z: np.ndarray,
    w: np.ndarray,
    shapes: np.ndarray,
    known: np.ndarray | None,
    loss: float,
) -> Posterior:
    """Fit one model.

    Args:
      z: [K], in rising order of n.
      w: [K], variance of the errors in units of s^2.
      shapes: [J, K], J at most 2.
      known: [K], the known cost; None for a model without it.
      loss: Prior scale of what is lost at the largest n: half of all curves lose less.
    """
    steps = np.zeros(1) if known is None else np.linspace(-2.5, 2.5, 11)
    factor_weights = np.exp(-(steps**2) / 2)
    factor_weights /= factor_weights.sum()
    factors = np.exp(KNOWN_SPREAD * steps)
    if known is None:
        factors = np.zeros(1)
        known = np.zeros(len(z))
    blocks = []
    priors = []
    observed = math.exp(z[-1] - z[0])
    for factor, factor_weight in zip(factors, factor_weights):
        block, mass = _grid(observed, factor * known[-1], shapes[:, -1:], loss)
        blocks.append(np.column_stack([block, np.full(len(block), factor)]))
        priors.append(np.log(factor_weight * mass + 1e-300))
    coefficients = np.concatenate(blocks)
    log_prior = np.concatenate(priors)
    d = z - np.log1p(coefficients @ np.vstack([shapes, known]))  # [G, K]

    likelihood, location, squares = _integrated(d, w)
    log_weights = log_prior + likelihood
    total = _log_sum(log_weights)
    left_out = 0.0
    for likelihood_of_others in _without_each(d, w, location, squares):
        left_out += total - _log_sum(log_prior + likelihood_of_others)
    first = _log_sum(log_prior + _integrated(d[:, :1], w[:1])[0])
    weights = np.exp(log_weights - log_weights.max())
    degrees = NOISE_DEGREES + len(z) - 1
    scale = np.sqrt((NOISE_DEGREES * NOISE**2 + squares) / degrees)
    score = (left_out + total - first) / 2
    return Posterior(coefficients, weights / weights.sum(), location, scale, score)


def _grid(
    observed: float, known: float, largest: np.ndarray, loss: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the coefficients of a model to sum over, and their prior.

    They are fine where the largest n's point is met, and coarse elsewhere. The prior of the loss at the largest n is
    half a Cauchy distribution; that of two terms' shares in it is uniform.

    Args:
      observed: y at the largest n.
      known: The known cost there.
      largest: [J, 1], the shapes there.
      loss: Half of all curves lose less there.

    Returns:
      [rows, J] and [rows].
    """
    if not len(largest):
        return np.zeros((1, 0)), np.ones(1)
    near = observed * np.linspace(-0.2, 0.2, 121) + observed - 1 - known
    coarse = np.geomspace(1e-4, 300, 60)
    totals = np.unique(np.concatenate([[0.0], coarse, near[near > 0]]))
    edges = np.concatenate([[0.0], (totals[1:] + totals[:-1]) / 2, [np.inf]])
    mass = np.diff(np.arctan(edges / loss)) * 2 / math.pi
    split = np.ones((1, 1))  # [J, shares]
    if len(largest) == 2:
        split = np.stack([SHARES, 1 - SHARES])
    num_shares = split.shape[1]
    rows = totals[:, None, None] * (split / largest).T  # [totals, shares, J]
    prior = np.repeat(mass, num_shares) / num_shares
    return rows.reshape(-1, len(largest)), prior


def _integrated(
    d: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(log density of the points with a and s integrated, a, squares about it), each [G]."""
    precision = float((1 / w).sum())
    location = (d / w).sum(axis=1) / precision
    squares = ((d - location[:, None]) ** 2 / w).sum(axis=1)
    logs = _log_density(d.shape[1], precision, float(np.log(w).sum()), squares)
    return logs, location, squares


def _without_each(
    d: np.ndarray, w: np.ndarray, location: np.ndarray, squares: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the log density of all points but one, [G], for each point in turn.

    A point that is left out takes its own share of the squares along, so that no sum
    over the others is needed, and the time is linear in the number of points.

    Args:
      d: [G, K], K at least 2.
      w: [K], variance of the errors in units of s^2.
      location: [G], a of all points.
      squares: [G], squares of all points about it.
    """
    precision = float((1 / w).sum())
    log_variances = np.log(w)
    for i, variance in enumerate(w):
        others = precision - 1 / variance
        own = (d[:, i] - location) ** 2 / variance * (precision / others)
        yield _log_density(
            len(w) - 1,
            others,
            float(log_variances.sum() - log_variances[i]),
            np.maximum(squares - own, 0.0),
        )


def _log_density(
    count: int, precision: float, log_variances: float, squares: np.ndarray
) -> np.ndarray:
    """Return the log density of points with a and s integrated, [G].

    Args:
      count: Number of points.
      precision: Sum of 1 / w.
      log_variances: Sum of log(w).
      squares: [G], sum of squares about a, in units of w.
    """
    free = count - 1
    prior = NOISE_DEGREES * NOISE**2
    constant = (
        math.lgamma((NOISE_DEGREES + free) / 2)
        - math.lgamma(NOISE_DEGREES / 2)
        - free / 2 * math.log(math.pi)
        + NOISE_DEGREES / 2 * math.log(prior)
        - 0.5 * (math.log(precision) + log_variances)
    )
    return constant - (NOISE_DEGREES + free) / 2 * np.log(prior + squares)


def _log_sum(logs: np.ndarray) -> float:
    return float(logs.max() + np.log(np.exp(logs - logs.max()).sum()))
