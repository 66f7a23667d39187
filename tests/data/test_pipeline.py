"""The way from one pipeline to the towers: order, each element once, how far it runs ahead."""

from __future__ import annotations

import dataclasses
import itertools
import os
import time

import numpy as np
import pytest

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data.source import Feed
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.layout import TextLayout
from tests.data import test_sources
from tests.support import forked, served

pytestmark = pytest.mark.usefixtures("as_built")

NUM_TOWERS = pytest.mark.parametrize("num_towers", [1, 2, 3])
DEADLINE_S = 20.0


class Counted:
    """A pipeline whose element k is filled with k, and that counts how many were taken."""

    def __init__(self, tf):
        self.produced = 0

        def generate():
            for k in itertools.count():
                self.produced = k + 1
                yield Batch(*(np.full([2], k, np.int32) for _ in Batch._fields))

        spec = Batch(*(tf.TensorSpec([2], tf.int32) for _ in Batch._fields))
        self.dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)

    def wait_for(self, count: int) -> int:
        """Waits until `count` elements were taken, or the deadline has passed; returns how many were."""
        deadline = time.monotonic() + DEADLINE_S
        while self.produced < count and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.produced


def stepper(tf, counted, devices, *, prefetch, buffer_size, threads=1):
    from rnn_scaling.data import pipeline

    options = DataOptions(
        prefetch_data_to_device=prefetch,
        prefetch_buffer_size=buffer_size,
        num_parallel_calls=threads,
    )
    feed = Feed(
        options,
        TextLayout((), Batch, True),
        (2,) * len(devices),
        False,
        1,
        tuple(devices),
    )
    source = pipeline.distribute(counted.dataset, feed)

    @tf.function(autograph=False)
    def step_function(step):
        outputs = [batch.target_output for batch in source.next_batches(step)]
        for output, device in zip(outputs, devices):
            assert output.device.endswith(device)
        return outputs

    def run(step: int) -> list[int]:
        return [int(output[0]) for output in step_function(tf.constant(step, tf.int64))]

    return run


@NUM_TOWERS
@pytest.mark.parametrize("prefetch", [False, True])
def test_element_k_is_batch_k_div_n_of_tower_k_mod_n(tf, devices, num_towers, prefetch):
    run = stepper(
        tf, Counted(tf), devices[:num_towers], prefetch=prefetch, buffer_size=2
    )
    for step in range(20):
        assert run(step) == [step * num_towers + tower for tower in range(num_towers)]


@NUM_TOWERS
@pytest.mark.parametrize("buffer_size", [1, 2, 5])
def test_prefetch_keeps_batches_ready_on_every_device(
    tf, devices, num_towers, buffer_size
):
    counted = Counted(tf)
    run = stepper(
        tf, counted, devices[:num_towers], prefetch=True, buffer_size=buffer_size
    )
    # The host holds at most buffer_size elements a device and takes another when there is room. What is taken beyond
    # these has left for the devices: all their buffers are full.
    on_host_at_most = on_devices = num_towers * buffer_size
    for step in range(4):
        run(step)
        expected = (step + 1) * num_towers + on_host_at_most + on_devices
        assert counted.wait_for(expected) >= expected


@NUM_TOWERS
def test_prefetch_is_bounded(tf, devices, num_towers):
    counted = Counted(tf)
    run = stepper(tf, counted, devices[:num_towers], prefetch=True, buffer_size=2)
    run(0)
    # Consumed, in the buffers of the host and of the devices, and one in the hand of each device's thread.
    full = num_towers + 2 * num_towers * 2
    at_most = full + num_towers
    counted.wait_for(full)
    time.sleep(0.2)
    assert counted.produced <= at_most


@NUM_TOWERS
def test_without_prefetch_nothing_is_taken_before_the_step_asks(
    tf, devices, num_towers
):
    counted = Counted(tf)
    run = stepper(tf, counted, devices[:num_towers], prefetch=False, buffer_size=5)
    time.sleep(0.1)
    assert counted.produced == 0
    for step in range(4):
        run(step)
        time.sleep(0.05)
        assert counted.produced == (step + 1) * num_towers


def test_without_prefetch_a_parallel_map_runs_ahead_by_its_calls_and_no_more(
    tf, devices
):
    counted = Counted(tf)
    counted.dataset = counted.dataset.map(lambda batch: batch, num_parallel_calls=3)
    run = stepper(tf, counted, devices[:1], prefetch=False, buffer_size=5, threads=3)
    for step in range(4):
        assert run(step) == [step]
        time.sleep(0.05)
        assert counted.produced <= step + 1 + 3


def test_a_slow_element_is_waited_for_not_overtaken(tf, devices):
    def slow_when_even(k: int) -> np.ndarray:
        time.sleep(0.02 if k % 2 == 0 else 0.0)
        return np.int32([k, k])

    def to_batch(k):
        ids = tf.ensure_shape(tf.numpy_function(slow_when_even, [k], tf.int32), [2])
        return Batch(*(ids for _ in Batch._fields))

    counted = Counted(tf)
    counted.dataset = tf.data.Dataset.counter().map(to_batch, num_parallel_calls=4)
    run = stepper(tf, counted, devices[:1], prefetch=True, buffer_size=2, threads=4)
    assert [run(step) for step in range(12)] == [[step] for step in range(12)]


def test_host_of_keeps_the_task():
    from rnn_scaling.data import pipeline

    assert (
        pipeline.host_device("/job:worker/replica:0/task:3/device:GPU:2")
        == "/job:worker/replica:0/task:3/device:CPU:0"
    )
    assert pipeline.host_device("GPU:1") == "/device:CPU:0"


@pytest.mark.parametrize("prefetch", [True, False])
def test_xla_leaves_the_pipeline_of_a_worker_alone(prefetch):
    """In a cluster its functions name two CPU devices, and XLA takes one."""
    with served.servers("collective", worker=1) as (addresses, _):
        assert forked.call(_shapes_under_xla, addresses, prefetch) == [2, 3]


def _shapes_under_xla(addresses, prefetch):
    os.environ["TF_XLA_FLAGS"] = (
        "--tf_xla_cpu_global_jit"  # as training/preparation.py has it
    )
    from rnn_scaling.training.engines import collective

    engine = collective.start(
        dataclasses.replace(served.request(addresses, "worker", 0, 2), xla=True)
    )
    source = test_sources.build(
        "text", list(engine.devices), prefetch, batch_sizes=[2, 3]
    )
    return [len(batch.source_length) for batch in source.next_batches(0)]
