"""How the length of a run's warm-up and measurement changes a sweep's answer, from the batches of its records.

    python -m benchmarks.run_length [--folder=docs/results/default]

Each line cuts every record to fewer batches, and evaluates the records again as the report does. Seconds are those of
all runs; intervals are half-widths, efficiencies in points.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from absl import app, flags

from rnn_scaling.analysis import machines, metrics, rows
from rnn_scaling.records import folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.training.recording import compute_throughput

FLAGS = flags.FLAGS
LENGTHS = (
    (10, 20),
    (5, 20),
    (3, 20),
    (2, 20),
    (2, 28),
    (2, 15),
    (2, 10),
    (2, 5),
)  # warm-up, measured


def cut(record: RunRecord, warmup: int, measured: int) -> RunRecord:
    """The record of a run that had ended after its first `warmup + measured` batches."""
    end, batches = warmup + measured, record.batches
    kept = {
        name: getattr(batches, name)[:end]
        for name in ("seconds", "items", "loss", "tower_items")
    }
    kept["tower_positions"] = batches.tower_positions[:end]
    batches = dataclasses.replace(batches, warmup=warmup, measured=measured, **kept)
    rate = compute_throughput(batches.seconds, batches.items, warmup)
    return dataclasses.replace(record, batches=batches, throughput=rate)


def answer(
    records: Sequence[RunRecord],
) -> tuple[list[float], list[float], list[float]]:
    """(half-widths of efficiencies in points, half-widths of rates in %, rates) of a sweep."""
    table = [
        row
        for group in machines.group_by_machine(records).values()
        for row in rows.build_rows(group)
    ]
    rates = [row.rate for row in table if row.rate]
    efficiencies = [
        row.metric(metrics.EFFICIENCY) for row in table if row.num_devices > 1
    ]
    widths = [
        100 * value.half_width
        for value in efficiencies
        if value and value.half_width is not None
    ]
    return (
        widths,
        [100 * (rate.half_width or 0.0) / rate.value for rate in rates],
        [rate.value for rate in rates],
    )


def main(_: list[str]) -> None:
    records = [
        run.record
        for run in folder.read(Path(FLAGS.folder)).runs
        if run.record.status == "ok"
    ]
    full = answer([cut(record, *LENGTHS[0]) for record in records])[2]
    lines = []
    for warmup, measured in LENGTHS:
        shorter = [cut(record, warmup, measured) for record in records]
        left_s = sum(sum(old.batches.seconds[warmup + measured :]) for old in records)
        efficiencies, widths, rates = answer(shorter)
        lines.append(
            [
                f"{warmup} + {measured}",
                f"{sum(record.phases.total for record in records) - left_s:.0f}",
                f"{np.mean(efficiencies):.1f}",
                f"{max(efficiencies):.1f}",
                f"{np.mean(widths):.1f}",
                f"{100 * np.mean(np.array(rates) / full - 1):+.1f}",
            ]
        )
    headers = [
        "batches",
        "seconds",
        "efficiency ±",
        "widest ±",
        "rate ± (%)",
        "rate changes by (%)",
    ]
    print(format_table(headers, lines))


if __name__ == "__main__":
    flags.DEFINE_string(
        "folder", "docs/results/default", "folder with the records of a sweep"
    )
    app.run(main)
