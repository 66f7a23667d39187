"""How many planted faults the audit finds in a folder of documents, and which findings the originals have.

    python -m benchmarks.audit_score FOLDER [--show]

FOLDER has subfolders of documents, each with a faults.jsonl: a line per fault, {"file": "07.md", "faulty":
"07.fault.md", "kind": "digit", "cells": [{"line": 14, "column": "Speedup", "was": "3.52", "is": "5.32"}]}. A fault is
found if a finding names one of its cells; of a whole column, if it names the column. FOLDER/verdicts.jsonl may judge
the findings of the originals: {"file": "course/07.md", "line": 14, "column": "Speedup", "right": true}.
"""

from __future__ import annotations

import argparse
import collections
import json
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.audit.auditing import audit
from rnn_scaling.analysis.audit.finding import Finding
from rnn_scaling.records import cell_numbers


def _lines(path: Path) -> list[dict[str, Any]]:
    return (
        [json.loads(text) for text in path.read_text().splitlines() if text.strip()]
        if path.exists()
        else []
    )


def _key(place: Any) -> tuple[int, str]:
    return place.line, place.printed


def is_hit(finding: Finding, fault: dict[str, Any]) -> bool:
    """Whether a finding names a cell of the fault, or its column."""
    is_line = fault["faulty"].endswith(
        (".md", ".txt", ".csv", ".tsv")
    )  # of other files only the text is compared
    cells = {
        (cell["line"] if is_line else 0, cell_numbers.strip_markup(cell["is"]))
        for cell in fault["cells"]
    }
    columns = {cell_numbers.strip_markup(cell["column"]) for cell in fault["cells"]}
    if finding.kind == "column":
        return len(cells) > 1 and any(
            place.column.endswith(tuple(columns)) for place in finding.places
        )
    shown = [(place.line if is_line else 0, place.printed) for place in finding.places]
    return any(
        line == at and _begin_alike(printed, text)
        for line, printed in shown
        for at, text in cells
    )


def _begin_alike(a: str, b: str) -> bool:
    """Whether one text is the beginning of the other: a remark in brackets may be left out."""
    return bool(a) and (a.startswith(b) or b.startswith(a))


def main(folder: Path, show: bool) -> None:
    """Prints the counts; with show, each miss, each other finding in a faulty copy, and each finding in an original."""
    verdicts = {
        (v["file"], v["line"], v["column"]): v["right"]
        for v in _lines(folder / "verdicts.jsonl")
    }
    planted, found, natural = (
        collections.Counter[str](),
        collections.Counter[str](),
        collections.Counter[str](),
    )
    others = documents = 0
    for part in sorted(path for path in folder.iterdir() if path.is_dir()):
        originals: dict[str, set[tuple[int, str]]] = {}
        for path in sorted(part.iterdir()):
            if ".fault." in path.name or not path.stem.isdigit():
                continue
            documents += 1
            findings = audit(path, 10**9).findings
            originals[path.name] = {
                _key(place) for finding in findings for place in finding.places
            }
            for finding in findings:
                first = finding.places[0]
                name = f"{part.name}/{path.name}"
                verdict = verdicts.get((name, first.line, first.column))
                natural[
                    "not judged" if verdict is None else "right" if verdict else "wrong"
                ] += 1
                if show and not verdict:
                    print(
                        "FINDING",
                        name,
                        verdict,
                        finding.kind,
                        finding.strength,
                        finding.relation,
                        round(finding.bits),
                        *map(_described, finding.places),
                    )
        for fault in _lines(part / "faults.jsonl"):
            findings = audit(part / fault["faulty"], 10**9).findings
            planted[fault["kind"]] += 1
            hit = any(is_hit(finding, fault) for finding in findings)
            found[fault["kind"]] += hit
            other = [
                finding for finding in findings
                if not is_hit(finding, fault) and not {*map(_key, finding.places)} & originals.get(fault["file"], set())
            ]  # fmt: skip
            others += len(other)
            if show and not hit:
                print(
                    "MISSED",
                    part.name,
                    fault["faulty"],
                    fault["kind"],
                    fault["cells"][:2],
                )
            for finding in other if show else ():
                print(
                    "OTHER",
                    part.name,
                    fault["faulty"],
                    fault["kind"],
                    *map(_described, finding.places[:3]),
                )
    for kind in sorted(planted):
        print(f"{kind:20} {found[kind]:3} of {planted[kind]:3}")
    print(
        f"{'all planted faults':20} {found.total():3} of {planted.total():3}; {others} findings at other cells"
    )
    print(f"{documents} documents; findings in them as published: {dict(natural)}")


def _described(place: Any) -> str:
    return f"{place.line}:{place.column}={place.printed} [{place.low:.4g}, {place.high:.4g}]"


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
