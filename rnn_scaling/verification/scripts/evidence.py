"""The runs of a script, as the checks read them.

`plan` makes the runs, `Evidence` gives them names, and the judges read nothing else.
"""

from __future__ import annotations

import enum
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.verification import numbers, sums
from rnn_scaling.verification.scripts import comparison, samples, settings
from rnn_scaling.verification.scripts.comparison import Noise

_NORM_LAYERS = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d")

Record = Mapping[str, Any]


class OwnNoise(enum.Enum):
    """The random numbers that a script draws itself, such as the noise of a GAN."""

    NONE = "none that differ from the numbers of one process"
    DIFFERENT = "other numbers on other processes"
    EQUAL = "each process draws its share, and the shares are equal"


class Relation(enum.Enum):
    """The relation of one process's samples to the samples of all ranks."""

    SAME = "same"
    FEWER = "the ranks leave some out"
    REPEATED = "the ranks read some twice"
    OTHER = "other"


class Evidence:
    """The records of all runs, and what several checks ask about them.

    Attributes:
      runs: The records of the runs by name; see `plan.Conductor`.
      ranks: The ranks of the parallel run.
      serial: The run of one process with its own batches.
      reference: The run of one process on the samples of all ranks.
      perturbed: The runs that show the effect of rounding, and equal repeats.
      noise: The effect of rounding on gradients.
      num_micro: Micro-batches per step and rank.
      joint: The samples of all ranks in each step.
    """

    def __init__(self, runs: Mapping[str, Record]) -> None:
        self.runs = runs
        self.ranks = runs["parallel"]["ranks"]
        self.serial = runs["serial"]["ranks"][0]
        self.reference = runs["reference"]["ranks"][0]
        self.perturbed = []
        for name, run in runs.items():
            rank = run["ranks"][0]
            if name.startswith(("perturbed", "repeated")) and rank["steps"]:
                self.perturbed.append(rank)
        self.noise = Noise(self.reference, self.perturbed)
        self.num_ranks = len(self.ranks)
        self.num_steps = min(len(rank["steps"]) for rank in self.ranks)
        self.num_micro = samples.num_micro_batches(self.ranks[0]["steps"][0])
        self.joint = samples.JointBatches(runs["parallel"], runs["serial"])

    def has_same_weights(self) -> bool:
        """Return whether one process starts with the weights of the first rank.

        The hooks of torch copy the weights; other hooks cannot.
        """
        starts = [self.reference["start"], self.ranks[0]["start"]]
        digests = [numbers.digests(start["weights"]) for start in starts]
        return "torch" in starts[0] or digests[0] == digests[1]

    def parallel_runs(self) -> list[list[Record]]:
        """Return the ranks of each run of several processes."""
        driven = self.runs.get("driven", {"ranks": []})["ranks"]
        is_complete = driven and all(rank["steps"] for rank in driven)
        return [self.ranks, driven] if is_complete else [self.ranks]

    def with_own_noise(self, one_process: Record) -> tuple[list[Record], Record]:
        """Return the ranks and one process, if possible without fixed numbers.

        Args:
          one_process: The run of one process if no numbers are fixed.
        """
        if "noisy" not in self.runs:
            return self.ranks, one_process
        return self.runs["noisy"]["ranks"], self.runs["noisy_serial"]["ranks"][0]

    def noisy_steps(self, number: int) -> list[Record]:
        """Return a step of each rank with its own noise; [] without such a step."""
        ranks = self.runs.get("noisy", {"ranks": []})["ranks"]
        return [rank["steps"][number] for rank in ranks if number < len(rank["steps"])]

    def num_passes(self, number: int) -> set[int]:
        """Return how many backward passes the ranks make up to a step."""
        return {settings.num_passes(rank, number) for rank in self.ranks}

    def growth_of_batch(self, number: int) -> int:
        """Return how many times as many samples all ranks read as one process."""
        joined = self.joint.steps()
        count = 0
        for read in self.serial["steps"][number]["reads"]:
            if read["loader"] == self.joint.loader:
                count += len(read["samples"] or ())
        if number >= len(joined) or not count:
            return 1
        return max(1, round(samples.num_samples(joined[number]) / count))

    def relation(self, parallel: str, reference: str) -> Relation:
        """Return how the samples of a reference relate to the ranks' samples."""
        has_noise = self.own_noise is not OwnNoise.NONE
        if has_noise or self.is_random_data() or self.has_local_norm():
            return Relation.OTHER
        ranks = self.runs[parallel]["ranks"]
        step = self.runs[reference]["ranks"][0]["steps"][0]
        steps = [rank["steps"][0] for rank in ranks]
        rows, reference_rows = samples.rows_of_steps(steps, [step])
        if rows and rows == reference_rows:
            return Relation.SAME
        # A random mixture of a batch, such as mixup, differs for parts of the batch,
        # but may leave some samples as they are.
        num_equal = (rows & reference_rows).total()
        if "noisy" in self.runs and 2 * num_equal < rows.total():
            return Relation.OTHER
        if self.joint.is_known and not self._has_row_per_sample(step, reference_rows):
            return Relation.SAME
        has_fewer = rows and rows.total() < reference_rows.total()
        if has_fewer and not rows - reference_rows:
            return Relation.FEWER
        if rows and not reference_rows - rows and set(rows) == set(reference_rows):
            return Relation.OTHER if self._draws_samples() else Relation.REPEATED
        if self.joint.is_known:
            return Relation.SAME
        locals_ = comparison.local_gradients(steps)
        expected = numbers.sketches(step["gradients"])
        weighting = sums.weigh(expected, locals_, {})
        if weighting is None or weighting.residual > sums.MIN_SHARE:
            return Relation.OTHER
        is_first_only = np.abs(weighting.weights[1:]).max(initial=0.0) < 1e-3
        return Relation.OTHER if is_first_only else Relation.SAME

    def has_other_rows(self) -> bool:
        """Return whether one process computes with other inputs of the same samples."""
        steps = [rank["steps"][0] for rank in self.ranks]
        rows, reference_rows = samples.rows_of_steps(
            steps, [self.reference["steps"][0]]
        )
        return rows.total() == reference_rows.total() and rows != reference_rows

    def mixes_batch(self) -> bool:
        """Return whether a sample's input depends on the other samples of its batch.

        Then one process makes the last rank's inputs of its samples, but only of them.
        """
        isolated = self.runs.get("isolated", {"ranks": [{"steps": ()}]})
        steps = isolated["ranks"][0]["steps"]
        if not steps or not self.has_other_rows():
            return False
        rows, isolated_rows = samples.rows_of_steps(
            [self.ranks[-1]["steps"][0]], [steps[0]]
        )
        return rows == isolated_rows

    def _draws_samples(self) -> bool:
        """Return whether ranks read equal samples only because of fixed random numbers.

        Such samples are random themselves, like episodes of reinforcement learning.
        """
        steps = [rank["steps"][0] for rank in self.ranks]
        noisy_steps = self.noisy_steps(0)
        if not noisy_steps or _have_equal_rows(noisy_steps):
            return False
        return _have_equal_rows(steps)

    def _has_row_per_sample(self, step: Record, rows: Counter[str]) -> bool:
        """Return whether the rows of a step's input are its samples.

        A script may also pass its samples one by one, or time steps as rows.
        """
        count = 0
        for read in step["reads"]:
            if read["loader"] == self.joint.loader:
                count += len(read["samples"] or ())
        return rows.total() == count

    def is_random_data(self) -> bool:
        """Return whether samples that were read twice differ in any run."""
        return has_random_data([*self.ranks, self.serial])

    @functools.cached_property
    def own_noise(self) -> OwnNoise:
        """How the random numbers of the ranks are related to one process."""
        # Fixed numbers are comparable from the first step on.
        first = 0 if "noisy" in self.runs else 1
        return relation_of_noise(self.ranks, self.reference, first)

    def has_equal_noise(self, ranks: Sequence[Record]) -> bool:
        """Return whether ranks draw equal numbers, one or more for each sample.

        Args:
          ranks: The ranks of a run with its own noise.
        """
        steps = []
        for rank in ranks:
            steps.append(
                [step.get("noise") for step in rank["steps"][: self.num_steps]]
            )
        number = min(1, self.num_steps - 1)
        num_drawn = self.ranks[0]["steps"][number].get("drawn", 0)
        all_drawn = self.reference["steps"][number].get("drawn", 0)
        if None in steps[0] or any(each != steps[0] for each in steps):
            return False
        rows, _ = samples.rows_of_steps([ranks[0]["steps"][number]], [])
        is_per_row = str(rows.total()) in steps[0][number].get("by_length", ())
        return is_per_row or 0 < num_drawn < all_drawn

    def has_local_norm(self) -> bool:
        """Return whether layers use the statistics of one rank's batch."""
        layers = self.ranks[0]["start"]["layers"]
        return any(layers.get(name) for name in _NORM_LAYERS)


def _have_equal_rows(steps: Sequence[Record]) -> bool:
    """Return whether all ranks compute a step with the same rows."""
    first, *others = [samples.rows_of_steps([step], [])[0] for step in steps]
    return all(rows == first for rows in others)


def has_random_data(ranks: Sequence[Record]) -> bool:
    """Return whether samples that were read twice differ on any rank."""
    probes: list[list[str]] = []
    for rank in ranks:
        probes += (rank["end"] or {}).get("probes", [])
    return any(map(is_random, probes))


def relation_of_noise(
    ranks: Sequence[Record], one_process: Record, first: int = 1
) -> OwnNoise:
    """Return how the random numbers of ranks and of one process are related.

    Args:
      ranks: The ranks of a run.
      one_process: The run of one process.
      first: The first step that is compared, unless it is the only one. Step 0 may
        include numbers of weights and data.
    """
    found = OwnNoise.NONE
    num_steps = min(len(rank["steps"]) for rank in (*ranks, one_process))
    for number in range(min(first, num_steps - 1), num_steps):
        expected = one_process["steps"][number].get("noise")
        noise = [rank["steps"][number].get("noise") for rank in ranks]
        total = sum(one.get("sum", 0) for one in noise if one)
        if total and expected and total == expected.get("sum"):
            continue  # Together, the ranks draw the numbers of one process.
        if any(one != noise[0] for one in noise):
            return OwnNoise.DIFFERENT
        if not noise[0] or noise[0] == expected:
            continue
        is_share = expected and 0 < noise[0]["count"] < expected["count"]
        if not is_share:
            return OwnNoise.DIFFERENT
        found = OwnNoise.EQUAL
    return found


def previous_step(rank: Record, number: int) -> Record | None:
    """Return the step of the same optimizer before a step; None for its first one."""
    optimizer = rank["steps"][number]["optimizer"]
    for step in reversed(rank["steps"][:number]):
        if step["optimizer"] == optimizer:
            return dict(step)
    return None


def is_random(probe: list[str]) -> bool:
    """Return whether samples that were read twice differ."""
    half = len(probe) // 2
    return probe[:half] != probe[half:]
