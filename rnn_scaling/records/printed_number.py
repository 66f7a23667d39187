"""Printed numbers: what a cell says, and between which bounds the number lay before it was rounded for print."""

import dataclasses
import functools
import html
import math
import re

_TIMES_S = {
    1e-9: "ns nanos nanoseconds", 1e-6: "us µs μs usec micros microseconds", 1e-3: "ms msec msecs millis milliseconds",
    1.0: "s sec secs second seconds", 60.0: "m min mins minute minutes", 3600.0: "h hr hrs hour hours",
    86400.0: "d day days",
}  # fmt: skip
SECONDS = {
    name: seconds for seconds, names in _TIMES_S.items() for name in names.split()
}
_BYTES = re.compile(r"([kmgtp]?)(i?)b(?:ytes?)?", re.IGNORECASE)
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
_NUMBER = re.compile(
    r"(?P<rough>[~≈∼<>≤≥]|about |approx\.? ?|ca\.? )?\s*[$€]?[xX×]?\s?"
    r"(?P<number>[-+−]?(?:\d{1,3}(?:[,'_ \u2009\u202f]\d{3})+(?!\d)|\d+)?(?:\.\d*)?)"
    r"(?P<exponent>[eE][-+]?\d{1,2})?\s?(?P<scale>[kKMGB](?![A-Za-z]))?\s?(?P<unit>[^\d\s(\[±+<>][^\d(\[±<>]{0,24})?"
)
_SHORT = re.compile(r"(\d+)(?:\.(\d*))?(%|x?)")  # most cells of large files
_REMARK = re.compile(r"\s*[(\[].{0,60}[)\]]$|\s*(?:±|\+/-|\+-|\\pm).{0,40}$")
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):([0-5]\d(?:\.\d*)?)")
_HOURS = re.compile(
    r"(?:(\d+)\s?h(?:ours?|rs?)?)?\s?(?:(\d+)\s?m(?:in(?:utes?)?)?)?\s?(?:(\d+(?:\.\d*)?)\s?s(?:ec(?:onds?)?)?)?"
)
_MARKS = re.compile(
    r"</?(?:b|i|em|strong|code|sub|span|small|p|font|u)(?:\s[^<>]*)?>|\*\*|__|`|[✅✓✔❌✗⚠⭐🚀🔥🏆]\ufe0f?"
)
_NOTE = re.compile(
    r"<sup>.{0,40}?</sup>|\[\^?\w{1,2}\](?!\()|[†‡§¶¹²³⁴]|(?<=[\w%])\*+$|^\*+|\*+$"
)
_LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)")
_TIMES = re.compile(r"[xX×]")
_SLOWER = re.compile(r"(?:[x×]|times)(?: faster| (slower))")
LONGEST = 200  # characters of a cell that are looked at
SLACK = 1e-9  # of the arithmetic
ROUGH = 0.1  # by which "~30" may be off


@dataclasses.dataclass(frozen=True, slots=True)
class Printed:
    value: float  # in units of the cell; durations in seconds
    step: float  # what its last printed digit counts
    text: str
    unit: str = ""  # "%", "x", "s" for every duration, or what follows the number
    is_rough: bool = False  # "~30", "<5"

    @property
    def low(self) -> float:
        """The smallest number that prints so, rounded."""
        return self.value - max(
            0.5 * self.step, abs(self.value) * (ROUGH if self.is_rough else SLACK)
        )

    @property
    def high(self) -> float:
        """The largest number that prints so, rounded or cut off."""
        return self.value + max(
            self.step, abs(self.value) * (ROUGH if self.is_rough else SLACK)
        )

    @property
    def digits(self) -> int:
        """Significant digits, without zeros that only fill."""
        return (
            len(re.sub(r"[^\d]", "", self.text.partition("e")[0]).strip("0"))
            if self.value
            else 0
        )


def plain(text: str) -> str:
    """A cell or header without emphasis, links, footnote marks and repeated blanks; at most LONGEST characters."""
    text = text.strip()[:LONGEST]
    if not text or (text.isascii() and text.replace(".", "", 1).isalnum()):
        return text
    if "<" in text or "&" in text:
        text = html.unescape(re.sub(r"<br\s*/?>", " ", text))
    if "\\" in text:
        text = re.sub(r"\\([%*#_~])", r"\1", text)
    text = _NOTE.sub("", _LINK.sub(r"\1", _MARKS.sub("", text)))
    return re.sub(r"\s+", " ", text).strip()


def parse(text: str) -> Printed | None:
    """The number that a cell prints, None for anything else ("n/a", "OOM", "2 x 4").

    >>> parse("**1,281.5 img/s** (±3)").value
    1281.5
    """
    return _parsed(text.strip()[:LONGEST])


@functools.lru_cache(maxsize=1 << 16)  # cells repeat
def _parsed(text: str) -> Printed | None:
    if (short := _SHORT.fullmatch(text)) and len(text) < 16:
        return Printed(
            float(text.rstrip("%x")), 10.0 ** -len(short[2] or ""), text, short[3]
        )
    text = plain(text)
    if not text or not any(character.isdigit() for character in text[:24]):
        return None
    bare = _REMARK.sub("", text).strip() or text
    match = _NUMBER.fullmatch(bare)
    if match is None or not any(character.isdigit() for character in match["number"]):
        return _duration(bare)
    number = re.sub(r"[,'_ \u2009\u202f]", "", match["number"]).replace("−", "-")
    scale = float("1" + (match["exponent"] or "")) if match["exponent"] else 1.0
    scale *= _SCALE[match["scale"] or ""]
    decimals = len(number.partition(".")[2])
    value = float(number) * scale
    step = 10.0**-decimals * scale
    if not math.isfinite(value) or abs(value) > 1e18:
        return None
    is_rough = bool(match["rough"])
    if decimals == 0 and is_rough:
        digits = number.lstrip("+-")
        step *= 10.0 ** (len(digits) - len(digits.rstrip("0")))
    times, unit = _unit((match["unit"] or "").strip().rstrip(".,;"))
    if (slower := _SLOWER.fullmatch(unit.lower())) and slower[1] and value > 1:
        value, step = (
            1.0 / value,
            step / value**2,
        )  # as a speedup; a number that was cut off lies lower
    if slower or (unit not in ("s", "B") and _TIMES.match(bare.lstrip("~≈"))):
        unit = "x"
    return Printed(value * times, step * times, text, unit, is_rough)


def _unit(text: str) -> tuple[float, str]:
    """What a number with a unit is multiplied by, and its unit then: seconds, bytes, "%", "x", or as printed."""
    name = text.lower()
    if name in SECONDS:
        return SECONDS[name], "s"
    if (size := _BYTES.fullmatch(text)) and text not in ("b", "B"):
        base = 1024.0 if size[2] else 1000.0
        return base ** ("kmgtp".index(size[1].lower()) + 1) if size[1] else 1.0, "B"
    if name in ("percent", "pct") or text.startswith("%"):
        return 1.0, "%"
    return 1.0, "x" if name in ("x", "×", "times", "fold") else text


def _duration(text: str) -> Printed | None:
    """ "1:02:30" and "1 h 2 min 30 s" in seconds."""
    match = _CLOCK.fullmatch(text) or _HOURS.fullmatch(text)
    if match is None or sum(part is not None for part in match.groups()) < 2:
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    step = 10.0 ** -len((match[3] or "").partition(".")[2]) if match[3] else 60.0
    return Printed(3600 * hours + 60 * minutes + seconds, step, text, "s")
