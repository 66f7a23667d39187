"""The part `certificate`: whether a run trains like serial training.

Field names are keys of record files; rename only with metadata `older`, see
decoding.py. Verdicts are stored too, and _INPUT_VERDICTS must equal the texts that the
modules of rnn_scaling.verification write.

Certifiers in `verification` make the parts, and the trainer stores them.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from rnn_scaling.records.decoding import Loss, Name, Part, PositiveCount, Seconds

# Verdicts about wrong inputs.
_INPUT_VERDICTS = (
    "same batch",
    "another's batch",
    "another's dropout",
    "items left out",
    "samples left out",
    "other weights",
)
Difference = Seconds  # 0 or any positive number


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedBatch(Part):
    """One batch, trained serially and in parallel."""

    loss_serial: Loss | None
    loss_parallel: Loss | None
    weights_difference: Difference | None  # the largest one after the batch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check(Part):
    """One comparison."""

    name: Name
    holds: bool | None  # None if this machine cannot check it; `text` has the reason
    text: str  # names the compared things
    difference: Difference | None = None  # the largest one
    tolerance: Difference | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Part):
    """Evidence that a run trains like serial training."""

    verdict: Name  # such as "equal within 1e-05", "stale by 1 step" or "sum"
    holds: bool  # whether the verdict is the one that the mode promises
    # A sentence that older versions wrote.
    sentence: str | None = dataclasses.field(default=None, metadata={"former": True})
    statements: tuple[Mapping[str, Any], ...] = ()  # the verdict as data
    compared: str = ""  # names the compared trainings
    replicas: PositiveCount = 1  # number of compared replicas
    # Allowed difference of a variable, relative to the distance that it moved.
    tolerance: Difference | None = None
    loss_difference: Difference | None = None  # the largest, relative to the loss
    weights_difference: Difference | None = None  # the largest of one weight
    weights_moved: Difference | None = None  # the largest distance of one weight
    batches: tuple[CertifiedBatch, ...] = ()
    checks: tuple[Check, ...] = ()


def merge(certificates: Iterable[Certificate]) -> Certificate | None:
    """Return one certificate for all processes of a run, or None without certificates.

    It has the fault of one process and the largest differences of all. A fault in the
    inputs of one process explains differences of the weights in other processes.
    """
    certificates = list(certificates)
    if not certificates:
        return None
    return dataclasses.replace(
        min(certificates, key=_make_severity_key),
        replicas=sum(c.replicas for c in certificates),
        loss_difference=_find_largest_known(c.loss_difference for c in certificates),
        weights_difference=_find_largest_known(
            c.weights_difference for c in certificates
        ),
        weights_moved=_find_largest_known(c.weights_moved for c in certificates),
        checks=_select_worst_checks(
            chain.from_iterable(c.checks for c in certificates)
        ),
    )


def _make_severity_key(certificate: Certificate) -> tuple[bool, bool]:
    """Return a sort key that is lowest for faults of the inputs."""
    return certificate.holds, certificate.verdict not in _INPUT_VERDICTS


def _select_worst_checks(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Return for each name a failed check or the check with the largest difference."""
    worst: dict[str, Check] = {}
    for check in checks:
        previous = worst.get(check.name)
        if previous is None or _check_severity(check) < _check_severity(previous):
            worst[check.name] = check
    return tuple(worst.values())


def _check_severity(check: Check) -> tuple[bool, float]:
    return check.holds is not False, -(check.difference or 0.0)


def _find_largest_known(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)
