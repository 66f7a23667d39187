"""Usual mistakes in writing a number.

A number that is wrong by such a slip is more likely a fault than a number that is wrong
by any other amount. The price of a slip in bits grows with its rarity, and with the
number of other results that it could have had.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.tables.measurements import CellNumber

_FACTOR_BITS = 8.0  # price of a factor or an inverse
_DIGIT_BITS = 4.0
_MAX_DIGITS = 9


@dataclasses.dataclass(frozen=True)
class Slip:
    """A slip that may happen in a number.

    Attributes:
      name: The slip's name for the user.
      right: The logarithm of the right number, from the logarithms of the printed
        number and of the number of devices.
    """

    name: str
    right: Callable[[float, float], float]

    def correct(
        self, low: float, high: float, log_devices: float
    ) -> tuple[float, float]:
        """Return the bounds of the right number, as logarithms."""
        ends = self.right(low, log_devices), self.right(high, log_devices)
        return ends if self.right(0.0, 0.0) <= self.right(1.0, 0.0) else ends[::-1]


def _make_scale_slip(name: str, factor: float) -> Slip:
    return Slip(name, lambda log, _: log + math.log(factor))


_SLIPS = (
    Slip("inverse", lambda log, _: -log),
    Slip("not divided by the devices", lambda log, n: log - n),
    Slip("of one device, not of all", lambda log, n: log + n),
    _make_scale_slip("percent and fraction mixed", 100.0),
    _make_scale_slip("percent and fraction mixed", 0.01),
    _make_scale_slip("decimal point one place off", 10.0),
    _make_scale_slip("decimal point one place off", 0.1),
    _make_scale_slip("unit of another size", 1e3),
    _make_scale_slip("unit of another size", 1e-3),
    _make_scale_slip("unit of another size", 60.0),
    _make_scale_slip("unit of another size", 1 / 60),
)


def find_cheapest(
    item: CellNumber,
    bounds: tuple[float, float],
    devices: float,
) -> tuple[float, str] | None:
    """Return the likeliest slip from a number within bounds to the printed one.

    Args:
      item: The printed number; counts have no slips.
      bounds: The bounds, in the unit of its column.
      devices: The number of devices of its row.

    Returns:
      The price in bits and the name.
    """
    low, high = (bound / item.scale for bound in bounds)
    number = item.number
    if item.low == item.high or not number.value or not math.isfinite(low + high):
        return None
    candidates = list(_list_digit_slips(number, low, high))
    if number.value < 0:
        low, high = sorted((-low, -high))
    smallest = abs(number.value) - 0.5 * number.resolution
    if high > 0 and smallest > 0:
        logs = math.log(smallest), math.log(abs(number.value) + number.resolution)
        for slip in _SLIPS:
            least, most = map(math.exp, slip.correct(*logs, math.log(devices)))
            if least <= high and low <= most:
                candidates.append((_FACTOR_BITS, slip.name))
    return min(candidates, default=None)


def _list_digit_slips(
    printed: PrintedNumber, low: float, high: float
) -> Iterator[tuple[float, str]]:
    """Yield a wrong digit, and two exchanged neighbours."""
    number = round(abs(printed.value) / printed.resolution) if printed.resolution else 0
    length = len(str(number))
    is_exact = (
        abs(number * printed.resolution - abs(printed.value))
        <= 1e-6 * printed.resolution
    )
    if not number or length > _MAX_DIGITS or not is_exact:
        return
    unit = math.copysign(printed.resolution, printed.value)
    low, high = sorted((low / unit, high / unit))
    digits = [number // 10**k % 10 for k in range(length)]
    num_fitting = 0
    for k, printed_digit in enumerate(digits):
        for digit in {*range(10)} - {printed_digit}:
            changed = number + (digit - printed_digit) * 10**k
            num_fitting += low - 1.0 <= changed <= high + 0.5
    if num_fitting:
        bits = _DIGIT_BITS + math.log2(9 * length / num_fitting)
        yield bits, "one digit wrong"
    for k, (right, left) in enumerate(zip(digits, digits[1:])):
        moved = number + (left - right) * (10**k - 10 ** (k + 1))
        if left != right and low - 1.0 <= moved <= high + 0.5:
            yield _DIGIT_BITS + math.log2(length - 1), "digits exchanged"
