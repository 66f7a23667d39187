"""Find the unit of a printed number in the text directly before and behind it.

A number may be a time ("893.76ms", "elapsed (ms): 75254", "1.25s/it", "took 3.5") or a
rate ("512 tokens/s", "wps 512", "19.0 MB/s"). Often its unit is not printed.

`log_numbers` and `regex_log` ask what a number is. Pure.
"""

import dataclasses
import enum
import functools
import re

_CONTEXT = 80  # characters before and behind a number that are searched
_SAME_DIGITS = str.maketrans("123456789", "0" * 9)
_LABEL_WORDS = 5  # last words of a label that can name the quantity
_SPELLINGS = {
    "nanoseconds": r"ns|(?i:nsecs?|nanosec(?:ond)?s?)",
    "microseconds": r"[uµμ]s|(?i:[uµμ]secs?|microsec(?:ond)?s?)",
    "milliseconds": r"(?i:ms|msecs?|millis|millisec(?:ond)?s?)",
    "seconds": r"s|(?i:secs?|seconds?)",
    "minutes": r"(?i:mins?|minutes?)",
    "hours": r"h|(?i:hrs?|hours?)",
    "days": r"(?i:days?)",
}
_ANY_TIME = "|".join(_SPELLINGS.values())
_TIME = rf"(?:{_ANY_TIME})(?![A-Za-z])"
_PER = r"(?:\s?/\s?|\s+per\s+|_per_|-per-)"
# Words next to "per GPU" that name another quantity, as in "memory per GPU".
_OTHER_QUANTITY = (
    r"(?i:(?:mini|micro)?-?batch(?:es|_?size)?|m?bs|sizes?|mem(?:ory)?|v?ram|hbm|"
    r"[kmgt]i?b|loss|time|steps?|gpus|devices|ranks|workers|chips|threads|cores|"
    r"n?proc(?:s|esses)?|n?tasks)(?![A-Za-z])"
)
_OTHER_QUANTITY_BEFORE = re.compile(rf"(?<![A-Za-z]){_OTHER_QUANTITY}[\s_-]*$")
_OTHER_QUANTITY_BEHIND = re.compile(rf"[\s_-]*{_OTHER_QUANTITY}")


class _PartOfJob:
    """A part of a job, of which logs print the rate: "per GPU", "/node".

    Attributes:
      names: Pattern of its names.
      in_label: Finds it before a number.
      behind: Finds it behind a number, as in "512 tokens/s/GPU", "512 tok/s (per
        device)" and "512 img/sec per GPU". Only the unit of the number may be between.
      next: Finds it directly behind a unit.
    """

    def __init__(self, names: str, abbreviation: str = "") -> None:
        self.names = names
        # In "tensorflow/core/util", it is a folder.
        per_part = (
            rf"(?:{_PER}|\bper[\s_-])(?i:{names})"
            r"(?![A-Za-z]{2}|:\d|/(?!sec)[A-Za-z_]{4})"
        )
        unit_of_part = (
            rf"(?!{_OTHER_QUANTITY})"
            r"(?:[A-Za-z#][^\s\d,;|()\"']{0,20}?"
            r"(?:(?:\s?/\s?|\s+per\s+)[A-Za-z]{1,12})?)?"
            rf"\s?[(\[]?(?i:(?:avg|average|mean|each)\s)?(?:{per_part})"
            rf"(?![-_]\w|\s{_OTHER_QUANTITY})"
        )
        spellings = [per_part]
        units = [unit_of_part]
        if abbreviation:
            word = rf"(?<![A-Za-z])(?i:{abbreviation})(?![A-Za-z])"
            spellings.append(word)
            units.append(word)
        self.in_label = re.compile("|".join(spellings))
        self.behind = re.compile(rf"\s{{0,2}}[(\[]?(?:{'|'.join(units)})")
        self.next = re.compile(rf"\s?{per_part}")


_DEVICE = _PartOfJob(
    "gpu|device|rank|worker|chip|accelerator|card|npu|tpu|core|proc(?:ess)?",
    "tgs",  # tokens per GPU per second
)
_ITEMS_PER_DEVICE = re.compile(rf"(?P<items>[A-Za-z]+){_PER}(?i:{_DEVICE.names})$")
_NODE = _PartOfJob("node|machine|host|server")
_MEASURED = r"bytes?|bits?|flops?|flop|ops|hz"  # follow B, b, M, G and the like
_PLURALS = {
    "iterations": r"it(?:er(?:ation)?)?s?",
    "tokens": r"tok(?:en)?s?",
    "words": r"w(?:or)?ds?",
    "samples": r"samples?",
    "images": r"im(?:g|age)?s?",
    "examples": r"ex(?:ample)?s?",
    "sequences": r"seq(?:uence)?s?",
    "sentences": r"sent(?:ence)?s?",
    "steps": r"steps?",
    "items": r"items?",
    "batches": r"batch(?:es)?",
    "frames": r"frames?",
    "updates": r"updates?",
    "records": r"records?",
    "rows": r"rows?",
}
COUNTED = "|".join(_PLURALS.values())
_PREFIXED_MEASURE = re.compile(rf"(?P<prefix>[kKMGTP]i?)(?:[Bb]|(?i:{_MEASURED}))")
_PREFIXED_COUNT = re.compile(rf"(?P<prefix>[kKMGT])(?:{COUNTED})")
_ITEMS = r"(?P<items>[^\W\d_](?:[\w#-]|\s(?!per\b|\d))*?)"
_RATE_BEHIND = re.compile(rf"\s{{0,2}}[(\[]?{_ITEMS}?{_PER}(?P<time>{_TIME})")
# 12.5 fps, 512 wps, 100 Gbps, 12.5 TFLOPS
_SHORT_RATES = {
    "wps": "words",
    "tps": "tokens",
    "tgs": "tokens",
    "fps": "frames",
    "ips": "",  # images, items or iterations
    "qps": "queries",
    "ups": "updates",
    "sps": "",  # samples, sentences or steps
    "bps": "",  # batches or bits
    "kbps": "",
    "mbps": "",
    "gbps": "",
}
_SHORT_RATE = (
    r"(?P<items>[kKMGTP]?(?:[bB]|(?i:flop)))(?:ps|PS|S|s)|"
    rf"(?i:{'|'.join(sorted(_SHORT_RATES))})"
)
_SHORT_RATE_BEHIND = re.compile(rf"\s{{0,2}}[(\[]?(?:{_SHORT_RATE})(?![\w])")
_TIME_BEHIND = re.compile(rf"(?P<gap>\s{{0,2}})(?P<open>[(\[]?)(?P<time>{_TIME})")
_MINUTES_BEHIND = re.compile(r"m(?![A-Za-z/])")
_NEXT_NUMBER = re.compile(r"\s*[:=]?\s*[-+]?\.?\d|\s*[:=]")
_RATE_BEFORE = re.compile(rf"{_ITEMS}{_PER}(?P<time>{_TIME})")
_TIME_AT_END = re.compile(rf"(?:^|[\W_])(?P<time>{_TIME})(?:{_PER}[A-Za-z]+)?[)\]]?$")
# "tokens_s" and "img sec" are rates, "step_s" and "batch sec" are times.
_COUNTED_AT_END = re.compile(
    r"(?i:tok(?:en)?s?|words?|samples?|im(?:g|age)?s?|examples?|seq(?:uence)?s?|"
    r"sentences?|items?|frames?|its|iters|iterations|steps|batches|updates)$"
)
# As in "on 4 GPU(s): 512"; unlike in "time(s)", it is not the unit.
_PLURAL_AT_END = re.compile(
    r"(?i:gpu|device|rank|worker|node|chip|process|core|image|sample|token)\(s\)$"
)
_LABEL_END = re.compile(r"[\s:=\"'`~<>\u2248({\[+-]*$")
# A separator of labels may be a number with its unit, such as 1.5s.
_SEPARATOR = re.compile(r"[,;|\t}]|(?<![A-Za-z_])\d[\d.,:/%]*(?:[A-Za-z]+(?![/\w]))?")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_RATE_WORDS = frozenset(
    [
        "throughput",
        "speed",
        "rate",
        "bandwidth",
        "performance",
        "perf",
        "flops",
        "busbw",
        "algbw",
        "bw",
    ]
)
_TIME_WORDS = frozenset(
    ("time", "elapsed", "duration", "latency", "eta", "took", "wall", "timing")
)


class Kind(enum.Enum):
    """The quantity that a printed number measures."""

    TIME = enum.auto()
    RATE = enum.auto()


@dataclasses.dataclass(frozen=True)
class PrintedUnit:
    """The unit of a number according to the text next to it."""

    kind: Kind
    text: str  # the printed words
    # A key of _SPELLINGS: the unit of a time, or the unit of time of a rate; "" if only
    # a word like "elapsed" or "throughput" is printed.
    time_unit: str
    items: str = ""  # the items of a rate, as printed; "" if not named
    is_behind: bool = False  # whether the text is behind the number

    @property
    def counted(self) -> str:
        """The usual plural of the items of a rate, or "" if they are not known."""
        for plural, spelling in _PLURALS.items():
            if re.fullmatch(spelling, self.items, re.IGNORECASE):
                return plural
        return _SHORT_RATES.get(self.text.lower(), "")

    @property
    def name(self) -> str:
        """The items of a rate, or its words; "" for a time, and for a bare "rate"."""
        if self.kind is Kind.TIME:
            return ""
        words = self.text if self.text != "rate" else ""
        return self.counted or self.items.lower() or words

    @property
    def prefix(self) -> str:
        """The metric prefix of the items of a rate, such as M in MB; "" without one."""
        measure = _PREFIXED_MEASURE.fullmatch(self.items)
        match = measure or _PREFIXED_COUNT.fullmatch(self.items)
        return match["prefix"] if match else ""


def find_unit(line: str, start: int, end: int) -> PrintedUnit | None:
    """Return the unit of the number at line[start:end], or None if it is not printed."""
    # Most lines of a log differ only in their digits, so that equal texts are cached.
    return _find_between(
        line[max(0, start - _CONTEXT) : start].translate(_SAME_DIGITS),
        line[end : end + _CONTEXT].translate(_SAME_DIGITS),
    )


def is_per_device(line: str, start: int, end: int) -> bool:
    """Return whether the number at line[start:end] is printed as a rate per device."""
    return _is_of_part(_DEVICE, line, start, end)


def is_per_node(line: str, start: int, end: int) -> bool:
    """Return whether the number at line[start:end] is printed as a rate per node."""
    return _is_of_part(_NODE, line, start, end)


def _is_of_part(part: _PartOfJob, line: str, start: int, end: int) -> bool:
    label, previous_number = _split_label(line[max(0, start - _CONTEXT) : start])
    behind = line[end : end + _CONTEXT]
    match = part.behind.match(behind)
    if match and not _is_next_label(behind, match.end(), bool(label)):
        return True
    return _is_in_label(part, label, previous_number)


def _is_next_label(behind: str, end: int, has_label: bool) -> bool:
    """Return whether the text up to `end` is the label of the next number."""
    rest = behind[end:].lstrip("\"')] ")
    if rest[:1] in (":", "="):
        return True
    is_followed = _NEXT_NUMBER.match(behind[end:])
    return has_label and behind[0].isspace() and is_followed is not None


def _is_in_label(part: _PartOfJob, label: str, previous_number: str) -> bool:
    """Return whether the label of a number names a rate of a part of the job.

    In "memory per GPU" and in "(8 per worker)", it names another quantity.
    """
    for match in part.in_label.finditer(label):
        before = label[: match.start()]
        if _OTHER_QUANTITY_BEFORE.search(before):
            continue
        if _OTHER_QUANTITY_BEHIND.match(label[match.end() :]):
            continue
        text_before = previous_number + before
        if re.search(r"[(\[][^()\[\]]*\d\s*$", text_before):
            continue
        return True
    return False


@functools.lru_cache(maxsize=4096)
def _find_between(before: str, behind: str) -> PrintedUnit | None:
    """Return the unit of a number between two texts."""
    label, _ = _split_label(before)
    label_unit = _find_in_label(label)
    return (
        _find_rate_behind(behind, label)
        or _find_time_behind(behind, label_unit)
        or label_unit
    )


def _find_rate_behind(behind: str, label: str) -> PrintedUnit | None:
    """Return the rate that the text behind a number names.

    In "wps 512 it/s 3.5" and "loss 2.5 tokens/s/GPU: 512" the text belongs to the next
    number.
    """
    match = _RATE_BEHIND.match(behind)
    time_unit = _find_time_unit(match["time"]) if match else "seconds"
    match = match or _SHORT_RATE_BEHIND.match(behind)
    if match is None:
        return None
    rest = behind[match.end() :]
    if of_part := _DEVICE.next.match(rest) or _NODE.next.match(rest):
        rest = rest[of_part.end() :]
    if behind[0].isspace() and _NEXT_NUMBER.match(rest) and label:
        return None
    text = match[0].strip().lstrip("([")
    items = (match["items"] or "").strip()
    return PrintedUnit(Kind.RATE, text, time_unit, items, is_behind=True)


def _find_time_behind(
    behind: str, label_unit: PrintedUnit | None
) -> PrintedUnit | None:
    """Return the time that the text behind a number names."""
    is_rate = label_unit is not None and label_unit.kind is Kind.RATE
    if not is_rate and _MINUTES_BEHIND.match(behind):
        return PrintedUnit(Kind.TIME, "m", "minutes", is_behind=True)

    match = _TIME_BEHIND.match(behind)
    if match is None:
        return None
    text_behind = behind[match.end() :]
    if match["open"] and text_behind[:1] not in (")", "]", "/"):
        return None
    per = re.match(rf"{_PER}\w+", text_behind)
    per_text = per[0] if per else ""
    is_separate = match["gap"] and not match["open"]
    if is_separate and _belongs_to_next(match, per_text, label_unit):
        return None
    time_unit = _find_time_unit(match["time"])
    return PrintedUnit(Kind.TIME, match["time"] + per_text, time_unit, is_behind=True)


def _belongs_to_next(
    match: re.Match[str], per_text: str, label_unit: PrintedUnit | None
) -> bool:
    """Return whether a unit of time after a blank is that of the next number.

    Examples are "wps 512 ms 12" and "2.1 min 1.9 max".
    """
    text_behind = match.string[match.start("time") + len(match["time"] + per_text) :]
    is_followed = bool(_NEXT_NUMBER.match(text_behind))
    is_word = _find_time_unit(match["time"]) in ("minutes", "hours")  # or the minimum
    if label_unit is not None:
        if is_word and label_unit.time_unit:
            return True
        if is_followed and label_unit.kind is not Kind.TIME:
            return True
    is_label = not per_text and text_behind.lstrip()[:1] in (":", "=")
    return is_followed and (is_word or match["time"] == "s" or is_label)


def _split_label(before: str) -> tuple[str, str]:
    """Return the words directly before a number, and the text before these words.

    The second text is empty unless it ends with a number.
    """
    text = before[: _LABEL_END.search(before).start()]  # type: ignore[union-attr]
    start = 0
    earlier = ""
    for match in _SEPARATOR.finditer(text):
        start = match.end()
        is_number = match[0][0].isdigit()
        earlier = text[:start] if is_number else ""
    return text[start:].strip(), earlier


def _find_in_label(label: str) -> PrintedUnit | None:
    """Return the unit that the words before a number name."""
    rate = _RATE_BEFORE.search(label)
    time = None if _PLURAL_AT_END.search(label) else _TIME_AT_END.search(label)
    if time and rate and time.start() < rate.end():
        time = None  # the "s" of "tokens/s"
    if time:
        time_unit = _find_time_unit(time["time"])
        if time_unit == "seconds" and _COUNTED_AT_END.search(label[: time.start()]):
            return PrintedUnit(Kind.RATE, label, time_unit)
        return PrintedUnit(Kind.TIME, time[0].strip(" _()[]-/"), time_unit)
    if rate:
        items = rate["items"].split()[-1]
        # In "tokens/gpu/second", the items are in front of the device.
        before = label[: rate.start("items") + len(rate["items"])]
        if in_front := _ITEMS_PER_DEVICE.search(before):
            items = in_front["items"]
        return PrintedUnit(Kind.RATE, rate[0], _find_time_unit(rate["time"]), items)

    words = [word.lower() for word in _WORD.findall(label)][-_LABEL_WORDS:]
    for word in words:
        if word in _RATE_WORDS or word in _SHORT_RATES:
            return PrintedUnit(Kind.RATE, word, "")
    for word in words:
        if word in _TIME_WORDS or word.endswith("time"):
            return PrintedUnit(Kind.TIME, word, "")
    return None


def _find_time_unit(text: str) -> str:
    """Return the key of _SPELLINGS for a printed unit of time."""
    for name, spelling in _SPELLINGS.items():
        if re.fullmatch(spelling, text):
            return name
    raise AssertionError(text)
