"""Suggest a pattern that matches if the user's pattern matches no line of a log."""

import itertools
import re
from collections.abc import Iterable, Iterator

from rnn_scaling.records.importers import printed_numbers
from rnn_scaling.records.importers.reading import log_lines

MOST_LINES = 5000  # lines of a log that a changed pattern is tried on
LONGEST = 1000  # characters of a line
SOME_BLANKS = r"\s+"
ANY_BLANKS = r"\s*"
_NAMED_GROUP = r"\(\?P<\w+>(?:\[\^?\]?[^\]]*\]|\\.|[^()\\\[])*\)"
_KEPT = re.compile(rf"({_NAMED_GROUP}|{re.escape(printed_numbers.TOKEN)})")


def better_pattern(lines: Iterable[str], pattern: str) -> str:
    """Return the pattern, changed so that lines match it, or "" if none of them does.

    The changes undo the usual mistakes: one blank for a run of blanks, and parentheses
    and other special characters that were meant literally.
    """
    texts = []
    for line in itertools.islice(log_lines(lines, longest=LONGEST), MOST_LINES):
        texts.append(line.text)
    for candidate in dict.fromkeys(_candidates(pattern)):
        try:
            regex = printed_numbers.compiled(candidate)
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


def _candidates(pattern: str) -> Iterator[str]:
    """Yield the pattern with more and more changes."""
    escaped = _with_escaped_parentheses(pattern)
    literal = _with_escaped_text(pattern)
    for changed in (pattern, escaped, literal):
        yield changed
        yield _with_any_blanks(changed, SOME_BLANKS)
        yield _with_any_blanks(changed, ANY_BLANKS)
    for changed in (pattern, escaped, literal):
        yield f"(?i){changed}"
        yield f"(?i){_with_any_blanks(changed, ANY_BLANKS)}"


def _with_any_blanks(pattern: str, blanks: str) -> str:
    """Return the pattern with `blanks` instead of its blanks.

    ANY_BLANKS may also be between other text and a number.
    """
    parts = []
    for part in _KEPT.split(pattern):
        if _KEPT.fullmatch(part):
            parts.append(part)
        else:
            parts.append(re.sub(r"(?:\\? )+", lambda found: blanks, part))
    if blanks != ANY_BLANKS:
        return "".join(parts)
    spaced = []
    for k, part in enumerate(parts):
        is_number = bool(_KEPT.fullmatch(part))
        if is_number and k and parts[k - 1] and not parts[k - 1].endswith(blanks):
            spaced.append(blanks)
        spaced.append(part)
    return "".join(spaced)


def _with_escaped_parentheses(pattern: str) -> str:
    r"""Return the pattern with \( and \) instead of groups without a name."""
    characters = list(pattern)
    open_at: list[int] = []
    is_in_class = False
    k = 0
    while k < len(pattern):
        character = pattern[k]
        if character == "\\":
            k += 1
        elif is_in_class:
            is_in_class = character != "]"
        elif character == "[":
            is_in_class = True
        elif character == "(":
            open_at.append(k)
        elif character == ")" and open_at:
            begin = open_at.pop()
            if pattern[begin + 1 : begin + 2] != "?":
                characters[begin] = r"\("
                characters[k] = r"\)"
        k += 1
    return "".join(characters)


def _with_escaped_text(pattern: str) -> str:
    """Return the pattern with everything except its numbers taken literally."""
    parts = []
    for part in _KEPT.split(pattern):
        if _KEPT.fullmatch(part):
            parts.append(part)
        else:
            # Blanks need no backslash, and some characters may already have one.
            plain = re.sub(r"\\([^\w\s])", r"\1", part)
            parts.append(re.sub(r"([^\w\s:=,/<>\"'%#&@!;~-])", r"\\\1", plain))
    return "".join(parts)
