"""What a header says: the quantity, for how many devices, and the words that remain."""

import dataclasses
import functools
import json
import re
from pathlib import Path

_DATA = json.loads(Path(__file__).with_name("headers.json").read_text(encoding="utf-8"))
_THINGS, _MODELS = _DATA["things"], _DATA["models"]


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern.replace("THINGS", _THINGS).replace("MODELS", _MODELS))


_QUANTITIES = [
    (name, _compiled(word), _compiled(bar) if bar else None)
    for name, word, bar in _DATA["quantities"]
]
_COUNT = _compiled(
    r"(?:^|[\s(,@_=-])(?:(?P<nodes>\d{1,5}) ?(?:nodes?|machines?|hosts?|servers?) ?[x×*,/] ?)?"
    r"(?:(?:n|p|np|k|THINGS) ?[=:] ?(?P<equal>\d{1,5})\b"
    r"|(?P<number>\d{1,5}) ?[x×*]? ?-?(?:(?:THINGS)\b|(?:MODELS)\b)"
    r"|(?P<word>single|one|two|four|eight)[ -](?:THINGS)\b"
    r"|(?:THINGS)[ -]?(?P<after>\d{1,5})\b)(?: ?(?:THINGS)\b)?"
)
_WORDS = {"single": 1, "one": 1, "two": 2, "four": 4, "eight": 8}
_TOTAL, _BASELINE, _STATISTIC = (
    _compiled(_DATA[key]) for key in ("total", "baseline", "statistic")
)
_RANK = re.compile(
    r"\b(?:min(?:imum)?|max(?:imum)?|median|avg|average|mean|p(?P<percent>\d\d(?:\.\d+)?)|(?P<place>\d\d(?:\.\d+)?)(?:th\b|%))"
)
_INNER = (1e-9, 100.0 - 1e-9)  # percentiles between which a mean may lie
_THING = _compiled("THINGS")
_FASTER = re.compile(r"^vs\b(?!.*(?:linear|ideal))|faster|\bgain|improve")
_PATH = re.compile(r"[^\s.]+(?:\.[^\s.]+)+")
_STEM = re.compile(r"[a-z0-9]+|%|δ")
_COMMON = frozenset(_DATA["common"].split())


@dataclasses.dataclass(frozen=True)
class Meaning:
    quantity: str  # a name of headers.json, or "" for none
    devices: int | None  # number in the header ("4 GPUs")
    rest: str  # the header without that number
    is_percent: bool  # whether numbers below count hundredths
    words: frozenset[str]  # what tells it from other columns
    is_statistic: bool  # of several runs, as a minimum or percentile: a ratio of those is not the one of the ratios


@functools.lru_cache(maxsize=4096)
def read(header: str) -> Meaning:
    text = re.sub(r"[_\s]+", " ", header.lower()).strip()
    count = _COUNT.search(text)
    devices, rest = None, text
    if count:
        devices = _number(count)
        rest = f"{text[: count.start()]} {text[count.end() :]}".strip(" ,()-:")
    keys = (
        text.split(".") if _PATH.fullmatch(header) else [text]
    )  # of JSON; the last says most
    quantity = next((name for key in reversed(keys) if (name := quantity_of(key))), "")
    if quantity == "devices" and devices is not None:
        quantity = ""
    if not quantity and rest != text:
        quantity = quantity_of(rest)
    words = frozenset(_STEM.findall(rest)) - _COMMON
    is_statistic = bool(_STATISTIC.search(text))
    return Meaning(
        quantity, devices, rest, "%" in text or "percent" in text, words, is_statistic
    )


def _number(count: re.Match[str]) -> int:
    digits = count["equal"] or count["number"] or count["after"]
    number = int(digits) if digits else _WORDS[count["word"]]
    return number * int(count["nodes"] or 1)


@functools.lru_cache(maxsize=4096)
def quantity_of(text: str) -> str:
    """The quantity that a text in lower case names, "" for none."""
    for name, pattern, excluded in _QUANTITIES:
        if pattern.search(text) and not (excluded and excluded.search(text)):
            return name
    return ""


def devices_in(text: str) -> tuple[int, str] | None:
    """The number of devices that a row's name holds, and the name without it."""
    match = _COUNT.search(text.lower())
    if match is None:
        return None
    return _number(match), f"{text[: match.start()]} {text[match.end() :]}".strip(
        " ,()-:"
    )


def is_below(low: str, high: str) -> bool:
    """Whether a column cannot exceed another one: a percentile a higher one, the minimum the mean, a part the total."""
    a, b = _statistic(low), _statistic(high)
    if a and b and a[1] == b[1]:
        return a[0][1] < b[0][0]
    parts, whole = (set(_STEM.findall(text.lower())) for text in (low, high))
    return (
        len(whole) > 1
        and "total" in whole
        and "total" not in parts
        and whole - {"total"} < parts
    )


def _statistic(header: str) -> tuple[tuple[float, float], str] | None:
    """The percentiles between which a statistic lies, and what it is of; None for no statistic."""
    text = header.lower().replace("_", " ")
    match = _RANK.search(text)
    if match is None:
        return None
    name, place = match[0][:3], float(match["percent"] or match["place"] or 0.0)
    ends = {
        "min": (0.0, 0.0),
        "max": (100.0, 100.0),
        "med": (50.0, 50.0),
        "avg": _INNER,
        "ave": _INNER,
        "mea": _INNER,
    }
    return ends.get(name, (place, place)), re.sub(
        r"\W+", " ", text.replace(match[0], " ")
    ).strip()


def is_thing(unit: str) -> bool:
    """Whether a unit is what is counted as devices: "4 GPUs"."""
    return bool(_THING.fullmatch(unit.lower()))


def may_be_speedup(header: str) -> bool:
    """Whether numbers such as "1.5x" below a header are speedups, though it names a change: "vs baseline"."""
    return bool(_FASTER.search(header.lower()))


def is_total(text: str) -> bool:
    """Whether a header or row name says that it is a sum."""
    return bool(_TOTAL.search(text.lower().replace("_", " ")))


def is_baseline(text: str) -> bool:
    """Whether a row's name says that others are compared with it."""
    return bool(_BASELINE.search(text.lower()))
