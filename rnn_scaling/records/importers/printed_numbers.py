"""Numbers as programs print them, 12,345.6, 12.3k, 1.23e+04 or 12_345, and patterns that contain one."""

import math
import re

from rnn_scaling.records.importers import printed_units
from rnn_scaling.records.importers.printed_units import Kind, PrintedUnit
from rnn_scaling.records.printed_number import Printed

TOKEN = "{number}"  # in a pattern: any of these numbers
_SEPARATOR = "[,_'\u2019\u00a0\u2009\u202f]"
_END = r"(?!\d)"  # digits are bounded, so that no line takes long
_DIGITS = (
    rf"(?<!\d)(?:\d{{1,3}}(?:{_SEPARATOR}\d{{2,3}}){{0,9}}{_SEPARATOR}\d{{3}}{_END}|\d{{1,40}}{_END})"
    rf"(?:\.\d{{0,40}}{_END})?|\.\d{{1,40}}{_END}"
)
_ITEMS = (
    "it|tok(?:en)?s?|words?|samples?|im(?:g|age)?s?|ex(?:ample)?s?|seq(?:uence)?s?|"
    "steps?|items?"
)
# Not the first letter of MB, kbit or GFLOPS: there it belongs to the unit.
_PREFIX = (
    rf" ?(?:[kKMGT](?![\w-])|B(?![\w/-])|[kKMG](?=(?:{_ITEMS})\b))|"
    r"k(?=[a-z])(?!ki?b|kflop|kops\b|khz)"
)
_EXPONENT = rf"[eE][-+]?\d{{1,9}}{_END}"
NUMBER = rf"(?:[-+\u2212]?(?:(?:{_DIGITS})(?:{_EXPONENT})?(?:{_PREFIX})?|(?i:nan|inf(?:inity)?)(?![A-Za-z])))"
_WHOLE = re.compile(rf"([-+\u2212]?)({_DIGITS})({_EXPONENT})?( ?[kKMGTB])?")
_FACTORS = {"k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
_BEFORE = re.compile(
    rf"(?:\d|\d{_SEPARATOR}|\d\.|\d[eE][-+]?|(?:^|[\s=:(\[])(?:\.|[-\u2212]\.?))$"
)
_AFTER = re.compile(rf"{_SEPARATOR}?\d|\.\d|{_EXPONENT}|[xX][0-9a-fA-F]|{_PREFIX}")
# A plain space may stand between thousands, too, "12 345,6", or between two numbers: only the pattern can tell which.
_BEFORE_SPACE = re.compile(r"(?:^|[\s=:(\[])[1-9]\d{0,2} $")
_AFTER_SPACE = re.compile(r" \d{3}(?!\d)")
# "step 50 400 tok/s" has two numbers, since the first one counts something.
_COUNTER_BEFORE = re.compile(
    r"(?i)(?<![a-z])(?:step|it|iter|iteration|epoch|batch|update|rank)"
    r"[\s:=#(\[]{0,3}\d{1,3} $"
)
_PREFIX_BEHIND = re.compile(rf" ?(?:[kKMGTB](?![\w-])|[kKMGT](?=(?:{_ITEMS})\b))")
_UNIT_BEHIND = re.compile(r" ?[kKMGTB]\w")
_TIME_GROUPS = {"seconds": "seconds", "ms": "milliseconds"}
_GROUP = r"\(\?P<{}>(?:\[\^?\]?[^\]]*\]|\\.|[^()\\\[])*\)"


class TooLarge(ValueError):
    """A number that no float can hold."""


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern in which TOKEN may stand; alone, without any named group, it is the rate."""
    if "(?P<" not in pattern:
        pattern = pattern.replace(TOKEN, f"(?P<rate>{TOKEN})", 1)
    try:
        return re.compile(pattern.replace(TOKEN, NUMBER))
    except (RecursionError, OverflowError, MemoryError) as e:
        raise re.error(f"too deeply nested or too large ({type(e).__name__})") from None


def read(text: str) -> Printed:
    """Return a printed number and what its last digit counts.

    Raises:
      TooLarge: If no float can hold the number.
      ValueError: If the text is not a number.
    """
    match = _WHOLE.fullmatch(text.strip().rstrip(","))
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
    return Printed(-value if sign in ("-", "\u2212") else value, step, text)


def whole_text(match: re.Match[str], name: str) -> str:
    """Return the text of a group, with a K, M, G, T or B that the pattern has behind it.

    The pattern "{number}K" reads "58.4K" as 58,400. In "{number} MB/s" and
    "{number} ktok/s" the letter belongs to the unit.
    """
    prefix = _literal_prefix(match, name)
    return match[name] if _is_of_unit(match, name) else match[name] + prefix


def unit_of_rate(match: re.Match[str]) -> str:
    """Return what the group `rate` counts if that has a prefix, as "MB"; else ""."""
    unit = printed_units.unit_of(match.string, *match.span("rate"))
    if unit is None or unit.kind is not Kind.RATE or not unit.prefix:
        return ""
    if unit.is_behind and _literal_prefix(match, "rate"):
        return unit.items if _is_of_unit(match, "rate") else ""
    return unit.items


def cut(match: re.Match[str], name: str, pattern: str, unit: str = "") -> str:
    """Return what is wrong with a group of a match, or "" if it is right.

    It is wrong if the group has only a part of a number, or a number of another unit.
    A separator that the pattern itself asks for, as the comma between the columns of a
    CSV file, does not belong to a number.

    Args:
      match: A match of the pattern in a line.
      name: The name of the group.
      pattern: The pattern as the user wrote it.
      unit: The value of --unit, or "" if it is not set.
    """
    text = match.string
    start, end = match.span(name)
    if not re.search(r"[\d.]$", match[name]):
        has_prefix = re.search(r"\d ?[kKMGTB]$", match[name])
        return _wrong_unit(match, name, pattern, unit) if has_prefix else ""
    before = _BEFORE.search(text, max(0, start - 4), start)
    after = _AFTER.match(text, end)
    if re.match(r"\d{3}(?!\d)", match[name]):
        before = before or _thousands_before(text, start)
    if re.fullmatch(r"[-+\u2212]?[1-9]\d{0,2}", match[name]):
        after = after or _AFTER_SPACE.match(text, end)
    if before and _asks_for(match, name, start - 1):
        before = None
    if after and (_asks_for(match, name, end) or _literal_prefix(match, name)):
        after = None
    if not before and not after:
        return _wrong_unit(match, name, pattern, unit)
    lost = after[0].strip() if after else ""
    without = f" without its {lost}" if re.fullmatch("[kKMGTB]", lost) else ""
    thousands = before[0].strip("=:([ ") if before and before[0].endswith(" ") else ""
    shown = f"{thousands} {_shown(match, name)}".strip()
    return (
        f"the group {name} reads only {match[name]!r} of {shown!r}"
        f"{without}; {_remedy(match, name, pattern)}"
    )


def _thousands_before(text: str, start: int) -> re.Match[str] | None:
    """Return the digits and the blank before a number that may be its thousands."""
    if _COUNTER_BEFORE.search(text[max(0, start - 20) : start]):
        return None
    return _BEFORE_SPACE.search(text[max(0, start - 5) : start])


def _shown(match: re.Match[str], name: str) -> str:
    """Return a group's text with the characters around it up to the next blanks."""
    start, end = match.span(name)
    left = re.search(r"\S*$", match.string[:start])
    right = re.match(r" ?\S*", match.string[end:])
    assert left is not None
    assert right is not None
    return f"{left[0]}{match[name]}{right[0]}"[:60]


def _wrong_unit(match: re.Match[str], name: str, pattern: str, unit: str) -> str:
    """Return why a group cannot hold a number of the printed unit, or ""."""
    if name != "rate" and name not in _TIME_GROUPS:
        return ""
    printed = printed_units.unit_of(match.string, *match.span(name))
    if printed is None:
        return ""
    found = f"the group {name} reads {match[name]!r} in {_shown(match, name)!r}"
    if name in _TIME_GROUPS:
        return _wrong_time(printed, name, pattern, found)
    if printed.kind is Kind.TIME:
        remedy = _time_remedy(printed, name, pattern)
        return f"{found}, which is a time ({printed.text}); {remedy}"
    if printed.time_unit not in ("", "seconds"):
        return (
            f"{found}, which is a rate per {printed.time_unit.removesuffix('s')}; "
            "print a rate per second, or the seconds of a step, to read with "
            "(?P<seconds>...) and --items_per_step=PRODUCT"
        )
    items = unit_of_rate(match)
    if items and unit and not printed_units.carries_prefix(unit, printed.prefix):
        return (
            f"{found}, whose unit is {items}, but --unit={unit} lacks the prefix "
            f"{printed.prefix}; use --unit={items}"
        )
    return ""


def _wrong_time(printed: PrintedUnit, name: str, pattern: str, found: str) -> str:
    """Return why a group of seconds or milliseconds cannot hold a number, or ""."""
    if printed.kind is Kind.RATE:
        if not printed.is_behind:
            return ""
        rate = _renamed(pattern, name, "rate")
        return f"{found}, which is a rate; use --log_format='regex:{rate}'"
    if printed.time_unit in ("", _TIME_GROUPS[name]):
        return ""
    remedy = _time_remedy(printed, name, pattern)
    return f"{found}, whose unit is {printed.text}; {remedy}"


def _time_remedy(printed: PrintedUnit, name: str, pattern: str) -> str:
    """Return the patterns that read a time of this unit, in words."""
    groups = [
        group for group, unit in _TIME_GROUPS.items() if printed.time_unit in ("", unit)
    ]
    if not groups:
        return "no group reads this unit; print seconds or milliseconds"
    patterns = [f"'regex:{_renamed(pattern, name, group)}'" for group in groups]
    units = " or ".join(_TIME_GROUPS[group] for group in groups)
    items = " with --items_per_step=PRODUCT" if name == "rate" else ""
    return f"to read {units}, use --log_format={' or '.join(patterns)}{items}"


def _renamed(pattern: str, name: str, new_name: str) -> str:
    """Return the pattern with another name of one of its groups."""
    if f"(?P<{name}>" in pattern:
        return pattern.replace(f"(?P<{name}>", f"(?P<{new_name}>", 1)
    return pattern.replace(TOKEN, f"(?P<{new_name}>{TOKEN})", 1)


def _literal_prefix(match: re.Match[str], name: str) -> str:
    """Return the prefix behind a group if the pattern asks for it, else "".

    It is a letter of its own ("58.4 K") or the first one of a unit ("58.4 ktok/s").
    """
    found = _PREFIX_BEHIND.match(match.string, match.end(name))
    if found is None or not re.search(r"[\d.]$", match[name]):
        return ""
    if not _is_literal(match, name, found.end() - 1):
        return ""
    return found[0].strip()


def _is_of_unit(match: re.Match[str], name: str) -> bool:
    """Return whether a pattern asks for the letter behind a prefix, as "o" in "kto"."""
    found = _UNIT_BEHIND.match(match.string, match.end(name))
    return found is not None and _is_literal(match, name, found.end() - 1)


def _asks_for(match: re.Match[str], name: str, at: int) -> bool:
    """Return whether the pattern asks for the separator at a place of the line."""
    if not re.match(rf"{_SEPARATOR}|\.| \d", match.string[at : at + 2]):
        return False
    return _is_literal(match, name, at)


def _is_literal(match: re.Match[str], name: str, at: int) -> bool:
    """Return whether a pattern matches elsewhere, or not at all, without a character."""
    changed = match.re.search(f"{match.string[:at]}\0{match.string[at + 1 :]}")
    return changed is None or changed.span(name) != match.span(name)


def _remedy(match: re.Match[str], name: str, pattern: str) -> str:
    """Return a pattern that reads the number of this line, in words."""
    group = f"(?P<{name}>{TOKEN})"
    better = re.sub(_GROUP.format(name), lambda found: group, pattern, count=1)
    if better != pattern:
        found = compiled(better).search(match.string)
        if found is not None and found[name] and not cut(found, name, better):
            return f"--log_format='regex:{better}' reads it"
    ending = "the pattern must contain the character that ends it"
    if TOKEN in pattern:
        return f"{TOKEN} cannot read this number; {ending}"
    return f"{group} reads any number; {ending}"
