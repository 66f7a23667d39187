"""The copies of the variables that a run trains, before and after each batch.

Both certifiers read them here; nothing changes the variables.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.training.train_step import TrainStep
from rnn_scaling.verification.gradients import Towers
from rnn_scaling.verification.rule import Arrays


@dataclasses.dataclass(frozen=True)
class Replica:
    """One copy of the variables.

    Attributes:
      tower: The tower that has this copy, or None if all towers share it.
      weights: The variables.
    """

    tower: int | None
    weights: Arrays

    @property
    def name(self) -> str:
        return "" if self.tower is None else f"tower {self.tower}"


@dataclasses.dataclass(frozen=True)
class TrainedBatch:
    """A batch and the replicas around it.

    Attributes:
      number: The step.
      towers: The batches of all towers.
      stale_replicas: The replicas before the preceding batch.
      replicas_before: The replicas before this batch.
      replicas_after: The replicas after this batch.
    """

    number: int
    towers: Towers
    stale_replicas: list[Replica]
    replicas_before: list[Replica]
    replicas_after: list[Replica]


def weights_by_tower(step: TrainStep) -> dict[int | None, Arrays]:
    """Return the variables of each replica.

    Returns:
      Variables by tower; the key is None if all towers share the replica.
    """
    pieces_by_tower: dict[int | None, dict[str, list[np.ndarray]]] = {}
    for state in step.list_variables():
        replica = pieces_by_tower.setdefault(state.tower, {})
        replica.setdefault(state.name, []).append(state.variable.numpy())
    return {
        tower: _concatenate_pieces(replica)
        for tower, replica in pieces_by_tower.items()
    }


def _concatenate_pieces(pieces: Mapping[str, Sequence[np.ndarray]]) -> Arrays:
    return {
        name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        for name, arrays in pieces.items()
    }
