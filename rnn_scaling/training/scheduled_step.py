"""Steps that a coordinator assigns to free workers.

`benchmark` builds the step for the asynchronous mode. Steps begin independently of the
calls, so that no worker waits for another. `_Lanes` schedules them, and `ScheduledStep`
counts the steps that have ended.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data.source import Source
from rnn_scaling.models.workload import Workload
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.train_step import StepResult, TrainStep
from rnn_scaling.training.variable_update.async_parameter_server import (
    AsyncParameterServer,
)
from rnn_scaling.training.worker_steps import WorkerStep

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


class _Lanes:
    """Threads that schedule one step after another and wait for the end of each.

    `ScheduledStep` starts them with the first step of a run. They hand their results,
    and their errors, to the working thread of the run, which calls all public methods.
    """

    def __init__(self, schedule: Callable[[int], Any], timeout_s: float) -> None:
        """Create lanes without threads.

        Args:
          schedule: Schedules the step with a number, and returns its future.
          timeout_s: How long a step may be without a worker.
        """
        self._schedule = schedule
        self._timeout_s = timeout_s
        self._results: queue.SimpleQueue[WorkerStep | BaseException] = (
            queue.SimpleQueue()
        )
        self._threads: list[threading.Thread] = []
        # Guards `_next_number` and `_is_ending`, and makes sure that steps are scheduled
        # in the order of their numbers.
        self._lock = threading.Lock()
        self._next_number = 0
        self._is_ending = False

    def start(self, num_lanes: int) -> None:
        """Start the threads, unless they have been started before."""
        if self._threads:
            return
        for number in range(num_lanes):
            thread = threading.Thread(
                target=self._run_lane, name=f"lane {number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def wait_for_step(self, seconds: float) -> WorkerStep | None:
        """Return the next step that ends, or None if none ends within some seconds.

        Raises:
          BaseException: The error of a lane.
        """
        try:
            result = self._results.get(timeout=seconds)
        except queue.Empty:
            return None
        if isinstance(result, BaseException):
            raise result
        return result

    def end(self, has_lost_workers: Callable[[], bool]) -> list[WorkerStep]:
        """Begin no further step and wait for the running ones.

        Args:
          has_lost_workers: Whether a worker was lost. If so, a step may hang, and this
            does not wait for it.

        Returns:
          The steps that `wait_for_step` has not returned.
        """
        with self._lock:
            self._is_ending = True
        start = time.monotonic()
        while any(thread.is_alive() for thread in self._threads):
            limit_s = _HANGING_S if has_lost_workers() else self._timeout_s
            if time.monotonic() - start > limit_s:
                break
            time.sleep(_END_CHECK_S)
        steps = []
        while not self._results.empty():
            result = self._results.get()
            if isinstance(result, WorkerStep):
                steps.append(result)
        return steps

    def _run_lane(self) -> None:
        """Schedule one step after another and wait for the end of each."""
        try:
            while scheduled := self._schedule_next():
                number, step = scheduled
                row = _fetch(step, self._timeout_s)
                self._results.put(_make_worker_step(number, row))
        except BaseException as e:
            # `wait_for_step` raises it in the thread that calls the step.
            self._results.put(e)

    def _schedule_next(self) -> tuple[int, Any] | None:
        """Return the number and the future of the next step; None after `end`."""
        with self._lock:
            if self._is_ending:
                return None
            number = self._next_number
            self._next_number += 1
            return number, self._schedule(number)


class ScheduledStep(TrainStep):
    """Waits per call until as many steps have ended as there are workers.

    A worker may have run several of these steps, or none.

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
        self._coordinator = tf.distribute.coordinator.ClusterCoordinator(
            engine.strategy
        )
        self._function = tf.function(
            self._build_scheduled,
            input_signature=[tf.TensorSpec([], tf.int64)],
            autograph=False,
        )
        self._lanes = _Lanes(self._schedule, config.cluster.cluster_timeout)

    def __call__(self) -> StepResult:
        self._lanes.start(_LANES_PER_WORKER * self._num_workers)
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
        self.finished_steps += self._lanes.end(lambda: self.count_lost() > 0)
        return self._async_update.num_updates - len(self.finished_steps)

    def _schedule(self, number: int) -> Any:
        argument = tf.constant(number, tf.int64)
        return self._coordinator.schedule(self._function, args=(argument,))

    def _wait_for_step(self) -> WorkerStep:
        """Wait for the next step that ends.

        Raises:
          ClusterError: If no worker is left.
          BaseException: The error of a lane.
        """
        while True:
            step = self._lanes.wait_for_step(_CHECK_S)
            if step is not None:
                return step
            if self.count_lost() == self._num_workers:
                raise ClusterError("all workers were lost")

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
    """Build the step of a coordinator, or a plain one if a single process does all.

    Args:
      workload: The network.
      source: The batches.
      update: The variables, which parameter servers have.
      engine: The devices; without `strategy`, a single process does all.
      config: The options.
    """
    step_class = TrainStep if engine.strategy is None else ScheduledStep
    return step_class(workload, source, update, engine, config)
