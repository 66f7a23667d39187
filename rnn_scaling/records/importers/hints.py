"""Suggest a pattern that matches if the user's pattern matches no line of a log."""

import itertools
import re
from collections.abc import Iterable, Iterator

from rnn_scaling.records.importers import log_numbers
from rnn_scaling.records.importers.reading import log_lines

_MOST_LINES = 5000  # lines of a log in which a changed pattern is tried
LONGEST = 1000  # characters of a line
_SOME_BLANKS = r"\s+"
_ANY_BLANKS = r"\s*"
_NAMED_GROUP = r"\(\?P<\w+>(?:\[\^?\]?[^\]]*\]|\\.|[^()\\\[])*\)"
_UNCHANGED = re.compile(rf"({_NAMED_GROUP}|{re.escape(log_numbers.TOKEN)})")


def suggest_pattern(lines: Iterable[str], pattern: str) -> str:
    """Return the pattern, changed so that lines match it, or "" if none of them does.

    The changes undo the usual mistakes: one blank for several blanks, and parentheses
    and other special characters that should be literal.
    """
    first_lines = itertools.islice(log_lines(lines, longest=LONGEST), _MOST_LINES)
    texts = [line.text for line in first_lines]
    for candidate in dict.fromkeys(_loosen_pattern(pattern)):
        try:
            regex = log_numbers.compile_pattern(candidate)
        except re.error:
            continue
        if candidate != pattern and any(_reads(regex, text) for text in texts):
            return candidate
    return ""


def _reads(regex: re.Pattern[str], text: str) -> bool:
    """Return whether a pattern matches a line, with one of its groups if it has any."""
    match = regex.search(text)
    if match is None:
        return False
    return not regex.groupindex or any(match.groupdict().values())


def _loosen_pattern(pattern: str) -> Iterator[str]:
    """Yield the pattern with more and more changes."""
    escaped = _escape_parentheses(pattern)
    literal = _escape_text(pattern)
    for variant in (pattern, escaped, literal):
        yield variant
        yield _replace_blanks(variant, _SOME_BLANKS)
        yield _replace_blanks(variant, _ANY_BLANKS)
    for variant in (pattern, escaped, literal):
        yield f"(?i){variant}"
        yield f"(?i){_replace_blanks(variant, _ANY_BLANKS)}"


def _replace_blanks(pattern: str, blanks: str) -> str:
    """Return the pattern with `blanks` for its blanks.

    _ANY_BLANKS is also inserted between other text and a number.
    """
    text = ""
    for part in _UNCHANGED.split(pattern):
        if not _UNCHANGED.fullmatch(part):
            text += re.sub(r"(?:\\? )+", lambda _match: blanks, part)
            continue
        if blanks == _ANY_BLANKS and text and not text.endswith(blanks):
            text += blanks
        text += part
    return text


def _escape_parentheses(pattern: str) -> str:
    r"""Return the pattern with \( and \) instead of groups without a name."""
    return re.sub(r"(?<!\\)\((?!\?)([^()]*)\)", r"\(\1\)", pattern)


def _escape_text(pattern: str) -> str:
    """Return the pattern with all text except its numbers taken literally."""
    text = ""
    for part in _UNCHANGED.split(pattern):
        if _UNCHANGED.fullmatch(part):
            text += part
            continue
        # Blanks need no backslash, and some characters may already have one.
        plain_text = re.sub(r"\\([^\w\s])", r"\1", part)
        text += re.sub(r"([^\w\s:=,/<>\"'%#&@!;~-])", r"\\\1", plain_text)
    return text
