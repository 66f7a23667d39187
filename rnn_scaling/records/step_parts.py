"""The parts `graph` and `trace`, which describe the inside of a step.

Field names are keys of record files; rename only with metadata `older`, see
decoding.py. PHASES, PARTS and LETTERS are stored too: never change a name or a letter.
"""

import dataclasses
from collections.abc import Mapping

from rnn_scaling.records.decoding import (
    Count,
    Name,
    Part,
    PositiveNumber,
    Seconds,
    Sparse,
)

INPUT = "input"
FORWARD = "forward"
BACKWARD = "backward"
EXCHANGE = "exchange"
UPDATE = "update"
OTHER = "other"
PHASES = (INPUT, FORWARD, BACKWARD, EXCHANGE, UPDATE, OTHER)

# Compute of one tower, in the order of precedence.
OWN = (FORWARD, BACKWARD, UPDATE, INPUT, OTHER)
SHARED_OWN = (UPDATE, INPUT, OTHER)  # compute for all towers at once
EXPOSED = "exchange_exposed"
STARVED = "waits_for_input"
WAITS = "waits_for_towers"
IDLE = "idle"
PARTS = (
    *OWN,
    *(f"shared_{phase}" for phase in SHARED_OWN),
    EXPOSED,
    STARVED,
    WAITS,
    IDLE,
)
LETTERS = "fbuioUIOxnw."  # one letter per part in a timeline, in the order of PARTS
TIMELINE_BINS = 400  # letters per timeline

COLLECTIVES = ("Collective", "Nccl")  # prefixes of the types of collective operators
# Operators of a while loop in TensorFlow's executor; they only pass values on.
CONTROL_FLOW = ("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operators(Part):
    """Number of operators in a graph; functions (loop bodies) count once."""

    operators: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOperators(Part):
    """Number of operators in one phase."""

    tower: Count | None  # None for operators that all towers share
    phase: str
    operators: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partitions(Sparse):
    """The graphs that run, one per device, with their numbers of operators."""

    operators: Count
    by_type: Mapping[str, Count]
    by_device: Mapping[str, Count] | None = None
    by_phase: tuple[PhaseOperators, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slot(Part):
    """A variable of the optimizer."""

    device: Name
    bytes: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(Part):
    """A tower's gradient of a variable."""

    tower: Count
    kind: Name  # "dense" or "rows"
    device: Name
    bytes: Count | None  # None if the number of rows varies


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Update(Part):
    """The update of a variable."""

    device: Name
    types: tuple[Name, ...]  # operator types; unknown inside a condition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVariable(Part):
    """A variable, or a part or copy of one, that a step updates."""

    name: Name
    tower: Count | None = None  # the tower with this copy; None for a shared variable
    device: Name
    bytes: Count
    slots: tuple[Slot, ...]
    gradients: tuple[Gradient, ...]
    update: Update


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Placement(Part):
    variables: tuple[PlacedVariable, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SentTensor(Part):
    """A tensor that one device sends to another."""

    name: Name
    bytes: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Copies(Part):
    """Tensors that one device sends to another in a step."""

    source: Name = dataclasses.field(metadata={"key": "from"})
    target: Name = dataclasses.field(metadata={"key": "to"})
    pairs: Count
    bytes: Count  # total of the tensors with known sizes
    of_unknown_size: Count
    largest: tuple[SentTensor, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlicedPart(Part):
    """A part of a global batch."""

    name: Name
    bytes: Count | None  # None if they vary
    read: Name  # what reads it; a name in `training/slicing.py`


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlicedMove(Part):
    """Bytes of the batch that one device sends to another in a step."""

    source: Name = dataclasses.field(metadata={"key": "from"})
    target: Name = dataclasses.field(metadata={"key": "to"})
    predicted: Count | None  # operators in closed form; None if they vary
    counted: Count | None  # operators in the graph; None if they vary


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slicing(Part):
    """How one global batch is divided into slices for the towers."""

    on: Name  # "host" or "device"
    parts: tuple[SlicedPart, ...]
    moves: tuple[SlicedMove, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Sparse):
    """The graph of a step, and the devices of its variables and operators."""

    python: Operators  # operators as traced from Python
    optimized: Operators  # the graph after TensorFlow's optimization
    partitions: Partitions  # graphs as they run
    placement: Placement | None = None
    copies: tuple[Copies, ...] | None = None
    slicing: Slicing | None = None  # None if each tower has its own batch


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounts(Part):
    """Number of kernels in a step."""

    host: Count  # operators on CPU devices
    device: Count  # operators on GPUs
    copies: Count  # copies and fills of GPU memory
    dispatched: Count  # launched on GPUs by the host


# Counts of executions in a step, by where they ran; fields of `PhaseKernels`.
KERNEL_COUNTS = ("host", "device", "copies", "dispatched")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PhaseKernels(Part):
    """Number of kernels in one phase."""

    tower: Count | None = None  # None for kernels that all towers share
    phase: str
    kernels: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kernels(Sparse):
    """Numbers of kernels in each counted step, with details of the last one."""

    steps: tuple[KernelCounts, ...]
    by_type: Mapping[str, Count]
    by_device: Mapping[str, Count] | None = None
    by_phase: tuple[PhaseKernels, ...]
    input_pipeline: Seconds  # mean number of kernels, not seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TraceCost(Part):
    """The cost of tracing, in seconds."""

    untraced_s: PositiveNumber  # one batch
    timed_s: tuple[PositiveNumber, ...]
    counted_s: tuple[PositiveNumber, ...]
    start_s: Seconds
    stop_s: Seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TowerStep(Part):
    """The seconds of one tower in one step."""

    tower: int
    parts: Mapping[str, Seconds]
    busy: Mapping[str, Seconds]  # seconds by phase of its compute
    exchange: Mapping[str, Seconds]  # seconds by kind
    first_s: Seconds | None  # when it began
    arrival_s: Seconds | None  # when its gradients were ready


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Part):
    """A step as letters, one for each of TIMELINE_BINS moments."""

    towers: tuple[str, ...]
    exchange: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep(Part):
    """One timed step."""

    seconds: PositiveNumber
    towers: tuple[TowerStep, ...]
    concurrency: Seconds | None  # mean number of towers that compute at the same time
    kernels: Count
    timeline: Timeline


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Sparse):
    """The batches that TensorFlow's profiler recorded, after the measured ones."""

    batches: int | None = None
    items: Count = dataclasses.field(metadata={"older": "words"})
    kernels: Kernels
    cost: TraceCost
    steps: tuple[TimedStep, ...]
    files: tuple[str, ...] = ()
