"""The search for the largest batch -> text, Markdown, JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.machine.memory import GIB
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
        return largest_batch.what_is_known(self.tries)


def text(result: Result) -> str:
    """For the terminal, and, below a title, for a file."""
    head = ["Batch", "Outcome", "Peak memory, GiB", f"{result.unit}/s, roughly"]
    rows = [_row(tried) for tried in result.tries]
    lines = [markdown_table(head, rows), sentence(result) + "\n"]
    return "\n".join([*lines, *([f"    {result.command}\n"] if result.command else [])])


def markdown(result: Result) -> str:
    """The file."""
    return f"# The largest batch\n\n{text(result)}"


def _row(tried: Tried) -> list[str]:
    rate = f"{tried.rate:,.4g}" if tried.rate and tried.rate < 1000 else f"{tried.rate:,.0f}" if tried.rate else "n/a"
    return [f"{tried.batch_size:,}", tried.outcome, _gib(tried.peak_bytes), rate]


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
    memory = f": {_gib(taken)}{limit or ' GiB'}" if taken else ""
    lead = f"{found.largest:,} {samples} a device fit into memory (measured{memory})"
    above = next((each for each in result.tries if each.batch_size == found.too_large), None)
    if above:
        lead += f"; {above.batch_size:,} do not (measured: {above.words or above.outcome})"
    if not result.is_whole:
        return f"{lead}; no other size was tried for want of time: the same command with more --minutes goes on."
    return f"{lead}."


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
        "is_predicted": False,  # earlier versions predicted `too_large` where they did not measure it
        "is_whole": result.is_whole,
        "tries": [dataclasses.asdict(each) for each in result.tries],
    }
    return input_files.json_text(content)


RENDER = {"text": text, "markdown": markdown, "json": to_json}
