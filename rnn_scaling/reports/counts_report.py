"""Records of traced runs -> what was counted in them, printed and written."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.analysis.steps import counts
from rnn_scaling.files.output_files import write_text
from rnn_scaling.files.terminal import tell
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import counts_table, placement_table
from rnn_scaling.sweeps.plan import identity


def report(out: Path, records: Mapping[str, RunRecord]) -> bool:
    """Prints what the records say and writes it to `out`; returns whether everything is as it must be."""
    inspection = counts.inspect(records)
    entry.warn(*(f"{line}; left out" for line in inspection.left_out))
    if not inspection.groups:
        entry.fail("no run was counted")
        return False
    placed = _one_of_each(records)
    widest = max(placed, key=lambda label: placed[label].config["num_devices"])
    short = f"\n### Placement of {widest}\n\n{placement_table.markdown(placed[widest], variables=False)}"
    tell(counts_table.summary(inspection) + short)
    whole = "".join(f"\n## Placement of {label}\n\n{placement_table.markdown(run)}" for label, run in placed.items())
    try:
        write_text(counts_table.markdown(inspection) + whole, out / "inspect.md")
        write_text(counts_table.to_json(inspection), out / "inspect.json")
    except OSError as e:
        entry.fail(f"--out={out}: {e.strerror or e}")
        return False
    print(f"\nwrote {out / 'inspect.md'} and inspect.json", file=sys.stderr)
    return not inspection.differences


def _one_of_each(records: Mapping[str, RunRecord]) -> dict[str, RunRecord]:
    """The first counted run of each configuration, by its label."""
    first: dict[tuple, str] = {}
    for label, run in records.items():
        if run.graph:
            first.setdefault(identity(run.config), label)
    return {label: records[label] for label in first.values()}
