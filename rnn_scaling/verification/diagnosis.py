"""Find the fault that explains each wrong variable, and the fault that most share.

An explanation is a `Statement`. Its subject is the verdict. Its value `factor`, if any,
is the change of the variable divided by the right change.

A fault is a row of `signatures`; this module measures its features.
"""

import dataclasses
import operator
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.verification import signatures, sums, trials
from rnn_scaling.verification.rule import Arrays, Guarantee, norm
from rnn_scaling.verification.signatures import Cause, GradientFeatures, Subject
from rnn_scaling.verification.trials import ReplicaUpdate

# Share of a weight's size that one update and its difference may lose in float32.
ROUNDING = 2.0**-23
# Share of a change. With a larger uncertainty the variable is not judged.
MAX_UNCERTAINTY = 0.1
# Share of the rows of a variable. If more are wrong, the whole variable is.
_MAX_WRONG_ROWS = 0.7
# Elements of a variable. Fewer may be in proportion to their weights by chance.
_MIN_DECAYED_ELEMENTS = 8
_MIN_CHUNK_SHARE = 0.9  # share of the elements of a wrong chunk that differ visibly
_MIN_RIGHT_SHARE = 0.1  # share of a variable's elements that a chunk leaves out
_FACTOR_TOLERANCE = 0.02  # difference of two factors that count as equal
MAX_EXPLAINED = 3  # wrong updates of a variable that are explained
_UNKNOWN = Statement("update-unequal", "unequal")
# Causes that no trial computes.
_WRONG_WEIGHTS = {
    Cause.LAST_NOT_SYNCHRONISED: Statement(
        "update-last-not-exchanged", "not exchanged"
    ),
    Cause.SOME_NOT_SYNCHRONISED: Statement(
        "update-some-not-exchanged", "not exchanged"
    ),
    Cause.MICRO_BATCH_LOST: Statement("update-micro-batch-lost", "micro-batch lost"),
    Cause.MICRO_BATCH_REPEATED: Statement(
        "update-micro-batch-repeated", "micro-batch repeated"
    ),
}
Explanations = dict[str, Statement]  # variable -> its explanation


def is_change(
    update: ReplicaUpdate, name: str, change: np.ndarray, share: float
) -> bool:
    """Return whether a variable changed as expected.

    Args:
      update: The update of the run.
      name: The variable.
      change: The expected change.
      share: Share of a change by which it may differ.
    """
    actual = update.change[name]
    # If the terms of a gradient cancel, it is rounded like the gradients of others.
    largest = max(map(norm, update.change.values()))
    rounding = ROUNDING * (norm(update.weights_before[name]) + largest)
    distance = max(norm(change), norm(actual))
    if rounding > MAX_UNCERTAINTY * distance:
        return True
    return norm(actual - change) <= share * distance + rounding


def explain(
    config: RunConfig, updates: Sequence[ReplicaUpdate], first: int
) -> Explanations:
    """Explain each wrong variable of one replica.

    Args:
      config: The options of the run.
      updates: The updates of the replica in order.
      first: Index of the first update that may be wrong. Later ones are only judged
        with SGD, because other optimizers depend on the wrong update.

    Returns:
      The explanation of each wrong variable, UNKNOWN if no fault explains it.
    """
    share = Guarantee.from_config(config).share
    right_changes = list(trials.UNCHANGED.compute_changes(config, updates))
    judged_numbers = range(first, len(updates))
    if config.training.optimizer != "sgd":
        judged_numbers = judged_numbers[:1]
    wrong_batches: dict[str, list[int]] = {}
    for name in right_changes[0]:
        indices = [
            index
            for index in judged_numbers
            if not is_change(updates[index], name, right_changes[index][name], share)
        ]
        if indices:
            wrong_batches[name] = indices[:MAX_EXPLAINED]
    if not wrong_batches:
        return {}
    number = min(min(indices) for indices in wrong_batches.values())
    if chunk := _wrong_chunk_statement(updates[number], right_changes[number], share):
        return dict.fromkeys(wrong_batches, chunk)
    explanations = _explain_sums(config, updates, right_changes, wrong_batches)
    unexplained = {
        name: wrong_batches[name][0]
        for name in wrong_batches
        if name not in explanations
    }
    explanations |= _explain_elements(updates, unexplained, right_changes, share)
    if config.training.optimizer == "sgd":
        for name, index in unexplained.items():
            if explanations[name] is _UNKNOWN:
                explanations[name] = _explain_weights(updates[index], name)
    return explanations


def _explain_sums(
    config: RunConfig,
    updates: Sequence[ReplicaUpdate],
    right_changes: Sequence[Arrays],
    wrong_batches: Mapping[str, Sequence[int]],
) -> Explanations:
    """Explain variables whose change is a multiple, or another sum of gradients.

    Args:
      config: The options of the run.
      updates: The updates of the replica in order.
      right_changes: The right change of each update.
      wrong_batches: Indices of the wrong updates of each variable.
    """
    guarantee = Guarantee.from_config(config)
    share = guarantee.share
    # Per variable: explanations, the likelier first, and how many updates each
    # explains.
    candidates: dict[str, list[tuple[Statement, int]]] = {
        name: [] for name in wrong_batches
    }
    num_towers = config.num_towers if guarantee.shares_one_model else 1
    for name, indices in wrong_batches.items():
        factors = [
            _change_factor(updates[index], name, right_changes[index][name], share)
            for index in indices
        ]
        if factors[0] is not None:
            num_alike = sum(_are_near(factors[0], factor) for factor in factors)
            statement = _factor_statement(factors[0], num_towers)
            candidates[name].append((statement, num_alike))
    for trial in trials.wrong_sums(config):
        predicted = list(trial.compute_changes(config, updates))
        for name, indices in wrong_batches.items():
            explained_names = [
                is_change(updates[index], name, predicted[index][name], share)
                for index in indices
            ]
            if explained_names[0]:
                candidates[name].append((trial.fault, sum(explained_names)))
    explanations = {}
    for name, statements in candidates.items():
        if statements:
            explanations[name], _ = max(statements, key=operator.itemgetter(1))
    return explanations


def _change_factor(
    update: ReplicaUpdate, name: str, expected: np.ndarray, share: float
) -> float | None:
    """Return the change divided by the right change, or None if it is not a multiple."""
    factor = _nearest_factor(update.change[name], expected)
    if factor is None or not is_change(
        update, name, np.float32(factor) * expected, share
    ):
        return None
    return factor


def _factor_statement(factor: float, num_towers: int) -> Statement:
    """Return the fault of a variable that does a multiple of the right change."""
    meanings = [(0.0, "update-missing", "not updated")]
    if num_towers > 1:
        meanings.append((num_towers, "update-summed", "sum"))
        meanings.append((1 / num_towers, "update-averaged", "mean"))
    for meant, kind, verdict in meanings:
        if abs(factor - meant) < _FACTOR_TOLERANCE * (meant or 1.0):
            return Statement(kind, verdict, {"factor": factor})
    return Statement("update-factor", f"factor {factor:.3g}", {"factor": factor})


def _explain_elements(
    updates: Sequence[ReplicaUpdate],
    unexplained: Mapping[str, int],
    right_changes: Sequence[Arrays],
    share: float,
) -> Explanations:
    """Explain variables by the pattern of their wrong elements.

    Args:
      updates: The updates of the run.
      unexplained: Index of the first wrong update of each unexplained variable.
      right_changes: The right change of each update.
      share: Share of a change by which it may differ.
    """
    if not unexplained:
        return {}
    pairs = [
        (updates[index].change[name], right_changes[index][name])
        for name, index in unexplained.items()
    ]
    if _are_reordered(pairs, share):
        return dict.fromkeys(
            unexplained, Statement("update-wrong-order", "wrong order")
        )
    explanations = {}
    for name, index in unexplained.items():
        update = updates[index]
        expected = right_changes[index][name]
        if _is_decayed(update, name, expected, share):
            statement = Statement("update-weight-decay", "weight decay")
        else:
            statement = _rows_statement(update, name, expected, share) or _UNKNOWN
        explanations[name] = statement
    return explanations


def _explain_weights(update: ReplicaUpdate, name: str) -> Statement:
    """Explain a variable by the weights of all gradients in its change.

    The weights have the features of a script's gradients, so one table names the cause.
    """
    local_gradients = []
    for part in update.parts.values():
        passes = part.micro_gradients or [part.gradient]
        local_gradients.append([{name: arrays[name].ravel()} for arrays in passes])
    change = {name: -update.change[name].ravel()}
    sum_weights = sums.weigh(
        change, local_gradients, {name: update.weights_before[name].ravel()}
    )
    if sum_weights is None or sum_weights.residual > sums.MIN_SHARE:
        return _UNKNOWN
    right_weights = np.ones_like(sum_weights.weights)
    over_ranks, over_micro = sums.pattern(
        update.tower or 0, sum_weights.weights, right_weights
    )
    features = GradientFeatures(over_ranks=over_ranks, over_micro=over_micro)
    cause = signatures.find_cause(Subject.GRADIENTS, features)
    return _WRONG_WEIGHTS.get(cause, _UNKNOWN)


def _are_reordered(
    pairs: Sequence[tuple[np.ndarray, np.ndarray]], share: float
) -> bool:
    """Return whether the changes have the right values in the wrong order."""
    actual = np.sort(np.concatenate([array.ravel() for array, _ in pairs]))
    expected = np.sort(np.concatenate([array.ravel() for _, array in pairs]))
    return norm(actual - expected) <= 4 * share * norm(expected)


def _is_decayed(
    update: ReplicaUpdate, name: str, change: np.ndarray, share: float
) -> bool:
    """Return whether the weights were also decayed."""
    weights_before = update.weights_before[name]
    if weights_before.size < _MIN_DECAYED_ELEMENTS:
        return False
    decay = _nearest_factor(update.change[name] - change, weights_before)
    if decay is None or decay >= 0:
        return False
    return is_change(update, name, change + np.float32(decay) * weights_before, share)


def _rows_statement(
    update: ReplicaUpdate, name: str, change: np.ndarray, share: float
) -> Statement | None:
    """Return the fault of a variable with some wrong rows, or elements of a vector."""
    actual = update.change[name].reshape(len(change) if change.ndim else 1, -1)
    expected = change.reshape(actual.shape)
    largest = np.abs(expected).max(axis=1)
    size = np.abs(update.weights_before[name]).max() + largest.max(initial=0.0)
    allowed_error = 4 * share * largest + 4 * ROUNDING * size
    num_moving = int((largest + np.abs(actual).max(axis=1) > 0).sum())
    wrong_rows = np.flatnonzero(np.abs(actual - expected).max(axis=1) > allowed_error)
    if not 0 < len(wrong_rows) <= _MAX_WRONG_ROWS * num_moving:
        return None
    repeated = _find_repeated_rows(update, name)
    if (
        len(wrong_rows) > 1
        and set(wrong_rows) <= repeated
        and len(wrong_rows) > 0.5 * len(repeated)
    ):
        return Statement("update-duplicate-rows", "duplicate rows")
    values = {"wrong": len(wrong_rows), "rows": num_moving, "first": int(wrong_rows[0])}
    if not actual[wrong_rows].any():
        return Statement("update-rows-lost", "rows lost", values)
    return Statement("update-part-wrong", "part wrong", values)


def _wrong_chunk_statement(
    update: ReplicaUpdate, right_change: Arrays, share: float
) -> Statement | None:
    """Return the fault if the wrong elements are one part of all variables in order.

    An exchange packs variables and cuts the pack into chunks, so a chunk begins or ends
    inside of a variable and continues in the next one.
    """
    masks = []
    for name, expected in right_change.items():
        actual = update.change[name]
        largest = np.abs(expected).max(initial=0.0)
        size = np.abs(update.weights_before[name]).max(initial=0.0) + largest
        allowed_error = 4 * share * largest + 4 * ROUNDING * size
        is_moving = (expected != 0) | (actual != 0)
        masks.append((np.abs(actual - expected) > allowed_error)[is_moving])
    wrong_elements = np.flatnonzero(np.concatenate(masks))
    if not len(wrong_elements):
        return None
    ends = np.cumsum([mask.size for mask in masks])
    first, last = np.searchsorted(
        ends, (wrong_elements[0], wrong_elements[-1]), side="right"
    )
    # Elements of the first and the last variable that are outside of the chunk.
    num_before = wrong_elements[0] - (ends[first] - masks[first].size)
    num_after = ends[last] - 1 - wrong_elements[-1]
    is_part = (
        num_before > _MIN_RIGHT_SHARE * masks[first].size
        or num_after > _MIN_RIGHT_SHARE * masks[last].size
    )
    length = int(wrong_elements[-1] - wrong_elements[0]) + 1
    if first == last or not is_part or len(wrong_elements) < _MIN_CHUNK_SHARE * length:
        return None
    values = {
        "elements": len(wrong_elements),
        "of": int(ends[-1]),
        "first": [*right_change][first],
    }
    return Statement("update-wrong-chunk", "wrong chunk", values)


def _find_repeated_rows(update: ReplicaUpdate, name: str) -> set[int]:
    """Return the rows of an embedding that the towers look up more than once."""
    row_ids = [np.zeros(0, int)]
    for part in update.parts.values():
        if name in part.rows:
            row_ids.append(part.rows[name][0])
    numbers, counts = np.unique(np.concatenate(row_ids), return_counts=True)
    return set(numbers[counts > 1].tolist())


def _nearest_factor(array: np.ndarray, direction: np.ndarray) -> float | None:
    """Return the factor of `direction` nearest to `array`; None if it has no length."""
    square = norm(direction) ** 2
    if not square:
        return None
    return float((array.astype(np.float64) * direction).sum() / square)


def common_fault(
    by_replica: Mapping[str, Explanations],
    variables: Sequence[str],
    shares_one_model: bool = True,
    wrong_replicas: Collection[str] = (),
) -> list[Statement]:
    """Return the fault that most of the wrong variables share.

    Args:
      by_replica: The explanations of each replica by its name, such as "tower 0".
      variables: All variables.
      shares_one_model: Whether all replicas are copies of one model.
      wrong_replicas: Names of replicas that are known to be wrong in any way.

    Returns:
      Statements; the subject of the first is the verdict.
    """
    groups: list[list[tuple[str, str, Statement]]] = []
    for replica, explanations in by_replica.items():
        for name, statement in explanations.items():
            for group in groups:
                if _are_alike(group[0][2], statement):
                    group.append((replica, name, statement))
                    break
            else:
                groups.append([(replica, name, statement)])
    if not groups:
        return [Statement("update-growing", "unequal")]
    largest = max(groups, key=lambda group: (group[0][2] is not _UNKNOWN, len(group)))
    fault = largest[0][2]
    names = list(dict.fromkeys(name for _, name, _ in largest))
    alike_replicas = {replica for replica, _, _ in largest}
    is_everywhere = len(alike_replicas) == len(by_replica)
    if set(names) == set(variables):
        names = ["every variable"]
        fault = _shared_fault(fault, is_everywhere and shares_one_model)
    elif fault.kind in ("update-summed", "update-averaged"):
        factor = fault.values["factor"]
        fault = Statement("update-factor", f"factor {factor:.3g}", fault.values)
    fault = dataclasses.replace(fault, values={**fault.values, "variables": names})
    return [fault, *affected_replicas(by_replica, wrong_replicas)]


def affected_replicas(
    by_replica: Mapping[str, Explanations], wrong_replicas: Collection[str]
) -> list[Statement]:
    """Return the statement that only some replicas are wrong, or [] if all are.

    Args:
      by_replica: The explanations of each replica by its name; {} if it is right.
      wrong_replicas: Names of further wrong replicas, even if nothing explains them.
    """
    affected = []
    for replica, explanations in by_replica.items():
        if explanations or replica in wrong_replicas:
            affected.append(replica)
    if len(affected) == len(by_replica):
        return []
    return [Statement("verify-only-on", values={"towers": affected})]


def _shared_fault(fault: Statement, is_everywhere: bool) -> Statement:
    """Return the statement if all variables share a fault.

    Args:
      fault: The fault of each variable.
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
    return second is not None and abs(first - second) <= _FACTOR_TOLERANCE * max(
        1.0, abs(first)
    )
