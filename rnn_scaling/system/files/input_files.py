"""Read external files: only regular files of a limited size, and JSON without traps.

Every refusal is an OSError whose `strerror` contains the rule and the remedy.

Whatever a user names is opened with these functions.
"""

import errno
import io
import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

DEFAULT_MB = 128  # JSON takes ten times its size in memory
_MAX_DEPTH = 100  # levels of lists and objects in JSON; writing it is recursive
# The message of Python differs between its versions.
NUL_BYTE = "a file name cannot contain a NUL byte"
UNLIMITED = math.inf  # for files that SQLite or tf.data reads in pieces

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# Invisible characters in the text of JSON, and escapes that may mean such characters.
_SUSPECT = re.compile(r"\\[bfru]|[^\t\n\r\x20-\x7e]")
_BUFFER_BYTES = 1 << 16
_limit_mb = [DEFAULT_MB]  # --max_file_mb of this process


class DoorError(OSError):
    """A file that is not read: `strerror` contains the reason, `filename` its name."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(errno.EINVAL, reason, os.fspath(path))


class JsonError(ValueError):
    """Text that is not usable JSON; the message is a part of a sentence."""


def allow(max_file_mb: int) -> None:
    """Read files of at most this many MB (1e6 bytes) from now on."""
    _limit_mb[0] = max_file_mb


def find_allowed_mb() -> int:
    """Return the size limit of input files in MB."""
    return _limit_mb[0]


def open_regular(
    path: str | os.PathLike[str], max_bytes: float | None = None
) -> io.BufferedReader:
    """Open a regular file, or a link to one, for reading.

    Never waits for a writer, and starts no device.

    Args:
      path: The file.
      max_bytes: The size limit; None for the limit of `allow`.

    Raises:
      OSError: If the file cannot be read, or is larger than the limit. Reading raises
        it if the file grows beyond the limit.
    """
    limit = _limit_mb[0] * 1e6 if max_bytes is None else max_bytes
    try:
        _check(path, os.stat(path), limit)  # Opening a device may start it.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = _Limited(os.open(path, flags), path, limit)
    except ValueError as e:  # No file system has such a name.
        raise DoorError(path, NUL_BYTE if "\0" in os.fspath(path) else str(e)) from None
    try:
        # The name may belong to another file by now.
        _check(path, os.fstat(file.fileno()), limit)
    except BaseException:
        file.close()
        raise
    return io.BufferedReader(file, _BUFFER_BYTES)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return all bytes of a regular file; raises OSError like `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the text of a regular file without byte order mark.

    Bytes that are not UTF-8 become U+FFFD.
    """
    return read_bytes(path).decode("utf-8-sig", errors="replace")


def parse_json(text: str) -> Any:
    """Return the value of a JSON text; lone surrogates in strings are replaced.

    Raises:
      JsonError: If the text is not JSON, has numbers of thousands of digits, or is
        nested deeper than `_MAX_DEPTH`.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as e:
        raise JsonError(f"not JSON ({e.msg} at line {e.lineno})") from None
    except ValueError:  # Python refuses numbers with thousands of digits.
        raise JsonError("contains a number with thousands of digits") from None
    except RecursionError:
        raise JsonError("nested too deeply") from None
    is_nested = text.count("[") + text.count("{") > _MAX_DEPTH
    if is_nested and isinstance(value, (dict, list)) and _is_deep(value):
        raise JsonError("nested too deeply")
    if is_plain(text) or not _SUSPECT.search(text):
        return value
    return _replace_surrogates(value)


def format_json(
    content: Any, indent: int | None = 1, default: Callable[[Any], Any] | None = None
) -> str:
    """Return the JSON that every command writes, valid everywhere.

    NaN and infinities become null.

    Args:
      content: The value.
      indent: Spaces per level; one line if None.
      default: Converts a value that JSON does not have.
    """

    def dump(value: Any) -> str:
        text = json.dumps(value, indent=indent, allow_nan=False, default=default)
        return f"{text}\n"

    try:
        return dump(content)
    except ValueError:
        return dump(_require_finite(content))


def is_plain(text: str) -> bool:
    """Return whether a JSON text is printable ASCII without escapes."""
    return text.isascii() and "\\" not in text and "\x7f" not in text


class _Limited(io.FileIO):
    """A file that is read up to a limit, even if it grows after it was opened."""

    def __init__(self, number: int, path: str | os.PathLike[str], limit: float) -> None:
        super().__init__(number, "rb")
        self._path = path
        self._limit = limit
        self._read = 0

    # These methods call readinto; those of FileIO do not.
    read = io.RawIOBase.read  # type: ignore[assignment]
    readall = io.RawIOBase.readall

    def readinto(self, buffer: Any) -> int | None:
        count = super().readinto(buffer)
        self._read += count or 0
        if self._read > self._limit:
            _refuse_size(self._path, self._read, self._limit)
        return count

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        self._read = 0  # The file is read again.
        return super().seek(position, whence)


def _check(path: str | os.PathLike[str], status: os.stat_result, limit: float) -> None:
    for is_kind, name in _KINDS:
        if is_kind(status.st_mode):
            raise DoorError(path, f"{name}; expected a regular file")
    if status.st_size > limit:
        _refuse_size(path, status.st_size, limit)


def _refuse_size(path: str | os.PathLike[str], size: int, limit: float) -> NoReturn:
    needed = math.ceil(size / 1e6)
    raise DoorError(
        path,
        f"{needed} MB exceeds the limit of {limit / 1e6:.0f} MB; "
        f"--max_file_mb={needed} raises it",
    )


def _require_finite(value: Any) -> Any:
    """Replace NaN and infinities by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_require_finite(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _require_finite(item) for name, item in value.items()}
    return value


def _is_deep(value: Any) -> bool:
    """Return whether lists and objects are nested deeper than `_MAX_DEPTH`."""
    level = [value]
    for _ in range(_MAX_DEPTH):
        next_level = []
        for node in level:
            items = node.values() if type(node) is dict else node
            next_level += [item for item in items if type(item) in (dict, list)]
        level = next_level
        if not level:
            return False
    return True


def _replace_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which come from file names that are not UTF-8.

    They could not be written to a file.
    """
    if type(value) is str:
        return value.encode(errors="replace").decode()
    if type(value) is list:
        return [_replace_surrogates(item) for item in value]
    if type(value) is dict:
        return {
            _replace_surrogates(name): _replace_surrogates(item)
            for name, item in value.items()
        }
    return value
