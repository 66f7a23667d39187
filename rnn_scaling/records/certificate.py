"""What a run's record says of whether its mode trains right: the part `certificate`."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from rnn_scaling.records.decoding import Loss, Name, Part, PositiveCount, Seconds

OF_INPUTS = (  # verdicts
    *("same batch", "another's batch", "another's dropout"),
    *("items left out", "samples left out", "other weights"),
)
Difference = Seconds  # any number that is not negative


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CertifiedBatch(Part):
    """One batch: the loss of both, and the largest difference of a weight after it."""

    loss_serial: Loss | None
    loss_parallel: Loss | None
    weights_difference: Difference | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Check(Part):
    """One comparison. holds: None where it could not be tried here, as the text says; text: what was compared."""

    name: Name
    holds: bool | None
    text: str
    difference: Difference | None = None
    tolerance: Difference | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Certificate(Part):
    verdict: Name  # in a word or two, as "equal within 1e-05", "stale by 1 step", "sum"
    holds: bool  # whether that is what the mode promises
    # The same for a person, which older versions wrote.
    sentence: str | None = dataclasses.field(default=None, metadata={"former": True})
    statements: tuple[Mapping[str, Any], ...] = ()  # the same as data
    compared: str = ""  # what with what
    replicas: PositiveCount = 1  # how many were compared
    tolerance: Difference | None = (
        None  # the share of a variable's way by which it may differ
    )
    loss_difference: Difference | None = None  # the largest, as a share of the loss
    weights_difference: Difference | None = None  # the largest of a weight
    weights_moved: Difference | None = None  # the largest way of one
    batches: tuple[CertifiedBatch, ...] = ()
    checks: tuple[
        Check, ...
    ] = ()  # what was compared, each with its largest difference


def joined(certificates: Iterable[Certificate]) -> Certificate | None:
    """The result of all processes of a run: the fault of one, the largest differences of all.

    A fault that a process sees in its inputs explains what others see in their weights.
    """
    several = list(certificates)
    if not several:
        return None
    decisive = min(
        several,
        key=lambda certificate: (
            certificate.holds,
            certificate.verdict not in OF_INPUTS,
        ),
    )
    return dataclasses.replace(
        decisive,
        replicas=sum(certificate.replicas for certificate in several),
        loss_difference=_largest(
            certificate.loss_difference for certificate in several
        ),
        weights_difference=_largest(
            certificate.weights_difference for certificate in several
        ),
        weights_moved=_largest(certificate.weights_moved for certificate in several),
        checks=_worst(check for certificate in several for check in certificate.checks),
    )


def _worst(checks: Iterable[Check]) -> tuple[Check, ...]:
    """Of each name the check that failed, or else the one with the largest difference."""
    worst: dict[str, Check] = {}
    for check in checks:
        both = worst.get(check.name, check), check
        worst[check.name] = min(
            both,
            key=lambda check: (check.holds is not False, -(check.difference or 0.0)),
        )
    return tuple(worst.values())


def _largest(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)
