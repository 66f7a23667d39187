"""The search for the largest batch -> text, Markdown, JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import NamedTuple

from rnn_scaling.machine.memory import GIB
from rnn_scaling.reports.markdown import markdown_table
from rnn_scaling.sweeps import largest_batch
from rnn_scaling.sweeps.largest_batch import FAILED, FITS, Found, Tried

SCHEMA = "rnn_scaling.largest_batch/1"


class Result(NamedTuple):
    """What was tried, with what is needed to tell it.

    limit_bytes: for a process, None: its device's memory alone; samples: what a batch holds; unit: what is counted;
    is_whole: False where the search was ended before it had the answer; command: that trains so, or empty.
    """

    tries: Sequence[Tried]
    limit_bytes: int | None
    samples: str
    unit: str
    is_whole: bool
    command: str

    @property
    def found(self) -> Found:
        return largest_batch.what_is_known(self.tries, self.limit_bytes)


def text(result: Result) -> str:
    """For the terminal, and, below a title, for a file."""
    head = ["Batch", "Outcome", "Peak memory, GiB", "Expected at most, GiB", f"{result.unit}/s, roughly"]
    rows = [_row(result, number) for number in range(len(result.tries))]
    lines = [markdown_table(head, rows), sentence(result) + "\n"]
    return "\n".join([*lines, *([f"    {result.command}\n"] if result.command else [])])


def markdown(result: Result) -> str:
    """The file."""
    return f"# The largest batch\n\n{text(result)}"


def _row(result: Result, number: int) -> list[str]:
    each = result.tries[number]
    expected = largest_batch.expected_bytes(result.tries[:number], each.batch_size)
    rate = f"{each.rate:,.4g}" if each.rate and each.rate < 1000 else f"{each.rate:,.0f}" if each.rate else "n/a"
    return [f"{each.batch_size:,}", each.outcome, _gib(each.peak_bytes), _gib(expected), rate]


def sentence(result: Result) -> str:
    """The answer, to be read aloud."""
    found, samples = result.found, result.samples
    failed = next((each for each in result.tries if each.outcome == FAILED), None)
    if failed:
        return f"A batch of {failed.batch_size:,} failed of something else than memory: {failed.words}"
    limit = f" of {_gib(result.limit_bytes)} GiB" if result.limit_bytes else ""
    if found.largest is None:
        least = min((each.batch_size for each in result.tries), default=None)
        return f"Not even {least:,} {samples} a device fit into the memory{limit}." if least else "Nothing was tried."
    taken = next(each.peak_bytes for each in result.tries if each.outcome == FITS and each.batch_size == found.largest)
    memory = f" ({_gib(taken)}{limit or ' GiB'})" if taken else ""
    lead = f"{found.largest:,} {samples} a device fit into memory{memory}"
    if found.too_large is None or not result.is_whole:
        return f"{lead}; more were not tried for want of time: the same command with more --minutes goes on."
    how = "would not, by what smaller batches took" if found.is_predicted else "did not"
    return f"{lead}; {found.too_large:,} {how}."


def _gib(num_bytes: int | None) -> str:
    return "n/a" if num_bytes is None else f"{num_bytes / GIB:.3g}"


def to_json(result: Result) -> str:
    """Everything, for a program."""
    content = {
        "schema": SCHEMA,
        "sentence": sentence(result),
        "command": result.command or None,
        "limit_bytes": result.limit_bytes,
        **dataclasses.asdict(result.found),
        "is_whole": result.is_whole,
        "tries": [dataclasses.asdict(each) for each in result.tries],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


RENDER = {"text": text, "markdown": markdown, "json": to_json}
