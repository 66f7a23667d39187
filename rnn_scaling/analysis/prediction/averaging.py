"""An average over the models of `models.py`, as a set of equally likely curves that are drawn from it.

Weights: a model's weight before the data times exp((L + F) / 2). L adds up the log density of each point as predicted
from all others (Yao et al., "Using Stacking to Average Bayesian Predictive Distributions", Bayesian Analysis 13, 2018:
pseudo-BMA). F adds up that of each point as predicted from those before it, because extrapolation is the purpose
(Dawid, "The Prequential Approach", JRSS A 147, 1984).

A drawn curve differs from the average by noise and fit (t distributions), by its model, by what no model has, which
grows with log2(n / largest measured n), and, where the links are unknown, by the chance that the exchange leaves a
machine or a switch. docs/methods/prediction.md explains it and says how often it held.

Letters: S curves; J terms; K measured points; N numbers of devices.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.prediction import models, posterior
from rnn_scaling.analysis.prediction.curves import WEAK, Curve, Knowledge, MeasuredPoint

DRAWS = 20_000
# Calibrated on simulated curves and on the development half of docs/results/prediction/public.csv.
LOSS_PER_DOUBLING = 0.07  # prior: half of all curves lose less than this share of a device's step
DRIFT = 0.01  # scale of log(rate) that no model has, one doubling beyond the largest measured n; grows as the root
DRIFT_OF_LOSS = 0.1  # the same, as a share of log y
DRIFT_DEGREES = 4.0  # of its t distribution
STEP_CHANCE = 0.1  # that a doubling beyond the measured n leaves a machine or a switch, where links are unknown
CROSSED_CHANCE = 0.5  # that leaving a machine makes steps longer, where it is known to happen but not what it costs
STEP_LOSS = 0.1  # half of these make a step longer by less than this share, some by several times (Cauchy)


@dataclasses.dataclass(frozen=True)
class Average:
    """S equally likely curves: log(rate) = log n - location - log y(n), y = base x (1 + coefficients @ shapes)."""

    terms: Sequence[models.Term]
    coefficients: np.ndarray  # [S, J]
    location: np.ndarray  # [S]
    noise: np.ndarray  # [S], error of a measured point, in log(rate)
    drift: np.ndarray  # [S], standard normal
    step_place: np.ndarray  # [S], uniform in 0 to 1
    step_size: np.ndarray  # [S], log of how much longer a step takes, if the exchange leaves a machine
    curve: Curve
    weights: dict[str, float]  # of each model, largest first

    def losses(self, n: int) -> np.ndarray:
        """[S, J], what each term adds to one device's step. Independent replicas know only those of their machine."""
        if self.curve.knowledge.algorithm == "none" and self.curve.scaling == WEAK:
            n = self.curve.sharing(n)
        return self.coefficients * shapes_at(self.terms, [n])[:, 0]

    def log_y(self, n: int) -> np.ndarray:
        """[S], log of how much longer the step is than one device's."""
        shared = base_at([self.curve.sharing(n)], self.curve.knowledge.cores)[0]
        return np.log(shared) + np.log1p(self.losses(n).sum(axis=1))

    def log_rates(self, n: int) -> np.ndarray:
        """[S], of what would be measured."""
        largest = self.curve.points[-1].devices
        log_y, doublings = self.log_y(n), max(0.0, math.log2(n / largest))
        drift = self.drift * math.sqrt(doublings) * np.hypot(DRIFT, DRIFT_OF_LOSS * log_y)
        step = np.where(self.step_place < step_chance(self.curve.knowledge, largest, n), self.step_size, 0.0)
        return math.log(n) - self.location - log_y + self.noise + drift - step


def step_chance(known: Knowledge, largest: float, n: float) -> float:
    """Probability that n devices use a slower link, whose cost is in no term, and that `largest` ones do not."""
    if n <= largest or known.algorithm == "none":
        return 0.0
    if not known.links:
        return 1 - (1 - STEP_CHANCE) ** math.log2(n / largest)
    for place, link in enumerate(known.links):
        outer = known.links[place + 1 : place + 2]
        has_cost = models.knows_exchange(known) and outer and math.isfinite(outer[0].bytes_per_s)
        if link.devices and largest <= link.devices < n and not has_cost:
            return CROSSED_CHANCE
    return 0.0


def average(curve: Curve) -> Average:
    """Fits every candidate to the curve's points, two or more with positive rates."""
    n = [point.devices for point in curve.points]
    z = np.array([math.log(point.devices / point.rate) for point in curve.points])
    w, known = variances(curve.points), known_terms(curve)
    base, cost = base_at(n, curve.knowledge.cores), shapes_at(known, n).sum(axis=0)
    loss = LOSS_PER_DOUBLING * max(1.0, math.log2(n[-1] / n[0]))
    candidates = models.candidates(curve, bool(known))
    fits = [
        posterior.fit(z, w, shapes_at(candidate.terms, n), cost if candidate.uses_known else None, base, loss)
        for candidate in candidates
    ]
    weighed = zip(candidates, fits)
    scores = [math.log(candidate.weight) + (f.left_out + f.evidence) / 2 for candidate, f in weighed]
    shares = np.exp(np.array(scores) - max(scores))
    shares /= shares.sum()
    likely = np.cumsum(np.concatenate([share * fitted.weights for share, fitted in zip(shares, fits)]))
    rows = np.minimum(np.searchsorted(likely, (np.arange(DRAWS) + 0.5) / DRAWS), len(likely) - 1)
    random = np.random.default_rng(0)
    degrees, error = fits[0].degrees, fits[0].location_error  # the same for all models
    s = np.concatenate([fitted.scale for fitted in fits])[rows] * np.sqrt(degrees / random.chisquare(degrees, DRAWS))
    location = np.concatenate([fitted.location for fitted in fits])[rows]
    terms, coefficients = _coefficients(candidates, fits, known)
    weights = sorted(zip((candidate.name for candidate in candidates), shares.tolist()), key=lambda item: -item[1])
    return Average(
        terms,
        coefficients[rows],
        location + s * error * random.standard_normal(DRAWS),
        s * math.sqrt(float(w.mean())) * random.standard_normal(DRAWS),
        random.standard_t(DRIFT_DEGREES, DRAWS),
        random.random(DRAWS),
        np.log1p(STEP_LOSS * np.abs(random.standard_cauchy(DRAWS))),
        curve,
        dict(weights),
    )


def _coefficients(
    candidates: Sequence[models.Model], fits: Sequence[posterior.Posterior], known: Sequence[models.Term]
) -> tuple[list[models.Term], np.ndarray]:
    """(all J terms, [rows of all grids, J]); the known terms share one coefficient, the last one of a fit."""
    free = {term.name: term for candidate in candidates for term in candidate.terms}
    place = {name: column for column, name in enumerate(free)}
    blocks = []
    for candidate, fitted in zip(candidates, fits):
        block = np.zeros((len(fitted.weights), len(free) + len(known)))
        block[:, [place[term.name] for term in candidate.terms]] = fitted.coefficients[:, : len(candidate.terms)]
        if candidate.uses_known:
            block[:, len(free) :] = fitted.coefficients[:, -1:]
        blocks.append(block)
    return [*free.values(), *known], np.concatenate(blocks)


def known_terms(curve: Curve) -> list[models.Term]:
    """`models.known_terms`, and what independent replicas lose besides sharing cores."""
    terms, known = models.known_terms(curve), curve.knowledge
    if len(known.independent) > 1:
        alone = average(dataclasses.replace(curve, points=known.independent, knowledge=Knowledge(cores=known.cores)))

        def contention(n: np.ndarray) -> np.ndarray:
            return np.array([np.median(alone.losses(curve.sharing(int(count))).sum(axis=1)) for count in n])

        terms.append(models.Term("contention", models.CONTENTION, contention))
    return terms


def variances(points: Sequence[MeasuredPoint]) -> np.ndarray:
    """[K], variance of log(rate) in units of posterior.NOISE squared: between processes, of digits, and about a curve.

    An error of few degrees of freedom counts for more, as its t distribution is wider.
    """
    errors = [(point.error or 0.0) ** 2 * (1 + 3 / max(point.degrees, 1.0)) for point in points]
    digits = [point.rounding**2 / 3 for point in points]
    return 1 + np.array([error + digit for error, digit in zip(errors, digits)]) / posterior.NOISE**2


def shapes_at(terms: Sequence[models.Term], n: Sequence[float]) -> np.ndarray:
    """[J, N]."""
    devices = np.asarray(n, float)
    return np.array([term.shape(devices) for term in terms]).reshape(len(terms), len(devices))


def base_at(n: Sequence[float], cores: int | None) -> np.ndarray:
    """[N], by how much a step is longer because more devices than cores share them."""
    devices = np.asarray(n, float)
    return np.maximum(1.0, devices / cores) if cores else np.ones_like(devices)
