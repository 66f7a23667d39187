"""What a run's record says of the machine: the parts `environment` and `resolved`."""

import dataclasses
from collections.abc import Mapping

from rnn_scaling.records.decoding import (
    Count,
    Length,
    Number,
    Part,
    Seconds,
    Single,
    Sparse,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CpuTopology(Part):
    """Sockets, physical cores, hardware threads (None: the system does not tell), and the cores of each NUMA node."""

    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    numa_nodes: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Part):
    """A commit; diff: a digest of the uncommitted changes."""

    hash: str
    modified: bool = False
    diff: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Load(Part):
    """Shares of the run's cores, 0 to 1, that other processes and the hypervisor took while it was watched."""

    others: Number
    steal: Number
    seconds: Seconds = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClockedDevice(Sparse):
    """A device whose clocks were sampled: a GPU by nvidia-smi's index with its limits, or a CPU core."""

    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    core: int | None = None
    max_sm_mhz: Number | None = None
    max_memory_mhz: Number | None = None
    power_limit_w: Number | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading(Sparse):
    """One device at one moment; None: it does not tell. reasons: NVML's mask of what held the clocks down."""

    mhz: Number | None = None
    sm_mhz: Number | None = None
    memory_mhz: Number | None = None
    power_w: Number | None = None
    temperature_c: Number | None = None
    utilisation: Number | None = None
    reasons: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample(Part):
    """All devices at one moment, in seconds after the sampling began."""

    at_s: Seconds = 0.0
    devices: tuple[ClockReading, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Clocks(Sparse):
    """Clocks of the run's devices during the batches; without devices and samples where sampling failed (`error`)."""

    source: str | None = None
    interval_s: Seconds | None = None
    taken: int | None = None
    cpu_s: Seconds | None = None
    devices: tuple[ClockedDevice, ...] = ()
    samples: tuple[ClockSample, ...] = ()
    error: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Environment(Part):
    """The machine. None: the system did not tell; missing: fields that the record lacks, for it is older than they."""

    python: str | None = None
    packages: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cuda: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    platform: str | None = None
    cpu: str | None = None
    cpu_vector_units: tuple[str, ...] | None = None
    cpu_cores: int | None = None
    cpu_topology: CpuTopology | None = None
    cpu_mhz: tuple[Number, ...] = ()
    cpu_limit: Number | None = None
    cpu_governor: str | None = None
    cpu_no_turbo: str | None = None
    cpu_boost: str | None = None
    huge_pages: str | None = None
    memory_bytes: Count | None = None
    load_average: tuple[Number, ...] | None = None
    gpus: tuple[Mapping[str, str], ...] = ()
    topology: str | None = None
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)
    started: str | None = None
    commit: Commit | None = None  # of this suite
    # Of the folder in which another program ran; None for the suite's own trainer.
    program_commit: Commit | None = None
    gpus_after: tuple[Mapping[str, str], ...] = ()
    load: Load | None = None
    clocks: Clocks | None = None
    missing: frozenset[str] = frozenset()


NOTHING_TOLD = Environment(
    missing=frozenset(field.name for field in dataclasses.fields(Environment))
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReduceSegment(Part):
    """One algorithm of an all-reduce, with its shards, for tensors up to `max_bytes` (None: of any size)."""

    algorithm: str
    shards: int
    max_bytes: int | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resolved(Sparse):
    """What really ran; None: the run did not get so far, or its record is older than the field."""

    scaling: str | None = None
    oversubscribed: bool | None = None
    cpu_affinity: tuple[int, ...] | None = None
    inter_op_parallelism_threads: int | None = None
    intra_op_parallelism_threads: int | None = None
    devices: tuple[str, ...] | None = None
    device_type: str | None = None
    onednn: bool | None = None
    operators: str | None = None  # instruction set of our own, or "stock": TensorFlow's
    own_operators: bool | None = None  # of older records: whether they were ours
    tower_batch_sizes: tuple[int, ...] | None = None
    train_samples: Count | None = None
    logical_devices: bool | None = None
    encoder_kernel: str | None = None
    decoder_kernel: str | None = None
    learning_rate: Single | None = None
    all_reduce: tuple[ReduceSegment, ...] | None = None
    variable_placement: Mapping[str, Count] | None = None
    peak_flops_per_second: Length | None = None
