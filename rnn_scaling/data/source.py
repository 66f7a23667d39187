"""What every data source is given, and what it hands to the training step."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rnn_scaling.config.run_options import DataOptions

if TYPE_CHECKING:  # it loads TensorFlow
    from rnn_scaling.models.layout import Layout


@dataclasses.dataclass(frozen=True)
class Feed:
    """What batches are wanted, and where."""

    options: DataOptions
    layout: "Layout"
    batch_sizes: tuple[int, ...]  # samples of each tower of all workers a step
    split: bool  # cut the towers' batches from one global batch (strong scaling)
    seed: int  # of what is random and the shuffling
    devices: tuple[str, ...]  # one for each tower of this worker
    first_tower: int = 0  # number of the first of these among the towers of all workers
    first_step: int = (
        0  # number of the first step; a pipeline skips the batches of earlier steps
    )

    @property
    def own_towers(self) -> slice:
        """This worker's towers among those of all."""
        return slice(self.first_tower, self.first_tower + len(self.devices))

    @property
    def own_batch_sizes(self) -> tuple[int, ...]:
        """Samples of each tower of this worker a step."""
        return self.batch_sizes[self.own_towers]

    @property
    def max_lengths(self) -> tuple[int, ...]:
        """Words of the longest sentence of each side."""
        return tuple(
            getattr(self.options, f"{side.name}_max_len") for side in self.layout.sides
        )

    @property
    def pipeline_batch_sizes(self) -> tuple[int, ...]:
        """Sizes of the batches that a pipeline makes in turn: one per tower, or the global batch that is split."""
        return (sum(self.batch_sizes),) if self.split else self.batch_sizes


@dataclasses.dataclass
class Source:
    """Batches for every tower; owns the iterators and tables that they come from.

    Each source module has `build(feed)`, which returns one of these. With `feed.split` (strong scaling) the batches of
    sources that read files, and of `host`, are pieces of one global batch, the same one whatever the number of towers.
    `device` and `constant` draw each tower's batches separately. So their batches change with that number, and those of
    `host` differ from those of `device`. Keep the object alive as long as a `tf.function` that called it.
    """

    # One batch for each of the feed's devices, on it, of the type that the feed's layout makes, for a step's number
    # from 0, an int64 scalar; pipelines do not read it. Called while a `tf.function` is traced, once a step.
    next_batches: Callable[[Any], list[Any]]
    num_samples: int | None = (
        None  # of an epoch, of a fixed set of samples; None: not counted
    )
    keep: Any = None  # what must live as long as this, such as tables
