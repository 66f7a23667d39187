"""The beginnings that neighbouring titles of series share, to print them only once.

The page and the charts call `split_titles`.
"""

from collections.abc import Sequence

_SEPARATOR = ", "


def _list_shared_beginnings(titles: Sequence[str]) -> list[str]:
    """Return the beginning that each title shares with its neighbours.

    Titles next to each other whose first part is equal form a group. All titles of a
    group share the longest beginning after which each of them still has a part.

    >>> _list_shared_beginnings(["lstm, a", "lstm, b", "gru, a"])
    ['lstm', 'lstm', '']

    Returns:
      One text per title, without the separator at its end; "" if nothing is shared.
    """
    parts = [title.split(_SEPARATOR) for title in titles]
    beginnings: list[str] = []
    while len(beginnings) < len(parts):
        start = len(beginnings)
        end = start + 1
        while end < len(parts) and parts[end][0] == parts[start][0]:
            end += 1
        beginnings += [_find_common_beginning(parts[start:end])] * (end - start)
    return beginnings


def split_titles(titles: Sequence[str]) -> list[tuple[str, str]]:
    """Return the shared beginning of each title, and the rest of the title."""
    return [
        (beginning, title.removeprefix(beginning).removeprefix(_SEPARATOR))
        for title, beginning in zip(titles, _list_shared_beginnings(titles))
    ]


def _find_common_beginning(group: Sequence[Sequence[str]]) -> str:
    if len(group) == 1:
        return ""
    count = 0
    most = min(map(len, group)) - 1
    while count < most and len({parts[count] for parts in group}) == 1:
        count += 1
    return _SEPARATOR.join(group[0][:count])
