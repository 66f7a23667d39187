"""Check that the values of a Recorder may be written into a record.

The Recorder and the trainers call these functions before a value reaches a record. They
raise ValueError with a message for the user. The types of `records` define the limits
that readers check; do not repeat a limit here.
"""

import math
from collections.abc import Mapping
from typing import Any

from rnn_scaling.records import checks, record
from rnn_scaling.records.decoding import MAX_NUMBER, MAX_SINGLE, MIN_NUMBER, quote
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry

# The error type of a run whose record no reader would accept.
UNREADABLE = "RecordError"


class NotFiniteError(ArithmeticError):
    """The loss of a batch is infinite or not a number."""


def check(options: Mapping[str, Any], **fields: Any) -> None:
    """Check the options and other fields of a record.

    Raises:
      ValueError: If a reader would not accept one of them; the message names it.
    """
    if faults := list(checks.find_config_faults(options)):
        raise ValueError(f"options: {entry.make_plain(faults[0])}")
    if fault := _find_record_fault(
        RunRecord("failed", None, Options(options), **fields)
    ):
        raise ValueError(fault)


def require_finite(name: str, value: Any, *, is_positive: bool = False) -> Any:
    """Return an argument that must be a finite number.

    Args:
      name: The argument's name, for the message.
      value: The argument; a framework's number is converted.
      is_positive: Whether the value must be above 0.

    Raises:
      ValueError: If `value` is not such a number.
    """
    number = convert_to_python(value)
    is_number = type(number) in (int, float) and abs(number) <= MAX_NUMBER
    if not is_number or (is_positive and number <= 0):
        rule = "a finite number above 0" if is_positive else "a finite number"
        raise ValueError(f"{name}={_spell(value)} must be {rule}")
    return number


def require_whole(name: str, value: Any, *, minimum: int) -> int:
    """Return an argument that must be a whole number.

    Raises:
      ValueError: If `value` is not a whole number of at least `minimum`.
    """
    number = convert_to_python(value)
    if type(number) is not int or not minimum <= number <= MAX_NUMBER:
        raise ValueError(
            f"{name}={_spell(value)} must be a whole number of at least {minimum}"
        )
    return number


def make_readable(run: RunRecord) -> RunRecord:
    """Return the record, or a failed one if no reader would accept it.

    The failed record has the same batches. A faulty clock can make a record unreadable.
    """
    fault = _find_record_fault(run)
    if not fault:
        return run
    return RunRecord(
        "failed",
        RunError(type=UNREADABLE, message=fault),
        run.options,
        run.resolved,
        batches=run.batches,
        environment=run.environment,
        unit=run.unit,
    )


def _find_record_fault(run: RunRecord) -> str:
    """Return the reason why no reader would accept a record, or ""."""
    try:
        record.from_json(run.to_json(), "Recorder")
    except (ValueError, TypeError) as e:
        return format_one_line(e)
    return ""


def read_items(step: int, value: Any, unit: str, earlier_items: int) -> int:
    """Return the items of a step.

    Args:
      step: The number of the step, for the message.
      value: The argument of `Recorder.step`.
      unit: The unit of the items, for the message.
      earlier_items: Items of all steps before it.

    Raises:
      ValueError: If `value` is not a whole number above 0, or if the items of all
        steps are more than a record may contain.
    """
    count = value if type(value) is int else _read_number(step, "items", value)
    # The first comparison is false for NaN.
    if not count >= 1:
        rule = "at least 1"
    elif count > MAX_NUMBER or int(count) + earlier_items > MAX_NUMBER:
        rule = f"at most {MAX_NUMBER:g} in all steps together"
    elif count % 1:
        rule = "a whole number"
    else:
        return int(count)
    raise ValueError(
        f"step {step}: items={_spell(value)} must be {rule} (counted in {unit})"
    )


def read_loss(step: int, value: Any) -> float:
    """Return the loss of a step, after the devices have computed it.

    Returns:
      The loss; infinite if it is beyond the numbers of a record.
    """
    loss = _read_number(step, "loss", value)
    if abs(loss) > MAX_SINGLE:
        return math.copysign(math.inf, loss)
    return loss


def read_learning_rate(step: int, value: Any) -> float | None:
    """Return the learning rate of a step; None if the step does not report it.

    Raises:
      ValueError: If `value` is not a finite number.
    """
    if value is None:
        return None
    rate = _read_number(step, "learning_rate", value)
    # The comparison is false for NaN.
    if not abs(rate) <= MAX_SINGLE:
        raise ValueError(
            f"step {step}: learning_rate={_spell(value)} must be a finite number"
        )
    return rate


def read_grad_norm(step: int, value: Any) -> float | None:
    """Return the norm of the gradient of a step; None if unknown or not finite.

    Scaled losses of 16-bit programs overflow in some steps, which is not a mistake.

    Raises:
      ValueError: If `value` is not a number, or is below 0.
    """
    if value is None:
        return None
    norm = _read_number(step, "grad_norm", value)
    if norm < 0:
        raise ValueError(f"step {step}: grad_norm={_spell(value)} must be at least 0")
    # The comparison is false for NaN.
    return norm if norm <= MAX_SINGLE else None


def find_time_fault(seconds: float, count: int, unit: str) -> str:
    """Return the reason why a record may not contain a step's time, or ""."""
    if MIN_NUMBER <= seconds <= MAX_NUMBER and count / seconds <= MAX_NUMBER:
        return ""
    return (
        f"{count:g} {unit} in {seconds:g} s; expected at least {MIN_NUMBER:g} s and at "
        f"most {MAX_NUMBER:g} {unit} per second"
    )


def _read_number(step: int, name: str, value: Any) -> float:
    """Return a framework's number; this waits until the devices have computed it."""
    if type(value) is float:
        return value
    if value is not None and not isinstance(value, (str, bytes)):
        # Arrays of several values and other objects raise one of these errors.
        errors = (TypeError, ValueError, RuntimeError, OverflowError)
        try:
            # float(loss) is avoided, because PyTorch warns about it.
            return float(value.item() if hasattr(value, "item") else value)
        except errors:
            pass
    raise ValueError(f"step {step}: {name} is {_spell(value)}; expected one number")


def _spell(value: Any) -> str:
    return entry.make_plain(quote(value))


def format_one_line(error: BaseException) -> str:
    """Return the message of an error in one line of at most 500 characters."""
    return entry.make_plain(str(error)[:500]) or type(error).__name__


def convert_to_python(value: Any) -> Any:
    """Return a framework's number as a Python number, and anything else unchanged."""
    is_python = type(value) in (str, int, float, bool)
    is_array = bool(getattr(value, "ndim", None))
    if is_python or is_array or not hasattr(value, "item"):
        return value
    return value.item()
