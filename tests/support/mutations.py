"""Damage to files, seeded: bytes flipped, texts cut, values exchanged, keys doubled, numbers that cannot be."""

from __future__ import annotations

import json
import random
from typing import Any

# JSON texts that replace a value.
VALUES = (
    "null",
    "true",
    "false",
    "0",
    "-1",
    "-0.0",
    "1.5",
    "1e308",
    "-1e308",
    "1e-320",
    "1e999",
    "NaN",
    "Infinity",
    "9" * 400,
    "9" * 5000,
    '""',
    '"2"',
    '"nan"',
    f'"{"x" * 3000}"',
    r'"\u001b[31m\u0000\u202e"',
    r'"\ud800|\n# x"',
    "[]",
    "[[]]",
    "{}",
    '{"": {}}',
    "[null]",
    '["x"]',
    "[1, 2, 3]",
    "[1e308, 1e308]",
    "[" * 90 + "]" * 90,
    "[" * 3000 + "]" * 3000,
    '{"a":' * 300 + "1" + "}" * 300,
)
# Bytes that are inserted anywhere in a text.
PIECES = (
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\x1b[2J",
    b"\xe2\x80\xae",
    b" \xc2\xb1 ",
    b"nan",
    b"inf",
    b"-1",
    b"0",
    b"1e999",
    b"-1e308",
    b"9" * 400,
    b"9" * 5000,
    b"1,5",
    b"1.2.3",
    b"%",
    b"\r",
    b"\n",
    b"\t",
    b"\t",
    b"|",
    b"|",
    b'"',
    b",",
    b":",
    b"\\",
    b"#",
    b"",
    b"",
    b"",
    b"[" * 2000,
    b"{" * 2000,
    b"x" * 5000,
    b"| " * 500,
    b"1 " * 500,
)


def parse_json(text: str | bytes) -> Any:
    """Parse the JSON that a command prints; refuse NaN and Infinity."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    return json.loads(text, parse_constant=refuse)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """Return the path of every value below the top of a parsed JSON document."""
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    else:
        return []
    return [
        found
        for name, each in inner
        for found in ((*path, name), *places(each, (*path, name)))
    ]


class Document:
    """A JSON document of which one value after the other is exchanged, and put back."""

    def __init__(self, text: str) -> None:
        self._root = json.loads(text)
        self._places = places(self._root)

    def mutated(self, rng: random.Random) -> str:
        """Return the document's text with one to three changed values.

        A value is replaced, removed, doubled, copied from another path or renamed.
        """
        undo = []
        texts: dict[str, str] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            self._mutate(rng, texts, undo)
        text = json.dumps(self._root)
        for parent, saved in reversed(undo):
            parent.clear()
            parent.update(saved) if isinstance(parent, dict) else parent.extend(saved)
        for mark, piece in texts.items():
            text = text.replace(f'"{mark}"', piece)
        return text

    def _mutate(self, rng: random.Random, texts: dict[str, str], undo: list) -> None:
        *path, last = rng.choice(self._places)
        parent = self._at(path)
        if not _has(parent, last):
            return  # an earlier one took it away
        undo.append((parent, parent.copy()))
        kind, value = rng.randrange(9), parent[last]
        if kind < 4:
            mark = f"mark {len(texts)}"
            parent[last], texts[mark] = mark, rng.choice(VALUES)
        elif kind == 4:
            del parent[last]
        elif kind == 5 and isinstance(value, (int, float)):
            parent[last] = value * rng.choice((-1, 3, 1e9, 1e-9, 1.0000001))
        elif kind == 6:
            *other, name = rng.choice(self._places)
            there = self._at(other)
            if _has(there, name):
                parent[last] = json.loads(json.dumps(there[name]))
        elif kind == 7 and isinstance(parent, dict):  # a field of a newer writer
            mark = f"mark {len(texts)}"
            parent["newer"], texts[mark] = mark, rng.choice(VALUES)
        elif isinstance(parent, dict):
            mark = f"mark {len(texts)}"
            parent[mark], texts[mark] = value, f'"{last}"'  # the key twice
        else:
            parent.append(value)

    def _at(self, path: list) -> Any:
        value = self._root
        for name in path:
            try:
                value = value[name]
            except (KeyError, IndexError, TypeError):
                return None
        return value


def _has(parent: Any, name: Any) -> bool:
    """Return whether an object has this key, or a list this index."""
    if isinstance(parent, list):
        return isinstance(name, int) and name < len(parent)
    return isinstance(parent, dict) and name in parent


def damage(content: bytes, rng: random.Random) -> bytes:
    """Return the bytes of a file with one to three damaged pieces.

    A piece is flipped, cut, doubled, moved or inserted.
    """
    for _ in range(rng.choice((1, 1, 2, 3))):
        size = len(content)
        at, end = sorted((rng.randrange(size + 1), min(size, rng.randrange(size + 1))))
        kind = rng.randrange(7)
        if kind == 0 and size:
            at = rng.randrange(size)
            content = (
                content[:at]
                + bytes([content[at] ^ 1 << rng.randrange(8)])
                + content[at + 1 :]
            )
        elif kind == 1:
            content = content[:at] if rng.random() < 0.5 else content[at:]
        elif kind == 2:
            content = content[:at] + content[end:]
        elif kind == 3:
            content = content[:end] + content[at:end] + content[end:]
        elif kind == 4:
            lines = content.split(b"\n")
            rng.shuffle(lines)
            content = b"\n".join(lines)
        else:
            content = (
                content[:at]
                + rng.choice(PIECES)
                + content[min(size, at + rng.randrange(4)) :]
            )
    return content
