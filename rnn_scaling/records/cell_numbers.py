"""Numbers in the cells of tables, with the bounds that their rounding allows.

People write cells, so markup and footnotes are removed, and units are read. Numbers in
logs follow stricter rules: `importers.log_numbers`.

`records.tables` calls `parse_cell` for every cell, so that importers, audits and
predictions read the same number.
"""

import dataclasses
import functools
import html
import math
import re

# Footnote signs in this suite's reports, which explain them.
CORRECTED_MARK = "†"
ALL_BATCHES_MARK = "‡"
DISTURBED_MARK = "§"
_NAMES_OF_SECONDS = {  # seconds in a unit -> the names of the unit
    1e-9: "ns nanos nanoseconds",
    1e-6: "us µs μs usec micros microseconds",
    1e-3: "ms msec msecs millis milliseconds",
    1.0: "s sec secs second seconds",
    60.0: "m min mins minute minutes",
    3600.0: "h hr hrs hour hours",
    86400.0: "d day days",
}
SECONDS: dict[str, float] = {}
for _seconds, _names in _NAMES_OF_SECONDS.items():
    SECONDS.update(dict.fromkeys(_names.split(), _seconds))
# Matches "MB", "MiB", "bytes".
_BYTES = re.compile(r"(?P<prefix>[kmgtp]?)(?P<binary>i?)b(?:ytes?)?", re.IGNORECASE)
_BYTE_PREFIXES = "kmgtp"
# After a number, "B" is a billion ("8B"). In a unit such as "GB", it is bytes
# (`_BYTES`).
_SUFFIX_FACTORS = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}
# Matches "~1,281.5e3 k img/s".
_NUMBER = re.compile(
    r"(?P<rough>[~≈∼<>≤≥]|about |approx\.? ?|ca\.? )?\s*[$€]?[xX×]?\s?"
    r"(?P<number>[-+−]?(?:\d{1,3}(?:[,'_ \u2009\u202f]\d{3})+(?!\d)|\d+)?(?:\.\d*)?)"
    r"(?P<exponent>[eE][-+]?\d{1,2})?\s?(?P<scale>[kKMGB](?![A-Za-z]))?\s?"
    r"(?P<unit>[^\d\s(\[±+<>][^\d(\[±<>]{0,24})?"
)
# Matches "12", "12.5%": most cells of large files.
_PLAIN_NUMBER = re.compile(r"\d+(?:\.(?P<decimals>\d*))?(?P<unit>%|x?)")
_MAX_PLAIN_CHARACTERS = 15  # characters of a cell that may be a plain number
# Matches "(±3)", "± 0.2".
_REMARK = re.compile(r"\s*[(\[].{0,60}[)\]]$|\s*(?:±|\+/-|\+-|\\pm).{0,40}$")
# Matches "1:02:30".
_CLOCK = re.compile(r"(?:(\d+):)?(\d+):([0-5]\d(?:\.\d*)?)")
# Matches "1 h 2 min".
_HOURS = re.compile(
    r"(?:(\d+)\s?h(?:ours?|rs?)?)?\s?(?:(\d+)\s?m(?:in(?:utes?)?)?)?\s?"
    r"(?:(\d+(?:\.\d*)?)\s?s(?:ec(?:onds?)?)?)?"
)
# Matches "<b>", "**".
_MARKUP = re.compile(
    r"</?(?:b|i|em|strong|code|sub|span|small|p|font|u)(?:\s[^<>]*)?>|"
    r"\*\*|__|`|[✅✓✔❌✗⚠⭐🚀🔥🏆]\ufe0f?"
)
# Matches "[^1]", "<sup>a</sup>".
_FOOTNOTE = re.compile(
    r"<sup>.{0,40}?</sup>|\[\^?\w{1,2}\](?!\()|[†‡§¶¹²³⁴]|(?<=[\w%])\*+$|^\*+|\*+$"
)
# Matches "[text](address)".
_LINK = re.compile(r"\[([^\[\]]+)\]\([^()\s]*\)")
_TIMES_SIGN = re.compile(r"[xX×]")
# Matches "x faster", "times slower".
_COMPARISON = re.compile(r"(?:[x×]|times)(?: faster| (?P<slower>slower))")
MAX_CELL_CHARACTERS = 200  # characters of a cell that are read
ARITHMETIC_ERROR = 1e-9  # relative error of computed numbers
_ROUGH_ERROR = 0.1  # relative error of numbers such as "~30"
_MAX_VALUE = 1e18


@dataclasses.dataclass(frozen=True, slots=True)
class PrintedNumber:
    """A number as it is printed in a table or a log.

    Printed numbers may be rounded or cut off: 3.1 may be any number from 3.05 to 3.2.
    """

    value: float  # number in units of the cell; durations in seconds
    resolution: float  # the value of 1 in its last printed digit
    text: str
    unit: str = ""  # "%", "x", "s" for every duration, or the text after the number
    is_rough: bool = False  # "~30", "<5"

    @property
    def low(self) -> float:
        """The smallest number that is printed like this if it is rounded."""
        return self.value - max(0.5 * self.resolution, self._error)

    @property
    def high(self) -> float:
        """The largest number that is printed like this if it is rounded or cut off."""
        return self.value + max(self.resolution, self._error)

    @property
    def _error(self) -> float:
        relative_error = _ROUGH_ERROR if self.is_rough else ARITHMETIC_ERROR
        return abs(self.value) * relative_error

    @property
    def is_whole(self) -> bool:
        """Whether the number has no fraction."""
        return self.value % 1 == 0


def strip_markup(text: str) -> str:
    """Return a cell or header without emphasis, links, footnotes and repeated spaces.

    Returns:
      At most MAX_CELL_CHARACTERS characters.
    """
    text = text.strip()[:MAX_CELL_CHARACTERS]
    if not text or (text.isascii() and text.replace(".", "", 1).isalnum()):
        return text
    if "<" in text or "&" in text:
        text = html.unescape(re.sub(r"<br\s*/?>", " ", text))
    if "\\" in text:
        text = re.sub(r"\\([%*#_~])", r"\1", text)
    text = _MARKUP.sub("", text)
    text = _LINK.sub(r"\1", text)
    text = _FOOTNOTE.sub("", text)
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
    if len(text) <= _MAX_PLAIN_CHARACTERS:
        plain = _PLAIN_NUMBER.fullmatch(text)
        if plain:
            resolution = 10.0 ** -len(plain["decimals"] or "")
            value = float(text.rstrip("%x"))
            return PrintedNumber(value, resolution, text, plain["unit"])
    text = strip_markup(text)
    if not _has_digit(text[:24]):
        return None
    cell = _REMARK.sub("", text).strip()
    match = _NUMBER.fullmatch(cell)
    if match is None or not _has_digit(match["number"]):
        return _parse_duration(cell)
    return _make_number(match, cell, text)


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _make_number(match: re.Match[str], cell: str, text: str) -> PrintedNumber | None:
    """Return the number that _NUMBER matched; None if it is too large.

    Args:
      match: The match of a whole cell.
      cell: The cell without a remark.
      text: The cell with its remark, which the number keeps.
    """
    digits = re.sub(r"[,'_ \u2009\u202f]", "", match["number"]).replace("−", "-")
    exponent_factor = float(f"1{match['exponent'] or ''}")
    factor = exponent_factor * _SUFFIX_FACTORS[match["scale"] or ""]
    value = float(digits) * factor
    if not math.isfinite(value) or abs(value) > _MAX_VALUE:
        return None
    is_rough = bool(match["rough"])
    resolution = _find_resolution(digits, is_rough) * factor
    unit_factor, unit = _parse_unit((match["unit"] or "").strip().rstrip(".,;"))
    comparison = _COMPARISON.fullmatch(unit.lower())
    if comparison and comparison["slower"] and value > 1:
        # "2 times slower" is the speedup 1/2. The derivative of 1/v is -1/v**2.
        resolution = resolution / value**2
        value = 1.0 / value
    has_times_sign = bool(_TIMES_SIGN.match(cell.lstrip("~≈")))  # "x2.5"
    if comparison or (has_times_sign and unit not in ("s", "B")):
        unit = "x"
    return PrintedNumber(
        value * unit_factor,
        resolution=resolution * unit_factor,
        text=text,
        unit=unit,
        is_rough=is_rough,
    )


def _find_resolution(digits: str, is_rough: bool) -> float:
    """Return the value of 1 in the last digit of a number such as "1281.5"."""
    decimals = len(digits.partition(".")[2])
    if decimals == 0 and is_rough:
        # The zeros of "about 3,000" are not digits.
        unsigned = digits.lstrip("+-")
        return 10.0 ** (len(unsigned) - len(unsigned.rstrip("0")))
    return 10.0**-decimals


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
        if not size["prefix"]:
            return 1.0, "B"
        base = 1024.0 if size["binary"] else 1000.0
        power = 1 + _BYTE_PREFIXES.index(size["prefix"].lower())
        return base**power, "B"
    if name in ("percent", "pct") or text.startswith("%"):
        return 1.0, "%"
    if name in ("x", "×", "times", "fold"):
        return 1.0, "x"
    return 1.0, text


def _parse_duration(text: str) -> PrintedNumber | None:
    """Return "1:02:30" or "1 h 2 min 30 s" in seconds, or None for other texts."""
    match = _CLOCK.fullmatch(text) or _HOURS.fullmatch(text)
    if match is None:
        return None
    parts = match.groups()
    # `_make_number` reads a single part, such as "2 min": a number with its unit.
    if sum(part is not None for part in parts) < 2:
        return None
    hours, minutes, seconds = (float(part or 0) for part in parts)
    resolution = 60.0
    if parts[2]:
        resolution = 10.0 ** -len(parts[2].partition(".")[2])
    total_s = 3600 * hours + 60 * minutes + seconds
    return PrintedNumber(total_s, resolution, text, "s")
