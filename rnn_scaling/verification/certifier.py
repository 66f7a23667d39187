"""Watches a run batch by batch beside a serial one, and says whether its mode does what it promises."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling import entry
from rnn_scaling.models.workload import first_values
from rnn_scaling.records.certificate import Certificate, CertifiedBatch
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.towers import StepResult, TrainStep
from rnn_scaling.verification import batch_check, certificates, diagnosis, guarantees, network_check, replay
from rnn_scaling.verification.diagnosis import BLIND, ROUNDING, Evidence, Findings, Gradient
from rnn_scaling.verification.gradients import Part, SerialGradients, Towers
from rnn_scaling.verification.rule import Arrays
from rnn_scaling.verification.serial import Serial, Step, Training, norm

MOST_EXPLAINED = 3  # batches
MOST_KEPT = 2**29  # bytes of weights that are kept to replay the run
UNEQUAL = "unequal"  # the word where weights differ, until it is explained


@dataclasses.dataclass(frozen=True)
class Replica:
    """One copy of the variables. tower: whose it is; None: all towers'."""

    tower: int | None
    weights: Arrays

    @property
    def name(self) -> str:
        """In a sentence."""
        return "" if self.tower is None else f"tower {self.tower}"


class Certifier:
    """The watch of one process's replicas; see `benchmark.Watch`."""

    def __init__(
        self, config: RunConfig, engine: Engine, step: TrainStep, gradients: SerialGradients | None = None
    ) -> None:
        self._config, self._engine, self._step = config, engine, step
        self._guarantee = guarantees.guarantee_of(config)
        self._gradients = gradients or SerialGradients(config, engine)
        self._own = range(engine.first_tower, engine.first_tower + len(engine.devices))
        first = first_values(self._gradients.specs, config.training.seed)
        self._serial = Serial(config, self._gradients, first, self._guarantee, self._own)
        self._before = self._replicas()
        self._stale = self._before
        self._previous: list[Gradient] | None = None  # the right one of the batch before, by replica
        self._towers_before: Towers | None = None
        self._findings, self._explained = Findings(), 0
        self._word, self._wrong, self._first_wrong = "", "", 0
        self._batches: list[CertifiedBatch] = []
        self._largest = {"loss_difference": 0.0, "weights_difference": 0.0, "weights_moved": 0.0}
        self._first = first
        self._batch_check = batch_check.BatchCheck(config.data.data_source)
        self._history: list[tuple[Towers, list[Replica], list[Replica], list[Replica]]] = []
        self._check_beginning()

    def batch(self, result: StepResult) -> None:
        """Compares what the towers did in the batch that has just ended with serial training."""
        number = len(self._batches)
        towers = self._gradients.towers(number)
        before, after = self._before, self._replicas()
        steps = self._serial.step(number, towers)
        if text := self._batch_check.fault(number, towers):
            self._fault(number, "same batch", text)
        if not self._word:
            self._check_forward(number, result, towers, steps)
        self._check_moving(number)
        largest = self._compare(number, after)
        sizes = [each.nbytes for replica in after for each in replica.weights.values()]
        if (len(self._history) + 1) * sum(sizes) <= MOST_KEPT and len(self._history) == number:
            self._history.append((towers, before, self._stale, after))
        if self._word == UNEQUAL and (self._explained < MOST_EXPLAINED or self._findings.are_right):
            self._explain(number, towers, before, after, steps)
        self._tell(number, result, towers, steps, largest)
        self._before, self._stale, self._towers_before = after, before, towers

    def end(self) -> Certificate:
        """The certificate of all batches."""
        word, text = self._word, self._wrong
        if self._findings.by_place:
            word, text = self._replayed() or self._findings.sentence(
                [replica.name for replica in self._before], self._guarantee.shares_one_model
            )
        outcome = certificates.Outcome(
            config=self._config,
            guarantee=self._guarantee,
            replicas=[replica.name for replica in self._before],
            batches=tuple(self._batches),
            blind=self._blind(),
            variables=len(self._first),
            has_clipped=self._serial.trainings[0].rule.has_clipped,
            **self._largest,
        )
        if self._findings.are_right and self._explained == len(self._batches) - self._first_wrong:
            return certificates.right_by_steps(outcome, self._first_wrong)
        if self._wrong:
            return certificates.wrong(outcome, word, text, self._first_wrong)
        return certificates.right(outcome)

    def _replayed(self) -> tuple[str, str] | None:
        """(word, text) of what explains all updates, of rules that know more than the last batch; None: nothing."""
        training, update = self._config.training, self._config.update
        is_plain = training.optimizer == "sgd" and not training.max_gradient_norm and not training.lr_warmup_batches
        if (is_plain and update.compress_gradients != "int8") or self._findings.are_right:
            return None
        causes: dict[str, replay.Cause | None] = {replica.name: None for replica in self._before}
        updates: dict[str, list[replay.Update]] = {name: [] for name in causes}
        for number, (towers, before, stale, after) in enumerate(self._history):
            parts = self._parts(number, towers, stale if self._guarantee.staged else before)
            for old, new in zip(before, after):
                change = {name: new.weights[name] - value for name, value in old.weights.items()}
                updates[old.name].append(replay.Update(parts, _shares(towers), change, old.weights))
        for replica in self._before if self._history else []:
            causes[replica.name] = replay.cause(self._config, self._guarantee, replica.tower, updates[replica.name])
        found = {name: each for name, each in causes.items() if each is not None}
        if not found:
            return None
        first = next(iter(found.values()))
        where = "" if len(found) == len(causes) else f" on {', '.join(found)}"
        return first.word, f"{first.text}{where}"

    def _replicas(self) -> list[Replica]:
        """Every copy of the variables as it is now, parts joined."""
        pieces: dict[int | None, dict[str, list[np.ndarray]]] = {}
        for state in self._step.variable_states():
            tower = None if state.tower is None else self._engine.first_tower + state.tower
            pieces.setdefault(tower, {}).setdefault(state.name, []).append(state.variable.numpy())
        return [
            Replica(tower, {name: each[0] if len(each) == 1 else np.concatenate(each) for name, each in parts.items()})
            for tower, parts in pieces.items()
        ]

    def _fault(self, number: int, word: str, text: str) -> None:
        if not self._wrong:
            self._word, self._wrong, self._first_wrong = word, text, number

    def _check_beginning(self) -> None:
        sizes = self._config.tower_batch_sizes()
        wanted = self._config.training.global_batch_size or self._config.training.batch_size * self._config.num_towers
        if sum(sizes) != wanted:
            self._fault(0, "samples left out", f"the towers take {sum(sizes)} of the {wanted} samples of a batch")
        if self._engine.first_tower == 0:
            for fault in network_check.faults(self._config.model, self._engine, self._config.training.seed):
                self._fault(0, fault.word, fault.text)
        for replica in self._before:
            for name, value in replica.weights.items():
                if not np.array_equal(value, self._first[name]):
                    where = f" on {replica.name}" if replica.name else ""
                    self._fault(0, "other weights", f"{name} begins with other weights{where}")

    def _training(self, replica: Replica) -> int:
        return 0 if replica.tower is None else self._serial.of_tower(replica.tower)

    def _check_forward(self, number: int, result: StepResult, towers: Towers, steps: Sequence[Step]) -> None:
        """Whether each tower had its own batch and lost what serial training loses on it, at weights that are equal."""
        for index, tower in enumerate(self._own):
            step = steps[self._serial.of_tower(tower)]
            got, items = float(result.loss_sum[index]), float(result.loss_items[index])
            expected = step.parts[tower].loss_sum
            has_own = items == towers.loss_items[tower]
            if has_own and self._is_near(got, expected):
                continue
            at = self._weights_at(tower)
            if has_own and self._is_near(got, self._loss(number, towers, at, tower)):
                continue  # its weights are others by roundings, which are judged by themselves
            for other in range(self._gradients.num_towers):
                if other == tower:
                    continue
                if items == towers.loss_items[other] and self._is_near(got, self._loss(number, towers, at, other)):
                    self._fault(number, "another's batch", f"tower {tower} trains the batch of tower {other}")
                if has_own and self._is_near(got, self._loss(number, towers, at, tower, other)):
                    self._fault(number, "another's dropout", f"tower {tower} drops what tower {other} drops")
            if number and self._config.model.dropout and has_own:
                again = self._gradients.part(at, towers.batches[tower], 1.0, tower).loss_sum
                if self._is_near(got, again):
                    self._fault(number, "same dropout", f"tower {tower} drops again what it dropped at step 0")
            for earlier in {0, len(self._history) - 1} if number else ():
                past = self._history[earlier][0] if earlier >= 0 else towers
                if items == past.loss_items[tower] and self._is_near(got, self._loss(number, past, at, tower)):
                    self._fault(number, "same batch", f"tower {tower} trains the batch of step {earlier} again")
            if not has_own:
                text = f"tower {tower} trains {items:,.0f} of its {towers.loss_items[tower]:,.0f} items"
                self._fault(number, "items left out", text)
            self._fault(
                number,
                "unequal loss",
                f"the loss of tower {tower} is {got / items:.6g} and not {expected / items:.6g} at the same weights",
            )

    def _check_moving(self, number: int) -> None:
        """Whether each tower's averages are those of its own batches; no loss depends on them."""
        for tower, variables in zip(self._own, self._step.moving()):
            for name, expected in self._serial.moving[tower].items():
                first = self._gradients.first_moving[name]
                allowed = self._guarantee.share * norm(expected - first) + (number + 1) * ROUNDING * norm(expected)
                if not norm(variables[name].numpy() - expected) <= allowed:
                    self._fault(number, "other averages", f"{name}, a moving average, differs on tower {tower}")

    def _weights_at(self, tower: int) -> Arrays:
        """At which a tower has just computed."""
        replicas = self._stale if self._guarantee.staged else self._before
        return next(replica.weights for replica in replicas if replica.tower in (None, tower))

    def _loss(self, number: int, towers: Towers, at: Arrays, tower: int, drawn_by: int | None = None) -> float:
        """The summed loss of a tower's batch at these weights, with the dropout of `drawn_by`."""
        draw = number * self._gradients.num_towers + (tower if drawn_by is None else drawn_by)
        return self._gradients.part(at, towers.batches[tower], 1.0, draw).loss_sum

    def _is_near(self, got: float, expected: float) -> bool:
        return abs(got - expected) <= self._guarantee.loss * abs(expected)

    def _compare(self, number: int, after: Sequence[Replica]) -> float:
        """The largest difference of a weight; a fault where a variable is farther off than it may be."""
        largest = 0.0
        for replica in after:
            training = self._serial.trainings[self._training(replica)]
            for name, value in replica.weights.items():
                difference = value - training.weights[name]
                largest = max(largest, float(np.abs(difference).max(initial=0.0)))
                moved = float(np.abs(training.weights[name] - self._first[name]).max(initial=0.0))
                self._largest["weights_moved"] = max(self._largest["weights_moved"], moved)
                allowed = self._allowed(training, name, value, number)
                way = max(training.way[name], norm(value - self._first[name]))
                if not norm(difference) <= allowed and allowed <= BLIND * way:
                    self._fault(number, UNEQUAL, f"{name} differs")
        self._largest["weights_difference"] = max(self._largest["weights_difference"], largest)
        return largest

    def _allowed(self, training: Training, name: str, value: np.ndarray, number: int) -> float:
        """By how much a variable may be off after this batch, as a Euclidean norm.

        Args:
          training: that it must equal.
        """
        # A gradient whose terms cancel each other is rounded as these are: as the gradients of other variables.
        rounded = ROUNDING * ((number + 1) * norm(value) + max(training.way.values()))
        return self._guarantee.share * training.way[name] + training.lost[name] + rounded

    def _explain(
        self,
        number: int,
        towers: Towers,
        before: Sequence[Replica],
        after: Sequence[Replica],
        steps: Sequence[Step],
    ) -> None:
        """Tries explanations on every variable of every replica, at the weights that the towers really had."""
        if self._explained and self._config.training.optimizer != "sgd":
            return  # what else an update depends on is no longer known
        if not self._explained and self._towers_before is not None:
            self._previous = self._right(self._parts(number - 1, self._towers_before, self._stale), self._towers_before)
        shares = _shares(towers)
        fresh = self._parts(number, towers, before)
        stale = self._parts(number, towers, self._stale) if number else fresh
        for index, (old, new) in enumerate(zip(before, after)):
            evidence = Evidence(
                tower=old.tower,
                change={name: new.weights[name] - value for name, value in old.weights.items()},
                before=old.weights,
                rule=steps[self._training(old)].rule,
                fresh=fresh,
                shares=shares,
                previous=None if self._previous is None else self._previous[index],
                stale=lambda: stale,
            )
            self._findings.add(number, index, diagnosis.explain(evidence, self._guarantee))
        self._previous = self._right(fresh, towers)
        self._explained += 1

    def _right(self, parts: Mapping[int, Part], towers: Towers) -> list[Gradient]:
        """What a mode without staleness applies to each replica, of these parts of the towers."""
        return [
            diagnosis.right_gradient(self._guarantee, replica.tower, parts, _shares(towers)) for replica in self._before
        ]

    def _parts(self, number: int, towers: Towers, replicas: Sequence[Replica]) -> dict[int, Part]:
        """Each tower's part at the weights of its replica, of other processes' towers at those of one of these."""
        by_tower = {replica.tower: replica.weights for replica in replicas}
        some = replicas[0].weights
        weights = {tower: by_tower.get(tower, some) for tower in range(self._gradients.num_towers)}
        scale = self._serial.trainings[0].rule.loss_scale
        return self._serial.parts(number, towers, weights, scale)

    def _tell(
        self, number: int, result: StepResult, towers: Towers, steps: Sequence[Step], weights_difference: float
    ) -> None:
        own = {tower: steps[self._serial.of_tower(tower)].parts[tower].loss_sum for tower in self._own}
        serial = sum(own.values()) / sum(towers.loss_items[tower] for tower in self._own)
        parallel = result.loss
        difference = abs(parallel - serial) / max(abs(serial), 1e-30)
        if math.isfinite(difference):
            self._largest["loss_difference"] = max(self._largest["loss_difference"], difference)
        self._batches.append(
            CertifiedBatch(loss_serial=serial, loss_parallel=parallel, weights_difference=weights_difference)
        )
        entry.note(
            f"batch {number}: loss {parallel:.6f}, serial {serial:.6f}; weights differ by {weights_difference:.1e}"
        )

    def _blind(self) -> list[str]:
        """Variables that moved so little that a fault of a tenth of it would not show."""
        blind = []
        for training in self._serial.trainings[:1]:
            for name, way in training.way.items():
                allowed = self._allowed(training, name, training.weights[name], len(self._batches) - 1)
                if allowed > BLIND * way:
                    blind.append(name)
        return blind


def _shares(towers: Towers) -> dict[int, float]:
    """Of each tower in the items of all."""
    return {tower: items / sum(towers.loss_items) for tower, items in enumerate(towers.loss_items)}
