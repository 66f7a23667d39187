"""What another framework starts from and must reach: initial weights, constant batches, and losses of our own step."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.config import registry
from rnn_scaling.config.registry import workloads
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.frameworks import handoff
from rnn_scaling.frameworks.handoff import Work
from rnn_scaling.models.workload import first_values
from rnn_scaling.training import benchmark, optimizers
from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.state import RunState
from rnn_scaling.training.towers import StepResult

MOST_FALL = 0.8  # of the first loss, that the last one has at least
LEAST_RATE = 1e-3


def make(config: RunConfig, state: RunState, started: float) -> Work:
    """The work of a run; TensorFlow starts in this process. `started`: as in `Work`."""
    devices = config.devices
    resolved = state.resolved
    inter, intra = (
        resolved[f"{name}_op_parallelism_threads"] for name in ("inter", "intra")
    )
    engine = local.start(
        local.Request(devices.device, devices.num_devices, inter, intra)
    )
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return on(engine, config, resolved, started)


def on(
    engine: Engine, config: RunConfig, resolved: Mapping[str, Any], started: float
) -> Work:
    """The work of a run whose reference is trained on these devices."""
    ours = _reference_config(config)
    devices = config.devices
    workload = workloads.load(config.model.model).build(ours.model, engine.device_type)
    feed = benchmark.build_feed(ours, engine, workload)
    source = registry.load(registry.DATA_SOURCES, ours.data.data_source).build(feed)
    batches = tuple(
        {
            name.replace("_length", "_lengths"): part.numpy().astype("int32")
            for name, part in batch._asdict().items()
        }
        for batch in source.next_batches(None)
    )
    learning_rate, results = _trained(ours, engine)
    cores = resolved["cpu_affinity"]
    share = devices.cpu_cores_per_device
    on_cpus = devices.device == "cpu"
    names = [
        f"{devices.device.upper()}:{number}" for number in range(devices.num_devices)
    ]
    num_slots = len(
        optimizers.build(
            config.training.optimizer, config.training.learning_rate
        ).first_slots
    )
    trainable = sum(math.prod(spec.shape) for spec in workload.variables)
    return Work(
        config=config.flat(),
        weights=first_values(workload.variables, config.training.seed),
        batches=batches,
        items=tuple(int(number) for number in results[0].items),
        loss_items=tuple(int(number) for number in results[0].loss_items),
        reference_losses=tuple(
            tuple((r.loss_sum / r.loss_items).tolist()) for r in results
        ),
        sgd_learning_rate=learning_rate,
        flops_per_item=workloads.flops_per_item(config.flat(), feed.max_lengths),
        parameters={
            "trainable": trainable,
            "bytes": 4 * trainable,
            "moving": 0,
            "optimizer": num_slots * trainable,
        },
        result_file=config.output.result_file,
        threads=share if on_cpus else max(1, len(cores) // devices.num_devices),
        cores=tuple(
            tuple(cores[(n * share + k) % len(cores)] for k in range(share))
            for n in range(len(names))
            if on_cpus
        ),
        resolved={
            "scaling": resolved["scaling"],
            "oversubscribed": resolved.get("oversubscribed"),
            "cpu_affinity": cores,
            "devices": names,
            "device_type": devices.device.upper(),
            "onednn": local.uses_onednn(),
            "tower_batch_sizes": list(config.tower_batch_sizes()),
            "logical_devices": False,
            "learning_rate": config.training.learning_rate,
        },
        started=started,
    )


def _trained(config: RunConfig, engine: Engine) -> tuple[float, list[StepResult]]:
    """(learning rate, steps) of a run in which the loss falls, but by less than a fifth in 20 steps.

    Otherwise rounding grows to the size of the faults that are searched for, as with batches of few words.
    """
    learning_rate = handoff.SGD_LEARNING_RATE
    while True:
        training = dataclasses.replace(config.training, learning_rate=learning_rate)
        step = benchmark.build(dataclasses.replace(config, training=training), engine)
        results = [step() for _ in range(handoff.NUM_LOSSES)]
        losses = np.array([result.loss_sum / result.loss_items for result in results])
        is_even = bool(
            (np.diff(losses, axis=0) < 0).all()
            and (losses[-1] > MOST_FALL * losses[0]).all()
        )
        if is_even or learning_rate < LEAST_RATE:
            return learning_rate, results
        learning_rate /= 4


def _reference_config(config: RunConfig) -> RunConfig:
    """The same run by us, in float32 with plain SGD."""
    return dataclasses.replace(
        config,
        frameworks=dataclasses.replace(config.frameworks, framework="tensorflow"),
        model=dataclasses.replace(config.model, compute_dtype="float32"),
        training=dataclasses.replace(
            config.training, optimizer="sgd", lr_warmup_batches=0
        ),
    )
