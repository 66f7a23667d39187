"""What Hugging Face's Trainer prints at the end: `{'train_runtime': 1.2, 'train_samples_per_second': 81.3, ...}`.

Format: huggingface/transformers, `speed_metrics` of trainer_utils.py; newer versions print the numbers in quotes.
"""

import re
from collections.abc import Iterable

from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    ScalingRow,
    by_rank,
    detector,
    finish,
    printed,
)

FORMAT = "hugging_face"
UNIT = "samples/s"
_RATE = re.compile(r"""['"]train_samples_per_second['"]: ['"]?([^'",}\s]+)""")
detect = detector(_RATE, "train_samples_per_second")
NOTES = (
    "The rate is samples of all devices over the whole of train(): its first step, evaluation and saving count.",
)


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads a row a training. Raises LogError if no rate is there."""
    problems, rows = Problems(), list[ScalingRow]()
    for line, _, text in by_rank(lines, longest=1 << 20):
        if match := _RATE.search(text) if "train_samples_per_second" in text else None:
            try:
                rows.append(
                    ScalingRow(
                        source,
                        line,
                        rate=printed(match[1], "samples/s"),
                        rate_unit=UNIT,
                    )
                )
            except ValueError as e:
                problems.add(line, str(e))
        if problems.too_many(line, len(rows), "rows"):
            break
    return finish(
        FORMAT,
        source,
        rows,
        (),
        NOTES,
        problems,
        "no train_samples_per_second in this file",
    )
