"""Series that train otherwise on more devices, and what finds the reason.

`conclusions` shows the alarms, and `comparison_statements` the changes.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.training_differences import (
    ChangedTraining,
    Quantity,
    TrainingDifference,
    check_command,
)
from rnn_scaling.reports.summary import Summary

# Kinds of the statements about a quantity on more devices, and before and after.
_ON_MORE_DEVICES = {
    Quantity.LEARNING_RATE: "other-learning-rates",
    Quantity.GRADIENT_NORM: "other-gradient-norms",
    Quantity.LOSS: "other-losses",
}
_AFTER_A_CHANGE = {
    Quantity.LEARNING_RATE: "other-learning-rates-after",
    Quantity.GRADIENT_NORM: "other-gradient-norms-after",
    Quantity.LOSS: "other-losses-after",
}
REMEDY = "other-training-remedy"
# A loss of the first step is computed before the first update.
_BEFORE_ANY_UPDATE = "other-losses-before-an-update"
_OF_A_LOG = "other-losses-of-a-log"
_MORE_CONFIGURATIONS = "other-training-elsewhere"
KINDS = (*_ON_MORE_DEVICES.values(), _BEFORE_ANY_UPDATE, _OF_A_LOG, REMEDY)


def make_alarms(summary: Summary) -> list[Statement]:
    """State which series train otherwise on more devices; the answer begins with them.

    The statements are about the fewest devices of each series that train otherwise.
    """
    titles = [summary.row_titles[proof.row] for proof in summary.other_training]
    alarm_statements = []
    for title, proofs in group_by(summary.other_training, titles).items():
        first = proofs[0]
        names = {
            "devices": [proof.row.devices for proof in proofs],
            "fewest": first.row.devices,
            "fewer_devices": first.reference.devices,
        }
        for difference in first.differences:
            kind = _ON_MORE_DEVICES[difference.quantity]
            alarm_statements.append(
                state(kind, title, **names, **_list_difference_values(difference))
            )
        alarm_statements += _state_harmless_reasons(first.differences[0])
        alarm_statements.append(
            _state_remedy(first.differences, check_command(first.row))
        )
    return alarm_statements


def state_changes(
    changes: Sequence[ChangedTraining], sides: Sequence[str]
) -> Iterator[Statement]:
    """State how the first configuration with another training trains otherwise.

    Args:
      changes: The configurations.
      sides: The names of the sides before and after.
    """
    if not changes:
        return
    change = changes[0]
    names = {"before": sides[0], "after": sides[1]}
    for difference in change.differences:
        kind = _AFTER_A_CHANGE[difference.quantity]
        yield state(kind, change.label, **names, **_list_difference_values(difference))
    if len(changes) > 1:
        yield state(_MORE_CONFIGURATIONS, **names, others=len(changes) - 1)
    yield _state_remedy(change.differences, change.command)


def _state_remedy(differences: Sequence[TrainingDifference], command: str) -> Statement:
    """State why the differences are not chance, and the command that explains them."""
    return state(REMEDY, repeats=differences[0].repeats, command=command)


def _list_difference_values(difference: TrainingDifference) -> dict[str, Any]:
    return {
        "place": "recorded batch" if difference.is_logged else "step",
        "step": difference.step,
        "value": difference.value,
        "reference_value": difference.reference_value,
    }


def _state_harmless_reasons(first: TrainingDifference) -> list[Statement]:
    """State why losses may differ although the training is right; [] if nothing can.

    Args:
      first: The first difference.
    """
    if first.quantity is not Quantity.LOSS or first.step > 1:
        return []
    return [state(_OF_A_LOG if first.is_logged else _BEFORE_ANY_UPDATE)]
