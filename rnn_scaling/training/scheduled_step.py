"""Steps that a coordinator hands to whichever worker is free, and what became of each."""

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data.source import Source
from rnn_scaling.models.workload import Workload
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.state import WorkerStep
from rnn_scaling.training.towers import StepResult, TrainStep
from rnn_scaling.training.variable_update.async_parameter_server import (
    AsyncParameterServer,
)

LANES_EACH = 2  # steps that run or wait, for each worker: one that is done finds the next in the queue
HANGING_S = (
    5.0  # for steps that still run where a worker was lost: one that hangs ends none
)
TICK_S, LOOK_S = (
    0.02,
    0.5,
)  # how often somebody who waits for a step looks whether there is a worker left


class ScheduledStep(TrainStep):
    """Callable: waits until one more step per worker is done, by any of the workers.

    Steps are begun without regard to these calls, so that no worker ever waits for another.
    """

    runs_between_calls = True

    def __init__(
        self,
        workload: Workload,
        source: Source,
        update: AsyncParameterServer,
        engine: Engine,
        config: RunConfig,
    ) -> None:
        super().__init__(workload, source, update, engine, config)
        self.finished_steps: list[WorkerStep] = []  # in the order of their ends
        self._async_update, self._num_workers = update, config.cluster.num_workers
        self._timeout_s = (
            config.cluster.cluster_timeout
        )  # how long a step may be without a worker
        self._schedule = tf.distribute.coordinator.ClusterCoordinator(
            engine.strategy
        ).schedule
        self._function = tf.function(
            self._build_one,
            input_signature=[tf.TensorSpec([], tf.int64)],
            autograph=False,
        )
        self._ended: queue.SimpleQueue[WorkerStep | BaseException] = queue.SimpleQueue()
        self._lanes: list[threading.Thread] = []
        self._lock, self._next, self._is_ending = threading.Lock(), 0, False

    def __call__(self) -> StepResult:
        if not self._lanes:
            self._begin()
        group = [self._wait() for _ in range(self._num_workers)]
        self.finished_steps += group
        rows = [
            (step.loss_sum, step.loss_items, step.items, step.positions)
            for step in group
        ]
        loss_sum, loss_items, items, positions = np.array(rows, np.float64).T
        correct = [step.correct for step in group if step.correct is not None]
        counted = np.array(correct, np.float64) if correct else None
        return StepResult(loss_sum, loss_items, items, positions, correct=counted)

    def end(self) -> int:
        """Begins no further steps and waits for those that run; not for one that hangs on a lost worker.

        The surplus is of workers that died in a step which another ran.
        """
        with self._lock:
            self._is_ending = True
        begun = time.monotonic()
        while any(lane.is_alive() for lane in self._lanes):
            if time.monotonic() - begun > (
                HANGING_S if self.count_lost() else self._timeout_s
            ):
                break
            time.sleep(TICK_S)
        while not self._ended.empty():
            late = self._ended.get()
            if isinstance(late, WorkerStep):
                self.finished_steps.append(late)
        return self._async_update.num_updates - len(self.finished_steps)

    def _begin(self) -> None:
        for number in range(LANES_EACH * self._num_workers):
            self._lanes.append(
                threading.Thread(target=self._lane, name=f"lane {number}", daemon=True)
            )
            self._lanes[-1].start()

    def _lane(self) -> None:
        """One step after another, from its place in the coordinator's queue to its end."""
        try:
            while True:
                with self._lock:
                    if self._is_ending:
                        return
                    number, self._next = self._next, self._next + 1
                    step = self._schedule(
                        self._function, args=(tf.constant(number, tf.int64),)
                    )
                self._ended.put(_done(number, _fetched(step, self._timeout_s)))
        except BaseException as e:  # raised where it is waited for
            self._ended.put(e)

    def _wait(self) -> WorkerStep:
        while True:
            try:
                ended = self._ended.get(timeout=LOOK_S)
            except queue.Empty:
                if self.count_lost() == self._num_workers:
                    raise ClusterError("all workers were lost") from None
                continue
            if isinstance(ended, BaseException):
                raise ended
            return ended

    def _build_one(self, number: tf.Tensor) -> tf.Tensor:
        (counts,), _ = self._build_step(number)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        head = [
            tf.cast(worker, tf.float64),
            tf.cast(self._async_update.staleness, tf.float64),
        ]
        return tf.concat([tf.stack(head), counts], 0)


def _fetched(step: Any, timeout_s: float) -> Sequence[float]:
    """The result of a step, which another worker runs again if its own dies before the fetch; OpError if it fails."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return step.fetch()
        except (
            tf.errors.UnavailableError,
            tf.errors.AbortedError,
            tf.errors.CancelledError,
        ):
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_S)


def _done(number: int, row: Sequence[float]) -> WorkerStep:
    worker, staleness, loss_sum, loss_items, items, positions, *correct = row
    counts = float(loss_sum), float(loss_items), int(items), int(positions)
    return WorkerStep(
        number,
        int(worker),
        int(staleness),
        *counts,
        int(correct[0]) if correct else None,
    )


def build(
    workload: Workload,
    source: Source,
    update: AsyncParameterServer,
    engine: Engine,
    config: RunConfig,
) -> TrainStep:
    """Steps for the workers of a coordinator; those of `towers.build` where one process does all."""
    kind = TrainStep if engine.strategy is None else ScheduledStep
    return kind(workload, source, update, engine, config)
