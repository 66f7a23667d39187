"""What a run is: every option of run_options.py and of the model, with its default worked out.

given flags -> resolve() -> RunConfig, every default worked out      (which conflicts: conflicts.py)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from rnn_scaling.config import presets, registry
from rnn_scaling.config import run_options as options
from rnn_scaling.models import kernels
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workloads import dataset_of


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Every option of one run, after its default is resolved."""

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
        """The update mode, which answers questions about itself."""
        return registry.VARIABLE_UPDATES[self.update.variable_update]

    @property
    def num_towers(self) -> int:
        """Towers of all workers."""
        return self.devices.num_devices * self.cluster.num_workers

    @property
    def num_processes(self) -> int:
        """Processes of a run: a coordinator where the mode has one, the workers, and the parameter servers."""
        return len(self.roles())

    def roles(self) -> tuple[str, ...]:
        """What each process of a run is, in the order of ranks: coordinator, worker or ps."""
        return self.mode.roles(self.cluster.num_workers, self.cluster.num_ps)

    def tower_batch_sizes(self) -> tuple[int, ...]:
        """Samples of each tower of all workers; their sum is the global batch, nothing is dropped."""
        towers = self.num_towers
        training = self.training
        if not training.global_batch_size:
            return (training.batch_size,) * towers
        share, rest = divmod(training.global_batch_size, towers)
        return tuple(share + (tower < rest) for tower in range(towers))

    def flat(self) -> dict[str, Any]:
        """Option name -> value, in the order of the help; what the record's `config` holds."""
        return {
            name: getattr(getattr(self, group), name)
            for name, group in GROUP_OF.items()
        }


GROUPS: dict[str, type] = {
    field.name: type(field.default) for field in dataclasses.fields(RunConfig)
}
OPTIONS: dict[str, dataclasses.Field] = {
    f.name: f for group in GROUPS.values() for f in dataclasses.fields(group)
}
GROUP_OF: dict[str, str] = {
    f.name: name for name, group in GROUPS.items() for f in dataclasses.fields(group)
}


def from_flat(values: Mapping[str, Any]) -> RunConfig:
    """The RunConfig with these option values; options that are missing keep their defaults."""
    by_group: dict[str, dict[str, Any]] = {name: {} for name in GROUPS}
    for name, value in values.items():
        by_group[GROUP_OF[name]][name] = value
    return RunConfig(
        **{name: GROUPS[name](**fields) for name, fields in by_group.items()}
    )


def as_started(
    given: Mapping[str, Any], num_processes: int, num_ps: int | None = None
) -> dict[str, Any]:
    """The given options with as many workers and servers (None: not told) as a launcher started, if no option says."""
    mode = registry.mode_of(given.get("variable_update"))
    if not mode.is_distributed or "num_workers" in given:
        return dict(given)
    servers = (
        {"num_ps": given.get("num_ps", num_ps or OPTIONS["num_ps"].default)}
        if mode.has_servers
        else {}
    )
    num_workers = max(1, num_processes - sum(servers.values()) - mode.has_coordinator)
    return {**given, **servers, "num_workers": num_workers}


def assumed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options that the given ones, which may be lists of values, need and that no default would set.

    Prefetching needs batches from the host. Command lines of other trainers name no data source with it.
    """
    deciding = {"data_source", "use_synthetic_data", "framework"}
    return (
        {"data_source": "host"}
        if "prefetch_data_to_device" in given and not deciding & given.keys()
        else {}
    )


def resolve(given: Mapping[str, Any], *, num_gpus: int, num_cores: int) -> RunConfig:
    """The configuration that will run, with every default worked out; `conflicts.problems` lists its conflicts."""
    values: dict[str, Any] = {name: field.default for name, field in OPTIONS.items()}
    preset = given.get("preset", "small")
    values.update(
        presets.defaults(preset, given.get("model", presets.model_of(preset)))
    )
    values.update(assumed(given) | dict(given))
    values["dataset"] = dataset_of(values["model"], values["dataset"])
    _resolve_devices(values, given, num_gpus, num_cores)
    _resolve_kernels(values, given)
    if values["independent_replica"] and values["variable_update"] == "replicated":
        values["variable_update"] = "independent"
    if values["param_server_device"] is None:
        values["param_server_device"] = values["device"]
    _resolve_data(values, given)
    return from_flat(values)


def _resolve_devices(
    values: dict[str, Any], given: Mapping[str, Any], num_gpus: int, num_cores: int
) -> None:
    if values["device"] == "auto":
        values["device"] = "gpu" if num_gpus else "cpu"
    if values["num_devices"] == 0:
        cores_per_device = max(1, values["cpu_cores_per_device"])
        values["num_devices"] = (
            num_gpus
            if values["device"] == "gpu"
            else max(1, num_cores // cores_per_device)
        )
    if values["global_batch_size"] and "batch_size" not in given:
        values["batch_size"] = -(
            -values["global_batch_size"]
            // max(1, values["num_devices"] * values["num_workers"])
        )


def _resolve_kernels(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    if values["encoder_type"] in ("bi", "uni"):
        if "direction" not in given:
            values["direction"] = values["encoder_type"]
        values["encoder_type"] = "dynamic_rnn"
    if values["encoder_type"] is None:
        values["encoder_type"] = kernels.of_cell(values["unit_type"])[0]
    if values["decoder_type"] is None:
        values["decoder_type"] = values["encoder_type"]


def _resolve_data(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    if values["use_synthetic_data"] and "data_source" not in given:
        values["data_source"] = "device"
    if (
        values["framework"] != "tensorflow"
        and not {"data_source", "use_synthetic_data"} & given.keys()
    ):
        values["data_source"] = "constant"
    if values["prefetch_data_to_device"] is None:
        values["prefetch_data_to_device"] = registry.reads(
            registry.DATA_SOURCES, values["data_source"], "prefetch_data_to_device"
        )


def pool_sizes(config: RunConfig, num_cores: int) -> tuple[int, int]:
    """(inter-op, intra-op) threads of a run.

    With a core per device, one inter-op thread per device: with one less, towers wait for each other's operators; one
    more competes with them for their cores (BUILD_NOTES.md has both, measured). If devices have several cores, or if a
    process also serves others, one thread more than devices. All CPU devices share one intra-op pool with a thread for
    each of their cores; with one core per device, operators are not split.
    """
    devices = config.devices
    measure = config.measure
    inter = measure.inter_op_parallelism_threads
    intra = measure.intra_op_parallelism_threads
    count = devices.num_devices
    per_device = devices.cpu_cores_per_device
    if devices.device == "gpu":
        return inter or max(count + 1, num_cores), intra or num_cores
    alone = per_device == 1 and config.num_processes == 1
    return inter or (count if alone else count + 1), intra or (
        count * per_device if per_device > 1 else 1
    )
