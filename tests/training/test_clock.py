"""The clock: items and seconds cover the same steps, whatever the numbers."""

import pytest

from rnn_scaling.training.clock import StepTimer
from rnn_scaling.training.recording import compute_throughput


@pytest.mark.parametrize("warmup", [0, 1, 9])
@pytest.mark.parametrize("slow_step_s, slow_items", [(1e6, 1), (1e-6, 10**9)])
def test_no_warmup_word_or_second_enters(warmup, slow_step_s, slow_items):
    readings = [0.0]
    for step in range(10):
        readings.append(readings[-1] + (slow_step_s if step < warmup else 2.0))
    timer = StepTimer(warmup, clock=iter(readings).__next__)
    timer.start()
    for step in range(10):
        timer.end_step(items=slow_items if step < warmup else 7)
    window = compute_throughput(timer.step_s, timer.step_items, timer.warmup_steps)
    assert window.items == 7 * (10 - warmup)
    assert window.seconds == pytest.approx(2.0 * (10 - warmup), rel=1e-6)


def test_a_pause_belongs_to_no_step():
    readings = [0.0, 1.0, 50.0, 51.5]
    timer = StepTimer(warmup_steps=0, clock=iter(readings).__next__)
    timer.start()
    timer.end_step(items=1)
    timer.resume()
    timer.end_step(items=1)
    assert timer.step_s == [1.0, 1.5]


def test_too_few_batches_have_no_rate():
    assert compute_throughput([1.0] * 10, [5] * 10, 10) is None
