"""Fill the places of a user's command, such as {num_devices}, with the values of a run.

Commands of users contain the names of places (docs/any_trainer.md): never rename one.
"""

import math
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

# Places that every run fills.
REPEAT = "repeat"
RESULT_FILE = "result_file"
_LITERAL = {"{{": "{", "}}": "}"}
_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}|[{}]")


def check_command(text: str) -> str:
    """Return the value of --trainer; a ValueError explains the rule."""
    words = split_words(text)
    if not words:
        raise ValueError("a command")
    list(find_places(text))  # raises ValueError for a single brace
    if not list(find_places(words[0])):
        require_program(words[0])
    return text


def fill_words(text: str, values: Mapping[str, str]) -> list[str]:
    """Return the words of one run.

    A word that is only a place is left out if its value is empty.
    """
    words = []
    for word in split_words(text):
        filled = fill(word, values)
        if filled or not word:
            words.append(filled)
    return words


def name_program(text: str) -> str:
    """Return the name of a command: its script or module, or else its program."""
    words = split_words(text)
    for word in words:
        if word.endswith(".py"):
            return Path(word).stem
    if "-m" in words[:-1]:
        return words[words.index("-m") + 1]
    return Path(words[0]).name


def split_words(text: str) -> list[str]:
    """Split a command line like a shell; a ValueError explains the rule."""
    try:
        return shlex.split(text)
    except ValueError as e:
        raise ValueError(f"a command: {e}") from None


def require_program(program: str) -> None:
    """Raise ValueError if this machine does not have the program."""
    if shutil.which(program) is None:
        raise ValueError(f"an installed command; {program} was not found")


def fill(text: str, values: Mapping[str, str]) -> str:
    """Return a text with values in its places and single braces for double ones."""

    def replace_place(match: re.Match[str]) -> str:
        return values[match[1]] if match[1] else _LITERAL[match[0]]

    return _PLACE.sub(replace_place, text)


def check_product(text: str) -> str:
    """Return the value of --items_per_step: numbers and places with * between them.

    Raises:
      ValueError: If it is not such a product; the message is the rule.
    """
    for factor in text.split("*"):
        if not list(find_places(factor)) and not _number(factor) > 0:
            raise ValueError(
                "a number above 0, or a product such as 35*{batch_size}*{num_devices}"
            )
    return text


def multiply(product: str, values: Mapping[str, str]) -> float:
    """Return a product with its places filled; NaN if a value is not a number."""
    return math.prod(_number(fill(factor, values)) for factor in product.split("*"))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def find_places(text: str) -> Iterator[str]:
    """Yield the names in braces; a single brace without a name is a ValueError."""
    for brace in _PLACE.finditer(text):
        if brace[1]:
            yield brace[1]
        elif brace[0] not in _LITERAL:
            raise ValueError(f"written with {brace[0] * 2} for a single {brace[0]}")
