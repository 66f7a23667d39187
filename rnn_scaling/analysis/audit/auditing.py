"""A file or a folder of records -> the findings of all its tables."""

import collections
import dataclasses
import gc
import itertools
import re
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from math import nan
from pathlib import Path

from rnn_scaling.analysis.audit import (
    documents,
    headers,
    headings,
    limits,
    own_records,
    readings,
    repairs,
    slips,
)
from rnn_scaling.analysis.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, Place
from rnn_scaling.analysis.audit.instances import Instance
from rnn_scaling.analysis.audit.patterns import KINDS
from rnn_scaling.analysis.audit.readings import Reading
from rnn_scaling.analysis.audit.repairs import MATERIAL, Fault
from rnn_scaling.analysis.audit.tables import Ref, Table, View, views
from rnn_scaling.records import printed_number
from rnn_scaling.records.own_files import starts_as
from rnn_scaling.records.record import RecordError

MAX_NUMBERS = 500_000  # of a file
DOCUMENTS = (
    ".md",
    ".html",
    ".htm",
    ".csv",
    ".tsv",
    ".json",
    ".jsonl",
    ".txt",
)  # that are looked for in folders
MAX_FINDINGS = 1_000  # of a file that are kept
MOST_SHOWN, MOST_COLUMNS = 6, 6  # rows and columns of an excerpt
MOST_JOINED = 20_000  # rows of tables that are joined
MOST_WAITING = 60_000  # rows of tables of other headers that are kept for this
CERTAIN = 10.0  # bits of a relation that is no accident


@dataclasses.dataclass
class FileReport:
    source: str
    tables: int = 0
    numbers: int = 0
    comparisons: int = 0  # relations between printed numbers that were tested
    findings: list[Finding] = dataclasses.field(default_factory=list)
    error: str = ""
    is_empty: bool = False  # nothing in it can be compared


def files(path: Path) -> list[Path]:
    """A file itself; of a folder every document in it, and the folder if it has run records."""
    if not path.is_dir():
        return [path]
    documents_ = (
        file for file in path.rglob("*") if file.suffix in DOCUMENTS and file.is_file()
    )
    found = sorted(file for file in documents_ if not starts_as(file, rb"prediction/"))
    records = {
        file for file in found if file.suffix == ".json" and own_records.is_own(file)
    }
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
        runs = own_records.read(path)
        if runs:
            report.comparisons, report.findings = own_records.check(runs)
        for table in (
            [own_records.table(runs, str(path))]
            if runs
            else joined(documents.tables(path), max_numbers)
        ):
            report.tables += len(set(table.parts)) or 1
            report.numbers += table.count
            compared, findings = check(table)
            report.comparisons += compared
            report.findings += findings[: MAX_FINDINGS - len(report.findings)]
            if report.numbers >= max_numbers:
                read = f"the first {report.numbers:,} numbers, up to the table at line {table.rows[-1][0]}"
                report.error = f"{path}: checked only {read}; raise --max_numbers"
                break
    except OSError as e:
        report.error = f"{path}: {e.strerror or e}"
    except (documents.UnreadableError, RecordError) as e:
        report.error = str(e)
    report.is_empty = not report.error and not report.comparisons
    if report.is_empty:
        unrelated = "nothing to compare: no relation between columns of its tables is known; see docs/audit.md"
        report.error = f"{path}: {unrelated if report.tables else 'no table in it; --help says what is read'}"
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
        about = headers.quantity_of(
            f"{table.caption} {table.title}".lower()
        )  # of columns named after devices
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


def check(table: Table) -> tuple[int, list[Finding]]:
    """Return the number of comparisons in a table, and the findings.

    Each place is reported once.
    """
    compared, found, seen = 0, [], set[Ref]()
    for view in views(table):
        swaps = list(headings.swapped(view))
        mistitled = {reading.target for swap in swaps for reading in swap}
        believed = [
            reading
            for reading in readings.readings(view)
            if reading.target not in mistitled
        ]
        compared += sum(
            reading.compared or len(reading.instances) for reading in believed
        )
        measured = list(limits.series(view))
        compared += sum(len(points) for _, points in measured)
        of_swaps = [_of_swap(view, swap) for swap in swaps]
        of_cells = _findings(view, believed, measured, mistitled)
        for refs, made in itertools.chain(of_swaps, of_cells):
            if not seen & set(refs):
                seen |= set(refs)
                found.append(made)
    return compared, sorted(found, key=lambda made: made.places[0].line)


def _findings(
    view: View,
    believed: Sequence[Reading],
    measured: Sequence[limits.Measured],
    mistitled: Set[int],
) -> Iterator[tuple[tuple[Ref, ...], Finding]]:
    """Yield the places and the finding of every fault.

    Args:
      view: The view of a table.
      believed: The relations that hold in it, apart from some rows.
      measured: Its series.
      mistitled: Columns whose headings are swapped; their values have no meaning.
    """
    for fault in filter(_is_material, repairs.faults(view, believed)):
        refs = tuple(
            dict.fromkeys(ref for change in fault.changes for ref in change.places)
        )
        yield refs, _of_fault(view, fault)
    of_columns = (
        readings.mistakes,
        readings.inverses,
        readings.contradictions,
        readings.other_baselines,
    )
    for reading in itertools.chain.from_iterable(
        check(view, believed) for check in of_columns
    ):
        if reading.target in mistitled:
            continue
        yield (
            tuple(item.ref for item in view.columns[reading.target].items if item),
            _of_column(view, reading),
        )
    confirmed = frozenset(
        t.item.ref for r in believed for i in r.instances if i.holds for t in i.terms
    )
    for outlier in limits.outliers(view, measured, confirmed):
        refs = (outlier.item.ref, outlier.like) if outlier.like else (outlier.item.ref,)
        yield (
            refs[:1],
            _made(
                view,
                outlier.kind,
                outlier.kind == "order",
                [(ref, outlier.fits) for ref in refs],
            ),
        )


def _is_material(fault: Fault) -> bool:
    """Whether a number is off by more than what medians and unprinted digits explain."""
    items = {
        term.item.ref: term.item for instance in fault.broken for term in instance.terms
    }
    fits = [
        (items[ref], fit)
        for change in fault.changes
        for ref, fit in change.fit_of
        if ref in items
    ]
    return any(
        max(a - item.high, item.low - b) > MATERIAL * max(abs(item.high), abs(item.low))
        for item, (a, b) in fits
    )


def _made(
    view: View,
    kind: str,
    is_certain: bool,
    fits: Sequence[tuple[Ref, tuple[float, float]]],
    relation: str = "",
    bits: float = 0.0,
    others: Sequence[Ref] = (),
) -> Finding:
    """The finding about some places; others: more numbers whose rows are shown."""
    places = tuple(_place(view, ref, *fit) for ref, fit in fits)
    excerpt = _excerpt(view, [*(ref for ref, _ in fits), *others])
    strength = IMPOSSIBLE if is_certain else UNLIKELY
    return Finding(kind, strength, view.table.source, places, relation, bits, excerpt)


def _of_fault(view: View, fault: Fault) -> Finding:
    kind = (
        fault.changes[0].kind
        if len(fault.changes) == 1 or fault.changes[0].kind in KINDS
        else "one-of"
    )
    fits = [fit for change in fault.changes for fit in change.fit_of]
    is_certain = fault.bits >= CERTAIN and not any(
        instance.tolerance for instance in fault.broken
    )
    refs = [term.item.ref for instance in fault.broken for term in instance.terms]
    return _made(
        view, kind, is_certain, fits, _formula(fault.broken[0]), fault.bits, refs
    )


def _of_column(view: View, reading: Reading) -> Finding:
    first, *others = [item.ref for item in view.columns[reading.target].items if item][
        :MOST_SHOWN
    ]
    return _made(
        view,
        "column",
        True,
        [(first, (nan, nan))],
        reading.relation.name,
        reading.bits,
        others,
    )


def _of_swap(view: View, swap: headings.Swap) -> tuple[tuple[Ref, ...], Finding]:
    """Return the cells of two columns with swapped headings, and the finding."""
    cells = [
        [item.ref for item in view.columns[reading.target].items if item]
        for reading in swap
    ]
    table = view.table
    titles = [table.header[refs[0][1] % len(table.header)] for refs in cells]
    finding = Finding(
        "swapped-headings",
        IMPOSSIBLE,
        table.source,
        tuple(Place(table.line, "", title, title, nan, nan) for title in titles),
        _formula(swap[0].instances[0]),
        min(reading.bits for reading in swap),
        _excerpt(view, [ref for pair in zip(*cells) for ref in pair][: 2 * MOST_SHOWN]),
    )
    return tuple(itertools.chain(*cells)), finding


def _formula(instance: Instance) -> str:
    """The relation in words: "speedup = rate / baseline rate"."""
    relation = instance.relation
    is_named = relation.is_sum or relation.target == "target"
    text = re.sub(r"([a-z]+)0", r"baseline \1", relation.text).replace(
        "each", "rate per device"
    )
    return relation.name if is_named else text.replace("*", "x")


def _excerpt(
    view: View, refs: Sequence[Ref]
) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """The header and the first MOST_SHOWN rows of some places, with the columns of these and the first."""
    table = view.table
    columns = sorted({0, *(column % len(table.header) for _, column in refs)})[
        :MOST_COLUMNS
    ]
    rows = sorted(
        {row for row, _ in refs[:1] if row >= 0}
        | {row for row, _ in [*refs][:MOST_SHOWN] if row >= 0}
    )
    shown = [(table.line, table.header), *(table.rows[row] for row in rows)]
    return tuple(
        (line, tuple(printed_number.plain(texts[k]) for k in columns))
        for line, texts in shown
    )


def _place(view: View, ref: Ref, low: float, high: float) -> Place:
    """A cell with the bounds of what fits, in the unit in which it is printed."""
    line, texts = view.table.rows[ref[0]]
    k = ref[1] % len(view.table.header)
    column, at, item = view.places[ref]
    factor = (
        item.high / item.number.high
        if item.number.high and item.low != item.high
        else 1.0
    )
    low, high = low / factor, high / factor
    devices = next(
        (count.low for j in view.of("devices") if (count := view.columns[j].items[at])),
        None,
    )
    slip = slips.cheapest(item.number, low, high, devices, column.values)
    name = next(
        (
            printed_number.plain(text)
            for j, text in enumerate(texts)
            if text.strip() and j != k
        ),
        "",
    )
    return Place(
        line,
        name,
        view.table.header[k],
        printed_number.plain(texts[k]),
        low,
        high,
        slip.name if slip else "",
    )
