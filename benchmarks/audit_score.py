"""Count the planted faults that the audit finds in a folder of documents.

    python -m benchmarks.audit_score FOLDER [--show]

FOLDER has subfolders of documents, each with a faults.jsonl that has one line per fault:

    {"file": "07.md", "faulty": "07.fault.md", "kind": "digit",
     "cells": [{"line": 14, "column": "Speedup", "was": "3.52", "is": "5.32"}]}

A fault of one cell is found if a finding names the cell. A fault of a whole column is
found if a finding names the column.

FOLDER/verdicts.jsonl may judge the findings in the originals:

    {"file": "course/07.md", "line": 14, "column": "Speedup", "right": true}
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.audit.auditing import audit
from rnn_scaling.analysis.audit.finding import Finding
from rnn_scaling.records import cell_numbers

MAX_DOCUMENT = 10**9
# Only in these files does a finding have the line of the document.
FILES_WITH_LINES = (".md", ".txt", ".csv", ".tsv")
TITLES_OF_VERDICTS = {None: "not judged", True: "right", False: "wrong"}


@dataclasses.dataclass
class Score:
    """Counts over all documents.

    Attributes:
      planted: Planted faults of each kind.
      found: Faults of each kind that the audit found.
      natural: Findings in the originals, by verdict.
      others: Findings in faulty copies at other cells, that the originals do not have.
      documents: Number of originals.
    """

    planted: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    found: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    natural: collections.Counter[str] = dataclasses.field(
        default_factory=collections.Counter
    )
    others: int = 0
    documents: int = 0


class Scorer:
    """Audits the documents of a folder and counts.

    Args:
      folder: The folder with its subfolders of documents.
      show: Whether to print each miss, each finding at another cell of a faulty copy,
        and each finding in an original that is not known to be right.
    """

    def __init__(self, folder: Path, show: bool) -> None:
        self.score = Score()
        self._folder = folder
        self._show = show
        self._verdicts = {}
        for line in read_lines(folder / "verdicts.jsonl"):
            cell = (line["file"], line["line"], line["column"])
            self._verdicts[cell] = line["right"]

    def score_documents(self) -> None:
        """Score the documents of all subfolders."""
        for subfolder in sorted(self._folder.iterdir()):
            if subfolder.is_dir():
                self._score_subfolder(subfolder)

    def _score_subfolder(self, subfolder: Path) -> None:
        natural_cells = {}
        for path in sorted(subfolder.iterdir()):
            if ".fault." not in path.name and path.stem.isdigit():
                natural_cells[path.name] = self._score_original(path)
        for fault in read_lines(subfolder / "faults.jsonl"):
            self._score_fault(subfolder, fault, natural_cells.get(fault["file"], set()))

    def _score_original(self, path: Path) -> set[tuple[int, str]]:
        """Count the findings in an original; return the cells that they name."""
        self.score.documents += 1
        name = f"{path.parent.name}/{path.name}"
        cells = set()
        for finding in audit(path, MAX_DOCUMENT).findings:
            cells |= list_cells(finding)
            first = finding.places[0]
            verdict = self._verdicts.get((name, first.line, first.column))
            self.score.natural[TITLES_OF_VERDICTS[verdict]] += 1
            if not verdict:
                strength = f"{finding.strength} {finding.relation} {finding.bits:.0f}"
                self._print("FINDING", name, verdict, finding.kind, strength)
                self._print_places(finding.places)
        return cells

    def _score_fault(
        self,
        subfolder: Path,
        fault: dict[str, Any],
        natural_cells: set[tuple[int, str]],
    ) -> None:
        """Count whether a fault is found, and what else is found in the faulty copy.

        Args:
          subfolder: The folder of the faulty copy.
          fault: The line of faults.jsonl.
          natural_cells: Line and text of the cells that findings in the original name.
        """
        name = f"{subfolder.name} {fault['faulty']} {fault['kind']}"
        is_found = False
        for finding in audit(subfolder / fault["faulty"], MAX_DOCUMENT).findings:
            if is_hit(finding, fault):
                is_found = True
            elif not list_cells(finding) & natural_cells:
                self.score.others += 1
                self._print("OTHER", name)
                self._print_places(finding.places[:3])
        self.score.planted[fault["kind"]] += 1
        self.score.found[fault["kind"]] += is_found
        if not is_found:
            self._print("MISSED", name, fault["cells"][:2])

    def _print(self, *words: object) -> None:
        if self._show:
            print(*words)

    def _print_places(self, places: Sequence[Any]) -> None:
        for place in places:
            cell = f"{place.line}:{place.column}={place.printed}"
            self._print(f"    {cell} [{place.low:.4g}, {place.high:.4g}]")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines, or nothing if it does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def list_cells(finding: Finding) -> set[tuple[int, str]]:
    """Return line and text of each cell that a finding names."""
    return {(place.line, place.printed) for place in finding.places}


def is_hit(finding: Finding, fault: dict[str, Any]) -> bool:
    """Return whether a finding names a cell of the fault, or its column."""
    has_lines = fault["faulty"].endswith(FILES_WITH_LINES)
    cells = set()
    for cell in fault["cells"]:
        line = cell["line"] if has_lines else 0
        cells.add((line, cell_numbers.strip_markup(cell["is"])))
    if finding.kind == "column":
        columns = [cell_numbers.strip_markup(cell["column"]) for cell in fault["cells"]]
        return len(cells) > 1 and names_column(finding, columns)
    for place in finding.places:
        for line, text in cells:
            is_same_line = place.line == line or not has_lines
            if is_same_line and is_beginning(place.printed, text):
                return True
    return False


def names_column(finding: Finding, columns: Sequence[str]) -> bool:
    """Return whether a finding names one of the columns."""
    return any(place.column.endswith(tuple(columns)) for place in finding.places)


def is_beginning(a: str, b: str) -> bool:
    """Return whether one text begins the other, as a remark in brackets may be absent."""
    return bool(a) and (a.startswith(b) or b.startswith(a))


def main(folder: Path, show: bool) -> None:
    """Print the counts, and with `show` the places behind them."""
    scorer = Scorer(folder, show)
    scorer.score_documents()
    score = scorer.score
    for kind in sorted(score.planted):
        print(f"{kind:20} {score.found[kind]:3} of {score.planted[kind]:3}")
    found = f"{score.found.total():3} of {score.planted.total():3}"
    print(f"{'all planted faults':20} {found}; {score.others} findings at other cells")
    findings = dict(score.natural)
    print(f"{score.documents} documents; findings in them as published: {findings}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--show",
        action="store_true",
        help="also list each missed fault and each finding",
    )
    options = parser.parse_args()
    main(options.folder, options.show)
