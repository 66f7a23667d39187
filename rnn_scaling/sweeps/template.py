"""The command of a user's trainer: words with places, as {num_devices}, for the values of a run. Pure."""

import math
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}|[{}]")
LITERAL = {"{{": "{", "}}": "}"}


def checked(text: str) -> str:
    """The value of --trainer. Raises ValueError, saying what the text must be."""
    words = words_of(text)
    if not words:
        raise ValueError("a command")
    list(places(text))  # raises
    if not list(places(words[0])):
        require_here(words[0])
    return text


def filled(text: str, values: Mapping[str, str]) -> list[str]:
    """The words of one run; a word that is only a place is left out if its value is empty."""
    filled_words = [(word, fill(word, values)) for word in words_of(text)]
    return [
        filled_word for word, filled_word in filled_words if filled_word or not word
    ]


def program(text: str) -> str:
    """The name of a command: its script or module, else its program."""
    words = words_of(text)
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    modules = [after for word, after in zip(words, words[1:]) if word == "-m"]
    return [*scripts, *modules, Path(words[0]).name][0]


def words_of(text: str) -> list[str]:
    """The words of a command line, split as by a shell. Raises ValueError, saying what the text must be."""
    try:
        return shlex.split(text)
    except ValueError as e:
        raise ValueError(f"a command: {e}") from None


def require_here(program: str) -> None:
    """Raises ValueError unless this machine has the program."""
    if shutil.which(program) is None:
        raise ValueError(f"an installed command; {program} was not found")


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text with its places filled in, and single braces for double ones."""
    return _PLACE.sub(
        lambda found: values[found[1]] if found[1] else LITERAL[found[0]], text
    )


def factors(text: str) -> str:
    """The value of --items_per_step: numbers and places with * between them."""
    for factor in text.split("*"):
        if not list(places(factor)) and not _number(factor) > 0:
            raise ValueError(
                "a number above 0, or a product such as 35*{batch_size}*{num_devices}"
            )
    return text


def product(text: str, values: Mapping[str, str]) -> float:
    """The value of a product with its places filled in; NaN if a value is not a number."""
    return math.prod(_number(fill(factor, values)) for factor in text.split("*"))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def places(text: str) -> Iterator[str]:
    """The names in braces. Raises ValueError for a single brace without a name."""
    for brace in _PLACE.finditer(text):
        if brace[1]:
            yield brace[1]
        elif brace[0] not in LITERAL:
            raise ValueError(f"a text with {brace[0] * 2} for a single {brace[0]}")
