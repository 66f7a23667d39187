"""Relations between the columns of a table, one line each.

A relation is "target = formula". A formula multiplies and divides quantities, or adds
columns; a quantity with a 0 behind it is that of the baseline row.
"""

import dataclasses
import functools
import re

# A target counts as shift + sign * number: (1, 1) for a change, (1, -1) for a saving.
Shift = tuple[float, int]
NO_SHIFT = (0.0, 1)
CHANGES = (NO_SHIFT, (1.0, 1), (1.0, -1))


@dataclasses.dataclass(frozen=True)
class Factor:
    """One quantity of a product, or a column of a sum."""

    name: str
    exponent: int  # +1 or -1
    is_baseline: bool  # of the baseline row


@dataclasses.dataclass(frozen=True)
class Relation:
    """A relation. bits: how likely it is before any number is seen (log2)."""

    name: str
    text: str
    bits: float = 0.0
    shift: Shift = NO_SHIFT

    @functools.cached_property
    def factors(self) -> tuple[Factor, ...]:
        """All factors, the target first; their product is 1, or their sum 0."""
        target, formula = self.text.split(" = ")
        found = [Factor(target, 1, False)]
        for operator, name in re.findall(r"([*/+]?)\s*(\w+)", formula):
            exponent = 1 if operator == "/" else -1
            found.append(Factor(name.removesuffix("_0"), exponent, name.endswith("_0")))
        return tuple(found)

    @property
    def target(self) -> str:
        return self.factors[0].name

    @functools.cached_property
    def sources(self) -> tuple[str, ...]:
        """The other quantities."""
        names = dict.fromkeys(factor.name for factor in self.factors)
        return tuple(name for name in names if name != self.target)

    @functools.cached_property
    def is_sum(self) -> bool:
        return "+" in self.text

    @functools.cached_property
    def is_generic(self) -> bool:
        """Whether it may connect any columns."""
        return self.target == "target"

    @functools.cached_property
    def has_baseline(self) -> bool:
        return any(factor.is_baseline for factor in self.factors)


SAME_WORK = "same work"  # of rates and times of one amount of work
RELATIONS = (
    Relation("speedup", "speedup = rate / rate_0", 4),
    Relation("speedup", "speedup = seconds_0 / seconds", 4),
    Relation("speedup", "speedup = each * devices / each_0 / devices_0", 1),
    Relation("scaling", "speedup = rate / rate_0 / devices * devices_0", -1),
    Relation("efficiency", "efficiency = speedup / devices", 4),
    Relation("efficiency", "efficiency = rate / rate_0 / devices * devices_0", 4),
    Relation("efficiency", "efficiency = seconds_0 / seconds / devices * devices_0", 2),
    Relation("efficiency", "efficiency = each / each_0", 2),
    Relation("weak efficiency", "efficiency = seconds_0 / seconds", 0),
    Relation("rate of all devices", "rate = each * devices", 4),
    Relation("global batch", "global_batch = batch * devices", 4),
    Relation("rate", "rate = global_batch / seconds", 1),
    Relation("rate", "rate = work / seconds", 2),
    Relation(SAME_WORK, "rate = seconds_0 / seconds", 1.5),
    Relation(SAME_WORK, "each = seconds_0 / seconds", 1.5),
    Relation("bandwidth", "algbw = bytes / seconds", 2),
    Relation("bus bandwidth", "busbw = algbw / algbw_0", 3),
    Relation("devices x time", "cost = seconds * devices", 1),
    Relation("energy", "energy = power / rate", 2),
    Relation("energy", "energy = power * seconds", 2),
    Relation("saving", "change = / speedup", 1, (1.0, -1)),
    Relation("gain", "change = speedup", 1, (1.0, 1)),
    Relation("utilization", "utilization = flops / flops_0", 1),
    Relation("FLOPs per item", "flops = each / each_0", 0),
)

INVERSE = "inverse"
EFFICIENCIES = "efficiencies"  # under a header that says speedup
# What people print in a whole column instead of what its header says.
MISTAKES = (
    Relation(INVERSE, "speedup = / efficiency / devices"),
    Relation(EFFICIENCIES, "speedup = rate / rate_0 / devices * devices_0"),
    Relation(EFFICIENCIES, "speedup = seconds_0 / seconds / devices * devices_0"),
)

# Of any columns a and b. If the baseline row does not print 1, its number counts too,
# so that the columns are proportional.
GENERIC = (
    Relation("{target} = {a} / {b}", "target = a / b"),
    Relation("{target} = constant x {a}", "target = a / a_0"),
    Relation("{target} = constant / {a}", "target = a_0 / a"),
)
