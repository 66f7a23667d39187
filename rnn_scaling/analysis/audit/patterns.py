"""Faults of several rows at once: numbers that slipped by a row, another baseline, a factor that is missing."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rnn_scaling.analysis.audit.instances import MISS, Product, Term
from rnn_scaling.analysis.audit.tables import Item

SHIFTED, OTHER_BASELINE, INVERSE = "shifted", "other-baseline", "inverse"
NOT_DIVIDED, PER_DEVICE, SCALED = "not-divided", "per-device", "scaled"
KINDS = (SHIFTED, OTHER_BASELINE, INVERSE, NOT_DIVIDED, PER_DEVICE, SCALED)
Move = Callable[[Product], Product | None]
_MOST_BASELINES = 20  # rows that are tried as another baseline
_FEWEST = 2  # rows that a pattern explains, at least
_BITS = MISS + 2.0  # price of a pattern
_CLEAR = 0.05  # natural logarithm: inverse numbers that are closer to 1 are none


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A fault of several rows. bits: of all rows, less its price."""

    kind: str
    bits: float


def best(
    instances: Sequence[Product], tolerance: float, spread: float
) -> Pattern | None:
    """The pattern that explains all missed rows, if there is one."""
    missed = [
        instance for instance in instances if not instance.holds_within(tolerance)
    ]
    found: dict[str, float] = {}
    for kind, move in _moves(instances, missed) if len(missed) >= _FEWEST else ():
        probe = move(missed[1 if kind == SHIFTED else 0])  # most patterns fail at once
        if probe and probe.holds_within(tolerance):
            fitting = [
                moved
                for moved in map(move, missed)
                if moved and moved.holds_within(tolerance)
            ]
            if len(fitting) >= max(_FEWEST, len(missed) - (kind == SHIFTED)):
                bits = sum(instance.bits(tolerance, spread) for instance in fitting)
                found[kind] = max(bits, found.get(kind, -math.inf))
    if not found:
        return None
    held = sum(
        instance.bits(tolerance, spread)
        for instance in instances
        if instance.holds_within(tolerance)
    )
    kind = max(found, key=lambda kind: found[kind])
    return Pattern(kind, found[kind] - _BITS - math.log2(len(instances)) + held)


def _moves(
    instances: Sequence[Product], missed: Sequence[Product]
) -> Iterator[tuple[str, Move]]:
    """For each kind how a missed instance would be without the fault."""
    targets = {instance.row: instance.terms[0].item for instance in instances}
    relation = instances[0].relation
    rows = {instance.row for instance in missed}
    is_run = max(rows) - min(rows) <= len(rows)
    may_slip = is_run and not (
        relation.is_generic and relation.has_baseline
    )  # 2, 4, 8 fit shifted, too
    for step in (1, -1) if may_slip else ():
        neighbours = [
            targets[row + step].number.value for row in rows if row + step in targets
        ]
        if len(set(neighbours)) >= _FEWEST:
            yield (
                SHIFTED,
                lambda i, step=step: _with_target(  # type: ignore[misc]
                    i, targets.get(i.row + step)
                ),
            )
    for base in instances[:_MOST_BASELINES]:
        if base.row not in rows:
            items = {
                t.item.ref[1]: t.item
                for t in base.terms[1:]
                if t.item.ref[0] == base.terms[0].item.ref[0]
            }
            yield OTHER_BASELINE, lambda i, items=items: _rebased(i, items)  # type: ignore[misc]
    if max(max(map(abs, instance.terms[0].logs())) for instance in missed) > _CLEAR:
        yield INVERSE, lambda i: _with_first(i, i.terms[0]._replace(exponent=-1))
    if (
        all(instance.devices > 1 for instance in missed)
        and len({instance.devices for instance in instances}) > 1
    ):
        kind = NOT_DIVIDED if relation.target == "efficiency" else PER_DEVICE
        yield kind, lambda i: _scaled(i, 1.0 / i.devices)
        yield PER_DEVICE, lambda i: _scaled(i, i.devices)
    for factor in (100.0, 0.01, 10.0, 0.1, 1e3, 1e-3):
        yield SCALED, lambda i, factor=factor: _scaled(i, factor)  # type: ignore[misc]


def _with_first(instance: Product, first: Term) -> Product:
    return Product.of(
        instance.relation, (first, *instance.terms[1:]), instance.row, instance.devices
    )


def _with_target(instance: Product, item: Item | None) -> Product | None:
    return (
        _with_first(instance, instance.terms[0]._replace(item=item)) if item else None
    )


def _scaled(instance: Product, factor: float) -> Product | None:
    item = instance.terms[0].item
    return _with_target(
        instance, item._replace(low=item.low * factor, high=item.high * factor)
    )


def _rebased(instance: Product, items: Mapping[int, Item]) -> Product:
    """The instance with the numbers of another row, by column, in place of its baseline's."""
    row = instance.terms[0].item.ref[0]
    terms = [
        term
        if term.item.ref[0] == row
        else term._replace(item=items.get(term.item.ref[1], term.item))
        for term in instance.terms
    ]
    return Product.of(instance.relation, terms, instance.row, instance.devices)
