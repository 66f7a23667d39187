"""Show how a sweep's answer depends on the lengths of warm-up and measurement.

    python -m benchmarks.run_length [--folder=docs/results/default]

Each line cuts every record of a sweep to fewer batches, and evaluates the records again
as the report does. Seconds are those of all runs. Intervals are half-widths, those of
efficiencies in percentage points.
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

# Batches of the warm-up, and measured batches. The first line is the reference.
LENGTHS = (
    (10, 20),
    (5, 20),
    (3, 20),
    (2, 20),
    (2, 28),
    (2, 15),
    (2, 10),
    (2, 5),
)
HEAD = [
    "batches",
    "seconds",
    "efficiency ±",
    "widest ±",
    "rate ± (%)",
    "rate changes by (%)",
]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a report says of a sweep.

    Attributes:
      efficiency_widths: Half-widths of efficiencies, in percentage points.
      rate_widths: Half-widths of rates, in %.
      rates: Rates in words/s.
    """

    efficiency_widths: list[float]
    rate_widths: list[float]
    rates: list[float]


def cut_run(record: RunRecord, warmup: int, measured: int) -> RunRecord:
    """Return the record of a run that had ended after its first batches."""
    end = warmup + measured
    batches = record.batches
    batches = dataclasses.replace(
        batches,
        warmup=warmup,
        measured=measured,
        seconds=batches.seconds[:end],
        items=batches.items[:end],
        loss=batches.loss[:end],
        tower_items=batches.tower_items[:end],
        tower_positions=batches.tower_positions[:end],
    )
    throughput = compute_throughput(batches.seconds, batches.items, warmup)
    return dataclasses.replace(record, batches=batches, throughput=throughput)


def evaluate(records: Sequence[RunRecord]) -> Answer:
    """Return the answer of a report of these records."""
    answer = Answer([], [], [])
    for group in machines.group_by_machine(records).values():
        for row in rows.build_rows(group):
            if row.rate:
                half_width = row.rate.half_width or 0.0
                answer.rates.append(row.rate.value)
                answer.rate_widths.append(100 * half_width / row.rate.value)
            efficiency = row.metric(metrics.EFFICIENCY)
            if row.num_devices > 1 and efficiency and efficiency.half_width is not None:
                answer.efficiency_widths.append(100 * efficiency.half_width)
    return answer


def main(argv: list[str]) -> None:
    """Print the table."""
    del argv
    records = []
    for run in folder.read(Path(FLAGS.folder)).runs:
        if run.record.status == "ok":
            records.append(run.record)
    all_seconds = sum(record.phases.total for record in records)
    reference = evaluate([cut_run(record, *LENGTHS[0]) for record in records])
    lines = []
    for warmup, measured in LENGTHS:
        answer = evaluate([cut_run(record, warmup, measured) for record in records])
        saved_s = 0.0
        for record in records:
            saved_s += sum(record.batches.seconds[warmup + measured :])
        changes = np.array(answer.rates) / reference.rates - 1
        lines.append(
            [
                f"{warmup} + {measured}",
                f"{all_seconds - saved_s:.0f}",
                f"{np.mean(answer.efficiency_widths):.1f}",
                f"{max(answer.efficiency_widths):.1f}",
                f"{np.mean(answer.rate_widths):.1f}",
                f"{100 * np.mean(changes):+.1f}",
            ]
        )
    print(format_table(HEAD, lines))


if __name__ == "__main__":
    flags.DEFINE_string(
        "folder", "docs/results/default", "folder with the records of a sweep"
    )
    app.run(main)
