"""The key of a configuration: its options that differ from the defaults.

Whether two runs are repeats depends on keys, so a change regroups old records as well.
"""

from collections.abc import Collection
from typing import Any

from rnn_scaling.config.conditions import (
    FOREIGN_NOT_COMPARED,
    NOT_COMPARED,
    find_unread_options,
)
from rnn_scaling.records.options import DEFAULTS, UNKNOWN, Options

Key = tuple[tuple[str, Any], ...]  # names with their values, sorted by name
UNIT = "unit"  # item of a key in addition to the options


def build_key(options: Options, unit: str = "", /, **changes: Any) -> Key:
    """Return the unit and the options that differ from the defaults.

    An option that nothing reads counts as its default.

    Args:
      options: The options of a run.
      unit: The items that the run counts; "" for a key that does not depend on it.
      **changes: Options with other values than in the run.
    """
    options = options.replace(**changes)
    names = (
        options.keys() - _list_excluded_options(options) - find_unread_options(options)
    )
    settings = [
        (name, options[name])
        for name in sorted(names)
        if options[name] != DEFAULTS.get(name, UNKNOWN)
    ]
    return ((UNIT, unit), *settings) if unit else tuple(settings)


def _list_excluded_options(options: Options) -> Collection[str]:
    """Return the options that no key contains.

    With one global batch, the share of a tower follows from the total.
    """
    names = NOT_COMPARED if options.is_ours else FOREIGN_NOT_COMPARED
    return names | {"batch_size"} if options["global_batch_size"] else names


def list_compared_options(options: Options) -> dict[str, Any]:
    """Return the known options that are compared, sorted by name.

    An option that nothing reads has its default.
    """
    settings = dict(build_key(options))
    return {
        name: settings.get(name, DEFAULTS.get(name, UNKNOWN))
        for name in sorted(options.known.keys() - _list_excluded_options(options))
    }


def drop_options(key: Key, names: Collection[str]) -> Key:
    """Return a key without some options."""
    return tuple([item for item in key if item[0] not in names])
