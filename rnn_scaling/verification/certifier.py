"""Watches a run batch by batch beside a serial one, and says whether its mode does what it promises."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling import entry
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.models.workload import first_values
from rnn_scaling.records.certificate import Certificate, CertifiedBatch, Check
from rnn_scaling.settings.config import RunConfig
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.towers import StepResult, TrainStep
from rnn_scaling.verification import batch_check, certificates, diagnosis, guarantees, network_check, replay
from rnn_scaling.verification.certificates import finite
from rnn_scaling.verification.diagnosis import BLIND, ROUNDING, Evidence, Findings, Gradient
from rnn_scaling.verification.gradients import GradientPart, SerialGradients, Towers
from rnn_scaling.verification.rule import Arrays
from rnn_scaling.verification.serial import Serial, Step, Training, norm

MOST_EXPLAINED = 3  # batches
MOST_KEPT = 2**29  # bytes of weights that are kept to replay the run
UNEQUAL = "unequal"  # the verdict where weights differ, until it is explained


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
        self._wrong: Statement | None = None
        self._first_wrong = 0
        self._batches: list[CertifiedBatch] = []
        self._checks: dict[str, Check] = {}
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
        self._fault(number, self._batch_check.fault(number, towers))
        if not self._wrong:
            self._check_forward(number, result, towers, steps)
        self._check_moving(number)
        largest = self._compare(number, after)
        sizes = [array.nbytes for replica in after for array in replica.weights.values()]
        if (len(self._history) + 1) * sum(sizes) <= MOST_KEPT and len(self._history) == number:
            self._history.append((towers, before, self._stale, after))
        is_unequal = self._wrong is not None and self._wrong.subject == UNEQUAL
        if is_unequal and (self._explained < MOST_EXPLAINED or self._findings.are_right):
            self._explain(number, towers, before, after, steps)
        self._record(number, result, towers, steps, largest)
        self._before, self._stale, self._towers_before = after, before, towers

    def end(self) -> Certificate:
        """The certificate of all batches."""
        outcome = certificates.CheckOutcome(
            config=self._config,
            guarantee=self._guarantee,
            replicas=[replica.name for replica in self._before],
            batches=tuple(self._batches),
            hidden=self._hidden(),
            variables=len(self._first),
            has_clipped=self._serial.trainings[0].rule.has_clipped,
            checks=tuple(self._checks.values()),
            **self._largest,
        )
        if self._findings.are_right and self._explained == len(self._batches) - self._first_wrong:
            return certificates.right_by_steps(outcome, self._first_wrong)
        if not self._wrong:
            return certificates.right(outcome)
        faults = [self._wrong]
        if self._findings.by_place:
            names = [replica.name for replica in self._before]
            faults = self._replayed() or self._findings.statements(names, self._guarantee.shares_one_model)
        return certificates.wrong(outcome, faults, self._first_wrong)

    def _replayed(self) -> list[Statement]:
        """What explains all updates, of rules that depend on more than the last batch; empty: nothing does."""
        training, update = self._config.training, self._config.update
        is_plain = training.optimizer == "sgd" and not training.max_gradient_norm and not training.lr_warmup_batches
        if (is_plain and update.compress_gradients != "int8") or self._findings.are_right:
            return []
        causes: dict[str, replay.Cause | None] = {replica.name: None for replica in self._before}
        updates: dict[str, list[replay.ReplayedUpdate]] = {name: [] for name in causes}
        for number, (towers, before, stale, after) in enumerate(self._history):
            parts = self._parts(number, towers, stale if self._guarantee.staged else before)
            for old, new in zip(before, after):
                change = {name: new.weights[name] - value for name, value in old.weights.items()}
                updates[old.name].append(replay.ReplayedUpdate(parts, _shares(towers), change, old.weights))
        for replica in self._before if self._history else []:
            causes[replica.name] = replay.cause(self._config, self._guarantee, replica.tower, updates[replica.name])
        found = {name: cause for name, cause in causes.items() if cause is not None}
        if not found:
            return []
        first = next(iter(found.values()))
        statements = [Statement(first.kind, first.verdict, first.values)]
        if len(found) < len(causes):
            statements.append(Statement("verify-only-on", values={"towers": list(found)}))
        return statements

    def _replicas(self) -> list[Replica]:
        """Every copy of the variables as it is now, parts joined."""
        pieces: dict[int | None, dict[str, list[np.ndarray]]] = {}
        for state in self._step.variable_states():
            tower = None if state.tower is None else self._engine.first_tower + state.tower
            pieces.setdefault(tower, {}).setdefault(state.name, []).append(state.variable.numpy())
        return [
            Replica(tower, {name: _joined(arrays) for name, arrays in arrays_by_name.items()})
            for tower, arrays_by_name in pieces.items()
        ]

    def _fault(self, number: int, fault: Statement | None) -> None:
        """Keeps the first fault."""
        if fault and not self._wrong:
            self._wrong, self._first_wrong = fault, number

    def _check(self, name: str, text: str, difference: float, tolerance: float, holds: bool = True) -> None:
        """Keeps the largest difference of a check, relative to what is allowed."""
        found = Check(
            name=name,
            holds=bool(holds),
            text=text,
            difference=finite(difference),
            tolerance=finite(max(0.0, tolerance)),
        )
        largest = self._checks.setdefault(name, found)
        if largest.holds and (not holds or _usage(found) > _usage(largest)):
            self._checks[name] = found

    def _check_beginning(self) -> None:
        sizes = self._config.tower_batch_sizes()
        training = self._config.training
        expected = training.global_batch_size or training.batch_size * self._config.num_towers
        if sum(sizes) != expected:
            values = {"got": sum(sizes), "expected": expected}
            self._fault(0, Statement("input-samples-missing", "samples left out", values))
        if self._engine.first_tower == 0:
            for part in network_check.comparisons(self._config.model, self._engine, training.seed):
                self._check(part.name, part.text, part.difference, part.tolerance, not part.faults)
                for fault in part.faults:
                    self._fault(0, fault)
        for replica in self._before:
            for name, value in replica.weights.items():
                if np.array_equal(value, self._first[name]):
                    continue
                kind = "input-first-weights-on" if replica.name else "input-first-weights"
                self._fault(0, Statement(kind, "other weights", {"variable": name, "tower": replica.name}))

    def _training(self, replica: Replica) -> int:
        return 0 if replica.tower is None else self._serial.of_tower(replica.tower)

    def _check_forward(self, number: int, result: StepResult, towers: Towers, steps: Sequence[Step]) -> None:
        """Whether each tower had its own batch and lost what serial training loses on it, at weights that are equal."""
        for index, tower in enumerate(self._own):
            step = steps[self._serial.of_tower(tower)]
            got, items = float(result.loss_sum[index]), float(result.loss_items[index])
            expected = step.parts[tower].loss_sum
            has_own = items == towers.loss_items[tower]
            at = self._weights_at(tower)
            if has_own and not self._is_near(got, expected):
                expected_here = self._loss(number, towers, at, tower)  # its weights may be others by roundings
            else:
                expected_here = expected
            is_right = has_own and self._is_near(got, expected_here)
            difference = abs(got - expected_here) / max(abs(expected_here), 1e-30)
            text = "each tower and batch against serial training, relative"
            self._check("losses", text, difference, self._guarantee.loss, is_right)
            if is_right:
                continue
            fault = self._inputs_fault(number, towers, tower, got, items)
            values = {"tower": tower, "got": got / items, "expected": expected / items}
            self._fault(number, fault or Statement("loss-unequal", "unequal loss", values))

    def _inputs_fault(self, number: int, towers: Towers, tower: int, got: float, items: float) -> Statement | None:
        """Which wrong batch or dropout explains a tower's loss."""
        has_own = items == towers.loss_items[tower]
        fault = self._fault_of_tower(number, towers, tower, got, items)
        fault = fault or self._repeated(number, towers, tower, got, items)
        if fault or has_own:
            return fault
        values = {"tower": tower, "got": items, "expected": towers.loss_items[tower]}
        return Statement("input-items-missing", "items left out", values)

    def _fault_of_tower(self, number: int, towers: Towers, tower: int, got: float, items: float) -> Statement | None:
        """Whether a tower uses the batch or the dropout of another tower."""
        at, has_own = self._weights_at(tower), items == towers.loss_items[tower]
        for instead in range(self._gradients.num_towers):
            values = {"tower": tower, "instead": instead}
            if instead == tower:
                continue
            if items == towers.loss_items[instead] and self._is_near(got, self._loss(number, towers, at, instead)):
                return Statement("input-batch-of-tower", "another's batch", values)
            if has_own and self._is_near(got, self._loss(number, towers, at, tower, instead)):
                return Statement("input-dropout-of-tower", "another's dropout", values)
        return None

    def _repeated(self, number: int, towers: Towers, tower: int, got: float, items: float) -> Statement | None:
        """Whether a tower uses the dropout or the batch of an earlier step."""
        if not number:
            return None
        at = self._weights_at(tower)
        if self._config.model.dropout and items == towers.loss_items[tower]:
            repeated = self._gradients.part(at, towers.batches[tower], 1.0, tower).loss_sum
            if self._is_near(got, repeated):
                return Statement("input-dropout-repeats", "same dropout", {"tower": tower})
        for earlier in {0, len(self._history) - 1}:
            past = self._history[earlier][0] if earlier >= 0 else towers
            if items == past.loss_items[tower] and self._is_near(got, self._loss(number, past, at, tower)):
                return Statement("input-batch-repeats", "same batch", {"tower": tower, "earlier": earlier})
        return None

    def _check_moving(self, number: int) -> None:
        """Whether each tower's averages are those of its own batches; no loss depends on them."""
        for tower, variables in zip(self._own, self._step.moving()):
            for name, expected in self._serial.moving[tower].items():
                first = self._gradients.first_moving[name]
                allowed = self._guarantee.share * norm(expected - first) + (number + 1) * ROUNDING * norm(expected)
                difference = norm(variables[name].numpy() - expected)
                is_right = difference <= allowed
                self._check("moving averages", "after each batch, Euclidean norm", difference, allowed, is_right)
                if not is_right:
                    values = {"variable": name, "tower": tower}
                    self._fault(number, Statement("averages-unequal", "other averages", values))

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
                if not allowed <= BLIND * way:
                    continue
                is_right = norm(difference) <= allowed
                text = "every variable after each batch, Euclidean norm"
                self._check("weights", text, norm(difference), allowed, is_right)
                if not is_right:
                    self._fault(number, Statement("weights-unequal", UNEQUAL, {"variable": name}))
        self._largest["weights_difference"] = max(self._largest["weights_difference"], largest)
        return largest

    def _allowed(self, training: Training, name: str, value: np.ndarray, number: int) -> float:
        """By how much a variable may differ from the training after this batch, as a Euclidean norm."""
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

    def _right(self, parts: Mapping[int, GradientPart], towers: Towers) -> list[Gradient]:
        """What a mode without staleness applies to each replica, of these parts of the towers."""
        return [
            diagnosis.right_gradient(self._guarantee, replica.tower, parts, _shares(towers)) for replica in self._before
        ]

    def _parts(self, number: int, towers: Towers, replicas: Sequence[Replica]) -> dict[int, GradientPart]:
        """Each tower's part at the weights of its replica, of other processes' towers at those of one of these."""
        by_tower = {replica.tower: replica.weights for replica in replicas}
        some = replicas[0].weights
        weights = {tower: by_tower.get(tower, some) for tower in range(self._gradients.num_towers)}
        scale = self._serial.trainings[0].rule.loss_scale
        return self._serial.parts(number, towers, weights, scale)

    def _record(
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
        if self._config.output.progress:
            entry.note(
                f"batch {number}: loss {parallel:.6f}, serial {serial:.6f}; weights differ by {weights_difference:.1e}"
            )

    def _hidden(self) -> list[str]:
        """Variables that moved so little that a fault of a tenth of it would not show."""
        hidden = []
        for training in self._serial.trainings[:1]:
            for name, way in training.way.items():
                allowed = self._allowed(training, name, training.weights[name], len(self._batches) - 1)
                if allowed > BLIND * way:
                    hidden.append(name)
        return hidden


def _shares(towers: Towers) -> dict[int, float]:
    """Of each tower in the items of all."""
    return {tower: items / sum(towers.loss_items) for tower, items in enumerate(towers.loss_items)}


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _usage(check: Check) -> float:
    """The share of the tolerance that a check uses."""
    if check.difference is None:
        return math.inf
    return check.difference / max(check.tolerance or 0.0, 1e-30)
