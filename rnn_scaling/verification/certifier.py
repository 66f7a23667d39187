"""Compares a run with a serial one, batch by batch, and reports whether its mode does what it promises."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workload import first_values
from rnn_scaling.records.certificate import Certificate, CertifiedBatch, Check
from rnn_scaling.system import entry
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.towers import StepResult, TrainStep
from rnn_scaling.verification import certificates, diagnosis, network_check, replay
from rnn_scaling.verification.certificates import Conclusion, finite
from rnn_scaling.verification.diagnosis import (
    BLIND,
    ROUNDING,
    Evidence,
    Findings,
    Gradient,
    ReplicaUpdate,
)
from rnn_scaling.verification.gradients import (
    BatchCheck,
    GradientPart,
    SerialGradients,
    Towers,
)
from rnn_scaling.verification.rule import Arrays, guarantee_of
from rnn_scaling.verification.serial import Serial, Step, Training, norm

MOST_EXPLAINED = 3  # batches
MOST_KEPT = 2**29  # bytes of weights that are kept to replay the run
UNEQUAL = "unequal"  # the verdict where weights differ, until it is explained
Loss = Callable[[], float]


@dataclasses.dataclass(frozen=True)
class Replica:
    """One copy of the variables. tower: whose it is; None: all towers'."""

    tower: int | None
    weights: Arrays

    @property
    def name(self) -> str:
        return "" if self.tower is None else f"tower {self.tower}"


@dataclasses.dataclass(frozen=True)
class TrainedBatch:
    """A batch, and the replicas one batch before it, before it and after it."""

    number: int
    towers: Towers
    stale: list[Replica]
    before: list[Replica]
    after: list[Replica]


class Certifier:
    """The watch of one process's replicas; see `benchmark.Watch`."""

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        step: TrainStep,
        gradients: SerialGradients | None = None,
    ) -> None:
        self._config, self._engine, self._step = config, engine, step
        self._guarantee = guarantee_of(config)
        self._gradients = gradients or SerialGradients(config, engine)
        self._towers = range(
            engine.first_tower, engine.first_tower + len(engine.devices)
        )
        self._first = first_values(self._gradients.specs, config.training.seed)
        self._serial = Serial(config, self._gradients, self._first, self._towers)
        self._stale = self._before = self._replicas()
        self._towers_before: Towers | None = None
        self._findings, self._explained = Findings(), 0
        self._wrong: Statement | None = None
        self._first_wrong = 0
        self._batches: list[CertifiedBatch] = []
        self._checks: dict[str, Check] = {}
        self._largest = {
            "loss_difference": 0.0,
            "weights_difference": 0.0,
            "weights_moved": 0.0,
        }
        self._batch_check = BatchCheck(config.data.data_source)
        self._history: list[TrainedBatch] = []
        self._check_beginning()

    def batch(self, result: StepResult) -> None:
        """Compares what the towers did in the batch that has just ended with serial training."""
        number = len(self._batches)
        batch = TrainedBatch(
            number,
            self._gradients.towers(number),
            self._stale,
            self._before,
            self._replicas(),
        )
        steps = self._serial.step(number, batch.towers)
        self._fault(number, self._batch_check.fault(number, batch.towers))
        if not self._wrong:
            self._check_forward(batch, result, steps)
        self._check_moving(number)
        difference = self._compare(number, batch.after)
        num_bytes = sum(
            array.nbytes
            for replica in batch.after
            for array in replica.weights.values()
        )
        if (number + 1) * num_bytes <= MOST_KEPT:
            self._history.append(batch)
        is_unequal = self._wrong is not None and self._wrong.subject == UNEQUAL
        if is_unequal and (
            self._explained < MOST_EXPLAINED or self._findings.are_right
        ):
            self._explain(batch, steps)
        self._record(batch, result, steps, difference)
        self._before, self._stale, self._towers_before = (
            batch.after,
            batch.before,
            batch.towers,
        )

    def end(self) -> Certificate:
        return certificates.certificate(
            self._conclusion(),
            compared=certificates.compared(self._config, len(self._batches)),
            replicas=len(self._before),
            tolerance=self._guarantee.share,
            batches=tuple(self._batches),
            checks=tuple(self._checks.values()),
            **{name: finite(number) for name, number in self._largest.items()},
        )

    def _conclusion(self) -> Conclusion:
        training, largest, hidden = self._config.training, self._largest, self._hidden()
        limits = certificates.limits(
            training, self._serial.trainings[0].rule.has_clipped
        )
        moved, difference = (
            certificates.short(largest[f"weights_{name}"])
            for name in ("moved", "difference")
        )
        if (
            self._findings.are_right
            and self._explained == len(self._batches) - self._first_wrong
        ):
            values = {"batch": self._first_wrong, "difference": difference}
            return Conclusion(
                "right step by step",
                True,
                [Statement("verify-step-by-step", values=values), *limits],
            )
        if self._wrong:
            return certificates.wrong(
                self._faults(self._wrong), self._first_wrong, training.optimizer
            )
        if 2 * len(hidden) > len(self._first):
            values = {
                "moved": moved,
                "variables": hidden,
                "rate": training.learning_rate,
            }
            return Conclusion(
                "cannot tell", False, [Statement("verify-hardly-moved", values=values)]
            )
        is_shared = [replica.tower for replica in self._before] == [None]
        off = largest["weights_difference"]
        equal = certificates.equal(
            self._guarantee, len(self._batches), off, has_replicas=not is_shared
        )
        statements = [
            *equal.statements,
            Statement("verify-moved", values={"moved": moved}),
        ]
        if hidden:
            statements.append(
                Statement("verify-not-moved", values={"variables": hidden})
            )
        return dataclasses.replace(
            equal, statements=[*statements, *limits, Statement("verify-not-covered")]
        )

    def _faults(self, first: Statement) -> list[Statement]:
        """What explains the first fault; the fault itself where it explains itself."""
        if not self._findings.by_place:
            return [first]
        replicas = [replica.name for replica in self._before]
        return self._replayed() or self._findings.statements(
            replicas, self._guarantee.shares_one_model
        )

    def _replayed(self) -> list[Statement]:
        """What explains all updates, of rules that depend on more than the last batch; empty: nothing does."""
        training, update = self._config.training, self._config.update
        is_plain = training.optimizer == "sgd" and not (
            training.max_gradient_norm or training.weight_decay
        )
        is_plain = (
            is_plain
            and training.lr_schedule == "constant"
            and not training.lr_warmup_batches
        )
        if (
            is_plain and update.compress_gradients != "int8"
        ) or self._findings.are_right:
            return []
        by_batch = []
        for batch in self._history:
            replicas = batch.stale if self._guarantee.staged else batch.before
            by_batch.append(
                self._updates(batch, self._parts(batch.number, batch.towers, replicas))
            )
        causes = {}
        for replica, updates in zip(self._before, zip(*by_batch)):
            if cause := replay.cause(self._config, updates):
                causes[replica.name] = cause
        statements = list(causes.values())[:1]
        if 0 < len(causes) < len(self._before):
            statements.append(
                Statement("verify-only-on", values={"towers": list(causes)})
            )
        return statements

    def _replicas(self) -> list[Replica]:
        """Every copy of the variables as it is now, parts joined."""
        return [
            Replica(
                None if tower is None else self._engine.first_tower + tower, weights
            )
            for tower, weights in weights_by_tower(self._step).items()
        ]

    def _fault(self, number: int, fault: Statement | None) -> None:
        if fault and not self._wrong:
            self._wrong, self._first_wrong = fault, number

    def _check(
        self, name: str, text: str, difference: float, tolerance: float, holds: bool
    ) -> None:
        """Keeps the largest difference of a check, relative to what is allowed."""
        tolerance = max(0.0, tolerance)
        found = Check(
            name=name,
            holds=bool(holds),
            text=text,
            difference=finite(difference),
            tolerance=finite(tolerance),
        )
        largest = self._checks.setdefault(name, found)
        if largest.holds and (not holds or _usage(found) > _usage(largest)):
            self._checks[name] = found

    def _check_beginning(self) -> None:
        sizes = self._config.tower_batch_sizes()
        training = self._config.training
        expected = (
            training.global_batch_size or training.batch_size * self._config.num_towers
        )
        if sum(sizes) != expected:
            values = {"got": sum(sizes), "expected": expected}
            self._fault(
                0, Statement("input-samples-missing", "samples left out", values)
            )
        if self._engine.first_tower == 0:
            device = (self._engine.own_devices or (self._engine.host,))[0]
            model, device_type = self._config.model, self._engine.device_type
            for part in network_check.comparisons(
                model, device_type, device, training.seed
            ):
                self._check(
                    part.name,
                    part.text,
                    part.difference,
                    part.tolerance,
                    not part.faults,
                )
                for fault in part.faults:
                    self._fault(0, fault)
        for replica in self._before:
            kind = "input-first-weights-on" if replica.name else "input-first-weights"
            for name, value in replica.weights.items():
                if not np.array_equal(value, self._first[name]):
                    self._fault(
                        0,
                        Statement(
                            kind,
                            "other weights",
                            {"variable": name, "tower": replica.name},
                        ),
                    )

    def _training(self, replica: Replica) -> int:
        return 0 if replica.tower is None else self._serial.of_tower(replica.tower)

    def _check_forward(
        self, batch: TrainedBatch, result: StepResult, steps: Sequence[Step]
    ) -> None:
        """Whether each tower had its own batch and lost what serial training loses on it, at weights that are equal."""
        text = "each tower and batch against serial training, relative"
        for index, tower in enumerate(self._towers):
            got, items = float(result.loss_sum[index]), float(result.loss_items[index])
            has_all = items == batch.towers.loss_items[tower]
            serial = expected = (
                steps[self._serial.of_tower(tower)].parts[tower].loss_sum
            )
            if has_all and not self._is_near(got, expected):
                expected = self._loss(
                    batch, tower
                )  # its weights may differ by roundings
            is_right = has_all and self._is_near(got, expected)
            difference = abs(got - expected) / max(abs(expected), 1e-30)
            self._check("losses", text, difference, self._guarantee.loss, is_right)
            if is_right:
                continue
            values = {"tower": tower, "got": got / items, "expected": serial / items}
            unknown = Statement("loss-unequal", "unequal loss", values)
            if not has_all:
                values = {
                    "tower": tower,
                    "got": items,
                    "expected": batch.towers.loss_items[tower],
                }
                unknown = Statement("input-items-missing", "items left out", values)
            faults = (
                fault
                for fault, expected_items, loss in self._inputs_faults(batch, tower)
                if items == expected_items and self._is_near(got, loss())
            )
            self._fault(batch.number, next(faults, unknown))

    def _inputs_faults(
        self, batch: TrainedBatch, tower: int
    ) -> Iterator[tuple[Statement, float, Loss]]:
        """Wrong batches and dropouts of a tower: (the fault, its items, its loss), the likelier first."""
        items = batch.towers.loss_items
        for instead in range(self._gradients.num_towers):
            values = {"tower": tower, "instead": instead}
            if instead != tower:
                fault = Statement("input-batch-of-tower", "another's batch", values)
                yield (
                    fault,
                    items[instead],
                    functools.partial(self._loss, batch, instead, at=tower),
                )
                fault = Statement("input-dropout-of-tower", "another's dropout", values)
                yield (
                    fault,
                    items[tower],
                    functools.partial(self._loss, batch, tower, draw=instead),
                )
        if not batch.number:
            return
        if self._config.model.dropout:
            first = (
                -batch.number * self._gradients.num_towers
            )  # from this batch's draws to those of step 0
            fault = Statement("input-dropout-repeats", "same dropout", {"tower": tower})
            yield (
                fault,
                items[tower],
                functools.partial(self._loss, batch, tower, draw=first + tower),
            )
        for past in self._history[:1] + self._history[-1:]:
            fault = Statement(
                "input-batch-repeats",
                "same batch",
                {"tower": tower, "earlier": past.number},
            )
            repeated = dataclasses.replace(batch, towers=past.towers)
            yield (
                fault,
                past.towers.loss_items[tower],
                functools.partial(self._loss, repeated, tower),
            )

    def _check_moving(self, number: int) -> None:
        """Whether each tower's averages are those of its own batches; no loss depends on them."""
        for tower, variables in zip(self._towers, self._step.moving()):
            for name, expected in self._serial.moving[tower].items():
                first = self._gradients.first_moving[name]
                allowed = self._guarantee.share * norm(expected - first) + (
                    number + 1
                ) * ROUNDING * norm(expected)
                difference = norm(variables[name].numpy() - expected)
                is_right = difference <= allowed
                self._check(
                    "moving averages",
                    "after each batch, Euclidean norm",
                    difference,
                    allowed,
                    is_right,
                )
                if not is_right:
                    values = {"variable": name, "tower": tower}
                    self._fault(
                        number, Statement("averages-unequal", "other averages", values)
                    )

    def _loss(
        self,
        batch: TrainedBatch,
        tower: int,
        at: int | None = None,
        draw: int | None = None,
    ) -> float:
        """The summed loss of a tower's batch, at the weights of tower `at` and with the dropout of tower `draw`."""
        at = tower if at is None else at
        replicas = batch.stale if self._guarantee.staged else batch.before
        weights = next(
            replica.weights for replica in replicas if replica.tower in (None, at)
        )
        number = batch.number * self._gradients.num_towers + (
            tower if draw is None else draw
        )
        return self._gradients.part(
            weights, batch.towers.batches[tower], 1.0, number
        ).loss_sum

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
                moved = float(
                    np.abs(training.weights[name] - self._first[name]).max(initial=0.0)
                )
                self._largest["weights_moved"] = max(
                    self._largest["weights_moved"], moved
                )
                allowed = self._allowed(training, name, value, number)
                way = max(training.way[name], norm(value - self._first[name]))
                if not allowed <= BLIND * way:
                    continue
                is_right = norm(difference) <= allowed
                text = "every variable after each batch, Euclidean norm"
                self._check("weights", text, norm(difference), allowed, is_right)
                if not is_right:
                    self._fault(
                        number,
                        Statement("weights-unequal", UNEQUAL, {"variable": name}),
                    )
        self._largest["weights_difference"] = max(
            self._largest["weights_difference"], largest
        )
        return largest

    def _allowed(
        self, training: Training, name: str, value: np.ndarray, number: int
    ) -> float:
        """By how much a variable may differ from the training after this batch, as a Euclidean norm."""
        # A gradient whose terms cancel each other is rounded as these are: as the gradients of other variables.
        rounded = ROUNDING * ((number + 1) * norm(value) + max(training.way.values()))
        return (
            self._guarantee.share * training.way[name] + training.lost[name] + rounded
        )

    def _explain(self, batch: TrainedBatch, steps: Sequence[Step]) -> None:
        """Tries explanations on every variable of every replica, at the weights that the towers really had."""
        if self._explained and self._config.training.optimizer != "sgd":
            return  # what else an update depends on is no longer known
        previous = (
            None
            if self._towers_before is None
            else self._right(batch, self._towers_before)
        )
        fresh = self._parts(batch.number, batch.towers, batch.before)
        stale = (
            self._parts(batch.number, batch.towers, batch.stale)
            if batch.number
            else fresh
        )
        for index, update in enumerate(self._updates(batch, fresh)):
            rule = steps[self._training(batch.before[index])].rule
            evidence = Evidence(
                update,
                self._guarantee,
                rule,
                previous[index] if previous else None,
                stale,
            )
            self._findings.add(index, diagnosis.explain(evidence))
        self._explained += 1

    def _updates(
        self, batch: TrainedBatch, parts: Mapping[int, GradientPart]
    ) -> list[ReplicaUpdate]:
        updates = []
        for old, new in zip(batch.before, batch.after):
            change = {
                name: new.weights[name] - value for name, value in old.weights.items()
            }
            updates.append(
                ReplicaUpdate(
                    old.tower, parts, batch.towers.shares, change, old.weights
                )
            )
        return updates

    def _right(self, batch: TrainedBatch, before: Towers) -> list[Gradient]:
        """What a mode without staleness applies to each replica in the batch `before` this one."""
        parts, shares = (
            self._parts(batch.number - 1, before, batch.stale),
            before.shares,
        )
        return [
            diagnosis.right_gradient(self._guarantee, replica.tower, parts, shares)
            for replica in batch.stale
        ]

    def _parts(
        self, number: int, towers: Towers, replicas: Sequence[Replica]
    ) -> dict[int, GradientPart]:
        """Each tower's part at the weights of its replica, of other processes' towers at those of one of these."""
        by_tower = {replica.tower: replica.weights for replica in replicas}
        default = replicas[0].weights
        weights = {
            tower: by_tower.get(tower, default)
            for tower in range(self._gradients.num_towers)
        }
        scale = self._serial.trainings[0].rule.loss_scale
        return self._serial.parts(number, towers, weights, scale)

    def _record(
        self,
        batch: TrainedBatch,
        result: StepResult,
        steps: Sequence[Step],
        weights: float,
    ) -> None:
        """Keeps the losses of a batch and the largest difference of its weights."""
        losses = [
            steps[self._serial.of_tower(tower)].parts[tower].loss_sum
            for tower in self._towers
        ]
        serial = sum(losses) / sum(
            batch.towers.loss_items[tower] for tower in self._towers
        )
        parallel = result.loss
        difference = abs(parallel - serial) / max(abs(serial), 1e-30)
        if math.isfinite(difference):
            self._largest["loss_difference"] = max(
                self._largest["loss_difference"], difference
            )
        self._batches.append(
            CertifiedBatch(
                loss_serial=serial, loss_parallel=parallel, weights_difference=weights
            )
        )
        if self._config.output.progress:
            losses_text = f"loss {parallel:.6f}, serial {serial:.6f}"
            entry.note(
                f"batch {batch.number}: {losses_text}; weights differ by {weights:.1e}"
            )

    def _hidden(self) -> list[str]:
        """Variables that moved so little that a fault of a tenth of it would not show."""
        training, last = self._serial.trainings[0], len(self._batches) - 1
        ways, weights = training.way.items(), training.weights
        return [
            name
            for name, way in ways
            if self._allowed(training, name, weights[name], last) > BLIND * way
        ]


def weights_by_tower(step: TrainStep) -> dict[int | None, Arrays]:
    """The variables of each replica, parts joined; None: the one of all towers."""
    pieces: dict[int | None, dict[str, list[np.ndarray]]] = {}
    for state in step.variable_states():
        pieces.setdefault(state.tower, {}).setdefault(state.name, []).append(
            state.variable.numpy()
        )
    return {
        tower: {
            name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            for name, arrays in replica.items()
        }
        for tower, replica in pieces.items()
    }


def _usage(check: Check) -> float:
    """The share of the tolerance that a check uses."""
    if check.difference is None:
        return math.inf
    return check.difference / max(check.tolerance or 0.0, 1e-30)
