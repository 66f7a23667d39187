"""The door for files from outside: regular ones, of a size that is read, and JSON that can be computed with.

Every refusal is an OSError whose `strerror` is the rule and the remedy: a reader that names the file has its one line.
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
MAX_DEPTH = (
    100  # of lists and objects in JSON; what is written again is walked by recursion
)
NUL_BYTE = (
    "a name cannot hold a NUL byte"  # in our words: each Python says it in others
)
UNLIMITED = (
    math.inf
)  # for what is read in pieces by programs that stop by themselves: SQLite, tf.data

_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
# In the text of JSON: what may be the escape of a character without a picture, or be one.
_SUSPECT = re.compile(r"\\[bfru]|[^\t\n\r\x20-\x7e]")
_BUFFER_BYTES = 1 << 16
_limit_mb = [DEFAULT_MB]  # the user's word for this process


class DoorError(OSError):
    """A file that is not read; `strerror` says why and what to do, `filename` which."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(errno.EINVAL, reason, os.fspath(path))


class JsonError(ValueError):
    """Text that is no JSON to compute with; the message is a part of a sentence."""


def allow(max_file_mb: int) -> None:
    """Files up to this many MB (of 1e6 bytes) are read from now on."""
    _limit_mb[0] = max_file_mb


def allowed_mb() -> int:
    """How large a file may be that is read."""
    return _limit_mb[0]


def open_regular(
    path: str | os.PathLike[str], max_bytes: float | None = None
) -> io.BufferedReader:
    """Opens a regular file, or a link to one, for reading; never waits for a writer, and starts no device.

    Raises OSError, whose `strerror` says why, also if the file is larger than `max_bytes` (None: the limit of
    `allow`), or grows beyond it while it is read.
    """
    limit = _limit_mb[0] * 1e6 if max_bytes is None else max_bytes
    try:
        _check(
            path, os.stat(path), limit
        )  # before it is opened, which a device may answer by doing something
        file = _Limited(
            os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC),
            path,
            limit,
        )
    except ValueError as e:  # a name that no file system can have
        raise DoorError(path, NUL_BYTE if "\0" in os.fspath(path) else str(e)) from None
    try:
        _check(
            path, os.fstat(file.fileno()), limit
        )  # again: it may be another one by now
    except BaseException:
        file.close()
        raise
    return io.BufferedReader(file, _BUFFER_BYTES)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a regular file. Raises OSError as `open_regular`."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """All text of a regular file; bytes that are not UTF-8 become U+FFFD, a byte order mark is no part of it."""
    return read_bytes(path).decode("utf-8-sig", errors="replace")


def parse_json(text: str) -> Any:
    """The value of a JSON text; strings in it have no lone surrogates.

    Raises JsonError if it is no JSON, has numbers of thousands of digits, or is nested deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as e:
        raise JsonError(f"not JSON ({e.msg} at line {e.lineno})") from None
    except ValueError:  # more digits than Python makes a number of
        raise JsonError("a number of thousands of digits") from None
    except RecursionError:
        raise JsonError("nested too deeply") from None
    is_nested = text.count("[") + text.count("{") > MAX_DEPTH
    if is_nested and isinstance(value, (dict, list)) and _is_deep(value):
        raise JsonError("nested too deeply")
    return value if is_plain(text) or not _SUSPECT.search(text) else _mended(value)


def json_text(
    content: Any, indent: int | None = 1, default: Callable[[Any], Any] | None = None
) -> str:
    """Return the JSON that every command writes, valid everywhere.

    NaN and infinities become null.

    Args:
      content: What to write.
      indent: Spaces per level; one line if None.
      default: Returns what stands for a value that JSON does not have.
    """

    def dumped(value: Any) -> str:
        text = json.dumps(value, indent=indent, allow_nan=False, default=default)
        return f"{text}\n"

    try:
        return dumped(content)
    except ValueError:
        return dumped(_finite(content))


def is_plain(text: str) -> bool:
    """Whether a text that is JSON holds ASCII that prints alone, without an escape: other controls are no JSON."""
    return text.isascii() and "\\" not in text and "\x7f" not in text


class _Limited(io.FileIO):
    """A file that is read up to a limit, also if it grows after it was opened."""

    def __init__(self, number: int, path: str | os.PathLike[str], limit: float) -> None:
        super().__init__(number, "rb")
        self._path = path
        self._limit = limit
        self._read = 0

    # These methods call readinto; those of FileIO do not.
    read = io.RawIOBase.read  # type: ignore[assignment]
    readall = io.RawIOBase.readall

    def readinto(self, buffer: Any) -> int | None:
        got = super().readinto(buffer)
        self._read += got or 0
        if self._read > self._limit:
            _refuse_size(self._path, self._read, self._limit)
        return got

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        self._read = 0  # read again from there
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
        f"{needed} MB, more than the {limit / 1e6:.0f} MB that are read; --max_file_mb={needed} reads it",
    )


def _finite(value: Any) -> Any:
    """The value with None in place of NaN and infinities."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return (
        {name: _finite(item) for name, item in value.items()}
        if isinstance(value, Mapping)
        else value
    )


def _is_deep(value: Any) -> bool:
    """Return whether lists and objects are nested deeper than `MAX_DEPTH`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        following = []
        for node in level:
            inside = node.values() if type(node) is dict else node
            following += [each for each in inside if type(each) in (dict, list)]
        level = following
        if not level:
            return False
    return True


def _mended(value: Any) -> Any:
    """The value without lone surrogates, as file names have them that are not UTF-8: no file could hold them."""
    if type(value) is str:
        return value.encode(errors="replace").decode()
    if type(value) is list:
        return [_mended(item) for item in value]
    if type(value) is dict:
        return {_mended(name): _mended(item) for name, item in value.items()}
    return value
