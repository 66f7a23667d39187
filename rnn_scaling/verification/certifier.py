"""Compare a run with serial training, batch by batch.

`session` calls `Certifier.check_batch` after each batch. It reads the step and never
changes it. `losses` and `diagnosis` explain a difference, and `findings` collects all
results.
"""

import copy
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.models.workload import make_first_values
from rnn_scaling.records.certificate import Certificate, CertifiedBatch
from rnn_scaling.system import entry
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.train_step import StepResult, TrainStep
from rnn_scaling.verification import certificates, diagnosis, network_check, trials
from rnn_scaling.verification.certificates import Conclusion, finite_or_none
from rnn_scaling.verification.diagnosis import (
    MAX_EXPLAINED,
    MAX_UNCERTAINTY,
    ROUNDING,
)
from rnn_scaling.verification.findings import MIN_DIVISOR, Findings
from rnn_scaling.verification.gradients import BatchCheck, SerialGradients
from rnn_scaling.verification.losses import TowerLosses
from rnn_scaling.verification.replicas import Replica, TrainedBatch, weights_by_tower
from rnn_scaling.verification.rule import Guarantee, norm
from rnn_scaling.verification.serial import Serial, Step, Training
from rnn_scaling.verification.trials import Parts, ReplicaUpdate

_MAX_HISTORY_BYTES = 2**29  # bytes of weights that are kept to explain a fault


class Certifier:
    """Watches the replicas of one process; see `session.Watch`."""

    def __init__(
        self,
        config: RunConfig,
        engine: Engine,
        step: TrainStep,
        gradients: SerialGradients | None = None,
    ) -> None:
        self._config = config
        self._engine = engine
        self._step = step
        self._guarantee = Guarantee.from_config(config)
        self._gradients = gradients or SerialGradients(config, engine)
        first = engine.first_tower
        self._towers = range(first, first + len(engine.devices))
        self._first_values = make_first_values(
            self._gradients.specs, config.training.seed
        )
        self._serial = Serial(config, self._gradients, self._first_values, self._towers)
        self._last_replicas = self._read_replicas()
        self._stale_replicas = self._last_replicas
        self._last_batch: TrainedBatch | None = None
        self._history: list[TrainedBatch] = []
        self._losses = TowerLosses(
            config, self._gradients, self._guarantee, self._history
        )
        self._findings = Findings()
        # Whether every update is right at the weights of the run.
        self._has_right_updates = True
        self._batches: list[CertifiedBatch] = []
        self._batch_check = BatchCheck(config.data.data_source)
        self._check_beginning()

    def check_batch(self, result: StepResult) -> None:
        """Compare the batch that has just ended with serial training."""
        number = len(self._batches)
        towers = self._gradients.towers(number)
        batch = TrainedBatch(
            number,
            towers,
            self._stale_replicas,
            self._last_replicas,
            self._read_replicas(),
        )
        steps = self._serial.step(number, towers)
        self._findings.keep_first_fault(number, self._batch_check.fault(number, towers))
        if not self._findings.first_fault:
            self._check_losses(batch, result, steps)
        self._check_moving(number)
        difference = self._check_weights(number, batch.replicas_after)
        num_bytes = 0
        for replica in batch.replicas_after:
            num_bytes += sum(array.nbytes for array in replica.weights.values())
        if (number + 1) * num_bytes <= _MAX_HISTORY_BYTES:
            self._history.append(batch)
        if self._findings.is_unequal and self._has_right_updates:
            self._has_right_updates = self._is_right_update(batch, steps)
        self._record(batch, result, steps, difference)
        self._last_batch = batch
        self._last_replicas = batch.replicas_after
        self._stale_replicas = batch.replicas_before

    def make_certificate(self) -> Certificate:
        """Return the certificate of all batches that were compared."""
        return certificates.certificate(
            self._conclude(),
            compared=certificates.describe_comparison(self._config, len(self._batches)),
            replicas=len(self._last_replicas),
            tolerance=self._guarantee.share,
            batches=tuple(self._batches),
            checks=self._findings.checks,
            loss_difference=finite_or_none(self._findings.loss_difference),
            weights_difference=finite_or_none(self._findings.weights_difference),
            weights_moved=finite_or_none(self._findings.weights_moved),
        )

    def _conclude(self) -> Conclusion:
        """Return the verdict from the first fault, the explanations and the limits."""
        training = self._config.training
        hidden = self._find_hardly_moved()
        has_clipped = self._serial.trainings[0].rule.has_clipped
        limits = certificates.limits(training, has_clipped)
        moved_text = certificates.short(self._findings.weights_moved)
        if self._findings.is_unequal and self._has_right_updates:
            difference = certificates.short(self._findings.weights_difference)
            values = {"batch": self._findings.fault_batch, "difference": difference}
            statement = Statement("verify-step-by-step", values=values)
            return Conclusion("right step by step", True, [statement, *limits])
        if self._findings.first_fault:
            faults = self._explain_inequality() or [self._findings.first_fault]
            return certificates.wrong(
                faults, self._findings.fault_batch, training.optimizer
            )
        if 2 * len(hidden) > len(self._first_values):
            values = {
                "moved": moved_text,
                "variables": hidden,
                "rate": training.learning_rate,
            }
            statement = Statement("verify-hardly-moved", values=values)
            return Conclusion("cannot tell", False, [statement])
        return self._conclude_equality(hidden, moved_text, limits)

    def _conclude_equality(
        self, hidden: Sequence[str], moved_text: str, limits: Sequence[Statement]
    ) -> Conclusion:
        """Return the verdict of a run without a fault.

        Args:
          hidden: Variables that moved so little that a fault would not show.
          moved_text: The largest change of a weight.
          limits: Statements about what the certificate does not cover.
        """
        equal = certificates.equal(
            self._guarantee,
            len(self._batches),
            self._findings.weights_difference,
            has_replicas=[replica.tower for replica in self._last_replicas] != [None],
        )
        statements = [
            *equal.statements,
            Statement("verify-moved", values={"moved": moved_text}),
        ]
        if hidden:
            values = {"variables": hidden}
            statements.append(Statement("verify-not-moved", values=values))
        statements += [*limits, Statement("verify-not-covered")]
        return dataclasses.replace(equal, statements=statements)

    def _has_plain_updates(self) -> bool:
        """Return whether the optimizer only adds a constant multiple of the gradient."""
        training = self._config.training
        return training.optimizer == "sgd" and not (
            training.max_gradient_norm
            or training.weight_decay
            or training.lr_schedule != "constant"
            or training.lr_warmup_batches
            or self._config.update.compress_gradients == "int8"
        )

    def _explain_inequality(self) -> list[Statement]:
        """Return statements that explain unequal weights, or [] if no fault does."""
        fault_batch = self._findings.fault_batch
        if not self._findings.is_unequal or fault_batch >= len(self._history):
            return []
        is_plain = self._has_plain_updates()
        # A plain update is independent of earlier ones, except that a late update
        # applies the gradient of the batch before.
        start = 0
        end = len(self._history)
        if is_plain:
            start = max(0, fault_batch - 1)
            end = fault_batch + MAX_EXPLAINED + 1
        batches = self._history[start:end]
        names = [replica.name for replica in self._last_replicas]
        by_replica = dict(zip(names, self._updates_by_replica(batches)))
        if not is_plain:
            statements = self._explain_by_trials(by_replica)
            if statements:
                return statements
        explanations = {
            name: diagnosis.explain(self._config, updates, fault_batch - start)
            for name, updates in by_replica.items()
        }
        return diagnosis.common_fault(
            explanations,
            list(self._first_values),
            self._guarantee.shares_one_model,
            self._findings.wrong_replicas,
        )

    def _explain_by_trials(
        self, by_replica: Mapping[str, Sequence[ReplicaUpdate]]
    ) -> list[Statement]:
        """Return the first fault that a trial reproduces, and the affected replicas."""
        first_fault: Statement | None = None
        faults_by_replica: dict[str, dict[str, Statement]] = {}
        for name, updates in by_replica.items():
            fault = trials.find_fault(self._config, updates)
            faults_by_replica[name] = {} if fault is None else {"": fault}
            first_fault = first_fault or fault
        if first_fault is None:
            return []
        return [
            first_fault,
            *diagnosis.affected_replicas(
                faults_by_replica, self._findings.wrong_replicas
            ),
        ]

    def _is_right_update(self, batch: TrainedBatch, steps: Sequence[Step]) -> bool:
        """Return whether each update of a batch is right at the run's own weights."""
        has_state = self._config.training.optimizer != "sgd"
        is_after_fault = batch.number > self._findings.fault_batch
        if self._guarantee.withheld or (has_state and is_after_fault):
            return False  # The update also depends on unknown earlier errors.
        batches = [batch]
        if self._guarantee.late and self._last_batch is not None:
            batches = [self._last_batch, batch]
        for replica, updates in zip(
            batch.replicas_before, self._updates_by_replica(batches)
        ):
            *_, gradient = trials.UNCHANGED.compute_gradients(self._config, updates)
            rule = steps[self._training_number(replica)].rule
            change = copy.copy(rule).update(gradient, replica.weights)
            for name, array in change.items():
                share = self._guarantee.share
                if not diagnosis.is_change(updates[-1], name, array, share):
                    return False
        return True

    def _read_replicas(self) -> list[Replica]:
        """Return the present values of every copy of the variables."""
        first = self._engine.first_tower
        return [
            Replica(None if tower is None else first + tower, weights)
            for tower, weights in weights_by_tower(self._step).items()
        ]

    def _check_beginning(self) -> None:
        """Check batch sizes, parts of the network and first weights."""
        training = self._config.training
        model = self._config.model
        got = sum(self._config.tower_batch_sizes())
        expected = training.batch_size * self._config.num_towers
        expected = training.global_batch_size or expected
        if got != expected:
            values = {"got": got, "expected": expected}
            fault = Statement("input-samples-missing", "samples left out", values)
            self._findings.keep_first_fault(0, fault)
        if self._engine.first_tower == 0:
            device = (self._engine.own_devices or (self._engine.host,))[0]
            for comparison in network_check.compare_parts(
                model, self._engine.device_type, device, training.seed
            ):
                self._findings.check(
                    comparison.name,
                    comparison.text,
                    comparison.difference,
                    comparison.tolerance,
                    holds=not comparison.faults,
                )
                for fault in comparison.faults:
                    self._findings.keep_first_fault(0, fault)
        for replica in self._last_replicas:
            kind = "input-first-weights-on" if replica.name else "input-first-weights"
            for name, value in replica.weights.items():
                if not np.array_equal(value, self._first_values[name]):
                    variable = {"variable": name, "tower": replica.name}
                    self._findings.keep_first_fault(
                        0, Statement(kind, "other weights", variable)
                    )

    def _training_number(self, replica: Replica) -> int:
        """Return the number of the serial training that a replica must equal."""
        return (
            0 if replica.tower is None else self._serial.training_number(replica.tower)
        )

    def _compute_serial_loss(self, steps: Sequence[Step], tower: int) -> float:
        return steps[self._serial.training_number(tower)].parts[tower].loss_sum

    def _check_losses(
        self, batch: TrainedBatch, result: StepResult, steps: Sequence[Step]
    ) -> None:
        """Check that each tower had its own batch and the loss of serial training."""
        text = "each tower and batch against serial training, relative"
        for index, tower in enumerate(self._towers):
            got = float(result.loss_sum[index])
            items = float(result.loss_items[index])
            own_items = batch.towers.loss_items[tower]
            serial = self._compute_serial_loss(steps, tower)
            expected = serial
            if items == own_items and not self._losses.is_near(got, serial):
                # The weights of the run may differ by rounding errors.
                expected = self._losses.compute_loss(batch, tower)
            is_right = items == own_items and self._losses.is_near(got, expected)
            difference = abs(got - expected) / max(abs(expected), MIN_DIVISOR)
            self._findings.check(
                "losses", text, difference, self._guarantee.loss, is_right
            )
            if not is_right:
                fault = self._losses.explain(batch, tower, got, items, serial)
                self._findings.keep_first_fault(batch.number, fault)

    def _check_moving(self, number: int) -> None:
        """Check that each tower's averages follow from its own batches.

        No loss depends on them.
        """
        text = "after each batch, Euclidean norm"
        for tower, variables in zip(self._towers, self._step.moving()):
            for name, expected in self._serial.moving[tower].items():
                distance = norm(expected - self._gradients.first_moving[name])
                rounding = (number + 1) * ROUNDING * norm(expected)
                allowed_difference = self._guarantee.share * distance + rounding
                difference = norm(variables[name].numpy() - expected)
                is_right = difference <= allowed_difference
                self._findings.check(
                    "moving averages", text, difference, allowed_difference, is_right
                )
                if not is_right:
                    values = {"variable": name, "tower": tower}
                    fault = Statement("averages-unequal", "other averages", values)
                    self._findings.keep_first_fault(number, fault)

    def _check_weights(self, number: int, replicas_after: Sequence[Replica]) -> float:
        """Return the largest difference of a weight, and check every variable."""
        text = "every variable after each batch, Euclidean norm"
        largest = 0.0
        largest_move = self._findings.weights_moved
        for replica in replicas_after:
            training = self._serial.trainings[self._training_number(replica)]
            for name, value in replica.weights.items():
                expected = training.weights[name]
                first = self._first_values[name]
                difference = value - expected
                largest = max(largest, float(np.abs(difference).max(initial=0.0)))
                move = float(np.abs(expected - first).max(initial=0.0))
                largest_move = max(largest_move, move)
                allowed_difference = self._allowed_difference(
                    training, name, value, number
                )
                distance = max(training.distance[name], norm(value - first))
                if allowed_difference > MAX_UNCERTAINTY * distance:
                    continue  # Rounding would hide a fault.
                is_right = norm(difference) <= allowed_difference
                self._findings.check(
                    "weights", text, norm(difference), allowed_difference, is_right
                )
                if not is_right:
                    self._findings.keep_wrong_variable(number, name, replica)
        self._findings.weights_moved = largest_move
        self._findings.weights_difference = max(
            self._findings.weights_difference, largest
        )
        return largest

    def _allowed_difference(
        self, training: Training, name: str, value: np.ndarray, number: int
    ) -> float:
        """Return the allowed norm of a variable's difference after a batch."""
        # If the terms of a gradient cancel, it is rounded like the gradients of others.
        largest = max(training.distance.values())
        rounding = ROUNDING * ((number + 1) * norm(value) + largest)
        share = self._guarantee.share * training.distance[name]
        return share + training.withheld[name] + rounding

    def _updates_by_replica(
        self, batches: Sequence[TrainedBatch]
    ) -> list[tuple[ReplicaUpdate, ...]]:
        """Return the updates of each replica, one per batch."""
        return list(zip(*map(self._compute_updates, batches)))

    def _compute_updates(self, batch: TrainedBatch) -> list[ReplicaUpdate]:
        """Return the update of each replica and the gradients of its towers."""
        parts = self._compute_parts(batch, batch.replicas_before)
        stale_parts = functools.cache(
            lambda: self._compute_parts(batch, batch.stale_replicas)
        )
        shares = batch.towers.shares
        updates = []
        for replica_before, replica_after in zip(
            batch.replicas_before, batch.replicas_after
        ):
            change = {
                name: replica_after.weights[name] - value
                for name, value in replica_before.weights.items()
            }
            updates.append(
                ReplicaUpdate(
                    replica_before.tower,
                    parts=parts,
                    stale_parts=stale_parts,
                    shares=shares,
                    change=change,
                    weights_before=replica_before.weights,
                    micro_items=batch.towers.micro_items,
                )
            )
        return updates

    def _compute_parts(self, batch: TrainedBatch, replicas: Sequence[Replica]) -> Parts:
        """Return each tower's part at the weights of its replica.

        Towers of other processes have the weights of one of these replicas.
        """
        by_tower = {replica.tower: replica.weights for replica in replicas}
        weights = {
            tower: by_tower.get(tower, replicas[0].weights)
            for tower in range(self._gradients.num_towers)
        }
        scale = self._serial.trainings[0].rule.loss_scale
        return self._serial.parts(batch.number, batch.towers, weights, scale)

    def _record(
        self,
        batch: TrainedBatch,
        result: StepResult,
        steps: Sequence[Step],
        weights: float,
    ) -> None:
        """Keep the losses of a batch and the largest difference of its weights."""
        items = sum(batch.towers.loss_items[tower] for tower in self._towers)
        loss = sum(self._compute_serial_loss(steps, tower) for tower in self._towers)
        serial = loss / items
        parallel = result.loss
        difference = abs(parallel - serial) / max(abs(serial), MIN_DIVISOR)
        if math.isfinite(difference):
            self._findings.loss_difference = max(
                self._findings.loss_difference, difference
            )
        self._batches.append(
            CertifiedBatch(
                loss_serial=serial, loss_parallel=parallel, weights_difference=weights
            )
        )
        if self._config.output.progress:
            losses = f"loss {parallel:.6f}, serial {serial:.6f}"
            entry.note(
                f"batch {batch.number}: {losses}; weights differ by {weights:.1e}"
            )

    def _find_hardly_moved(self) -> list[str]:
        """Return variables that moved so little that a fault would not show."""
        training = self._serial.trainings[0]
        last = len(self._batches) - 1
        return [
            name
            for name, weights in training.weights.items()
            if self._allowed_difference(training, name, weights, last)
            > MAX_UNCERTAINTY * training.distance[name]
        ]
