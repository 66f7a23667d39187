"""What a Recorder accepts: what every reader of records accepts, by the same limits, and nothing else."""

import math
from collections.abc import Mapping
from typing import Any

from rnn_scaling.records import checks, record
from rnn_scaling.records.decoding import LARGEST, LARGEST_SINGLE, SMALLEST, spelled
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry

UNREADABLE = "RecordError"  # the error of a run whose record no reader would accept


class NotFiniteError(ArithmeticError):
    """The loss of a batch is infinite or not a number."""


def check(flat: Mapping[str, Any], **of_record: Any) -> None:
    """Refuses, with a ValueError that names it, an option or another field of a record that no reader would accept."""
    if faults := list(checks.config_faults(flat)):
        raise ValueError(f"options: {entry.plain(faults[0])}")
    if fault := _fault(RunRecord("failed", None, Options(flat), **of_record)):
        raise ValueError(fault)


def finite(name: str, value: Any, *, is_positive: bool = False) -> Any:
    """Return an argument that must be a finite number.

    Args:
      name: The argument's name, for the message.
      value: The argument; a framework's number is converted.
      is_positive: Whether it must be above 0.

    Raises:
      ValueError: If `value` is not such a number.
    """
    number = single(value)
    is_number = type(number) in (int, float) and abs(number) <= LARGEST
    if not is_number or (is_positive and number <= 0):
        rule = "a finite number above 0" if is_positive else "a finite number"
        shown = entry.plain(spelled(value))
        raise ValueError(f"{name}={shown}; expected {rule}")
    return number


def whole(name: str, value: Any, *, minimum: int) -> int:
    """Return an argument that must be a whole number.

    Raises:
      ValueError: If `value` is not a whole number of at least `minimum`.
    """
    number = single(value)
    if type(number) is not int or not minimum <= number <= LARGEST:
        shown = entry.plain(spelled(value))
        raise ValueError(
            f"{name}={shown}; expected a whole number of at least {minimum}"
        )
    return number


def _fault(run: RunRecord) -> str:
    """Why no reader would accept a record; empty where it would."""
    try:
        record.from_json(run.to_json(), "Recorder")
    except (ValueError, TypeError) as e:
        return in_a_line(e)
    return ""


def readable(run: RunRecord) -> RunRecord:
    """The record, or a failed one of the same batches where no reader would accept it, as after a clock's fault."""
    fault = _fault(run)
    if not fault:
        return run
    error = RunError(type=UNREADABLE, message=fault)
    return RunRecord(
        "failed",
        error,
        run.options,
        run.resolved,
        batches=run.batches,
        environment=run.environment,
        unit=run.unit,
    )


def items(number: int, value: Any, unit: str, before: int) -> int:
    """The items of a step; ValueError if it is no whole number above 0, or more than a record may have."""
    count = value if type(value) is int else _number(number, "items", value)
    if 1 <= count <= LARGEST and not count % 1 and int(count) + before <= LARGEST:
        return int(count)
    rule = (
        "at least one"
        if not count >= 1
        else "a whole number"
        if count % 1
        else f"at most {LARGEST:g} in all"
    )
    raise ValueError(
        f"step {number}: expected {rule} of the {unit}, got items={entry.plain(spelled(value))}"
    )


def loss(number: int, value: Any) -> float:
    """The loss of a step, read when the devices have it; infinite where a record has no number for it."""
    result = value if type(value) is float else _number(number, "loss", value)
    return math.copysign(math.inf, result) if abs(result) > LARGEST_SINGLE else result


def time_fault(seconds: float, count: int, unit: str) -> str:
    """What is wrong with the time of a step; empty if nothing is."""
    if SMALLEST <= seconds <= LARGEST and count / seconds <= LARGEST:
        return ""
    return f"{count:g} {unit} in {seconds:g} s; expected {SMALLEST:g} s or more and at most {LARGEST:g} {unit} a second"


def _number(number: int, name: str, value: Any) -> float:
    """A number of a framework: reading it waits until the devices have it."""
    try:
        if value is not None and not isinstance(value, (str, bytes)):
            return float(
                value.item() if hasattr(value, "item") else value
            )  # PyTorch warns of float(loss)
    except (
        TypeError,
        ValueError,
        RuntimeError,
        OverflowError,
    ):  # arrays of several, and what is no number
        pass
    shown = entry.plain(spelled(value))
    raise ValueError(f"step {number}: {name} is {shown}; expected one number")


def in_a_line(error: BaseException) -> str:
    """What an error says, in one line of at most 500 characters."""
    return entry.plain(str(error)[:500]) or type(error).__name__


def single(value: Any) -> Any:
    """An option of a framework's number type as Python's; anything else as it is."""
    if (
        type(value) in (str, int, float, bool)
        or getattr(value, "ndim", None)
        or not hasattr(value, "item")
    ):
        return value
    return value.item()
