"""Which wrong update explains what the weights did: candidates made of the towers' gradients, tried on each variable.

A finding's word is one of `WORDS`. Gradients are parts of the mean loss over all towers, so that their plain sum is the
right one.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from rnn_scaling.verification.gradients import Part, summed
from rnn_scaling.verification.guarantees import Guarantee
from rnn_scaling.verification.rule import Arrays, Rule
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
      word: of the record.
      text: what happens; {what} stands for the variables, {where} for the towers that they are on.
      factor: by how much more than it should a variable changes, of explanations that are a factor.
    """

    word: str
    text: str
    factor: float | None = None


RIGHT = Label("right", "")
STALE = Label("stale by 1 step", "{what} {get} the gradient of the batch before{where}")
STALE_WEIGHTS = Label("stale by 1 step", "the gradient of {what} is computed at the weights of one batch before{where}")
FRESH = Label("not stale", "{what} {get} the gradient of the batch itself{where}, not that of the batch before")
OWN = Label("not exchanged", "{what} {get} the gradient of the tower itself alone{where}")
MEANS = Label(
    "mean", "the towers' means are averaged for {what}{where}, though the towers have different numbers of items"
)
SUM_OF_MEANS = Label("sum", "the towers' means are added for {what}{where} where they should be averaged")
EXCHANGED = Label("exchanged", "{what} {get} the gradients of all towers{where}, and each should have its own")
DECAYED = Label(
    "weight decay",
    "beside the right gradient, {what} {change} in proportion to the weights themselves{where} (weight decay)",
)
REORDERED = Label("wrong order", "the pieces of the gradient of {what} arrive in another order{where}")
UNKNOWN = Label("unequal", "{what} {change} otherwise than in serial training{where}")


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
    rule: Rule
    fresh: Mapping[int, Part]
    shares: Mapping[int, float]
    previous: Gradient | None
    stale: Callable[[], Mapping[int, Part]]

    @functools.cached_property
    def farthest(self) -> float:
        """How far the variable went that went farthest, as a Euclidean norm."""
        return max(map(norm, self.change.values()))


def right_gradient(
    guarantee: Guarantee, tower: int | None, parts: Mapping[int, Part], shares: Mapping[int, float]
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
    parts: dict[str, Label] = {}
    right: Arrays = {}
    for label, gradient in _candidates(evidence, guarantee):
        open_names = [name for name, each in labels.items() if not each or label is not RIGHT]
        if label is not RIGHT and all(RIGHT in each for each in labels.values()):
            break
        change = evidence.rule.change(gradient)
        right = change if label is RIGHT else right
        for name in open_names:
            if RIGHT in labels[name]:
                continue
            if _fits(evidence, name, change[name], guarantee):
                labels[name].append(label)
            elif label is _RIGHT_SCALED and (factor := _factor(evidence, name, change[name], guarantee)) is not None:
                labels[name].append(_of_factor(factor, len(evidence.fresh) if guarantee.shares_one_model else 1))
            elif label is RIGHT and _is_decayed(evidence, name, change[name], guarantee):
                parts[name] = DECAYED
            elif label is RIGHT and (part := _of_part(evidence, name, change[name], guarantee)) is not None:
                parts[name] = part
    unknown = [name for name, each in labels.items() if not each]
    if unknown and right and _are_reordered(evidence, unknown, right, guarantee):
        return {name: each or [REORDERED] for name, each in labels.items()}
    return {name: each or [parts.get(name, UNKNOWN)] for name, each in labels.items()}


def _are_reordered(evidence: Evidence, names: Sequence[str], right: Arrays, guarantee: Guarantee) -> bool:
    """Whether these variables together change by the right numbers, in other places."""
    did, expected = (
        np.sort(np.concatenate([each[name].ravel() for name in names])) for each in (evidence.change, right)
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


def _of_part(evidence: Evidence, name: str, change: np.ndarray, guarantee: Guarantee) -> Label | None:
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
        text = "rows of {what} that come several times in a batch are not added up (duplicates){where}"
        return Label("duplicate rows", text)
    rows = f"row {wrong[0]}" if len(wrong) == 1 else f"{len(wrong)} of {moves.sum()} rows, the first is {wrong[0]},"
    if not did[wrong].any():
        return Label("rows lost", f"{rows} of {{what}} {'does' if len(wrong) == 1 else 'do'} not change{{where}}")
    text = f"a part of {{what}}, {rows} {{change}} otherwise than in serial training{{where}}; the rest is right"
    return Label("part wrong", text)


def _several(evidence: Evidence, name: str) -> set[int] | None:
    """Rows that the towers look up more than once; None of a variable that is read whole."""
    looked_up = [part.rows[name][0] for part in evidence.fresh.values() if name in part.rows]
    if not looked_up:
        return None
    numbers, counts = np.unique(np.concatenate(looked_up), return_counts=True)
    return set(numbers[counts > 1].tolist())


_RIGHT_SCALED = Label("factor", "")


def _candidates(evidence: Evidence, guarantee: Guarantee) -> Iterator[tuple[Label, Gradient]]:
    """(explanation, its gradient), the likelier first."""
    parts, shares, tower = evidence.fresh, evidence.shares, evidence.tower
    fresh = right_gradient(guarantee, tower, parts, shares)
    zeros = {name: np.zeros_like(each) for name, each in fresh.items()}
    previous = zeros if evidence.previous is None else evidence.previous
    stale = right_gradient(guarantee, tower, evidence.stale(), shares)
    right = previous if guarantee.late else stale if guarantee.staged else fresh
    yield RIGHT, right
    yield _RIGHT_SCALED, right
    if guarantee.is_stale:
        yield FRESH, fresh
    if not guarantee.late:
        yield STALE, previous
    if not guarantee.staged:
        yield STALE_WEIGHTS, stale
    several = summed([part.gradient for part in parts.values()])
    if not guarantee.shares_one_model:
        yield EXCHANGED, several
    elif tower is not None and len(parts) > 1:
        yield OWN, dict(parts[tower].gradient)
        yield OWN, _scaled(parts[tower].gradient, 1 / shares[tower])
    means = {number: _scaled(part.gradient, 1 / shares[number]) for number, part in parts.items()}
    if guarantee.shares_one_model and max(shares.values()) > (1 + NEAR) * min(shares.values()):
        yield SUM_OF_MEANS, summed(list(means.values()))
        yield MEANS, _scaled(summed(list(means.values())), 1 / len(parts))
    yield from _of_towers(parts, shares, several)


def _of_towers(
    parts: Mapping[int, Part], shares: Mapping[int, float], several: Gradient
) -> Iterator[tuple[Label, Gradient]]:
    """Explanations in which a tower's gradient is missing or another's stands in its place."""
    for number, part in parts.items():
        rest = {name: each - part.gradient[name] for name, each in several.items()}
        label = Label("tower left out", f"the gradient of tower {number} is left out of {{what}}{{where}}")
        yield label, rest
        again = {name: each + part.gradient[name] for name, each in several.items()}
        yield Label("tower twice", f"tower {number}'s gradient counts twice in {{what}}{{where}}"), again
        if shares[number] < 1:
            yield label, _scaled(rest, 1 / (1 - shares[number]))
        for other, instead in parts.items():
            if other != number:
                text = f"tower {other}'s gradient counts twice and tower {number}'s not at all in {{what}}{{where}}"
                yield (
                    Label("tower twice", text),
                    {name: each + instead.gradient[name] for name, each in rest.items()},
                )


def _of_factor(factor: float, num_towers: int) -> Label:
    """What it means that a variable changes by `factor` times the right change, with so many towers."""
    if abs(factor) < NEAR:
        return Label("not updated", "{what} {do} not change{where}", 0.0)
    times = f"{factor:.3g} times as far as it should"
    if num_towers > 1 and abs(factor / num_towers - 1) < NEAR:
        text = f"gradients are summed where they should be averaged: {{what}} {{change}} {times}{{where}}"
        return Label("sum", text, factor)
    if num_towers > 1 and abs(factor * num_towers - 1) < NEAR:
        text = f"gradients are averaged where they should be summed: {{what}} {{change}} {times}{{where}}"
        return Label("mean", text, factor)
    return Label(f"factor {factor:.3g}", f"{{what}} {{change}} {times}{{where}}", factor)


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
    return {name: each * np.float32(factor) for name, each in gradient.items()}


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
        for name, each in labels.items():
            known = self.by_place.get((replica, name))
            both = [a for a in known if any(_alike(a, b) for b in each)] if known else []
            # What was right in one batch and wrong in another is explained by what went wrong.
            wrong = list(each) if known is None or known == [RIGHT] else known
            self.by_place[replica, name] = both or wrong

    @property
    def are_right(self) -> bool:
        """Whether something was explained, and every variable did what it should in every batch."""
        return bool(self.by_place) and all(labels[0] is RIGHT for labels in self.by_place.values())

    def sentence(self, replicas: Sequence[str], shares_one_model: bool = True) -> tuple[str, str]:
        """(word, text) of what most of the wrong variables have in common.

        Args:
          replicas: how each is called, as "tower 0"; empty names where there is one for all.
        """
        wrong = {place: labels[0] for place, labels in self.by_place.items() if labels[0] is not RIGHT}
        if not wrong:
            return "unequal", "each update is right by itself, and small differences grow from batch to batch"
        groups: list[tuple[Label, list[tuple[int, str]]]] = []
        for place, label in wrong.items():
            group = next((members for known, members in groups if _alike(known, label)), None)
            if group is None:
                groups.append((label, [place]))
            else:
                group.append(place)
        label, places = max(groups, key=lambda group: (group[0] is not UNKNOWN, len(group[1])))
        names = list(dict.fromkeys(name for _, name in places))
        everywhere = {name for _, name in self.by_place}
        word, is_all = label.word, set(names) == everywhere
        if word in ("sum", "mean") and label.factor is not None and not is_all:
            label = Label(
                f"factor {label.factor:.3g}",
                f"{{what}} {{change}} {label.factor:.3g} times as far as it should{{where}}",
            )
            word = label.word
        on = sorted({replica for replica, _ in places})
        if label.factor and is_all and (len(on) < len(replicas) or not shares_one_model):
            # Sums and losses are the same for all towers: only the update itself differs on one.
            times = f"{label.factor:.3g} times as far as it should"
            label = Label("learning rate", f"{{what}} {{change}} {times}{{where}}: its learning rate is wrong")
            word = label.word
        elif is_all and word.startswith("factor"):
            label = dataclasses.replace(label, text=f"{label.text}: the learning rate or the loss has a wrong factor")
        where = "" if len(on) == len(replicas) else f" on {', '.join(replicas[each] for each in on)}"
        one = is_all or len(names) == 1
        what = (
            "every variable"
            if is_all
            else ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        )
        verbs = (
            {"get": "gets", "change": "changes", "do": "does"}
            if one
            else {"get": "get", "change": "change", "do": "do"}
        )
        return word, label.text.format(what=what, where=where, **verbs)


def _alike(a: Label, b: Label) -> bool:
    if a.factor is not None and b.factor is not None:
        return abs(a.factor - b.factor) <= NEAR * max(1.0, abs(a.factor))
    return (a.word, a.text) == (b.word, b.text)
