"""What the audit finds in the corpus and in spoiled tables, against what it should."""

from __future__ import annotations

import dataclasses
import random
import re
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.audit import claims, column_faults, corpus, faults, made
from rnn_scaling.audit import auditing
from rnn_scaling.audit.auditing import FileReport
from rnn_scaling.audit.finding import Finding

EACH = 8  # tables a kind of fault
_PAIR = 2  # rows that a fault of two exchanged ones spoils
KINDS = {**faults.KINDS, **column_faults.KINDS}  # one table, which both modules fill


@dataclasses.dataclass(frozen=True)
class Read:
    """A document of the corpus and what the audit said of it.

    right, false: its findings; missed: places that are due and were not found; named: whether it said right away that
    nothing could be compared.
    """

    document: corpus.Document
    report: FileReport
    right: tuple[Finding, ...]
    false: tuple[Finding, ...]
    missed: tuple[corpus.Place, ...]
    due: int


@dataclasses.dataclass(frozen=True)
class Planted:
    """One spoiled table.

    name: of the document that it was made from, "" for a made table; columns: the headers that were spoiled.
    hit: whether a finding is in a spoiled row.
    """

    kind: str
    seed: int
    name: str
    family: str
    form: str
    text: str
    hit: bool
    findings: tuple[Finding, ...]
    rows: tuple[int, ...]
    columns: tuple[str, ...] = ()

    @property
    def blamed(self) -> bool:
        """Whether the findings name no row that is right, and one of them the column that is wrong.

        Where a whole column is, the baseline's cell alone explains it as well.
        """
        named = any(name in f.column for f in self.findings for name in self.columns)
        of_baseline = any(f.line == self.rows[0] and "baseline" in f.cause for f in self.findings)
        return (named or (of_baseline and len(self.rows) > _PAIR)) and all(f.line in self.rows for f in self.findings)

    @property
    def held_out(self) -> bool:
        """Every third, by a hash; faults in documents of the corpus as their documents."""
        return zlib.crc32(f"{self.kind} {self.seed}".encode()) % 3 == 0 if not self.name else bool(self.seed)


class Auditor:
    """The audit as a library, on texts instead of files."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> Auditor:
        return self

    def __exit__(self, *exc: object) -> None:
        self._folder.cleanup()

    def audit(self, text: str, suffix: str) -> FileReport:
        """The report on one text, as if it were a file with this suffix."""
        path = Path(self._folder.name) / f"table.{suffix}"
        path.unlink(missing_ok=True)  # to cut a file that is there takes longer than to read it
        path.write_text(text, encoding="utf-8")
        return auditing.audit(path)


def read(auditor: Auditor, documents: Iterable[corpus.Document]) -> Iterator[Read]:
    """Each document with its findings told apart by its verdict."""
    verdicts = corpus.verdicts()
    for document in documents:
        verdict = verdicts[document.name]
        report = auditor.audit(document.text, document.keys["form"])
        known = (*verdict.due, *verdict.odd)
        right = tuple(f for f in report.findings if any(f.line in place.lines for place in known))
        false = tuple(f for f in report.findings if f not in right)
        lines = {line for f in report.findings for line in (f.line, *f.others)}
        missed = tuple(place for place in verdict.due if not lines.intersection(place.lines))
        yield Read(document, report, right, false, missed, len(verdict.due))


def faults_of_the_audit(documents: Iterable[Read]) -> dict[str, list[str]]:
    """What the audit gets wrong in the corpus: false alarms by place and check, misses by place."""
    documents = list(documents)
    alarms = {f"{r.document.name}:{f.line} {f.check}" for r in documents for f in r.false}
    misses = {f"{r.document.name}:{place.lines[0]}" for r in documents for place in r.missed}
    return {"false_alarms": sorted(alarms), "misses": sorted(misses)}


def plant(auditor: Auditor, kinds: Iterable[str] = tuple(KINDS), each: int = EACH) -> Iterator[Planted]:
    """Spoils `each` tables by every kind, the first from a seed of its own that have what it spoils."""
    for kind in kinds:
        done, first = 0, zlib.crc32(kind.encode()) % 10_000
        for seed in range(first, first + 100 * each):
            table = made.make(seed)
            clean, _ = table.text()
            cells = [list(row) for row in table.cells]
            rows = KINDS[kind](random.Random(f"{kind} {seed}"), table)
            text, lines = table.text()
            if not rows or text == clean:
                continue
            done += 1
            if done > each:
                break
            report = auditor.audit(text, table.suffix)
            spoiled = {lines[row] for row in rows}
            hit = any(finding.line in spoiled or finding.line == 0 for finding in report.findings)
            yield Planted(
                kind, seed, "", table.family, table.form, text, hit, tuple(report.findings), tuple(sorted(spoiled)),
                _changed(table, cells),
            )  # fmt: skip


def _changed(table: made.Made, before: list[list[str]]) -> tuple[str, ...]:
    """Headers of the columns in which a cell is not what it was."""
    pairs = [(row, old) for row, old in zip(table.cells, before)]
    return tuple(c.header for k, c in enumerate(table.columns) if any(row[k] != old[k] for row, old in pairs))


FACTORS = {"speedup or ratio": 1.25, "number that it is made from": 0.8}


def plant_in_corpus(auditor: Auditor, found: Iterable[corpus.Document]) -> Iterator[Planted]:
    """Spoils one number of each claim of the corpus, and all numbers of the column that it is about."""
    for document in found:
        tables = claims.tables(document.text)
        for claim in document.keys.get("claims", "").split(" ; "):
            if not claim or any(claims.check(claim, tables)):
                continue
            where, _, equation = claim.partition(":")
            target, _, formula = (part.strip() for part in equation.partition("="))
            rows = tables[int(where)][1:]
            source = re.search(r"c(\d+)(?!\d*@)", formula)
            for what, factor in FACTORS.items():
                column = int(target[1:]) if factor > 1 else int(source[1]) if source else -1
                if column >= 0:
                    yield from _spoil(
                        auditor, document, claim, f"real tables: one {what} off", rows[-1:], column, factor
                    )
            kind = "real tables: all speedups or ratios off"
            yield from _spoil(auditor, document, claim, kind, rows[1:], int(target[1:]), 1.25)


def _spoil(
    auditor: Auditor, document: corpus.Document, claim: str, kind: str,
    rows: list[tuple[int, list[str]]], column: int, factor: float,
) -> Iterator[Planted]:  # fmt: skip
    lines = document.text.splitlines()
    for line, cells in rows:
        if column < len(cells):
            lines[line - 1] = claims.put(lines[line - 1], cells, column, factor)
    text = "\n".join(lines) + "\n"
    spoiled = {line for place in claims.check(claim, claims.tables(text)) for line in place.lines}
    if not spoiled:
        return  # within rounding, or the number stands in for no other
    if len(rows) > 1:  # a finding about a whole column may stand in any of its rows
        tables = (table for table in claims.tables(text) if any(line in spoiled for line, _ in table))
        spoiled |= {line for table in tables for line, _ in table}
    report = auditor.audit(text, document.keys["form"])
    hit = any(finding.line in spoiled or finding.line == 0 for finding in report.findings)
    form = document.keys["form"]
    yield Planted(
        kind, int(document.held_out), document.name, "real", form, text, hit, tuple(report.findings),
        tuple(sorted(spoiled)),
    )  # fmt: skip


def clean(auditor: Auditor, seeds: Iterable[int]) -> Iterator[tuple[int, str, FileReport]]:
    """Consistent tables, of which each finding is a false alarm."""
    for seed in seeds:
        table = made.make(seed)
        text, _ = table.text()
        yield seed, text, auditor.audit(text, table.suffix)
