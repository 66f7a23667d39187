"""How many devices a text names: "4 GPUs", "2 (16 GPUs)", "2 nodes x 8", "8x V100", "workers=4", "single GPU"."""

from __future__ import annotations

import dataclasses
import functools
import re

from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.tables import vocabulary as words

_SPELLED = {"single": 1, "one": 1, "a": 1, "two": 2, "dual": 2, "four": 4, "quad": 4, "eight": 8, "sixteen": 16}
_NUMBER = r"(?P<{0}>\d{{1,3}}(?:,\d{{3}})+|\d+|single|one|two|dual|four|quad|eight|sixteen)"
_NOT_AFTER = r"(?!\s*(?:/|per\b|-?hours?|memory|mem\b|ram\b|gb\b|utili|id|ind|[a-z]*\d))"
_ADJECTIVES = rf"(?:(?:{words.ACCELERATORS}|mpi|openmp|omp|cpu|gpu|tpu|physical|compute|worker|nvidia) )*"
_NUMBER_OF = re.compile(
    rf"(?<![\w.,/-])(?:(?P<times>\d+)\s*[x×*]\s*)?{_NUMBER.format('n')}\s*[-x×*]?\s*(?P<kind>{_ADJECTIVES})(?P<noun>{words.COUNTED})(?![a-z]){_NOT_AFTER}"
)
_OF_NAMED = re.compile(
    rf"(?<![\w.,/-]){_NUMBER.format('n')}\s*(?:[x×*]\s*|\s)(?P<name>{words.ACCELERATORS})(?![\w])|(?P<before>{words.ACCELERATORS})\s*[x×*]\s*{_NUMBER.format('m')}(?![\w.])"
)
_EQUALS = re.compile(rf"(?:\b(?P<noun>{words.COUNTED}|np|n|p|nproc|world ?size)|#)\s*[:=]\s*(?P<n>\d+)(?![\w.])")
_PRODUCT = re.compile(r"(?<![\w.,])(?P<a>\d+)\s*[x×*]\s*(?P<b>\d+)(?:\s*=\s*(?P<all>\d+))?(?![\w.])")
_TIMES_OR_EACH = re.compile(r"\s*(?:[x×*]|with|of)\s*$")
_LETTER = re.compile(r"[tse]_?\(?(?P<n>\d{1,4})\)?(?: ?\(\w+\))?")


@dataclasses.dataclass(frozen=True)
class Count:
    """How many devices a text names; noun: which of vocabulary.NOUNS; rest: the text without them."""

    number: int
    noun: str
    rest: str


@functools.lru_cache(maxsize=65536)
def find(text: str) -> Count | None:
    """The devices that a text names; None where it names none, or two numbers that may mean either."""
    low = re.sub(r"\s+", " ", text.lower().replace("_", " "))
    if not re.search(r"\d|single|one|two|dual|quad|four|eight|sixteen", low) or len(low) > 120:
        return None
    named = list(_NUMBER_OF.finditer(low))
    if not named:
        return _of_name(low)
    if len(named) == 1:
        match = named[0]
        number = _int(match["n"]) * int(match["times"] or 1)
        return Count(number, columns.noun(match["noun"]), _without(low, match.start(), match.end(), match["kind"]))
    if len(named) > 2:
        return None
    return _of_two(low, *named)


def _of_two(low: str, first: re.Match[str], second: re.Match[str]) -> Count | None:
    """ "2 nodes x 8 GPUs" is 16, "2 nodes (16 GPUs)" is 16, "4 workers, 1 PS" is 4; "2 nodes, 8 GPUs" may be either."""
    nouns = columns.noun(first["noun"]), columns.noun(second["noun"])
    order = list(words.NOUNS)
    between, after = low[first.end() : second.start()], low[second.end() :]
    rest = _without(low, first.start(), second.end())
    finer = min(nouns, key=order.index)
    if nouns[0] == nouns[1]:
        return None
    a, b = _int(first["n"]), _int(second["n"])
    if _TIMES_OR_EACH.match(between) or re.match(r"\s*(?:each|per\b|/)", after):
        return Count(a * b, finer, re.sub(r"^\s*(?:each|(?:per|/)\s*\w+)", "", rest).strip(" ,()"))
    inside = re.fullmatch(r"\s*[(\[=:]\s*(?:total(?: of)?|=)?\s*", between)
    if inside or (nouns[1] == "nodes" and re.fullmatch(r"\s*(?:on|over|across|in|\()\s*", between)):
        return Count(b if nouns[1] == finer else a, finer, rest)
    return None


def _of_name(low: str) -> Count | None:
    match = _OF_NAMED.search(low)
    if match:
        return Count(_int(match["n"] or match["m"]), "gpus", (match["name"] or match["before"]).strip())
    match = _EQUALS.search(low)
    if match:
        return Count(int(match["n"]), columns.noun(match["noun"] or ""), _without(low, match.start(), match.end()))
    return None


def in_header(text: str) -> Count | None:
    """The devices that a header names: "1 GPU", "img/s (8 GPUs)", "T4" (time on 4)."""
    count = find(re.sub(r"\*+|`", "", text))
    if count:
        return count
    letter = _LETTER.fullmatch(columns.plain(text))
    if letter:
        return Count(int(letter["n"]), "gpus", columns.plain(text)[0])
    return None


def in_cell(text: str) -> int | None:
    """The devices that a cell under a header of devices says."""
    plain = text.strip()
    if re.fullmatch(r"\d{1,9}", plain):
        return int(plain)
    count = find(plain)
    if count:
        return count.number
    product = _PRODUCT.fullmatch(plain)
    if product:
        return int(product["all"] or int(product["a"]) * int(product["b"]))
    first = re.fullmatch(r"(\d{1,3}(?:,\d{3})+|\d+)(?:\s*[(\[](?!\s*\d)[^)\]]*[)\]]|[*†‡§]+)?", plain)
    return int(first[1].replace(",", "")) if first else None


def in_list(text: str) -> int | None:
    """How many devices a list of their indices names: "0,1,2,3" and "0-3" are 4."""
    plain = text.strip(" []()")
    span = re.fullmatch(r"(\d+)\s*(?:-|–|\.\.|:)\s*(\d+)", plain)
    if span:
        return int(span[2]) - int(span[1]) + 1 if int(span[2]) > int(span[1]) else None
    if not re.fullmatch(r"\d+(?:\s*[,;/ +&]\s*\d+)*", plain):
        return None
    indices = re.findall(r"\d+", plain)
    return len(indices) if len(set(indices)) == len(indices) else None


def is_list(text: str) -> bool:
    """Whether a cell is a list of small numbers in rising order, as of device indices, and no number."""
    if not re.fullmatch(r"\[?\s*\d{1,3}(?:\s*,\s*\d{1,3})+\s*\]?", text.strip()):
        return False
    indices = [int(index) for index in re.findall(r"\d+", text)]
    return all(a < b for a, b in zip(indices, indices[1:])) and not re.fullmatch(
        r"[1-9]\d{0,2}(?:,\d{3})+", text.strip()
    )


def _int(text: str) -> int:
    return _SPELLED.get(text) or int(text.replace(",", ""))


def _without(low: str, start: int, end: int, kept: str = "") -> str:
    rest = f"{low[:start]} {kept} {low[end:]}"
    return re.sub(r"\s+", " ", re.sub(r"[(\[]\s*[)\]]", " ", rest)).strip(" ,;:()[]-–/@+&|").strip()
