"""Consistent tables with random rounding, as texts of every form that the audit reads."""

from __future__ import annotations

import json
import random

from rnn_scaling.analysis.audit import checking
from rnn_scaling.records.tables import text_tables

HEADER = ("GPUs", "Batch size", "Time (s)", "words/s", "Speedup", "Efficiency")


def make(seed: int) -> list[list[str]]:
    """Return the cells of weak scaling with falling efficiency.

    Each column is rounded to a random number of decimals.
    """
    rng = random.Random(seed)
    counts = [
        1,
        *sorted(rng.sample([2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64], rng.randint(4, 8))),
    ]
    digits = [
        rng.randint(1, 3),
        rng.randint(0, 3),
        rng.randint(1, 3),
        rng.randint(0, 2),
    ]
    seconds, efficiency, suffix = rng.uniform(2, 60), 1.0, rng.choice(["", "x"])
    cells = []
    for n in counts:
        rate, speedup = 80_000 * n * efficiency / seconds, n * efficiency
        shown = f"{rate:,.{digits[1]}f}" if seed % 2 else f"{rate:.{digits[1]}f}"
        time = f"{seconds / efficiency:.{digits[0]}f}"
        row = [
            str(n),
            "384",
            time,
            shown,
            f"{speedup:.{digits[2]}f}{suffix}",
            f"{100 * efficiency:.{digits[3]}f} %",
        ]
        cells.append(row)
        efficiency *= rng.uniform(0.86, 0.985)
    return cells


def table(*rows: str) -> str:
    """Return a Markdown table of rows of cells that are separated by pipes."""
    head, *others = rows
    rule = "|".join("-" for _ in head.split("|"))
    return "\n".join(f"|{row}|" for row in (head, rule, *others))


def markdown(rows) -> str:
    """Return a Markdown document with a table below a heading."""
    lines = [
        "| " + " | ".join(row) + " |" for row in (HEADER, ["---"] * len(HEADER), *rows)
    ]
    return "\n".join(
        [
            "# A table",
            "",
            "Some words | with a pipe.",
            "",
            *lines,
            "",
            "More words.",
            "",
        ]
    )


def forms(rows) -> dict[str, str]:
    """Return the same table in each form, by a file name with the form's suffix."""
    bare = [HEADER, *([cell.replace(",", "") for cell in row] for row in rows)]
    objects = [dict(zip(HEADER, row)) for row in bare[1:]]
    cells = ["".join(f"<td>{cell}</td>" for cell in row) for row in bare]
    return {
        "x.md": markdown(rows),
        "x.txt": "\n".join("   ".join(row) for row in bare),
        "x.csv": "\n".join(map(",".join, bare)),
        "x.tsv": "\n".join(map("\t".join, bare)),
        "x.json": json.dumps(objects),
        "x.jsonl": "\n".join(map(json.dumps, objects)),
        "x.html": f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>",
    }


def find_findings(text: str):
    """Return the findings in a Markdown text."""
    return [
        made
        for table in text_tables.find_tables("x.md", enumerate(text.splitlines(), 1))
        for made in checking.check(table)[1]
    ]


def places(text: str):
    """Return the line and column of every cell in a finding."""
    return [
        (place.line, place.column)
        for finding in find_findings(text)
        for place in finding.places
    ]
