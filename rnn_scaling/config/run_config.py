"""The options of a run, from run_options.py and the model, with all defaults resolved.

`resolve` returns the RunConfig for the user's options; conflicts.py finds conflicts in
it.

A `RunConfig` never changes. Its flat form, `flat()`, is what records contain.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rnn_scaling.config import presets, registry
from rnn_scaling.config import run_options as options
from rnn_scaling.models import encoder_table
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workloads import resolve_dataset


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Every option of one run, with its default resolved."""

    devices: options.DeviceOptions = options.DeviceOptions()
    frameworks: options.FrameworkOptions = options.FrameworkOptions()
    cluster: options.ClusterOptions = options.ClusterOptions()
    model: ModelConfig = ModelConfig()
    update: options.UpdateOptions = options.UpdateOptions()
    training: options.TrainingOptions = options.TrainingOptions()
    data: options.DataOptions = options.DataOptions()
    measure: options.MeasureOptions = options.MeasureOptions()
    output: options.OutputOptions = options.OutputOptions()

    @property
    def mode(self) -> registry.UpdateMode:
        """The update mode."""
        return registry.VARIABLE_UPDATES[self.update.variable_update]

    @property
    def num_towers(self) -> int:
        """Towers of all workers."""
        return self.devices.num_devices * self.cluster.num_workers

    @property
    def num_processes(self) -> int:
        """Number of workers, parameter servers and coordinators."""
        return len(self.list_roles())

    def list_roles(self) -> tuple[str, ...]:
        """Return the role of each process, in the order of ranks."""
        return self.mode.list_roles(self.cluster.num_workers, self.cluster.num_ps)

    def tower_batch_sizes(self) -> tuple[int, ...]:
        """Return the samples of each tower; all workers' towers sum to the global batch."""
        towers = self.num_towers
        training = self.training
        if not training.global_batch_size:
            return (training.batch_size,) * towers
        size, remainder = divmod(training.global_batch_size, towers)
        return tuple(size + (tower < remainder) for tower in range(towers))

    def flat(self) -> dict[str, Any]:
        """Return the value of each option, in the order of the help.

        A record contains this as its `config`.
        """
        return {
            name: getattr(getattr(self, group), name)
            for name, group in GROUP_OF.items()
        }


GROUPS: dict[str, type] = {
    field.name: type(field.default) for field in dataclasses.fields(RunConfig)
}
OPTIONS: dict[str, dataclasses.Field] = {}
GROUP_OF: dict[str, str] = {}
for _name, _group in GROUPS.items():
    for _field in dataclasses.fields(_group):
        OPTIONS[_field.name] = _field
        GROUP_OF[_field.name] = _name


def from_flat(values: Mapping[str, Any]) -> RunConfig:
    """Return the RunConfig with these values, and defaults for all other options."""
    by_group: dict[str, dict[str, Any]] = {name: {} for name in GROUPS}
    for name, value in values.items():
        by_group[GROUP_OF[name]][name] = value
    return RunConfig(
        **{name: GROUPS[name](**fields) for name, fields in by_group.items()}
    )


def add_launcher_size(
    user_options: Mapping[str, Any], num_processes: int, num_ps: int | None = None
) -> dict[str, Any]:
    """Add the numbers of workers and servers that a launcher started.

    Args:
      user_options: The options that the user set. They are not changed if they contain
        num_workers, or if the mode has only one process.
      num_processes: Processes that the launcher started.
      num_ps: Parameter servers among them; None if unknown.
    """
    mode = registry.find_mode(user_options.get("variable_update"))
    if not mode.is_distributed or "num_workers" in user_options:
        return dict(user_options)
    added = {}
    num_workers = num_processes - mode.has_coordinator
    if mode.has_servers:
        default = num_ps or OPTIONS["num_ps"].default
        added["num_ps"] = user_options.get("num_ps", default)
        num_workers -= added["num_ps"]
    added["num_workers"] = max(1, num_workers)
    return {**user_options, **added}


def find_implied_options(user_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that the user's options need and that differ from the defaults.

    Prefetching needs batches from the host. Command lines for other trainers do not
    name a data source with it.

    Args:
      user_options: The options that the user set; values may be lists.
    """
    source_options = {"data_source", "use_synthetic_data", "framework"}
    has_source = bool(source_options & user_options.keys())
    if "prefetch_data_to_device" in user_options and not has_source:
        return {"data_source": "host"}
    return {}


def resolve(
    user_options: Mapping[str, Any], *, num_gpus: int, num_cores: int
) -> RunConfig:
    """Return the configuration with all defaults resolved; it may have conflicts."""
    preset = presets.find_current_name(user_options.get("preset", "small"))
    model = user_options.get("model", presets.find_model(preset))
    values: dict[str, Any] = {
        **{name: field.default for name, field in OPTIONS.items()},
        **presets.find_defaults(preset, model),
        **find_implied_options(user_options),
        **user_options,
        "preset": preset,
    }
    values["dataset"] = resolve_dataset(values["model"], values["dataset"])
    _resolve_devices(values, user_options, num_gpus, num_cores)
    _resolve_kernels(values, user_options)
    if values["independent_replica"] and values["variable_update"] == "replicated":
        values["variable_update"] = "independent"
    if values["param_server_device"] is None:
        values["param_server_device"] = values["device"]
    _resolve_data(values, user_options)
    return from_flat(values)


def _resolve_devices(
    values: dict[str, Any],
    user_options: Mapping[str, Any],
    num_gpus: int,
    num_cores: int,
) -> None:
    if values["device"] == "auto":
        values["device"] = "gpu" if num_gpus else "cpu"
    if values["num_devices"] == 0:
        cores_per_device = max(1, values["cpu_cores_per_device"])
        num_cpu_devices = max(1, num_cores // cores_per_device)
        is_on_gpus = values["device"] == "gpu"
        values["num_devices"] = num_gpus if is_on_gpus else num_cpu_devices
    if values["global_batch_size"] and "batch_size" not in user_options:
        towers = max(1, values["num_devices"] * values["num_workers"])
        values["batch_size"] = -(-values["global_batch_size"] // towers)


def _resolve_kernels(values: dict[str, Any], user_options: Mapping[str, Any]) -> None:
    if values["encoder_type"] in ("bi", "uni"):
        if "direction" not in user_options:
            values["direction"] = values["encoder_type"]
        values["encoder_type"] = "dynamic_rnn"
    if values["encoder_type"] is None:
        values["encoder_type"] = encoder_table.list_encoders(values["unit_type"])[0]
    if values["decoder_type"] is None:
        values["decoder_type"] = values["encoder_type"]


def _resolve_data(values: dict[str, Any], user_options: Mapping[str, Any]) -> None:
    if "data_source" not in user_options:
        if values["use_synthetic_data"]:
            values["data_source"] = "device"
        elif (
            values["framework"] != "tensorflow"
            and "use_synthetic_data" not in user_options
        ):
            values["data_source"] = "constant"
    if values["prefetch_data_to_device"] is None:
        values["prefetch_data_to_device"] = registry.reads(
            registry.DATA_SOURCES, values["data_source"], "prefetch_data_to_device"
        )


def choose_pool_sizes(config: RunConfig, num_cores: int) -> tuple[int, int]:
    """Return the number of inter-op and of intra-op threads of a run.

    With one core per device, there is one inter-op thread per device. With one less,
    towers wait for each other's operators; one more competes with them for their cores
    (BUILD_NOTES.md has both measurements). If devices have several cores, or if a
    process also serves others, there is one thread more than devices.

    All CPU devices share one intra-op pool with a thread for each of their cores; with
    one core per device, operators are not split.
    """
    devices = config.devices
    num_devices = devices.num_devices
    cores_per_device = devices.cpu_cores_per_device
    if devices.device == "gpu":
        inter = max(num_devices + 1, num_cores)
        intra = num_cores
    else:
        has_one_core = cores_per_device == 1
        has_one_process = config.num_processes == 1
        inter = num_devices + 1
        if has_one_core and has_one_process:
            inter = num_devices
        intra = 1 if has_one_core else num_devices * cores_per_device
    measure = config.measure
    return (
        measure.inter_op_parallelism_threads or inter,
        measure.intra_op_parallelism_threads or intra,
    )
