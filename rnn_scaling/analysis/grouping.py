"""Group items by keys.

Groups and members are always in the order of the items.
"""

from collections.abc import Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Common = TypeVar("Common", bound=Hashable)


def group_by(items: Iterable[Item], keys: Iterable[Common]) -> dict[Common, list[Item]]:
    """Return the items of each key, in the order of their first items.

    Args:
      keys: The key of each item.
    """
    groups: dict[Common, list[Item]] = {}
    for item, key in zip(items, keys):
        groups.setdefault(key, []).append(item)
    return groups
