"""MLPerf logs of release 0.5: one event per line, with other keys than later releases.

    :::MLPv0.5.0 gnmt 1541575316.437595129 (train.py:341) train_epoch: 0

Format: mlcommons/training_policies and mlperf_compliance 0.0.10, mlperf_log.py and
tags.py; checked with the logs of mlcommons/training_results_v0.5. A value is JSON, or
text without quotation marks, or missing.
"""

import dataclasses
import re
from typing import Any

from rnn_scaling.records.importers.reading import finite_number
from rnn_scaling.system.files import input_files

NOTE = (
    "Release 0.5 of MLPerf reports no throughput: the rate is the samples of all "
    "epochs divided by the time outside evaluations. Some submissions print the batch "
    "of one worker as input_batch_size."
)
_LINE = re.compile(
    r":::MLPv0\.5\.\d (\w{1,80}) (\d{1,12}(?:\.\d{1,9})?) \([^)]{0,200}\) "
    r"(\w{1,80})(?:: (.*))?"
)
_SIZES = (
    "input_batch_size", "preproc_num_train_examples", "input_size", "eval_target",
)  # fmt: skip


def read_event(text: str) -> dict[str, Any] | None:
    """Return the event of a line in the form of later releases; None for other text."""
    match = _LINE.match(text)
    if match is None:
        return None
    benchmark, seconds, key, value_text = match.groups()
    value = _read_value(value_text)
    fields = value if isinstance(value, dict) else {}
    event = {
        "time_ms": 1000 * float(seconds),
        "key": key,
        "value": fields.get("value", value),
        "metadata": fields,
        "benchmark": benchmark,
    }
    if key == "run_stop" and "success" in fields:
        is_success = fields["success"] in (True, "true")
        event["metadata"] = {"status": "success" if is_success else "aborted"}
    return event


def _read_value(text: str | None) -> Any:
    try:
        return input_files.parse_json(text) if text else None
    except input_files.JsonError:
        return text


@dataclasses.dataclass
class OldRun:
    """The numbers of one run: its sizes, epochs and time of training."""

    # The first value of each of _SIZES before the first evaluation.
    sizes: dict[str, float] = dataclasses.field(default_factory=dict)
    train_epochs: set[float] = dataclasses.field(default_factory=set)
    training_ms: float = 0.0
    training_since_ms: float | None = None  # None during an evaluation

    def take(self, key: str, value: Any, ms: float) -> None:
        """Add an event of a run that has not stopped, at a time in milliseconds."""
        if key in ("train_loop", "train_epoch", "eval_stop"):
            if self.training_since_ms is None:
                self.training_since_ms = ms
        elif key in ("eval_start", "run_stop"):
            if self.training_since_ms is not None:
                self.training_ms += max(0.0, ms - self.training_since_ms)
            self.training_since_ms = None
        number = finite_number(value)
        if number is None:
            return
        if key == "train_epoch":
            self.train_epochs.add(number)
        elif key in _SIZES and number > 0 and not self.training_ms:
            self.sizes.setdefault(key, number)

    @property
    def progress(self) -> dict[str, float]:
        """Samples and epochs of the run, by the keys of later releases."""
        if not self.train_epochs:
            return {}
        epochs = float(len(self.train_epochs))
        progress = {"epoch_num": epochs}
        examples = self.sizes.get("preproc_num_train_examples")
        # An input_size below half of the examples is the width of an image.
        size = self.sizes.get("input_size", 0.0)
        samples = size if size >= (examples or 0.0) / 2 else examples
        if samples:
            progress["samples_count"] = epochs * samples
        return progress

    @property
    def rate(self) -> float | None:
        """Samples/s outside evaluations."""
        samples = self.progress.get("samples_count")
        if samples is None or self.training_ms <= 0:
            return None
        return 1e3 * samples / self.training_ms
