"""Count the steps of a backtracking regular expression, independent of the machine.

Only constructs in this project's patterns are supported; others raise an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

try:
    from re import _constants as codes
    from re import _parser as parser
except ImportError:  # Python 3.10
    import sre_constants as codes  # type: ignore[no-redef]
    import sre_parse as parser  # type: ignore[no-redef]

_SPACES = {
    codes.CATEGORY_SPACE: str.isspace,
    codes.CATEGORY_DIGIT: str.isdecimal,
    codes.CATEGORY_WORD: lambda character: character.isalnum() or character == "_",
}


def count(pattern: re.Pattern[str], operation: str, text: str) -> int:
    """Return about how many characters are compared to apply a pattern to a text.

    Args:
      pattern: The compiled pattern.
      operation: A method of the pattern: "match", "fullmatch", or one that searches.
      text: What it is applied to.
    """
    matcher = _Matcher(text)
    nodes = list(parser.parse(pattern.pattern, pattern.flags))
    if operation in ("match", "fullmatch"):
        ends = matcher.ends(nodes, 0)
        next((end for end in ends if operation == "match" or end == len(text)), None)
        return matcher.steps
    start = 0
    while start <= len(text):
        found = next(matcher.ends(nodes, start), None)
        if found is not None and operation == "search":
            break
        start = start + 1 if found is None else max(found, start + 1)
    return matcher.steps


class _Matcher:
    def __init__(self, text: str) -> None:
        self.text = text
        self.steps = 0

    def ends(self, nodes: Sequence[Any], start: int) -> Iterator[int]:
        """Yield each position at which a match of the nodes from `start` may end."""
        if not nodes:
            yield start
            return
        for middle in self._of_node(nodes[0], start):
            yield from self.ends(nodes[1:], middle)

    def _of_node(self, node: Any, start: int) -> Iterator[int]:
        code, value = node
        self.steps += 1
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            yield from self._repeated(value, start, is_greedy=code is codes.MAX_REPEAT)
        elif code is codes.SUBPATTERN:
            yield from self.ends(list(value[-1]), start)
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from self.ends(list(branch), start)
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            assert value[0] == 1, "looks ahead"
            is_found = next(self.ends(list(value[1]), start), None) is not None
            if is_found == (code is codes.ASSERT):
                yield start
        elif code is codes.AT:
            if value is not codes.AT_END or start == len(self.text):
                yield start
        elif start < len(self.text) and self._fits(code, value, self.text[start]):
            yield start + 1

    def _repeated(self, value: Any, start: int, *, is_greedy: bool) -> Iterator[int]:
        least, most, body = value
        ends = [start]
        while len(ends) <= most:
            end = next(self.ends(list(body), ends[-1]), None)
            if end is None or end == ends[-1]:
                break
            ends.append(end)
        possible = ends[least:]
        for end in reversed(possible) if is_greedy else possible:
            self.steps += 1
            yield end

    def _fits(self, code: Any, value: Any, character: str) -> bool:
        if code is codes.LITERAL:
            return ord(character) == value
        if code is codes.NOT_LITERAL:
            return ord(character) != value
        if code is codes.ANY:
            return character != "\n"
        if code is not codes.IN:
            raise ValueError(f"the counter has no rule for {code}")
        is_negated = value[0][0] is codes.NEGATE
        members = value[1:] if is_negated else value
        return is_negated != any(_is_in(member, character) for member in members)


def _is_in(member: Any, character: str) -> bool:
    code, value = member
    if code is codes.LITERAL:
        return ord(character) == value
    if code is codes.RANGE:
        return value[0] <= ord(character) <= value[1]
    name = str(value)
    if name.startswith("CATEGORY_NOT_"):
        positive = getattr(codes, name.replace("_NOT_", "_"))
        return not _SPACES[positive](character)
    return _SPACES[value](character)
