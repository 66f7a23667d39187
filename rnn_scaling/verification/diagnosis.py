"""Which wrong update explains what the weights did: candidates made of the towers' gradients, tried on each variable.

Gradients are parts of the mean loss over all towers, so that their plain sum is the right one. An explanation is a
`Statement`: its subject is the verdict, and a `factor` among its values is how much too far a variable changes.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.verification.gradients import GradientPart
from rnn_scaling.verification.rule import Arrays, Guarantee, UpdateRule
from rnn_scaling.verification.serial import norm

ROUNDING = (
    2.0**-23
)  # of a weight's size: what one update and its difference may be off by in float32
BLIND = 0.1  # of what a variable does: what may differ by more says nothing of it
LARGEST_PART = (
    0.7  # of the rows of a variable that are wrong: if more are wrong, all are
)
LEAST_DECAYED = (
    8  # elements of a variable: fewer are in proportion to their weights by chance
)
NEAR = 0.02  # two factors this close are equal
Gradient = dict[str, np.ndarray]
Factors = Mapping[int, float]  # of each tower's gradient in a sum

RIGHT = Statement("update-right", "right")
UNKNOWN = Statement("update-unequal", "unequal")
STALE = Statement("update-one-batch-late", "stale by 1 step")
STALE_WEIGHTS = Statement("update-stale-weights", "stale by 1 step")
FRESH = Statement("update-not-late", "not stale")
LOCAL = Statement("update-not-exchanged", "not exchanged")
MEANS = Statement("update-mean-of-means", "mean")
SUM_OF_MEANS = Statement("update-sum-of-means", "sum")
EXCHANGED = Statement("update-exchanged", "exchanged")
DECAYED = Statement("update-weight-decay", "weight decay")
REORDERED = Statement("update-wrong-order", "wrong order")
DUPLICATES = Statement("update-duplicate-rows", "duplicate rows")


@dataclasses.dataclass(frozen=True)
class ReplicaUpdate:
    tower: int | None  # whose replica it is; None: all towers'
    parts: Mapping[
        int, GradientPart
    ]  # each tower's gradient, at the weights that it had
    shares: Mapping[int, float]  # each tower's share of the items of all
    change: Arrays
    before: Arrays

    @functools.cached_property
    def farthest(self) -> float:
        """The largest change of a variable, as a Euclidean norm."""
        return max(map(norm, self.change.values()))


@dataclasses.dataclass(frozen=True)
class Evidence:
    update: ReplicaUpdate
    guarantee: Guarantee
    rule: UpdateRule
    previous: (
        Gradient | None
    )  # the right gradient of the batch before; None: there is none
    stale: Mapping[
        int, GradientPart
    ]  # each tower's part at the weights of the batch before

    def expected(self) -> Gradient:
        """The gradient that the mode should have applied."""
        if self.guarantee.late:
            return self.late()
        parts = self.stale if self.guarantee.staged else self.update.parts
        return right_gradient(
            self.guarantee, self.update.tower, parts, self.update.shares
        )

    def late(self) -> Gradient:
        """The right gradient of the batch before; zeros before the first."""
        if self.previous is not None:
            return self.previous
        return {
            name: np.zeros_like(change) for name, change in self.update.change.items()
        }

    def fits(self, name: str, change: np.ndarray) -> bool:
        did, share = self.update.change[name], self.guarantee.share
        # A gradient whose terms cancel each other is rounded as these are: as the gradients of other variables.
        rounded = ROUNDING * (norm(self.update.before[name]) + self.update.farthest)
        moved = max(norm(change), norm(did))
        return norm(did - change) <= share * moved + rounded or rounded > BLIND * moved

    def factor(self, name: str, change: np.ndarray) -> float | None:
        """How many times the right change a variable did; None: it is no multiple."""
        factor = _multiple(self.update.change[name], change)
        return (
            factor
            if factor is not None and self.fits(name, np.float32(factor) * change)
            else None
        )


def right_gradient(
    guarantee: Guarantee,
    tower: int | None,
    parts: Mapping[int, GradientPart],
    shares: Mapping[int, float],
) -> Gradient:
    """What a mode without staleness applies to the replica of `tower`, or of all towers (None)."""
    if guarantee.shares_one_model or tower is None:
        return combined(parts, dict.fromkeys(parts, 1.0))
    return combined(parts, {tower: 1 / shares[tower]})


def combined(parts: Mapping[int, GradientPart], factors: Factors) -> Gradient:
    """The sum of the towers' gradients times their factors; a tower without a factor is left out."""
    total = {
        name: np.zeros_like(array)
        for name, array in next(iter(parts.values())).gradient.items()
    }
    for tower, factor in factors.items():
        for name, array in parts[tower].gradient.items():
            total[name] += array * np.float32(factor)
    return total


def explain(evidence: Evidence) -> dict[str, list[Statement]]:
    """The explanations of each variable that fit what it did, best first; [UNKNOWN] where none does."""
    right = evidence.rule.change(evidence.expected(), evidence.update.before)
    num_towers = (
        len(evidence.update.parts) if evidence.guarantee.shares_one_model else 1
    )
    found: dict[str, list[Statement]] = {name: [] for name in right}
    for name, change in right.items():
        if evidence.fits(name, change):
            found[name].append(RIGHT)
        elif (factor := evidence.factor(name, change)) is not None:
            found[name].append(_statement_of_factor(factor, num_towers))
    wrong = [name for name, statements in found.items() if RIGHT not in statements]
    for statement, gradient in _candidates(evidence) if wrong else ():
        change_of = evidence.rule.change(gradient, evidence.update.before)
        for name in wrong:
            if evidence.fits(name, change_of[name]):
                found[name].append(statement)
    unknown = [name for name in wrong if not found[name]]
    if unknown and _are_reordered(evidence, unknown, right):
        return found | {name: [REORDERED] for name in unknown}
    for name in unknown:
        is_decayed = _is_decayed(evidence, name, right[name])
        found[name] = [
            DECAYED
            if is_decayed
            else _statement_of_rows(evidence, name, right[name]) or UNKNOWN
        ]
    return found


def _candidates(evidence: Evidence) -> Iterator[tuple[Statement, Gradient]]:
    """(explanation, its gradient), the likelier first."""
    update, guarantee = evidence.update, evidence.guarantee
    if guarantee.is_stale:
        yield (
            FRESH,
            right_gradient(guarantee, update.tower, update.parts, update.shares),
        )
    if not guarantee.late:
        yield STALE, evidence.late()
    if not guarantee.staged:
        yield (
            STALE_WEIGHTS,
            right_gradient(guarantee, update.tower, evidence.stale, update.shares),
        )
    for statement, factors in _wrong_sums(guarantee, update.tower, update.shares):
        yield statement, combined(update.parts, factors)


def _wrong_sums(
    guarantee: Guarantee, tower: int | None, shares: Mapping[int, float]
) -> Iterator[tuple[Statement, Factors]]:
    """(explanation, the factors of the towers' gradients in the sum), the likelier first."""
    if not guarantee.shares_one_model:
        yield EXCHANGED, dict.fromkeys(shares, 1.0)
    elif tower is not None and len(shares) > 1:
        yield LOCAL, {tower: 1.0}
        yield LOCAL, {tower: 1 / shares[tower]}
    if guarantee.shares_one_model and max(shares.values()) > (1 + NEAR) * min(
        shares.values()
    ):
        yield SUM_OF_MEANS, {number: 1 / share for number, share in shares.items()}
        yield (
            MEANS,
            {number: 1 / share / len(shares) for number, share in shares.items()},
        )
    yield from tower_faults(shares)


def tower_faults(shares: Mapping[int, float]) -> Iterator[tuple[Statement, Factors]]:
    """Explanations in which a tower's gradient is missing, or counts twice."""
    everyone = dict.fromkeys(shares, 1.0)
    for tower, share in shares.items():
        remaining = {number: 1.0 for number in shares if number != tower}
        left_out = Statement(
            "update-tower-left-out", "tower left out", {"tower": tower}
        )
        yield left_out, remaining
        yield (
            Statement("update-tower-twice", "tower twice", {"tower": tower}),
            everyone | {tower: 2.0},
        )
        if share < 1:
            yield left_out, dict.fromkeys(remaining, 1 / (1 - share))
        for instead in remaining:
            values = {"tower": tower, "instead": instead}
            yield (
                Statement("update-tower-replaced", "tower twice", values),
                remaining | {instead: 2.0},
            )


def _are_reordered(evidence: Evidence, names: Sequence[str], right: Arrays) -> bool:
    """Whether these variables together change by the right numbers, in other places."""
    changes = evidence.update.change, right
    did, expected = (
        np.sort(np.concatenate([change[name].ravel() for name in names]))
        for change in changes
    )
    return norm(did - expected) <= 4 * evidence.guarantee.share * norm(expected)


def _is_decayed(evidence: Evidence, name: str, change: np.ndarray) -> bool:
    """Whether a share of the weights is taken off in addition to the right change."""
    before = evidence.update.before[name]
    share = (
        _multiple(evidence.update.change[name] - change, before)
        if before.size >= LEAST_DECAYED
        else None
    )
    return (
        share is not None
        and share < 0
        and evidence.fits(name, change + np.float32(share) * before)
    )


def _statement_of_rows(
    evidence: Evidence, name: str, change: np.ndarray
) -> Statement | None:
    """What it means that some rows of a variable, or elements of a vector, change otherwise and the others right."""
    did = evidence.update.change[name].reshape(len(change) if change.ndim else 1, -1)
    expected = change.reshape(did.shape)
    largest = np.abs(expected).max(axis=1)
    rounded = ROUNDING * (
        np.abs(evidence.update.before[name]).max() + largest.max(initial=0.0)
    )
    allowed = 4 * evidence.guarantee.share * largest + 4 * rounded
    num_moving = int((largest + np.abs(did).max(axis=1) > 0).sum())
    wrong = np.flatnonzero(np.abs(did - expected).max(axis=1) > allowed)
    if not 0 < len(wrong) <= LARGEST_PART * num_moving:
        return None
    repeated = _repeated_rows(evidence, name)
    if len(wrong) > 1 and set(wrong) <= repeated and len(wrong) > 0.5 * len(repeated):
        return DUPLICATES
    values = {"wrong": len(wrong), "rows": num_moving, "first": int(wrong[0])}
    if not did[wrong].any():
        return Statement("update-rows-lost", "rows lost", values)
    return Statement("update-part-wrong", "part wrong", values)


def _repeated_rows(evidence: Evidence, name: str) -> set[int]:
    """Rows of an embedding that the towers look up more than once."""
    looked_up = [
        part.rows[name][0]
        for part in evidence.update.parts.values()
        if name in part.rows
    ]
    numbers, counts = np.unique(
        np.concatenate(looked_up or [np.zeros(0, int)]), return_counts=True
    )
    return set(numbers[counts > 1].tolist())


def _statement_of_factor(factor: float, num_towers: int) -> Statement:
    """What it means that a variable changes by `factor` times the right change, with so many towers."""
    values = {"factor": factor}
    if abs(factor) < NEAR:
        return Statement("update-missing", "not updated", values)
    if num_towers > 1 and abs(factor / num_towers - 1) < NEAR:
        return Statement("update-summed", "sum", values)
    if num_towers > 1 and abs(factor * num_towers - 1) < NEAR:
        return Statement("update-averaged", "mean", values)
    return Statement("update-factor", f"factor {factor:.3g}", values)


def _multiple(did: np.ndarray, direction: np.ndarray) -> float | None:
    """The multiple of `direction` that is nearest; None where it is 0."""
    square = norm(direction) ** 2
    return (
        float((did.astype(np.float64) * direction).sum() / square) if square else None
    )


@dataclasses.dataclass
class Findings:
    """The explanations of each variable of each replica, batch after batch."""

    # (replica, variable) -> the explanations that fit in every batch so far, best first.
    by_place: dict[tuple[int, str], list[Statement]] = dataclasses.field(
        default_factory=dict
    )

    def add(
        self, replica: int, explanations: Mapping[str, Sequence[Statement]]
    ) -> None:
        for name, found in explanations.items():
            earlier = self.by_place.get((replica, name), [RIGHT])
            both = [
                statement
                for statement in earlier
                if any(_are_alike(statement, new) for new in found)
            ]
            # What was right in one batch and wrong in another is explained by what went wrong.
            self.by_place[replica, name] = both or (
                list(found) if earlier == [RIGHT] else earlier
            )

    @property
    def are_right(self) -> bool:
        """Whether something was explained, and every variable did what it should in every batch."""
        return bool(self.by_place) and not self._wrong()

    def statements(
        self, replicas: Sequence[str], shares_one_model: bool = True
    ) -> list[Statement]:
        """What most of the wrong variables have in common; the first statement's subject is the verdict.

        replicas: the name of each, as "tower 0"; empty names where there is one for all.
        """
        wrong = self._wrong()
        if not wrong:
            return [Statement("update-growing", "unequal")]
        groups: list[list[tuple[int, str]]] = []
        for place, statement in wrong.items():
            group = next(
                (
                    places
                    for places in groups
                    if _are_alike(wrong[places[0]], statement)
                ),
                None,
            )
            if group is None:
                groups.append([place])
            else:
                group.append(place)
        places = max(
            groups, key=lambda places: (wrong[places[0]] is not UNKNOWN, len(places))
        )
        fault = wrong[places[0]]
        names = list(dict.fromkeys(name for _, name in places))
        affected = sorted({replica for replica, _ in places})
        is_everywhere = len(affected) == len(replicas)
        if set(names) == {name for _, name in self.by_place}:
            names = ["every variable"]
            fault = _fault_of_all(fault, is_everywhere and shares_one_model)
        elif fault.kind in ("update-summed", "update-averaged"):
            fault = Statement(
                "update-factor", f"factor {fault.values['factor']:.3g}", fault.values
            )
        found = [
            dataclasses.replace(fault, values={**fault.values, "variables": names})
        ]
        if not is_everywhere:
            found.append(
                Statement(
                    "verify-only-on",
                    values={"towers": [replicas[number] for number in affected]},
                )
            )
        return found

    def _wrong(self) -> dict[tuple[int, str], Statement]:
        return {
            place: found[0]
            for place, found in self.by_place.items()
            if found[0] is not RIGHT
        }


def _fault_of_all(fault: Statement, is_everywhere: bool) -> Statement:
    """The fault where it fits every variable; `is_everywhere`: on every tower that shares one model."""
    if (
        fault.values.get("factor") and not is_everywhere
    ):  # only the update itself can have a wrong factor
        return Statement("update-wrong-rate", "learning rate", fault.values)
    if fault.kind == "update-factor":
        return dataclasses.replace(fault, kind="update-factor-of-all")
    return fault


def _are_alike(first: Statement, second: Statement) -> bool:
    if "factor" in first.values and "factor" in second.values:
        factor = first.values["factor"]
        return bool(
            abs(factor - second.values["factor"]) <= NEAR * max(1.0, abs(factor))
        )
    return first == second
