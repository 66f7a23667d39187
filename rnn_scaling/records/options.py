"""The options of one run, as one frozen object.

`RunRecord` creates the object, and everything that reads a record's options uses it.
Names of options are keys of `config` in record files; never rename one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

from rnn_scaling.config.naming import TRAINER
from rnn_scaling.config.run_config import OPTIONS


class Unknown(enum.Enum):
    """The value of an option that a record does not contain.

    It counts as False, so that `if options["dropout"]` treats it like an option that is
    off.
    """

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.value


UNKNOWN = Unknown.UNKNOWN
DEFAULTS: dict[str, Any] = {name: field.default for name, field in OPTIONS.items()}
# Another program's record may lack these options, which few runs change. Their defaults
# are then assumed, so that such a run can be compared with others.
ASSUMED_VALUES = {
    name: DEFAULTS[name]
    for name in ("device", "num_workers", "global_batch_size", "data_source")
}
_UNRECORDED = {**dict.fromkeys(DEFAULTS, UNKNOWN), **ASSUMED_VALUES}


class Options(Mapping[str, Any]):
    """Every option of a run, by name.

    If our trainer's record lacks an option, the option was added after the run, and its
    default holds. If another program's record lacks an option, the value is the one in
    ASSUMED_VALUES, or UNKNOWN. So `get(name, default)` never returns `default` for an
    option of this suite.

    Attributes:
      recorded: The options in the record's file, for writing it.
      is_ours: Whether our trainer made the run.
      known: The options that may be compared with other runs: all options of our
        trainer, or the ones that another program recorded.
    """

    __slots__ = ("_values", "is_ours", "known", "recorded")

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.recorded = dict(recorded)
        self.is_ours = TRAINER not in recorded
        self.known: Mapping[str, Any]
        if self.is_ours:
            self._values = {**DEFAULTS, **self.recorded}
            self.known = self._values
        else:
            self.known = {
                name: value
                for name, value in self.recorded.items()
                if value is not None and value is not UNKNOWN
            }
            self._values = {**_UNRECORDED, **self.known}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({self.recorded})"

    def replace(self, **changes: Any) -> Options:
        """Return options with other values for some of them; `self` without changes."""
        return Options({**self.recorded, **changes}) if changes else self
