"""Tables of everything that users choose by name, with the modules behind the names.

A new kernel, mode, algorithm or report is one file and one row. Choices, help texts,
checks of options and the defaults of a sweep follow from the tables. They contain the
paths of modules, so that a module loads only when it is chosen.

Records contain names of kernels, modes and algorithms as values of options. One that is
removed needs an entry in `_FORMER_CHOICES` of records/checks.py.
"""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

# Packages above import the tables of networks and encoders from here.
from rnn_scaling.models import encoder_table as encoder_table
from rnn_scaling.models import workloads as workloads
from rnn_scaling.models.workloads import WORKLOADS as WORKLOADS


@dataclasses.dataclass(frozen=True)
class Choice:
    """One row of a table."""

    module: str
    help: str = ""  # text for `--help`
    # Options that only some choices of the table read. Setting one is an error if no
    # choice of the run reads it.
    reads: tuple[str, ...] = ()
    # Whether a sweep runs it by default. Modes of several workers run by default only
    # in sweeps with several workers.
    is_swept: bool = False


@dataclasses.dataclass(frozen=True)
class Engine(Choice):
    """The processes of a run, and how they are connected."""

    is_distributed: bool = True  # whether several processes can take part
    has_servers: bool = False  # whether separate processes (--num_ps) hold variables
    has_coordinator: bool = False  # whether a separate process drives the workers
    one_tower_on_cpus: bool = False  # whether a worker on CPUs has a single tower
    package: str = ""  # needed package, which ./run.sh setup-PACKAGE installs
    messages: str = ""  # see `AllReduce`; "" without an all-reduce


@dataclasses.dataclass(frozen=True)
class UpdateMode(Choice):
    """Where variables are, and how towers exchange gradients.

    Code outside the mode uses these fields and methods, not the names of modes.
    """

    engine: str = "local"  # a name in ENGINES
    step: str = "train_step"  # builds the step that is timed; a name in STEPS
    trains_one_model: bool = True  # False if each tower trains a separate model
    # Whether all towers read the same variables, instead of one copy per device.
    has_one_copy: bool = False

    @property
    def processes(self) -> Engine:
        """The engine, which decides on the processes of a run."""
        return ENGINES[self.engine]

    @property
    def is_distributed(self) -> bool:
        """Whether several processes can take part."""
        return self.processes.is_distributed

    @property
    def has_servers(self) -> bool:
        """Whether separate processes hold the variables, and rank 0 runs all steps."""
        return self.processes.has_servers

    @property
    def has_coordinator(self) -> bool:
        """Whether any free worker runs the next step, without waiting for others."""
        return self.processes.has_coordinator

    @property
    def cuts_global_batch(self) -> bool:
        """Whether the step divides one batch from the host among the towers."""
        return self.step == "sliced_step"

    @property
    def exchange_free_mode(self) -> str:
        """The mode without exchange that shows how much the exchange costs."""
        return "distributed_independent" if self.is_distributed else "independent"

    def list_roles(self, num_workers: int, num_ps: int) -> tuple[str, ...]:
        """Return the role of each process of a run, in the order of ranks."""
        coordinators = ("coordinator",) * self.has_coordinator
        servers = ("ps",) * (num_ps if self.has_servers else 0)
        return (*coordinators, *("worker",) * num_workers, *servers)

    def describe_messages(self, all_reduce: str) -> str:
        """Describe how gradients travel.

        Args:
          all_reduce: The all-reduce of the run; "" if the mode has its own.

        Returns:
          A name of analysis.prediction.curves.ALGORITHMS; "" if that is unknown.
        """
        if not self.trains_one_model:
            return "none"
        if self.has_one_copy:
            return "parameter_server"
        if all_reduce in ALL_REDUCES:
            return ALL_REDUCES[all_reduce].messages
        return self.processes.messages


@dataclasses.dataclass(frozen=True)
class DeviceCountRule:
    """The numbers of devices on which an all-reduce works."""

    is_valid: Callable[[int], bool]
    valid: str  # end of an error: "needs {valid} --num_devices"
    invalid: str  # end of an error: "use xring for {invalid}"


_ANY_COUNT = DeviceCountRule(lambda count: True, "any", "")
_POWER_OF_TWO = DeviceCountRule(
    lambda count: not count & (count - 1), "a power of two as", "other numbers"
)
_EVEN_OR_ONE = DeviceCountRule(
    lambda count: count < 2 or count % 2 == 0, "an even", "odd numbers"
)


@dataclasses.dataclass(frozen=True)
class AllReduce(Choice):
    """An algorithm that adds the gradients of all towers."""

    has_shards: bool = False  # whether it can divide a tensor into shards
    needs_gpus: bool = False
    device_counts: DeviceCountRule = _ANY_COUNT
    spans_workers: bool = False  # whether it works between processes
    # How its messages travel, for predictions of its time: a name of
    # analysis.prediction.curves.ALGORITHMS.
    messages: str = ""


@dataclasses.dataclass(frozen=True)
class DataSource(Choice):
    """Where batches come from."""

    varies: bool = False  # whether batches differ in length
    on_device: bool = False  # whether devices make their batches, without input costs
    # Its content: "text" or a name in models.workloads.DATASETS; "" if it makes batches
    # for any workload.
    holds: str = ""
    files: str = ""  # pattern of the names of its files in --data_dir


@dataclasses.dataclass(frozen=True)
class Framework(Choice):
    """A program that trains our networks."""

    package: str = ""  # needed package, in a separate environment; "" for this suite
    minimum_version: str = ""  # oldest supported version of the package
    has_equal_towers: bool = False  # whether all towers need batches of the same size


@dataclasses.dataclass(frozen=True)
class ReportFile(Choice):
    """A file of a report."""

    file: str = ""  # file name; `records.own_files` recognises the file by its content
    needs_rates: bool = False  # whether it is left out if nothing was measured


@dataclasses.dataclass(frozen=True)
class Export(Choice):
    """Another tool's format for the runs of a folder."""

    destination: str = "folder"  # what DESTINATION names, for help and errors
    package: str = ""  # needed package, which users install themselves


Table = Mapping[str, Choice]

ENGINES: Mapping[str, Engine] = {
    "local": Engine("rnn_scaling.training.engines.local", is_distributed=False),
    "alone": Engine("rnn_scaling.training.engines.local"),
    "collective": Engine("rnn_scaling.training.engines.collective"),
    "multi_worker": Engine(
        "rnn_scaling.training.engines.multi_worker",
        one_tower_on_cpus=True,
        messages="ring",
    ),
    "horovod": Engine(
        "rnn_scaling.training.engines.horovod", package="horovod", messages="ring"
    ),
    "grpc_cluster": Engine(
        "rnn_scaling.training.engines.grpc_cluster", has_servers=True
    ),
    "coordinator": Engine(
        "rnn_scaling.training.engines.coordinator",
        has_servers=True,
        has_coordinator=True,
    ),
}
_STALE_AND_SPARSE = ("variable_consistency", "sparse_gradients")
_REPLICATED = (
    "all_reduce_spec",
    "gradient_repacking",
    "agg_small_grads_max_bytes",
    "agg_small_grads_max_group",
    "compress_gradients",
    *_STALE_AND_SPARSE,
)
VARIABLE_UPDATES: Mapping[str, UpdateMode] = {
    "independent": UpdateMode(
        "rnn_scaling.training.variable_update.independent",
        "replicas that exchange nothing",
        is_swept=True,
        trains_one_model=False,
    ),
    "parameter_server": UpdateMode(
        "rnn_scaling.training.variable_update.parameter_server",
        "one copy of the variables",
        reads=(
            "param_server_device",
            "partition_large_variables",
            "staged_vars",
            *_STALE_AND_SPARSE,
        ),
        is_swept=True,
        has_one_copy=True,
    ),
    "replicated": UpdateMode(
        "rnn_scaling.training.variable_update.replicated",
        "one copy per device, gradients all-reduced",
        reads=_REPLICATED,
        is_swept=True,
    ),
    "mirrored": UpdateMode(
        "rnn_scaling.training.variable_update.mirrored",
        "tf.distribute.MirroredStrategy",
    ),
    "keras_slicing": UpdateMode(
        "rnn_scaling.training.variable_update.parameter_server",
        "one copy of the variables, one batch divided into slices, "
        "one loss over all outputs",
        reads=("slice_on", "param_server_device", "sparse_gradients"),
        step="sliced_step",
        has_one_copy=True,
    ),
    "distributed_independent": UpdateMode(
        "rnn_scaling.training.variable_update.independent",
        "independent, over several workers",
        is_swept=True,
        trains_one_model=False,
        engine="alone",
    ),
    "collective_all_reduce": UpdateMode(
        "rnn_scaling.training.variable_update.replicated",
        "replicated, over several workers",
        reads=_REPLICATED,
        is_swept=True,
        engine="collective",
    ),
    "multi_worker_mirrored": UpdateMode(
        "rnn_scaling.training.variable_update.mirrored",
        "tf.distribute.MultiWorkerMirroredStrategy",
        engine="multi_worker",
    ),
    "horovod": UpdateMode(
        "rnn_scaling.training.variable_update.horovod",
        "replicated, with Horovod's all-reduce over workers",
        reads=("sparse_gradients",),
        engine="horovod",
    ),
    "distributed_parameter_server": UpdateMode(
        "rnn_scaling.training.variable_update.parameter_server",
        "parameter_server, with the variables on separate processes",
        reads=("partition_large_variables", "staged_vars", *_STALE_AND_SPARSE),
        engine="grpc_cluster",
        has_one_copy=True,
    ),
    "async_parameter_server": UpdateMode(
        "rnn_scaling.training.variable_update.async_parameter_server",
        "like distributed_parameter_server, but no worker waits for others, "
        "so gradients are stale",
        reads=("partition_large_variables", "sparse_gradients"),
        engine="coordinator",
        has_one_copy=True,
        step="scheduled_step",
    ),
}
_UNKNOWN_MODE = UpdateMode("")  # assumed for modes of other trainers
ALL_REDUCES: Mapping[str, AllReduce] = {
    "nccl": AllReduce(
        "rnn_scaling.training.all_reduce.nccl", needs_gpus=True, messages="ring"
    ),
    "collective": AllReduce(
        "rnn_scaling.training.all_reduce.collective",
        spans_workers=True,
        messages="ring",
    ),
    "xring": AllReduce(
        "rnn_scaling.training.all_reduce.xring", has_shards=True, messages="ring"
    ),
    "rechd": AllReduce(
        "rnn_scaling.training.all_reduce.rechd",
        device_counts=_POWER_OF_TWO,
        messages="tree",
    ),
    "pscpu": AllReduce(
        "rnn_scaling.training.all_reduce.pscpu",
        has_shards=True,
        messages="parameter_server",
    ),
    "psgpu": AllReduce(
        "rnn_scaling.training.all_reduce.psgpu",
        has_shards=True,
        needs_gpus=True,
        messages="parameter_server",
    ),
    "hierarchical": AllReduce(
        "rnn_scaling.training.all_reduce.hierarchical",
        device_counts=_EVEN_OR_ONE,
        messages="hierarchical",
    ),
}
TEXT_FILES = ("src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file")
KNOWN_ANSWERS = ("copy", "reverse")
_PIPELINE = ("num_parallel_calls", "prefetch_data_to_device")
_RANDOM = ("random_lengths", "ragged_batches", "pad_to")
DATA_SOURCES: Mapping[str, DataSource] = {
    "device": DataSource(
        "rnn_scaling.data.device",
        "random batches drawn on each device",
        on_device=True,
        reads=_RANDOM,
    ),
    "constant": DataSource(
        "rnn_scaling.data.constant",
        "one random batch, which stays on each device",
        on_device=True,
        reads=_RANDOM,
    ),
    "copy": DataSource(
        "rnn_scaling.data.known_answer",
        "random sentences that the model learns to copy",
        holds="text",
    ),
    "reverse": DataSource(
        "rnn_scaling.data.known_answer",
        "random sentences that the model learns to reverse",
        holds="text",
    ),
    "host": DataSource(
        "rnn_scaling.data.host",
        "random batches from the host's pipeline",
        reads=(*_RANDOM, *_PIPELINE),
    ),
    "text": DataSource(
        "rnn_scaling.data.text",
        "parallel text files",
        reads=(
            *TEXT_FILES,
            "bos",
            "eos",
            "unk_id",
            "num_buckets",
            "pad_to",
            "disable_shuffle",
            "output_buffer_size",
            "num_epochs",
            *_PIPELINE,
        ),
        varies=True,
        holds="text",
    ),
    "cifar10": DataSource(
        "rnn_scaling.data.cifar10",
        "images of CIFAR-10's binary files",
        reads=(
            "data_dir",
            "disable_shuffle",
            "output_buffer_size",
            "num_epochs",
            *_PIPELINE,
        ),
        holds="cifar10",
        files="data_batch_*.bin",
    ),
    "tfrecord": DataSource(
        "rnn_scaling.data.tfrecord",
        "JPEGs of ImageNet's TFRecords",
        reads=("data_dir", "disable_shuffle", "output_buffer_size", *_PIPELINE),
        holds="imagenet",
        files="train-*-of-*",
    ),
}
# Options that change the work of our trainer, and that other frameworks do not have.
_TENSORFLOW_OPTIONS = (
    "encoder_type",
    "decoder_type",
    "time_major",
    "xla",
    "random_lengths",
    "ragged_batches",
    *_REPLICATED,
    "inter_op_parallelism_threads",
    "intra_op_parallelism_threads",
)
FRAMEWORKS: Mapping[str, Framework] = {
    "tensorflow": Framework(
        "rnn_scaling.training.benchmark",
        "this suite's trainer",
        reads=_TENSORFLOW_OPTIONS,
    ),
    "torch": Framework(
        "rnn_scaling.frameworks.torch",
        "PyTorch",
        reads=("compile",),
        package="torch",
        minimum_version="2.6",
    ),
    "jax": Framework(
        "rnn_scaling.frameworks.jax",
        "JAX",
        package="jax",
        minimum_version="0.6",
        has_equal_towers=True,
    ),
    "keras": Framework(
        "rnn_scaling.frameworks.keras",
        "Keras 3",
        reads=("keras_backend",),
        package="keras",
        minimum_version="3.9",
        has_equal_towers=True,
    ),
}
STEPS: Table = {
    "train_step": Choice("rnn_scaling.training.train_step"),
    "scheduled_step": Choice("rnn_scaling.training.scheduled_step"),
    "sliced_step": Choice("rnn_scaling.training.sliced_step"),
    "inference_step": Choice("rnn_scaling.training.inference_step"),
}
REPORTS: Mapping[str, ReportFile] = {
    "table": ReportFile("rnn_scaling.reports.table", "the tables", file="table.md"),
    "csv": ReportFile(
        "rnn_scaling.reports.csv_table",
        "every row with its 95 % intervals",
        file="table.csv",
    ),
    "json": ReportFile(
        "rnn_scaling.reports.json_report",
        "everything as numbers (docs/report.md has the schema)",
        file="report.json",
    ),
    "page": ReportFile(
        "rnn_scaling.reports.page.scaling",
        "the answer, tables, curves and causes; opens from disk",
        file="report.html",
    ),
    "plot": ReportFile(
        "rnn_scaling.reports.curves",
        "all curves",
        file="speedup.png",
        needs_rates=True,
    ),
}
EXPORTS: Mapping[str, Export] = {
    "prometheus": Export(
        "rnn_scaling.reports.exports.prometheus",
        "rows as gauges, for the textfile collector",
        destination="file",
    ),
    "otava": Export(
        "rnn_scaling.reports.exports.otava",
        "runs as CSV files, with a configuration",
    ),
    "extra-p": Export(
        "rnn_scaling.reports.exports.extra_p",
        "seconds per step over devices",
    ),
    "mllog": Export(
        "rnn_scaling.reports.exports.mllog",
        "runs as logs of MLPerf's logging package",
    ),
    "mlflow": Export(
        "rnn_scaling.reports.exports.mlflow",
        "runs with every batch",
        destination="tracking URI",
        package="mlflow",
    ),
    "wandb": Export(
        "rnn_scaling.reports.exports.wandb",
        "runs with every batch",
        destination="project",
        package="wandb",
    ),
}


def load(table: Table, name: str) -> ModuleType:
    """Import and return the module of a choice.

    Raises:
      ValueError: If the table does not have this name.
    """
    if name not in table:
        raise ValueError(f"expected one of {', '.join(sorted(table))}, got {name!r}")
    return importlib.import_module(table[name].module)


def find_mode(name: Any) -> UpdateMode:
    """Return the update mode with a name; _UNKNOWN_MODE if none has it."""
    return VARIABLE_UPDATES.get(name, _UNKNOWN_MODE)


def list_distributed_modes() -> list[str]:
    """Return the modes in which several processes can take part."""
    return [name for name, mode in VARIABLE_UPDATES.items() if mode.is_distributed]


def list_swept_modes(distributed: bool = False) -> list[str]:
    """Return the modes that a sweep runs if the user names none.

    Args:
      distributed: Whether the sweep has several workers.
    """
    return [
        name
        for name, mode in VARIABLE_UPDATES.items()
        if mode.is_swept and mode.is_distributed == distributed
    ]


def reads(table: Table, name: str, option: str) -> bool:
    """Return whether a choice reads an option that only some choices read."""
    return name in table and option in table[name].reads


def find_input_free_source(source: Any) -> str:
    """Return a source without input costs, which shows how much the input costs.

    Returns:
      The source itself if it has no input costs.
    """
    has_no_input = source in DATA_SOURCES and DATA_SOURCES[source].on_device
    return str(source) if has_no_input else "device"


def find_readers(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the choices that read each option in the `reads` of a table."""
    names: dict[str, list[str]] = {}
    for name, choice in table.items():
        for option in choice.reads:
            names.setdefault(option, []).append(name)
    return {option: tuple(choices) for option, choices in names.items()}


def format_choices(table: Table) -> str:
    """Return "a (help of a), b (help of b) or c (help of c)" for a help text."""
    return join_with_or(f"{name} ({choice.help})" for name, choice in table.items())


def join_with_or(words: Iterable[str]) -> str:
    """Return "a, b or c"."""
    *head, last = words
    return f"{', '.join(head)} or {last}" if head else last
