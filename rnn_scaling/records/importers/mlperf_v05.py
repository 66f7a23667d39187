"""MLPerf logs of release 0.5: one event per line, with other keys than later releases.

    :::MLPv0.5.0 gnmt 1541575316.437595129 (train.py:341) train_epoch: 0

Format: mlcommons/training_policies and mlperf_compliance 0.0.10, mlperf_log.py and
tags.py; checked with the logs of mlcommons/training_results_v0.5. A value is JSON, or
text without quotation marks, or missing.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from rnn_scaling.records.importers.reading import finite_number
from rnn_scaling.system.files import input_files

NOTE = (
    "Release 0.5 of MLPerf reports no throughput: the rate is the samples of all epochs "
    "divided by the time outside evaluations. Some submissions print the batch of one "
    "worker as input_batch_size."
)
LEAST_BATCHES = 10  # batches per epoch; with fewer, input_size is an image's width
_LINE = re.compile(
    r":::MLPv0\.5\.\d (\w{1,80}) (\d{1,12}(?:\.\d{1,9})?) \([^)]{0,200}\) "
    r"(\w{1,80})(?:: (.*))?"
)
# Sizes of the training and their fields; the first value of each counts.
_SIZES = {
    "input_batch_size": "batch_size",
    "preproc_num_train_examples": "num_examples",
    "input_size": "input_size",
    "input_hp_num_neg": "num_negatives",
}


def read_event(text: str) -> dict[str, Any] | None:
    """Return the event of a line in the form of later releases; None for other text."""
    match = _LINE.match(text)
    if match is None:
        return None
    benchmark, seconds, key, value_text = match.groups()
    value = _read_value(value_text)
    named = value if isinstance(value, dict) else {}
    event = {
        "time_ms": 1000 * float(seconds),
        "key": key,
        "value": named.get("value", value),
        "metadata": named,
        "benchmark": benchmark,
    }
    if key == "run_stop" and "success" in named:
        is_success = named["success"] in (True, "true")
        event["metadata"] = {"status": "success" if is_success else "aborted"}
    return event


def _read_value(text: str | None) -> Any:
    try:
        return input_files.parse_json(text) if text else None
    except input_files.JsonError:
        return text


@dataclasses.dataclass
class OldRun:
    """The numbers of one run: its batch, epochs, samples and time of training."""

    batch_size: float | None = None
    num_examples: float | None = None
    input_size: float | None = None  # samples of an epoch, or the width of an image
    num_negatives: float | None = None  # samples that ncf adds per sample of input_size
    target: float | None = None
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
        number = finite_number(value)
        if key in ("train_loop", "train_epoch", "eval_stop"):
            self.is_evaluating = False
            if self.training_since_ms is None:
                self.training_since_ms = ms
        elif key == "eval_start":
            self._stop_training(ms)
            self.is_evaluating = True
        elif key == "run_stop" and not self.evaluated_epochs:
            # With evaluations, the last epoch ended before the last evaluation.
            self._stop_training(ms)
        elif key == "eval_target" and number is not None:
            self.target = number
        elif key == "eval_accuracy" and finite_number(epoch) is not None:
            self.evaluated_epochs.add(float(epoch))

        if key == "train_epoch" and number is not None:
            self.train_epochs.add(number)
        # Evaluations report their batch and size under the same names.
        field = _SIZES.get(key)
        if field is None or number is None or number <= 0 or self.is_evaluating:
            return
        if getattr(self, field) is None:
            setattr(self, field, number)

    @property
    def epochs(self) -> float | None:
        """Number of epochs that the run trained; None if no event names one."""
        counts = [float(len(self.train_epochs))]
        if self.evaluated_epochs:
            first = min(self.evaluated_epochs)
            # Evaluations count from 1, unless there is one after epoch 0 (or -1).
            before_first = min(first, 0.0) - 1 if first <= 0 else 0.0
            counts.append(max(self.evaluated_epochs) - before_first)
        return max(counts) or None

    @property
    def samples_per_epoch(self) -> float | None:
        """Samples of one epoch; None if the log has no such number."""
        size = self.input_size
        if size is None:
            return self.num_examples
        if self.num_examples is not None:
            is_samples = self.num_examples / 2 <= size <= self.num_examples
        else:
            is_samples = size >= LEAST_BATCHES * (self.batch_size or size)
        if not is_samples:
            return self.num_examples
        return size * (1 + (self.num_negatives or 0.0))

    @property
    def samples(self) -> float | None:
        """Samples of all epochs."""
        if self.epochs is None or self.samples_per_epoch is None:
            return None
        return self.epochs * self.samples_per_epoch

    @property
    def rate(self) -> float | None:
        """Samples/s outside evaluations."""
        if self.samples is None or self.training_ms <= 0:
            return None
        return 1e3 * self.samples / self.training_ms

    @property
    def reached(self) -> dict[str, float]:
        """Samples and epochs of the run, by the keys of later releases."""
        counts = {"samples_count": self.samples, "epoch_num": self.epochs}
        return {name: count for name, count in counts.items() if count is not None}

    def has_reached(self, reached: Mapping[str, float]) -> bool:
        """Return whether the last quality of a run is at least its target."""
        quality = reached.get("quality")
        if quality is None or self.target is None:
            return False
        return quality >= self.target

    def _stop_training(self, ms: float) -> None:
        if self.training_since_ms is not None:
            self.training_ms += max(0.0, ms - self.training_since_ms)
        self.training_since_ms = None
