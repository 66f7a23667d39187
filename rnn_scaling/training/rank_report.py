"""Collect the reports of a rank into its record.

`cluster` and `rank_meeting` send the reports. The keys of a message are the field names
of `records.workers.Rank`, so a new field needs no change here.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.cluster.failure import Failure
from rnn_scaling.cluster.rank_info import RankInfo
from rnn_scaling.records.decoding import build
from rnn_scaling.records.workers import Rank


@dataclasses.dataclass(frozen=True)
class RankReport:
    """A part of a rank's measurements. All are fields of a `records.workers.Rank`.

    Attributes:
      batches: Values of each batch since the previous report, by field.
      details: Fields that concern the whole run; usually only in the last report.
    """

    batches: Mapping[str, Sequence[Any]]
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the message to rank 0."""
        return {"batches": self.batches, "details": self.details}

    @classmethod
    def from_json(cls, message: Mapping[str, Any]) -> "RankReport":
        """Return the report of a message."""
        return cls(message["batches"], message["details"])


def decode_reports(
    messages: Mapping[int, Sequence[Mapping[str, Any]]],
) -> dict[int, list[RankReport]]:
    """Return the reports of each rank."""
    return {
        rank: list(map(RankReport.from_json, rank_messages))
        for rank, rank_messages in messages.items()
    }


def _merge_reports(reports: Sequence[RankReport]) -> dict[str, Any]:
    """Return the fields of one rank's reports, which are in their order.

    Batches are appended. Of a detail in several reports, the last value counts.
    """
    batches: dict[str, list[Any]] = {}
    details: dict[str, Any] = {}
    for report in reports:
        for name, values in report.batches.items():
            batches.setdefault(name, []).extend(values)
        details |= report.details
    return {**batches, **details}


def make_rank(
    peer: RankInfo, reports: Sequence[RankReport], failure: Failure | None
) -> Rank:
    """Return the record of a rank.

    Args:
      peer: The rank.
      reports: The rank's reports in their order.
      failure: The failure of the run, which is recorded if it began at this rank.
    """
    fields: dict[str, Any] = {
        "rank": peer.rank,
        "role": peer.role,
        "host": peer.host,
        "pid": peer.pid,
        **_merge_reports(reports),
    }
    if failure is not None and failure.rank == peer.rank:
        fields["failure"] = failure.kind.value
        fields["error"] = failure.message
    return build(Rank, fields)
