"""The row that the data-parallel NMT trainer of lcy-seso/dl_framework prints at the end of a run.

Format: tensorflow/data_parallelism_for_nmt/train.py of that repository: a header line
`|gpu number|batch_size|total time|speed|speedup ratio|` and a line of the numbers, words/s.
"""

import re
from collections.abc import Iterable

from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    ScalingRow,
    by_rank,
    finish,
    printed,
)

FORMAT = "seed_trainer"
UNIT = "words/s"
HEADER = "|gpu number|batch_size|total time|speed|speedup ratio|"
_LOSS = re.compile(r"Pass \d+, Batch (\d+), Loss : (\S+)")
NOTES = (
    "Batch size is per GPU. The clock starts after the first counted batch has run, while its words are counted: speed "
    "is words of 20 batches over the seconds of 19, about 20/19 = 5 % too high at every number of GPUs.",
    "Words are those of source and target of all GPUs, padding not counted.",
)


def detect(head: str) -> bool:
    return HEADER in head


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads every row. Raises LogError if no row is there."""
    problems = Problems()
    rows: list[ScalingRow] = []
    header, ones = 0, 0
    for line, _, tagged in by_rank(lines):
        text = tagged.strip()
        if text == HEADER:
            if header:
                problems.add(header, "no numbers follow this header", "no numbers")
            header = line
        elif header and text:
            header = 0
            try:
                row = _row(text, line, source)
            except ValueError as e:
                problems.add(line, f"{e}; row left out", "bad row")
                continue
            ones += row.speedup is None
            rows.append(row)
        elif (match := _LOSS.match(text)) and match[2].lower().lstrip("-") in (
            "nan",
            "inf",
        ):
            problems.add(
                line,
                f"the loss of batch {match[1]} is {match[2]}: the run diverged",
                "loss",
            )
        if problems.too_many(line, len(rows), "rows"):
            break
    if header:
        problems.add(
            header, "no numbers follow this header: the log is cut short", "no numbers"
        )
    notes = list(NOTES)
    if ones:
        notes.append(
            f"{ones} rows print a ratio of 1.00 for several GPUs, the trainer's default; it is left out."
        )
    return finish(
        FORMAT, source, rows, (), notes, problems, "no row of the trainer in this file"
    )


def _row(text: str, line: int, source: str) -> ScalingRow:
    words = [word.strip() for word in text.strip("|").split("|")]
    if len(words) != 5 or not text.startswith("|"):
        raise ValueError(f"expected 5 numbers between bars, got {text[:60]!r}")
    names = ("a number of GPUs", "a batch size", "seconds", "words/s", "a ratio")
    number, size, seconds, rate, ratio = (
        printed(word, name) for word, name in zip(words, names)
    )
    devices = int(number.value)
    speedup = None if devices > 1 and words[4] == "1.00" else ratio
    return ScalingRow(
        source,
        line,
        devices=devices,
        batch_size=size,
        seconds=seconds,
        rate=rate,
        rate_unit=UNIT,
        speedup=speedup,
    )
