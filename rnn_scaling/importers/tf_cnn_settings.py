"""What a tf_cnn_benchmarks log says of its settings: the header that it prints, and the command line where one stands
before it.

The header names no parameter device, precision or XLA; a job's log often holds the command that does.
"""

import re
import shlex
from collections.abc import Mapping

PROGRAM = "tf_cnn_benchmarks.py"
_OPTION = re.compile(r"--?([A-Za-z]\w*)(?:=(.*))?", re.DOTALL)
# What says how large a run is or where its files are; the rest of the header and of the command parts series.
_SIZE = {
    "Batch size", "per device", "Num batches", "Num epochs", "Devices", "num_gpus", "batch_size", "num_batches",
    "num_epochs", "num_warmup_batches", "display_every", "data_dir", "train_dir", "trace_file", "graph_file",
    "tfprof_file", "benchmark_log_dir", "summary_verbosity", "save_summaries_steps", "worker_hosts", "ps_hosts",
    "controller_host", "job_name", "task_index", "print_training_accuracy",
}  # fmt: skip
# The same thing under the name that the command line has for it.
_HEADER_NAME = {
    "model": "Model", "data_name": "Dataset", "data_format": "Data format", "optimizer": "Optimizer",
    "variable_update": "Variables", "all_reduce_spec": "AllReduce", "use_nccl": "Use NCCL",
    "staged_vars": "Staged vars", "cross_replica_sync": "Sync", "horovod_device": "Horovod on", "device": "Device",
}  # fmt: skip
_DEFAULTS = {
    "Mode": "training", "SingleSess": "False", "NUMA bind": "False", "Layout optimizer": "False", "AllReduce": "None",
    "Optimizer": "sgd", "Sync": "True", "Device": "gpu",
}  # fmt: skip
# How values and gradients get from device to device.
_MODES = {
    "Variables", "AllReduce", "Use NCCL", "Staged vars", "Sync", "Horovod on", "SingleSess", "local_parameter_device",
    "hierarchical_copy", "gradient_repacking", "compact_gradient_transfer", "agg_small_grads_max_bytes",
    "agg_small_grads_max_group", "allreduce_merge_scope", "variable_consistency", "network_topology", "server_protocol",
}  # fmt: skip
_PARAMETER_DEVICE = re.compile(r"param(eter)?s?[ _]device|\bps[ _]device", re.IGNORECASE)
_OWN_PARAMETERS = {"replicated", "independent", "horovod", "distributed_all_reduce", "collective_all_reduce"}
_MODE_WORDS = re.compile(r"param(eter)?s?[ _]device|\bps[ _]|nccl|all_?reduce|variable_update", re.IGNORECASE)
_FIRST = ("Model", "Dataset", "Mode", "Variables", "AllReduce", "Use NCCL", "local_parameter_device", "Data format")
_BARE = frozenset({"Model", "Dataset", "Mode", "Variables", "AllReduce", "Data format"})  # values that name themselves
_IN_WORDS = {
    ("Use NCCL", "true"): "NCCL", ("Use NCCL", "false"): "no NCCL", ("use_fp16", "true"): "fp16",
    ("xla", "true"): "XLA", ("Device", "cpu"): "on CPUs",
    ("Cluster", "true"): "in a cluster",
}  # fmt: skip


def is_command(text: str) -> bool:
    """Whether a line is the command of a run."""
    return PROGRAM in text and " -" in text.partition(PROGRAM)[2]


def options_of(command: str) -> dict[str, str]:
    """The options of a command line by the header's name where it has one; a flag without a value is "true"."""
    text = command.partition(PROGRAM)[2].replace("\\\n", " ")
    try:
        words = shlex.split(text)
    except ValueError:  # a quotation mark that belongs to what stands around the command
        words = text.split()
    options: dict[str, str] = {}
    waiting = ""
    for word in words:
        match = _OPTION.fullmatch(word)
        if match and not word[1:2].isdigit():
            name = _HEADER_NAME.get(match[1], match[1])
            options[name] = "true" if match[2] is None else match[2]
            waiting = name if match[2] is None else ""
        elif waiting:
            options[waiting], waiting = word, ""
        else:
            break  # the end of the command: a pipe, a redirection
    return options


def parting(header: Mapping[str, str], command: Mapping[str, str]) -> dict[str, str]:
    """What parts the series of a run, by name: all settings but its size, places and defaults.

    command: `options_of` the command before it; the header counts where both say something.
    """
    settings = {**command, **header}
    if "'/cpu" in header.get("Devices", "") or "/cpu:" in header.get("Devices", ""):
        settings["Device"] = "cpu"
    if "job:" in header.get("Devices", ""):  # its parameters come over the network, to a lone worker too
        settings["Cluster"] = "true"
    kept = {}
    for name, value in settings.items():
        default = _DEFAULTS.get(name, "" if name == "Use NCCL" else "false")
        if name not in _SIZE and value.lower() not in (default.lower(), ""):
            kept[name] = value
    return kept


def series(settings: Mapping[str, str]) -> tuple[str, str]:
    """(the series of a run, what a run on one device must share to be its baseline), as texts."""
    ordered = [*(name for name in _FIRST if name in settings), *sorted(settings.keys() - set(_FIRST))]
    words = {name: _words(name, settings[name]) for name in ordered}
    shared = [text for name, text in words.items() if not _is_mode(name) or _copies_alone(name, settings)]
    return ", ".join(words.values()), ", ".join(shared)


def _copies_alone(name: str, settings: Mapping[str, str]) -> bool:
    """Whether an option has even a lone device copy all parameters from the host, and gradients to it, each step."""
    if not _PARAMETER_DEVICE.search(name) or not settings[name].lower().lstrip("/").startswith("cpu"):
        return False
    return settings.get("Variables") not in _OWN_PARAMETERS and settings.get("Device", "").lower() != "cpu"


def _is_mode(name: str) -> bool:
    """Whether an option says how values are exchanged, also under the name that a changed copy of the program has."""
    return name in _MODES or _MODE_WORDS.search(name) is not None


def _words(name: str, value: str) -> str:
    if name in _BARE:
        return value
    if name == "local_parameter_device":
        return f"parameters on {value}"
    return _IN_WORDS.get((name, value.lower()), f"{name} {value}")
