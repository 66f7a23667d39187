"""Relations between quantities of a table of scaling results, one line each.

A relation is "target = formula"; a formula multiplies and divides quantities. A quantity with a 0 behind it is that of
the baseline row. All relations are products, so each number of an instance can be computed from the others.
"""

import dataclasses
import functools
import re

Shift = tuple[
    float, int
]  # a target counts as shift + sign * number: (1, 1) for a change, (1, -1) for a saving


@dataclasses.dataclass(frozen=True)
class Relation:
    """A relation. bits: how likely it is before any number is seen (log2)."""

    name: str
    text: str
    bits: float = 0.0
    shift: Shift = (0.0, 1)

    @functools.cached_property
    def factors(self) -> tuple[tuple[str, int], ...]:
        """(quantity, exponent) of every factor; the product of all is 1. The first is the target."""
        target, formula = self.text.split(" = ")
        factors = re.findall(r"([*/]?)\s*(\w+)", formula)
        return (
            (target, 1),
            *((name, 1 if operator == "/" else -1) for operator, name in factors),
        )

    @functools.cached_property
    def target(self) -> str:
        return self.factors[0][0]

    @functools.cached_property
    def sources(self) -> tuple[str, ...]:
        """The other quantities, without the mark of the baseline."""
        return tuple(
            dict.fromkeys(name.removesuffix("0") for name, _ in self.factors[1:])
        )

    @functools.cached_property
    def is_sum(self) -> bool:
        return self.text in (SUM, CUMULATIVE)

    @functools.cached_property
    def is_generic(self) -> bool:
        """Whether it may connect any columns."""
        return self.is_sum or self.target == "target"

    @property
    def is_symmetric(self) -> bool:
        return {
            exponent for name, exponent in self.factors[1:] if not name.endswith("0")
        } in ({1}, {-1})

    @functools.cached_property
    def has_baseline(self) -> bool:
        return "0" in self.text


SAME_WORK = "same work"  # of any two columns of rates, while a speedup or an efficiency is one number
RELATIONS = (
    Relation("speedup", "speedup = rate / rate0", 4),
    Relation("speedup", "speedup = seconds0 / seconds", 4),
    Relation("speedup", "speedup = each * devices / each0 / devices0", 1),
    Relation("scaling", "speedup = rate / rate0 / devices * devices0", -1),
    Relation("efficiency", "efficiency = speedup / devices", 4),
    Relation("efficiency", "efficiency = rate / rate0 / devices * devices0", 4),
    Relation("efficiency", "efficiency = seconds0 / seconds / devices * devices0", 2),
    Relation("efficiency", "efficiency = each / each0", 2),
    Relation("weak efficiency", "efficiency = seconds0 / seconds", 0),
    Relation("rate of all devices", "rate = each * devices", 4),
    Relation("global batch", "global_batch = batch * devices", 4),
    Relation("rate", "rate = global_batch / seconds", 1),
    Relation("rate", "rate = work / seconds", 2),
    Relation(SAME_WORK, "rate = seconds0 / seconds", 1.5),
    Relation(SAME_WORK, "each = seconds0 / seconds", 1.5),
    Relation("bandwidth", "algbw = bytes / seconds", 2),
    Relation("bus bandwidth", "busbw = algbw / algbw0", 3),
    Relation("devices x time", "cost = seconds * devices", 1),
    Relation("energy", "energy = power / rate", 2),
    Relation("energy", "energy = power * seconds", 2),
    Relation("saving", "change = / speedup", 1, (1.0, -1)),
    Relation("gain", "change = speedup", 1, (1.0, 1)),
    Relation("utilization", "utilization = flops / flops0", 1),
    Relation("FLOPs per item", "flops = each / each0", 0),
)

# What people print by mistake in a whole column, where the other column is the wrong one; patterns.py has the rest.
MISTAKES = (Relation("inverse", "speedup = / efficiency / devices"),)

# Of any columns a and b. Where the baseline row does not print 1, its number counts too: then it is a proportion.
GENERIC = (
    Relation("{target} = {a} / {b}", "target = a / b"),
    Relation("{target} = {a} x {b}", "target = a * b"),
    Relation("{target} = constant x {a}", "target = a / a0"),
    Relation("{target} = constant / {a}", "target = a0 / a"),
    Relation("{target} = constant x {a} / {b}", "target = a / b / a0 * b0"),
    Relation("{target} = constant x {a} x {b}", "target = a * b / a0 / b0"),
)
CHANGES = (0.0, 1), (1.0, 1), (1.0, -1)  # shifts: a ratio, a change, a saving
SUM, CUMULATIVE = "sum", "running sum"
