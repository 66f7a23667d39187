"""Replace functions of libraries by functions that call the originals.

Needs only the standard library.
"""

import functools
from collections.abc import Callable
from typing import Any

Replacement = Callable[..., Any]


def wrap(original: Any, replacement: Replacement) -> Any:
    """Return a function that passes `original` and its arguments to `replacement`."""

    @functools.wraps(original)
    def wrapper(*args: Any, **options: Any) -> Any:
        return replacement(original, *args, **options)

    return wrapper


def replace(owner: Any, name: str, replacement: Replacement) -> None:
    """Replace a function or method, unless the library is too old to have it.

    Args:
      owner: The module or class.
      name: The name of the function.
      replacement: A function that gets the original first, and then its arguments.
    """
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, wrap(original, replacement))
