"""Consistent tables with random rounding, and faults put into them one at a time."""

from __future__ import annotations

import dataclasses
import random

from rnn_scaling.audit.auditing import audit

HEADER = ["GPUs", "Batch size", "Total time to process 20 batches (s)", "words/s", "Speedup", "Efficiency"]
DEVICES, BATCH, SECONDS, RATE, SPEEDUP, EFFICIENCY = range(6)


@dataclasses.dataclass
class Made:
    """A table as true numbers and as printed cells."""

    counts: list[int]
    seconds: list[float]
    rates: list[float]
    cells: list[list[str]]

    def text(self) -> str:
        rows = ["| " + " | ".join(row) + " |" for row in (HEADER, ["---"] * len(HEADER), *self.cells)]
        return "\n".join(["# A table", "", "Some words | with a pipe.", "", *rows, "", "More words."]) + "\n"

    def line(self, row: int) -> int:
        return row + 7


def make(seed: int, words: int = 200, batches: int = 20) -> Made:
    """A weak scaling whose efficiency falls, every column rounded to decimals of its own."""
    rng = random.Random(seed)
    counts = sorted(rng.sample([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64], rng.randint(5, 9)) + [1])
    counts = sorted(set(counts))
    batch = rng.choice([16, 32, 100, 384])
    seconds, efficiency = [rng.uniform(2, 60)], 1.0
    for _ in counts[1:]:
        efficiency *= rng.uniform(0.86, 0.985)
        seconds.append(seconds[0] / efficiency)
    rates = [words * batch * n * batches / s for n, s in zip(counts, seconds)]
    digits = [rng.randint(1, 3), rng.randint(0, 3), rng.randint(1, 3), rng.randint(0, 2)]
    marks = rng.choice([str, lambda text: f"**{text}**", lambda text: f" {text} "])
    suffix = rng.choice(["", "x"])
    grouped = rng.random() < 0.5
    cells = []
    for n, s, rate in zip(counts, seconds, rates):
        speedup = rate / rates[0]
        shown = f"{rate:,.{digits[1]}f}" if grouped else f"{rate:.{digits[1]}f}"
        cells.append(
            [
                marks(str(n)),
                str(batch),
                f"{s:.{digits[0]}f}",
                shown,
                f"{speedup:.{digits[2]}f}{suffix}",
                f"{100 * speedup / n:.{digits[3]}f} %",
            ]
        )
    return Made(counts, seconds, rates, cells)


def run(tmp_path, text: str, name: str = "table.md", **options):
    """The audit's report on a text."""
    path = tmp_path / name
    path.unlink(missing_ok=True)  # to cut a file that is there takes longer than to read it
    path.write_text(text, encoding="utf-8")
    return audit(path, **options)
