"""Flags that stand in files: --flagfile=FILE is replaced by the words of that file, one a line."""

import os
from collections.abc import Iterator, Sequence

from rnn_scaling.files import input_files

NAMES = ("--flagfile", "-flagfile")


def expanded(words: Sequence[str], within: tuple[str, ...] = ()) -> list[str]:
    """The words with those of flag files in their places; a ValueError names one that is unreadable or names itself."""
    result: list[str] = []
    rest = iter(words)
    for word in rest:
        name, _, path = word.partition("=")
        if word == "--":
            result.append(word)
            break
        if name not in NAMES:
            result.append(word)
            continue
        path = path if "=" in word else next(rest, "")
        if not path:
            raise ValueError(f"{name} needs a value: {name}=...")
        result += _read(os.path.expanduser(path), within)
    return [*result, *rest]


def _read(path: str, within: tuple[str, ...]) -> list[str]:
    if os.path.realpath(path) in within:
        raise ValueError(f"--flagfile={path} names itself, directly or by another; take it out of the file")
    try:
        # As the words of a command line are: what is no UTF-8 stays what it is.
        text = input_files.read_bytes(path).decode("utf-8-sig", "surrogateescape")
    except OSError as e:
        raise ValueError(f"--flagfile={path}: {e.strerror or e}") from None
    return expanded(list(_words(text)), (*within, os.path.realpath(path)))


def _words(text: str) -> Iterator[str]:
    """Its lines without blanks around them, empty ones and comments."""
    for line in text.split("\n"):
        word = line.strip()
        if word and not word.startswith(("#", "//")):
            yield word
