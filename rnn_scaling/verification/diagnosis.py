"""Which wrong update explains what the weights did: candidates made of the towers' gradients, tried on each variable.

Gradients are parts of the mean loss over all towers, so that their plain sum is the right one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.verification.gradients import GradientPart, summed
from rnn_scaling.verification.guarantees import Guarantee
from rnn_scaling.verification.rule import Arrays, UpdateRule
from rnn_scaling.verification.serial import norm

ROUNDING = 2.0**-23  # of a weight's size: what one update and its difference may be off by in float32
BLIND = 0.1  # of what a variable does: what may differ by more says nothing of it
LARGEST_PART = 0.7  # of the rows of a variable that are wrong: of more the whole is
LEAST_DECAYED = 8  # elements of a variable: fewer are in proportion to their weights by chance
NEAR = 0.02  # two factors this close are one
Gradient = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Label:
    """One explanation.

    Attributes:
      verdict: of the record.
      kind: of its statement; the statement also has the affected `variables`.
      factor: by how much more than it should a variable changes, of explanations that are a factor.
    """

    verdict: str
    kind: str
    factor: float | None = None
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


RIGHT = Label("right", "")
STALE = Label("stale by 1 step", "update-one-batch-late")
STALE_WEIGHTS = Label("stale by 1 step", "update-stale-weights")
FRESH = Label("not stale", "update-not-late")
LOCAL = Label("not exchanged", "update-not-exchanged")
MEANS = Label("mean", "update-mean-of-means")
SUM_OF_MEANS = Label("sum", "update-sum-of-means")
EXCHANGED = Label("exchanged", "update-exchanged")
DECAYED = Label("weight decay", "update-weight-decay")
REORDERED = Label("wrong order", "update-wrong-order")
DUPLICATES = Label("duplicate rows", "update-duplicate-rows")
UNKNOWN = Label("unequal", "update-unequal")


@dataclasses.dataclass(frozen=True)
class Evidence:
    """What one replica did with one batch.

    Attributes:
      tower: whose replica it is; None: all towers'.
      change: of each variable.
      before: its weights before.
      rule: of its updates.
      fresh: each tower's part at the weights that this tower had.
      shares: each tower's share of the items of all.
      previous: the right gradient of the batch before; None: there is none.
      stale: gives each tower's part at the weights of the batch before.
    """

    tower: int | None
    change: Arrays
    before: Arrays
    rule: UpdateRule
    fresh: Mapping[int, GradientPart]
    shares: Mapping[int, float]
    previous: Gradient | None
    stale: Callable[[], Mapping[int, GradientPart]]

    @functools.cached_property
    def farthest(self) -> float:
        """How far the variable went that went farthest, as a Euclidean norm."""
        return max(map(norm, self.change.values()))


def right_gradient(
    guarantee: Guarantee, tower: int | None, parts: Mapping[int, GradientPart], shares: Mapping[int, float]
) -> Gradient:
    """What a mode without staleness applies.

    Args:
      tower: whose replica it is applied to; None: all towers'.
    """
    if guarantee.shares_one_model or tower is None:
        return summed([part.gradient for part in parts.values()])
    return _scaled(parts[tower].gradient, 1 / shares[tower])


def explain(evidence: Evidence, guarantee: Guarantee) -> dict[str, list[Label]]:
    """The explanations of each variable that fit what it did, best first; [UNKNOWN] where none does."""
    labels: dict[str, list[Label]] = {name: [] for name in evidence.change}
    right = evidence.rule.change(_expected_gradient(evidence, guarantee))
    num_towers = len(evidence.fresh) if guarantee.shares_one_model else 1
    for name, change in right.items():
        if _fits(evidence, name, change, guarantee):
            labels[name].append(RIGHT)
        elif (factor := _factor(evidence, name, change, guarantee)) is not None:
            labels[name].append(_label_of_factor(factor, num_towers))
    wrong = [name for name, found in labels.items() if RIGHT not in found]
    if not wrong:
        return labels
    for label, gradient in _candidates(evidence, guarantee):
        change_of = evidence.rule.change(gradient)
        for name in wrong:
            if _fits(evidence, name, change_of[name], guarantee):
                labels[name].append(label)
    unknown = [name for name, found in labels.items() if not found]
    if unknown and _are_reordered(evidence, unknown, right, guarantee):
        return {name: found or [REORDERED] for name, found in labels.items()}
    return {name: found or [_partial(evidence, name, right[name], guarantee)] for name, found in labels.items()}


def _partial(evidence: Evidence, name: str, change: np.ndarray, guarantee: Guarantee) -> Label:
    """What explains a part of what the variable did."""
    if _is_decayed(evidence, name, change, guarantee):
        return DECAYED
    return _label_of_rows(evidence, name, change, guarantee) or UNKNOWN


def _are_reordered(evidence: Evidence, names: Sequence[str], right: Arrays, guarantee: Guarantee) -> bool:
    """Whether these variables together change by the right numbers, in other places."""
    did, expected = (
        np.sort(np.concatenate([changes[name].ravel() for name in names])) for changes in (evidence.change, right)
    )
    return norm(did - expected) <= 4 * guarantee.share * norm(expected)


def _is_decayed(evidence: Evidence, name: str, change: np.ndarray, guarantee: Guarantee) -> bool:
    """Whether a share of the weights is taken off beside the right change."""
    before = evidence.before[name]
    square = norm(before) ** 2
    if before.size < LEAST_DECAYED or not square:
        return False
    share = float(((evidence.change[name] - change).astype(np.float64) * before).sum() / square)
    return share < 0 and _fits(evidence, name, change + np.float32(share) * before, guarantee)


def _label_of_rows(evidence: Evidence, name: str, change: np.ndarray, guarantee: Guarantee) -> Label | None:
    """What it means that some rows of a variable, or elements of a vector, change otherwise and the others right."""
    did = evidence.change[name].reshape(len(change), -1) if change.ndim else evidence.change[name].reshape(1, 1)
    expected = change.reshape(did.shape)
    largest = float(np.abs(expected).max(initial=0.0))
    off = np.abs(did - expected).max(axis=1)
    allowed = 4 * guarantee.share * np.abs(expected).max(axis=1) + 4 * ROUNDING * (
        np.abs(evidence.before[name]).max() + largest
    )
    moves = np.abs(expected).max(axis=1) + np.abs(did).max(axis=1) > 0
    wrong = np.flatnonzero(off > allowed)
    if not 0 < len(wrong) <= LARGEST_PART * moves.sum():
        return None
    several = _several(evidence, name)
    if several is not None and len(wrong) > 1 and set(wrong) <= several and len(wrong) > 0.5 * len(several):
        return DUPLICATES
    values = {"wrong": len(wrong), "rows": int(moves.sum()), "first": int(wrong[0])}
    if not did[wrong].any():
        return Label("rows lost", "update-rows-lost", values=values)
    return Label("part wrong", "update-part-wrong", values=values)


def _several(evidence: Evidence, name: str) -> set[int] | None:
    """Rows that the towers look up more than once; None of a variable that is read whole."""
    looked_up = [part.rows[name][0] for part in evidence.fresh.values() if name in part.rows]
    if not looked_up:
        return None
    numbers, counts = np.unique(np.concatenate(looked_up), return_counts=True)
    return set(numbers[counts > 1].tolist())


def _expected_gradient(evidence: Evidence, guarantee: Guarantee) -> Gradient:
    """What the mode should have applied."""
    if guarantee.late:
        return _previous(evidence, guarantee)
    parts = evidence.stale() if guarantee.staged else evidence.fresh
    return right_gradient(guarantee, evidence.tower, parts, evidence.shares)


def _previous(evidence: Evidence, guarantee: Guarantee) -> Gradient:
    if evidence.previous is not None:
        return evidence.previous
    return {name: np.zeros_like(change) for name, change in evidence.change.items()}


def _candidates(evidence: Evidence, guarantee: Guarantee) -> Iterator[tuple[Label, Gradient]]:
    """(explanation, its gradient), the likelier first."""
    parts, shares, tower = evidence.fresh, evidence.shares, evidence.tower
    if guarantee.is_stale:
        yield FRESH, right_gradient(guarantee, tower, parts, shares)
    if not guarantee.late:
        yield STALE, _previous(evidence, guarantee)
    if not guarantee.staged:
        yield STALE_WEIGHTS, right_gradient(guarantee, tower, evidence.stale(), shares)
    several = summed([part.gradient for part in parts.values()])
    if not guarantee.shares_one_model:
        yield EXCHANGED, several
    elif tower is not None and len(parts) > 1:
        yield LOCAL, dict(parts[tower].gradient)
        yield LOCAL, _scaled(parts[tower].gradient, 1 / shares[tower])
    means = {number: _scaled(part.gradient, 1 / shares[number]) for number, part in parts.items()}
    if guarantee.shares_one_model and max(shares.values()) > (1 + NEAR) * min(shares.values()):
        yield SUM_OF_MEANS, summed(list(means.values()))
        yield MEANS, _scaled(summed(list(means.values())), 1 / len(parts))
    yield from _tower_candidates(parts, shares, several)


def _tower_candidates(
    parts: Mapping[int, GradientPart], shares: Mapping[int, float], several: Gradient
) -> Iterator[tuple[Label, Gradient]]:
    """Explanations in which a tower's gradient is missing or another's stands in its place."""
    for number, part in parts.items():
        without = {name: total - part.gradient[name] for name, total in several.items()}
        label = Label("tower left out", "update-tower-left-out", values={"tower": number})
        yield label, without
        twice = {name: total + part.gradient[name] for name, total in several.items()}
        yield Label("tower twice", "update-tower-twice", values={"tower": number}), twice
        if shares[number] < 1:
            yield label, _scaled(without, 1 / (1 - shares[number]))
        for instead in [tower for tower in parts if tower != number]:
            replaced = {name: total + parts[instead].gradient[name] for name, total in without.items()}
            values = {"tower": number, "instead": instead}
            yield Label("tower twice", "update-tower-replaced", values=values), replaced


def _label_of_factor(factor: float, num_towers: int) -> Label:
    """What it means that a variable changes by `factor` times the right change, with so many towers."""
    if abs(factor) < NEAR:
        return Label("not updated", "update-missing", 0.0)
    if num_towers > 1 and abs(factor / num_towers - 1) < NEAR:
        return Label("sum", "update-summed", factor)
    if num_towers > 1 and abs(factor * num_towers - 1) < NEAR:
        return Label("mean", "update-averaged", factor)
    return Label(f"factor {factor:.3g}", "update-factor", factor)


def _factor(evidence: Evidence, name: str, change: np.ndarray, guarantee: Guarantee) -> float | None:
    """The factor of the right change that is what the variable did; None: none is."""
    square = norm(change) ** 2
    if not square:
        return None
    factor = float((evidence.change[name].astype(np.float64) * change).sum() / square)
    return factor if _fits(evidence, name, np.float32(factor) * change, guarantee) else None


def _fits(evidence: Evidence, name: str, change: np.ndarray, guarantee: Guarantee) -> bool:
    did = evidence.change[name]
    # A gradient whose terms cancel each other is rounded as these are: as the gradients of other variables.
    rounded = ROUNDING * (norm(evidence.before[name]) + evidence.farthest)
    moved = max(norm(change), norm(did))
    return norm(did - change) <= guarantee.share * moved + rounded or rounded > BLIND * moved


def _scaled(gradient: Arrays, factor: float) -> Gradient:
    return {name: array * np.float32(factor) for name, array in gradient.items()}


@dataclasses.dataclass
class Findings:
    """What is said of each variable of each replica, batch after batch.

    Attributes:
      by_place: (replica, variable) -> the explanations that fit in every batch so far, best first.
      first: number of the first batch that was explained.
    """

    by_place: dict[tuple[int, str], list[Label]] = dataclasses.field(default_factory=dict)
    first: int | None = None

    def add(self, number: int, replica: int, labels: Mapping[str, Sequence[Label]]) -> None:
        """Adds what is said of one more batch."""
        self.first = number if self.first is None else self.first
        for name, found in labels.items():
            earlier = self.by_place.get((replica, name))
            both = [label for label in earlier or [] if any(_are_alike(label, new) for new in found)]
            # What was right in one batch and wrong in another is explained by what went wrong.
            wrong = list(found) if earlier is None or earlier == [RIGHT] else earlier
            self.by_place[replica, name] = both or wrong

    @property
    def are_right(self) -> bool:
        """Whether something was explained, and every variable did what it should in every batch."""
        return bool(self.by_place) and all(labels[0] is RIGHT for labels in self.by_place.values())

    def statements(self, replicas: Sequence[str], shares_one_model: bool = True) -> list[Statement]:
        """What most of the wrong variables have in common; the first statement's subject is the verdict.

        Args:
          replicas: how each is called, as "tower 0"; empty names where there is one for all.
        """
        wrong = {place: labels[0] for place, labels in self.by_place.items() if labels[0] is not RIGHT}
        if not wrong:
            return [Statement("update-growing", "unequal")]
        groups: list[tuple[Label, list[tuple[int, str]]]] = []
        for place, label in wrong.items():
            members = next((members for first, members in groups if _are_alike(first, label)), None)
            if members is None:
                groups.append((label, [place]))
            else:
                members.append(place)
        label, places = max(groups, key=lambda group: (group[0] is not UNKNOWN, len(group[1])))
        names = list(dict.fromkeys(name for _, name in places))
        affected = sorted({replica for replica, _ in places})
        is_everywhere = len(affected) == len(replicas)
        if set(names) == {name for _, name in self.by_place}:
            names = ["every variable"]
            label = _label_of_all(label, is_everywhere and shares_one_model)
        elif label.verdict in ("sum", "mean") and label.factor is not None:
            label = Label(f"factor {label.factor:.3g}", "update-factor", label.factor)
        values = {**label.values, "variables": names, "factor": label.factor}
        found = [Statement(label.kind, label.verdict, values)]
        if not is_everywhere:
            found.append(Statement("verify-only-on", values={"towers": [replicas[number] for number in affected]}))
        return found


def _label_of_all(label: Label, is_everywhere: bool) -> Label:
    """The label where it fits every variable.

    Args:
      is_everywhere: on every tower that shares one model; elsewhere only the update itself can have a wrong factor.
    """
    if label.factor and not is_everywhere:
        return Label("learning rate", "update-wrong-rate", label.factor)
    if label.kind == "update-factor":
        return dataclasses.replace(label, kind="update-factor-of-all")
    return label


def _are_alike(first: Label, second: Label) -> bool:
    if first.factor is not None and second.factor is not None:
        return abs(first.factor - second.factor) <= NEAR * max(1.0, abs(first.factor))
    return (first.kind, first.values) == (second.kind, second.values)
