"""Distribute the batches of one tf.data pipeline over the N towers of all workers.

Element k is the batch of tower k % N at step k // N. Each worker runs the complete
pipeline and keeps its towers' batches.

Data sources build their dataset and pass it to `distribute`; they do not depend on
towers.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import multi_device_iterator_ops

from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.layout import Layout


def without_rewriting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a pipeline's function that neither AutoGraph nor XLA rewrites.

    AutoGraph would look for loops over tensors, which these functions do not have, and
    add 0.2 to 0.4 s to the start. XLA is meant for the step. It also fails here if this
    process belongs to a cluster: a function then contains the names of two CPU devices,
    /job:worker of the cluster and /job:localhost of tf.data, and XLA compiles operators
    of one device only.
    """

    @functools.wraps(function)
    def call(*columns: Any) -> Any:
        with tf.xla.experimental.jit_scope(compile_ops=False):
            return function(*columns)

    return tf.autograph.experimental.do_not_convert(call)


def _make_synchronous(dataset: tf.data.Dataset, *, num_threads: int) -> tf.data.Dataset:
    """Return `dataset` with elements in order, and without prefetch and tuning.

    Only a map with n parallel calls still runs ahead, by at most n elements.
    """
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.experimental_optimization.inject_prefetch = False
    options.threading.private_threadpool_size = num_threads
    return dataset.with_options(options)


def select_own_batches(dataset: tf.data.Dataset, feed: Feed) -> tf.data.Dataset:
    """Return the batches of this worker's towers.

    If a global batch is split later, every worker needs all batches.
    """
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
    """Return consecutive pieces of a batch that contain each sample once.

    Args:
      batch: The batch.
      sizes: Samples of each piece.
      layout: The layout of the batch.
    """
    columns = [
        tf.split(tensor, list(sizes), layout.sample_axis(tensor)) for tensor in batch
    ]
    return [type(batch)(*piece) for piece in zip(*columns)]


def _split(dataset: tf.data.Dataset, feed: Feed) -> tf.data.Dataset:
    """Cut each global batch into the pieces of this worker's towers."""

    @without_rewriting
    def cut_own_pieces(batch: Any) -> tf.data.Dataset:
        pieces = cut(batch, feed.batch_sizes, feed.layout)[feed.own_towers]
        batches = map(tf.data.Dataset.from_tensors, pieces)
        return functools.reduce(lambda left, right: left.concatenate(right), batches)

    return dataset.flat_map(cut_own_pieces)


def map_devices(
    devices: Sequence[str], make: Callable[..., Any], *columns: Iterable[Any]
) -> list[Any]:
    """Call `make` on each device, with the device's element of every column."""
    results = []
    for device, *elements in zip(devices, *columns, strict=True):
        with tf.device(device):
            results.append(make(*elements))
    return results


def name_host_device(device: str) -> str:
    """Return the name of the first CPU of the task that `device` belongs to."""
    return (
        tf.DeviceSpec.from_string(device)
        .replace(device_type="CPU", device_index=0)
        .to_string()
    )


def _take_prefetched(
    dataset: tf.data.Dataset, devices: Sequence[str], buffer_size: int
) -> Callable[[], list[Any]]:
    """Return a function that takes batches which background threads have copied."""
    # The iterator keeps buffer_size batches per device on the devices and on the host.
    iterator = multi_device_iterator_ops.OwnedMultiDeviceIterator(
        dataset,
        list(devices),
        max_buffer_size=buffer_size,
        prefetch_buffer_size=buffer_size,
        source_device=name_host_device(devices[0]),
    )
    return iterator.get_next


def _take_on_demand(
    dataset: tf.data.Dataset, devices: Sequence[str]
) -> Callable[[], list[Any]]:
    """Return a function that takes batches from the host's pipeline and copies them."""
    host = name_host_device(devices[0])
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
    """Return a source that distributes the batches of an endless pipeline.

    Args:
      dataset: Batches of the sizes `feed.pipeline_batch_sizes`, in turn.
      feed: With `prefetch_data_to_device` each device has batches in advance; otherwise
        the step fetches each batch.
      keep: Objects that must live as long as the source.
      num_samples: Samples per epoch; None if they are not counted.
    """
    options = feed.options
    with tf.device(name_host_device(feed.devices[0])):
        if feed.split:
            dataset = _split(dataset, feed)
        if feed.first_step:
            dataset = dataset.skip(feed.first_step * len(feed.devices))
        dataset = _make_synchronous(dataset, num_threads=options.num_parallel_calls)
    if options.prefetch_data_to_device:
        take = _take_prefetched(dataset, feed.devices, options.prefetch_buffer_size)
    else:
        take = _take_on_demand(dataset, feed.devices)
    return Source(lambda step: take(), num_samples, keep)
