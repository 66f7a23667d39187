"""The barriers of a run, as the rendezvous sees them."""

import dataclasses
import math
import time
from collections.abc import Collection
from typing import Any

from rnn_scaling.cluster import wire
from rnn_scaling.cluster.failure import Failure, FailureKind
from rnn_scaling.cluster.rank_info import RankInfo, name_ranks


@dataclasses.dataclass
class _Gathering:
    """A barrier where at least one rank waits.

    Attributes:
      values: The value of each rank that waits.
      keeps_values: Whether ranks sent values.
      deadline: The earliest end of a rank's time limit, by time.monotonic().
      timeout_s: That time limit.
    """

    values: dict[int, Any] = dataclasses.field(default_factory=dict)
    keeps_values: bool = False
    deadline: float = math.inf
    timeout_s: float = math.inf


class Barriers:
    """Tracks which ranks wait at each barrier, and decides when it opens.

    The rendezvous creates it, and calls it when a rank arrives, leaves or is lost.

    Attributes:
      gathered: The values by rank of each barrier that has gathered some; None for a
        lost rank.
    """

    def __init__(self, size: int) -> None:
        """Create the barriers of a run of `size` ranks."""
        self.gathered: dict[str, list[Any]] = {}
        self._size = size
        self._gatherings: dict[str, _Gathering] = {}
        self._left: dict[int, RankInfo] = {}

    def arrive(self, info: RankInfo, message: wire.Message) -> Failure | None:
        """Note that a rank waits; return a failure if another rank has already left.

        Args:
          info: The rank.
          message: Its message, with the name of the barrier and perhaps a value.
        """
        name = wire.read_field(message, "name", str)
        timeout_s = wire.read_field(message, "timeout_s", float)
        if self._left:
            rank = min(self._left)
            text = f"{self._left[rank]} left before '{name}', where {info} waits"
            return Failure(FailureKind.LOST, rank, text)
        gathering = self._gatherings.setdefault(name, _Gathering())
        gathering.values[info.rank] = message.get("value")
        gathering.keeps_values |= "value" in message
        if time.monotonic() + timeout_s < gathering.deadline:
            gathering.deadline = time.monotonic() + timeout_s
            gathering.timeout_s = timeout_s
        return None

    def leave(self, info: RankInfo) -> Failure | None:
        """Note that a rank leaves; return a failure if other ranks wait for it."""
        self._left[info.rank] = info
        for name in self._gatherings:
            text = f"{info} left before '{name}', while other ranks wait there"
            return Failure(FailureKind.LOST, info.rank, text)
        return None

    def has_left(self, rank: int) -> bool:
        return rank in self._left

    def open_complete(self, live_ranks: Collection[int]) -> list[str]:
        """Open the barriers that all live ranks have reached; return their names."""
        names = []
        for name, gathering in self._gatherings.items():
            if gathering.values.keys() >= set(live_ranks):
                names.append(name)
        for name in names:
            gathering = self._gatherings.pop(name)
            if gathering.keeps_values:
                values = [gathering.values.get(rank) for rank in range(self._size)]
                self.gathered[name] = values
        return names

    def find_overdue(self, now: float, live_ranks: Collection[int]) -> Failure | None:
        """Return a failure if ranks did not reach a barrier in time.

        Args:
          now: time.monotonic() now.
          live_ranks: The ranks that have neither left nor been lost.
        """
        for name, gathering in self._gatherings.items():
            if now > gathering.deadline:
                missing_ranks = sorted(set(live_ranks) - gathering.values.keys())
                text = (
                    f"{name_ranks(missing_ranks)} did not reach '{name}' "
                    f"within {gathering.timeout_s:g} s"
                )
                return Failure(FailureKind.LOST, None, text)
        return None
