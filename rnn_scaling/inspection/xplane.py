"""The profiler's own data (XPlane) -> the kernels of each traced step.

A host event is a kernel when it is named "operator:Type" after an operator of the partitions that run; everything else
on the host (ExecutorState::Process, ThreadpoolListener::Record and their like) marks what the runtime does and is no
kernel. A GPU's events name their operator in the statistic `tf_op`, copies between devices the tensor in `edge_name`.

Source of the names: xla/tsl/profiler/utils/xplane_schema.cc; tensorflow/core/common_runtime/{executor,copy_tensor}.cc
and tensorflow/core/graph/graph_partition.cc.
"""

import bisect
import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
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
HOST_PLANE, GPU_PLANE = "/host:CPU", re.compile(r"/device:GPU:\d+")
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
ASYNC_START, ASYNC_DONE = (
    "ExecutorState::ProcessAsync::Start",
    "ExecutorState::ProcessAsync::Done",
)
COPIES = ("Memcpy", "Memset")
EDGE = "edge_name"  # the statistic of a copy from one device to another: edge_<number>_<operator that made the tensor>
TRANSFER = re.compile(r"edge_\d+_")
NCCL = "nccl"  # begins the name of each of NCCL's kernels
OPERATOR = re.compile(
    r"[A-Za-z0-9_.][^:\s]*:[A-Z_][A-Za-z0-9_]*"
)  # "operator:Type", and no marker with "::"


class _Executed(NamedTuple):
    """A kernel on the host and the execution of a function that ran it."""

    execution: int | None
    kernel: KernelEvent


class TraceError(ValueError):
    """A trace does not hold what it should; the message is a line for a person."""


class XplaneTrace(NamedTuple):
    steps: list[TracedStep]
    foreign: (
        int  # kernels within the steps that belong to other functions: those of tf.data
    )


def read(
    space: Any, nodes: Mapping[str, Node], exchanged: Container[str] = ()
) -> XplaneTrace:
    """The kernels of each traced step. Raises TraceError if the trace holds no step."""
    windows: list[tuple[int, int]] = []
    executed: list[_Executed] = []
    waits: list[_Executed] = []
    foreign: list[int] = []
    kernels: list[KernelEvent] = []
    for plane in space.planes:
        if plane.name == HOST_PLANE:
            windows += _windows(plane)
            for line in plane.lines:
                _host_line(plane, line, nodes, executed, foreign)
            waits += _async_kernels(plane, nodes)
        elif GPU_PLANE.fullmatch(plane.name):
            kernels += _gpu_kernels(plane, nodes, exchanged)
    if not windows:
        raise TraceError(
            "the trace holds no step: TensorFlow's profiler recorded nothing of this thread"
        )
    # Pieces of a collective carry its name too, and the last of them may come after the step: it counts by its start.
    asynchronous = {ran.kernel.name for ran in waits}
    executed = [ran for ran in executed if ran.kernel.name not in asynchronous] + waits
    # Functions of tf.data run at the same time and have operators of the same plain names ("Identity"): what runs in an
    # execution that has operators of our scopes is the step's.
    ours = {
        ran.execution
        for ran in executed
        if Owner(ran.kernel.tower, ran.kernel.phase) != Owner(None, OTHER)
    }
    kernels += [ran.kernel for ran in executed if ran.execution in ours]
    foreign += [ran.kernel.start_ns for ran in executed if ran.execution not in ours]
    windows.sort()
    kernels.sort(key=lambda kernel: kernel.start_ns)
    inside = sum(start <= at < end for at in foreign for start, end in windows)
    return XplaneTrace(_within(windows, kernels), inside)


def _within(
    windows: Sequence[tuple[int, int]], kernels: Sequence[KernelEvent]
) -> list[TracedStep]:
    """Gives each kernel to the step in which it started; what lies between steps is no step's."""
    starts = [kernel.start_ns for kernel in kernels]
    cuts = [
        (bisect.bisect_left(starts, start), bisect.bisect_left(starts, end))
        for start, end in windows
    ]
    return [
        TracedStep(*window, kernels[first:last])
        for window, (first, last) in zip(windows, cuts)
    ]


def _windows(plane: Any) -> Iterator[tuple[int, int]]:
    marks = {
        number
        for number, metadata in plane.event_metadata.items()
        if metadata.name == STEP_MARK
    }
    for line in plane.lines:
        for event in line.events:
            if event.metadata_id in marks:
                yield _times(line, event)


def _host_line(
    plane: Any,
    line: Any,
    nodes: Mapping[str, Node],
    executed: list[_Executed],
    foreign: list[int],
) -> None:
    """Sorts one thread's events into executions of the partitions' operators and starts of other operators."""
    execution_at = _executions(plane, line)
    lane = line.name or str(line.id)
    for event in line.events:
        name = plane.event_metadata[event.metadata_id].name
        if not OPERATOR.fullmatch(name):
            continue
        operator, _, kind = name.rpartition(":")
        node = nodes.get(operator)
        start, end = _times(line, event)
        if node is not None and node.type == kind:
            kernel = KernelEvent(
                operator,
                kind,
                node.device,
                *node.owner,
                start,
                end,
                lane,
                HOST,
                _launches(node),
            )
            executed.append(_Executed(execution_at(start), kernel))
        elif kind not in PLUMBING:
            foreign.append(start)


def _executions(plane: Any, line: Any) -> Callable[[int], int | None]:
    """Which execution of a function a thread worked on at a time: the runtime's ExecutorState::Process markers."""
    marks = [
        event
        for event in line.events
        if plane.event_metadata[event.metadata_id].name == PROCESS
    ]
    spans = sorted(
        (*_times(line, mark), int(_stats(plane, mark).get("id", 0))) for mark in marks
    )
    starts = [start for start, _, _ in spans]

    def at(time_ns: int) -> int | None:
        """The innermost marker around a point in time; None if there is none."""
        index = bisect.bisect_right(starts, time_ns) - 1
        while index >= 0 and spans[index][1] < time_ns:
            index -= 1  # one that ended before lies within another, or in its place
        return spans[index][2] if index >= 0 else None

    return at


def _async_kernels(plane: Any, nodes: Mapping[str, Node]) -> Iterator[_Executed]:
    """Asynchronous operators: each start is ended by the next "done" of the same operator in the same execution."""
    starts: dict[tuple[str, int], list[int]] = defaultdict(list)
    ends: dict[tuple[str, int], list[int]] = defaultdict(list)
    wanted = {
        n: m.name
        for n, m in plane.event_metadata.items()
        if m.name in (ASYNC_START, ASYNC_DONE)
    }
    for line in plane.lines:
        for event in line.events:
            if event.metadata_id not in wanted:
                continue
            stats = _stats(plane, event)
            key = (str(stats.get("name", "")), int(stats.get("step_id", 0)))
            start, end = _times(line, event)
            if wanted[event.metadata_id] == ASYNC_START:
                starts[key].append(start)
            else:
                ends[key].append(end)
    for (name, execution), begun in starts.items():
        if (node := nodes.get(name)) is None:
            continue
        done = sorted(ends[name, execution])
        for index, start in enumerate(sorted(begun)):
            end = max(start, done[index]) if index < len(done) else start
            yield _Executed(
                execution,
                KernelEvent(
                    name,
                    node.type,
                    node.device,
                    *node.owner,
                    start,
                    end,
                    "",
                    WAIT,
                    _launches(node),
                ),
            )


def _launches(node: Node) -> bool:
    """Whether what the host does for an operator is to launch it on a GPU; a loop's control flow is all done there."""
    return ":GPU:" in node.device and node.type not in CONTROL_FLOW


def _gpu_kernels(
    plane: Any, nodes: Mapping[str, Node], exchanged: Container[str]
) -> Iterator[KernelEvent]:
    """A real GPU's plane. Several logical devices may share it: the operator names that of a kernel."""
    for line in plane.lines:
        if not STREAM.match(line.name):
            continue
        for event in line.events:
            metadata = plane.event_metadata[event.metadata_id]
            stats = _stats(plane, event)
            name, _, kind = str(stats.get("tf_op", "")).partition(":")
            transfer = str(stats.get(EDGE, ""))
            who = owner(TRANSFER.sub("", transfer) or name)
            # NCCL launches its kernels from a thread of its own, which has no operator.
            is_nccl = metadata.name.startswith(NCCL) and who == Owner(None, OTHER)
            if is_nccl or transfer in exchanged:
                who = Owner(None, EXCHANGE)
            device = nodes[name].device if name in nodes else plane.name
            start, end = _times(line, event)
            copies = metadata.name.startswith(COPIES)
            yield KernelEvent(
                name or transfer,
                kind or metadata.name,
                device,
                *who,
                start,
                end,
                line.name,
                COPY if copies else DEVICE,
            )


def _times(line: Any, event: Any) -> tuple[int, int]:
    start_ps = line.timestamp_ns * 1000 + event.offset_ps
    return start_ps // 1000, (start_ps + event.duration_ps) // 1000


def _stats(plane: Any, event: Any) -> dict[str, Any]:
    stats: dict[str, Any] = {}
    for source in (plane.event_metadata[event.metadata_id].stats, event.stats):
        for stat in source:
            kind = stat.WhichOneof("value")
            value = getattr(stat, kind) if kind else None
            if kind == "ref_value":
                value = plane.stat_metadata[value].name
            stats[plane.stat_metadata[stat.metadata_id].name] = value
    return stats


def drop_iterations(space: Any) -> None:
    """Removes the iterations of loops from a kept trace, which TensorBoard's tab Profile would count as steps.

    Source: xla/tsl/profiler/utils/group_events.cc, ProcessTensorFlowLoop.
    """
    for plane in (plane for plane in space.planes if plane.name == HOST_PLANE):
        iterations = {
            number
            for number, metadata in plane.stat_metadata.items()
            if metadata.name == ITERATION
        }
        for event in (event for line in plane.lines for event in line.events):
            for i in reversed(range(len(event.stats))):
                if event.stats[i].metadata_id in iterations:
                    del event.stats[i]
