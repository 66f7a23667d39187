"""Which configurations cannot run: all conflicts at once, those of options alone from conflict_rules.py."""

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import all_reduce_spec, conflict_rules, flags
from rnn_scaling.config.conditions import is_read, remedy, unread
from rnn_scaling.config.naming import OURS
from rnn_scaling.config.registry import (
    ALL_REDUCES,
    DATA_SOURCES,
    FRAMEWORKS,
    TEXT_FILES,
    either,
)
from rnn_scaling.config.run_config import (
    GROUP_OF,
    OPTIONS,
    RunConfig,
    from_flat,
    resolve,
)
from rnn_scaling.config.spelling import spell
from rnn_scaling.models import kernels
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.extension import switch
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import RECORD_IN_LOG_DIR
from rnn_scaling.system.machine.cores import available_cores
from rnn_scaling.system.machine.gpus import uneven_towers, visible_gpus
from rnn_scaling.system.machine.system import cpuinfo_values, read_text
from rnn_scaling.system.processes import other_python

# What each option may be where another framework trains, the remedy first.
_ALLOWED_ELSEWHERE = {
    "model": (ModelConfig.model,),
    "unit_type": ("lstm",),
    "share_embedding": (False,),
    "dropout": (0.0,),
    "accuracy": (False,),
    "forward_only": (False,),
    "decode": (False,),
    "label_smoothing": (0.0,),
    "compute_dtype": ("float32", "bfloat16"),
    "variable_update": ("replicated", "independent"),
    "data_source": ("constant",),
    "gradient_accumulation_steps": (1,),
    "optimizer": ("adam", "momentum", "sgd"),
    "weight_decay": (0.0,),
    "max_gradient_norm": (0.0,),
    "lr_schedule": ("constant",),
    "lr_scaling": ("none",),
    "until_steady": (False,),
    "stop_at_loss": (0.0,),
    "trace_batches": (0,),
    "mlperf_log": ("",),
    "log_dir": ("",),
    "checkpoint_dir": ("",),
}


def checked(
    words: Sequence[str],
    lines: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], RunConfig]:
    """The options that a command line gives, and what runs with them; a FlagErrors names everything that is wrong."""
    given, wrong = flags.parsed(words, OPTIONS)
    given = {**(defaults or {}), **given}
    num_gpus = visible_gpus()
    config = resolve(given, num_gpus=num_gpus, num_cores=len(available_cores()))
    if wrong := [*lines, *wrong, *problems(config, given, num_gpus=num_gpus)]:
        raise flags.FlagErrors(wrong)
    return given, config


def problems(
    config: RunConfig, given: Mapping[str, Any], *, num_gpus: int
) -> list[str]:
    """Every reason why `config` cannot run; empty when it can."""
    bad = dict(_out_of_range(config))
    if bad:  # what follows computes with the values, so these get values that it can compute with
        flat = {**config.flat(), **{name: OPTIONS[name].default for name in bad}}
        config = from_flat(flat)
        given = {name: value for name, value in given.items() if name not in bad}
    lines = [*bad.values()]
    for name in unread(config, given):
        needed = remedy(config, name)
        lines.append(
            f"{spell(name, given[name])} would be ignored here; it needs {needed}, or leave it out"
        )
    lines += conflict_rules.broken(config, given, num_gpus)
    if config.devices.device == "gpu" and num_gpus:
        lines += filter(None, [uneven_towers(config.devices.num_devices, num_gpus)])
    for check in (
        _kernels,
        _operators,
        _installation,
        _all_reduce,
        _data,
        _files,
        _outputs,
        _shared_outputs,
        _framework,
    ):
        lines += check(config, num_gpus)
    return lines


def keeps_trace(config: RunConfig) -> str | None:
    """Why what --trace_batches finds would be lost, or None; the trainer's matter, since a sweep keeps each record."""
    output = config.output
    if output.trace_batches and not (output.result_file or output.log_dir):
        return f"--trace_batches={output.trace_batches} needs --log_dir or --result_file to save its results"
    return None


def _out_of_range(config: RunConfig) -> Iterator[tuple[str, str]]:
    for name, field in OPTIONS.items():
        value = getattr(getattr(config, GROUP_OF[name]), name)
        if name == "decoder_type" and value == config.model.encoder_type:
            continue  # said of the encoder
        if rule := flags.broken_rule(field, value):
            yield name, f"{spell(name, value)} must be {rule}"


def _kernels(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """Kernels that do not compute the cell; the decoder's, where it is the encoder's, is not named twice."""
    model = config.model
    chosen = {model.decoder_type: "decoder_type", model.encoder_type: "encoder_type"}
    usable = kernels.of_cell(model.unit_type)
    for kernel, name in chosen.items():
        if is_read(config, name) and kernel in kernels.KERNELS and kernel not in usable:
            cells = " and ".join(kernels.KERNELS[kernel].cells)
            remedy = " or ".join(usable)
            yield f"{spell(name, kernel)} computes {cells}, not --unit_type={model.unit_type}; use {remedy}"


def _operators(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """A value of the environment variable for our own operators that this machine cannot follow."""
    if value := os.environ.get(switch.SWITCH):
        units = " ".join(cpuinfo_values(read_text("/proc/cpuinfo"), "flags")[:1])
        yield from filter(None, [switch.problem(value, units.split())])


def _installation(config: RunConfig, num_gpus: int) -> Iterator[str]:
    mode = config.update.variable_update
    package = config.mode.processes.package
    if package and importlib.util.find_spec(package) is None:
        yield (
            f"--variable_update={mode} needs {package.capitalize()}, which is not installed; "
            f"./run.sh setup-{package} builds and installs it"
        )


def _all_reduce(config: RunConfig, num_gpus: int) -> Iterator[str]:
    update = config.update
    devices = config.devices
    if not is_read(config, "all_reduce_spec"):
        return
    num_physical = num_gpus if devices.device == "gpu" else 1
    try:
        segments = all_reduce_spec.parse(update.all_reduce_spec)
    except ValueError as e:
        yield str(e)
        return
    if config.cluster.num_workers > 1:
        spanning = [
            all_reduce_spec.AUTO,
            *(name for name, row in ALL_REDUCES.items() if row.spans_workers),
        ]
        for segment in segments:
            if segment.algorithm not in spanning:
                yield (
                    f"--all_reduce_spec={update.all_reduce_spec}: {segment.algorithm} works within one process, but "
                    f"--num_workers={config.cluster.num_workers}; use {' or '.join(spanning)}"
                )
        segments = tuple(
            segment for segment in segments if segment.algorithm in spanning
        )
    yield from all_reduce_spec.problems(
        segments, devices.device, devices.num_devices, num_physical
    )
    if (
        update.all_reduce_spec == all_reduce_spec.AUTO
        and config.cluster.num_workers == 1
    ):
        segments = all_reduce_spec.parse(
            all_reduce_spec.resolve_auto(
                devices.num_devices, devices.device, max(1, num_physical)
            )
        )
    if update.compress_gradients == "bfloat16" and any(
        segment.algorithm == "nccl" for segment in segments
    ):
        yield (
            f"--compress_gradients=bfloat16 and --all_reduce_spec={update.all_reduce_spec}: nccl cannot add bfloat16; "
            "use float16, or --all_reduce_spec=collective"
        )


def _data(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """A data source, or images, that the workload is not trained on; files that are not named."""
    name = config.model.model
    dataset = config.model.dataset
    source = config.data.data_source
    holds = DATA_SOURCES[source].holds
    needed = dataset or "text"
    workload = WORKLOADS[name]
    if dataset and dataset not in workload.datasets:
        sizes = either(
            [
                f"{supported} ({size} x {size})"
                for supported, size in workload.image_sizes.items()
            ]
        )
        least = f", since its layers need {workload.smallest_image} x {workload.smallest_image} pixels"
        model = next(
            model for model, row in WORKLOADS.items() if dataset in row.datasets
        )
        yield (
            f"--dataset={dataset}: --model={name} supports only images of {sizes}"
            f"{least if workload.smallest_image else ''}; leave it out, or use another network, such as --model={model}"
        )
    elif holds and holds != needed:
        sources = [
            source for source, row in DATA_SOURCES.items() if row.holds in ("", needed)
        ]
        yield (
            f"--data_source={source} reads {holds}, but --model={name} trains on {needed}; "
            f"use --data_source={either(sources)}"
            + (f", or --dataset={holds}" if holds in workload.datasets else "")
        )
    elif is_read(config, "tgt_file_name"):
        for file in TEXT_FILES:
            if is_read(config, file) and not getattr(config.data, file):
                yield f"--data_source={source} needs --{file}"


def _files(config: RunConfig, num_gpus: int) -> Iterator[str]:
    folder = config.data.data_dir
    pattern = config.data.file_pattern
    source = DATA_SOURCES[config.data.data_source]
    has_files = os.path.isdir(folder) and any(Path(folder).glob(pattern or "*"))
    if folder and pattern and source.holds == config.model.dataset and not has_files:
        yield f"--data_dir={folder}: no folder with files {pattern}; name the folder with {source.help}"
    for name in TEXT_FILES:
        path = getattr(config.data, name)
        if not path or not is_read(config, name):
            continue
        try:
            input_files.open_regular(path, input_files.UNLIMITED).close()
        except OSError as e:
            yield f"--{name}={path}: {e.strerror or e}"


def _outputs(config: RunConfig, num_gpus: int) -> Iterator[str]:
    output = config.output
    kinds = {
        "result_file": "file",
        "mlperf_log": "file",
        "log_dir": "folder",
        "checkpoint_dir": "folder",
    }
    for name, kind in kinds.items():
        path = getattr(output, name)
        if path and (reason := _unwritable(Path(path), kind)):
            yield f"--{name}={path}{reason}"


def _shared_outputs(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """Yield a line for an output file that would replace another output or an input.

    Paths are compared as they are opened, after links, "." and "..".
    """
    output = config.output
    places = {
        "result_file": output.result_file,
        "log_dir": output.log_dir,
        "checkpoint_dir": output.checkpoint_dir,
    }
    for name in TEXT_FILES:
        if is_read(config, name):
            places[name] = getattr(config.data, name)
    shown = {f"--{name}={path}": path for name, path in places.items() if path}
    result_file = f"--result_file={output.result_file}"
    others = {flag: path for flag, path in shown.items() if flag != result_file}
    yield from _replaced(result_file, output.result_file, others)
    if output.log_dir:
        record = os.path.join(output.log_dir, RECORD_IN_LOG_DIR)
        shown[f"the record {record} of --log_dir"] = record
    yield from _replaced(f"--mlperf_log={output.mlperf_log}", output.mlperf_log, shown)


def _replaced(flag: str, file: str, others: Mapping[str, str]) -> Iterator[str]:
    """Yield a line if one of `others` is the file, or lies below it."""
    if not file or "\0" in file:  # which has a line of its own
        return
    place = os.path.realpath(file)
    for other, path in others.items():
        if "\0" not in path and Path(os.path.realpath(path)).is_relative_to(place):
            yield (
                f"{flag} must differ from {other}: "
                "one of them would replace the other; rename it"
            )
            return  # another name solves the others too


def _unwritable(path: Path, kind: str) -> str | None:
    """Why an output cannot be written, or None."""
    if "\0" in str(path):
        return f" cannot be written: {input_files.NUL_BYTE}"
    try:
        if kind == "file" and path.is_dir():
            return " is a folder; name a file"
        if kind == "folder" and path.exists() and not path.is_dir():
            return " is a file; name a folder"
        if not _can_create(path.parent if kind == "file" else path):
            return " cannot be written; name another folder or change its permissions"
    except (OSError, ValueError) as e:
        return f" cannot be written: {getattr(e, 'strerror', None) or e}"
    return None


def _can_create(folder: Path) -> bool:
    """Tell whether a folder is writable, or can be made; a link to nothing cannot."""
    folder = folder.absolute()
    while not (folder.exists() or folder.is_symlink()) and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _framework(config: RunConfig, num_gpus: int) -> list[str]:
    """What another framework cannot do: it trains one network, on constant batches."""
    name = config.frameworks.framework
    faults = []
    row = FRAMEWORKS[name]
    if name == OURS:
        return []
    for option, allowed in _ALLOWED_ELSEWHERE.items():
        value = getattr(getattr(config, GROUP_OF[option]), option)
        if value not in allowed:
            remedy = (
                f"use {' or '.join(spell(option, choice) for choice in allowed)}"
                if allowed[0]
                else "leave it out"
            )
            faults.append(
                f"--framework={name} does not support {spell(option, value)}; {remedy}"
            )
    sizes = config.tower_batch_sizes()
    if row.has_equal_towers and len(set(sizes)) > 1:
        faults.append(
            f"--framework={name} splits --global_batch_size={sum(sizes)} evenly, but --num_devices={len(sizes)} does "
            f"not divide it; use --global_batch_size={len(sizes) * min(sizes) or len(sizes)}"
        )
    devices = config.devices
    if devices.device == "gpu" and devices.num_devices > num_gpus:
        faults.append(
            f"--framework={name} needs a GPU for each of --num_devices={devices.num_devices}, got {num_gpus}"
        )
    if not faults and (
        problem := other_python.problem(name, row.package, row.least)
    ):  # which starts a program
        faults.append(problem)
    return faults
