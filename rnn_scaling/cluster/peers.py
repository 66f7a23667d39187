"""What ranks say of themselves when they join, and the lines in which they are spoken of."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.cluster import wire

SHOWN = 4  # ranks or flags in one line


@dataclasses.dataclass(frozen=True)
class Hello:
    """What a rank says of its run; the meeting compares it with rank 0's."""

    role: str  # coordinator, worker or ps
    flags: Mapping[str, Any]  # what was asked for, without where outputs go
    versions: Mapping[
        str, str
    ]  # of what computes: {"rnn_scaling": "0.1.0", "tensorflow": "2.21.0"}
    address: str = ""  # HOST:PORT of its engine; "": it has none


@dataclasses.dataclass(frozen=True)
class Peer:
    """A rank as the others know it."""

    rank: int
    role: str
    host: str
    pid: int
    address: str

    @classmethod
    def from_message(cls, message: wire.Message) -> Peer:
        """Return the rank that a message describes.

        Raises:
          Rubbish: If it lacks a field, or one has a wrong type.
        """
        kinds = {"rank": int, "role": str, "host": str, "pid": int, "address": str}
        return cls(
            **{name: wire.field(message, name, kind) for name, kind in kinds.items()}
        )

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, process {self.pid})"


def ranks_text(ranks: Sequence[int]) -> str:
    """Return the words for some ranks, at most the first few by number.

    >>> ranks_text([2]), ranks_text([2, 3]), ranks_text(range(1, 9))
    ('rank 2', 'ranks 2 and 3', 'ranks 1, 2, 3, 4 and 4 others')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = [str(rank) for rank in ranks[:SHOWN]]
    if len(ranks) > SHOWN:
        return f"ranks {', '.join(shown)} and {len(ranks) - SHOWN} others"
    return f"ranks {', '.join(shown[:-1])} and {shown[-1]}"


def disagreement(joined: Mapping[int, tuple[Peer, Hello]]) -> str:
    """What differs between rank 0 and other ranks, in one line that names the first of them; "" if nothing does."""
    reference = joined[0][1]
    ranks_of: defaultdict[str, list[int]] = defaultdict(list)
    for rank in sorted(joined):
        hello = joined[rank][1]
        if versions := _apart(hello.versions, reference.versions, _version, ", "):
            ranks_of[f"{versions}; install the same versions on every host"].append(
                rank
            )
        elif flags := _apart(hello.flags, reference.flags, _flag, " "):
            ranks_of[f"{flags}; give every rank the same flags"].append(rank)
    for difference, ranks in ranks_of.items():
        host = f" (host {joined[ranks[0]][0].host})" if len(ranks) == 1 else ""
        return f"{ranks_text(ranks)}{host}: {difference}"
    return ""


def _apart(
    theirs: Mapping[str, Any],
    of_rank_0: Mapping[str, Any],
    spell: Callable[[Mapping[str, Any], str], str],
    comma: str,
) -> str:
    names = sorted(theirs.keys() | of_rank_0.keys())
    apart = [name for name in names if spell(theirs, name) != spell(of_rank_0, name)]
    more = f" and {len(apart) - SHOWN} more" if len(apart) > SHOWN else ""
    shown = [
        comma.join(spell(side, name) for name in apart[:SHOWN])
        for side in (theirs, of_rank_0)
    ]
    return f"{shown[0]}{more}, but rank 0 has {shown[1]}" if apart else ""


def _version(versions: Mapping[str, str], name: str) -> str:
    return f"{name} {versions.get(name, 'none')}"


def _flag(flags: Mapping[str, Any], name: str) -> str:
    if name not in flags:
        return f"no --{name}"
    return f"--{name}={flags[name] if isinstance(flags[name], str) else json.dumps(flags[name])}"
