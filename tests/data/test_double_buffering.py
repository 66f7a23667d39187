"""Batches are made while the step before computes.

Stages meet by hand-shakes, and a simulated clock is computed from their log.

10 ms of input and 10 ms of step: how long a run takes follows from what waited for what, whatever the machine's speed.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
import pytest

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data.source import Feed
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.layout import TextLayout

STEPS = 50
INPUT_MS = STEP_MS = 10
DEADLINE_S = 20.0  # for a hand-shake
EVEN, ONE, UNEVEN = (2, 2), (2,), (3, 2, 2)


class Event(NamedTuple):
    """The begin or end of a stage ("input" or "step") of a numbered step."""

    stage: str
    number: int
    begins: bool


class Log:
    """Events in their order."""

    def __init__(self):
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def add(self, *event):
        with self._changed:
            self.events.append(Event(*event))
            self._changed.notify_all()

    def wait_for(self, *event):
        """Return whether an event happens before the deadline."""
        with self._changed:
            return self._changed.wait_for(
                lambda: Event(*event) in self.events, DEADLINE_S
            )


def elapsed_ms(events, last=STEPS - 1):
    """Return the duration of a run from the order of its events.

    Input for a step begins when the input before has ended, and not before the last event
    of a step in the log. A step begins when the step before and its input have ended.
    """
    input_end, step_end, now = {-1: 0}, {-1: 0}, 0
    for stage, number, begins in events:
        if stage == "input" and begins:
            input_end[number] = max(input_end[number - 1], now) + INPUT_MS
        elif stage == "step" and begins:
            now = max(step_end[number - 1], input_end[number])
            step_end[number] = now + STEP_MS
        elif stage == "step":
            now = step_end[number]
    return step_end[last]


def steps_beside_input(events):
    """Return the steps that ran while input was made."""
    found, making, running = set(), False, None
    for stage, number, begins in events:
        if stage == "input":
            making = begins
        else:
            running = number if begins else None
        if making and running is not None:
            found.add(running)
    return found


def run(tf, devices, batch_sizes, prefetch):
    """Run the suite's own pipeline with steps that take every batch.

    Returns:
      The log of events, and the numbers of the towers' samples, `[step][tower]`.
    """
    from rnn_scaling.data import pipeline

    is_split, log = batch_sizes == UNEVEN, Log()
    elements = 1 if is_split else len(batch_sizes)  # a step
    size = sum(batch_sizes) // elements

    def generate():
        for k in range(STEPS * elements):
            step, part = divmod(k, elements)
            if part == 0:
                log.add("input", step, True)
                # Made only when the step before is seen to run, so that both must go on at once.
                if prefetch and step:
                    assert log.wait_for("step", step - 1, True)
            if part == elements - 1:
                log.add("input", step, False)
            yield Batch(
                *(
                    np.arange(k * size, (k + 1) * size, dtype=np.int32)
                    for _ in Batch._fields
                )
            )

    spec = Batch(*(tf.TensorSpec([size], tf.int32) for _ in Batch._fields))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)
    options = DataOptions(
        prefetch_data_to_device=prefetch, prefetch_buffer_size=1, num_parallel_calls=1
    )
    feed = Feed(
        options, TextLayout((), Batch, True), batch_sizes, is_split, 1, tuple(devices)
    )
    source = pipeline.distribute(dataset, feed)

    @tf.function(autograph=False)
    def take(step):
        return [batch.target_output for batch in source.next_batches(step)]

    taken = []
    for step in range(STEPS):
        taken.append(
            [part.numpy().tolist() for part in take(tf.constant(step, tf.int64))]
        )
        log.add("step", step, True)
        if prefetch and step + 1 < STEPS:
            assert log.wait_for("input", step + 1, False), (
                f"while step {step} ran nothing made input for the next"
            )
        log.add("step", step, False)
    with pytest.raises(tf.errors.OutOfRangeError):  # nothing is left over
        take(tf.constant(STEPS, tf.int64))
    return log.events, taken


@pytest.mark.parametrize(
    "batch_sizes", [ONE, EVEN, UNEVEN], ids=["one tower", "two towers", "uneven towers"]
)
def test_input_and_step_of_10_ms_take_10_ms_with_prefetch_and_20_without(
    tf, devices, batch_sizes
):
    towers = devices[: len(batch_sizes)]
    ahead, batches = run(tf, towers, batch_sizes, prefetch=True)
    assert (
        elapsed_ms(ahead) == INPUT_MS + STEPS * STEP_MS
    )  # the first input has nothing to hide behind
    assert steps_beside_input(ahead) == set(
        range(STEPS - 1)
    )  # the last has no input to make
    on_demand, same_batches = run(tf, towers, batch_sizes, prefetch=False)
    assert elapsed_ms(on_demand) == STEPS * (INPUT_MS + STEP_MS)
    assert not steps_beside_input(on_demand)

    assert batches == same_batches
    assert all(tuple(map(len, step)) == batch_sizes for step in batches)
    samples = [sample for step in batches for tower in step for sample in tower]
    assert samples == list(
        range(STEPS * sum(batch_sizes))
    )  # each once, in order, none left at the end
