"""The verdict on a script, from the records of its runs.

Pure: anybody can repeat a verdict from a certificate. `judge` is the whole interface.
`plan` lists the runs by their names. A new check is a method of `_Judge` and a line of
its `verdict`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.verification import numbers, signatures
from rnn_scaling.verification.scripts import accounting, facts, samples, settings
from rnn_scaling.verification.scripts.comparison import Noise
from rnn_scaling.verification.scripts.evidence import (
    Evidence,
    OwnNoise,
    Record,
    Relation,
    has_random_data,
    is_random,
    relation_of_noise,
)
from rnn_scaling.verification.scripts.gradient_judge import GradientJudge
from rnn_scaling.verification.scripts.verdict import (
    Answer,
    Check,
    Result,
    Verdict,
    wrong_check,
)
from rnn_scaling.verification.signatures import (
    Cause,
    ClippingFeatures,
    RateFeatures,
    ReplicaFeatures,
    SampleFeatures,
    Shards,
    StateFeatures,
    Subject,
)

# Difference of two equal runs, as a share of the gradient; above it the script is
# random.
_MAX_DIFFERENCE_OF_REPEATS = 1e-3
# Share of the samples that are missing, and of those read twice, if each of two ranks
# shuffles by itself; it is a quarter on average.
_MIN_OVERLAP = 0.1
_MAX_CHANGE_OF_RATE = 0.5  # of a learning rate between two steps of a schedule


def judge(runs: Mapping[str, Record]) -> Verdict:
    """Return the verdict on a script.

    Args:
      runs: The records of the runs by name; see `plan.Conductor`.
    """
    for name in ("serial", "parallel", "reference"):
        if problem := _judge_problem(name, runs):
            return problem
    verdict = _Judge(Evidence(runs)).verdict()
    if verdict.answer is Answer.RIGHT:
        # The reference may end early, as its batches are prescribed.
        for name in ("serial", "parallel"):
            if problem := _judge_failure(name, runs[name]):
                return problem
    return verdict


def _judge_failure(name: str, run: Record) -> Verdict | None:
    """Return the verdict if a rank of a run has failed; None if none has.

    A rank without inputs for the last steps fails when the other ranks end.
    """
    for rank in run["ranks"]:
        if rank["status"] > 0 and "joined" not in rank:
            values = {
                "ranks": len(run["ranks"]),
                "run": name,
                "line": rank["log"][-1] if rank["log"] else "no output",
            }
            return Verdict(Answer.CANNOT_TELL, reason="failed", values=values)
    return None


def _judge_problem(name: str, runs: Mapping[str, Record]) -> Verdict | None:
    """Return the verdict if a run cannot be judged."""
    run = runs.get(name)
    if run is None:
        return Verdict(Answer.CANNOT_TELL, reason="no-run", values={"run": name})
    values: dict[str, Any] = {"ranks": len(run["ranks"]), "run": name}
    reasons = [(rank["end"] or {}).get("reason") for rank in run["ranks"]]
    has_idle_rank = not all(rank["steps"] for rank in run["ranks"])
    if has_idle_rank and any("follows" in rank for rank in run["ranks"]):
        return Verdict(Answer.CANNOT_TELL, reason="one-updates")
    if has_idle_rank and "steps" in reasons and not run["timed_out"]:
        cause = Cause.UNEQUAL_STEPS
        check = wrong_check(Subject.WEIGHTS, "weights", 1, cause)
        return Verdict(Answer.WRONG, (check,))
    if all(rank["steps"] for rank in run["ranks"]):
        return None
    if problem := _judge_failure(name, run):
        return problem
    reason = "timed-out" if run["timed_out"] else "no-steps"
    return Verdict(Answer.CANNOT_TELL, reason=reason, values=values)


def _are_equal_rates(rates: Any, expected: Any) -> bool:
    return bool(np.allclose(rates, expected, rtol=1e-6, atol=0))


class _Judge:
    """Makes all checks, and collects the conditions that were not driven."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._gradient_judge = GradientJudge(evidence)
        self._not_covered: list[str] = []

    def verdict(self) -> Verdict:
        """Make all checks, and answer by the worst of them."""
        repeats = self._difference_of_repeats()
        if reason := self._reason_not_to_judge(repeats):
            values = {"share": repeats}
            # The norm of a shard is not the norm of all gradients.
            clipping = self._clipping(self._evidence.ranks)
            if reason == "flat-parameters" and clipping:
                return Verdict(Answer.WRONG, (clipping,))
            return Verdict(Answer.CANNOT_TELL, reason=reason, values=values)
        gradients = self._gradient_judge.judge()
        if gradients.kind == "by-parts":
            self._not_covered.append("by-parts")
            first_steps = [rank["steps"][0] for rank in self._evidence.ranks]
            if facts.uses_other_ranks(first_steps, "exchanges"):
                self._not_covered.append("gathered")
        if any("joined" in rank for rank in self._evidence.ranks):
            self._not_covered.append("uneven")
        if "OptimizedModule" in self._evidence.serial["start"]["layers"]:
            self._not_covered.append("compiled")
        checks = [
            self._samples(),
            settings.compare(*self._evidence.parallel_runs()),
            self._initial_weights(),
            gradients,
            self._random_samples(),
            self._accumulation(),
            self._rates(),
            self._dropout(),
            self._state(),
            self._weights(),
            self._buffers(),
            self._driven(gradients),
            self._order(),
        ]
        known = tuple(check for check in checks if check is not None)
        answer = Answer.RIGHT
        reason = ""
        if any(check.result is Result.WRONG for check in known):
            answer = Answer.WRONG
        elif gradients.result is Result.NOT_COVERED:
            answer = Answer.CANNOT_TELL
            reason = gradients.kind
        values = {"steps": self._evidence.num_steps}
        return Verdict(answer, known, reason, values, tuple(self._not_covered))

    def _reason_not_to_judge(self, difference_of_repeats: float) -> str:
        """Return why the runs cannot be compared, or ""."""
        if difference_of_repeats > _MAX_DIFFERENCE_OF_REPEATS:
            return "random"
        ranks = [*self._evidence.ranks, self._evidence.reference]
        if any(rank["steps"][0].get("has_flat_parameters") for rank in ranks):
            return "flat-parameters"
        if facts.splits_layers(self._evidence.ranks[0]["start"]):
            return "tensor-parallel"
        if facts.averages_weights(self._evidence.ranks):
            return "local-sgd"
        return "" if self._evidence.has_same_weights() else "other-weights"

    def _difference_of_repeats(self) -> float:
        """Return how much two equal serial runs differ, as a share of the gradient."""
        repeated = self._evidence.runs.get("repeated")
        if repeated is None or not repeated["ranks"][0]["steps"]:
            return 0.0
        step = self._evidence.reference["steps"][0]
        repeated_step = repeated["ranks"][0]["steps"][0]
        if numbers.digests(step["gradients"]) == numbers.digests(
            repeated_step["gradients"]
        ):
            return 0.0
        expected = numbers.sketches(step["gradients"])
        actual = numbers.sketches(repeated_step["gradients"])
        distances = numbers.distances(actual, expected).values()
        difference = math.hypot(*distances)
        return difference / max(numbers.norm(expected), 1e-30)

    def _samples(self) -> Check:
        """Judge whether the ranks together read each sample as often as one process."""
        counts = samples.missing_and_repeated(
            self._evidence.runs["parallel"],
            self._evidence.runs["serial"],
            self._evidence.joint,
        )
        if counts is None:
            return self._samples_by_content()
        missing, repeated, total = counts
        step_size = max(map(samples.num_samples, self._evidence.joint.steps()))
        values = {"missing": missing, "repeated": repeated, "total": total}
        min_repeated = max(step_size, self._evidence.num_ranks)
        features = SampleFeatures(
            missing=samples.leaves_out_too_many(
                missing,
                self._evidence.runs["parallel"],
                self._evidence.runs["serial"],
                self._evidence.joint,
            ),
            repeated=repeated >= min_repeated,
            shards=self._relation_of_shards(missing, repeated, total),
        )
        if any(features.known().values()):
            cause = signatures.find_cause(Subject.SAMPLES, features)
            return wrong_check(Subject.SAMPLES, "samples", 1, cause, values)
        return Check(Subject.SAMPLES, Result.OK, "samples", values=values)

    def _samples_by_content(self) -> Check:
        """Judge whether ranks repeat samples in steps in which one process repeats none."""
        total = 0
        repeated = 0
        ranks, serial = self._evidence.with_own_noise(self._evidence.serial)
        for num_steps in range(2, self._evidence.num_steps + 1):
            steps: list[Record] = []
            for rank in ranks:
                steps += rank["steps"][:num_steps]
            serial_steps = serial["steps"][:num_steps]
            rows, serial_rows = samples.rows_of_steps(steps, serial_steps)
            if not rows.total() == serial_rows.total() == len(serial_rows):
                break
            total = rows.total()
            repeated = total - len(rows)
        skipped, num_passed = samples.skipped(ranks, serial)
        features = SampleFeatures(
            missing=skipped > _MIN_OVERLAP * num_passed,
            repeated=repeated > _MIN_OVERLAP * total,
        )
        if any(features.known().values()):
            values = {
                "missing": skipped,
                "repeated": repeated,
                "total": num_passed if features.missing else total,
            }
            cause = signatures.find_cause(Subject.SAMPLES, features)
            return wrong_check(Subject.SAMPLES, "samples", 1, cause, values)
        self._not_covered.append("no-sample-numbers")
        return Check(Subject.SAMPLES, Result.NOT_COVERED, "samples-unknown")

    def _relation_of_shards(
        self, missing: int, repeated: int, total: int
    ) -> Shards | None:
        """Return how shards overlap; None if they hardly do.

        If they overlap, as many samples are missing as repeated.
        """
        min_samples = _MIN_OVERLAP * total
        if abs(missing - repeated) >= min_samples or missing <= min_samples:
            return None
        if missing < (1 - _MIN_OVERLAP) * total * (1 - 1 / self._evidence.num_ranks):
            return Shards.OVERLAPPING
        return Shards.SAME

    def _random_samples(self) -> Check | None:
        """Judge whether random numbers differ between ranks; None if none are drawn."""
        ranks, one_process = self._evidence.with_own_noise(self._evidence.reference)
        noise = relation_of_noise(ranks, one_process)
        are_equal = noise is OwnNoise.EQUAL or self._evidence.has_equal_noise(ranks)
        is_drawn = are_equal or has_random_data(ranks)
        if noise is OwnNoise.NONE and not is_drawn:
            return None
        probes = []
        for rank in ranks:
            digests = (rank["end"] or {}).get("probes", [])
            probes.append([digest for digest in digests if is_random(digest)])
        if noise is OwnNoise.NONE and all(probes):
            are_equal |= all(each == probes[0] for each in probes[1:])
        if are_equal:
            return wrong_check(Subject.RANDOM, "random-samples", 1, Cause.EQUAL_NOISE)
        return Check(Subject.RANDOM, Result.OK, "random-samples")

    def _order(self) -> Check | None:
        """Judge whether epochs differ in order; None if only one was read."""
        driven = self._evidence.runs.get("driven")
        if driven is None or not driven["ranks"][0]["steps"]:
            self._not_covered.append("no-second-epoch")
            return None
        rank = driven["ranks"][0]
        loader = samples.training_loader(rank)
        repeats = samples.repeats_accesses(rank)
        if loader is not None:
            repeats = samples.repeats_order(rank, loader)
        if repeats is None:
            self._not_covered.append("no-second-epoch")
            return None
        if repeats:
            return wrong_check(Subject.ORDER, "order", 1, Cause.SAME_ORDER)
        return Check(Subject.ORDER, Result.OK, "order")

    def _initial_weights(self) -> Check:
        """Judge whether all ranks begin with the same weights and buffers."""
        starts = [rank["start"] for rank in self._evidence.ranks]
        fields = ["weights"]
        # Other frameworks show their buffers after the first forward pass.
        if "torch" in starts[0] and not starts[0]["broadcasts_buffers"]:
            fields.append("buffers")
        differ = facts.frozen_weights_differ(starts)
        for field in fields:
            digests = [numbers.digests(start[field]) for start in starts]
            differ |= any(each != digests[0] for each in digests)
        if differ:
            cause = Cause.INITIAL_WEIGHTS
            return wrong_check(Subject.INITIAL, "initial", 1, cause)
        return Check(Subject.INITIAL, Result.OK, "initial")

    def _accumulation(self) -> Check | None:
        """Judge how the micro-batches of one rank count; None if it has only one."""
        if self._evidence.num_micro < 2:
            return None
        for number, step in enumerate(self._evidence.ranks[0]["steps"]):
            found = accounting.account(step)
            if found is None:
                self._not_covered.append("accumulation")
                return None
            meaning = accounting.weighting_of_micro_batches(found)
            if meaning is accounting.MicroBatches.MEAN:
                cause = Cause.MEAN_OF_MICRO_BATCHES
                return wrong_check(
                    Subject.ACCUMULATION, "accumulation", number + 1, cause
                )
        serial = accounting.serial_total(self._evidence.serial["steps"])
        num_micro = samples.num_micro_batches(self._evidence.serial["steps"][0])
        if serial and num_micro > 1 and math.isclose(serial, num_micro, rel_tol=1e-3):
            values = {"factor": float(num_micro)}
            cause = Cause.MICRO_BATCHES_SUMMED
            return wrong_check(Subject.ACCUMULATION, "accumulation", 1, cause, values)
        return Check(Subject.ACCUMULATION, Result.OK, "accumulation")

    def _rates(self) -> Check:
        """Judge the learning rates, and how often the scheduler is called."""
        steps = self._evidence.ranks[0]["steps"]
        values: dict[str, Any] = {
            "rates": [step["rates"] for step in steps],
            "calls": [step["scheduler_calls"] for step in steps],
        }
        check = self._scheduler_calls(values)
        if check is None:
            serial_steps = self._evidence.serial["steps"]
            values["serial_rates"] = [step["rates"] for step in serial_steps]
            check = self._different_rates(values)
        return check or Check(Subject.RATES, Result.OK, "rates", values=values)

    def _scheduler_calls(self, values: dict[str, Any]) -> Check | None:
        """Return the check of a scheduler that ranks call too often, or None."""
        steps = self._evidence.ranks[0]["steps"]
        for number, (step, serial_step) in enumerate(
            zip(steps, self._evidence.serial["steps"])
        ):
            calls = step["scheduler_calls"]
            right_calls = serial_step["scheduler_calls"]
            if step.get("steps_by_samples"):
                right_calls *= self._evidence.growth_of_batch(number)
            if calls > right_calls > 0 and number > 0:
                values["factor"] = calls / right_calls
                cause = signatures.find_cause(Subject.RATES, RateFeatures(often=True))
                return wrong_check(Subject.RATES, "rates", number + 1, cause, values)
        return None

    def _different_rates(self, values: dict[str, Any]) -> Check | None:
        """Return the check of the first rate that differs from one process, or None.

        Rates and options are only compared if the ranks read the samples of one
        process. With noise in the samples, losses differ, on which later rates may
        depend.
        """
        serial_rates = values["serial_rates"]
        if self._evidence.relation("parallel", "serial") is Relation.SAME:
            num_compared = len(serial_rates)
        else:
            num_compared = int(self._has_batch_of_one_process())
        is_replayed = "replay" in self._evidence.runs["reference"]["settings"]
        if is_replayed and self._evidence.growth_of_batch(0) != 1:
            num_compared = 0
        if not num_compared:
            self._not_covered.append("rates")
        for number, (rates, right_rates) in enumerate(
            zip(values["rates"][:num_compared], serial_rates)
        ):
            features = RateFeatures()
            if _are_equal_rates(rates, right_rates):
                values["names"] = self._different_options(number)
                if not values["names"]:
                    continue
                features = RateFeatures(options=True)
            # The step of one process after as many calls of the scheduler.
            later = self._evidence.num_ranks * number
            if 0 < later < len(serial_rates) and _are_equal_rates(
                rates, serial_rates[later]
            ):
                features = RateFeatures(often=True)
            cause = signatures.find_cause(Subject.RATES, features)
            return wrong_check(Subject.RATES, "rates", number + 1, cause, values)
        return None

    def _different_options(self, number: int) -> list[str]:
        """Return the options of a step's optimizer that differ from one process."""
        groups = self._evidence.ranks[0]["steps"][number].get("options", ())
        serial_groups = self._evidence.serial["steps"][number].get("options", ())
        names: dict[str, None] = {}
        for group, serial_group in zip(groups, serial_groups):
            names |= dict.fromkeys(settings.differing(group, serial_group))
        return list(names)

    def _has_batch_of_one_process(self) -> bool:
        """Return whether all ranks together read as many samples as one process."""
        joint = self._evidence.joint
        is_known = joint.is_known and joint.loader is not None
        return is_known and self._evidence.growth_of_batch(0) == 1

    def _dropout(self) -> Check | None:
        """Judge whether ranks draw different dropout; None if they draw none."""
        states = [rank["steps"][0]["dropout"] for rank in self._evidence.ranks]
        if None in states:
            return None
        if len(set(states)) < len(states):
            return wrong_check(Subject.DROPOUT, "dropout", 1, Cause.EQUAL_DROPOUT)
        return Check(Subject.DROPOUT, Result.OK, "dropout")

    def _state(self) -> Check:
        """Judge whether the optimizer keeps its state and restores a loaded one."""
        for rank in [*self._evidence.ranks, self._evidence.serial]:
            lost = _lost_state(rank["steps"])
            if lost is not None:
                number, of_schedule = lost
                features = StateFeatures(of_schedule=of_schedule)
                cause = signatures.find_cause(Subject.STATE, features)
                return wrong_check(Subject.STATE, "state", number + 1, cause)
        for ranks in self._evidence.parallel_runs():
            step = _find_step_with_state_on_some_ranks(ranks)
            if step is not None:
                return wrong_check(
                    Subject.STATE, "state", step + 1, Cause.STATES_DIFFER
                )
        self._not_covered.append("resume")
        return Check(Subject.STATE, Result.OK, "state")

    def _weights(self) -> Check:
        """Judge whether all ranks have equal weights after each step."""
        for number in range(self._evidence.num_steps):
            steps = [rank["steps"][number] for rank in self._evidence.ranks]
            searches = [step.get("searched_losses", ()) for step in steps]
            if not all(_are_near(one, searches[0]) for one in searches):
                features = ReplicaFeatures(searches_differ=True)
                cause = signatures.find_cause(Subject.WEIGHTS, features)
                return wrong_check(Subject.WEIGHTS, "weights", number + 1, cause)
        noise = Noise(self._evidence.reference, self._evidence.perturbed, "weights")
        return self._between_ranks("weights", Subject.WEIGHTS, noise)

    def _buffers(self) -> Check | None:
        """Judge whether all ranks have equal buffers; None if they may differ."""
        start = self._evidence.ranks[0]["start"]
        if not start["buffers"]:
            return None
        if self._evidence.has_local_norm() and start["broadcasts_buffers"]:
            return None  # They are equalised when the next forward pass begins.
        noise = Noise(self._evidence.reference, self._evidence.perturbed, "buffers")
        return self._between_ranks("buffers", Subject.BUFFERS, noise)

    def _between_ranks(self, field: str, subject: Subject, noise: Noise) -> Check:
        """Compare a field of all ranks with the first rank after each step."""
        largest = 0.0
        for number in range(self._evidence.num_steps):
            # A script may exchange buffers after the step, which ends the last one.
            shown = max(0, min(number, self._evidence.num_steps - 2))
            if field == "buffers" and facts.next_step_starts_equally(
                self._evidence.ranks, shown, "buffers_before"
            ):
                continue
            first = self._evidence.ranks[0]["steps"][number][field]
            expected = numbers.sketches(first)
            for rank in self._evidence.ranks[1:]:
                other = rank["steps"][number][field]
                if numbers.digests(other) == numbers.digests(first):
                    continue
                difference = noise.compare(number, numbers.sketches(other), expected)
                largest = max(largest, difference.ratio)
                if difference.parameters:
                    passes = self._evidence.num_passes(number)
                    features = ReplicaFeatures(
                        passes_differ=len(passes) > 1,
                        states_differ=field == "weights"
                        and facts.apply_equally(self._evidence.ranks, number),
                    )
                    cause = signatures.find_cause(subject, features)
                    names = self._evidence.ranks[0]["start"]["names"]
                    wrong = [names.get(key, key) for key in difference.parameters]
                    values = {"parameters": wrong}
                    return wrong_check(
                        subject, field, number + 1, cause, values, difference.ratio
                    )
        return Check(subject, Result.OK, field, ratio=largest)

    def _driven(self, gradients: Check) -> Check | None:
        """Judge the run with active clipping and an incomplete last batch."""
        if gradients.result is Result.WRONG:
            return None
        driven = self._evidence.runs.get("driven")
        has_clips = any(step["clips"] for step in self._evidence.ranks[0]["steps"])
        if driven and not all(rank["steps"] for rank in driven["ranks"]):
            driven = None
        if driven and (clipping := self._clipping(driven["ranks"])):
            return clipping
        if not driven or not self._is_driven_comparable(driven, gradients):
            self._not_covered += ["clipping"] * has_clips + ["last-batch"]
            return None
        check = self._gradient_judge.against_reference("driven", "driven_reference")
        check = dataclasses.replace(check, subject=Subject.CLIPPING, kind="driven")
        if check.step == 1 and has_clips:
            return dataclasses.replace(check, cause=Cause.CLIPPING)
        conditions = driven["settings"]
        if "max_samples" not in conditions or conditions.get("has_complete_batches"):
            self._not_covered.append("last-batch")
        return check

    def _is_driven_comparable(self, driven: Record, gradients: Check) -> bool:
        """Return whether one process has computed the steps of the driven run."""
        reference = self._evidence.runs.get("driven_reference")
        if not reference or gradients.kind != "gradients":
            return False
        num_steps = len(driven["ranks"][0]["steps"])
        if len(reference["ranks"][0]["steps"]) < num_steps:
            return False
        relation = self._evidence.relation("driven", "driven_reference")
        return relation is Relation.SAME

    def _clipping(self, ranks: list[Record]) -> Check | None:
        """Return the check of norms that clipping should not see; None if all are right."""
        step = ranks[0]["steps"][0]
        if not step["clips"]:
            return None
        norms = []
        for rank in ranks:
            clips = [clip for clip in rank["steps"][0]["clips"] if clip["own"] < np.inf]
            norms.append([clip["norm"] for clip in clips])
        num_micro = samples.num_micro_batches(step)
        features = ClippingFeatures(
            often=num_micro > 1 and len(step["clips"]) == num_micro,
            local_norms=not all(_are_near(one, norms[0]) for one in norms),
        )
        if not any(features.known().values()):
            return None
        values = {"norms": norms, "bound": step["clips"][0]["bound"]}
        cause = signatures.find_cause(Subject.CLIPPING, features)
        return wrong_check(Subject.CLIPPING, "driven", 1, cause, values)


def _are_near(first: list[float], second: list[float], tolerance: float = 1e-3) -> bool:
    """Return whether there are equally many numbers, which differ by little."""
    return len(first) == len(second) and np.allclose(first, second, rtol=tolerance)


def _lost_state(steps: list[Record]) -> tuple[int, bool] | None:
    """Return the first step with a lost state, and whether it is a schedule's.

    A loaded state that is not restored is lost. A new optimizer without state that
    takes the place of an equal one with state counts too.
    """
    states: dict[int, int] = {}
    for number, step in enumerate(steps):
        if step.get("lost"):
            return number, step["lost"] == "schedule"
        optimizer = step["optimizer"]
        count = step["num_states"]
        if count < states.get(optimizer, 0):
            return number, False
        is_new = optimizer not in states and optimizer > max(states, default=optimizer)
        if is_new and count == 0 and _replaces_equal_optimizer(steps, number):
            return number, False
        states[optimizer] = count
    return None


def _find_step_with_state_on_some_ranks(ranks: Sequence[Record]) -> int | None:
    """Return the first step of a new optimizer that has a state only on some ranks.

    For example, only one rank loads a checkpoint.
    """
    known: set[int] = set()
    for number, steps in enumerate(zip(*(rank["steps"] for rank in ranks))):
        optimizers = {step["optimizer"] for step in steps}
        have_state = {step["num_states"] > 0 for step in steps}
        if len(optimizers) == 1 and len(have_state) == 2 and not optimizers & known:
            return number
        known |= optimizers
    return None


def _replaces_equal_optimizer(steps: list[Record], number: int) -> bool:
    """Return whether an optimizer with state, which ends before a step, is like its own.

    Another phase of training, such as fine-tuning, has other parameters, options or
    learning rates.
    """
    new = steps[number]
    later = {step["optimizer"] for step in steps[number:]}
    for step in steps[:number]:
        if step["optimizer"] in later or not step["num_states"]:
            continue
        has_same_options = step.get("options") == new.get("options")
        has_same_parameters = step["weights"].keys() == new["weights"].keys()
        are_near = _are_near(step["rates"], new["rates"], _MAX_CHANGE_OF_RATE)
        if has_same_options and has_same_parameters and are_near:
            return True
    return False
