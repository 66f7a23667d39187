"""The input of every data source (Feed) and its output (Source).

A data source is a module with `build(feed) -> Source` and a row of
`config.registry.DATA_SOURCES`.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rnn_scaling.config.run_options import DataOptions

if TYPE_CHECKING:  # it loads TensorFlow
    from rnn_scaling.models.layout import Layout


@dataclasses.dataclass(frozen=True)
class Feed:
    """The batches that a worker needs and the devices that they go to."""

    options: DataOptions
    layout: "Layout"
    batch_sizes: tuple[int, ...]  # samples per step of each tower of all workers
    split: bool  # cut the towers' batches from one global batch (strong scaling)
    seed: int  # seed of random batches and of the shuffling
    devices: tuple[str, ...]  # one for each tower of this worker
    first_tower: int = 0  # this worker's first tower, counted over all workers
    first_step: int = 0  # a pipeline skips the batches of earlier steps

    @property
    def own_towers(self) -> slice:
        """The towers of this worker among the towers of all workers."""
        return slice(self.first_tower, self.first_tower + len(self.devices))

    @property
    def own_batch_sizes(self) -> tuple[int, ...]:
        """Samples per step of each tower of this worker."""
        return self.batch_sizes[self.own_towers]

    @property
    def max_lengths(self) -> tuple[int, ...]:
        """Words of the longest sentence of each side."""
        return tuple(
            getattr(self.options, f"{side.name}_max_len") for side in self.layout.sides
        )

    @property
    def pipeline_batch_sizes(self) -> tuple[int, ...]:
        """Sizes of the batches that a pipeline makes in turn.

        One per tower, or only the size of the global batch if it is split later.
        """
        return (sum(self.batch_sizes),) if self.split else self.batch_sizes


@dataclasses.dataclass
class Source:
    """Batches for every tower, with the iterators and tables that they come from.

    Each source module has `build(feed)`, which returns a Source. With `feed.split`
    (strong scaling) the sources that read files, and `host`, cut the batches from one
    global batch, which does not depend on the number of towers. `device` and
    `constant` draw each tower's batches separately. So their batches depend on the
    number of towers, and `host` has other batches than `device`. Keep the object alive
    as long as a `tf.function` that called it.
    """

    # Takes the number of the step from 0, an int64 scalar, and returns one batch on
    # each of the feed's devices, of the type that the feed's layout makes. It is
    # called once per step while a `tf.function` is traced. Pipelines ignore the number.
    next_batches: Callable[[Any], list[Any]]
    # Samples per epoch, or of a fixed set of samples; None if they are not counted.
    num_samples: int | None = None
    keep: Any = None  # objects that must live as long as this one, such as tables
