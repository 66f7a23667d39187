"""Show the traced steps of a job as tables, JSON or CSV.

`inspect` prints the results. Programs of users read the JSON: never rename a key.
"""

import csv
import dataclasses
import functools
import io

from rnn_scaling.inspection.kineto import step_split
from rnn_scaling.inspection.kineto.alignment import Clock
from rnn_scaling.inspection.kineto.job import TracedJob, make_statements
from rnn_scaling.inspection.kineto.step_split import PARTS
from rnn_scaling.reports.sections import Columns, Section, format_markdown, make_grid
from rnn_scaling.reports.steps import format_milliseconds
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.terminal import format_count

SCHEMA = "rnn_scaling.kineto/1"
TITLES = {
    step_split.TRANSFER: "transfer, exposed",
    step_split.WAITS: "waits for last rank",
    step_split.UNSPLIT: "exchange, not split",
    step_split.INPUT: "waits for input",
}


def format_text(job: TracedJob, top: int) -> str:
    """Return the verdict and the tables.

    Args:
      job: The traced steps.
      top: Maximum number of ranks per table.
    """
    ranks = list(job.traces)[:top]
    parts: Columns = {
        "Rank": str,
        "Step (ms)": lambda rank: format_milliseconds(job.average("seconds", rank)),
    }
    for part in PARTS:
        if any(job.average_part(part, rank).mean for rank in job.traces):
            title = TITLES.get(part, part)
            parts[title] = functools.partial(_format_part, job, part)
    exchange: Columns = {
        "Rank": str,
        "Active (ms)": lambda rank: format_milliseconds(
            job.average("exchange_s", rank)
        ),
        "exposed": lambda rank: format_milliseconds(job.average("exposed_s", rank)),
        "Clock ahead (ms)": lambda rank: _format_clock(job.alignment.clocks.get(rank)),
    }
    grids = [make_grid("Parts of a step", parts, ranks)]
    if job.average_ranks("exchange_s"):
        grids.append(make_grid("Exchange per step, and clocks", exchange, ranks))
    num_steps = format_count(len(job.steps), "step")
    title = f"PyTorch trace, {format_count(len(job.traces), 'rank')}, {num_steps}"
    section = Section(title, tuple(grids), tuple(make_statements(job)))
    return format_markdown([section], level=3)


def _format_part(job: TracedJob, part: str, rank: int) -> str:
    return format_milliseconds(
        job.average_part(part, rank), job.average("seconds", rank).mean
    )


def _format_clock(clock: Clock | None) -> str:
    if clock is None:
        return "n/a"
    return f"{clock.offset_ns / 1e6:.3f} sd {clock.scatter_ns / 1e6:.3f}"


def format_json(job: TracedJob) -> str:
    """Return all numbers, in seconds."""
    ranks = []
    for rank, trace in job.traces.items():
        clock = job.alignment.clocks.get(rank)
        ranks.append(
            {
                "rank": rank,
                "file": str(trace.file),
                "device": "gpu" if trace.uses_gpu else "cpu",
                "clock_ahead_s": clock and clock.offset_ns / 1e9,
                "clock_scatter_s": clock and clock.scatter_ns / 1e9,
                "steps": [dataclasses.asdict(step) for step in job.splits[rank]],
            }
        )
    content = {
        "schema": SCHEMA,
        "world_size": job.world_size,
        "statements": [statement.data() for statement in make_statements(job)],
        "ranks": ranks,
    }
    return input_files.format_json(content)


def format_csv(job: TracedJob) -> str:
    """Return a row per rank and step, in seconds."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    parts = [f"{part}_s" for part in PARTS]
    writer.writerow(["rank", "step", "seconds", *parts, "exchange_s", "exposed_s"])
    for rank, steps in job.splits.items():
        for step in steps:
            times = [*step.parts.values(), step.exchange_s, step.exposed_s]
            writer.writerow([rank, step.number, step.seconds, *times])
    return text.getvalue()
