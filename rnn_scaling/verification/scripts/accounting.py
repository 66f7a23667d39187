"""Judge gradients without a serial run on the same samples: by their parts. Pure.

The hooks record for each loss over targets its number of targets T, its sum S, and the
factor s of its gradient. The exchange adds the local gradients with weights w. So each
target counts w * s. This must be the same on all processes, and T * w * s added over
all processes must be what it is on one process. What the loss contains apart from s *
S, such as a regulariser, must count as often as on one process.

The judges ask for an `Account` of a step and compare its meaning with one process.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TOLERANCE = 2e-3  # tolerance of sums and weights, which are float32 or fitted
TOLERANCE_OF_REST = 1e-2
_MIN_REST = 1e-3  # share of the loss that a regulariser has at least

Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Account:
    """The loss of one step of one rank, summed up by micro-batch.

    Attributes:
      targets: Number of targets T of each micro-batch.
      scales: The factor s of each micro-batch.
      rests: The part of the loss apart from s * S of each micro-batch.
      losses: The loss of each micro-batch.
    """

    targets: np.ndarray
    scales: np.ndarray
    rests: np.ndarray
    losses: np.ndarray

    @property
    def weight(self) -> float:
        """The weight of all targets together, which is 1 for a mean."""
        return float(self.targets @ self.scales)


def account(step: Record) -> Account | None:
    """Return the account of a step; None if a micro-batch has not exactly one loss."""
    rows = []
    for micro in step["micro"]:
        criteria = micro.get("criteria") or []
        if len(criteria) != 1 or not criteria[0]["scale"]:
            return None
        (one,) = criteria
        rest = micro["loss"] - one["scale"] * one["sum"]
        rows.append((one["count"], one["scale"], rest, micro["loss"]))
    if not rows:
        return None
    return Account(*np.array(rows, dtype=float).T)


def serial_total(steps: Sequence[Record]) -> float | None:
    """Return T * s of one process if it is the same at each step; None if it is not."""
    totals = []
    for step in steps:
        found = account(step)
        if found is None:
            return None
        totals.append(found.weight)
    if totals and np.allclose(totals, totals[0], rtol=TOLERANCE):
        return totals[0]
    return None


def losses_differ(steps: Sequence[Record], serial_step: Record) -> bool:
    """Return whether ranks compute another sum of losses than one process."""
    totals = []
    for group in (steps, [serial_step]):
        total = 0.0
        for step in group:
            for micro in step["micro"]:
                total += sum(one["sum"] for one in micro.get("criteria") or [])
        totals.append(total)
    return not np.isclose(totals[0], totals[1], rtol=TOLERANCE_OF_REST)


def counts_ranks_alike(steps: Sequence[Record]) -> bool:
    """Return whether the ranks count alike, although their numbers of targets differ."""
    accounts = [account(step) for step in steps]
    known = [found for found in accounts if found is not None]
    if len(known) < len(steps):
        return False
    targets = [float(found.targets.sum()) for found in known]
    shares = [found.weight for found in known]
    if np.allclose(targets, targets[0], rtol=TOLERANCE):
        return False
    return bool(np.allclose(shares, shares[0], rtol=TOLERANCE))


def counts_padding(steps: Sequence[Record]) -> bool:
    """Return whether one process divides each loss by all positions, with padding."""
    products = []
    has_padding = False
    for step in steps:
        for micro in step["micro"]:
            for one in micro.get("criteria") or []:
                positions = one.get("positions", 0)
                products.append(one["scale"] * positions)
                has_padding |= positions > one["count"]
    return has_padding and bool(np.allclose(products, products[0], rtol=TOLERANCE))


@dataclasses.dataclass(frozen=True)
class Balance:
    """The weights of the targets and of the rest of the loss.

    Attributes:
      targets: T of each micro-batch of each rank, [rank][micro-batch].
      per_target: w * s of each micro-batch of each rank.
      share: T * w * s of each micro-batch of each rank.
      factor: Their sum divided by the one of one process; None if it is unknown.
      rest: The rest of the loss divided by the one of one process; None without one.
      missing: Targets of one process that the ranks leave out, if all their targets
        count as much as its own; 0 otherwise.
    """

    targets: np.ndarray
    per_target: np.ndarray
    share: np.ndarray
    factor: float | None
    rest: float | None
    missing: int = 0

    @property
    def is_even(self) -> bool:
        """Whether all targets count alike."""
        first = self.per_target.flat[0]
        return bool(np.allclose(self.per_target, first, rtol=TOLERANCE))

    @property
    def is_right(self) -> bool:
        """Whether each target, and the rest, count as on one process."""
        factors = [value for value in (self.factor, self.rest) if value is not None]
        return self.is_even and bool(np.allclose(factors, 1.0, rtol=TOLERANCE_OF_REST))


def balance(
    steps: Sequence[Record],
    serial_step: Record,
    total: float | None,
    weights: np.ndarray,
) -> Balance | None:
    """Return how the targets of one step count; None without the numbers for it.

    Args:
      steps: The step of each rank.
      serial_step: The step of one process.
      total: `serial_total` of all its steps; a single step cannot show it.
      weights: The weights of the local gradients, [rank][micro-batch].
    """
    accounts = [account(step) for step in steps]
    serial = account(serial_step)
    known = [found for found in accounts if found is not None]
    if len(known) < len(steps) or serial is None:
        return None
    scales = np.stack([found.scales for found in known])
    targets = np.stack([found.targets for found in known])
    if scales.shape != weights.shape:
        return None
    per_target = weights * scales
    share = per_target * targets
    factor = float(share.sum() / total) if total else None
    num_left_out = int(serial.targets.sum() - targets.sum())
    counts_alike = np.allclose(per_target, serial.scales[0], rtol=TOLERANCE)
    missing = num_left_out if counts_alike else 0
    return Balance(
        targets,
        per_target=per_target,
        share=share,
        factor=factor,
        rest=_factor_of_rest(known, serial, weights),
        missing=max(0, missing),
    )


def _factor_of_rest(
    accounts: Sequence[Account], serial: Account, weights: np.ndarray
) -> float | None:
    """Return the applied rest of the loss divided by the one of one process, or None."""
    serial_rest = float(serial.rests.sum())
    if abs(serial_rest) <= _MIN_REST * abs(float(serial.losses.sum())):
        return None
    applied = weights * np.stack([found.rests for found in accounts])
    rest = float(applied.sum() / serial_rest)
    # Other values can come from a part that depends on the samples.
    for value in (1.0, float(len(accounts)), 1 / len(accounts)):
        if np.isclose(rest, value, rtol=TOLERANCE_OF_REST):
            return rest
    return None


class MicroBatches(enum.Enum):
    """The rule for the weights of the micro-batches of a step."""

    BY_TARGETS = "by their numbers of targets"
    MEAN = "all alike"
    UNKNOWN = "they have equally many targets"


def weighting_of_micro_batches(found: Account) -> MicroBatches:
    """Return how the micro-batches of one step of a rank count."""
    if np.allclose(found.targets, found.targets[0], rtol=TOLERANCE):
        return MicroBatches.UNKNOWN
    shares = found.targets * found.scales
    if np.allclose(shares, shares[0], rtol=TOLERANCE):
        return MicroBatches.MEAN
    return MicroBatches.BY_TARGETS
