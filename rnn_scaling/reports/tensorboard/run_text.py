"""A run as a page of Markdown for TensorBoard's tab Text.

Only `event_files` calls `format_markdown`.
"""

import re

from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.config import scale
from rnn_scaling.config.naming import name_network
from rnn_scaling.config.spelling import make_sweep_command
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import placement_table, sections, steady_state, table
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.system.files.markdown import escape


def format_markdown(run: RunRecord) -> str:
    """Return the result of a run, its command, and the devices of its variables."""
    options = run.options
    result = Section("", notes=["No batch was measured."])
    if run.throughput:
        result = table.make_rates_section(build_rows([run]))
    notes = list(result.notes)
    if run.throughput and run.steady_state:
        notes.append(f"Steady state: {steady_state.run_text(run)}.")
    notes.append(f"Again: {' '.join(make_sweep_command(options).split())}")
    places = _make_placement_grids(run)
    remarks = [] if places else ["The run ended before they were made."]
    parts = [
        Section("", result.grids, notes),
        Section("Where the variables are", places, remarks),
    ]
    devices = scale.describe(scale.count_workers(options), options["num_devices"])
    title = f"{name_network(options)}, {options['variable_update']}, {devices}"
    text = f"## {title}\n\n{sections.format_markdown(parts, level=3)}"
    # Escape characters that Markdown would read as markup.
    return re.sub(r"([_*`[])", r"\\\1", escape(text))


def _make_placement_grids(run: RunRecord) -> list[Grid]:
    """Return where the variables are; without a graph, the bytes per device."""
    if run.graph is None:
        placement = run.resolved.variable_placement or {}
        rows = [
            [device, f"{size:,}", f"{size / 2**20:.1f}"]
            for device, size in sorted(placement.items())
        ]
        return [Grid("", ["Device", "Bytes", "MiB"], rows)] if rows else []
    grids = [placement_table.make_devices_grid(run.graph)]
    copies = placement_table.make_copies_grid(run.graph)
    if copies.lines:
        # The names of the largest variables would leave no room for other columns.
        lines = [line[:-1] for line in copies.lines]
        grids.append(Grid(copies.caption, copies.head[:-1], lines))
    return grids
