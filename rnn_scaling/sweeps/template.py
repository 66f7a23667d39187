"""The command of a user's trainer: words with places, as {num_devices}, for the values of a run. Pure."""

import dataclasses
import math
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*)\}|[{}]")
LITERAL = {"{{": "{", "}}": "}"}


@dataclasses.dataclass(frozen=True)
class Template:
    """A text and its words, which have places."""

    text: str
    words: tuple[str, ...]

    def filled(self, values: Mapping[str, str]) -> list[str]:
        """The words of one run; a word that is only a place is left out if its value is empty."""
        filled = [(word, fill(word, values)) for word in self.words]
        return [text for word, text in filled if text or not word]

    @property
    def program(self) -> str:
        """Its name: the script or module, else the program."""
        scripts = [Path(word).stem for word in self.words if word.endswith(".py")]
        modules = [after for word, after in zip(self.words, self.words[1:]) if word == "-m"]
        return [*scripts, *modules, Path(self.words[0]).name][0]


def parse(text: str) -> Template:
    """The template of a text. Raises ValueError, saying what the text must be."""
    words = words_of(text)
    if not words:
        raise ValueError("a command")
    list(places(text))  # raises
    if not list(places(words[0])):
        require_here(words[0])
    return Template(text, tuple(words))


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


def checked(text: str) -> str:
    """The value of --trainer; errors as in `parse`."""
    return parse(text).text


def fill(text: str, values: Mapping[str, str]) -> str:
    """A text with its places filled in, and single braces for double ones."""
    return _PLACE.sub(lambda found: values[found[1]] if found[1] else LITERAL[found[0]], text)


def factors(text: str) -> str:
    """The value of --items_per_step: numbers and places with * between them."""
    for factor in text.split("*"):
        if not list(places(factor)) and not _number(factor) > 0:
            raise ValueError("a number above 0, or a product such as 35*{batch_size}*{num_devices}")
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
