"""Steps that a coordinator assigns to free workers.

`benchmark` builds the step for the asynchronous mode. Each lane is a thread that waits
for one scheduled step at a time; `_lock` protects the number of the next step.
"""

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
from rnn_scaling.training.train_step import StepResult, TrainStep
from rnn_scaling.training.variable_update.async_parameter_server import (
    AsyncParameterServer,
)

# Steps per worker that run or wait. A worker that has finished one finds the next one
# in the coordinator's queue.
_LANES_PER_WORKER = 2
# How long the end waits for running steps after a worker was lost. A step that hangs on
# a lost worker never ends.
_HANGING_S = 5.0
# How often the end checks whether steps still run.
_END_CHECK_S = 0.02
# How often a waiting thread checks whether a worker is left.
_CHECK_S = 0.5
# TensorFlow's errors while a step moves from a dead worker to another one.
_MOVING_ERRORS = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
)


class ScheduledStep(TrainStep):
    """Waits per call until as many steps have ended as there are workers.

    A worker may have run several of these steps, or none. Steps begin independently of
    the calls, so that no worker waits for another. Threads named lanes schedule the
    steps and wait for them; the working thread of the run calls the step and `end`.
    Lanes hand their results, and their errors, to it through `_results`. `_lock` guards
    `_next_number` and `_is_ending`, and makes sure that steps are scheduled in the
    order of their numbers. Only the working thread writes `finished_steps`.

    Attributes:
      finished_steps: The steps, in the order in which they ended.
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
        self.finished_steps: list[WorkerStep] = []
        self._async_update = update
        self._num_workers = config.cluster.num_workers
        # How long a step may be without a worker.
        self._timeout_s = config.cluster.cluster_timeout
        coordinator = tf.distribute.coordinator.ClusterCoordinator(engine.strategy)
        self._schedule = coordinator.schedule
        self._function = tf.function(
            self._build_scheduled,
            input_signature=[tf.TensorSpec([], tf.int64)],
            autograph=False,
        )
        self._results: queue.SimpleQueue[WorkerStep | BaseException] = (
            queue.SimpleQueue()
        )
        self._lanes: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._next_number = 0
        self._is_ending = False

    def __call__(self) -> StepResult:
        if not self._lanes:
            self._start_lanes()
        steps = [self._wait_for_step() for _ in range(self._num_workers)]
        self.finished_steps += steps
        correct = [step.correct for step in steps if step.correct is not None]
        return StepResult(
            np.array([step.loss_sum for step in steps], np.float64),
            np.array([step.loss_items for step in steps], np.float64),
            np.array([step.items for step in steps], np.float64),
            np.array([step.positions for step in steps], np.float64),
            correct=np.array(correct, np.float64) if correct else None,
        )

    def end(self) -> int:
        """Begin no further step and wait for the running ones.

        Call it once, after the last call of the step. It does not wait for a step that
        hangs on a lost worker.

        Returns:
          The number of updates by workers that died in a step which another worker ran
          again.
        """
        with self._lock:
            self._is_ending = True
        start = time.monotonic()
        while any(lane.is_alive() for lane in self._lanes):
            limit_s = _HANGING_S if self.count_lost() else self._timeout_s
            if time.monotonic() - start > limit_s:
                break
            time.sleep(_END_CHECK_S)
        while not self._results.empty():
            result = self._results.get()
            if isinstance(result, WorkerStep):
                self.finished_steps.append(result)
        return self._async_update.num_updates - len(self.finished_steps)

    def _start_lanes(self) -> None:
        for number in range(_LANES_PER_WORKER * self._num_workers):
            lane = threading.Thread(
                target=self._run_lane, name=f"lane {number}", daemon=True
            )
            self._lanes.append(lane)
            lane.start()

    def _run_lane(self) -> None:
        """Schedule one step after another and wait for the end of each."""
        try:
            while scheduled := self._schedule_next():
                number, step = scheduled
                row = _fetch(step, self._timeout_s)
                self._results.put(_make_worker_step(number, row))
        except BaseException as e:
            # `_wait_for_step` raises it in the thread that calls the step.
            self._results.put(e)

    def _schedule_next(self) -> tuple[int, Any] | None:
        """Return the number and the future of the next step; None after `end`."""
        with self._lock:
            if self._is_ending:
                return None
            number = self._next_number
            self._next_number += 1
            argument = tf.constant(number, tf.int64)
            return number, self._schedule(self._function, args=(argument,))

    def _wait_for_step(self) -> WorkerStep:
        """Wait for the next step that ends.

        Raises:
          ClusterError: If no worker is left.
          BaseException: The error of a lane.
        """
        while True:
            try:
                result = self._results.get(timeout=_CHECK_S)
            except queue.Empty:
                if self.count_lost() == self._num_workers:
                    raise ClusterError("all workers were lost") from None
                continue
            if isinstance(result, BaseException):
                raise result
            return result

    def _build_scheduled(self, number: tf.Tensor) -> tf.Tensor:
        """Trace a step.

        Returns:
          Its worker, its staleness and its counts, in the order that
          `_make_worker_step` reads.
        """
        (counts,), _ = self._build_step(number)
        worker = tf.distribute.coordinator.experimental_get_current_worker_index()
        head = [
            tf.cast(worker, tf.float64),
            tf.cast(self._async_update.staleness, tf.float64),
        ]
        return tf.concat([tf.stack(head), counts], 0)


def _fetch(step: Any, timeout_s: float) -> Sequence[float]:
    """Return the result of a step.

    If its worker dies before the fetch, another worker runs it again.

    Raises:
      tf.errors.OpError: If the step fails, or no worker runs it in time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return step.fetch()
        except _MOVING_ERRORS:
            if time.monotonic() > deadline:
                raise
            time.sleep(_CHECK_S)


def _make_worker_step(number: int, row: Sequence[float]) -> WorkerStep:
    """Return a step from the numbers that `_build_scheduled` returns."""
    worker, staleness, loss_sum, loss_items, items, positions, *correct = row
    return WorkerStep(
        number=number,
        worker=int(worker),
        staleness=int(staleness),
        loss_sum=float(loss_sum),
        loss_items=float(loss_items),
        items=int(items),
        positions=int(positions),
        correct=int(correct[0]) if correct else None,
    )


def build(
    workload: Workload,
    source: Source,
    update: AsyncParameterServer,
    engine: Engine,
    config: RunConfig,
) -> TrainStep:
    """Build the step of a coordinator, or a plain one if a single process does all."""
    step_class = TrainStep if engine.strategy is None else ScheduledStep
    return step_class(workload, source, update, engine, config)
