"""Points of a scaling measurement as logs print them: the rows that every importer of rates makes."""

import dataclasses
from collections.abc import Mapping

from rnn_scaling.audit.numbers import Printed


@dataclasses.dataclass(frozen=True)
class ScalingRow:
    """One measured point. None: the source does not say."""

    source: str  # file or stream, as the user named it
    line: int  # from 1; 0 where lines mean nothing
    series: str = ""  # what comparable points share (machine, model, mode, ...); "" if there is only one series
    base: str | None = None  # what a run on one device must share to be its baseline; `series` if None
    devices: int | None = None  # devices, workers or GPUs together
    batch_size: Printed | None = None  # samples of a device and step
    global_batch_size: Printed | None = None  # of all
    seconds: Printed | None = None
    rate: Printed | None = None  # items per second in `rate_unit`
    rate_unit: str = ""
    speedup: Printed | None = None  # against one device
    extra: Mapping[str, Printed] = dataclasses.field(default_factory=dict)  # further numbers by column name


def exact(value: float) -> Printed:
    """The cell of a number that was not rounded for print, as in JSON: every decimal that it has counts."""
    if float(value).is_integer() and abs(value) < 1e15:
        return Printed(float(value), 1e-9, str(int(value)))
    shown = repr(float(value))
    mantissa, _, exponent = shown.partition("e")
    return Printed(float(value), 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])), shown)
