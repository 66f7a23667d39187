"""Read a header: its quantity, its number of devices, and the words that remain.

headers.json holds the vocabulary.
"""

import dataclasses
import enum
import functools
import json
import re
from pathlib import Path

_DATA = json.loads(Path(__file__).with_name("headers.json").read_text(encoding="utf-8"))


class Quantity(str, enum.Enum):
    """What the numbers of a column are. The values are the names in headers.json."""

    DEVICES = "devices"
    SETTING = "setting"  # a second number of devices, which separates series
    RATE = "rate"
    EACH = "each"  # a rate per device
    SECONDS = "seconds"
    SPEEDUP = "speedup"
    EFFICIENCY = "efficiency"
    CHANGE = "change"
    SHARE = "share"
    BATCH = "batch"
    GLOBAL_BATCH = "global_batch"
    BATCHES = "batches"
    EPOCHS = "epochs"
    WORK = "work"  # items in total
    BYTES = "bytes"
    ALGBW = "algbw"
    BUSBW = "busbw"
    COST = "cost"  # devices x time
    ENERGY = "energy"
    POWER = "power"
    FLOPS = "flops"
    UTILIZATION = "utilization"
    ASIDE = "aside"  # no result of a run's speed: accuracy, memory, CPU time
    UNKNOWN = ""


def _compiled(pattern: str) -> re.Pattern[str]:
    for name in ("things", "models"):
        pattern = pattern.replace(name.upper(), _DATA[name])
    return re.compile(pattern)


_QUANTITIES = [
    (Quantity(name), _compiled(word), _compiled(bar) if bar else None)
    for name, word, bar in _DATA["quantities"]
]


def _group(name: str) -> tuple[Quantity, ...]:
    return tuple(map(Quantity, _DATA[name]))


DERIVED = _group("derived")  # computed from others
CHOSEN = _group("chosen")  # by people, and printed exactly
# The first of these that a table has is what its series measure.
MEASURES = _group("measures")
# They may separate series, those that do so more often first.
PARAMETERS = _group("parameters")
IN_ROWS = _group("in rows")  # names of rows with these show that a table is turned
MEASURED = _group("measured")  # an empty cell is a missing number, not part of a group
# Of several columns of counts, that of the first word has the devices.
FINEST_FIRST: list[str] = _DATA["finest first"]
_WORDS = {"single": 1, "one": 1, "two": 2, "four": 4, "eight": 8}
_COUNT = _compiled(_DATA["count"])
_TOTAL = _compiled(_DATA["total"])
_BASELINE = _compiled(_DATA["baseline"])
_STATISTIC = _compiled(_DATA["statistic"])
_RANK = _compiled(_DATA["rank"])
_FASTER = _compiled(_DATA["faster"])
_THING = _compiled("THINGS")
_PATH = re.compile(r"[^\s.]+(?:\.[^\s.]+)+")
_STEM = re.compile(r"[a-z0-9]+|%|δ")
_COMMON = frozenset(_DATA["common"].split())
_INNER = (1e-9, 100.0 - 1e-9)  # percentiles between which a mean may lie
_PERCENTILES = {
    "min": (0.0, 0.0),
    "med": (50.0, 50.0),
    "max": (100.0, 100.0),
    "avg": _INNER,
    "ave": _INNER,
    "mea": _INNER,
}


@dataclasses.dataclass(frozen=True)
class Meaning:
    """What a header says."""

    quantity: Quantity
    devices: int | None  # the number in "4 GPUs"
    rest: str  # the header without that number
    is_percent: bool  # whether the numbers count hundredths
    words: frozenset[str]  # the words that distinguish it from other columns
    is_statistic: bool  # of several runs; ratios of minima are not minima of ratios


@functools.lru_cache(maxsize=4096)
def read(header: str) -> Meaning:
    """Return the meaning of a header."""
    text = re.sub(r"[_\s]+", " ", header.lower()).strip()
    devices, rest = devices_in(text) or (None, text)
    keys = [text]
    if _PATH.fullmatch(header):
        keys = text.split(".")  # of JSON; the last one says most
    found = [quantity for key in reversed(keys) if (quantity := quantity_of(key))]
    quantity = found[0] if found else Quantity.UNKNOWN
    if quantity == Quantity.DEVICES and devices is not None:
        quantity = Quantity.UNKNOWN
    if not quantity and rest != text:
        quantity = quantity_of(rest)
    return Meaning(
        quantity,
        devices,
        rest,
        "%" in text or "percent" in text,
        frozenset(_STEM.findall(rest)) - _COMMON,
        bool(_STATISTIC.search(text)),
    )


@functools.lru_cache(maxsize=4096)
def quantity_of(text: str) -> Quantity:
    """Return the quantity that a text in lower case names."""
    for quantity, pattern, excluded in _QUANTITIES:
        if pattern.search(text) and not (excluded and excluded.search(text)):
            return quantity
    return Quantity.UNKNOWN


def devices_in(text: str) -> tuple[int, str] | None:
    """Return the number of devices in a text such as "8x V100", and the other words."""
    match = _COUNT.search(text.lower())
    if match is None:
        return None
    digits = match["equal"] or match["number"] or match["after"]
    number = int(digits) if digits else _WORDS[match["word"]]
    others = f"{text[: match.start()]} {text[match.end() :]}".strip(" ,()-:")
    return number * int(match["nodes"] or 1), others


def is_below(low: str, high: str) -> bool:
    """Return whether the first column cannot exceed the second.

    That holds for a percentile and a higher one of the same measure, for a mean and a
    maximum, and for a part and its total.
    """
    first = _statistic(low)
    second = _statistic(high)
    if first and second and first[1] == second[1]:
        return first[0][1] < second[0][0]
    parts = set(_STEM.findall(low.lower()))
    whole = set(_STEM.findall(high.lower()))
    is_total = len(whole) > 1 and "total" in whole and "total" not in parts
    return is_total and whole - {"total"} < parts


def _statistic(header: str) -> tuple[tuple[float, float], str] | None:
    """Return the percentiles between which a statistic lies, and what it is of."""
    text = header.lower().replace("_", " ")
    match = _RANK.search(text)
    if match is None:
        return None
    percent = float(match["percent"] or match["place"] or 0.0)
    ends = _PERCENTILES.get(match[0][:3], (percent, percent))
    return ends, re.sub(r"\W+", " ", text.replace(match[0], " ")).strip()


def is_thing(unit: str) -> bool:
    """Return whether a unit counts devices: "GPUs"."""
    return bool(_THING.fullmatch(unit.lower()))


def may_be_speedup(header: str) -> bool:
    """Return whether "1.5x" below a header of a change is a speedup: "vs baseline"."""
    return bool(_FASTER.search(header.lower()))


def is_total(text: str) -> bool:
    """Return whether a header or a row's name announces a sum."""
    return bool(_TOTAL.search(text.lower().replace("_", " ")))


def is_baseline(text: str) -> bool:
    """Return whether a row's name says that others are compared with it."""
    return bool(_BASELINE.search(text.lower()))
