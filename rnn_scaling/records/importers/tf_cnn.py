"""Options of a run from the settings that tf_cnn_benchmarks prints.

Format: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py (print_info,
get_perf_timing, benchmark_one_step). The header names no parameter device, precision or
XLA; the command above it often does.
"""

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from rnn_scaling.records.importers.reading import parse_positive
from rnn_scaling.records.importers.totals import PER_DEVICE, Description

_MAX_DEVICES = 10_000_000
# Settings of the size of a run and of its files.
_SIZE = {
    PER_DEVICE, "rate", "step", "error", "jitter", "batch_size", "num_batches", "num_epochs", "devices", "num_gpus",
    "num_warmup_batches", "display_every", "data_dir", "train_dir", "trace_file",
    "graph_file", "tfprof_file", "benchmark_log_dir", "summary_verbosity",
    "save_summaries_steps", "worker_hosts", "ps_hosts", "controller_host", "job_name",
    "task_index", "print_training_accuracy",
}  # fmt: skip
# Names in the header of options with other names on the command line.
_HEADER_NAMES = {
    "data_name": "dataset", "variable_update": "variables", "all_reduce_spec": "allreduce",
    "cross_replica_sync": "sync", "horovod_device": "horovod_on",
}  # fmt: skip
_DEFAULTS = {
    "mode": "training", "singlesess": "false", "numa_bind": "false",
    "layout_optimizer": "false", "allreduce": "none", "optimizer": "sgd", "sync": "true",
    "device": "gpu", "use_nccl": "",
}  # fmt: skip


def describe(header: Mapping[str, str], command: Mapping[str, str]) -> Description:
    """Return the options of a run that differ from their defaults.

    Raises:
      ValueError: If its batch sizes are impossible.
    """
    settings = {}
    for name, value in command.items():
        settings[_HEADER_NAMES.get(name, name)] = value
    for name, value in header.items():
        if name != PER_DEVICE:
            name = name.lower().replace(" ", "_")
        settings[name] = value
    devices, workers = _count_devices_and_processes(settings)
    device_names = settings.get("devices", "")
    if "/cpu" in device_names:
        settings["device"] = "cpu"
    # Parameters come over the network even if the job has only one worker.
    if "job:" in device_names:
        settings["cluster"] = "true"
    options: dict[str, Any] = {"num_devices": devices, "device": "gpu"}
    for name, value in settings.items():
        defaults = (_DEFAULTS.get(name, "false"), "")
        if name not in _SIZE and value.lower() not in defaults:
            # "1.10" is the name of a release.
            options[name] = value if name == "tensorflow" else _parse_value(value)
    # The global batch size follows from the batch size of a device.
    sizes = {
        "batch_size": settings.get(PER_DEVICE, ""),
        "global_batch_size": settings.get("batch_size", "").partition(" ")[0],
    }
    for name, text in sizes.items():
        if re.fullmatch(r"\d+(\.0+)?", text):
            options[name] = int(float(text))
            break
    return Description(options, workers)


def _count_devices_and_processes(settings: Mapping[str, str]) -> tuple[int | None, int]:
    """Return the number of devices, and of processes that print a total each."""
    names = settings.get("devices", "")
    num_names = names.count("'") // 2
    devices = num_names or None
    total = settings.get("batch_size", "").partition(" ")[0]
    per_device = settings.get(PER_DEVICE, "")
    if total and per_device:
        size = parse_positive(per_device, "a batch size per device")
        ratio = parse_positive(total, "a global batch size") / size
        if ratio > _MAX_DEVICES:
            raise ValueError(
                f"a global batch size of {total[:20]} at {per_device[:20]} per device "
                "gives no plausible number of devices"
            )
        if abs(ratio - round(ratio)) < 1e-9:
            devices = round(ratio)
    if "horovod" in names:  # The list has the device of every rank.
        return devices, max(num_names, 1)
    return devices, max((devices or 1) // max(num_names, 1), 1)


def _parse_value(text: str) -> bool | int | float | str:
    """Return a value with the type that it has in records."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    with contextlib.suppress(ValueError):
        return parse_positive(text, "a number")
    return text
