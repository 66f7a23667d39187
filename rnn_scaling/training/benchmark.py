"""Make one run: build the step, warm up, time the batches, and collect the facts.

`training.run` calls `run` in its working thread, after it has joined the other ranks.
The order of building is visible in results: variables, input and step must be created
in this order on every rank.
"""

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import all_reduce_spec, learning_rate, registry
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.data.source import Feed
from rnn_scaling.models import decoding, workloads
from rnn_scaling.models.encoder_table import ENCODERS
from rnn_scaling.models.extension import operators
from rnn_scaling.models.workload import Workload, make_first_values
from rnn_scaling.system.machine.onednn import ONEDNN_VARIABLE
from rnn_scaling.training import cluster as clusters
from rnn_scaling.training import optimizers
from rnn_scaling.training.acceptance import NotFiniteError
from rnn_scaling.training.checkpoints import Saver, read_trained_values
from rnn_scaling.training.clock import StepTimer
from rnn_scaling.training.cluster import RunMembers
from rnn_scaling.training.ending import StopRule
from rnn_scaling.training.engines.local import (
    Engine,
    Request,
    read_peak_device_bytes,
    uses_onednn,
)
from rnn_scaling.training.observers import Batch, Observer, Observers, RunView
from rnn_scaling.training.replica import (
    Setup,
    UpdateRule,
    VariableState,
    VariableUpdate,
    sum_bytes_by_device,
)
from rnn_scaling.training.state import RunState
from rnn_scaling.training.train_step import TrainStep


def run(
    config: RunConfig,
    state: RunState,
    cluster: RunMembers,
    observer: Observer,
) -> TrainStep | None:
    """Run `config` from TensorFlow's set-up to the last batch.

    Args:
      config: The options.
      state: Receives all facts for the record as soon as they exist.
      cluster: This process among the processes of the run.
      observer: Receives each event of the run.

    Returns:
      The step that ran, or None if this process has no towers.

    Raises:
      NotFiniteError: If the loss of a batch is infinite or not a number.
      DataError: If a text file breaks a rule.
      ClusterError: If another process fails.
      ValueError, tf.errors.OpError: If the devices do not support the options.
    """
    engine = _start(config, state, cluster)
    state.clients = engine.size
    # The devices of one process, even if it drives the devices of other processes. The
    # workers of a coordinator have equal devices, so the first device is enough.
    devices = engine.tower_devices[:1] or engine.own_devices
    state.resolved.update(devices=list(devices), device_type=engine.device_type)
    state.resolved["onednn"] = uses_onednn()
    state.resolved["tower_batch_sizes"] = list(config.tower_batch_sizes())
    state.resolved["logical_devices"] = len(devices) > engine.num_physical
    state.phases.enter("build")
    step = None
    if engine.devices:
        step = build(config, engine, state)
        _train(config, step, state, cluster, observer, engine)
    else:
        _serve(state, cluster)
    state.phases.enter("teardown")
    cluster.report(state, finished=True)
    cluster.barrier(clusters.REPORTED)
    return step


def _train(
    config: RunConfig,
    step: TrainStep,
    state: RunState,
    cluster: RunMembers,
    observer: Observer,
    engine: Engine,
) -> None:
    """Run all batches and save checkpoints."""
    for statement in announce_choices(config, state.resolved, engine.transport):
        observer.notice(statement)
    state.worker_steps.steps = step.finished_steps
    step.count_lost = lambda: cluster.num_lost_ranks
    saver_cluster = cluster if state.clients > 1 else None
    saver = Saver(
        config, state=state, files=state.files, cluster=saver_cluster, observer=observer
    )
    saver.agree()
    saver.resume(step)
    run_batches(
        config,
        step=step,
        state=state,
        cluster=cluster,
        observer=Observers([observer, saver]),
        engine=engine,
    )
    for statement in _finish_steps(step):
        observer.notice(statement)
    state.skipped_updates = step.count_skipped_updates()
    observer.finish()
    state.keep_memory(read_peak_device_bytes(engine))


def _serve(state: RunState, cluster: RunMembers) -> None:
    """Take part in the barriers of a run without computing batches."""
    state.find_counters()
    cluster.barrier(clusters.BUILT)
    cluster.barrier(clusters.WARM)
    state.machine.energy.start()
    cluster.barrier(clusters.MEASURED)
    state.machine.energy.stop()


def _start(config: RunConfig, state: RunState, cluster: RunMembers) -> Engine:
    """Return the engine of the run's update mode after all processes have met."""
    if cluster.size > 1:
        state.phases.enter("cluster")
    return registry.load(registry.ENGINES, config.mode.engine).start(
        Request(
            config.devices.device,
            config.devices.num_devices,
            inter_op_threads=state.resolved["inter_op_parallelism_threads"],
            intra_op_threads=state.resolved["intra_op_parallelism_threads"],
            xla=config.model.xla,
            position=cluster.wait_for_others(),
        )
    )


def _finish_steps(step: TrainStep) -> Iterator[Statement]:
    """Finish the last steps; yield a warning if updates and steps do not match."""
    surplus = step.end()
    if surplus > 0:
        steps = len(step.finished_steps)
        values = {"updates": steps + surplus, "steps": steps}
        yield Statement("warn-surplus-updates", values=values)


def announce_choices(
    config: RunConfig, resolved: dict[str, Any], transport: str = ""
) -> Iterator[Statement]:
    """Yield the choices of this run that its flags do not determine."""
    encoder = str(config.model.encoder_type)
    kernel = ENCODERS[encoder]
    encoder_kernel = resolved.get("encoder_kernel")
    uses_cpus = resolved["device_type"] == "CPU"
    if transport:
        yield Statement("run-horovod", values={"transport": transport})
    if encoder_kernel and kernel.cpu != kernel.gpu and uses_cpus:
        values = {"encoder": encoder, "kernel": encoder_kernel}
        yield Statement("run-kernel", values=values)
    if uses_cpus and not resolved["onednn"] and ONEDNN_VARIABLE not in os.environ:
        yield Statement("run-without-onednn", values={"variable": ONEDNN_VARIABLE})
    if config.update.all_reduce_spec == all_reduce_spec.AUTO and resolved["all_reduce"]:
        segments = [
            all_reduce_spec.SpecSegment(**segment) for segment in resolved["all_reduce"]
        ]
        spec = all_reduce_spec.format(segments)
        yield Statement("run-all-reduce", values={"spec": spec})
    source = config.data.data_source
    if config.mode.cuts_global_batch and not registry.reads(
        registry.DATA_SOURCES, source, "prefetch_data_to_device"
    ):
        values = {"source": source, "mode": config.update.variable_update}
        yield Statement("run-draws-on-host", values=values)


def build(
    config: RunConfig, engine: Engine, state: RunState | None = None
) -> TrainStep:
    """Return the training step of a run.

    Args:
      config: The options.
      engine: The devices.
      state: Receives the facts of the step for the record, unless it is None.
    """
    model = config.model
    trains = model.trains
    workload = workloads.load(model.model).build(
        model if trains else dataclasses.replace(model, dropout=0.0), engine.device_type
    )
    update = build_update(config, engine, workload, state.weights if state else None)
    feed = build_feed(config, engine, workload, state.first_step if state else 0)
    # AutoGraph writes a file for each function that it converts, but the functions of
    # the sources contain nothing to convert.
    build_source = tf.autograph.experimental.do_not_convert(
        registry.load(registry.DATA_SOURCES, config.data.data_source).build
    )
    source = build_source(feed)
    kind = config.mode.step if trains else "inference_step"
    step = registry.load(registry.STEPS, kind).build(
        workload, source, update, engine, config
    )
    if state is not None:
        states = step.list_variables()
        state.parameters.update(_count_parameters(workload, states))
        # A search also computes hypotheses that it drops.
        if not model.decode:
            flops = workloads.count_flops_per_item(config.flat(), feed.max_lengths)
            # The backward pass has twice the operations of the forward pass.
            state.flops_per_item = flops if trains else flops / 3
        state.resolved.update(
            _describe_choices(config, workload),
            train_samples=source.num_samples,
            all_reduce=update.describe_all_reduce(),
            variable_placement=sum_bytes_by_device(states),
        )
    return step


def _describe_choices(config: RunConfig, workload: Workload) -> dict[str, Any]:
    """Return the kernels, operators and learning rate that the options led to."""
    model = config.model
    # Networks of images do not use this project's operators.
    operator_set = operators.STOCK
    if any(spec.kind == "embedding" for spec in workload.variables):
        operator_set = operators.name_for(model.compute_dtype)
    rate = learning_rate.from_config(config).last if model.trains else None
    return {
        **_name_kernels(config, workload),
        "operators": operator_set,
        "learning_rate": rate,
    }


def _name_kernels(config: RunConfig, workload: Workload) -> dict[str, str]:
    """Return the kernels that run.

    If the run does not train, the names lose the kernel of the gradients, which follows
    " + ".
    """
    kernels = dict(workload.kernels)
    if not config.model.trains:
        for name, kernel in workload.kernels.items():
            kernels[name] = kernel.partition(" + ")[0]
    if config.model.decode:
        kernels["decoder_kernel"] = decoding.KERNEL
    return kernels


def _count_parameters(
    workload: Workload, states: Sequence[VariableState]
) -> dict[str, int]:
    """Return the fields of a `records.parts.Parameters` for one copy of variables."""
    trainable = sum(math.prod(spec.shape) for spec in workload.variables)
    moving = sum(math.prod(spec.shape) for spec in workload.moving)
    slots = 0
    for variable_state in states:
        if variable_state.tower in (None, 0):
            slots += sum(slot.shape.num_elements() for slot in variable_state.slots)
    tables = [spec.shape for spec in workload.variables if spec.kind == "embedding"]
    return {
        "trainable": trainable,
        "bytes": trainable * tf.float32.size,
        "moving": moving,
        "optimizer": slots,
        "embedding_bytes": sum(map(math.prod, tables)) * tf.float32.size,
        "row_bytes": max((shape[1] for shape in tables), default=0) * tf.float32.size,
    }


def make_initial_weights(
    config: RunConfig, workload: Workload
) -> dict[str, np.ndarray]:
    """Return the float32 values of all trained variables before the first step."""
    return make_first_values(workload.variables, config.training.seed)


def build_update(
    config: RunConfig, engine: Engine, workload: Workload, weights: Path | None = None
) -> VariableUpdate:
    """Return the workload's variables under the chosen update mode.

    Args:
      config: The options.
      engine: The devices.
      workload: The network.
      weights: A checkpoint with the values of the variables, or None to draw them.
    """
    training = config.training
    values = make_initial_weights(config, workload)
    if weights:
        values = read_trained_values(weights, workload.variables)
    rate = learning_rate.from_config(config)
    if config.model.trains:
        optimizer = optimizers.build(training.optimizer, rate, training.weight_decay)
        loss_scale = ""
        if config.model.compute_dtype == "float16":
            loss_scale = training.loss_scale
        rule = UpdateRule(optimizer, training.max_gradient_norm, loss_scale)
    else:
        # It needs no slots.
        rule = UpdateRule(optimizers.build("sgd", rate))
    mode = registry.load(registry.VARIABLE_UPDATES, config.update.variable_update)
    return mode.build(
        Setup(
            workload.variables,
            values=values,
            engine=engine,
            options=config.update,
            rule=rule,
        )
    )


def build_feed(
    config: RunConfig, engine: Engine, workload: Workload, first_step: int = 0
) -> Feed:
    """Return the batches that the data source must make."""
    batch_sizes = config.tower_batch_sizes()
    devices = engine.devices
    divides_batch = config.training.global_batch_size > 0
    if config.mode.cuts_global_batch:
        batch_sizes = (sum(batch_sizes),)
        devices = (engine.host,)
        divides_batch = False
    return Feed(
        config.data,
        layout=workload.layout,
        batch_sizes=batch_sizes,
        split=divides_batch,
        seed=config.training.seed,
        devices=devices,
        first_tower=engine.first_tower,
        first_step=first_step * config.training.gradient_accumulation_steps,
    )


def _check_loss(loss: float, batch: int, config: RunConfig) -> None:
    """Raise a NotFiniteError with a remedy if the loss is not a number."""
    if not math.isfinite(loss):
        remedy = (
            f"lower --learning_rate={config.training.learning_rate:g} or set "
            "--max_gradient_norm"
        )
        if not config.model.trains:
            remedy = (
                f"the run of --checkpoint_dir={config.output.checkpoint_dir} may have "
                "diverged; give another folder"
            )
        raise NotFiniteError(f"loss is {loss} at batch {batch}; {remedy}")


def run_batches(
    config: RunConfig,
    step: TrainStep,
    state: RunState,
    cluster: RunMembers,
    observer: Observer,
    engine: Engine | None = None,
) -> None:
    """Run the warm-up and measured batches that no earlier process has run.

    Several processes run them from one barrier to the next. Bookkeeping and the
    progress line are part of a batch and cost less than benchmarks/overhead.py can
    measure. The clock is stopped while an observer takes longer, or while the run
    analyses its times.

    Args:
      config: The options.
      step: Runs one batch per call.
      state: Receives the measurements.
      cluster: This process among the processes of the run.
      observer: Receives each event of the run.
      engine: The devices, which observers may read; None in tests.
    """
    stop_rule = StopRule(config, state)
    warning = stop_rule.warn_if_nothing_is_left()
    if warning:
        observer.notice(warning)
    # The machine's load is measured only after all ranks have built their steps.
    cluster.barrier(clusters.BUILT)
    timer = state.timer
    warmup = config.measure.num_warmup_batches
    if len(timer.step_s) > warmup:
        # The warm-up ended before the checkpoint.
        cluster.barrier(clusters.WARM)
        state.wait_for_following()
    observer.begin(
        RunView(
            config,
            state=state,
            step=step,
            engine=engine,
            max_batches=stop_rule.max_batches,
            rank=cluster.rank,
        )
    )
    try:
        state.phases.enter("batches")
        state.watch_machine()
        timer.start()
        while not (reason := stop_rule.find_reason(lambda: _resume(timer, step))):
            if len(timer.step_s) == warmup:
                cluster.barrier(clusters.WARM)
                state.wait_for_following()
                state.machine.start_measuring()
                _resume(timer, step)
            _run_batch(config, step, state, observer)
        state.machine.energy.stop()
        state.ended_by = reason
        for statement in stop_rule.describe_targets(reason):
            observer.notice(statement)
        cluster.barrier(clusters.MEASURED)
        observer.end_measuring()
    finally:
        observer.end()
        for line in state.machine.stop():
            observer.notice(Statement("warn-clocks", values={"text": line}))


def _run_batch(
    config: RunConfig, step: TrainStep, state: RunState, observer: Observer
) -> None:
    """Train one batch, record it, and show it to the observers.

    Raises:
      NotFiniteError: If the loss is not finite.
    """
    timer = state.timer
    number = len(timer.step_s)
    result = step()
    loss = result.loss
    items = int(result.items.sum())
    seconds = timer.end_step(items, loss)
    state.end_batch(result)
    _check_loss(loss, number, config)
    is_paused = observer.end_batch(Batch(number, seconds, items, loss, result))
    if state.machine.end_window() or is_paused:
        _resume(timer, step)


def _resume(timer: StepTimer, step: TrainStep) -> None:
    """Start the clock again, unless workers also run while it is stopped."""
    if not step.runs_between_calls:
        timer.resume()
