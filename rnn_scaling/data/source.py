"""What every data source hands to the training step."""

from __future__ import annotations

from typing import Any, Protocol

from models.batch import Batch


class Source(Protocol):
    """Batches for every tower; owns the iterators and tables that they come from.

    Each source module has `build(data, *, batch_sizes, split, src_vocab_size, tgt_vocab_size, time_major, seed,
    devices)`, which returns one of these. `batch_sizes` are the towers' sentence pairs. With `split` (strong scaling)
    the batches of the sources `text` and `host` are pieces of one global batch, the same one whatever the number of
    towers. `device` and `constant` draw each tower's words apart, so that theirs change with that number, and `host`
    then has other words than `device`. Keep the object alive as long as a `tf.function` that called it.
    """

    def next_batches(self, step: Any) -> list[Batch]:
        """One batch a tower, each on its tower's device.

        Called while a `tf.function` is traced, once for each step that the function runs.

        Args:
          step: number of the step, an int64 scalar tensor; steps count from 0.

        Returns:
          As many batches as `build` was given devices, in their order.
        """
        ...
