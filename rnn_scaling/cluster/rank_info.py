"""Data that ranks send about themselves when they join, and their names in messages.

`rendezvous` compares what the ranks send, and refuses ranks that disagree.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.cluster import wire

_MAX_NAMES = 4  # ranks, flags or versions that one line names


@dataclasses.dataclass(frozen=True)
class Hello:
    """The options and versions of a rank; the rendezvous compares them with rank 0.

    Attributes:
      role: coordinator, worker or ps.
      flags: The options of the run, except the paths of its outputs.
      versions: The packages that compute, such as {"tensorflow": "2.21.0"}.
      address: HOST:PORT of the rank's engine, or "" if it has no engine.
    """

    role: str
    flags: Mapping[str, Any]
    versions: Mapping[str, str]
    address: str = ""

    @classmethod
    def from_message(cls, message: wire.Message) -> Hello:
        """Return the facts that a rank has sent.

        Raises:
          InvalidMessage: If a field is missing or has a wrong type.
        """
        return cls(
            role=wire.read_field(message, "role", str),
            flags=wire.read_field(message, "flags", dict),
            versions=wire.read_field(message, "versions", dict),
            address=wire.read_field(message, "address", str),
        )


@dataclasses.dataclass(frozen=True)
class RankInfo:
    """A rank as the other ranks know it."""

    rank: int
    role: str
    host: str
    pid: int
    address: str

    @classmethod
    def from_message(cls, message: wire.Message) -> RankInfo:
        """Return the rank that a message describes.

        Raises:
          InvalidMessage: If a field is missing or has a wrong type.
        """
        kinds = {"rank": int, "role": str, "host": str, "pid": int, "address": str}
        return cls(
            **{
                name: wire.read_field(message, name, kind)
                for name, kind in kinds.items()
            }
        )

    def __str__(self) -> str:
        return f"rank {self.rank} (host {self.host}, process {self.pid})"


def name_ranks(ranks: Sequence[int]) -> str:
    """Name some ranks; if there are more than _MAX_NAMES, only the first by number.

    >>> name_ranks([2]), name_ranks([2, 3]), name_ranks(range(1, 9))
    ('rank 2', 'ranks 2 and 3', 'ranks 1, 2, 3, 4 and 4 others')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    names = [str(rank) for rank in ranks[:_MAX_NAMES]]
    if len(ranks) > _MAX_NAMES:
        return f"ranks {', '.join(names)} and {len(ranks) - _MAX_NAMES} others"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def describe_disagreement(joined_ranks: Mapping[int, tuple[RankInfo, Hello]]) -> str:
    """Describe the first difference between rank 0 and other ranks in one line.

    The line names all ranks with this difference. Different versions hide different
    flags, because another version may have other defaults.

    Args:
      joined_ranks: The ranks that have joined; rank 0 must be among them.

    Returns:
      "" if all ranks agree.
    """
    reference = joined_ranks[0][1]
    ranks_by_difference: defaultdict[str, list[int]] = defaultdict(list)
    for rank in sorted(joined_ranks):
        hello = joined_ranks[rank][1]
        versions = _describe_difference(
            hello.versions, reference.versions, _format_version, ", "
        )
        flags = _describe_difference(hello.flags, reference.flags, _format_flag, " ")
        if versions:
            remedy = f"{versions}; install the same versions on every host"
            ranks_by_difference[remedy].append(rank)
        elif flags:
            ranks_by_difference[f"{flags}; give every rank the same flags"].append(rank)
    if not ranks_by_difference:
        return ""
    difference, ranks = next(iter(ranks_by_difference.items()))
    host = f" (host {joined_ranks[ranks[0]][0].host})" if len(ranks) == 1 else ""
    return f"{name_ranks(ranks)}{host}: {difference}"


def _describe_difference(
    values: Mapping[str, Any],
    rank_0_values: Mapping[str, Any],
    format_value: Callable[[Mapping[str, Any], str], str],
    separator: str,
) -> str:
    """Return the first values that differ from the values of rank 0; "" if none do.

    Args:
      values: The values of a rank by name.
      rank_0_values: The values of rank 0.
      format_value: Returns the text of a name and its value, even if it is missing.
      separator: Text between two values.
    """
    own_texts = []
    rank_0_texts = []
    for name in sorted(values.keys() | rank_0_values.keys()):
        own_text = format_value(values, name)
        rank_0_text = format_value(rank_0_values, name)
        if own_text != rank_0_text:
            own_texts.append(own_text)
            rank_0_texts.append(rank_0_text)
    if not own_texts:
        return ""
    text = separator.join(own_texts[:_MAX_NAMES])
    if len(own_texts) > _MAX_NAMES:
        text += f" and {len(own_texts) - _MAX_NAMES} more"
    return f"{text}, but rank 0 has {separator.join(rank_0_texts[:_MAX_NAMES])}"


def _format_version(versions: Mapping[str, str], name: str) -> str:
    return f"{name} {versions.get(name, 'none')}"


def _format_flag(flags: Mapping[str, Any], name: str) -> str:
    if name not in flags:
        return f"no --{name}"
    value = flags[name]
    text = value if isinstance(value, str) else json.dumps(value)
    return f"--{name}={text}"
