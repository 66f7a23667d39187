"""Make the task of another framework: weights, batches and reference losses.

`starting` calls `make_task` in this suite's process, which trains the reference with
TensorFlow. The keys of a batch are the fields of our layout with `_lengths` for
`_length`; the modules of the frameworks read them by these names.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.config import registry
from rnn_scaling.config.registry import workloads
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import DeviceOptions
from rnn_scaling.frameworks import handoff
from rnn_scaling.frameworks.handoff import Task
from rnn_scaling.training import benchmark, optimizers
from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.state import RunState
from rnn_scaling.training.train_step import StepResult

# The last loss must be greater than this share of the first one.
_MIN_LAST_LOSS = 0.8
_MIN_LEARNING_RATE = 1e-3


def make_task(config: RunConfig, state: RunState, started: float) -> Task:
    """Return the task of a run; TensorFlow starts in this process.

    TensorFlow keeps its threads and memory until the framework's program replaces the
    process (`frameworks.starting`).

    Args:
      config: The options.
      state: The record so far, which has the cores and threads.
      started: See `Task`.
    """
    devices = config.devices
    resolved = state.resolved
    engine = local.start(
        local.Request(
            devices.device,
            devices.num_devices,
            resolved["inter_op_parallelism_threads"],
            resolved["intra_op_parallelism_threads"],
        )
    )
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return build_task(engine, config, resolved, started)


def build_task(
    engine: Engine, config: RunConfig, resolved: Mapping[str, Any], started: float
) -> Task:
    """Return the task of a run; its reference is trained on the engine's devices."""
    reference = _make_reference_config(config)
    workload = workloads.load(config.model.model).build(
        reference.model, engine.device_type
    )
    feed = benchmark.build_feed(reference, engine, workload)
    source = registry.load(registry.DATA_SOURCES, reference.data.data_source).build(
        feed
    )
    batches = tuple(map(_name_fields, source.next_batches(None)))
    learning_rate, results = _train_reference(reference, engine)
    cores = resolved["cpu_affinity"]
    return Task(
        config=config.flat(),
        weights=benchmark.make_initial_weights(config, workload),
        batches=batches,
        items=tuple(int(number) for number in results[0].items),
        loss_items=tuple(int(number) for number in results[0].loss_items),
        reference_losses=tuple(
            tuple((r.loss_sum / r.loss_items).tolist()) for r in results
        ),
        sgd_learning_rate=learning_rate,
        flops_per_item=workloads.count_flops_per_item(config.flat(), feed.max_lengths),
        parameters=_count_parameters(config, workload),
        result_file=config.output.result_file,
        threads=_choose_num_threads(config.devices, len(cores)),
        cores=_list_cores_by_device(config.devices, cores),
        resolved=_resolve(config, resolved),
        started=started,
    )


def _name_fields(batch: Any) -> dict[str, np.ndarray]:
    """Return a tower's batch with the names of the fields in `handoff.Task`."""
    fields = {}
    for name, tensor in batch._asdict().items():
        fields[name.replace("_length", "_lengths")] = tensor.numpy().astype("int32")
    return fields


def _count_parameters(config: RunConfig, workload: Any) -> dict[str, int]:
    """Return the fields of a `records.parts.Parameters`."""
    training = config.training
    optimizer = optimizers.build(training.optimizer, training.learning_rate)
    trainable = sum(math.prod(spec.shape) for spec in workload.variables)
    return {
        "trainable": trainable,
        "bytes": 4 * trainable,
        "moving": 0,
        "optimizer": len(optimizer.first_slots) * trainable,
    }


def _choose_num_threads(devices: DeviceOptions, num_cores: int) -> int:
    """Return the threads of each device; GPUs divide the cores of the process."""
    if devices.device == "cpu":
        return devices.cpu_cores_per_device
    return max(1, num_cores // devices.num_devices)


def _list_cores_by_device(
    devices: DeviceOptions, cores: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Return the cores of each CPU device; empty for GPUs."""
    if devices.device != "cpu":
        return ()
    # If there are too few cores, devices share them.
    core_numbers = itertools.cycle(cores)
    device_cores = []
    for _ in range(devices.num_devices):
        own_cores = itertools.islice(core_numbers, devices.cpu_cores_per_device)
        device_cores.append(tuple(own_cores))
    return tuple(device_cores)


def _resolve(config: RunConfig, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the run's `resolved` that are known before it starts."""
    device_type = config.devices.device.upper()
    numbers = range(config.devices.num_devices)
    return {
        "scaling": resolved["scaling"],
        "oversubscribed": resolved.get("oversubscribed"),
        "cpu_affinity": resolved["cpu_affinity"],
        "devices": [f"{device_type}:{number}" for number in numbers],
        "device_type": device_type,
        "onednn": local.uses_onednn(),
        "tower_batch_sizes": list(config.tower_batch_sizes()),
        "logical_devices": False,
        "learning_rate": config.training.learning_rate,
    }


def _train_reference(
    config: RunConfig, engine: Engine
) -> tuple[float, list[StepResult]]:
    """Train with a rate at which the loss falls slowly in every step.

    Otherwise, for example with batches of few words, rounding becomes as large as the
    faults that the check searches for.

    Returns:
      The learning rate, and the results of the steps.
    """
    learning_rate = handoff.SGD_LEARNING_RATE
    while True:
        training = dataclasses.replace(config.training, learning_rate=learning_rate)
        step = benchmark.build(dataclasses.replace(config, training=training), engine)
        results = [step() for _ in range(handoff.NUM_LOSSES)]
        losses = np.array([result.loss_sum / result.loss_items for result in results])
        is_even = bool(
            (np.diff(losses, axis=0) < 0).all()
            and (losses[-1] > _MIN_LAST_LOSS * losses[0]).all()
        )
        if is_even or learning_rate < _MIN_LEARNING_RATE:
            return learning_rate, results
        learning_rate /= 4


def _make_reference_config(config: RunConfig) -> RunConfig:
    """Return the options of this suite's run: float32 and plain SGD."""
    return dataclasses.replace(
        config,
        frameworks=dataclasses.replace(config.frameworks, framework="tensorflow"),
        model=dataclasses.replace(config.model, compute_dtype="float32"),
        training=dataclasses.replace(
            config.training, optimizer="sgd", lr_warmup_batches=0
        ),
    )
