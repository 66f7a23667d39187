"""Name -> module tables. A new kernel, mode, algorithm or report is one file and one line here.

What a user may choose, the help text, which options a choice reads and what a sweep does by default follow from the
tables. They hold module paths, so that what a module imports loads only when it is chosen.
"""

import dataclasses
import importlib
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

# The tables of the networks and kernels, for everything above the models.
from rnn_scaling.models import kernels as kernels
from rnn_scaling.models import workloads as workloads
from rnn_scaling.models.workloads import WORKLOADS as WORKLOADS


@dataclasses.dataclass(frozen=True)
class Choice:
    """One row of a table."""

    module: str  # loaded when it is chosen
    help: str = ""  # what it is, in a few words, for `--help`
    # Options that not every choice of its table reads; setting one that no choice reads is refused.
    reads: tuple[str, ...] = ()
    # Whether a sweep runs it when the user names none; a mode of several workers, when there are such.
    is_swept: bool = False


@dataclasses.dataclass(frozen=True)
class Engine(Choice):
    """Which processes take part in a run, and how they are joined."""

    is_distributed: bool = True  # several processes can take part
    has_servers: bool = False  # processes of their own (--num_ps) hold the variables
    has_coordinator: bool = False  # a process of its own drives the workers
    one_tower_on_cpus: bool = False  # a worker without GPUs has a single tower
    package: str = ""  # a package that ./run.sh setup-PACKAGE adds; empty: none
    # How the messages of its own all-reduce travel, as `AllReduce.messages`; empty if
    # it has none.
    messages: str = ""


@dataclasses.dataclass(frozen=True)
class UpdateMode(Choice):
    """Where variables are, and how towers exchange what they learn.

    Everything outside the mode asks it, instead of knowing its name.
    """

    engine: str = "local"  # what its processes run on, a name of ENGINES
    step: str = "towers"  # what is called and timed, a name of STEPS
    trains_one_model: bool = True  # otherwise each tower is a run of its own
    # Towers read variables that are elsewhere; otherwise each device has a copy.
    has_one_copy: bool = False

    @property
    def processes(self) -> Engine:
        """The engine, which decides which processes a run has."""
        return ENGINES[self.engine]

    @property
    def is_distributed(self) -> bool:
        """Whether several processes can take part."""
        return self.processes.is_distributed

    @property
    def has_servers(self) -> bool:
        """Whether processes of their own hold the variables, and rank 0 runs all steps."""
        return self.processes.has_servers

    @property
    def has_coordinator(self) -> bool:
        """Whether any free worker runs the next step, whatever the others do."""
        return self.processes.has_coordinator

    @property
    def cuts_global_batch(self) -> bool:
        """Whether the host gets one batch for all towers, of which the step cuts theirs."""
        return self.step == "sliced_step"

    @property
    def without_exchange(self) -> str:
        """The mode that exchanges nothing, against which the loss is split."""
        return "distributed_independent" if self.is_distributed else "independent"

    def roles(self, num_workers: int, num_ps: int) -> tuple[str, ...]:
        """Return the role of each process of a run, in the order of ranks."""
        coordinators = ("coordinator",) * self.has_coordinator
        servers = ("ps",) * (num_ps if self.has_servers else 0)
        return (*coordinators, *("worker",) * num_workers, *servers)

    def messages(self, all_reduce: str) -> str:
        """Return how gradients travel.

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
class AllReduce(Choice):
    has_shards: bool = False  # whether it can cut a tensor into shards
    needs_gpus: bool = False  # whether it cannot run on CPUs
    # The numbers of devices that it takes, in words, those that it does not take, and whether it takes one.
    ranks: tuple[str, str, Callable[[int], bool]] = ("any", "", lambda count: True)
    spans_workers: bool = False  # whether its ranks may be towers of several processes
    # How its messages travel, a name of analysis.prediction.curves.ALGORITHMS; predictions
    # of its time use it.
    messages: str = ""


@dataclasses.dataclass(frozen=True)
class DataSource(Choice):
    varies: bool = False  # whether batches differ in length
    on_device: bool = (
        False  # whether they are made there, so that no input costs anything
    )
    holds: str = ""  # "text" or a name of rnn_scaling.models.workloads.DATASETS; empty: batches of any workload
    files: str = ""  # the pattern of the files that it reads in --data_dir; empty: it reads none there


@dataclasses.dataclass(frozen=True)
class Framework(Choice):
    """Who trains."""

    package: str = ""  # the package that it imports, in an environment of its own; "": it is part of this suite
    least: str = ""  # the oldest version of the package that it is written for
    has_equal_towers: bool = False  # whether all towers must have batches of one size


@dataclasses.dataclass(frozen=True)
class ReportFile(Choice):
    file: str = ""  # its name; what stands in it says that it is one, as records/own_files.py asks of such a name
    needs_rates: bool = False  # whether it is left out where nothing was measured


Table = Mapping[str, Choice]


def _modules(package: str, *names: str) -> Table:
    return {name: Choice(f"{package}.{name}") for name in names}


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
    *(
        "all_reduce_spec",
        "gradient_repacking",
        "agg_small_grads_max_bytes",
        "agg_small_grads_max_group",
    ),
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
        "one copy of the variables, one batch divided into slices, one loss over all outputs",
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
        "the same without waiting for other workers: gradients are stale",
        reads=("partition_large_variables", "sparse_gradients"),
        engine="coordinator",
        has_one_copy=True,
        step="scheduled_step",
    ),
}
UNKNOWN_MODE = UpdateMode("")  # what is assumed of another trainer's mode
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
        ranks=(
            "a power of two as",
            "other numbers",
            lambda count: not count & (count - 1),
        ),
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
        ranks=("an even", "odd numbers", lambda count: count < 2 or count % 2 == 0),
        messages="hierarchical",
    ),
}
TEXT_FILES = ("src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file")
KNOWN_ANSWERS = ("copy", "reverse")
_PIPELINE = ("num_parallel_calls", "prefetch_data_to_device")
_RANDOM = ("random_lengths", "pad_to")
DATA_SOURCES: Mapping[str, DataSource] = {
    "device": DataSource(
        "rnn_scaling.data.device",
        "random batches drawn on each device",
        on_device=True,
        reads=_RANDOM,
    ),
    "constant": DataSource(
        "rnn_scaling.data.constant",
        "one batch kept on each device",
        on_device=True,
        reads=_RANDOM,
    ),
    "copy": DataSource(
        "rnn_scaling.data.known_answer", "random words to be copied, nmt", holds="text"
    ),
    "reverse": DataSource(
        "rnn_scaling.data.known_answer",
        "random words to be turned round, nmt",
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
            *(
                "bos",
                "eos",
                "unk_id",
                "num_buckets",
                "pad_to",
                "disable_shuffle",
                "output_buffer_size",
                "num_epochs",
            ),
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
# What only our own trainer has, without other work being done where nothing reads it.
_OURS = (
    *("encoder_type", "decoder_type", "time_major", "xla", "random_lengths"),
    *_REPLICATED,
    *("inter_op_parallelism_threads", "intra_op_parallelism_threads"),
)
FRAMEWORKS: Mapping[str, Framework] = {
    "tensorflow": Framework("rnn_scaling.training.benchmark", "ours", reads=_OURS),
    "torch": Framework(
        "rnn_scaling.frameworks.torch",
        "PyTorch",
        reads=("compile",),
        package="torch",
        least="2.6",
    ),
    "jax": Framework(
        "rnn_scaling.frameworks.jax",
        "JAX",
        package="jax",
        least="0.6",
        has_equal_towers=True,
    ),
    "keras": Framework(
        *("rnn_scaling.frameworks.keras", "Keras 3"),
        reads=("keras_backend",),
        package="keras",
        least="3.9",
        has_equal_towers=True,
    ),
}
STEPS = _modules(
    "rnn_scaling.training", "towers", "scheduled_step", "sliced_step", "inference_step"
)
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
        "the answer, tables, curves, where the loss goes, steady state, environment; opens from disk",
        file="report.html",
    ),
    "plot": ReportFile(
        "rnn_scaling.reports.curves",
        "all curves",
        file="speedup.png",
        needs_rates=True,
    ),
}


def load(table: Table, name: str) -> ModuleType:
    """Imports and returns the module that `table` names `name`. Raises ValueError if the table has no such name."""
    if name not in table:
        raise ValueError(f"expected one of {', '.join(sorted(table))}, got {name!r}")
    return importlib.import_module(table[name].module)


def mode_of(name: Any) -> UpdateMode:
    """Return the update mode with this name; if none has it, what is assumed of one."""
    return VARIABLE_UPDATES.get(name, UNKNOWN_MODE)


def distributed_modes() -> list[str]:
    """Return the modes in which several processes can take part."""
    return [name for name, mode in VARIABLE_UPDATES.items() if mode.is_distributed]


def swept_modes(distributed: bool = False) -> list[str]:
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
    """Whether a choice reads an option that not all of them read."""
    return name in table and option in table[name].reads


def without_input(source: Any) -> str:
    """The data source without any input, that the loss with a source is split against; itself if it is one."""
    return (
        str(source)
        if source in DATA_SOURCES and DATA_SOURCES[source].on_device
        else "device"
    )


def readers(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Option -> the choices of the table, here or elsewhere, whose `reads` name it."""
    options = dict.fromkeys(
        option for choice in table.values() for option in choice.reads
    )
    return {
        option: tuple(name for name, choice in table.items() if option in choice.reads)
        for option in options
    }


def in_words(table: Table) -> str:
    """ "a (what a is), b (what b is) or c (what c is)", for a help text."""
    return either([f"{name} ({choice.help})" for name, choice in table.items()])


def either(words: Iterable[str]) -> str:
    """ "a, b or c"."""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last
