"""The verdict on a script and its evidence, as data.

Certificates contain these data: add fields and answers, but never rename one.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from rnn_scaling.verification.signatures import Cause, Subject


class Answer(str, enum.Enum):
    """The answer to "is it right?"."""

    RIGHT = "right"
    WRONG = "wrong"
    CANNOT_TELL = "cannot tell"


class Result(str, enum.Enum):
    """The result of a check."""

    OK = "ok"
    WRONG = "WRONG"
    NOT_COVERED = "not covered"


@dataclasses.dataclass(frozen=True)
class Check:
    """One kind of evidence.

    Attributes:
      subject: The compared quantity.
      result: Its result.
      kind: The template that describes it, without "script-".
      step: The first wrong step, from 1; None if it is not wrong.
      ratio: The largest difference as a multiple of its tolerance; None without one.
      cause: The name of the fault; None if it is not wrong.
      values: Values for the templates.
    """

    subject: Subject
    result: Result
    kind: str
    step: int | None = None
    ratio: float | None = None
    cause: Cause | None = None
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The answer with its evidence.

    Attributes:
      answer: Right, wrong, or cannot tell.
      reason: Kind of the template that explains "cannot tell"; "" otherwise.
      values: Values of the reason.
      checks: The evidence; the first wrong check gives the cause.
      not_covered: Kinds of templates of the conditions that were not driven.
    """

    answer: Answer
    checks: tuple[Check, ...] = ()
    reason: str = ""
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    not_covered: tuple[str, ...] = ()

    @property
    def fault(self) -> Check | None:
        """The check that names the cause; None if nothing is wrong."""
        wrong = [check for check in self.checks if check.result is Result.WRONG]
        return min(wrong, key=lambda check: check.step or 1, default=None)


def wrong_check(
    subject: Subject,
    kind: str,
    step: int,
    cause: Cause,
    values: Mapping[str, Any] | None = None,
    ratio: float | None = None,
) -> Check:
    """Return a check that found a fault.

    Args:
      subject: The compared quantity.
      kind: The template that describes it, without "script-".
      step: The first wrong step, from 1.
      cause: The name of the fault.
      values: Values for the templates.
      ratio: The largest difference as a multiple of its tolerance; None without one.
    """
    return Check(
        subject,
        result=Result.WRONG,
        kind=kind,
        step=step,
        ratio=ratio,
        cause=cause,
        values=values or {},
    )
