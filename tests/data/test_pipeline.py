"""One pipeline for all towers: order, each element once, how far it runs ahead."""

import dataclasses
import itertools
import os
import threading

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
    """A pipeline whose element k is filled with k.

    Attributes:
      num_steps: The steps that have started.
      steps_at: For each element, the steps that had started when it was taken.
    """

    def __init__(self, tf):
        self.num_steps = 0
        self.steps_at = []
        self._changed = threading.Condition()

        def generate():
            for k in itertools.count():
                with self._changed:
                    self.steps_at.append(self.num_steps)
                    self._changed.notify_all()
                yield Batch(*(np.full([2], k, np.int32) for _ in Batch._fields))

        spec = Batch(*(tf.TensorSpec([2], tf.int32) for _ in Batch._fields))
        self.dataset = tf.data.Dataset.from_generator(generate, output_signature=spec)

    def wait_for(self, count):
        """Wait until `count` elements were taken; False if that takes too long."""
        with self._changed:
            return self._changed.wait_for(
                lambda: len(self.steps_at) >= count, DEADLINE_S
            )

    def max_ahead(self, batches_per_step):
        """Return how many elements were taken at most beyond the started steps."""
        return max(
            number - batches_per_step * num_steps
            for number, num_steps in enumerate(self.steps_at, start=1)
        )


def make_stepper(tf, counted, devices, *, prefetch, buffer_size, threads=1):
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

    def run(step):
        counted.num_steps = step + 1
        return [int(output[0]) for output in step_function(tf.constant(step, tf.int64))]

    return run


@NUM_TOWERS
@pytest.mark.parametrize("prefetch", [False, True])
def test_element_k_is_batch_k_div_n_of_tower_k_mod_n(tf, devices, num_towers, prefetch):
    """Without prefetching, no element is taken before a step asks for it."""
    counted = Counted(tf)
    own = devices[:num_towers]
    run = make_stepper(tf, counted, own, prefetch=prefetch, buffer_size=5)
    for step in range(20):
        assert run(step) == [step * num_towers + tower for tower in range(num_towers)]
    assert prefetch or counted.max_ahead(num_towers) == 0


@pytest.mark.parametrize("num_towers, buffer_size", [(1, 5), (2, 1), (3, 2)])
def test_prefetch_keeps_batches_ready_on_every_device_and_is_bounded(
    tf, devices, num_towers, buffer_size
):
    counted = Counted(tf)
    run = make_stepper(
        tf, counted, devices[:num_towers], prefetch=True, buffer_size=buffer_size
    )
    # The host has at most buffer_size elements per device. Further elements have left
    # for the devices, so that all their buffers are full.
    num_buffered = 2 * num_towers * buffer_size
    for step in range(20):
        run(step)
        assert counted.wait_for((step + 1) * num_towers + num_buffered)
    # One more element is in each device's thread.
    assert counted.max_ahead(num_towers) <= num_buffered + num_towers


def test_without_prefetch_a_parallel_map_runs_ahead_by_its_calls_and_no_more(
    tf, devices
):
    counted = Counted(tf)
    counted.dataset = counted.dataset.map(lambda batch: batch, num_parallel_calls=3)
    run = make_stepper(
        tf, counted, devices[:1], prefetch=False, buffer_size=5, threads=3
    )
    for step in range(20):
        assert run(step) == [step]
    assert counted.max_ahead(1) <= 3


def test_a_slow_element_is_waited_for_not_overtaken(tf, devices):
    has_ended = [threading.Event() for _ in range(100)]

    def end_after_the_next_when_even(k):
        assert k % 2 or has_ended[k + 1].wait(DEADLINE_S)
        has_ended[k].set()
        return np.int32([k, k])

    def to_batch(k):
        function = end_after_the_next_when_even
        ids = tf.ensure_shape(tf.numpy_function(function, [k], tf.int32), [2])
        return Batch(*(ids for _ in Batch._fields))

    counted = Counted(tf)
    counted.dataset = tf.data.Dataset.counter().map(to_batch, num_parallel_calls=4)
    run = make_stepper(
        tf, counted, devices[:1], prefetch=True, buffer_size=2, threads=4
    )
    assert [run(step) for step in range(12)] == [[step] for step in range(12)]


def test_xla_leaves_the_pipeline_of_a_worker_alone():
    """In a cluster its functions name two CPU devices, and XLA takes one."""
    with served.servers("collective", worker=1) as (addresses, _):
        assert forked.call(list_shapes_under_xla, addresses) == [[2, 3]] * 2


def list_shapes_under_xla(addresses):
    os.environ["TF_XLA_FLAGS"] = (
        "--tf_xla_cpu_global_jit"  # like training/preparation.py
    )
    from rnn_scaling.training.engines import collective

    engine = collective.start(
        dataclasses.replace(served.request(addresses, "worker", 0, 2), xla=True)
    )
    shapes = []
    for prefetch in (True, False):
        source = test_sources.build(
            "text", list(engine.devices), prefetch, batch_sizes=[2, 3]
        )
        batches = source.next_batches(0)
        shapes.append([len(batch.source_length) for batch in batches])
    return shapes
