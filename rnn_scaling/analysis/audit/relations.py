"""List the relations between the columns of a table.

A relation is "target = formula". A formula multiplies and divides quantities. A
quantity that ends in _0 is a quantity of the baseline row.
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
    """One quantity of a product."""

    name: str
    exponent: int  # +1 or -1
    is_baseline: bool = False  # whether it is the number of the baseline row
    shift: Shift = NO_SHIFT


@dataclasses.dataclass(frozen=True)
class Relation:
    """A relation between a target and other quantities of a row.

    Attributes:
      name: The relation's name in findings.
      text: "target = formula".
      bits: log2 of its likelihood before any number is seen.
      shift: The shift and the sign of the target; see `Shift`.
    """

    name: str
    text: str
    bits: float = 0.0
    shift: Shift = NO_SHIFT

    @functools.cached_property
    def factors(self) -> tuple[Factor, ...]:
        """All factors, the target first; their product is 1.

        With a baseline, the target counts relative to the target of the baseline row.
        """
        target, formula = self.text.split(" = ")
        factors = [Factor(target, 1, shift=self.shift)]
        for operator, name in re.findall(r"([*/]?)\s*(\w+)", formula):
            exponent = 1 if operator == "/" else -1
            quantity = name.removesuffix("_0")
            factors.append(Factor(quantity, exponent, name.endswith("_0")))
        if any(factor.is_baseline for factor in factors):
            factors.append(Factor(target, -1, is_baseline=True, shift=self.shift))
        return tuple(factors)

    @functools.cached_property
    def quantities(self) -> tuple[str, ...]:
        """The quantities that it connects, the target first."""
        return tuple(dict.fromkeys(factor.name for factor in self.factors))

    @property
    def target(self) -> str:
        """The quantity before the equals sign."""
        return self.factors[0].name

    @property
    def sources(self) -> tuple[str, ...]:
        """The other quantities."""
        return self.quantities[1:]

    @functools.cached_property
    def is_generic(self) -> bool:
        """Whether it may connect any columns."""
        return self.target == "target"

    @functools.cached_property
    def has_baseline(self) -> bool:
        """Whether numbers of a baseline row count."""
        return self.factors[-1].is_baseline


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
    Relation("same work", "rate = seconds_0 / seconds", -1),
    Relation("same work", "each = seconds_0 / seconds", -1),
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
EFFICIENCIES = "efficiencies"  # below a header of a speedup
# Quantities that people print in a whole column instead of the one in its header.
MISTAKES = (
    Relation(INVERSE, "speedup = / efficiency / devices"),
    Relation(EFFICIENCIES, "speedup = rate / rate_0 / devices * devices_0"),
    Relation(EFFICIENCIES, "speedup = seconds_0 / seconds / devices * devices_0"),
)

# Relations of any columns a and b. The number of the baseline row counts unless it is
# 1, so that the columns are proportional.
GENERIC = (
    Relation("{target} = {a} / {b}", "target = a / b"),
    Relation("{target} = constant x {a}", "target = a / a_0"),
    Relation("{target} = constant / {a}", "target = a_0 / a"),
)
