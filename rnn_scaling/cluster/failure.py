"""The reason why a run of several ranks ended early, as data.

Ranks send failures to each other. Callers recognise a failure by its kind, never by its
message.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any


class FailureKind(enum.Enum):
    """The kind of a failure.

    Ranks send the values to each other, and records contain them: never change one.
    """

    NOT_JOINED = "not_joined"  # the ranks did not meet, or their flags differ
    LOST = "lost"  # a rank was killed, crashed, froze or cannot be reached
    ERROR = "error"  # a rank ended the run because of an error in it
    INTERRUPTED = "interrupted"  # a person or a launcher interrupted a rank
    TRACE = "trace"  # the run is measured; only the trace after it failed


@dataclasses.dataclass(frozen=True)
class Failure:
    """The first failure of a run; every rank learns of the same one.

    Attributes:
      kind: The kind of failure.
      rank: The rank where it began, or None if no single rank caused it.
      message: One line for a person, with the rank, its host and the cause.
    """

    kind: FailureKind
    rank: int | None
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return the failure as JSON data."""
        return {"kind": self.kind.value, "rank": self.rank, "message": self.message}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Failure:
        """Return the failure of JSON data.

        Raises:
          ValueError: If a field is missing or has a wrong type.
        """
        kind = fields.get("kind")
        rank = fields.get("rank")
        message = fields.get("message")
        if rank is not None and type(rank) is not int:
            raise ValueError(
                f"the rank of a failure must be a whole number, got {rank!r}"
            )
        if not isinstance(message, str):
            raise ValueError(
                f"the message of a failure must be a text, got {message!r}"
            )
        return cls(FailureKind(kind), rank, message)


class ClusterError(RuntimeError):
    """The ranks of a run do not join, stay or end together.

    Attributes:
      failure: The failure that every rank learned of, or None if the error was
        found before this rank had joined.
    """

    def __init__(self, message: str, failure: Failure | None = None) -> None:
        super().__init__(message)
        self.failure = failure
