"""The profiler's own data (XPlane) -> the kernels of each traced step.

A host event is a kernel when it is named "operator:Type" after an operator of the partitions that run; everything else
on the host (ExecutorState::Process, ThreadpoolListener::Record and their like) marks what the runtime does and is no
kernel. A GPU's events name their operator in the statistic `tf_op`, copies between devices the tensor in `edge_name`.

Source of the names: xla/tsl/profiler/utils/xplane_schema.cc; tensorflow/core/common_runtime/{executor,copy_tensor}.cc
and tensorflow/core/graph/graph_partition.cc.
"""

import bisect
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, NamedTuple

from rnn_scaling.inspection.operators import (
    COPY,
    DEVICE,
    HOST,
    WAIT,
    KernelEvent,
    Node,
    Owner,
    TracedStep,
    owner,
)
from rnn_scaling.records.step_parts import CONTROL_FLOW, EXCHANGE, OTHER

STEP_MARK = "rnn_scaling.step"  # the name under which tracing.py brackets a step
HOST_PLANE = "/host:CPU"
GPU_PLANE = re.compile(r"/device:GPU:\d+")
STREAM = re.compile(
    r"Stream #\d+"
)  # other lines of a GPU's plane repeat its kernels in larger units
PROCESS = "ExecutorState::Process"
ITERATION = "iter_num"  # the statistic with the iteration of a loop
PLUMBING = (
    "_Arg",
    "_Retval",
    "_DeviceArg",
    "_DeviceRetval",
)  # a function's arguments and results; no work
ASYNC_START = "ExecutorState::ProcessAsync::Start"
ASYNC_DONE = "ExecutorState::ProcessAsync::Done"
COPIES = ("Memcpy", "Memset")
EDGE = "edge_name"  # the statistic of a copy from one device to another: edge_<number>_<operator that made the tensor>
TRANSFER = re.compile(r"edge_\d+_")
NCCL = "nccl"  # begins the name of each of NCCL's kernels
OPERATOR = re.compile(
    r"[A-Za-z0-9_.][^:\s]*:[A-Z_][A-Za-z0-9_]*"
)  # "operator:Type", and no marker with "::"


class TraceError(ValueError):
    """A trace does not hold what it should; the message is a line for a person."""


class XplaneTrace(NamedTuple):
    """What a trace holds.

    `foreign` is the number of kernels within the steps that belong to other functions:
    those of tf.data.
    """

    steps: list[TracedStep]
    foreign: int


class _Event(NamedTuple):
    """An event of a trace, with the messages that contain it."""

    plane: Any
    line: Any
    message: Any

    @property
    def name(self) -> str:
        name: str = self.plane.event_metadata[self.message.metadata_id].name
        return name

    @property
    def span(self) -> tuple[int, int]:
        """Its start and end in ns."""
        start_ps = self.line.timestamp_ns * 1000 + self.message.offset_ps
        return start_ps // 1000, (start_ps + self.message.duration_ps) // 1000

    @property
    def lane(self) -> str:
        return self.line.name or str(self.line.id)

    def stats(self) -> dict[str, Any]:
        """Return its statistics by name."""
        names = self.plane.stat_metadata
        metadata = self.plane.event_metadata[self.message.metadata_id]
        stats: dict[str, Any] = {}
        for stat in (*metadata.stats, *self.message.stats):
            kind = stat.WhichOneof("value")
            value = getattr(stat, kind) if kind else None
            if kind == "ref_value":
                value = names[value].name
            stats[names[stat.metadata_id].name] = value
        return stats


def _events(plane: Any, *names: str) -> Iterator[_Event]:
    """Yield the events of a plane, or only those with one of these names."""
    wanted = {
        number
        for number, metadata in plane.event_metadata.items()
        if not names or metadata.name in names
    }
    for line in plane.lines:
        for message in line.events:
            if message.metadata_id in wanted:
                yield _Event(plane, line, message)


class _Executed(NamedTuple):
    """A kernel on the host and the execution of a function that ran it."""

    execution: int | None
    kernel: KernelEvent


def read(
    space: Any, nodes: Mapping[str, Node], exchanged: Container[str] = ()
) -> XplaneTrace:
    """Return the kernels of each traced step.

    Args:
      space: The profiler's message.
      nodes: The operators of the partitions that ran, by name.
      exchanged: Names of the transfers to operators of the exchange.

    Raises:
      TraceError: If the trace holds no step.
    """
    windows: list[tuple[int, int]] = []
    executed: list[_Executed] = []
    waits: list[_Executed] = []
    foreign: list[int] = []
    kernels: list[KernelEvent] = []
    for plane in space.planes:
        if plane.name == HOST_PLANE:
            windows += [event.span for event in _events(plane, STEP_MARK)]
            _read_host(plane, nodes, executed, foreign)
            waits += _async_kernels(plane, nodes)
        elif GPU_PLANE.fullmatch(plane.name):
            kernels += _gpu_kernels(plane, nodes, exchanged)
    if not windows:
        raise TraceError(
            "the trace holds no step: TensorFlow's profiler recorded nothing of this thread"
        )
    # Pieces of a collective carry its name too, and the last of them may come after
    # the step: it counts by its start.
    asynchronous = {ran.kernel.name for ran in waits}
    executed = [ran for ran in executed if ran.kernel.name not in asynchronous] + waits
    # Functions of tf.data run at the same time and have operators of the same plain
    # names ("Identity"). An execution that has operators of our scopes is the step's.
    nobody = Owner(None, OTHER)
    ours = {
        ran.execution
        for ran in executed
        if (ran.kernel.tower, ran.kernel.phase) != nobody
    }
    for ran in executed:
        if ran.execution in ours:
            kernels.append(ran.kernel)
        else:
            foreign.append(ran.kernel.start_ns)
    kernels.sort(key=lambda kernel: kernel.start_ns)
    starts = [kernel.start_ns for kernel in kernels]
    steps = []
    num_foreign = 0
    for start, end in sorted(windows):
        # A kernel belongs to the step in which it started.
        inside = slice(
            bisect.bisect_left(starts, start), bisect.bisect_left(starts, end)
        )
        steps.append(TracedStep(start, end, kernels[inside]))
        num_foreign += sum(start <= time_ns < end for time_ns in foreign)
    return XplaneTrace(steps, num_foreign)


def _read_host(
    plane: Any,
    nodes: Mapping[str, Node],
    executed: list[_Executed],
    foreign: list[int],
) -> None:
    """Sort events into executions of the partitions' operators and foreign starts."""
    execution_at = _executions(plane)
    for event in _events(plane):
        if not OPERATOR.fullmatch(event.name):
            continue
        operator, _, kind = event.name.rpartition(":")
        node = nodes.get(operator)
        start = event.span[0]
        if node is not None and node.type == kind:
            kernel = _host_kernel(operator, node, event.span, event.lane, HOST)
            executed.append(_Executed(execution_at(event.line.id, start), kernel))
        elif kind not in PLUMBING:
            foreign.append(start)


def _host_kernel(
    name: str, node: Node, span: tuple[int, int], lane: str, kind: str
) -> KernelEvent:
    """Return what the host did for an operator.

    It only launches an operator of a GPU, but does all of a loop's control flow.
    """
    launches = ":GPU:" in node.device and node.type not in CONTROL_FLOW
    place = (node.device, *node.owner)
    return KernelEvent(name, node.type, *place, *span, lane, kind, launches)


def _executions(plane: Any) -> Callable[[int, int], int | None]:
    """Return which execution of a function a thread worked on at a time.

    The runtime marks executions: ExecutorState::Process.
    """
    spans: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for event in _events(plane, PROCESS):
        number = int(event.stats().get("id", 0))
        spans[event.line.id].append((*event.span, number))
    for marks in spans.values():
        marks.sort()

    def at(line: int, time_ns: int) -> int | None:
        """Return the innermost marker around a point in time, or None without one."""
        marks = spans.get(line, [])
        index = bisect.bisect_right(marks, time_ns, key=lambda mark: mark[0]) - 1
        # One that ended before lies within another, or in its place.
        while index >= 0 and marks[index][1] < time_ns:
            index -= 1
        return marks[index][2] if index >= 0 else None

    return at


def _async_kernels(plane: Any, nodes: Mapping[str, Node]) -> Iterator[_Executed]:
    """Yield asynchronous operators.

    Each start is ended by the next "done" of the same operator in the same execution.
    """
    times: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for event in _events(plane, ASYNC_START, ASYNC_DONE):
        stats = event.stats()
        start, end = event.span
        key = (event.name, str(stats.get("name", "")), int(stats.get("step_id", 0)))
        times[key].append(start if event.name == ASYNC_START else end)
    for (kind, name, execution), starts in list(times.items()):
        if kind == ASYNC_DONE or name not in nodes:
            continue
        ends = sorted(times[ASYNC_DONE, name, execution])
        for start, end in itertools.zip_longest(sorted(starts), ends[: len(starts)]):
            span = (start, max(start, end or start))
            kernel = _host_kernel(name, nodes[name], span, "", WAIT)
            yield _Executed(execution, kernel)


def _gpu_kernels(
    plane: Any, nodes: Mapping[str, Node], exchanged: Container[str]
) -> Iterator[KernelEvent]:
    """Yield what ran on a real GPU.

    Several logical devices may share it: the operator names the device of a kernel.
    """
    for event in _events(plane):
        if not STREAM.match(event.line.name):
            continue
        stats = event.stats()
        name, _, kind = str(stats.get("tf_op", "")).partition(":")
        transfer = str(stats.get(EDGE, ""))
        who = owner(TRANSFER.sub("", transfer) or name)
        # NCCL launches its kernels from a thread of its own, which has no operator.
        is_nccl = event.name.startswith(NCCL) and who == Owner(None, OTHER)
        if is_nccl or transfer in exchanged:
            who = Owner(None, EXCHANGE)
        device = nodes[name].device if name in nodes else plane.name
        copies = event.name.startswith(COPIES)
        yield KernelEvent(
            name or transfer,
            kind or event.name,
            device,
            *who,
            *event.span,
            event.lane,
            COPY if copies else DEVICE,
        )


def drop_iterations(space: Any) -> None:
    """Removes the iterations of loops from a kept trace, which TensorBoard's tab Profile would count as steps.

    Source: xla/tsl/profiler/utils/group_events.cc, ProcessTensorFlowLoop.
    """
    for plane in space.planes:
        for event in _events(plane) if plane.name == HOST_PLANE else ():
            stats = event.message.stats
            for index in reversed(range(len(stats))):
                if plane.stat_metadata[stats[index].metadata_id].name == ITERATION:
                    del stats[index]
