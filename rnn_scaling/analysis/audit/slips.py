"""What people get wrong when they write a number: one digit, two digits, the decimal point, the unit, the row.

A number that is wrong by such a slip is more likely a fault than one that is wrong by any amount. Each slip has a price
in bits: how rare it is, and how many other numbers it could have made of the right one.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping

from rnn_scaling.records.printed_number import Printed

_UNIT = "unit of another size"
_FACTORS = (
    (10.0, "decimal point one place off"),
    (100.0, "percent and fraction mixed"),
    (60.0, _UNIT),
    (1e3, _UNIT),
)
_FACTOR_BITS = 8.0  # of a factor, or an inverse
_DIGIT_BITS, _EXCHANGE_BITS, _COPY_BITS = 4.0, 4.0, 5.0
_MOST_DIGITS = 9
LEAST = 3.0  # bits of the cheapest slip


@dataclasses.dataclass(frozen=True)
class Slip:
    """A slip. name: for the user; bits: its price."""

    name: str
    bits: float


def cheapest(
    printed: Printed,
    low: float,
    high: float,
    devices: float | None = None,
    values: Mapping[float, int] | None = None,
) -> Slip | None:
    """The likeliest slip that makes the printed number of one within bounds, in the unit of the cell.

    devices: of the row. values: how often each number stands in the column.
    """
    if not math.isfinite(low + high) or not printed.value:
        return None
    return min(
        _slips(printed, low, high, devices or 1.0, values or {}),
        key=lambda slip: slip.bits,
        default=None,
    )


def _slips(
    printed: Printed,
    low: float,
    high: float,
    devices: float,
    values: Mapping[float, int],
) -> Iterator[Slip]:
    yield from _of_digits(printed, low, high)
    if values.get(printed.value, 0) > 1:
        yield Slip(
            "copied from another row", _COPY_BITS + math.log2(sum(values.values()))
        )
    factors = [
        (factor, name) for times, name in _FACTORS for factor in (times, 1.0 / times)
    ]
    if devices > 1:
        factors += [
            (devices, "of one device, not of all"),
            (1.0 / devices, "not divided by the devices"),
        ]
    ends = printed.value - 0.5 * printed.step, printed.value + printed.step
    for factor, name in factors:
        if ends[0] * factor <= high and low <= ends[1] * factor:
            yield Slip(name, _FACTOR_BITS)
    if printed.value > 0 and low <= 1 / printed.value <= high:
        yield Slip("inverse", _FACTOR_BITS)


def _of_digits(printed: Printed, low: float, high: float) -> Iterator[Slip]:
    """One digit that is wrong, or two neighbours that changed places."""
    number = round(abs(printed.value) / printed.step) if printed.step else 0
    length = len(str(number))
    if (
        not number
        or length > _MOST_DIGITS
        or abs(number * printed.step - abs(printed.value)) > 1e-6 * printed.step
    ):
        return
    unit = math.copysign(printed.step, printed.value)
    low, high = sorted((low / unit, high / unit))
    digits = [number // 10**k % 10 for k in range(length)]
    wrong = sum(
        low - 1.0 <= number + (digit - digits[k]) * 10**k <= high + 0.5
        for k in range(length) for digit in range(10) if digit != digits[k]
    )  # fmt: skip
    if wrong:
        yield Slip("one digit wrong", _DIGIT_BITS + math.log2(9 * length / wrong))
    for k in range(length - 1):
        moved = number + (digits[k + 1] - digits[k]) * (10**k - 10 ** (k + 1))
        if moved != number and low - 1.0 <= moved <= high + 0.5:
            yield Slip("digits exchanged", _EXCHANGE_BITS + math.log2(length - 1))
