"""Which configurations cannot run. `problems` returns every conflict at once, before TensorFlow loads.

Each line names the flag, its value, the rule and the remedy.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from typing import Any

from rnn_scaling.machine.gpus import uneven_towers
from rnn_scaling.models import kernels
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.registry import (
    ALL_REDUCES,
    KNOWN_ANSWERS,
    VARIABLE_UPDATES,
    either,
    has_servers,
)
from rnn_scaling.settings import all_reduce_spec, data_conflicts, framework_conflicts
from rnn_scaling.settings.conditions import is_read, remedy, unread
from rnn_scaling.settings.config import GROUP_OF, OPTIONS, RunConfig, from_flat
from rnn_scaling.settings.flags import broken_rule
from rnn_scaling.settings.spelling import spell


def problems(config: RunConfig, given: Mapping[str, Any], *, num_gpus: int) -> list[str]:
    """Every reason why `config` cannot run; empty when it can."""
    bad = dict(_out_of_range(config))
    if bad:  # what follows computes with the values, so these get values that it can compute with
        flat = {**config.flat(), **{name: OPTIONS[name].default for name in bad}}
        config, given = from_flat(flat), {name: value for name, value in given.items() if name not in bad}
    lines = [line for of_one in bad.values() for line in of_one] + list(_ignored(config, given))
    for check in (
        _devices,
        _workers,
        _model,
        _attention,
        _shared_embedding,
        _training,
        _update,
        _coordinated,
        _all_reduce,
        _measure,
    ):
        lines += check(config, given, num_gpus)
    return [*lines, *data_conflicts.problems(config), *framework_conflicts.problems(config, num_gpus)]


def keeps_trace(config: RunConfig) -> str | None:
    """Why what --trace_batches finds would be lost, or None; the trainer's matter, since a sweep keeps each record."""
    output = config.output
    if output.trace_batches and not (output.result_file or output.log_dir):
        return f"--trace_batches={output.trace_batches} needs --log_dir or --result_file, which keep what is found"
    return None


def _out_of_range(config: RunConfig) -> Iterator[tuple[str, list[str]]]:
    for name, field in OPTIONS.items():
        value = getattr(getattr(config, GROUP_OF[name]), name)
        if name == "decoder_type" and value == config.model.encoder_type:
            continue  # said of the encoder
        if rule := broken_rule(field, value):
            yield name, [f"{spell(name, value)} must be {rule}"]


def _ignored(config: RunConfig, given: Mapping[str, Any]) -> Iterator[str]:
    for name in unread(config, given):
        needed = remedy(config, name)
        yield f"{spell(name, given[name])} would be ignored here; it needs {needed}, or leave it out"


def _devices(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    total = config.training.global_batch_size
    if total and "batch_size" in given:
        yield (
            f"--global_batch_size={total} and --batch_size={given['batch_size']} contradict each other: "
            "strong or weak scaling; leave one out"
        )
    elif total and total < config.num_towers:
        workers = f" x --num_workers={config.cluster.num_workers}" if config.cluster.num_workers > 1 else ""
        yield (
            f"--global_batch_size={total} must be at least --num_devices={config.devices.num_devices}{workers}: "
            f"every tower needs a {WORKLOADS[config.model.model].samples.removesuffix('s')}"
        )
    if config.devices.device == "gpu" and not num_gpus:
        yield "--device=gpu needs a visible NVIDIA GPU, found none; use --device=cpu (or check CUDA_VISIBLE_DEVICES)"
    elif config.devices.device == "gpu":
        uneven = uneven_towers(config.devices.num_devices, num_gpus)
        if uneven:
            yield uneven


def _workers(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    workers = config.cluster.num_workers
    if not is_read(config, "num_workers") or workers == 1:
        return
    has_one = VARIABLE_UPDATES[config.update.variable_update].one_tower_on_cpus
    if has_one and config.devices.device == "cpu" and config.devices.num_devices > 1:
        yield (
            f"--num_devices={config.devices.num_devices}: MultiWorkerMirroredStrategy has one tower a worker on CPUs; "
            "use --num_devices=1 and more workers, or collective_all_reduce"
        )
    if config.measure.until_steady and not has_servers(config.update.variable_update):
        yield (
            f"--until_steady=true ends each of --num_workers={workers} by its own clock, and they must end together; "
            "give --num_batches"
        )
    update = config.update
    gathers = update.variable_consistency == "relaxed" and update.sparse_gradients == "gather"
    if (
        VARIABLE_UPDATES[update.variable_update].engine == "collective"
        and gathers
        and is_read(config, "tgt_vocab_size")
    ):
        yield (
            f"--variable_consistency=relaxed over --num_workers={workers} needs --sparse_gradients=densify: "
            "TensorFlow's collective gather ends the process at the rows that are held back for a step"
        )


def _model(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    model, workload, preset = config.model, WORKLOADS[config.model.model], config.output.preset
    if workload.datasets and preset not in workload.batch_sizes:
        yield (
            f"--preset={preset} is of text, and --model={model.model} is trained on images; "
            f"use --preset={either(workload.batch_sizes)}"
        )
    alias = given.get("encoder_type")
    if alias in ("bi", "uni") and not is_read(config, "direction"):
        yield f"--encoder_type={alias} names a direction, which --model={model.model} does not read; use dynamic_rnn"
    elif alias in ("bi", "uni") and model.direction != alias:
        yield f"--encoder_type={alias} and --direction={model.direction} contradict each other; leave one out"
    yield from _kernels(config)
    if is_read(config, "attention") and model.attention_architecture == "gnmt_v2":
        return  # counts layers, and its decoder starts from zeros
    if is_read(config, "direction") and model.direction == "bi" and model.num_encoder_layers % 2:
        yield (
            f"--num_encoder_layers={model.num_encoder_layers} must be even with --direction=bi: "
            "two cells, one a direction, make a layer"
        )
    if is_read(config, "num_decoder_layers") and model.num_encoder_layers != model.num_decoder_layers:
        yield (
            f"--num_decoder_layers={model.num_decoder_layers} must equal --num_encoder_layers="
            f"{model.num_encoder_layers}: each decoder cell starts from the state of one encoder cell"
        )


def _kernels(config: RunConfig) -> Iterator[str]:
    """Kernels that do not compute the cell; the decoder's, where it is the encoder's, is not named twice."""
    model = config.model
    chosen = {model.decoder_type: "decoder_type", model.encoder_type: "encoder_type"}
    usable = kernels.of_cell(model.unit_type)
    for kernel, name in chosen.items():
        if is_read(config, name) and kernel in kernels.KERNELS and kernel not in usable:
            cells, remedy = " and ".join(kernels.KERNELS[kernel].cells), " or ".join(usable)
            yield f"{spell(name, kernel)} computes {cells}, not --unit_type={model.unit_type}; use {remedy}"


def _attention(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    model = config.model
    if not is_read(config, "attention"):
        return
    if model.normalize_attention and model.attention != "bahdanau":
        yield (
            f"--normalize_attention=true needs --attention=bahdanau, got {model.attention}, whose scores have no "
            "vector to normalise; use --normalize_attention=false"
        )
    if model.biases_per_gate == 2 and model.unit_type != "lstm":
        yield f"--biases_per_gate=2 needs --unit_type=lstm, got {model.unit_type}; use --biases_per_gate=1"


def _shared_embedding(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    model, data = config.model, config.data
    if not model.share_embedding or not is_read(config, "share_embedding"):
        return
    if model.src_vocab_size != model.tgt_vocab_size:
        yield (
            f"--share_embedding=true needs one vocabulary, got --src_vocab_size={model.src_vocab_size} and "
            f"--tgt_vocab_size={model.tgt_vocab_size}; make them equal"
        )
    if is_read(config, "src_vocab_file") and data.src_vocab_file != data.tgt_vocab_file:
        yield (
            f"--share_embedding=true needs one vocabulary, got --src_vocab_file={data.src_vocab_file} and "
            f"--tgt_vocab_file={data.tgt_vocab_file}; give both the same file"
        )


def _training(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    if config.training.learning_rate <= 0:
        yield f"--learning_rate={config.training.learning_rate} must be above 0"


def _update(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    update, devices = config.update, config.devices
    needed = VARIABLE_UPDATES[update.variable_update].needs
    if needed and importlib.util.find_spec(needed) is None:
        yield (
            f"--variable_update={update.variable_update} needs {needed.capitalize()}, which is not installed; "
            f"./run.sh setup-{needed} builds and installs it"
        )
    if given.get("independent_replica") and given.get("variable_update", "replicated") not in (
        "replicated",
        "independent",
    ):
        yield (
            f"--independent_replica=true goes with --variable_update=replicated, got {given['variable_update']}; "
            "leave it out"
        )
    if is_read(config, "param_server_device"):
        if update.param_server_device == "gpu" and devices.device == "cpu":
            yield "--param_server_device=gpu needs GPUs, got --device=cpu; use --param_server_device=cpu"
        if update.partition_large_variables and update.param_server_device == "cpu":
            yield (
                "--partition_large_variables=true needs variables spread over GPUs; "
                "use --param_server_device=gpu or leave it out"
            )
        if update.staged_vars and update.variable_consistency == "relaxed":
            yield (
                "--staged_vars=true and --variable_consistency=relaxed are each one step stale; "
                "together they would be two: give one of them"
            )


def _coordinated(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    """Modes whose coordinator hands each step to one worker, whichever is free."""
    mode, devices, workers = config.update.variable_update, config.devices.num_devices, config.cluster.num_workers
    if not VARIABLE_UPDATES[mode].has_coordinator:
        return
    if devices > 1:
        yield (
            f"--num_devices={devices}: with --variable_update={mode} a step has one tower; "
            f"use --num_devices=1 --num_workers={devices * workers}"
        )
    if config.training.global_batch_size % workers:
        yield (
            f"--global_batch_size={config.training.global_batch_size} must be a multiple of --num_workers={workers} "
            f"with --variable_update={mode}: any worker may run any step"
        )
    if config.data.data_source not in ("device", *KNOWN_ANSWERS):
        yield (
            f"--data_source={config.data.data_source}: with --variable_update={mode} a step draws its own batch, "
            f"whoever runs it; use --data_source={either(('device', *KNOWN_ANSWERS))}"
        )
    if WORKLOADS[config.model.model].has_moving:
        yield (
            f"--model={config.model.model}: its batch normalisation keeps averages on a tower, and with "
            f"--variable_update={mode} a step is run by whichever worker is free; "
            "use --variable_update=distributed_parameter_server"
        )
    if config.output.trace_batches:
        yield (
            f"--trace_batches={config.output.trace_batches}: with --variable_update={mode} steps run where no profiler "
            "looks; trace --variable_update=distributed_parameter_server"
        )


def _all_reduce(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    update, devices = config.update, config.devices
    if not is_read(config, "all_reduce_spec"):
        return
    num_physical = num_gpus if devices.device == "gpu" else 1
    try:
        segments = all_reduce_spec.parse(update.all_reduce_spec)
    except ValueError as e:
        yield str(e)
        return
    if config.cluster.num_workers > 1:
        spanning = [all_reduce_spec.AUTO, *(name for name, row in ALL_REDUCES.items() if row.spans_workers)]
        for each in segments:
            if each.algorithm not in spanning:
                yield (
                    f"--all_reduce_spec={update.all_reduce_spec}: {each.algorithm} adds within one process, and "
                    f"--num_workers={config.cluster.num_workers}; use {' or '.join(spanning)}"
                )
        segments = tuple(each for each in segments if each.algorithm in spanning)
    yield from all_reduce_spec.problems(segments, devices.device, devices.num_devices, num_physical)
    if update.all_reduce_spec == all_reduce_spec.AUTO and config.cluster.num_workers == 1:
        segments = all_reduce_spec.parse(
            all_reduce_spec.resolve_auto(devices.num_devices, devices.device, max(1, num_physical))
        )
    if update.compress_gradients == "bfloat16" and any(segment.algorithm == "nccl" for segment in segments):
        yield (
            f"--compress_gradients=bfloat16 and --all_reduce_spec={update.all_reduce_spec}: nccl adds no bfloat16; "
            "use float16, or --all_reduce_spec=collective"
        )
    if update.gradient_repacking and update.agg_small_grads_max_bytes:
        yield (
            f"--gradient_repacking={update.gradient_repacking} already concatenates every dense gradient; "
            f"leave out --agg_small_grads_max_bytes={update.agg_small_grads_max_bytes}"
        )


def _measure(config: RunConfig, given: Mapping[str, Any], num_gpus: int) -> Iterator[str]:
    measure = config.measure
    fewest = measure.num_warmup_batches + measure.num_batches
    if measure.until_steady and measure.max_batches < fewest:
        yield (f"--max_batches={measure.max_batches} must be at least --num_warmup_batches + --num_batches = {fewest}")
