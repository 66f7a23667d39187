"""Read a header: its quantity, its number of devices, and the words that remain.

headers.json holds the vocabulary. The order of its "quantities" matters: the first
pattern that a header matches decides, so narrow patterns come before wide ones.
"""

import dataclasses
import enum
import functools
import json
import re
from pathlib import Path

_DATA = json.loads(Path(__file__).with_name("headers.json").read_text(encoding="utf-8"))


class Quantity(str, enum.Enum):
    """The quantity of the numbers of a column; the values are names in headers.json."""

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
    ASIDE = "aside"  # accuracy, memory, CPU time, and others that are not a speed
    UNKNOWN = ""


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of headers.json, in which THINGS and MODELS are vocabularies."""
    for name in ("things", "models"):
        pattern = pattern.replace(name.upper(), _DATA[name])
    return re.compile(pattern)


_QUANTITIES = [
    (Quantity(name), _compile(word), _compile(bar) if bar else None)
    for name, word, bar in _DATA["quantities"]
]


_UNITS = [
    (set(map(Quantity, names)), _compile(pattern), factor)
    for names, pattern, factor in _DATA["units"]
]


def _group(name: str) -> tuple[Quantity, ...]:
    return tuple(map(Quantity, _DATA[name]))


DERIVED = _group("derived")  # computed from others
CHOSEN = _group("chosen")  # people choose these, and print them exactly
# The first of these that a table has is what its series measure.
MEASURES = _group("measures")
# Parameters may separate series. The first ones do so most often.
PARAMETERS = _group("parameters")
IN_ROWS = _group("in rows")  # names of rows with these show that a table is turned
MEASURED = _group("measured")  # an empty cell is a missing number, not part of a group
# If a table has several columns of counts, the first of these words names the devices.
FINEST_FIRST: list[str] = _DATA["finest first"]
_WORDS = {"single": 1, "one": 1, "two": 2, "four": 4, "eight": 8}
_COUNT = _compile(_DATA["count"])
_BASELINE = _compile(_DATA["baseline"])
_STATISTIC = _compile(_DATA["statistic"])
_END = _compile(_DATA["end"])
_FASTER = _compile(_DATA["faster"])
_THING = _compile("THINGS")
_PATH = re.compile(r"[^\s.]+(?:\.[^\s.]+)+")
_STEM = re.compile(r"[a-z0-9]+|%|δ")
_COMMON = frozenset(_DATA["common"].split())


@dataclasses.dataclass(frozen=True)
class Meaning:
    """The meaning of a header."""

    quantity: Quantity
    devices: int | None  # the number in "4 GPUs"
    other_words: str  # the header without that number
    is_percent: bool  # whether the numbers count hundredths
    words: frozenset[str]  # the words that distinguish it from other columns
    # Whether it is a statistic of several runs. The ratio of two minima is not the
    # minimum of the ratios.
    is_statistic: bool
    # Whether it is an end of intervals. The ratio of two ends is not an end of the
    # ratio.
    is_end: bool


@functools.lru_cache(maxsize=4096)
def read_header(header: str) -> Meaning:
    """Return the meaning of a header.

    A number of devices is removed first: "4 GPUs (img/s)" is a rate on 4 devices. Only
    if the whole header names no quantity, the words without the number are read.
    """
    text = re.sub(r"[_\s]+", " ", header.lower()).strip()
    devices, other_words = find_devices(text) or (None, text)
    keys = [text]
    if _PATH.fullmatch(header):
        keys = text.split(".")  # a path in JSON; its last key is the most specific
    quantities = filter(None, map(find_quantity, reversed(keys)))
    quantity = next(quantities, Quantity.UNKNOWN)
    if quantity == Quantity.DEVICES and devices is not None:
        quantity = Quantity.UNKNOWN
    if not quantity and other_words != text:
        quantity = find_quantity(other_words)
    return Meaning(
        quantity,
        devices,
        other_words,
        "%" in text or "percent" in text,
        frozenset(_STEM.findall(other_words)) - _COMMON,
        bool(_STATISTIC.search(text)),
        bool(_END.search(text)),
    )


@functools.lru_cache(maxsize=4096)
def find_quantity(text: str) -> Quantity:
    """Return the quantity that a text in lower case names."""
    for quantity, pattern, excluded in _QUANTITIES:
        if pattern.search(text) and not (excluded and excluded.search(text)):
            return quantity
    return Quantity.UNKNOWN


def find_factor(header: str, quantity: Quantity) -> float:
    """Return the factor from the unit of a header to seconds, bytes or items/s."""
    text = header.lower().replace("_", " ")
    for quantities, pattern, factor in _UNITS:
        if quantity in quantities and pattern.search(text):
            return factor
    return 1.0


def find_devices(text: str) -> tuple[int, str] | None:
    """Return the number of devices in a text such as "8x V100", and the other words."""
    match = _COUNT.search(text.lower())
    if match is None:
        return None
    digits = match["equal"] or match["number"] or match["after"]
    number = int(digits) if digits else _WORDS[match["word"]]
    other_words = f"{text[: match.start()]} {text[match.end() :]}".strip(" ,()-:")
    return number * int(match["nodes"] or 1), other_words


def is_thing(unit: str) -> bool:
    """Return whether a unit counts devices: "GPUs"."""
    return bool(_THING.fullmatch(unit.lower()))


def may_be_speedup(header: str) -> bool:
    """Return whether "1.5x" below a header of a change is a speedup: "vs baseline"."""
    return bool(_FASTER.search(header.lower()))


def is_baseline(text: str) -> bool:
    """Return whether a row's name makes it the baseline of others."""
    return bool(_BASELINE.search(text.lower()))
