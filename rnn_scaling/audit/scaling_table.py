"""The rows that every parser and importer makes and every check reads: one point of a scaling measurement each.

A number is a `Cell`: its value and how many decimals were printed, so that a check knows between which bounds the
unrounded number lay. A value within those bounds is never a fault.
"""

from __future__ import annotations

import dataclasses
import html
import math
import re
from collections.abc import Iterable, Mapping

# A relative slack for the arithmetic itself: records keep 17 digits, and their sums are not exact either.
FLOAT_SLACK = 1e-9

# The role of columns that say something about others: bounds and deviations of a number, runs that it was made of.
ASIDE = "aside"

_MULTIPLIERS = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9}
_THING = (
    r"(?:word|token|image|img|sample|example|sequence|seq|sentence|pair|item|record|step|batch|batche|iteration|it"
    r"|epoch)s?"
)
_UNIT = (  # a closed list: "7gforce" and "4x4" are names
    rf"%|percent|[xX×]|times|(?:n?s|[mµμu]s|secs?)\s?/\s?{_THING}|n?s|[mµμu]s|msecs?|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|days?|毫秒|秒|сек|分钟|мин|Minuten|小时|[KkMGT]?i?B(?:/s(?:ec)?)?|[MG]Hz|W|J"
    rf"|(?:GPU|CPU|device|worker|node|card|core|tower|replica)s?|{_THING}(?:\s?(?:/|per)\s?(?:s|secs?|second))?"
    r"|[A-Za-z]{0,12}\s?/\s?(?:s|sec|second|min|minute|h|hr|hour|day)(?:\s?/\s?(?:GPU|device|worker|node))?"
    r"|in\s(?:all|total)|(?:global|total)|(?i:[qfiwtr]p[sm])"
)
_OF_A_THING = re.compile(rf"(?<=s)\s?/\s?{_THING}$|(?<=sec)\s?/\s?{_THING}$")  # "25.8 ms/step" is a time
_NUMBER = re.compile(
    rf"""(?P<about>[~≈∼]|ca\.?\s|about\s|approx\.?\s)?\s*[$€]?\s*(?P<times>[xX×]\s?(?=\d))?
    (?P<number>[-+−]?(?:[1-9]\d{{0,2}}(?:\.\d{{3}}){{2,}}(?![\d.])
    |(?:[1-9]\d{{0,2}}(?:[,'’ \u2009\u202f\xa0_]\d{{3}})+(?!\d)|\d+)(?:\.\d*)?)|[-+−]?\.\d+)
    (?P<exponent>[eE][-+]?\d+)?
    \s*(?P<multiplier>[kKMG](?![A-Za-z]))?
    \s*(?P<unit>{_UNIT})?""",
    re.VERBOSE,
)
_PLAIN = re.compile(r"-?\d{1,18}(?:\.\d{0,18})?", re.ASCII)
# "1.63 ± 0.02" and, in brackets, "1.63 (0.02)", "1.63 (sd 0.02)", "1.63 [1.61, 1.65]", "1.63 (95 % CI 1.61 to 1.65)".
_PLUS_MINUS = r"(?:±|\+\s?/?\s?[-−]|\\pm)"
_SPREAD = re.compile(rf"(?P<value>.*\S)\s*{_PLUS_MINUS}\s*(?P<spread>\S.*)")
_NAME_OF_SPREAD = rf"(?:{_PLUS_MINUS}|(?:sd|std|se|sem|σ|s\.d\.|(?:95\s?%\s?)?ci)\b)\s*[:=]?\s*"
_ASIDE = re.compile(
    rf"(?P<value>[^()\[\]]*[^()\[\]\s])\s*[(\[]\s*(?:{_NAME_OF_SPREAD})?(?P<aside>[^()\[\]]+?)\s*[)\]]", re.IGNORECASE
)
_FROM_TO = re.compile(r",\s+|\s*;\s*|\s+to\s+|\s*–\s*|\s+-\s+|(?<=\d)-(?=\d)|\s*\.\.+\s*")
_MARKS = re.compile(r"[<*`_&$\\†‡§¶^¹²³⁴\[✅✓✔❌✗✘⚠⭐🚀🔥]|\s\s|[^\S ]")
# "12.1x[1]", "93%*", "1446 †", "1446^a": a note is below the table, not in the number.
_FOOTNOTE = re.compile(
    r"(?<=[\w%)\]×.])\s*(?:(?:\[\^?(?:\d{1,2}|[a-z])\]|\^\{?(?:\d|[a-z]|\*)\}?|[†‡§¶¹²³⁴]|\((?:[a-z*])\))\s*)+$"
)
_SUPERSCRIPT = re.compile(r"(?<=[\w%)\]×.])\s*<sup>(?:(?!</sup>).){0,40}</sup>", re.IGNORECASE)
_POWER_OF_TEN = re.compile(r"\s*(?:[x×·*]|&times;)\s*10(?:<sup>|\^\{?)\s*([-+−]?\d+)\s*(?:</sup>|\}?)", re.IGNORECASE)
# "1.0x (baseline)": a remark; of "55 (estimated)" nobody knows the digits.
_REMARK = re.compile(
    r"(?<=\d|%|[xX×])\s*\((?!\D*(?:est|approx|proj|theor|ideal|extrapol|target|expect|predict|partial|fail|oom))"
    r"[^\W\d_][^()\[\]\d]{1,30}\)$|(?<=[xX×])\s+(?:faster|slower)$",
    re.IGNORECASE,
)
_LONG_NUMBER = re.compile(r"\d{100,}")
_LONG_RUN, _LONGEST = 30, 200  # characters of a run of one character, and of a text
_LONG_REPEAT = re.compile(rf"([^\d])\1{{{_LONG_RUN - 1},}}")
_POWER = re.compile(r"(\d{1,3})\^\{?(\d{1,2})\}?")
_HOURS = re.compile(
    r"(?:(?P<h>\d+)\s*h(?:(?:ou)?rs?)?\s*)?(?:(?P<m>\d+)\s*m(?:in(?:ute)?s?)?\s*)?(?:(?P<s>\d+(?:\.\d*)?)\s*s(?:ec(?:ond)?s?)?)?"
)
_TIMES = re.compile(r"(\d+\.\d+)\s*[*×x]\s*([1-9]\d{0,4})")
_CLOCK = re.compile(r"(?P<h>\d+):(?P<m>[0-5]\d):(?P<s>[0-5]\d(?:\.\d*)?)")


@dataclasses.dataclass(frozen=True, slots=True)
class Cell:
    """One number as printed.

    value: in the unit of its column; "88 %" is 0.88.
    digits: decimals of `value` that were printed, negative where the last printed digit is tens ("55k": -3).
    text: what stands in the source.
    unit: what follows the number in the cell ("%", "x", "s", ...), "" for none.
    spread: how far the interval or the deviation beside the number reaches, in the unit of `value`; 0 for none. It says
      that the number is a mean, and of how the mean was rounded only what zeros at the end of both say.
    step: what the last printed digit counts, where that is no power of ten ("1.5 h" in seconds: 360); else 0.
    """

    value: float
    digits: int
    text: str
    unit: str = ""
    spread: float = 0.0
    step: float = 0.0

    @property
    def half_ulp(self) -> float:
        """Half a unit of the last printed digit, and the slack of floating point."""
        return 0.5 * (self.step or 10.0**-self.digits) + abs(self.value) * FLOAT_SLACK

    def times(self, factor: float) -> Cell:
        """The same number in another unit: its rounding and its spread go with it."""
        shift = round(math.log10(factor))
        value, spread = self.value * factor, self.spread * factor
        if not self.step and math.isclose(factor, 10.0**shift):
            value = self.value / 10**-shift if shift < 0 else value
            return dataclasses.replace(self, value=value, digits=self.digits - shift, spread=spread)
        step = (self.step or 10.0**-self.digits) * factor
        return dataclasses.replace(self, value=value, digits=math.ceil(-math.log10(step)), spread=spread, step=step)

    @property
    def low(self) -> float:
        """The smallest number that prints as this cell."""
        return self.value - self.half_ulp

    @property
    def high(self) -> float:
        """The largest number that prints as this cell."""
        return self.value + self.half_ulp

    @property
    def relative_spread(self) -> float:
        """The spread as a share of the value."""
        return self.spread / abs(self.value) if self.value else 0.0


@dataclasses.dataclass(frozen=True)
class ScalingRow:
    """One measured point. What the source does not say is None.

    source: file or stream that it comes from, as the user named it.
    line: line in the source, from 1; 0 where lines mean nothing.
    series: what points that may be compared share (machine, model, mode, ...); "" when there is only one.
    devices: devices, workers or GPUs together.
    batch_size: samples a device a step; global_batch_size: of all devices together.
    batches: steps that `seconds` covers; work: items (words, images) that it covers.
    rate: items a second, in `rate_unit` ("words/s", "images/s", ...).
    rate_each: items a second of one device, where the header says that; rate_scope: "total" where it says so, else "".
    speedup: against one device, or against `baseline_devices` where the header names another number.
    efficiency: speedup / devices, as a fraction.
    scaling: "weak" or "strong" where the source states it, else "".
    extra: numbers of columns that have no field here, by column name.
    """

    source: str
    line: int
    series: str = ""
    devices: int | None = None
    batch_size: Cell | None = None
    global_batch_size: Cell | None = None
    batches: Cell | None = None
    seconds: Cell | None = None
    rate: Cell | None = None
    rate_unit: str = ""
    rate_each: Cell | None = None
    rate_scope: str = ""
    speedup: Cell | None = None
    baseline_devices: int | None = None
    efficiency: Cell | None = None
    scaling: str = ""
    work: Cell | None = None
    extra: Mapping[str, Cell] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class GridRow:
    """One line of a table as it stands: its texts, and the number of each (None where there is none)."""

    line: int
    texts: tuple[str, ...]
    cells: tuple[Cell | None, ...]

    def numbers(self, columns: Iterable[int]) -> list[Cell]:
        """The numbers in these columns, without what is none."""
        return [cell for cell in (self.cells[k] for k in columns) if cell]


@dataclasses.dataclass(frozen=True)
class ScalingTable:
    """One table.

    source, line: the file and the line of its header; title: the heading above it, "" for none.
    columns: header texts, unique.
    rows: its points; empty when no column says devices, rate, speedup or the like.
    grid: the lines as they stand, one cell a column; empty for sources that are not tables.
    notes: what was not understood or left out, one sentence each.
    roles: column -> the ScalingRow field that it was read as, or ASIDE; columns that are not in it went to `extra`.
    ratios: column -> (column above the line, column below it), where the header names two columns of one quantity.
    """

    source: str
    line: int
    title: str
    columns: tuple[str, ...]
    rows: tuple[ScalingRow, ...]
    grid: tuple[GridRow, ...] = ()
    notes: tuple[str, ...] = ()
    roles: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ratios: Mapping[str, tuple[str, str]] = dataclasses.field(default_factory=dict)


def parse_cell(text: str) -> Cell | None:
    """The number that a cell prints; None when it prints none ("n/a", "", "error", "0,1", "inf").

    Understands bold and code marks, thousands separators, signs, exponents, k/M/G and a unit behind the number;
    per cent becomes a fraction. "1.63 ± 0.02", "1.63 (0.02)" and "1.63 [1.61, 1.65]" are 1.63 with a spread of 0.02.

    >>> parse_cell("**88 %**").value
    0.88
    """
    return parse_bare(strip_marks(text))


def parse_bare(bare: str) -> Cell | None:
    """The number of a cell that strip_marks has gone over; None when it prints none."""
    if _PLAIN.fullmatch(bare):  # most cells
        return Cell(float(bare), len(bare.partition(".")[2]), bare)
    if not bare or len(bare) >= 80:
        return None
    power = _POWER.fullmatch(bare)
    if power:
        return Cell(float(int(power[1]) ** int(power[2])), 0, bare)
    match = _NUMBER.fullmatch(bare) or _NUMBER.fullmatch(_REMARK.sub("", bare))
    return _from_match(match, bare) if match else _with_spread(bare) or _duration(bare) or _product(bare)


def _product(bare: str) -> Cell | None:
    """ "62.65*8": a rate of one device times the devices."""
    match = _TIMES.fullmatch(bare)
    each = _number(match[1]) if match else None
    return dataclasses.replace(each.times(float(match[2])), text=bare) if match and each else None


def _duration(bare: str) -> Cell | None:
    """ "1:02:30" and "1 h 2 min 30 s" in seconds."""
    match = _CLOCK.fullmatch(bare) or _HOURS.fullmatch(bare)
    given = [unit for unit in "hms" if match and match[unit]]
    if not match or len(given) < 2:
        return None
    hours, minutes, seconds = (float(match[unit] or 0) for unit in "hms")
    step = {"h": 3600.0, "m": 60.0, "s": 10.0 ** -len((match["s"] or "").partition(".")[2])}[given[-1]]
    return Cell(3600 * hours + 60 * minutes + seconds, round(-math.log10(step)), bare, "s", step=step)


def decimal_comma(text: str) -> str:
    """A number as "1.446,3" or "12,1x" in the other convention: "1446.3", "12.1x"."""
    return re.sub(r"(?<=\d)\.(?=\d{3}(?!\d))", "", text).replace(",", ".") if "," in text or "." in text else text


def _with_spread(bare: str) -> Cell | None:
    """A number with a deviation or an interval beside it."""
    match = _SPREAD.fullmatch(bare)
    if match and not re.search(r"[(\[]", bare):
        return _plus_minus(_number(match["value"]), _number(match["spread"]))
    match = _ASIDE.fullmatch(bare)
    value = _number(match["value"]) if match else None
    if match is None or value is None:
        return None
    aside = [match["aside"]]
    for separator in (_FROM_TO, re.compile(",")):
        aside = separator.split(match["aside"]) if len(aside) == 1 else aside
    single = _number(match["aside"])
    if single:  # "4 (2 nodes)" is no deviation
        return _plus_minus(value, single) if single.unit in ("", value.unit) else None
    ends = [end for end in map(_number, aside) if end]
    if not len(ends) == len(aside) == 2:
        return None
    low, high = (_in_unit(end, value) for end in ends)
    if not low <= value.value <= high:
        return None
    zeros = min(_trailing_zeros(cell) for cell in (value, *ends) if cell.value) if value.value else 0
    spread = max(value.value - low, high - value.value)
    return dataclasses.replace(value, digits=value.digits - zeros, spread=spread)


def _plus_minus(value: Cell | None, spread: Cell | None) -> Cell | None:
    if value is None or spread is None or spread.value < 0:
        return None
    if spread.unit and not value.unit:  # "55.4 ± 0.2 s": of both; of "1.63 ± 2 %" nobody knows what it is of
        return None if spread.unit == "%" else dataclasses.replace(value, unit=spread.unit, spread=spread.value)
    zeros = min(_trailing_zeros(value), _trailing_zeros(spread)) if value.value and spread.value else 0
    return dataclasses.replace(value, digits=value.digits - zeros, spread=_in_unit(spread, value))


def _in_unit(cell: Cell, other: Cell) -> float:
    """A number that stands beside another: per cent where that is per cent."""
    return cell.value / (100 if other.unit == "%" and not cell.unit else 1)


def _trailing_zeros(cell: Cell) -> int:
    """Zeros at the end of a whole number: "160 [120, 220]" was rounded to tens."""
    digits = cell.text.replace(",", "")
    return len(digits) - len(digits.rstrip("0")) if digits.isdigit() else 0


def _number(text: str) -> Cell | None:
    match = _NUMBER.fullmatch(text.strip())
    return _from_match(match, text.strip()) if match else None


def _from_match(match: re.Match[str], bare: str) -> Cell | None:
    number = re.sub(r"[,'’ \u2009\u202f\xa0_]", "", match["number"]).replace("−", "-")
    number = number.replace(".", "") if number.count(".") > 1 else number  # "1.123.242"
    shift = int(match["exponent"][1:]) if match["exponent"] else 0
    shift += _MULTIPLIERS[match["multiplier"] or ""]
    unit = (match["unit"] or "").strip()
    unit = _OF_A_THING.sub("", unit) or ("x" if match["times"] else "")
    if unit in ("%", "percent"):
        shift, unit = shift - 2, "%"
    if abs(shift) > 300:
        return None
    value = float(f"{number}e{shift}")
    digits = len(number.partition(".")[2]) - shift
    if match["about"]:  # "~30": not to the last digit
        whole = number.lstrip("-+").partition(".")[0]
        digits -= max(1, len(whole) - len(whole.rstrip("0")) if "." not in number else 1)
    return Cell(value, digits, bare, unit) if math.isfinite(value) else None


def strip_marks(text: str) -> str:
    """A cell without Markdown's emphasis, code marks, line breaks and footnote marks; of bounded length."""
    text = _shortened(text.strip())
    if not _MARKS.search(text) or _POWER.fullmatch(text):
        return text
    if "<" in text or "&" in text or "^" in text:
        text = _SUPERSCRIPT.sub("", _POWER_OF_TEN.sub(r"e\1", html.unescape(text)))
        text = re.sub(r"<br\s*/?>", " ", text, flags=re.IGNORECASE)
        text = re.sub(
            r"</?(?:b|i|em|strong|code|sup|sub|del|span|small|tt|font|p|a|u)(?:\s[^<>]*)?>",
            "",
            text,
            flags=re.IGNORECASE,
        )
    text = re.sub(r"\[([^\[\]]+)\]\([^()\s]*\)", r"\1", text)  # a link
    text = re.sub(
        r"(?<![\w.])\*+|\*+(?!\s*\d)|`|(?<![A-Za-z0-9])_+|_+(?![A-Za-z0-9])|[✅✓✔❌✗✘⚠⭐🚀🔥]\ufe0f?", "", text
    )
    return re.sub(r"\s+", " ", _FOOTNOTE.sub("", text.strip())).strip()


def _shortened(text: str) -> str:
    """A text with an ellipsis for numbers too long to measure, for runs of one character, and for its end."""
    if len(text) < _LONG_RUN:
        return text
    text = _LONG_REPEAT.sub("\N{HORIZONTAL ELLIPSIS}", _LONG_NUMBER.sub("\N{HORIZONTAL ELLIPSIS}", text))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "\N{HORIZONTAL ELLIPSIS}"


def exact(value: float) -> Cell:
    """The cell of a number that was not rounded for print, as in JSON: every decimal that it has counts."""
    if float(value).is_integer() and abs(value) < 1e15:
        return Cell(float(value), 9, str(int(value)))
    shown = repr(float(value))
    mantissa, _, exponent = shown.partition("e")
    return Cell(float(value), len(mantissa.partition(".")[2]) - int(exponent or 0), shown)
