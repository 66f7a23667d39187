"""A callback for anybody's `model.fit`: items a second of every epoch, and a run record at the end."""

import collections
import math
import os
import statistics
from pathlib import Path
from typing import Any

import keras

from rnn_scaling.system import entry
from rnn_scaling.training.recorder import Recorder

_fits: collections.Counter[str] = (
    collections.Counter()
)  # of this process, by the file of the first


class ItemsPerSecond(keras.callbacks.Callback):
    """Times every batch of `model.fit` of Keras 3 and leaves a run record.

        watch = ItemsPerSecond("run.json", unit="images", num_samples=len(x), batch_size=32)
        model.fit(x, y, batch_size=32, epochs=3, callbacks=[watch])

    The last batch of an epoch counts what it holds, not a full batch. Reading the loss waits until the devices have
    finished the batch. What lies between two epochs (validation, other callbacks) belongs to no batch. Each epoch's
    logs get `items_per_second`, its items over its seconds, and `median_items_per_second` over its batches; both
    leave out the warm-up, and are NaN in an epoch that is all warm-up. A second `fit` gets a record of its own.
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
        """result_file: where the record goes; of another `fit` of this process: the same name with -2, -3 and so on.
        batch_size: samples of every batch but the last one, as `fit` has it: of all devices that this process drives.
        items_a_sample: units of one sample: 1 for images, the tokens of a sentence where all have one length.
        num_devices: that `fit` trains on.
        recorder: another clock for the first `fit`; tests give one.

        Raises:
          ValueError: if a number is not positive; `fit` raises it if its strategy has more replicas than `num_devices`.
          OSError: if the record cannot be written.
        """
        super().__init__()
        if min(num_samples, batch_size, items_a_sample, num_devices) < 1:
            raise ValueError(
                "expected num_samples, batch_size, items_a_sample and num_devices of at least 1, got "
                f"{num_samples}, {batch_size}, {items_a_sample} and {num_devices}"
            )
        self._path, self._unit, self._warmup, self._num_devices = (
            result_file,
            unit,
            num_warmup_batches,
            num_devices,
        )
        self._num_samples, self._batch_size, self._items_a_sample = (
            num_samples,
            batch_size,
            items_a_sample,
        )
        self._recorder = recorder or self._new_recorder()
        self._has_started, self._next, self._first = False, 0, 0
        self._samples_done, self._mean_loss = 0, 0.0  # in this epoch
        self.record: Any = None  # of the last `fit` that has ended

    def _new_recorder(self) -> Recorder:
        devices, batch_size = self._num_devices, self._batch_size
        # A record's batch_size is that of a device.
        size = (
            {"global_batch_size": batch_size}
            if batch_size % devices
            else {"batch_size": batch_size // devices}
        )
        return Recorder(
            _next_file(self._path),
            unit=self._unit,
            num_devices=devices,
            trainer="model.fit",
            num_warmup_batches=self._warmup,
            options={"framework": f"keras on {keras.backend.backend()}", **size},
        )

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Begins another record if one `fit` has ended."""
        strategy = getattr(self.model, "distribute_strategy", None)
        replicas = getattr(strategy, "num_replicas_in_sync", 1)
        if replicas > self._num_devices:
            self._finish(
                error := ValueError(
                    f"num_devices is {self._num_devices}; model.fit trains on {replicas}"
                )
            )
            raise error
        if self.record is not None:
            self._recorder, self._has_started, self.record = (
                self._new_recorder(),
                False,
                None,
            )

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if self._has_started:
            self._recorder.resume()
        else:
            self._recorder.start()
            self._has_started = True
        self._next, self._first = 0, len(self._recorder.step_s)
        self._samples_done, self._mean_loss = 0, 0.0

    def on_train_batch_end(
        self, batch: int, logs: dict[str, Any] | None = None
    ) -> None:
        """Counts the batches since the last call: several, where `fit` runs several at a time."""
        mean_loss = float(
            (logs or {}).get("loss", math.nan)
        )  # waits for the devices; of the epoch's samples so far
        samples = sum(self._samples(number) for number in range(self._next, batch + 1))
        done, self._next = self._samples_done + samples, batch + 1
        loss = (mean_loss * done - self._mean_loss * self._samples_done) / samples
        self._samples_done, self._mean_loss = done, mean_loss
        self._recorder.step(samples * self._items_a_sample, loss)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the epoch's rates to its logs; ValueError if `fit` had another number of batches than was said."""
        expected = math.ceil(self._num_samples / self._batch_size)
        if self._next != expected:
            error = ValueError(
                f"model.fit had {self._next} batches in an epoch; expected {expected} of "
                f"num_samples={self._num_samples} and batch_size={self._batch_size}: give both as model.fit has them"
            )
            self._finish(error)
            raise error
        first = max(self._first, self._warmup)
        seconds, items = (
            self._recorder.step_s[first:],
            self._recorder.step_items[first:],
        )
        if logs is not None:
            rates = [count / step_s for count, step_s in zip(items, seconds)]
            logs["items_per_second"] = sum(items) / sum(seconds) if rates else math.nan
            logs["median_items_per_second"] = (
                statistics.median(rates) if rates else math.nan
            )
        self._recorder.resume()  # a validation was between the last batch and this

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._finish(None)

    def _finish(self, error: BaseException | None) -> None:
        if self.record is None:
            self.record = self._recorder.close(error)

    def _samples(self, batch: int) -> int:
        return max(
            1, min(self._batch_size, self._num_samples - batch * self._batch_size)
        )


def _next_file(result_file: str | os.PathLike[str]) -> Path:
    """The file of the next `fit` of this process: NAME.json, then NAME-2.json and so on, with a warning."""
    path = Path(result_file)
    name = os.path.abspath(path)
    _fits[name] += 1
    if (number := _fits[name]) == 1:
        return path
    next_path = path.with_name(f"{path.stem}-{number}{path.suffix}")
    entry.warn(
        f"{path} already has the record of another fit; fit {number} is recorded in {next_path.name}"
    )
    return next_path
