"""What people get wrong when they write a number.

A number that is wrong by such a slip is more likely a fault than one that is wrong by
any amount. Each slip has a price in bits: how rare it is, and how many other numbers
it could have made of the right one.
"""

import dataclasses
import math
from collections.abc import Iterator

from rnn_scaling.analysis.audit.instances import Bounds
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.records.tables.measurements import Column, Item

_FACTORS = {
    10.0: "decimal point one place off",
    100.0: "percent and fraction mixed",
    60.0: "unit of another size",
    1e3: "unit of another size",
}
_FACTOR_BITS = 8.0  # of a factor, or an inverse
_DIGIT_BITS = 4.0
_COPY_BITS = 5.0
_MOST_DIGITS = 9


@dataclasses.dataclass(frozen=True)
class Slip:
    """A slip. name: for the user; bits: its price."""

    name: str
    bits: float


def in_unit_of_cell(item: Item, bounds: Bounds) -> Bounds:
    """Return bounds in the unit in which a number is printed."""
    return bounds[0] / item.scale, bounds[1] / item.scale


def cheapest(
    item: Item, bounds: Bounds, devices: float, column: Column | None = None
) -> Slip | None:
    """Return the likeliest slip that makes a number of one within bounds.

    Args:
      item: The number; counts have no slips.
      bounds: In the unit of its column.
      devices: Of its row.
      column: Its column, if the number may be copied from another row.
    """
    low, high = in_unit_of_cell(item, bounds)
    if item.low == item.high or not item.number.value or not math.isfinite(low + high):
        return None
    found = [*_of_digits(item.number, low, high)]
    found += _of_factors(item.number, low, high, devices)
    values = [number.value for number in column.numbers] if column else []
    if values.count(item.number.value) > 1:
        bits = _COPY_BITS + math.log2(len(values))
        found.append(Slip("copied from another row", bits))
    return min(found, key=lambda slip: slip.bits, default=None)


def _of_factors(
    printed: Printed, low: float, high: float, devices: float
) -> Iterator[Slip]:
    factors = {**_FACTORS, **{1.0 / factor: name for factor, name in _FACTORS.items()}}
    if devices > 1:
        factors[devices] = "of one device, not of all"
        factors[1.0 / devices] = "not divided by the devices"
    for factor, name in factors.items():
        smallest = factor * (printed.value - 0.5 * printed.step)
        if smallest <= high and low <= factor * (printed.value + printed.step):
            yield Slip(name, _FACTOR_BITS)
    if printed.value > 0 and low <= 1 / printed.value <= high:
        yield Slip("inverse", _FACTOR_BITS)


def _of_digits(printed: Printed, low: float, high: float) -> Iterator[Slip]:
    """Yield one digit that is wrong, and two neighbours that are exchanged."""
    number = round(abs(printed.value) / printed.step) if printed.step else 0
    length = len(str(number))
    is_exact = abs(number * printed.step - abs(printed.value)) <= 1e-6 * printed.step
    if not number or length > _MOST_DIGITS or not is_exact:
        return
    unit = math.copysign(printed.step, printed.value)
    low, high = sorted((low / unit, high / unit))
    digits = [number // 10**k % 10 for k in range(length)]
    num_fitting = 0
    for k, old in enumerate(digits):
        for digit in {*range(10)} - {old}:
            num_fitting += low - 1.0 <= number + (digit - old) * 10**k <= high + 0.5
    if num_fitting:
        bits = _DIGIT_BITS + math.log2(9 * length / num_fitting)
        yield Slip("one digit wrong", bits)
    for k, (right, left) in enumerate(zip(digits, digits[1:])):
        moved = number + (left - right) * (10**k - 10 ** (k + 1))
        if left != right and low - 1.0 <= moved <= high + 0.5:
            yield Slip("digits exchanged", _DIGIT_BITS + math.log2(length - 1))
