"""The runs of a script that are needed to judge it, and their conditions.

    serial             one process, as the script is written
    parallel           all ranks
    noisy_serial       "serial" and "parallel" with the script's own noise, if it has any;
    noisy              the other runs then have noise that does not depend on the rank
    reference          one process that computes the steps of "parallel"
    repeated           the reference again, which shows randomness
    perturbed0, ...    the reference with weights that are changed by one rounding
    accumulated        the reference without `reference_words`, if there are any
    isolated           one process on the first batch of each rank, and on two halves of
                       one; only if gradients seem wrong, or inputs differ
    driven             "parallel" with active clipping and short epochs
    driven_reference   the reference of "driven"

`session` asks a `Conductor` for them, and `judge` finds them by these names.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.verification.scripts import facts, judge, samples
from rnn_scaling.verification.scripts.evidence import (
    Evidence,
    OwnNoise,
    has_random_data,
    relation_of_noise,
)
from rnn_scaling.verification.scripts.runner import Runner
from rnn_scaling.verification.signatures import Subject

_UNBOUNDED = 1e30  # a bound of the gradient norm that never acts
_CLIP_SHARE = 0.5  # share of the smallest norm that is the bound of the driven runs
_MAX_PERTURBED = 4
# A difference of this many tolerances is wrong whatever a second perturbation shows.
_CERTAIN_RATIO = 1000.0
_HALF_STEPS_PER_EPOCH = 5  # of a short epoch: it ends in the middle of a step
# A driven run may take this long to start, and then this many times as long as the
# first parallel run.
_DRIVEN_START_S = 20.0
_MAX_DRIVEN_SLOWDOWN = 3.0

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """The sizes of a verification.

    Attributes:
      num_ranks: Number of processes.
      num_steps: Optimizer steps of each run.
      reference_words: Words after the arguments of the serial runs.
      is_driven: Whether the hooks can drive conditions such as active clipping.
    """

    num_ranks: int
    num_steps: int
    reference_words: Sequence[str]
    is_driven: bool = True


class Conductor:
    """Runs the script; each run can depend on the earlier ones.

    The judge finds each run by its name in `runs`: "serial" and "parallel" come first;
    "reference" is one process on the samples of "parallel".
    """

    def __init__(
        self,
        runner: Runner,
        request: Request,
        folder: Path,
        tell: Callable[[str], None],
    ) -> None:
        self._runner = runner
        self._request = request
        self._folder = folder
        self._tell = tell
        self._number = 0
        self._first_fixed: list[int] | None = None
        self.runs: dict[str, Record] = {}

    def conduct(self) -> dict[str, Record]:
        """Return the records of all runs by name."""
        first = {"describe": True, **self._conditions(), "save_weights": None}
        weights = str(self._folder / "weights")
        serial = self._run("serial", 1, first)
        parallel = self._run(
            "parallel", self._request.num_ranks, {**first, "save_weights": weights}
        )
        ranks = parallel["ranks"] + serial["ranks"]
        if not all(rank["steps"] for rank in ranks):
            return self.runs
        noise = relation_of_noise(parallel["ranks"], serial["ranks"][0])
        if noise is not OwnNoise.NONE or has_random_data(ranks):
            serial, parallel = self._fix_noise(first, weights)
        reference = self._reference(parallel, weights)
        self._run("reference", 1, reference)
        scale = facts.find_reference_scale(self.runs, "parallel", "reference")
        if scale != 1.0:
            reference["scale"] = scale
            self._run("reference", 1, reference)
        if self._is_repeated(reference):
            self.runs["repeated"] = serial
        else:
            self._run("repeated", 1, reference)
        self._perturb(reference, range(1))
        if self._request.reference_words:
            self._run("accumulated", 1, self._reference(parallel, weights, 0))
        if self._request.is_driven:
            self._drive(parallel, weights)
        fault = judge.judge(self.runs).fault
        is_gradient = fault and fault.subject is Subject.GRADIENTS
        if fault and (is_gradient or Evidence(self.runs).has_other_rows()):
            self._isolate(parallel, reference)
            fault = judge.judge(self.runs).fault
        if fault and fault.ratio and fault.ratio < _CERTAIN_RATIO:
            self._perturb(reference, range(1, _MAX_PERTURBED))
        return self.runs

    def _fix_noise(self, conditions: Record, weights: str) -> tuple[Record, Record]:
        """Run again with random numbers that do not depend on the rank."""
        own = {name: self.runs[name] for name in ("serial", "parallel")}
        if self._request.is_driven:
            self._first_fixed = facts.first_draw(self.runs["parallel"]["ranks"][0])
            conditions = {**conditions, **self._conditions()}
            serial = self._run("serial", 1, conditions)
            conditions["save_weights"] = weights
            parallel = self._run("parallel", self._request.num_ranks, conditions)
            ranks = serial["ranks"] + parallel["ranks"]
            if all(rank["steps"] and not rank["status"] for rank in ranks):
                self.runs["noisy_serial"] = own["serial"]
                self.runs["noisy"] = own["parallel"]
                return serial, parallel
        self._first_fixed = None
        self.runs.update(own)
        return own["serial"], own["parallel"]

    def _is_repeated(self, reference: Record) -> bool:
        """Return whether the first serial run has the conditions of the reference."""
        serial = self.runs["serial"]["ranks"][0]
        first = self.runs["parallel"]["ranks"][0]
        return (
            "replay" not in reference
            and reference["rates"] == [step["rates"] for step in serial["steps"]]
            and serial["start"]["weights"] == first["start"]["weights"]
        )

    def _conditions(self) -> Record:
        return {
            "num_steps": self._request.num_steps,
            "dropout_off": True,
            "clip": _UNBOUNDED,
            "fixed_noise": self._first_fixed,
        }

    def _run(self, name: str, num_ranks: int, settings: Mapping[str, Any]) -> Record:
        self._tell(name)
        words = self._request.reference_words if num_ranks == 1 else ()
        if name == "accumulated":
            words = ()
        limit_s = None
        if name.startswith("driven"):
            limit_s = _MAX_DRIVEN_SLOWDOWN * self.runs["parallel"]["seconds"]
            limit_s += _DRIVEN_START_S
        self._number += 1
        folder = f"{self._number}-{name}"
        record = self._runner.run(folder, num_ranks, settings, words, limit_s)
        record["settings"] = dict(settings)
        self.runs[name] = record
        return record

    def _reference(
        self, parallel: Record, weights: str, num_micro: int | None = None
    ) -> Record:
        """Return the conditions under which one process computes the same steps.

        Args:
          parallel: The run on several ranks.
          weights: The file of its initial weights.
          num_micro: Batches that one process reads per step; 0 for as many as a rank,
            None for as many as in the first serial run.
        """
        settings = {**self._conditions(), "load_weights": weights}
        settings["rates"] = [step["rates"] for step in parallel["ranks"][0]["steps"]]
        serial = self.runs["serial"]
        joint = samples.JointBatches(parallel, serial)
        if not joint.is_known or joint.loader is None:
            return settings
        joined = joint.steps()
        serial_rank = serial["ranks"][0]
        is_same = samples.is_same_reading(joined, serial_rank, joint.loader)
        is_driven = parallel is not self.runs["parallel"]
        if is_same and not is_driven and num_micro is None:
            return settings
        if num_micro is None:
            num_micro = max(map(samples.num_micro_batches, serial_rank["steps"]))
        loader_facts = samples.describe_loader(parallel["ranks"][0], joint.loader)
        settings["replay"] = {
            "loader": joint.loader,
            "epochs": samples.replay(joined, num_micro),
            "length": (loader_facts or {}).get("length") or len(joined),
        }
        return settings

    def _perturb(self, reference: Record, seeds: Sequence[int]) -> None:
        """Repeat the reference with each weight changed by one rounding."""
        roundings = []
        for name in ("parallel", "reference"):
            for rank in self.runs[name]["ranks"]:
                roundings.append((rank["end"] or {}).get("rounding", 2**-23))
        for seed in seeds:
            perturbation = {"size": max(roundings), "seed": seed}
            settings = {**reference, "perturb": perturbation}
            self._run(f"perturbed{seed}", 1, settings)

    def _isolate(self, parallel: Record, reference: Record) -> None:
        """Let one process read the first batch of each rank alone, the last one first.

        Two halves of the batch of the last rank follow. No step changes the weights.
        """
        joint = samples.JointBatches(parallel, self.runs["serial"])
        if not joint.is_known:
            return
        *first_steps, last_step = [steps[0] for steps in joint.ranks]
        halves = samples.split_in_halves(last_step)
        own_steps = [last_step, *first_steps, *halves]
        replay = {
            "loader": joint.loader,
            "epochs": samples.replay(own_steps, len(last_step)),
            "length": len(own_steps) * len(last_step),
        }
        num_steps = len(own_steps)
        rates = [[0.0] * len(reference["rates"][0])] * num_steps
        settings = {
            **reference,
            "num_steps": num_steps,
            "rates": rates,
            "replay": replay,
        }
        settings.pop("scale", None)  # The batch is as large as one process reads.
        self._run("isolated", 1, settings)

    def _drive(self, parallel: Record, weights: str) -> None:
        """Run again with active clipping and short epochs."""
        settings = {**self._conditions(), "describe": True}
        norms = []
        for rank in parallel["ranks"]:
            for step in rank["steps"]:
                norms += [clip["norm"] for clip in step["clips"]]
        if norms and min(norms) > 0:
            settings["clip"] = _CLIP_SHARE * min(norms)
        settings["save_weights"] = weights
        driven: Record = {"ranks": []}
        for conditions in self._shorten(parallel) or [{}]:
            settings = {**settings, **conditions}
            driven = self._run("driven", self._request.num_ranks, settings)
            if _is_short(driven, conditions) and _has_usual_shares(driven, parallel):
                break
            # The script does not accept fewer samples, or not as many.
            settings.pop("max_samples", None)
        if not all(rank["steps"] for rank in driven["ranks"]):
            return
        reference = self._reference(driven, weights)
        reference["clip"] = settings["clip"]
        if "scale" in self.runs["reference"]["settings"]:
            reference["scale"] = self.runs["reference"]["settings"]["scale"]
        for name in ("max_samples", "cut_batches"):
            if name in settings:
                reference[name] = settings[name]
        self._run("driven_reference", 1, reference)

    def _shorten(self, parallel: Record) -> list[Record]:
        """Return conditions under which an epoch ends after some steps, best first."""
        serial = self.runs["serial"]
        joint = samples.JointBatches(parallel, serial)
        first_steps = [rank["steps"][0] for rank in parallel["ranks"]]
        step_size = samples.rows_of_steps(first_steps)[0].total()
        end = serial["ranks"][0]["end"] or {}
        num_samples = end.get("num_samples", 0)
        conditions: list[Record] = []
        has_loader = joint.is_known and joint.loader is not None
        if has_loader:
            step_size = samples.num_samples(joint.steps()[0])
            loader_facts = samples.describe_loader(
                serial["ranks"][0], joint.loader or 0
            )
            num_samples = (loader_facts or {}).get("size") or 0
        if step_size:
            size = _HALF_STEPS_PER_EPOCH * step_size // 2 + 1
            size += 1 - size % 2
            conditions.append({"max_samples": size})
            # Shards made by hand may have equal sizes only with the script's own data.
            conditions.append({"max_samples": size + -size % len(first_steps)})
            rest = num_samples % step_size
            size = _HALF_STEPS_PER_EPOCH // 2 * step_size + rest
            if size <= num_samples:
                is_complete = rest == 0
                own = {"max_samples": size, "has_complete_batches": is_complete}
                conditions.append(own)
        if has_loader:
            num_micro = samples.num_micro_batches(first_steps[0])
            conditions.append({"cut_batches": 2 * num_micro})
        return conditions


def _is_short(run: Record, conditions: Record) -> bool:
    """Return whether a driven run has ended well, after more than one epoch."""
    if any(rank["status"] or not rank["steps"] for rank in run["ranks"]):
        return False
    rank = run["ranks"][0]
    loader = samples.training_loader(rank)
    if loader is None or "cut_batches" in conditions:
        return True
    epochs: set[int] = set()
    for step in rank["steps"]:
        epochs.update(read["epoch"] for read in step["reads"])
    return len(epochs) > 1


def _has_usual_shares(driven: Record, parallel: Record) -> bool:
    """Return whether the driven ranks only have unequal shares if the script has them.

    A mean over ranks with equal shares is right, and other data would make it wrong.
    """
    if samples.has_unequal_shares(parallel):
        return True
    return not samples.has_unequal_shares(driven)
