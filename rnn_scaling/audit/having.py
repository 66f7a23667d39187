"""Rows that have the numbers that a check reads, so that from there on nobody asks whether they are there.

The classes are for the type checker: each names fields of ScalingRow that are not None. No object of them is made.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterable
from typing import ClassVar, TypeVar, cast

from rnn_scaling.audit.scaling_table import Cell, ScalingRow


class Having(ScalingRow):
    """A row in which `fields` are there: those that the class and its bases annotate."""

    fields: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        inherited = [field for base in cls.__bases__ if issubclass(base, Having) for field in base.fields]
        cls.fields = tuple(dict.fromkeys([*inherited, *inspect.get_annotations(cls)]))


class WithDevices(Having):
    devices: int


class WithSeconds(Having):
    seconds: Cell


class WithRate(Having):
    rate: Cell


class WithSpeedup(Having):
    speedup: Cell


class WithEfficiency(Having):
    efficiency: Cell


class DevicesAndRate(WithDevices, WithRate):
    pass


class DevicesAndSeconds(WithDevices, WithSeconds):
    pass


class DevicesAndSpeedup(WithDevices, WithSpeedup):
    pass


class DevicesAndEfficiency(WithDevices, WithEfficiency):
    pass


class RateAndSpeedup(WithRate, WithSpeedup):
    pass


class RateAndSeconds(WithRate, WithSeconds):
    pass


Kind = TypeVar("Kind", bound=Having)


def having(rows: Iterable[ScalingRow], kind: type[Kind]) -> list[Kind]:
    """Those of the rows, in their order, that have every field that `kind` names."""
    out = list(rows)
    for field in kind.fields:  # field by field: a long table has few of most of them
        has = operator.attrgetter(field)
        out = [row for row in out if has(row)]
    return cast("list[Kind]", out)
