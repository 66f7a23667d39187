"""The corpus of tables of public projects, with the faults that a person found in them.

A file of the corpus holds documents one after the other: "%% name", keys, a line of
four dashes, the text. For each name, verdicts.json lists the lines that are wrong
("due") and the lines that may be reported ("odd").
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Document:
    """A text of the corpus, with the lines of its faults.

    `due` and `odd` have one set of line numbers per fault, counted from 1.
    """

    name: str
    text: str
    due: tuple[set[int], ...]
    odd: tuple[set[int], ...]


def read(folder: Path) -> list[Document]:
    """Read all documents of a folder with `corpus` and `verdicts.json`."""
    verdicts = json.loads((folder / "verdicts.json").read_text(encoding="utf-8"))
    documents = []
    for path in sorted((folder / "corpus").glob("*.txt")):
        for part in path.read_text(encoding="utf-8").split("\n%% "):
            head, _, text = part.partition("\n----\n")
            name = head.removeprefix("%% ").splitlines()[0].strip()
            due, odd = (
                tuple(set(place["lines"]) for place in verdicts[name][kind])
                for kind in ("due", "odd")
            )
            documents.append(Document(name, text, due, odd))
    return documents
