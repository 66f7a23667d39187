"""Numbers in the cells of tables, with the bounds that their rounding allows.

People write cells, so marks, footnotes and units are read or removed. Numbers in logs
follow stricter rules: `importers.log_numbers`.

Importers, audits and predictions read all cells with it, so that they agree.
"""

import dataclasses
import functools
import html
import math
import re

# Marks of numbers in this suite's reports; reports explain them.
CORRECTED_MARK = "†"
ALL_BATCHES_MARK = "‡"
DISTURBED_MARK = "§"
_TIMES_S = {
    1e-9: "ns nanos nanoseconds",
    1e-6: "us µs μs usec micros microseconds",
    1e-3: "ms msec msecs millis milliseconds",
    1.0: "s sec secs second seconds",
    60.0: "m min mins minute minutes",
    3600.0: "h hr hrs hour hours",
    86400.0: "d day days",
}
SECONDS: dict[str, float] = {}
for _seconds, _names in _TIMES_S.items():
    SECONDS.update(dict.fromkeys(_names.split(), _seconds))
_BYTES = re.compile(r"([kmgtp]?)(i?)b(?:ytes?)?", re.IGNORECASE)
_SCALE = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
_NUMBER = re.compile(
    r"(?P<rough>[~≈∼<>≤≥]|about |approx\.? ?|ca\.? )?\s*[$€]?[xX×]?\s?"
    r"(?P<number>[-+−]?(?:\d{1,3}(?:[,'_ \u2009\u202f]\d{3})+(?!\d)|\d+)?(?:\.\d*)?)"
    r"(?P<exponent>[eE][-+]?\d{1,2})?\s?(?P<scale>[kKMGB](?![A-Za-z]))?\s?"
    r"(?P<unit>[^\d\s(\[±+<>][^\d(\[±<>]{0,24})?"
)
_SHORT = re.compile(r"(\d+)(?:\.(\d*))?(%|x?)")  # most cells of large files
_REMARK = re.compile(r"\s*[(\[].{0,60}[)\]]$|\s*(?:±|\+/-|\+-|\\pm).{0,40}$")
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):([0-5]\d(?:\.\d*)?)")
_HOURS = re.compile(
    r"(?:(\d+)\s?h(?:ours?|rs?)?)?\s?(?:(\d+)\s?m(?:in(?:utes?)?)?)?\s?"
    r"(?:(\d+(?:\.\d*)?)\s?s(?:ec(?:onds?)?)?)?"
)
_MARKS = re.compile(
    r"</?(?:b|i|em|strong|code|sub|span|small|p|font|u)(?:\s[^<>]*)?>|"
    r"\*\*|__|`|[✅✓✔❌✗⚠⭐🚀🔥🏆]\ufe0f?"
)
_NOTE = re.compile(
    r"<sup>.{0,40}?</sup>|\[\^?\w{1,2}\](?!\()|[†‡§¶¹²³⁴]|(?<=[\w%])\*+$|^\*+|\*+$"
)
_LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)")
_TIMES = re.compile(r"[xX×]")
_SLOWER = re.compile(r"(?:[x×]|times)(?: faster| (slower))")
MAX_CELL_CHARACTERS = 200  # characters of a cell that are read
SLACK = 1e-9  # relative error of the arithmetic
_ROUGH_ERROR = 0.1  # relative error of numbers such as "~30"
_MAX_VALUE = 1e18


@dataclasses.dataclass(frozen=True, slots=True)
class PrintedNumber:
    """A number as a cell of a table, or a line of a log, contains it."""

    value: float  # number in units of the cell; durations in seconds
    step: float  # the value of 1 in its last printed digit
    text: str
    unit: str = ""  # "%", "x", "s" for every duration, or the text after the number
    is_rough: bool = False  # "~30", "<5"

    @property
    def low(self) -> float:
        """The smallest number that is printed like this if it is rounded."""
        return self.value - max(0.5 * self.step, self._error)

    @property
    def high(self) -> float:
        """The largest number that is printed like this if it is rounded or cut off."""
        return self.value + max(self.step, self._error)

    @property
    def _error(self) -> float:
        return abs(self.value) * (_ROUGH_ERROR if self.is_rough else SLACK)

    @property
    def is_whole(self) -> bool:
        """Whether the number has no fraction."""
        return self.value % 1 == 0

    @property
    def digits(self) -> int:
        """Number of significant digits, without zeros at either end."""
        if not self.value:
            return 0
        mantissa = self.text.partition("e")[0]
        return len(re.sub(r"[^\d]", "", mantissa).strip("0"))


def strip_markup(text: str) -> str:
    """Return a cell or header without emphasis, links, footnotes and repeated spaces.

    Returns:
      At most LONGEST characters.
    """
    text = text.strip()[:MAX_CELL_CHARACTERS]
    if not text or (text.isascii() and text.replace(".", "", 1).isalnum()):
        return text
    if "<" in text or "&" in text:
        text = html.unescape(re.sub(r"<br\s*/?>", " ", text))
    if "\\" in text:
        text = re.sub(r"\\([%*#_~])", r"\1", text)
    text = _NOTE.sub("", _LINK.sub(r"\1", _MARKS.sub("", text)))
    return re.sub(r"\s+", " ", text).strip()


def parse_cell(text: str) -> PrintedNumber | None:
    """Return the number in a cell, or None for anything else ("n/a", "OOM", "2 x 4").

    >>> parse_cell("**1,281.5 img/s** (±3)").value
    1281.5
    """
    return _parse(text.strip()[:MAX_CELL_CHARACTERS])


@functools.lru_cache(maxsize=1 << 16)  # cells repeat
def _parse(text: str) -> PrintedNumber | None:
    """Parse a cell without spaces at its ends.

    The cheap readings come first: plain digits, then a number with everything that
    people write around it, then a duration.
    """
    if len(text) < 16 and (short := _SHORT.fullmatch(text)):
        step = 10.0 ** -len(short[2] or "")
        return PrintedNumber(float(text.rstrip("%x")), step, text, short[3])
    text = strip_markup(text)
    if not _has_digit(text[:24]):
        return None
    cell = _REMARK.sub("", text).strip() or text
    match = _NUMBER.fullmatch(cell)
    if match is None or not _has_digit(match["number"]):
        return _parse_duration(cell)
    return _number_of_match(match, cell, text)


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _number_of_match(
    match: re.Match[str], cell: str, text: str
) -> PrintedNumber | None:
    """Return the number that _NUMBER matched; None if it is too large.

    Args:
      match: The match of a whole cell.
      cell: The cell without a remark.
      text: The cell with its remark, which the number keeps.
    """
    digits = re.sub(r"[,'_ \u2009\u202f]", "", match["number"]).replace("−", "-")
    scale = float(f"1{match['exponent'] or ''}") * _SCALE[match["scale"] or ""]
    decimals = len(digits.partition(".")[2])
    value = float(digits) * scale
    step = 10.0**-decimals * scale
    if not math.isfinite(value) or abs(value) > _MAX_VALUE:
        return None
    is_rough = bool(match["rough"])
    if decimals == 0 and is_rough:
        # The zeros of "about 3,000" are not digits.
        unsigned = digits.lstrip("+-")
        step *= 10.0 ** (len(unsigned) - len(unsigned.rstrip("0")))
    factor, unit = _parse_unit((match["unit"] or "").strip().rstrip(".,;"))
    comparison = _SLOWER.fullmatch(unit.lower())
    if comparison and comparison[1] and value > 1:
        # "2 times slower" as a speedup. It is lower if the printed number was cut off.
        step = step / value**2
        value = 1.0 / value
    if comparison or (unit not in ("s", "B") and _TIMES.match(cell.lstrip("~≈"))):
        unit = "x"
    return PrintedNumber(
        value * factor, step=step * factor, text=text, unit=unit, is_rough=is_rough
    )


def _parse_unit(text: str) -> tuple[float, str]:
    """Return the factor that converts to a common unit, and that unit.

    Returns:
      The unit is "s", "B", "%", "x", or the text.
    """
    name = text.lower()
    if name in SECONDS:
        return SECONDS[name], "s"
    size = _BYTES.fullmatch(text)
    if size and text not in ("b", "B"):
        if not size[1]:
            return 1.0, "B"
        base = 1024.0 if size[2] else 1000.0
        return base ** ("kmgtp".index(size[1].lower()) + 1), "B"
    if name in ("percent", "pct") or text.startswith("%"):
        return 1.0, "%"
    if name in ("x", "×", "times", "fold"):
        return 1.0, "x"
    return 1.0, text


def _parse_duration(text: str) -> PrintedNumber | None:
    """Return "1:02:30" or "1 h 2 min 30 s" in seconds, or None for other texts."""
    match = _CLOCK.fullmatch(text) or _HOURS.fullmatch(text)
    if match is None or sum(part is not None for part in match.groups()) < 2:
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    step = 10.0 ** -len(match[3].partition(".")[2]) if match[3] else 60.0
    return PrintedNumber(3600 * hours + 60 * minutes + seconds, step, text, "s")
