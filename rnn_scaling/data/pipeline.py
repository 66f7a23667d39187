"""From one tf.data pipeline to every tower, each element once: element k is tower k % N's batch of step k // N.

Towers are those of all workers. Each worker runs the whole pipeline and keeps what is its own.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops

from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.layout import Layout


def without_rewriting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pipeline's function that runs as it is written: neither AutoGraph nor XLA rewrites it.

    AutoGraph would read and compile each for loops over tensors, of which they have none: 0.2 to 0.4 s of a start.
    XLA is for the step. It also fails here where this process is part of a cluster: a function then holds the names of
    two CPU devices, /job:worker of the cluster and /job:localhost of tf.data, and a cluster of operators needs one.
    """

    @functools.wraps(function)
    def traced(*columns: Any) -> Any:
        with tf.xla.experimental.jit_scope(compile_ops=False):
            return function(*columns)

    return tf.autograph.experimental.do_not_convert(traced)


def _synchronous(dataset: tf.data.Dataset, *, num_threads: int) -> tf.data.Dataset:
    """`dataset` without tf.data's own choices: no extra prefetch, no tuning, elements in order.

    What still runs ahead is a map with n parallel calls: at most n elements.
    """
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    options.threading.private_threadpool_size = num_threads
    return dataset.with_options(options)


def select_own_batches(dataset: tf.data.Dataset, feed: Feed) -> tf.data.Dataset:
    """Of a pipeline's batches those of this worker's towers; all of them where a global batch is split later."""
    num_towers = len(feed.batch_sizes)
    if feed.split or len(feed.devices) == num_towers:
        return dataset

    @without_rewriting
    def is_own(index: tf.Tensor, batch: Any) -> tf.Tensor:
        tower = index % num_towers
        return (tower >= feed.own_towers.start) & (tower < feed.own_towers.stop)

    return (
        dataset.enumerate()
        .filter(is_own)
        .map(without_rewriting(lambda index, batch: batch))
    )


def cut(batch: Any, sizes: Sequence[int], layout: Layout) -> list[Any]:
    """The pieces of a batch, in order; none of its samples is dropped or repeated. `sizes`: samples of each."""
    columns = [tf.split(part, list(sizes), layout.sample_axis(part)) for part in batch]
    return [type(batch)(*parts) for parts in zip(*columns)]


def _split(dataset: tf.data.Dataset, feed: Feed) -> tf.data.Dataset:
    """Cuts each global batch into the towers' pieces."""

    @without_rewriting
    def pieces(batch: Any) -> tf.data.Dataset:
        own = cut(batch, feed.batch_sizes, feed.layout)[feed.own_towers]
        batches = map(tf.data.Dataset.from_tensors, own)
        return functools.reduce(lambda left, right: left.concatenate(right), batches)

    return dataset.flat_map(pieces)


def map_devices(
    devices: Sequence[str], make: Callable[..., Any], *columns: Iterable[Any]
) -> list[Any]:
    """What `make` gives on each device, of that device's element of every column."""
    made = []
    for device, *elements in zip(devices, *columns, strict=True):
        with tf.device(device):
            made.append(make(*elements))
    return made


def host_device(device: str) -> str:
    """The CPU:0 of the task that `device` belongs to."""
    return (
        tf.DeviceSpec.from_string(device)
        .replace(device_type="CPU", device_index=0)
        .to_string()
    )


def _prefetched(
    dataset: tf.data.Dataset, devices: Sequence[str], buffer_size: int
) -> Callable[[], list[Any]]:
    """Background threads copy batches to the devices ahead of the step."""
    # It holds buffer_size batches on each device, and the same number for it on the host.
    iterator = multi_device_iterator_ops.OwnedMultiDeviceIterator(
        dataset,
        list(devices),
        max_buffer_size=buffer_size,
        prefetch_buffer_size=buffer_size,
        source_device=host_device(devices[0]),
    )
    return iterator.get_next


def _on_demand(
    dataset: tf.data.Dataset, devices: Sequence[str]
) -> Callable[[], list[Any]]:
    """The step itself takes the batches from the host's pipeline and copies them."""
    host = host_device(devices[0])
    with tf.device(host):
        iterator = iter(dataset)

    def take() -> list[Any]:
        with tf.device(host):
            elements = [iterator.get_next() for _ in devices]
        return map_devices(
            devices,
            lambda element: type(element)._make(map(tf.identity, element)),
            elements,
        )

    return take


def distribute(
    dataset: tf.data.Dataset,
    feed: Feed,
    keep: Any = None,
    num_samples: int | None = None,
) -> Source:
    """A source that deals the batches of an endless pipeline to the towers.

    Args:
      dataset: its batches have the sizes `feed.pipeline_batch_sizes`, in turn.
      feed: with `prefetch_data_to_device` batches are kept ready on each device; otherwise the step asks for each.
      num_samples: of an epoch; None: not counted.
    """
    options = feed.options
    with tf.device(host_device(feed.devices[0])):
        if feed.split:
            dataset = _split(dataset, feed)
        if feed.first_step:
            dataset = dataset.skip(feed.first_step * len(feed.devices))
        dataset = _synchronous(dataset, num_threads=options.num_parallel_calls)
    if options.prefetch_data_to_device:
        take = _prefetched(dataset, feed.devices, options.prefetch_buffer_size)
    else:
        take = _on_demand(dataset, feed.devices)
    return Source(lambda step: take(), num_samples, keep)
