"""The JSON of all reports: intervals, statements and spreads become plain data.

The field names of any other dataclass in the content become keys that programs of users
read.
"""

from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import Spread
from rnn_scaling.records.decoding import encode
from rnn_scaling.reports.wording import format_interval_kind, round_for_files
from rnn_scaling.system.files import input_files


def format_plain_json(content: Any, indent: int | None = 1) -> str:
    """Return content that may have intervals, statements and other objects as JSON."""
    return input_files.format_json(content, indent, _to_plain_data)


def _to_plain_data(value: Any) -> Any:
    """Return an object as plain data; of a dataclass, its fields."""
    if isinstance(value, Statement):
        return value.data()
    if isinstance(value, Spread):
        return {"mean": round(value.mean, 12), "scatter": round(value.scatter, 12)}
    if isinstance(value, Interval):
        return make_interval_data(value)
    return vars(value)


def make_interval_data(interval: Interval) -> dict[str, Any]:
    """Return an interval for JSON.

    Without an interval, `low` and `high` are None, and `kind` is the reason. A number
    that contains a rate corrected for load has the key `corrected`; one that counts
    disturbed batches, unlike the rates beside it, has `all_batches`.
    """
    data: dict[str, Any] = {}
    for name in ("value", "low", "high"):
        number = getattr(interval, name)
        data[name] = None if number is None else round_for_files(number)
    data["kind"] = format_interval_kind(interval.kind)
    if interval.is_corrected:
        data["corrected"] = True
    if Note.ALL_BATCHES in interval.kind.notes:
        data["all_batches"] = True
    return encode(data)
