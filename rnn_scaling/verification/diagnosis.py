"""Which fault explains what each variable did, and what most wrong variables have in common.

An explanation is a `Statement`: its subject is the verdict, and a `factor` among its
values is how much too far a variable changes.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.verification import trials
from rnn_scaling.verification.rule import Arrays, guarantee_of
from rnn_scaling.verification.serial import norm
from rnn_scaling.verification.trials import ReplicaUpdate

# Share of a weight's size by which one update and its difference may be off in float32.
ROUNDING = 2.0**-23
BLIND = 0.1  # share of a change: a larger uncertainty says nothing about the variable
# Share of the rows of a variable that are wrong; if more are wrong, all of them are.
LARGEST_PART = 0.7
# Elements of a variable: fewer are in proportion to their weights by chance.
LEAST_DECAYED = 8
NEAR = 0.02  # two factors this close are equal
MOST_EXPLAINED = 3  # wrong updates of a variable
UNKNOWN = Statement("update-unequal", "unequal")
Explanations = dict[str, Statement]  # by variable


def fits(update: ReplicaUpdate, name: str, change: np.ndarray, share: float) -> bool:
    """Return whether a variable did this change.

    Args:
      update: What the run did.
      name: The variable.
      change: What it should have done.
      share: Share of a change by which it may differ.
    """
    did = update.change[name]
    # A gradient whose terms cancel each other is rounded as these are: as the
    # gradients of other variables.
    farthest = max(map(norm, update.change.values()))
    rounded = ROUNDING * (norm(update.before[name]) + farthest)
    moved = max(norm(change), norm(did))
    return norm(did - change) <= share * moved + rounded or rounded > BLIND * moved


def explain(
    config: RunConfig, updates: Sequence[ReplicaUpdate], first: int
) -> Explanations:
    """Return why each wrong variable of one replica does what it does.

    Args:
      config: The options of the run.
      updates: Its updates, one after the other.
      first: Index of the first update that may be wrong. What an update depends on
        is known only up to a wrong one, unless the optimizer is SGD.

    Returns:
      The explanation of each variable that was wrong; UNKNOWN if there is none.
    """
    guarantee = guarantee_of(config)
    share = guarantee.share
    right = list(trials.UNCHANGED.changes(config, updates))
    is_plain = config.training.optimizer == "sgd"
    judged = range(first, len(updates))[: None if is_plain else 1]
    wrong: dict[str, list[int]] = {}
    for name in right[0]:
        indices = [
            index
            for index in judged
            if not fits(updates[index], name, right[index][name], share)
        ]
        if indices:
            wrong[name] = indices[:MOST_EXPLAINED]
    # (explanation, the updates that it explains) of each variable, the likelier first.
    found: dict[str, list[tuple[Statement, int]]] = {name: [] for name in wrong}
    num_towers = config.num_towers if guarantee.shares_one_model else 1
    for name, indices in wrong.items():
        factors = [
            _factor(updates[index], name, right[index][name], guarantee.share)
            for index in indices
        ]
        if factors[0] is not None:
            num_alike = sum(_are_near(factors[0], factor) for factor in factors)
            statement = _statement_of_factor(factors[0], num_towers)
            found[name].append((statement, num_alike))
    for trial in trials.wrong_sums(config) if wrong else ():
        predicted = list(trial.changes(config, updates))
        for name, indices in wrong.items():
            explained = [
                fits(updates[index], name, predicted[index][name], share)
                for index in indices
            ]
            if explained[0]:
                found[name].append((trial.fault, sum(explained)))
    explanations = {}
    for name, candidates in found.items():
        if candidates:
            explanations[name] = max(candidates, key=lambda each: each[1])[0]
    unknown = {name: wrong[name][0] for name in wrong if name not in explanations}
    return explanations | _explain_elements(updates, unknown, right, share)


def _factor(
    update: ReplicaUpdate, name: str, expected: np.ndarray, share: float
) -> float | None:
    """Return how many times the right change a variable did; None for no multiple."""
    factor = _multiple(update.change[name], expected)
    if factor is None or not fits(update, name, np.float32(factor) * expected, share):
        return None
    return factor


def _statement_of_factor(factor: float, num_towers: int) -> Statement:
    """Return what it means that a variable does a multiple of the right change."""
    meanings = [(0.0, "update-missing", "not updated")]
    if num_towers > 1:
        meanings.append((num_towers, "update-summed", "sum"))
        meanings.append((1 / num_towers, "update-averaged", "mean"))
    for meant, kind, verdict in meanings:
        if abs(factor - meant) < NEAR * (meant or 1.0):
            return Statement(kind, verdict, {"factor": factor})
    return Statement("update-factor", f"factor {factor:.3g}", {"factor": factor})


def _explain_elements(
    updates: Sequence[ReplicaUpdate],
    unknown: Mapping[str, int],
    right: Sequence[Arrays],
    share: float,
) -> Explanations:
    """Return what the elements of variables have in common that nothing else explains.

    Args:
      updates: The updates of the run.
      unknown: Index of the first wrong update of each variable.
      right: What each update should have done.
      share: Share of a change by which it may differ.
    """
    if not unknown:
        return {}
    pairs = {
        name: (updates[index].change[name], right[index][name])
        for name, index in unknown.items()
    }
    if _are_reordered(pairs.values(), share):
        return dict.fromkeys(unknown, Statement("update-wrong-order", "wrong order"))
    explanations = {}
    for name, index in unknown.items():
        update = updates[index]
        expected = right[index][name]
        if _is_decayed(update, name, expected, share):
            statement = Statement("update-weight-decay", "weight decay")
        else:
            statement = _statement_of_rows(update, name, expected, share) or UNKNOWN
        explanations[name] = statement
    return explanations


def _are_reordered(
    pairs: Iterable[tuple[np.ndarray, np.ndarray]], share: float
) -> bool:
    """Return whether all changes are right together, but in other places."""
    did, expected = (
        np.sort(np.concatenate([array.ravel() for array in arrays]))
        for arrays in zip(*pairs)
    )
    return norm(did - expected) <= 4 * share * norm(expected)


def _is_decayed(
    update: ReplicaUpdate, name: str, change: np.ndarray, share: float
) -> bool:
    """Return whether a part of the weights is taken off in addition to the change."""
    before = update.before[name]
    if before.size < LEAST_DECAYED:
        return False
    decay = _multiple(update.change[name] - change, before)
    if decay is None or decay >= 0:
        return False
    return fits(update, name, change + np.float32(decay) * before, share)


def _statement_of_rows(
    update: ReplicaUpdate, name: str, change: np.ndarray, share: float
) -> Statement | None:
    """Return what it means that some rows, or elements of a vector, are wrong."""
    did = update.change[name].reshape(len(change) if change.ndim else 1, -1)
    expected = change.reshape(did.shape)
    largest = np.abs(expected).max(axis=1)
    size = np.abs(update.before[name]).max() + largest.max(initial=0.0)
    allowed = 4 * share * largest + 4 * ROUNDING * size
    num_moving = int((largest + np.abs(did).max(axis=1) > 0).sum())
    wrong = np.flatnonzero(np.abs(did - expected).max(axis=1) > allowed)
    if not 0 < len(wrong) <= LARGEST_PART * num_moving:
        return None
    repeated = _repeated_rows(update, name)
    if len(wrong) > 1 and set(wrong) <= repeated and len(wrong) > 0.5 * len(repeated):
        return Statement("update-duplicate-rows", "duplicate rows")
    values = {"wrong": len(wrong), "rows": num_moving, "first": int(wrong[0])}
    if not did[wrong].any():
        return Statement("update-rows-lost", "rows lost", values)
    return Statement("update-part-wrong", "part wrong", values)


def _repeated_rows(update: ReplicaUpdate, name: str) -> set[int]:
    """Return the rows of an embedding that the towers look up more than once."""
    looked_up = [np.zeros(0, int)]
    for part in update.parts.values():
        if name in part.rows:
            looked_up.append(part.rows[name][0])
    numbers, counts = np.unique(np.concatenate(looked_up), return_counts=True)
    return set(numbers[counts > 1].tolist())


def _multiple(did: np.ndarray, direction: np.ndarray) -> float | None:
    """Return the nearest multiple of `direction`, or None if that is 0."""
    square = norm(direction) ** 2
    if not square:
        return None
    return float((did.astype(np.float64) * direction).sum() / square)


def common_fault(
    by_replica: Mapping[str, Explanations],
    variables: Sequence[str],
    shares_one_model: bool = True,
) -> list[Statement]:
    """Return what most of the wrong variables have in common.

    Args:
      by_replica: The explanations of each replica by its name, such as "tower 0".
      variables: All variables.
      shares_one_model: Whether all replicas are copies of one model.

    Returns:
      Statements; the subject of the first is the verdict.
    """
    groups: list[list[tuple[str, str, Statement]]] = []
    for replica, explanations in by_replica.items():
        for name, statement in explanations.items():
            place = (replica, name, statement)
            alike = [group for group in groups if _are_alike(group[0][2], statement)]
            if alike:
                alike[0].append(place)
            else:
                groups.append([place])
    if not groups:
        return [Statement("update-growing", "unequal")]
    largest = max(groups, key=lambda group: (group[0][2] is not UNKNOWN, len(group)))
    fault = largest[0][2]
    names = list(dict.fromkeys(name for _, name, _ in largest))
    affected = [name for name in by_replica if any(name == each[0] for each in largest)]
    is_everywhere = len(affected) == len(by_replica)
    if set(names) == set(variables):
        names = ["every variable"]
        fault = _fault_of_all(fault, is_everywhere and shares_one_model)
    elif fault.kind in ("update-summed", "update-averaged"):
        factor = fault.values["factor"]
        fault = Statement("update-factor", f"factor {factor:.3g}", fault.values)
    found = [dataclasses.replace(fault, values={**fault.values, "variables": names})]
    if not is_everywhere:
        found.append(Statement("verify-only-on", values={"towers": affected}))
    return found


def _fault_of_all(fault: Statement, is_everywhere: bool) -> Statement:
    """Return the fault if it fits every variable.

    Args:
      fault: The fault of one variable.
      is_everywhere: Whether all towers share one model and have the fault.
    """
    # Only the update itself can have a wrong factor.
    if fault.values.get("factor") and not is_everywhere:
        return Statement("update-wrong-rate", "learning rate", fault.values)
    if fault.kind == "update-factor":
        return dataclasses.replace(fault, kind="update-factor-of-all")
    return fault


def _are_alike(first: Statement, second: Statement) -> bool:
    if "factor" in first.values and "factor" in second.values:
        return _are_near(first.values["factor"], second.values["factor"])
    return first == second


def _are_near(first: float, second: float | None) -> bool:
    return second is not None and abs(first - second) <= NEAR * max(1.0, abs(first))
