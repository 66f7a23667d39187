"""Small JSON files that are written once and never changed, for folders that several people or programs add to.

The file name STEM-DIGEST.json follows from the content. Two writers therefore never collide, merges have no conflicts,
and an edited file is detected.
"""

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from rnn_scaling.records.decoding import Part, decode, encode
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text

DIGITS = 12  # of a digest
P = TypeVar("P", bound=Part)


def write(part: Part, folder: Path, stem: str, without: Collection[str] = ()) -> Path:
    """Writes a part completely or not at all, unless the folder has it; the digest is `without` some of its fields.

    Raises OSError.
    """
    fields = encode(part)
    path = folder / f"{stem}-{_digest(fields, without)}.json"
    if not path.exists():
        write_text(
            json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n", path
        )
    return path


def read(path: Path, kind: type[P], schema: str, without: Collection[str] = ()) -> P:
    """Reads a part. Raises OSError, or a ValueError with one line that says what is wrong with the file."""
    try:
        fields = input_files.parse_json(
            input_files.read_bytes(path).decode("utf-8-sig")
        )
    except UnicodeDecodeError:
        raise ValueError(f"not UTF-8 text; expected {schema}") from None
    found = fields.get("schema") if isinstance(fields, dict) else type(fields).__name__
    if found != schema:
        raise ValueError(
            f"expected schema {schema}, got {entry.plain(found)}; a newer version of this suite reads it"
        )
    if not path.stem.endswith(f"-{_digest(fields, without)}"):
        raise ValueError(
            "edited or renamed after it was written; `git log` finds the original"
        )
    faults: list[str] = []
    part: P | None = decode(kind, fields, "", faults)
    if part is None:
        raise ValueError(". ".join(faults[:3]))
    return part


def _digest(fields: Mapping[str, Any], without: Collection[str]) -> str:
    """A digest of the content, not of the bytes, because git may change line endings."""
    kept = {name: value for name, value in fields.items() if name not in without}
    return hashlib.sha256(
        json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()[:DIGITS]
