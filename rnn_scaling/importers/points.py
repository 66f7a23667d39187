"""Points of a scaling measurement as logs print them: the rows that every importer of rates makes."""

import dataclasses
from collections.abc import Mapping

from rnn_scaling.audit import numbers

FLOAT_SLACK = 1e-9  # relative: sums of floats are not exact


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    value: float  # "88 %" is 0.88
    step: float  # what its last printed digit counts
    text: str  # what the source has

    @property
    def half_ulp(self) -> float:
        """Half a unit of the last printed digit."""
        return 0.5 * self.step + abs(self.value) * FLOAT_SLACK

    @property
    def low(self) -> float:
        """The smallest number that prints as this cell."""
        return self.value - self.half_ulp

    @property
    def high(self) -> float:
        """The largest number that prints as this cell."""
        return self.value + self.half_ulp


@dataclasses.dataclass(frozen=True)
class ScalingRow:
    """One measured point. None: the source does not say."""

    source: str  # file or stream, as the user named it
    line: int  # from 1; 0 where lines mean nothing
    series: str = ""  # what comparable points share (machine, model, mode, ...); "" if there is only one series
    base: str | None = None  # what a run on one device must share to be its baseline; `series` if None
    devices: int | None = None  # devices, workers or GPUs together
    batch_size: Cell | None = None  # samples of a device and step
    global_batch_size: Cell | None = None  # of all
    seconds: Cell | None = None
    rate: Cell | None = None  # items per second in `rate_unit`
    rate_unit: str = ""
    speedup: Cell | None = None  # against one device
    extra: Mapping[str, Cell] = dataclasses.field(default_factory=dict)  # further numbers by column name


def parse_cell(text: str) -> Cell | None:
    """The number that a text prints, percent as a fraction; None if it prints none."""
    number = numbers.parse(text)
    if number is None:
        return None
    whole = 100 if number.unit == "%" else 1
    return Cell(number.value / whole, number.step / whole, number.text)


def exact(value: float) -> Cell:
    """The cell of a number that was not rounded for print, as in JSON: every decimal that it has counts."""
    if float(value).is_integer() and abs(value) < 1e15:
        return Cell(float(value), 1e-9, str(int(value)))
    shown = repr(float(value))
    mantissa, _, exponent = shown.partition("e")
    return Cell(float(value), 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])), shown)
