"""The parts `environment` and `resolved`: the machine and the resolved options.

Field names are keys of record files; rename only with metadata `older`, see
decoding.py. Never rename a field of `Environment`: `missing` ignores older names, so
the value would be lost when an older record is written again.
"""

import dataclasses
from collections.abc import Mapping

from rnn_scaling.records.decoding import (
    Count,
    Number,
    Part,
    PositiveCount,
    PositiveNumber,
    Seconds,
    Single,
    Sparse,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CpuTopology(Part):
    """The processors of a machine; None for facts that the system does not report."""

    sockets: int | None = None
    cores: int | None = None  # physical ones
    threads: int | None = None  # hardware threads
    numa_nodes: tuple[str, ...] | None = None  # the cores of each node


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Part):
    """A commit of git."""

    hash: str
    modified: bool = False
    diff: str | None = None  # digest of the uncommitted changes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoadWindows(Sparse):
    """The load during windows of measured batches in a row, the latest of the run.

    Each list has one number per window. `others`, `steal` and `own` are shares of the
    run's cores (0 to 1).
    """

    batches: tuple[PositiveCount, ...]
    seconds: tuple[PositiveNumber, ...]
    others: tuple[Number, ...]
    steal: tuple[Number, ...]
    # Shares that the run's own process used; None in older records.
    own: tuple[Number, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load(Sparse):
    """Shares of the run's cores (0 to 1) that others used during the batches."""

    others: Number  # share of other processes
    steal: Number  # share of the hypervisor
    seconds: Seconds = 0.0  # duration of the observation
    windows: LoadWindows | None = None  # None if unknown, or in older records


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClockedDevice(Sparse):
    """A GPU or CPU core whose clocks were sampled."""

    index: int | None = None  # index in nvidia-smi
    name: str | None = None
    uuid: str | None = None
    core: int | None = None
    max_sm_mhz: Number | None = None
    max_memory_mhz: Number | None = None
    power_limit_w: Number | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading(Sparse):
    """One device at one moment; None for facts that it does not report."""

    mhz: Number | None = None
    sm_mhz: Number | None = None
    memory_mhz: Number | None = None
    power_w: Number | None = None
    temperature_c: Number | None = None
    utilisation: Number | None = None
    reasons: int | None = None  # why the clocks were low: a bit mask of NVML


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample(Part):
    """All devices at one moment."""

    at_s: Seconds = 0.0  # since the sampling began
    devices: tuple[ClockReading, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clocks(Sparse):
    """Clocks of the devices during the batches; only `error` if sampling failed."""

    source: str | None = None
    interval_s: Seconds | None = None  # pause between two samples
    taken: int | None = None  # number of samples before `samples` was thinned
    cpu_s: Seconds | None = None  # CPU time of the sampling thread
    devices: tuple[ClockedDevice, ...] = ()
    samples: tuple[ClockSample, ...] = ()
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Part):
    """The machine; None for facts that the system did not report."""

    python: str | None = None
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cuda: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    platform: str | None = None
    cpu: str | None = None
    cpu_vector_units: tuple[str, ...] | None = None
    cpu_cores: int | None = None
    cpu_topology: CpuTopology | None = None
    cpu_mhz: tuple[Number, ...] = ()
    # CPU time limit of control groups, in cores; None without a limit.
    cpu_limit: Number | None = None
    cpu_governor: str | None = None
    cpu_no_turbo: str | None = None
    cpu_boost: str | None = None
    # Modes of transparent huge pages; the chosen one is in brackets.
    huge_pages: str | None = None
    memory_bytes: Count | None = None
    load_average: tuple[Number, ...] | None = None
    gpus: tuple[Mapping[str, str], ...] = ()
    topology: str | None = None
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    started: str | None = None
    commit: Commit | None = None  # commit of this suite
    # The commit of the folder in which another program ran; None for our trainer.
    program_commit: Commit | None = None
    gpus_after: tuple[Mapping[str, str], ...] = ()
    load: Load | None = None
    clocks: Clocks | None = None
    missing: frozenset[str] = frozenset()  # fields that are newer than the record


UNKNOWN_ENVIRONMENT = Environment(
    missing=frozenset(field.name for field in dataclasses.fields(Environment))
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReduceSegment(Part):
    """One algorithm of an all-reduce."""

    algorithm: str
    shards: int
    max_bytes: int | None = None  # largest tensor; None for any size


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(Sparse):
    """Options and devices as the run resolved them.

    A field is None if the run ended before it was resolved, if it does not apply to the
    run, or if the record is older than the field.
    """

    scaling: str | None = None
    oversubscribed: bool | None = None
    cpu_affinity: tuple[int, ...] | None = None
    inter_op_parallelism_threads: int | None = None
    intra_op_parallelism_threads: int | None = None
    devices: tuple[str, ...] | None = None
    device_type: str | None = None
    onednn: bool | None = None
    # Instruction set of our operators; "stock" for the operators of TensorFlow.
    operators: str | None = None
    own_operators: bool | None = None  # field of older records, instead of `operators`
    tower_batch_sizes: tuple[int, ...] | None = None
    train_samples: Count | None = None
    logical_devices: bool | None = None
    encoder_kernel: str | None = None
    decoder_kernel: str | None = None
    # Torch.compile's time before the second batch.
    compile_s: PositiveNumber | None = None
    learning_rate: Single | None = None
    all_reduce: tuple[ReduceSegment, ...] | None = None
    variable_placement: Mapping[str, Count] | None = None
    peak_flops_per_second: PositiveNumber | None = None
