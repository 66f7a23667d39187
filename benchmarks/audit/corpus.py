"""The corpus: tables of public projects, each with its source, what it claims and what a person found in it.

A corpus file holds documents one after the other:

    %% name
    source: project, path (licence)
    form: md
    claims: 0: c3 = c2/c2@0 ; 0: c4 = c3/c0
    finds: 0.2 speedup: 41 is no fifth of 190
    ----
    the tables as they stand

Keys, none of them needed but `source` and `form`:
  claims: what the headers state, as benchmarks/audit/claims.py reads it.
  finds: TABLE.ROW COLUMN: why; a number that contradicts others, found by hand; `*` for ROW is the whole column.
  part: "held out" or "open", where a hash of the project is not to say.
  odd: the same for what may be reported and need not be: a point out of line, a number rounded twice.
Tables and rows count from 0, each table from the line below its header. The tables are cut to what can be compared;
the lines between them are our own words.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "tests" / "golden" / "audit" / "corpus"
VERDICTS = FOLDER.parent / "verdicts.json"
KNOWN = FOLDER.parent / "known.json"

# Their tables were discussed while the checks were mended.
_OPEN = (
    "NVIDIA/DeepLearningExamples", "deepmodeling/deepmd-kit", "apache/mxnet", "horovod/horovod", "a gist of FRosner",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Document:
    """One document of the corpus.

    keys: what stands above its text, by key; several lines of one key are joined by " ; ".
    """

    name: str
    text: str
    keys: dict[str, str]

    @property
    def project(self) -> str:
        """Owner and name of the project, whose documents are never parted; a document made for a header is its own."""
        return self.name if self.made else self.keys["source"].partition(",")[0]

    @property
    def made(self) -> bool:
        """Whether it was made for a header instead of found."""
        return self.keys["source"].startswith("made,")

    @property
    def held_out(self) -> bool:
        """Whether it belongs to the third that nobody looks at while mending the checks."""
        if "part" in self.keys:
            return self.keys["part"] == "held out"
        return self.project not in _OPEN and hashlib.sha256(self.project.encode()).digest()[0] % 3 == 0


def documents(folder: Path = FOLDER) -> list[Document]:
    """All documents, in the order of their files."""
    return [document for path in sorted(folder.glob("*.txt")) for document in _read(path)]


def _read(path: Path) -> list[Document]:
    out = []
    for part in path.read_text(encoding="utf-8").split("\n%% "):
        head, bar, text = part.partition("\n----\n")
        if not bar:
            raise ValueError(f"{path}: no line of four dashes below {head[:40]!r}")
        name, *lines = head.removeprefix("%% ").splitlines()
        keys: dict[str, str] = {}
        for line in lines:
            key, _, value = line.partition(": ")
            keys[key] = f"{keys[key]} ; {value}" if key in keys else value
        out.append(Document(name.strip(), text if text.endswith("\n") else text + "\n", keys))
    return out


@dataclasses.dataclass(frozen=True)
class Place:
    """A finding that a document deserves: lines from 1 in its text, and the words of its column."""

    lines: tuple[int, ...]
    column: str
    why: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """due: what must be found; odd: what may be reported and need not be. All else is a false alarm."""

    due: tuple[Place, ...] = ()
    odd: tuple[Place, ...] = ()


def verdicts() -> dict[str, Verdict]:
    """The stored verdict of every document, by its name."""
    return {
        name: Verdict(*(tuple(_place(place) for place in entry[kind]) for kind in ("due", "odd")))
        for name, entry in json.loads(VERDICTS.read_text(encoding="utf-8")).items()
    }


def _place(entry: dict[str, object]) -> Place:
    lines, column, why = entry["lines"], entry["column"], entry["why"]
    assert isinstance(lines, list)
    return Place(tuple(lines), str(column), str(why))
