"""The options of one run, as one frozen object.

Their names are keys of `config` in record files; never rename one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

from rnn_scaling.config.naming import TRAINER
from rnn_scaling.config.run_config import OPTIONS


class Unknown(enum.Enum):
    """The value of an option that a record does not contain."""

    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.value


UNKNOWN = Unknown.UNKNOWN
DEFAULTS: dict[str, Any] = {name: field.default for name, field in OPTIONS.items()}
# Values assumed if another program did not record them.
ASSUMED = {
    name: DEFAULTS[name]
    for name in ("device", "num_workers", "global_batch_size", "data_source")
}
_UNRECORDED = {**dict.fromkeys(DEFAULTS, UNKNOWN), **ASSUMED}


class Options(Mapping[str, Any]):
    """Every option of a run, by name.

    An option that a record of our trainer lacks is newer than the record; it gets its
    default. If another program did not record an option, its value is UNKNOWN, or
    the one in ASSUMED. So `get(name, default)` never returns `default` for an option of
    this suite.

    Attributes:
      recorded: The options in the file of the record.
      is_ours: Whether our trainer made the run.
      known: The options with known values: all of ours, and the ones that another
        program recorded.
    """

    __slots__ = ("_values", "is_ours", "known", "recorded")

    def __init__(self, recorded: Mapping[str, Any]) -> None:
        self.recorded = dict(recorded)
        self.is_ours = TRAINER not in recorded
        values = self.recorded
        if not self.is_ours:
            values = {n: v for n, v in values.items() if v not in (None, UNKNOWN)}
        self._values = {**(DEFAULTS if self.is_ours else _UNRECORDED), **values}
        self.known: Mapping[str, Any] = self._values if self.is_ours else values

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Options({self.recorded})"

    def changed(self, **changes: Any) -> Options:
        """Return the same options with other values for some of them."""
        return Options({**self.recorded, **changes}) if changes else self
