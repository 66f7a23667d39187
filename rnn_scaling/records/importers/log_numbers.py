"""Numbers in logs (12,345.6, 12.3k, 1.23e+04 or 12_345) and patterns that read them.

Numbers in the cells of tables have marks and footnotes: `records.cell_numbers`.
"""

import math
import re
import warnings

from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.importers import printed_units
from rnn_scaling.records.importers.printed_units import COUNTED, Kind

DEVICE_RATE = "(?P<device_rate>"  # begins a rate of one device in a pattern
_RATE = "(?P<rate>"
TOKEN = "{number}"  # part of a pattern that reads any of these numbers
_SEPARATOR = "[,_'\u2019\u00a0\u2009\u202f]"
_END = r"(?!\d)"  # The number of digits is bounded, so that no line takes long.
_DIGITS = (
    rf"(?<!\d)(?:\d{{1,3}}(?:{_SEPARATOR}\d{{2,3}}){{0,9}}{_SEPARATOR}\d{{3}}{_END}|"
    rf"\d{{1,40}}{_END})(?:\.\d{{0,40}}{_END})?|\.\d{{1,40}}{_END}"
)
# The first letter of MB, kbit or GFLOPS belongs to the unit and not to the number.
_PREFIX = (
    rf" ?(?:[kKMGT](?![\w-])|B(?![\w/-])|[kKMG](?=(?:{COUNTED})\b))|"
    r"k(?=[a-z])(?!ki?b|kflop|kops\b|khz)"
)
_EXPONENT = rf"[eE][-+]?\d{{1,9}}{_END}"
NUMBER = (
    rf"(?:[-+\u2212]?(?:(?:{_DIGITS})(?:{_EXPONENT})?(?:{_PREFIX})?|"
    r"(?i:nan|inf(?:inity)?)(?![A-Za-z])))"
)
_FULL_NUMBER = re.compile(rf"([-+\u2212]?)({_DIGITS})({_EXPONENT})?( ?[kKMGTB])?")
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
# A number with everything that may belong to it: "12,5", "1:23" and "0x1F", too.
_WHOLE = re.compile(
    rf"(?:(?<![^\s=:(\[])[-+\u2212])?\.?\d(?:(?:{_SEPARATOR}|[.:])?\d)*"
    rf"(?:\.(?!\w))?(?:{_EXPONENT}|[xX][0-9a-fA-F]+)?(?:{_PREFIX})?"
)
_PREFIX_BEHIND = re.compile(rf" ?(?:[kKMGTB](?![\w-])|[kKMGT](?=(?:{COUNTED})\b))")
_UNIT_BEHIND = re.compile(r" ?[kKMGTB]\w")
_TIME_GROUPS = {"seconds": "seconds", "ms": "milliseconds"}
_TIME_REMEDY = (
    f"print a rate per second, or read seconds with (?P<seconds>{TOKEN}) or "
    f"milliseconds with (?P<ms>{TOKEN}), and add --items_per_step=PRODUCT"
)
_MAX_CHARACTERS_BEFORE = 40  # characters before a group in which its number may begin


class TooLarge(ValueError):
    """A number that is too large for a float."""


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern, in which TOKEN reads any number.

    In a pattern without named groups, the first TOKEN is the group `rate`. The group
    `device_rate` is compiled as `rate`.

    Raises:
      re.error: If the pattern is not a regular expression.
    """
    if "(?P<" not in pattern:
        pattern = pattern.replace(TOKEN, f"{_RATE}{TOKEN})", 1)
    pattern = pattern.replace(DEVICE_RATE, _RATE)
    try:
        with warnings.catch_warnings():
            # Python warns that a later version may read "[[" as a set in a set.
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern.replace(TOKEN, NUMBER))
    except (RecursionError, OverflowError, MemoryError) as e:
        raise re.error(f"too deeply nested or too large ({type(e).__name__})") from None


def parse_number(text: str) -> PrintedNumber:
    """Return a printed number with the unit of its last digit.

    Raises:
      TooLarge: If the number is too large for a float.
      ValueError: If the text is not a number.
    """
    match = _FULL_NUMBER.fullmatch(text.strip().rstrip(","))
    if match is None:
        raise ValueError(f"{text[:40]!r} is not a number")
    sign, digits, exponent, prefix = match.groups("")
    digits = re.sub(_SEPARATOR, "", digits)
    factor = _FACTORS.get(prefix.strip().lower(), 1.0)
    power = int(exponent[1:] or 0)
    decimals = len(digits.partition(".")[2])
    value = float(f"{digits}e{power}") * factor
    step = float(f"1e{power - decimals}") * factor
    if not math.isfinite(value + step):
        raise TooLarge(f"{text[:40]!r} is too large")
    return PrintedNumber(-value if sign in ("-", "\u2212") else value, step, text)


def find_number_text(match: re.Match[str], name: str) -> str:
    """Return the text of a group, with the metric prefix that the pattern has behind it.

    The pattern "{number}K" reads "58.4K" as 58,400. In "{number} MB/s" and
    "{number} ktok/s" the letter belongs to the unit.
    """
    if _is_part_of_unit(match, name):
        return match[name]
    return match[name] + _find_literal_prefix(match, name)


def find_rate_unit(match: re.Match[str]) -> str:
    """Return the unit of the group `rate` if it has a prefix, such as "MB"; else ""."""
    unit = printed_units.find_unit(match.string, *match.span("rate"))
    if unit is None or unit.kind is not Kind.RATE or not unit.prefix:
        return ""
    is_factor = unit.is_behind and _find_literal_prefix(match, "rate")
    if is_factor and not _is_part_of_unit(match, "rate"):
        return ""
    return unit.items


def find_fault(match: re.Match[str], name: str, unit: str = "") -> str:
    """Return why the group of a match is wrong, or "" if it is right.

    A group is wrong if it has only a part of a number, or a number in another unit. A
    separator that the pattern itself contains, such as the comma between the columns of
    a CSV file, does not belong to a number.

    Args:
      match: A match of the pattern in a line.
      name: The name of the group.
      unit: The value of --unit, or "" if it is not set.
    """
    if not re.search(r"[\d.]$", match[name]):
        has_prefix = re.search(r"\d ?[kKMGTB]$", match[name])
        return _find_wrong_unit(match, name, unit) if has_prefix else ""
    if _is_whole(match, name):
        return _find_wrong_unit(match, name, unit)
    return (
        f"the group {name} reads only {match[name]!r} of "
        f"{_find_text_around(match, name)!r}; {TOKEN} reads any number, and the pattern "
        "must contain the character that ends it"
    )


def _is_whole(match: re.Match[str], name: str) -> bool:
    """Return whether the number of a group does not continue outside of the group.

    A separator that the pattern contains, such as the comma between the columns of a
    CSV file, does not continue a number.
    """
    start, end = match.span(name)
    for whole in _WHOLE.finditer(match.string, max(0, start - _MAX_CHARACTERS_BEFORE)):
        if whole.end() > start:
            is_begun = whole.start() >= start or _is_literal(match, name, start - 1)
            is_ended = whole.end() <= end or _is_literal(match, name, end)
            return is_begun and is_ended
    return True


def _find_text_around(match: re.Match[str], name: str) -> str:
    """Return the text of a group with the characters around it up to the next blanks."""
    start, end = match.span(name)
    left = re.search(r"\S*$", match.string[:start])
    right = re.match(r" ?\S*", match.string[end:])
    assert left is not None
    assert right is not None
    return f"{left[0]}{match[name]}{right[0]}"[:60]


def _find_wrong_unit(match: re.Match[str], name: str, unit: str) -> str:
    """Return why a group cannot hold a number in the printed unit, or ""."""
    if name != "rate" and name not in _TIME_GROUPS:
        return ""
    printed_unit = printed_units.find_unit(match.string, *match.span(name))
    if printed_unit is None:
        return ""
    fault = (
        f"the group {name} reads {match[name]!r} in {_find_text_around(match, name)!r}"
    )
    time_unit = printed_unit.time_unit
    if printed_unit.kind is Kind.TIME:
        if name != "rate" and time_unit in ("", _TIME_GROUPS[name]):
            return ""
        return f"{fault}, which is a time ({printed_unit.text}); {_TIME_REMEDY}"
    if name != "rate":
        is_wrong = printed_unit.is_behind
        return f"{fault}, which is a rate; use the group rate" if is_wrong else ""
    if time_unit not in ("", "seconds"):
        return f"{fault}, which is a rate per {time_unit[:-1]}; {_TIME_REMEDY}"
    items = find_rate_unit(match)
    prefix = printed_unit.prefix.lower()
    if items and unit and not unit.lower().startswith(prefix[:1]):
        return (
            f"{fault}, whose unit is {items}, but --unit={unit} lacks the prefix "
            f"{printed_unit.prefix}; use --unit={items}"
        )
    return ""


def _find_literal_prefix(match: re.Match[str], name: str) -> str:
    """Return the metric prefix behind a group if the pattern contains it, else "".

    It is a separate letter ("58.4 K") or the first letter of a unit ("58.4 ktok/s").
    """
    prefix = _PREFIX_BEHIND.match(match.string, match.end(name))
    if prefix is None or not re.search(r"[\d.]$", match[name]):
        return ""
    return prefix[0].strip() if _is_literal(match, name, prefix.end() - 1) else ""


def _is_part_of_unit(match: re.Match[str], name: str) -> bool:
    """Return whether a pattern contains the letter behind a prefix, as "t" in "ktok"."""
    unit = _UNIT_BEHIND.match(match.string, match.end(name))
    return unit is not None and _is_literal(match, name, unit.end() - 1)


def _is_literal(match: re.Match[str], name: str, position: int) -> bool:
    """Return whether the match needs the character at a position of the line."""
    text = match.string
    changed_match = match.re.search(f"{text[:position]}\0{text[position + 1 :]}")
    return changed_match is None or changed_match.span(name) != match.span(name)
