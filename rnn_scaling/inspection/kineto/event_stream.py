"""Read the events of a Chrome trace one by one, plain or gzipped.

Only a piece of the file is in memory. Source of the format: "Trace Event Format",
Google, 2016. A bare list of events is not read: it is from before PyTorch 1.8 and has
no steps.

`rank_trace` reads its events; `inspect` asks whether a file is a trace.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.input_files import DoorError

_GZIP_MAGIC = b"\x1f\x8b"
_EVENTS = "traceEvents"
# Fields that PyTorch writes before the events; one of them is in the first _HEAD_CHARS.
_MARKS = (f'"{_EVENTS}"', '"distributedInfo"', '"deviceProperties"')
_HEAD_CHARS = 1 << 16
_CHUNK_CHARS = 1 << 20
_MAX_VALUE_LENGTH = 1 << 24  # characters of one event or of one field of the header
_BEGINNING = re.compile(rf'"{_EVENTS}"\s*:\s*\[')
_GAP = re.compile(r"[\s,]*")
# Names may contain control characters.
_DAMAGES = (EOFError, gzip.BadGzipFile, zlib.error, ValueError, RecursionError)
_DECODER = json.JSONDecoder(strict=False)


def looks_like_trace(path: Path) -> bool:
    """Return whether a file is a Chrome trace, by its name or by its beginning."""
    if path.name.endswith((".json.gz", ".pt.trace.json")):
        return True
    if path.suffix != ".json":
        return False
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            head = file.read(_HEAD_CHARS).decode("utf-8", "replace")
    except OSError:
        return False
    return any(mark in head for mark in _MARKS)


class EventStream:
    """The events of a trace.

    Attributes:
      header: The other fields of the trace; filled after the last event.
    """

    def __init__(self, path: Path) -> None:
        self.header: dict[str, Any] = {}
        self._path = path
        self._text = ""
        self._position = 0

    def read_events(self) -> Iterator[Any]:
        """Yield every event.

        Raises:
          OSError: If the file cannot be read, is not a trace, or is cut short.
        """
        with input_files.open_regular(self._path, input_files.UNLIMITED) as file:
            raw: Any = file
            if file.peek(2).startswith(_GZIP_MAGIC):
                raw = gzip.GzipFile(fileobj=file)
            self._file = io.TextIOWrapper(raw, "utf-8-sig", errors="replace")
            try:
                yield from self._read_trace()
            except _DAMAGES as e:
                reason = "is damaged, cut short or not JSON; copy it again"
                raise DoorError(self._path, f"{reason} ({e})") from None

    def _read_trace(self) -> Iterator[Any]:
        while (beginning := _BEGINNING.search(self._text)) is None:
            if not self._read_more():
                reason = f"has no {_EVENTS}: not a trace" if self._text else "is empty"
                raise DoorError(self._path, reason)
        self._position = beginning.end()
        head = self._text[: self._position]
        while self._read_character() != "]":
            yield self._read_value()
        while self._read_more():
            pass
        # The rest of the file, with an empty list of events.
        self.header = json.loads(head + self._text[self._position :])

    def _read_character(self) -> str:
        """Skip white space and commas; return the character after them."""
        while True:
            gap = _GAP.match(self._text, self._position)
            self._position = gap.end() if gap else self._position
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._read_more():
                raise EOFError("the list of events is cut short")

    def _read_value(self) -> Any:
        """Return the next JSON value."""
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except ValueError:
                # The value may continue in the next piece.
                if not self._read_more():
                    raise
                continue
            self._position = end
            return value

    def _read_more(self) -> bool:
        """Read the next piece; return whether there was one."""
        self._text = self._text[self._position :]
        self._position = 0
        if len(self._text) > _MAX_VALUE_LENGTH:
            reason = "is not a trace, or has a value of more than 16 MiB"
            raise DoorError(self._path, reason)
        chunk = self._file.read(_CHUNK_CHARS)
        self._text += chunk
        return bool(chunk)
