"""Collect the findings about a run: checks, the first fault and differences.

`certifier` adds to them after each batch, and makes the certificate from them.
"""

import math

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.certificate import Check
from rnn_scaling.verification.certificates import finite_or_none
from rnn_scaling.verification.replicas import Replica

_UNEQUAL = "unequal"  # the verdict if weights differ and the fault is not explained
MIN_DIVISOR = 1e-30  # divisor of a relative difference from 0


class Findings:
    """The findings of one process.

    Attributes:
      first_fault: The first fault that a check found, or None.
      fault_batch: The number of the batch with the first fault.
      wrong_replicas: Names of the replicas that differ after that batch.
      loss_difference: The largest relative difference of a loss.
      weights_difference: The largest difference of a weight.
      weights_moved: The largest change of a weight since the beginning.
    """

    def __init__(self) -> None:
        self.first_fault: Statement | None = None
        self.fault_batch = 0
        self.wrong_replicas: set[str] = set()
        self.loss_difference = 0.0
        self.weights_difference = 0.0
        self.weights_moved = 0.0
        self._checks: dict[str, Check] = {}

    @property
    def checks(self) -> tuple[Check, ...]:
        """Each check with its largest difference, relative to its tolerance."""
        return tuple(self._checks.values())

    @property
    def is_unequal(self) -> bool:
        """Whether the first fault is an unequal weight, which is not explained yet."""
        return self.first_fault is not None and self.first_fault.subject == _UNEQUAL

    def keep_first_fault(self, number: int, fault: Statement | None) -> None:
        """Keep a fault, if any, unless an earlier one is known."""
        if fault and not self.first_fault:
            self.first_fault = fault
            self.fault_batch = number

    def check(
        self, name: str, text: str, difference: float, tolerance: float, holds: bool
    ) -> None:
        """Keep the largest difference of a check, relative to its tolerance.

        Args:
          name: The name of the check.
          text: The quantities that it compares.
          difference: The difference between the run and serial training.
          tolerance: The largest difference that is allowed.
          holds: Whether the check has passed.
        """
        check = Check(
            name=name,
            holds=bool(holds),
            text=text,
            difference=finite_or_none(difference),
            tolerance=finite_or_none(max(0.0, tolerance)),
        )
        largest = self._checks.setdefault(name, check)
        if largest.holds and (
            not holds or _tolerance_usage(check) > _tolerance_usage(largest)
        ):
            self._checks[name] = check

    def keep_wrong_variable(self, number: int, variable: str, replica: Replica) -> None:
        """Keep the fault if it is the first one, and the replicas of the same batch."""
        fault = Statement("weights-unequal", _UNEQUAL, {"variable": variable})
        self.keep_first_fault(number, fault)
        if number == self.fault_batch:
            self.wrong_replicas.add(replica.name)


def _tolerance_usage(check: Check) -> float:
    """Return the share of the tolerance that a check uses."""
    if check.difference is None:
        return math.inf
    return check.difference / max(check.tolerance or 0.0, MIN_DIVISOR)
