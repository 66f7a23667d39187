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
_LEAST_BATCHES = 10  # batches per epoch; with fewer, input_size is an image's width
_LINE = re.compile(
    r":::MLPv0\.5\.\d (\w{1,80}) (\d{1,12}(?:\.\d{1,9})?) \([^)]{0,200}\) "
    r"(\w{1,80})(?:: (.*))?"
)
# Numbers of a run that evaluations may repeat with other values.
_SIZES = (
    "input_batch_size", "preproc_num_train_examples", "input_size", "input_hp_num_neg",
    "eval_target",
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

    # The first value of each of _SIZES outside evaluations.
    sizes: dict[str, float] = dataclasses.field(default_factory=dict)
    train_epochs: set[float] = dataclasses.field(default_factory=set)
    evaluated_epochs: set[float] = dataclasses.field(default_factory=set)
    training_ms: float = 0.0
    training_since_ms: float | None = None  # None during an evaluation
    is_evaluating: bool = False

    def take(self, key: str, value: Any, epoch: Any, ms: float) -> None:
        """Add an event of a run that has not stopped.

        Args:
          key: Name of the event.
          value: Its value, or None.
          epoch: Epoch that an evaluation names, or None.
          ms: Time of the event in milliseconds.
        """
        # With evaluations, the last epoch ended before the last evaluation.
        is_end = key == "run_stop" and not self.evaluated_epochs
        if key in ("train_loop", "train_epoch", "eval_stop"):
            self.is_evaluating = False
            if self.training_since_ms is None:
                self.training_since_ms = ms
        elif key == "eval_start" or is_end:
            self.is_evaluating = True
            if self.training_since_ms is not None:
                self.training_ms += max(0.0, ms - self.training_since_ms)
            self.training_since_ms = None
        elif key == "eval_accuracy" and finite_number(epoch) is not None:
            self.evaluated_epochs.add(float(epoch))

        number = finite_number(value)
        if number is None:
            return
        if key == "train_epoch":
            self.train_epochs.add(number)
        elif key in _SIZES and number > 0 and not self.is_evaluating:
            self.sizes.setdefault(key, number)

    @property
    def epochs(self) -> float | None:
        """Number of epochs that the run trained; None if no event names one."""
        counts = [float(len(self.train_epochs))]
        if self.evaluated_epochs:
            first = min(self.evaluated_epochs)
            # Evaluations count from 1, unless there is one after epoch 0 (or -1).
            before_first = first - 1 if first <= 0 else 0.0
            counts.append(max(self.evaluated_epochs) - before_first)
        return max(counts) or None

    @property
    def samples_per_epoch(self) -> float | None:
        """Samples of one epoch; None if the log has no such number."""
        size = self.sizes.get("input_size")
        examples = self.sizes.get("preproc_num_train_examples")
        if size is None:
            return examples
        if examples is not None:
            is_samples = examples / 2 <= size <= examples
        else:
            batch_size = self.sizes.get("input_batch_size", size)
            is_samples = size >= _LEAST_BATCHES * batch_size
        if not is_samples:
            return examples
        return size * (1 + self.sizes.get("input_hp_num_neg", 0.0))

    @property
    def progress(self) -> dict[str, float]:
        """Samples and epochs of the run, by the keys of later releases."""
        progress = {}
        if self.epochs is not None:
            if self.samples_per_epoch is not None:
                progress["samples_count"] = self.epochs * self.samples_per_epoch
            progress["epoch_num"] = self.epochs
        return progress

    @property
    def rate(self) -> float | None:
        """Samples/s outside evaluations."""
        samples = self.progress.get("samples_count")
        if samples is None or self.training_ms <= 0:
            return None
        return 1e3 * samples / self.training_ms
