"""Small JSON files that are written once and never changed.

They are for folders that several people or programs add to. The name of a file,
STEM-DIGEST.json, follows from its content. Therefore two writers never use the same
name, merges have no conflicts, and an edited file is detected.
Never change `_compute_digest`: every existing file would seem edited.
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

_NUM_DIGITS = 12  # length of a digest
_MAX_FAULTS = 3  # faults that a message names
P = TypeVar("P", bound=Part)


def write(part: Part, folder: Path, stem: str, unsealed: Collection[str] = ()) -> Path:
    """Write a part completely or not at all, unless the folder has it already.

    Args:
      part: The part.
      folder: The folder.
      stem: The start of the file name.
      unsealed: Fields that the digest leaves out.

    Raises:
      OSError: If the file cannot be written.
    """
    fields = encode(part)
    path = folder / f"{stem}-{_compute_digest(fields, unsealed)}.json"
    if not path.exists():
        text = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
        write_text(text + "\n", path)
    return path


def read(path: Path, kind: type[P], schema: str, unsealed: Collection[str] = ()) -> P:
    """Return the part in a file.

    Raises:
      OSError: If the file cannot be read.
      ValueError: If it is not a part of this kind and schema, or was edited.
    """
    try:
        text = input_files.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"not UTF-8 text; expected {schema}") from None
    fields = input_files.parse_json(text)
    is_object = isinstance(fields, dict)
    file_schema = fields.get("schema") if is_object else type(fields).__name__
    if file_schema != schema:
        raise ValueError(
            f"expected schema {schema}, got {entry.make_plain(file_schema)}; reading it "
            "may need a newer version of this suite"
        )
    if not path.stem.endswith(f"-{_compute_digest(fields, unsealed)}"):
        raise ValueError(
            "was edited or renamed after it was written; `git log` finds the original"
        )
    faults: list[str] = []
    part: P | None = decode(kind, fields, "", faults)
    if part is None:
        raise ValueError(". ".join(faults[:_MAX_FAULTS]))
    return part


def _compute_digest(fields: Mapping[str, Any], unsealed: Collection[str]) -> str:
    """Return the digest of the content, which does not depend on line endings."""
    sealed = {name: value for name, value in fields.items() if name not in unsealed}
    text = json.dumps(sealed, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_NUM_DIGITS]
