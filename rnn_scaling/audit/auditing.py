"""A file or a folder of records -> the findings of all its tables."""

import collections
import dataclasses
import gc
import itertools
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from pathlib import Path

from rnn_scaling.audit import (
    derived,
    documents,
    headers,
    limits,
    numbers,
    own_records,
    patterns,
    readings,
    repairs,
    slips,
)
from rnn_scaling.audit.derived import Series
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, Place
from rnn_scaling.audit.instances import Instance
from rnn_scaling.audit.readings import Reading
from rnn_scaling.audit.repairs import MATERIAL, Fault
from rnn_scaling.audit.tables import Ref, Table, View, views
from rnn_scaling.records.record import RecordError

MAX_NUMBERS = 500_000  # of a file
DOCUMENTS = (".md", ".html", ".htm", ".csv", ".tsv", ".json", ".jsonl", ".txt")  # that are looked for in folders
MAX_FINDINGS, MOST_SERIES = 1_000, 200  # of a file that are kept
MOST_SHOWN, MOST_COLUMNS = 6, 6  # rows and columns of an excerpt
MOST_JOINED = 4_000  # rows of tables that are joined
MOST_WAITING = 20_000  # rows of tables of other headers that are kept for this
CERTAIN = 10.0  # bits of a relation that is no accident


@dataclasses.dataclass
class FileReport:
    """What was read of a file.

    comparisons: relations between printed numbers that were tested. is_empty: nothing in it can be compared.
    """

    source: str
    tables: int = 0
    numbers: int = 0
    comparisons: int = 0
    findings: list[Finding] = dataclasses.field(default_factory=list)
    series: list[Series] = dataclasses.field(default_factory=list)
    error: str = ""
    is_empty: bool = False


def files(path: Path) -> list[Path]:
    """A file itself; of a folder every document in it, and the folder if it has run records."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in DOCUMENTS and file.is_file())
    records = {file for file in found if file.suffix == ".json" and own_records.is_own(file)}
    return [path] * bool(records) + [file for file in found if file not in records]


def audit(path: Path, max_numbers: int = MAX_NUMBERS) -> FileReport:
    """Checks every table of a file; what was found stays when the rest cannot be read."""
    was_on = gc.isenabled()
    gc.disable()  # nothing here refers to itself; looking for that takes a third of the time of a long table
    try:
        return _checked(path, max_numbers)
    finally:
        if was_on:
            gc.enable()


def _checked(path: Path, max_numbers: int) -> FileReport:
    report = FileReport(str(path))
    try:
        own = own_records.read(path)
        if own:
            report.comparisons, report.findings = own_records.check(own)
        for table in [own_records.table(own, str(path))] if own else joined(documents.tables(path), max_numbers):
            report.tables += len(set(table.parts)) or 1
            report.numbers += table.count
            found = views(table)
            compared, findings = check(table, found)
            report.comparisons += compared
            report.series += itertools.islice(_series(found), MOST_SERIES - len(report.series))
            report.findings += findings[: MAX_FINDINGS - len(report.findings)]
            if report.numbers >= max_numbers:
                line = table.rows[-1][0]
                report.error = (
                    f"{path}: checked only the first {report.numbers:,} numbers, up to the table at line {line}; "
                    "raise --max_numbers"
                )
                break
    except OSError as e:
        report.error = f"{path}: {e.strerror or e}"
    except (documents.UnreadableError, RecordError) as e:
        report.error = str(e)
    report.is_empty = not report.error and not report.comparisons
    if report.is_empty and not report.tables:
        report.error = f"{path}: no table in it; --help says what is read"
    elif report.is_empty:
        report.error = (
            f"{path}: nothing to compare: no relation between columns of its tables is known; see docs/audit.md"
        )
    return report


def joined(tables: Iterable[Table], max_numbers: int = MAX_NUMBERS) -> Iterator[Table]:
    """The tables of a file; those of the same header as one, because what holds in one holds in the others.

    The last table is the one with which `max_numbers` are reached.
    """
    waiting: dict[Hashable, list[Table]] = {}
    rows_of = collections.Counter[Hashable]()  # that wait, by header
    numbers_read = rows_waiting = 0
    for table in tables:
        numbers_read += table.count
        if numbers_read >= max_numbers:
            yield from map(_joined, waiting.values())
            yield table
            return
        if len(table.rows) > MOST_JOINED:
            yield table
            continue
        about = headers.quantity_of(f"{table.caption} {table.title}".lower())  # of columns that are named after devices
        key = table.header, about
        waiting.setdefault(key, []).append(table)
        rows_of[key] += len(table.rows)
        rows_waiting += len(table.rows)
        if rows_of[key] > MOST_JOINED:
            yield _joined(waiting.pop(key))
            rows_waiting -= rows_of.pop(key)
        elif rows_waiting > MOST_WAITING:
            yield from map(_joined, waiting.values())
            waiting, rows_of, rows_waiting = {}, collections.Counter(), 0
    yield from map(_joined, waiting.values())


def _joined(tables: Sequence[Table]) -> Table:
    if len(tables) == 1:
        return tables[0]
    rows = tuple(itertools.chain.from_iterable(table.rows for table in tables))
    parts = tuple(k for k, table in enumerate(tables) for _ in table.rows)
    return dataclasses.replace(tables[0], rows=rows, parts=parts)


def _series(found: Sequence[View]) -> Iterator[Series]:
    """The series of the first view of a table that has some."""
    for view in found:
        made = derived.series(view)
        if first := next(made, None):
            yield from itertools.chain([first], made)
            return


def check(table: Table, found_views: Sequence[View] | None = None) -> tuple[int, list[Finding]]:
    """The number of comparisons in a table, and the findings, each place once."""
    compared, found, seen = 0, [], set[Ref]()
    for view in views(table) if found_views is None else found_views:
        believed = readings.readings(view)
        compared += sum(reading.compared or len(reading.instances) for reading in believed)
        measured = list(limits.series(view))
        compared += sum(len(points) for _, points in measured)
        for refs, made in _findings(view, believed, measured):
            if not seen & set(refs):
                seen |= set(refs)
                found.append(made)
    return compared, sorted(found, key=lambda made: made.places[0].line)


def _findings(
    view: View, believed: Sequence[Reading], measured: Sequence[limits.Measured]
) -> Iterator[tuple[tuple[Ref, ...], Finding]]:
    items = {ref: item for ref, (column, at) in view.places.items() if (item := column.items[at])}
    for fault in filter(_is_material, repairs.faults(believed, items)):
        refs = tuple(dict.fromkeys(ref for change in fault.changes for ref in change.places))
        of_fault = [reading for reading in believed if fault.broken[0] in reading.instances]
        other = next((reading for reading in of_fault if readings.is_other_row(view, reading, fault)), None)
        yield refs, _of_column(view, readings.of_other_baseline(other)) if other else _of_fault(view, fault)
    of_columns = (readings.mistakes, readings.inverses, readings.contradictions, readings.other_baselines)
    for reading in itertools.chain.from_iterable(check(view, believed) for check in of_columns):
        column = view.columns[reading.target]
        refs = tuple(item.ref for item in column.items if item)
        yield refs, _of_column(view, reading)
    confirmed = frozenset(t.item.ref for r in believed for i in r.instances if i.holds for t in i.terms)
    for outlier in limits.outliers(view, measured, confirmed):
        place = _place(view, outlier.item.ref, *outlier.fits)
        places = (place, _place(view, outlier.like, *outlier.fits)) if outlier.like else (place,)
        excerpt = _excerpt(view, [outlier.item.ref])
        strength = IMPOSSIBLE if outlier.kind == "order" else UNLIKELY
        yield (outlier.item.ref,), Finding(outlier.kind, strength, view.table.source, places, "", 0.0, excerpt)


def _is_material(fault: Fault) -> bool:
    """Whether a number is off by more than what medians and unprinted digits explain."""
    items = {term.item.ref: term.item for instance in fault.broken for term in instance.terms}
    for change in fault.changes:
        for ref, (low, high) in zip(change.places, change.fits):
            item = items.get(ref)
            if item and max(low - item.high, item.low - high) > MATERIAL * max(abs(item.high), abs(item.low)):
                return True
    return False


def _of_fault(view: View, fault: Fault) -> Finding:
    changes = fault.changes
    kind = changes[0].kind if len(changes) == 1 or changes[0].kind in patterns.KINDS else "one-of"
    if kind == "number" and len(changes[0].places) > 1:
        kind = "numbers"
    pairs = itertools.chain.from_iterable(zip(change.places, change.fits) for change in changes)
    places = tuple(_place(view, ref, *fit) for ref, fit in pairs)
    is_exact = all(not instance.tolerance for instance in fault.broken)
    strength = IMPOSSIBLE if is_exact and fault.bits >= CERTAIN else UNLIKELY
    refs = [term.item.ref for instance in fault.broken for term in instance.terms]
    excerpt = _excerpt(view, [*(ref for change in changes for ref in change.places), *refs])
    return Finding(kind, strength, view.table.source, places, _formula(fault.broken[0]), fault.bits, excerpt)


def _formula(instance: Instance) -> str:
    """The relation in words: "speedup = rate / baseline rate"."""
    relation = instance.relation
    is_named = relation.is_sum or relation.target == "target"
    text = re.sub(r"([a-z]+)0", r"baseline \1", relation.text).replace("each", "rate per device")
    return relation.name if is_named else text.replace("*", "x")


def _excerpt(view: View, refs: Sequence[Ref]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The header and the first MOST_SHOWN rows of some places, with the columns of these and the first."""
    table = view.table
    columns = sorted({0, *(column % len(table.header) for _, column in refs)})[:MOST_COLUMNS]
    rows = sorted({row for row, _ in refs[:1] if row >= 0} | {row for row, _ in [*refs][:MOST_SHOWN] if row >= 0})
    shown = [(table.line, table.header), *(table.rows[row] for row in rows)]
    return tuple((line, tuple(numbers.plain(texts[k]) for k in columns)) for line, texts in shown)


def _of_column(view: View, reading: Reading) -> Finding:
    column = view.columns[reading.target]
    items = [item for item in column.items if item]
    places = tuple(_place(view, item.ref, float("nan"), float("nan")) for item in items[:1])
    excerpt = _excerpt(view, [ref for item in items[:MOST_SHOWN] for ref in [item.ref]])
    return Finding("column", IMPOSSIBLE, view.table.source, places, reading.relation.name, reading.bits, excerpt)


def _place(view: View, ref: Ref, low: float, high: float) -> Place:
    """A cell with the bounds of what fits, in the unit in which it is printed."""
    line, texts = view.table.rows[ref[0]]
    k = ref[1] % len(view.table.header)
    column, at = view.places[ref]
    item = column.items[at]
    assert item
    factor = item.high / item.number.high if item.number.high and item.low != item.high else 1.0
    low, high = low / factor, high / factor
    devices = next((count.low for j in view.of("devices") if (count := view.columns[j].items[at])), None)
    slip = slips.cheapest(item.number, low, high, devices, column.values)
    name = next((numbers.plain(text) for j, text in enumerate(texts) if text.strip() and j != k), "")
    return Place(line, name, view.table.header[k], numbers.plain(texts[k]), low, high, slip.name if slip else "")
