"""A table -> the findings in it."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.audit import candidates, columns, limits, repairs, slips
from rnn_scaling.analysis.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, Place
from rnn_scaling.analysis.audit.instances import Bounds, Instance, Mark
from rnn_scaling.analysis.audit.readings import LEAST, Reading
from rnn_scaling.analysis.audit.relations import Relation
from rnn_scaling.analysis.audit.repairs import MATERIAL, Change, Fault
from rnn_scaling.records import printed_number
from rnn_scaling.records.tables import measurements
from rnn_scaling.records.tables.measurements import Measurements
from rnn_scaling.records.tables.measurements import Place as Ref
from rnn_scaling.records.tables.table import Table

_MOST_SHOWN = 6  # rows, and columns, of an excerpt
_CERTAIN = 10.0  # bits of a relation that is no accident
_CONFIRMS = 8.0  # bits of a reading that confirms its numbers
_MOST_SIBLINGS = 60  # rows with the baseline of a broken row that are looked at
_UNKNOWN = (math.nan, math.nan)


def check(table: Table) -> tuple[int, list[Finding]]:
    """Return the number of comparisons in a table, and the findings.

    Each place is reported once.
    """
    compared = 0
    made: list[Finding] = []
    seen: set[Ref] = set()
    for found in measurements.read(table):
        audited = _Audit(found)
        compared += audited.comparisons
        for refs, finding in audited.findings():
            if seen.isdisjoint(refs):
                seen |= set(refs)
                made.append(finding)
    return compared, sorted(made, key=lambda finding: finding.places[0].line)


class _Audit:
    """The audit of one layout of a table."""

    def __init__(self, found: Measurements) -> None:
        self._found = found
        self._swaps = list(columns.swapped(found))
        # Columns whose headings are swapped; their values have no meaning.
        self._mistitled = {one.target for swap in self._swaps for one in swap}
        self._believed = [
            reading
            for reading in candidates.believed(found)
            if self._mistitled.isdisjoint(reading.columns[:1])
        ]
        self._series = list(limits.series(found))
        # Of every number its column, its row in the layout, and itself.
        self._places = {}
        for column in reversed(found.columns):
            for row, item in enumerate(column.items):
                if item:
                    self._places[item.place] = (column, row, item)

    @property
    def comparisons(self) -> int:
        """How many relations between numbers were tested."""
        num_points = sum(len(one.points) for one in self._series)
        return num_points + sum(len(reading.rows) for reading in self._believed)

    def findings(self) -> Iterator[tuple[Sequence[Ref], Finding]]:
        """Yield the places and the finding of every fault."""
        for swap in self._swaps:
            yield self._of_swap(swap)
        explained: set[Ref] = set()
        for reading in self._believed:
            if reading.pattern:
                fault = _of_pattern(reading)
                explained |= set(fault.changes[0].fits)
                yield from self._of_fault(fault, reading.bits)
        yield from self._of_numbers(explained)
        for reading in columns.mistakes(self._found, self._believed):
            if reading.target not in self._mistitled:
                refs = self._refs(reading)
                about = (reading.relation.name, reading.bits, refs[1:_MOST_SHOWN])
                yield refs, self._finding("column", True, {refs[0]: _UNKNOWN}, *about)
        for outlier in limits.outliers(self._found, self._series):
            is_certain = outlier.kind == "order"
            may_follow = outlier.kind in ("superlinear", "copy")
            if may_follow and self._is_confirmed(outlier.item.place):
                continue
            fits = {outlier.item.place: outlier.fits}
            if outlier.other:
                fits[outlier.other.place] = outlier.fits
            finding = self._finding(outlier.kind, is_certain, fits)
            yield [outlier.item.place], finding

    def _is_confirmed(self, place: Ref) -> bool:
        """Return whether a number follows from others."""
        row = self._places[place][1]
        for reading in self._believed:
            held = np.setdiff1d(reading.rows, reading.missed)
            near = held[(held == row) | (reading.base[held] == row)]
            for instance in reading.instances(near[:_MOST_SIBLINGS]):
                if place in instance.places:
                    return True
        return False

    def _of_numbers(
        self, explained: set[Ref]
    ) -> Iterator[tuple[Sequence[Ref], Finding]]:
        """Yield the findings about single numbers, and exchanged ones."""
        bits = {}
        instances: dict[Mark, Instance] = {}
        for reading in self._believed:
            if reading.pattern:
                continue
            for instance in reading.instances(self._rows_to_repair(reading)):
                if explained.isdisjoint(instance.places) or instance.holds():
                    instances[instance.mark] = instance
                    bits[instance.mark] = reading.bits
        confirming = {mark for mark, gained in bits.items() if gained >= _CONFIRMS}
        for fault in repairs.faults(list(instances.values()), confirming):
            most = max(bits[instance.mark] for instance in fault.broken)
            relation = fault.broken[0].relation
            is_due = most >= LEAST or relation.is_sum or not relation.is_generic
            if is_due:
                yield from self._of_fault(fault, most)

    def _rows_to_repair(self, reading: Reading) -> np.ndarray:
        """Return the rows of a reading that share numbers with broken rows."""
        touched = [np.array([], int)]
        for other in self._believed:
            touched += [other.missed, other.base[other.missed]]
        places = np.unique(np.concatenate(touched))
        rows = reading.rows
        siblings = rows[np.isin(reading.base[rows], places)][:_MOST_SIBLINGS]
        return np.union1d(rows[np.isin(rows, places)], siblings)

    def _is_material(self, fault: Fault) -> bool:
        """Return whether medians and unprinted digits do not explain the fault."""
        for change in fault.changes:
            for ref, (low, high) in change.fits.items():
                item = self._places[ref][2]
                off = max(low - item.high, item.low - high)
                if off > MATERIAL * max(abs(item.high), abs(item.low)):
                    return True
        return False

    def _of_fault(
        self, fault: Fault, bits: float
    ) -> Iterator[tuple[Sequence[Ref], Finding]]:
        """Yield a fault, if it is material, as a finding."""
        if not self._is_material(fault):
            return
        kind = fault.changes[0].kind if len(fault.changes) == 1 else "one-of"
        fits: dict[Ref, Bounds] = {}
        for change in fault.changes:
            fits |= change.fits
        is_exact = not any(instance.tolerance for instance in fault.broken)
        is_certain = bits >= _CERTAIN and is_exact
        others = [ref for instance in fault.broken for ref in instance.places]
        about = (_formula(fault.broken[0].relation), bits, others)
        yield list(fits), self._finding(kind, is_certain, fits, *about)

    def _refs(self, reading: Reading) -> list[Ref]:
        """Return the places of the target column."""
        items = self._found.columns[reading.target].items
        return [item.place for item in items if item]

    def _of_swap(self, swap: columns.Swap) -> tuple[Sequence[Ref], Finding]:
        """Return the cells of two columns with swapped headings, and the finding."""
        first, second = (self._refs(reading) for reading in swap)
        others = [*itertools.chain(*zip(first, second))][: 2 * _MOST_SHOWN]
        bits = min(reading.bits for reading in swap)
        about = (_formula(swap[0].relation), bits, others)
        fits = {first[0]: _UNKNOWN, second[0]: _UNKNOWN}
        finding = self._finding("swapped-headings", True, fits, *about)
        line = self._found.table.line
        places = []
        for place in finding.places:
            title = place.column
            places.append(Place(line, "", title, title, *_UNKNOWN))
        return [*first, *second], dataclasses.replace(finding, places=tuple(places))

    def _finding(
        self,
        kind: str,
        is_certain: bool,
        fits: dict[Ref, Bounds],
        relation: str = "",
        bits: float = 0.0,
        others: Sequence[Ref] = (),
    ) -> Finding:
        """Return the finding about some places. others: more that the excerpt shows."""
        places = tuple(self._place(ref, fit) for ref, fit in fits.items())
        strength = IMPOSSIBLE if is_certain else UNLIKELY
        source = self._found.table.source
        excerpt = self._excerpt([*fits, *others])
        return Finding(kind, strength, source, places, relation, bits, excerpt)

    def _excerpt(self, refs: Sequence[Ref]) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """Return the header and the rows of some places, with their columns."""
        table = self._found.table
        shown = {0, *(column % len(table.header) for _, column in refs)}
        rows = {row for row, _ in refs[:_MOST_SHOWN] if row >= 0}
        lines = [(table.line, table.header), *(table.rows[row] for row in sorted(rows))]
        chosen = sorted(shown)[:_MOST_SHOWN]
        return tuple(
            (line, tuple(printed_number.plain(texts[k]) for k in chosen))
            for line, texts in lines
        )

    def _place(self, ref: Ref, bounds: Bounds) -> Place:
        """Return a cell with the bounds of what fits."""
        table = self._found.table
        line, texts = table.rows[ref[0]]
        k = ref[1] % len(table.header)
        column, row, item = self._places[ref]
        devices = self._found.devices.items[row] if self._found.devices else None
        count = devices.low if devices else 1.0
        slip = slips.cheapest(item, bounds, count, column)
        names = [text for j, text in enumerate(texts) if text.strip() and j != k]
        return Place(
            line,
            printed_number.plain(names[0]) if names else "",
            table.header[k],
            printed_number.plain(texts[k]),
            *slips.in_unit_of_cell(item, bounds),
            slip.name if slip else "",
        )


def _of_pattern(reading: Reading) -> Fault:
    """Return the wrong targets of several rows, with what fits there."""
    instances = reading.instances(reading.missed)
    fits = {}
    for instance in instances:
        place = instance.terms[0].item.place
        fits[place] = instance.fits(place)
    return Fault(instances, [Change(reading.pattern, fits)])


def _formula(relation: Relation) -> str:
    """Return a relation in words: "speedup = rate / baseline rate"."""
    if relation.is_sum or relation.is_generic:
        return relation.name
    text = re.sub(r"(\w+)_0", r"baseline \1", relation.text)
    return text.replace("each", "rate per device").replace("*", "x")
