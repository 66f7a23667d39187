"""The terms of a step's time, and the candidate models, which are sets of terms.

A model is the ratio of the time that n devices take for n times the work to the time of
one device: y(n) = n rate(1) / rate(n) = 1 / efficiency = 1 + the sum of
coefficient x shape(n) over its terms. No coefficient is negative. A shape is 0 at n = 1
and, unless it is known, 1 at n = 2, so that its coefficient is the loss on two devices.
In strong scaling a device computes 1/n of the work, so every other cost of a step is n
times as large in y: Amdahl's serial share has the shape n - 1.

Sources: Amdahl, AFIPS 1967; Gunther, "Guerrilla Capacity Planning", 2007 (shapes n - 1
and n(n - 1): the universal scalability law); costs.py for the exchanges; David,
Nagaraja, "Order Statistics", 2003 (longest of n times).

`averaging` fits the models of `list_candidates` to a curve and averages them.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from rnn_scaling.analysis.prediction import costs
from rnn_scaling.analysis.prediction.curves import PARTS, STRONG, Curve, Knowledge

CONTENTION, EXCHANGE, FIXED, JITTER, UNSPLIT = PARTS
STEP = "step"


@dataclasses.dataclass(frozen=True)
class Term:
    """One reason for a longer step."""

    name: str
    part: str  # part of the lost efficiency, one of curves.PARTS, if nothing is known
    shape: Callable[[np.ndarray], np.ndarray]  # [N] devices -> [N]


@dataclasses.dataclass(frozen=True)
class Model:
    """Terms whose coefficients are fitted, in addition to the known cost."""

    terms: tuple[Term, ...]
    uses_known: bool
    weight: float  # weight before the data

    @property
    def name(self) -> str:
        names = [term.name for term in self.terms]
        if self.uses_known:
            names.append("known cost")
        return " + ".join(names) or "ideal"


def _group_terms_by_name(*terms: Term) -> dict[str, Term]:
    return {term.name: term for term in terms}


WEAK_TERMS = _group_terms_by_name(
    Term("constant", CONTENTION, lambda n: np.where(n > 1, 1.0, 0.0)),
    Term("ring", EXCHANGE, lambda n: 2 * (n - 1) / n),
    Term("tree", EXCHANGE, np.log2),
    Term("linear", UNSPLIT, lambda n: n - 1),
    Term("all pairs", EXCHANGE, lambda n: n * (n - 1) / 2),
    # The longest of n normal numbers. Its part is only jitter if step times are known.
    Term(
        "longest of n", UNSPLIT, lambda n: np.sqrt(np.log(n)) / math.sqrt(math.log(2))
    ),
)
STRONG_TERMS = WEAK_TERMS | _group_terms_by_name(
    Term("serial", FIXED, lambda n: n - 1),
    Term("tree", EXCHANGE, lambda n: n * np.log2(n) / 2),
)
# Weight of each model before the data, tuned once on the development half of
# docs/results/prediction/public.csv.
WEAK_MODELS = {
    "": 0.3,
    "constant": 0.6,
    "ring": 0.8,
    "tree": 1.5,
    "linear": 0.5,
    "all pairs": 0.4,
    "longest of n": 1.5,
    "constant, tree": 0.4,
    "constant, linear": 1.0,
    "constant, all pairs": 0.15,
    "ring, linear": 0.5,
    "tree, linear": 0.8,
    "tree, all pairs": 0.3,
    "step": 0.5,
    "constant, step": 0.6,
    "tree, step": 0.7,
    "linear, step": 0.3,
}
STRONG_MODELS = {
    "": 0.3,
    "constant": 0.4,
    "serial": 2.0,
    "tree": 0.7,
    "all pairs": 0.3,
    "longest of n": 0.5,
    "constant, serial": 0.7,
    "constant, tree": 0.5,
    "serial, tree": 0.7,
    "serial, all pairs": 0.3,
    "serial, step": 0.5,
}
MIN_STEP_TIMES = 8  # step times from which the longest of n is computed
_TRUST = 10.0  # factor of the weight of a model with the known cost


def list_candidates(curve: Curve, has_known_cost: bool) -> list[Model]:
    """Return the models of one curve, with and without its known cost."""
    is_strong = curve.scaling == STRONG
    terms = STRONG_TERMS if is_strong else WEAK_TERMS
    steps = _make_step_terms([point.devices for point in curve.points], is_strong)
    models = []
    for names, weight in (STRONG_MODELS if is_strong else WEAK_MODELS).items():
        smooth = [terms[name] for name in names.split(", ") if name in terms]
        variants = [(*smooth, step) for step in steps]
        if STEP not in names:
            variants = [tuple(smooth)]
        for variant in variants:
            models.append(Model(variant, False, weight / len(variants)))
            if has_known_cost:
                models.append(Model(variant, True, weight / len(variants) * _TRUST))
    return models


def _make_step_terms(devices: Sequence[int], is_strong: bool) -> list[Term]:
    """Return a term for each measured n at which the exchange may leave a machine.

    Machines and switches have 2, 4, 8, ... devices, so the exchange may leave one from
    4 to 5 devices, but not from 3 to 4.
    """

    def make_step_term(first: int) -> Term:
        return Term(
            f"{STEP} at {first}",
            EXCHANGE,
            lambda n: np.where(n >= first, n / first if is_strong else 1.0, 0.0),
        )

    return [
        make_step_term(n)
        for smaller, n in zip(devices, devices[1:])
        if smaller > 1 and 2 ** math.floor(math.log2(n - 1)) >= smaller
    ]


def compute_loss_part(term: Term, knowledge: Knowledge) -> str:
    """Return the part of the loss that a term is, given the facts about the exchange.

    The shape of a curve is no evidence for a cause. Without an algorithm it is unknown
    whether anything is exchanged: a table may be about threads. A constant cost is only
    contention without an exchange, or if independent replicas were measured. A linear
    cost belongs to the exchange if the exchange grows linearly, and is a fixed cost
    without an exchange.
    """
    part = term.part
    if part == JITTER:
        return part
    is_contention_known = knowledge.algorithm == "none" or bool(knowledge.independent)
    if part == CONTENTION:
        return CONTENTION if is_contention_known else UNSPLIT
    if not knowledge.algorithm:
        return UNSPLIT
    if term.name == "linear":
        grows = (
            knowledge.algorithm == "parameter_server"
            or (knowledge.gathered_bytes or 0) > 0
        )
        has_none = knowledge.summed_bytes == 0 and not knowledge.gathered_bytes
        part = UNSPLIT
        if grows:
            part = EXCHANGE
        elif has_none:
            part = FIXED
    if part == EXCHANGE and knowledge.algorithm == "none":
        return CONTENTION
    return part


def exchange_terms(curve: Curve) -> list[Term]:
    """Return the known exchange and jitter, as shares of one device's step."""
    knowledge = curve.knowledge

    def compute_exchange_s(n: np.ndarray) -> np.ndarray:
        summed_bytes = knowledge.summed_bytes or 0.0
        gathered_bytes = knowledge.gathered_bytes or 0.0
        seconds = [
            costs.exchange_s(
                knowledge.algorithm,
                devices=devices,
                summed_bytes=summed_bytes,
                gathered_bytes=gathered_bytes,
                links=knowledge.links,
            )
            for devices in map(int, n)
        ]
        exposed_share = (1 - (knowledge.hidden_share or 0.0)) / (
            knowledge.step_s or 1.0
        )
        exposed = exposed_share * np.array(seconds)
        return exposed * n if curve.scaling == STRONG else exposed

    terms = []
    if knows_exchange(knowledge):
        terms.append(Term("exchange", EXCHANGE, compute_exchange_s))
    if len(knowledge.step_times) >= MIN_STEP_TIMES and knowledge.algorithm != "none":
        terms.append(
            Term(
                "jitter",
                JITTER,
                lambda n: compute_longest_share(knowledge.step_times, n),
            )
        )
    return terms


def knows_exchange(knowledge: Knowledge) -> bool:
    """Return whether the seconds of an exchange can be calculated, even if partly."""
    has_speed = any(math.isfinite(link.bytes_per_s) for link in knowledge.links)
    return bool(
        has_speed
        and knowledge.step_s
        and knowledge.algorithm not in ("", "none")
        and knowledge.summed_bytes is not None
    )


def compute_longest_share(times: Sequence[float], n: np.ndarray) -> np.ndarray:
    """Return the excess of the longest of n step times over their mean, as its share.

    If the number of devices exceeds half the number of times, normal numbers replace
    the distribution of the times.
    """
    ordered = np.sort(np.asarray(times, float))
    mean = ordered.mean()
    count = len(ordered)
    sampled = np.minimum(n, count / 2)
    cumulative = (np.arange(count + 1) / count)[:, None] ** sampled
    longest = ordered @ np.diff(cumulative, axis=0)
    growth = np.sqrt(2 * np.log(n)) - np.sqrt(2 * np.log(sampled))
    return (longest + ordered.std() * growth) / mean - 1
