"""What the runs of one configuration have in common: the options that differ from the defaults."""

from collections.abc import Collection
from typing import Any

from rnn_scaling.config.conditions import (
    NOT_COMPARED,
    NOT_COMPARED_THEIRS,
    unread_options,
)
from rnn_scaling.records.options import DEFAULTS, UNKNOWN, Options

Key = tuple[tuple[str, Any], ...]  # names with their values, sorted by name
UNIT = "unit"  # in a key, besides the options: what is counted


def build_key(options: Options, unit: str = "", /, **changes: Any) -> Key:
    """Return the unit and the options that differ from the defaults.

    An option that nothing reads counts as its default.

    Args:
      options: The options of a run.
      unit: What the run counts; "" for a key that does not depend on it.
      **changes: Options with other values than in the run.
    """
    options = options.changed(**changes)
    names = options.keys() - excluded_options(options) - unread_options(options)
    settings = [
        (name, options[name])
        for name in sorted(names)
        if options[name] != DEFAULTS.get(name, UNKNOWN)
    ]
    return ((UNIT, unit), *settings) if unit else tuple(settings)


def excluded_options(options: Options) -> Collection[str]:
    """Return the options that no key contains.

    With one global batch, the share of a tower follows from the total.
    """
    names = NOT_COMPARED if options.is_ours else NOT_COMPARED_THEIRS
    return names | {"batch_size"} if options["global_batch_size"] else names


def key_value(key: Key, options: Options, name: str) -> Any:
    """Return the value that a key has for an option.

    Returns:
      UNKNOWN if the key does not depend on the option, or the record lacks it.
    """
    if name in excluded_options(options) or name not in options.known:
        return UNKNOWN
    return dict(key).get(name, DEFAULTS.get(name, UNKNOWN))


def drop_options(key: Key, names: Collection[str]) -> Key:
    """Return a key without some options."""
    return tuple([item for item in key if item[0] not in names])
