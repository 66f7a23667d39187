"""What the record of a traced run says of the inside of a step: the parts `graph` and `trace`, and their names."""

import dataclasses
from collections.abc import Mapping

from rnn_scaling.records.decoding import Count, Length, Name, Part, Seconds, Sparse

INPUT = "input"
FORWARD = "forward"
BACKWARD = "backward"
EXCHANGE = "exchange"
UPDATE = "update"
OTHER = "other"
PHASES = (INPUT, FORWARD, BACKWARD, EXCHANGE, UPDATE, OTHER)

OWN = (
    FORWARD,
    BACKWARD,
    UPDATE,
    INPUT,
    OTHER,
)  # a tower's compute, in order of precedence
SHARED_OWN = (UPDATE, INPUT, OTHER)  # what is done once for all towers
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
LETTERS = "fbuioUIOxnw."  # one a part, in the order of PARTS: how a timeline is written
TIMELINE_BINS = 400  # letters of a timeline

COLLECTIVES = ("Collective", "Nccl")  # begin the types of collective operators
# What TensorFlow's executor makes a while loop of: they move values and decide, and compute nothing on any device.
CONTROL_FLOW = ("Enter", "Exit", "LoopCond", "Merge", "NextIteration", "Switch")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operators(Part):
    """How many operators a graph has; those of functions (loop bodies) count once."""

    operators: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOperators(Part):
    """Operators of one tower (None: what all towers share) in one phase."""

    tower: Count | None
    phase: str
    operators: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partitions(Sparse):
    """The graphs that run, one a device; operators by type, by device, and by tower and phase."""

    operators: Count
    by_type: Mapping[str, Count]
    by_device: Mapping[str, Count] | None = None
    by_phase: tuple[PhaseOperators, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slot(Part):
    device: Name
    bytes: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gradient(Part):
    """A tower's gradient of a variable: `kind` "dense" or "rows"; bytes are None where the rows vary."""

    tower: Count
    kind: Name
    device: Name
    bytes: Count | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Update(Part):
    """Where a variable is updated, and the types of the operators (unknown inside a condition)."""

    device: Name
    types: tuple[Name, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlacedVariable(Part):
    """A variable, or a part or copy of one, that a step updates; tower: whose copy it is (None: shared)."""

    name: Name
    tower: Count | None = None
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
    """Tensors that one device (`source`) sends to another (`target`) in a step; bytes of those whose size is known."""

    source: Name = dataclasses.field(metadata={"key": "from"})
    target: Name = dataclasses.field(metadata={"key": "to"})
    pairs: Count
    bytes: Count
    of_unknown_size: Count
    largest: tuple[SentTensor, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlicedPart(Part):
    """A part of a global batch: its bytes (None: they vary), and what reads it, as `training/slicing.py` has it."""

    name: Name
    bytes: Count | None
    read: Name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlicedMove(Part):
    """Bytes of the batch that one device sends to another in a step: in closed form, and in the graph (None: vary)."""

    source: Name = dataclasses.field(metadata={"key": "from"})
    target: Name = dataclasses.field(metadata={"key": "to"})
    predicted: Count | None
    counted: Count | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slicing(Part):
    """How the towers' slices are cut of one global batch, `on` "host" or "device", and what moves for it."""

    on: Name
    parts: tuple[SlicedPart, ...]
    moves: tuple[SlicedMove, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Graph(Sparse):
    """The step's graph: as traced from Python, as TensorFlow optimized it, and as it runs; what is where."""

    python: Operators
    optimized: Operators
    partitions: Partitions
    placement: Placement | None = None
    copies: tuple[Copies, ...] | None = None
    slicing: Slicing | None = None  # None: each tower has a batch of its own


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelCounts(Part):
    """Kernels of a step: on CPU devices, on GPUs, copies and fills of GPUs' memory, launched on GPUs by the host."""

    host: Count
    device: Count
    copies: Count
    dispatched: Count


PLACES = ("host", "device", "copies", "dispatched")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PhaseKernels(Part):
    """Kernels of one tower (None: what all towers share) in one phase."""

    tower: Count | None = None
    phase: str
    kernels: Count


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kernels(Sparse):
    """Every kernel of a step: of each counted step, and of the last one by type, device, tower and phase."""

    steps: tuple[KernelCounts, ...]
    by_type: Mapping[str, Count]
    by_device: Mapping[str, Count] | None = None
    by_phase: tuple[PhaseKernels, ...]
    input_pipeline: Seconds  # a mean number of kernels


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TraceCost(Part):
    """Seconds of an untraced batch, of each traced one, and of the profiler's start and stop."""

    untraced_s: Length
    timed_s: tuple[Length, ...]
    counted_s: tuple[Length, ...]
    start_s: Seconds
    stop_s: Seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TowerStep(Part):
    """One tower in one step: seconds by part, phase of compute and kind of exchange; when it began and was ready."""

    tower: int
    parts: Mapping[str, Seconds]
    busy: Mapping[str, Seconds]
    exchange: Mapping[str, Seconds]
    first_s: Seconds | None
    arrival_s: Seconds | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timeline(Part):
    """A step from left to right: a letter for each of TIMELINE_BINS moments, of every tower and of the exchange."""

    towers: tuple[str, ...]
    exchange: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep(Part):
    """One timed step; concurrency: towers that compute at once (None: unknown)."""

    seconds: Length
    towers: tuple[TowerStep, ...]
    concurrency: Seconds | None
    kernels: Count
    timeline: Timeline


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Trace(Sparse):
    """Batches after the measured ones, under TensorFlow's profiler."""

    batches: int | None = None
    items: Count = dataclasses.field(metadata={"older": "words"})
    kernels: Kernels
    cost: TraceCost
    steps: tuple[TimedStep, ...]
    files: tuple[str, ...] = ()
