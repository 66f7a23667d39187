"""A callback for any `model.fit`: items/s per epoch, and a run record."""

import collections
import math
import os
import statistics
from pathlib import Path
from typing import Any

import keras

from rnn_scaling.system import entry
from rnn_scaling.training.recorder import Recorder

# The number of fits of this process, by the file of the first fit.
_fits: collections.Counter[str] = collections.Counter()


class _EpochBatches:
    """Counts the samples of an epoch's batches, and checks how many batches it has.

    `ItemsPerSecond` creates it from its arguments and calls it after each batch.
    """

    def __init__(self, num_samples: int, batch_size: int) -> None:
        self._num_samples = num_samples
        self._batch_size = batch_size
        self.start_epoch()

    def start_epoch(self) -> None:
        self._next_batch = 0
        self._samples = 0
        # The mean loss of these samples, as Keras reports it.
        self._mean_loss = 0.0

    def add_batches(self, last_batch: int, mean_loss: float) -> tuple[int, float]:
        """Add the batches since the previous call.

        Args:
          last_batch: The number of the last batch in the epoch.
          mean_loss: The mean loss of the epoch up to this batch.

        Returns:
          The samples of the added batches, and their mean loss.
        """
        num_samples = 0
        for batch in range(self._next_batch, last_batch + 1):
            remaining = self._num_samples - batch * self._batch_size
            num_samples += max(1, min(self._batch_size, remaining))
        epoch_samples = self._samples + num_samples
        loss_sum = mean_loss * epoch_samples - self._mean_loss * self._samples
        self._next_batch = last_batch + 1
        self._samples = epoch_samples
        self._mean_loss = mean_loss
        return num_samples, loss_sum / num_samples

    def find_mistake(self) -> ValueError | None:
        """Return an error if the epoch had more or fewer batches than expected."""
        expected = math.ceil(self._num_samples / self._batch_size)
        if self._next_batch == expected:
            return None
        return ValueError(
            f"model.fit had {self._next_batch} batches in an epoch, but "
            f"num_samples={self._num_samples} and batch_size={self._batch_size} "
            f"give {expected}; give the values that model.fit uses"
        )


class ItemsPerSecond(keras.callbacks.Callback):
    """Times every batch of `model.fit` of Keras 3 and writes a run record.

        watch = ItemsPerSecond("run.json", num_samples=len(x), batch_size=32)
        model.fit(x, y, batch_size=32, epochs=3, callbacks=[watch])

    The last batch of an epoch counts its real number of samples. Reading the loss waits
    until the devices have finished the batch. The time between two epochs (validation,
    other callbacks) belongs to no batch.

    Each epoch's logs get `items_per_second`, its items over its seconds, and
    `median_items_per_second` over its batches. Both leave out the warm-up, and are NaN
    if the whole epoch is warm-up. A second `fit` gets another record.
    """

    def __init__(
        self,
        result_file: str | os.PathLike[str],
        *,
        num_samples: int,
        batch_size: int,
        unit: str = "items",
        items_a_sample: int = 1,
        num_devices: int = 1,
        num_warmup_batches: int = 10,
        recorder: Recorder | None = None,
    ) -> None:
        """Create the callback.

        Args:
          result_file: The file of the record. Each further `fit` of this process
            appends -2, -3 and so on to the name.
          num_samples: Samples of an epoch.
          batch_size: Samples of every batch except the last one, on all devices of this
            process together, like the argument of `fit`.
          unit: The unit of the items, in the plural.
          items_a_sample: Items of one sample: 1 for images, the number of tokens for
            sentences of equal length.
          num_devices: Devices on which `fit` trains.
          num_warmup_batches: First batches that the rates leave out.
          recorder: A recorder for the first `fit`, for tests.

        Raises:
          ValueError: If a number is not positive. `fit` raises it if its strategy has
            more replicas than `num_devices`.
          OSError: If the record cannot be written.
        """
        super().__init__()
        if min(num_samples, batch_size, items_a_sample, num_devices) < 1:
            raise ValueError(
                "expected num_samples, batch_size, items_a_sample and num_devices of "
                f"at least 1, got {num_samples}, {batch_size}, {items_a_sample} and "
                f"{num_devices}"
            )
        # A record's batch_size is per device.
        size = {"batch_size": batch_size // num_devices}
        if batch_size % num_devices:
            size = {"global_batch_size": batch_size}
        self._path = result_file
        self._recorder_arguments: dict[str, Any] = {
            "unit": unit,
            "num_devices": num_devices,
            "trainer": "model.fit",
            "num_warmup_batches": num_warmup_batches,
            "options": {"framework": f"keras on {keras.backend.backend()}", **size},
        }
        self._num_devices = num_devices
        self._num_warmup_batches = num_warmup_batches
        self._items_per_sample = items_a_sample
        self._epoch = _EpochBatches(num_samples, batch_size)
        self._recorder = recorder or self._create_recorder()
        self._has_started = False
        self._first_step = 0  # this epoch's first step in the recorder
        # The record of the last `fit` that has ended.
        self.record: Any = None

    def _create_recorder(self) -> Recorder:
        return Recorder(_find_next_file(self._path), **self._recorder_arguments)

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begin another record if one `fit` has ended."""
        strategy = getattr(self.model, "distribute_strategy", None)
        replicas = getattr(strategy, "num_replicas_in_sync", 1)
        if replicas > self._num_devices:
            error = ValueError(
                f"num_devices={self._num_devices} is too low: model.fit trains on "
                f"{replicas} replicas; give num_devices={replicas}"
            )
            self._finish(error)
            raise error
        if self.record is not None:
            self._recorder = self._create_recorder()
            self._has_started = False
            self.record = None

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._has_started:
            self._recorder.resume()
        else:
            self._recorder.start()
            self._has_started = True
        self._epoch.start_epoch()
        self._first_step = len(self._recorder.step_s)

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Count the batches since the previous call; `fit` may run several per call."""
        # The mean over the epoch so far. Reading it waits for the devices.
        mean_loss = float((logs or {}).get("loss", math.nan))
        samples, loss = self._epoch.add_batches(batch, mean_loss)
        self._recorder.step(samples * self._items_per_sample, loss)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Add the epoch's rates to its logs.

        Raises:
          ValueError: If `fit` had more or fewer batches than expected.
        """
        error = self._epoch.find_mistake()
        if error is not None:
            self._finish(error)
            raise error
        first = max(self._first_step, self._num_warmup_batches)
        seconds = self._recorder.step_s[first:]
        items = self._recorder.step_items[first:]
        if logs is not None:
            rates = [count / step_s for count, step_s in zip(items, seconds)]
            logs["items_per_second"] = math.nan
            logs["median_items_per_second"] = math.nan
            if rates:
                logs["items_per_second"] = sum(items) / sum(seconds)
                logs["median_items_per_second"] = statistics.median(rates)
        self._recorder.resume()  # a validation may have run since the last batch

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._finish(None)

    def _finish(self, error: BaseException | None) -> None:
        if self.record is None:
            self.record = self._recorder.close(error)


def _find_next_file(result_file: str | os.PathLike[str]) -> Path:
    """Return the file of the next `fit` of this process.

    It is NAME.json, and for further fits NAME-2.json and so on, with a warning.
    """
    path = Path(result_file)
    name = os.path.abspath(path)
    _fits[name] += 1
    number = _fits[name]
    if number == 1:
        return path
    next_path = path.with_name(f"{path.stem}-{number}{path.suffix}")
    entry.warn(
        f"{path} already contains the record of another fit; fit {number} is recorded "
        f"in {next_path.name}"
    )
    return next_path
