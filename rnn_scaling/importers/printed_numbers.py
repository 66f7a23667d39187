"""Numbers as programs print them, 12,345.6, 12.3k, 1.23e+04 or 12_345, and patterns that contain one."""

import math
import re

TOKEN = "{number}"  # in a pattern: any of these numbers
_SEPARATOR = "[,_'\u2019\u00a0\u2009\u202f]"
_END = r"(?!\d)"  # digits are bounded, so that no line takes long
_DIGITS = (
    rf"(?<!\d)(?:\d{{1,3}}(?:{_SEPARATOR}\d{{2,3}}){{0,9}}{_SEPARATOR}\d{{3}}{_END}|\d{{1,40}}{_END})"
    rf"(?:\.\d{{0,40}}{_END})?|\.\d{{1,40}}{_END}"
)
_ITEMS = "it|tok(?:en)?s?|words?|samples?|im(?:g|age)?s?|ex(?:ample)?s?|seq(?:uence)?s?|steps?|items?|ops|FLOPS?|B|b"
_PREFIX = rf" ?(?:[kKMGT](?![\w-])|B(?![\w/-])|[kKMG](?=(?:{_ITEMS})\b))|k(?=[a-z])"
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
_OTHER_UNIT = {
    "seconds": re.compile(r" ?(?:ms|us|µs|μs|ns)\b|:\d\d|(?:m|min|h)(?![A-Za-z])"),
    "ms": re.compile(r" ?(?:us|µs|μs|ns)\b|:\d\d|(?: ?s|min|h)(?![A-Za-z=:])"),
}
_GROUP = r"\(\?P<{}>(?:\[\^?\]?[^\]]*\]|\\.|[^()\\\[])*\)"


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern in which TOKEN may stand; alone, without any named group, it is the rate."""
    if "(?P<" not in pattern:
        pattern = pattern.replace(TOKEN, f"(?P<rate>{TOKEN})", 1)
    try:
        return re.compile(pattern.replace(TOKEN, NUMBER))
    except (RecursionError, OverflowError, MemoryError) as e:
        raise re.error(f"too deeply nested or too large ({type(e).__name__})") from None


def read(text: str) -> tuple[float, float]:
    """Return a printed number, and half of what its last digit counts.

    Raises:
      ValueError: If the text is not a number, or one that no float can hold.
    """
    match = _WHOLE.fullmatch(text.strip().rstrip(","))
    if match is None:
        raise ValueError
    sign, digits, exponent, prefix = match.groups("")
    digits = re.sub(_SEPARATOR, "", digits)
    factor = _FACTORS.get(prefix.strip().lower(), 1.0)
    power = int(exponent[1:] or 0)
    decimals = len(digits.partition(".")[2])
    value = float(f"{digits}e{power}") * factor
    half_digit = float(f"5e{power - decimals - 1}") * factor
    if not math.isfinite(value + half_digit):
        raise ValueError
    return -value if sign in ("-", "\u2212") else value, half_digit


def cut(match: re.Match[str], name: str, pattern: str) -> str:
    """What is wrong with a group that has a part of a number, or a number of another unit; empty: nothing.

    A separator that the pattern itself asks for, as the comma between the columns of a CSV file, is none of a number.
    """
    text, (start, end) = match.string, match.span(name)
    if not re.search(r"[\d.]$", match[name]):
        return ""
    before, after = (
        _BEFORE.search(text, max(0, start - 4), start),
        _AFTER.match(text, end),
    )
    left, right = re.search(r"\S*$", text[:start]), re.match(r" ?\S*", text[end:])
    assert left and right  # since both may be empty
    shown = f"{left[0]}{match[name]}{right[0]}"[:60]
    if re.match(r"\d{3}(?!\d)", match[name]):
        before = before or _BEFORE_SPACE.search(text[max(0, start - 5) : start])
    if re.fullmatch(r"[-+\u2212]?[1-9]\d{0,2}", match[name]):
        after = after or _AFTER_SPACE.match(text, end)
    if (before and not _asks_for(match, name, start - 1)) or (
        after and not _asks_for(match, name, end)
    ):
        return f"the group {name} has only {match[name]!r} of {shown!r}; {_remedy(match, name, pattern)}"
    unit = _OTHER_UNIT[name].match(text, end) if name in _OTHER_UNIT else None
    if unit:
        remedy = "; (?P<ms>...) reads milliseconds" if unit[0].strip() == "ms" else ""
        return f"the group {name} has {match[name]!r} of {shown!r}, which is another unit{remedy}"
    return ""


def _asks_for(match: re.Match[str], name: str, at: int) -> bool:
    """Whether the pattern matches elsewhere, or not at all, without the separator that stands at a place."""
    if not re.match(rf"{_SEPARATOR}|\.| \d", match.string[at : at + 2]):
        return False
    changed = match.re.search(f"{match.string[:at]}\0{match.string[at + 1 :]}")
    return changed is None or changed.span(name) != match.span(name)


def _remedy(match: re.Match[str], name: str, pattern: str) -> str:
    """A pattern that reads the number of this line."""
    group = f"(?P<{name}>{TOKEN})"
    better = re.sub(_GROUP.format(name), lambda found: group, pattern, count=1)
    found = compiled(better).search(match.string)
    if (
        better == pattern
        or found is None
        or not found[name]
        or cut(found, name, better)
    ):
        return f"{group} reads any number; a character that ends the number must be in the pattern"
    return f"--log_format='regex:{better}' reads it"
