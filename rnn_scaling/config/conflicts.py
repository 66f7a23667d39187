"""Find everything that prevents a configuration from running, all at once.

conflict_rules.py has the conflicts that follow only from the options. The conflicts
here also need a loop, the file system, or the machine.

Commands and sweeps call `find_problems` or `check_command_line` before TensorFlow
loads. A message has the flag, its value, the rule and the remedy.
"""

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import all_reduce_spec, conflict_rules, flags
from rnn_scaling.config.conditions import find_remedy, is_read, list_unread_user_options
from rnn_scaling.config.naming import OWN_FRAMEWORK
from rnn_scaling.config.registry import (
    ALL_REDUCES,
    DATA_SOURCES,
    FRAMEWORKS,
    TEXT_FILES,
    join_with_or,
)
from rnn_scaling.config.run_config import (
    GROUP_OF,
    OPTIONS,
    RunConfig,
    from_flat,
    resolve,
)
from rnn_scaling.config.spelling import spell
from rnn_scaling.models import encoder_table
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.extension import switch
from rnn_scaling.models.workloads import WORKLOADS
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import RECORD_IN_LOG_DIR
from rnn_scaling.system.machine.cores import list_available_cores
from rnn_scaling.system.machine.gpus import count_visible_gpus, explain_uneven_towers
from rnn_scaling.system.machine.system import list_cpuinfo_values, read_text
from rnn_scaling.system.processes import other_python

# Allowed values of options for frameworks other than ours; the remedy is the first.
_FRAMEWORK_VALUES = {
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


def check_command_line(
    words: Sequence[str],
    lines: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> tuple[dict[str, Any], RunConfig]:
    """Return the options of a command line, and the configuration that runs with them.

    Args:
      words: The command line.
      lines: Errors that were found before.
      defaults: Options that the command line may override.

    Raises:
      FlagErrors: If anything is wrong; it contains every error.
    """
    user_options, faults = flags.parse_with_errors(words, OPTIONS)
    user_options = {**(defaults or {}), **user_options}
    num_gpus = count_visible_gpus()
    config = resolve(
        user_options, num_gpus=num_gpus, num_cores=len(list_available_cores())
    )
    faults = [*lines, *faults, *find_problems(config, user_options, num_gpus=num_gpus)]
    if faults:
        raise flags.FlagErrors(faults)
    return user_options, config


def find_problems(
    config: RunConfig, user_options: Mapping[str, Any], *, num_gpus: int
) -> list[str]:
    """Return every reason why a configuration cannot run.

    Args:
      config: The configuration.
      user_options: The options that the user set.
      num_gpus: GPUs of this machine.
    """
    invalid = dict(_check_ranges(config))
    if invalid:
        # The checks compute with the values, so invalid ones become defaults.
        defaults = {name: OPTIONS[name].default for name in invalid}
        config = from_flat({**config.flat(), **defaults})
        user_options = {n: v for n, v in user_options.items() if n not in invalid}
    lines = [*invalid.values()]
    for name in list_unread_user_options(config, user_options):
        lines.append(
            f"{spell(name, user_options[name])} would be ignored here; "
            f"use {find_remedy(config, name)}, or leave it out"
        )
    lines += conflict_rules.find_broken_rules(config, user_options, num_gpus)
    if config.devices.device == "gpu" and num_gpus:
        lines += filter(
            None, [explain_uneven_towers(config.devices.num_devices, num_gpus)]
        )
    for check in (
        _check_kernels,
        _check_operators,
        _check_installation,
        _check_all_reduce,
        _check_data,
        _check_files,
        _check_outputs,
        _check_shared_outputs,
        _check_framework,
    ):
        lines += check(config, num_gpus)
    return lines


def keeps_trace(config: RunConfig) -> str | None:
    """Return an error if the results of --trace_batches would be lost, or None.

    Only the trainer checks this, because a sweep writes a record of each run.
    """
    output = config.output
    if output.trace_batches and not (output.result_file or output.log_dir):
        return (
            f"--trace_batches={output.trace_batches} needs --log_dir or --result_file "
            "to save its results"
        )
    return None


def _check_ranges(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield the name and an error of each option with an invalid value."""
    for name, field in OPTIONS.items():
        value = getattr(getattr(config, GROUP_OF[name]), name)
        if name == "decoder_type" and value == config.model.encoder_type:
            continue  # the encoder has the same error
        if rule := flags.find_broken_rule(field, value):
            yield name, f"{spell(name, value)} must be {rule}"


def _check_kernels(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """Check that the kernels compute the cell; one error if both have the same."""
    model = config.model
    names = {model.decoder_type: "decoder_type", model.encoder_type: "encoder_type"}
    usable = encoder_table.list_encoders(model.unit_type)
    for kernel, name in names.items():
        if (
            kernel in encoder_table.ENCODERS
            and kernel not in usable
            and is_read(config, name)
        ):
            cells = " and ".join(encoder_table.ENCODERS[kernel].cells)
            yield (
                f"{spell(name, kernel)} computes {cells}, "
                f"not --unit_type={model.unit_type}; use {' or '.join(usable)}"
            )


def _check_operators(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """Check the environment variable of our operators against this machine."""
    if value := os.environ.get(switch.SWITCH):
        units = " ".join(list_cpuinfo_values(read_text("/proc/cpuinfo"), "flags")[:1])
        yield from filter(None, [switch.find_problem(value, units.split())])


def _check_installation(config: RunConfig, num_gpus: int) -> Iterator[str]:
    mode = config.update.variable_update
    package = config.mode.processes.package
    if package and importlib.util.find_spec(package) is None:
        yield (
            f"--variable_update={mode} needs {package.capitalize()}, which is not "
            f"installed; ./run.sh setup-{package} builds and installs it"
        )


def _check_all_reduce(config: RunConfig, num_gpus: int) -> Iterator[str]:
    if not is_read(config, "all_reduce_spec"):
        return
    devices = config.devices
    spec = config.update.all_reduce_spec
    num_physical = num_gpus if devices.device == "gpu" else 1
    try:
        segments = all_reduce_spec.parse(spec)
    except ValueError as e:
        yield str(e)
        return
    num_workers = config.cluster.num_workers
    if num_workers > 1:
        spanning = [name for name, row in ALL_REDUCES.items() if row.spans_workers]
        usable = [all_reduce_spec.AUTO, *spanning]
        for segment in segments:
            if segment.algorithm not in usable:
                yield (
                    f"--all_reduce_spec={spec}: {segment.algorithm} works within one "
                    f"process, but --num_workers={num_workers}; "
                    f"use {' or '.join(usable)}"
                )
        segments = tuple(part for part in segments if part.algorithm in usable)
    yield from all_reduce_spec.find_conflicts(
        segments, devices.device, devices.num_devices, num_physical
    )
    algorithms = {segment.algorithm for segment in segments}
    if spec == all_reduce_spec.AUTO and num_workers == 1:
        algorithms = {
            all_reduce_spec.resolve_auto(
                devices.num_devices, devices.device, max(1, num_physical)
            )
        }
    if config.update.compress_gradients == "bfloat16" and "nccl" in algorithms:
        yield (
            f"--compress_gradients=bfloat16 and --all_reduce_spec={spec}: nccl cannot "
            "add bfloat16; use float16, or --all_reduce_spec=collective"
        )


def _check_data(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """Check that the workload supports the images and the data source."""
    model = config.model.model
    dataset = config.model.dataset
    source = config.data.data_source
    content = DATA_SOURCES[source].holds
    needed_content = dataset or "text"
    workload = WORKLOADS[model]
    if dataset and dataset not in workload.datasets:
        sizes = join_with_or(
            f"{name} ({size} x {size})" for name, size in workload.image_sizes.items()
        )
        smallest = workload.smallest_image
        reason = f", since its layers need {smallest} x {smallest} pixels"
        networks = [name for name, row in WORKLOADS.items() if dataset in row.datasets]
        yield (
            f"--dataset={dataset}: --model={model} supports only images of {sizes}"
            f"{reason if smallest else ''}; leave it out, or use another network, "
            f"such as --model={networks[0]}"
        )
    elif content and content != needed_content:
        rows = DATA_SOURCES.items()
        sources = join_with_or(
            n for n, row in rows if row.holds in ("", needed_content)
        )
        other_dataset_text = (
            f", or --dataset={content}" if content in workload.datasets else ""
        )
        yield (
            f"--data_source={source} reads {content}, but --model={model} trains on "
            f"{needed_content}; use --data_source={sources}{other_dataset_text}"
        )
    elif is_read(config, "tgt_file_name"):
        for file in TEXT_FILES:
            if is_read(config, file) and not getattr(config.data, file):
                yield f"--data_source={source} needs --{file}"


def _check_files(config: RunConfig, num_gpus: int) -> Iterator[str]:
    folder = config.data.data_dir
    pattern = config.data.file_pattern
    source = DATA_SOURCES[config.data.data_source]
    has_files = os.path.isdir(folder) and any(Path(folder).glob(pattern or "*"))
    if folder and pattern and source.holds == config.model.dataset and not has_files:
        yield (
            f"--data_dir={folder} must be a folder with files {pattern}; "
            f"name the folder with {source.help}"
        )
    for name in TEXT_FILES:
        path = getattr(config.data, name)
        if not path or not is_read(config, name):
            continue
        try:
            input_files.open_regular(path, input_files.UNLIMITED).close()
        except OSError as e:
            yield f"--{name}={path}: {e.strerror or e}"


_OUTPUT_KINDS = {
    "result_file": "file",
    "mlperf_log": "file",
    "log_dir": "folder",
    "checkpoint_dir": "folder",
}


def _check_outputs(config: RunConfig, num_gpus: int) -> Iterator[str]:
    for name, kind in _OUTPUT_KINDS.items():
        path = getattr(config.output, name)
        if path and (reason := _describe_unwritable(Path(path), kind)):
            yield f"--{name}={path}{reason}"


def _check_shared_outputs(config: RunConfig, num_gpus: int) -> Iterator[str]:
    """Yield a line for an output file that would replace another output or an input.

    Paths are compared after resolving links, "." and "..".
    """
    output = config.output
    paths = {
        "result_file": output.result_file,
        "log_dir": output.log_dir,
        "checkpoint_dir": output.checkpoint_dir,
    }
    for name in TEXT_FILES:
        if is_read(config, name):
            paths[name] = getattr(config.data, name)
    by_flag = {f"--{name}={path}": path for name, path in paths.items() if path}
    yield from _find_replaced(f"--result_file={output.result_file}", by_flag)
    if output.log_dir:
        record = os.path.join(output.log_dir, RECORD_IN_LOG_DIR)
        by_flag[f"the record {record} of --log_dir"] = record
    mlperf_log = f"--mlperf_log={output.mlperf_log}"
    yield from _find_replaced(mlperf_log, {**by_flag, mlperf_log: output.mlperf_log})


def _find_replaced(flag: str, paths: Mapping[str, str]) -> Iterator[str]:
    """Yield a line if a path is the file of a flag, or is below it.

    Args:
      flag: The flag.
      paths: The paths of all flags.
    """
    file = paths.get(flag, "")
    if not file or "\0" in file:  # such a path has another error
        return
    real_file = os.path.realpath(file)
    for other_flag, path in paths.items():
        if other_flag == flag or "\0" in path:
            continue
        if Path(os.path.realpath(path)).is_relative_to(real_file):
            yield (
                f"{flag} must differ from {other_flag}: "
                "one of them would replace the other; rename it"
            )
            return  # another name solves all of them


def _describe_unwritable(path: Path, kind: str) -> str | None:
    """Return the end of an error if an output cannot be written, or None."""
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
    """Return whether a folder is writable, or can be made; a dangling link cannot."""
    folder = folder.absolute()
    while not (folder.exists() or folder.is_symlink()) and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _check_framework(config: RunConfig, num_gpus: int) -> list[str]:
    """Check that another framework supports the options."""
    framework = config.frameworks.framework
    flag = f"--framework={framework}"
    row = FRAMEWORKS[framework]
    if framework == OWN_FRAMEWORK:
        return []
    lines = []
    for option, allowed_values in _FRAMEWORK_VALUES.items():
        value = getattr(getattr(config, GROUP_OF[option]), option)
        if value not in allowed_values:
            remedies = [spell(option, choice) for choice in allowed_values]
            remedy = (
                f"use {' or '.join(remedies)}" if allowed_values[0] else "leave it out"
            )
            lines.append(f"{flag} does not support {spell(option, value)}; {remedy}")
    sizes = config.tower_batch_sizes()
    towers = len(sizes)
    if row.has_equal_towers and len(set(sizes)) > 1:
        lines.append(
            f"{flag} splits --global_batch_size={sum(sizes)} evenly, but "
            f"--num_devices={towers} does not divide it; "
            f"use --global_batch_size={towers * max(1, min(sizes))}"
        )
    devices = config.devices
    if devices.device == "gpu" and devices.num_devices > num_gpus:
        lines.append(
            f"{flag} needs a GPU for each of "
            f"--num_devices={devices.num_devices}, got {num_gpus}; lower "
            "--num_devices, or use --device=cpu"
        )
    if not lines:
        # This starts a program, so it is the last check.
        minimum = row.minimum_version
        problem = other_python.find_problem(framework, row.package, minimum)
        if problem:
            lines.append(problem)
    return lines
