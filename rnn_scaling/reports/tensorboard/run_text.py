"""A run as a page of Markdown for TensorBoard's tab Text."""

import dataclasses
import re

from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.config import scale
from rnn_scaling.config.naming import network
from rnn_scaling.config.spelling import command
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import placement_table, sections, steady_state, table
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.system.files.markdown import escaped


def markdown(run: RunRecord) -> str:
    """The page: result, the command with the options that differ from the defaults, and where the variables are."""
    config = run.options
    places = scale.in_words(scale.num_workers(config), config["num_devices"])
    result = (
        table.rates_section(build_rows([run]))
        if run.throughput
        else Section("", notes=("No batch was measured.",))
    )
    steady = (
        f"Steady state: {steady_state.run_text(run)}."
        if run.throughput and run.steady_state
        else ""
    )
    notes = (
        *result.notes,
        *filter(None, [steady]),
        f"Again: {' '.join(command(config).split())}",
    )
    placement = tuple(_placement(run))
    parts = [
        dataclasses.replace(result, notes=notes),
        Section(
            "Where the variables are",
            placement,
            () if placement else ("The run ended before they were made.",),
        ),
    ]
    text = f"## {network(config)}, {config['variable_update']}, {places}\n\n{sections.markdown(parts, level=3)}"
    return re.sub(r"([_*`[])", r"\\\1", escaped(text))  # what would be markup


def _placement(run: RunRecord) -> list[Grid]:
    if run.graph is None:
        placement = run.resolved.variable_placement or {}
        rows = [
            [device, f"{size:,}", f"{size / 2**20:.1f}"]
            for device, size in sorted(placement.items())
        ]
        return [Grid("", ["Device", "Bytes", "MiB"], rows)] if rows else []
    devices = placement_table.devices_grid(run.graph)
    copies = placement_table.copies_grid(run.graph)
    # Without the names of the largest, which leave the other columns no room.
    narrow = Grid(
        copies.caption, copies.head[:-1], [line[:-1] for line in copies.lines]
    )
    return [devices, *([narrow] if narrow.lines else [])]
