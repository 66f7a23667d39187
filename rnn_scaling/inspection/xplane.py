"""Read the kernels of each traced step from the profiler's data (XPlane).

A host event is a kernel if its name is "operator:Type" with an operator of the
partitions that run. Other host events, such as ExecutorState::Process, mark work of the
runtime. Events of a GPU have their operator in the statistic `tf_op`, and copies
between devices have the tensor in `edge_name`.

Source of the names: xla/tsl/profiler/utils/xplane_schema.cc;
tensorflow/core/common_runtime/{executor,copy_tensor}.cc and
tensorflow/core/graph/graph_partition.cc.

The only module that knows the profiler's names. `observe` and `step_checks` use its
kernels.
"""

import bisect
import itertools
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
    find_owner,
)
from rnn_scaling.records.step_parts import CONTROL_FLOW, EXCHANGE, OTHER

STEP_MARK = "rnn_scaling.step"  # the event with which tracing.py marks a step
HOST_PLANE = "/host:CPU"
_GPU_PLANE = re.compile(r"/device:GPU:\d+")
# Lines of a GPU's plane with kernels. Other lines repeat them in larger units.
_STREAM = re.compile(r"Stream #\d+")
PROCESS = "ExecutorState::Process"
_ITERATION = "iter_num"  # the statistic with the iteration of a loop
# Arguments and results of functions, which do no work.
PLUMBING = ("_Arg", "_Retval", "_DeviceArg", "_DeviceRetval")
ASYNC_START = "ExecutorState::ProcessAsync::Start"
ASYNC_DONE = "ExecutorState::ProcessAsync::Done"
_COPIES = ("Memcpy", "Memset")
# The statistic of a copy between devices: edge_<number>_<operator that made the
# tensor>.
_EDGE = "edge_name"
TRANSFER = re.compile(r"edge_\d+_")
_NCCL = "nccl"  # prefix of NCCL's kernels
# "operator:Type", but not a marker with "::".
_OPERATOR = re.compile(r"[A-Za-z0-9_.][^:\s]*:[A-Z_][A-Za-z0-9_]*")


class TraceError(ValueError):
    """A trace is incomplete; the message is one line for the user."""


class XplaneTrace(NamedTuple):
    """The steps of a trace.

    Attributes:
      steps: The steps with their kernels.
      num_foreign: Number of kernels of tf.data's functions within the steps.
    """

    steps: list[TracedStep]
    num_foreign: int


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
        """Start and end in ns."""
        start_ps = self.line.timestamp_ns * 1000 + self.message.offset_ps
        return start_ps // 1000, (start_ps + self.message.duration_ps) // 1000

    @property
    def lane(self) -> str:
        return self.line.name or str(self.line.id)

    def read_stats(self) -> dict[str, Any]:
        """Return the statistics by name."""
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


def _select_events(plane: Any, *names: str) -> Iterator[_Event]:
    """Yield the events of a plane, or only those with one of these names."""
    numbers = {
        number
        for number, metadata in plane.event_metadata.items()
        if not names or metadata.name in names
    }
    for line in plane.lines:
        for message in line.events:
            if message.metadata_id in numbers:
                yield _Event(plane, line, message)


class _Executed(NamedTuple):
    """A kernel on the host and the execution of a function that ran it."""

    execution: int | None
    kernel: KernelEvent


def read(
    space: Any, nodes: Mapping[str, Node], exchange_transfers: Container[str] = ()
) -> XplaneTrace:
    """Return the kernels of each traced step.

    Args:
      space: The profiler's message.
      nodes: The operators of the partitions that ran, by name.
      exchange_transfers: Names of the transfers to operators of the exchange.

    Raises:
      TraceError: If the trace contains no step.
    """
    windows: list[tuple[int, int]] = []
    executed: list[_Executed] = []
    waits: list[_Executed] = []
    foreign_starts: list[int] = []
    kernels: list[KernelEvent] = []
    for plane in space.planes:
        if plane.name == HOST_PLANE:
            windows += [event.span for event in _select_events(plane, STEP_MARK)]
            _read_host(plane, nodes, executed, foreign_starts)
            waits += _read_async_kernels(plane, nodes)
        elif _GPU_PLANE.fullmatch(plane.name):
            kernels += _read_gpu_kernels(plane, nodes, exchange_transfers)
    if not windows:
        raise TraceError(
            "the trace contains no step, because TensorFlow's profiler recorded "
            "nothing of this thread"
        )
    # The pieces of a collective have its name, and the last may start after the step.
    # Only the collective counts, by its start.
    wait_names = {wait.kernel.name for wait in waits}
    executed = [item for item in executed if item.kernel.name not in wait_names]
    executed += waits
    step_executions = _find_step_executions(executed)
    for item in executed:
        if item.execution in step_executions:
            kernels.append(item.kernel)
        else:
            foreign_starts.append(item.kernel.start_ns)
    kernels.sort(key=lambda kernel: kernel.start_ns)
    starts = [kernel.start_ns for kernel in kernels]
    steps = []
    num_foreign = 0
    for start, end in sorted(windows):
        # A kernel belongs to the step in which it started.
        first = bisect.bisect_left(starts, start)
        last = bisect.bisect_left(starts, end)
        steps.append(TracedStep(start, end, kernels[first:last]))
        num_foreign += sum(start <= time_ns < end for time_ns in foreign_starts)
    return XplaneTrace(steps, num_foreign)


def _find_step_executions(executed: Sequence[_Executed]) -> set[int | None]:
    """Return the executions of functions that belong to the step.

    Functions of tf.data run at the same time, and have operators with equal plain names
    ("Identity"). Executions of the step have operators with scopes.
    """
    no_owner = Owner(None, OTHER)
    return {
        item.execution
        for item in executed
        if (item.kernel.tower, item.kernel.phase) != no_owner
    }


def _read_host(
    plane: Any,
    nodes: Mapping[str, Node],
    executed: list[_Executed],
    foreign_starts: list[int],
) -> None:
    """Append kernels of the partitions' operators, and the starts of other kernels."""
    find_execution = _make_execution_finder(plane)
    for event in _select_events(plane):
        if not _OPERATOR.fullmatch(event.name):
            continue
        operator, _, kind = event.name.rpartition(":")
        node = nodes.get(operator)
        start = event.span[0]
        if node is not None and node.type == kind:
            kernel = _make_host_kernel(
                operator, node=node, span=event.span, lane=event.lane, kind=HOST
            )
            executed.append(_Executed(find_execution(event.line.id, start), kernel))
        elif kind not in PLUMBING:
            foreign_starts.append(start)


def _make_host_kernel(
    name: str, node: Node, span: tuple[int, int], lane: str, kind: str
) -> KernelEvent:
    """Return the host's kernel for an operator.

    The host only launches operators of a GPU, except the control flow of loops.
    """
    launches = ":GPU:" in node.device and node.type not in CONTROL_FLOW
    return KernelEvent(
        name, node.type, node.device, *node.owner, *span, lane, kind, launches
    )


def _make_execution_finder(plane: Any) -> Callable[[int, int], int | None]:
    """Return a function that finds the execution on a thread at a point in time.

    The runtime marks executions of functions with ExecutorState::Process.
    """
    spans: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for event in _select_events(plane, PROCESS):
        number = int(event.read_stats().get("id", 0))
        spans[event.line.id].append((*event.span, number))
    for marks in spans.values():
        marks.sort()

    def find(line: int, time_ns: int) -> int | None:
        """Return the innermost execution, or None if the thread ran none."""
        marks = spans.get(line, [])
        index = bisect.bisect_right(marks, time_ns, key=lambda mark: mark[0]) - 1
        # An execution that ended may lie within another one.
        while index >= 0 and marks[index][1] < time_ns:
            index -= 1
        return marks[index][2] if index >= 0 else None

    return find


def _read_async_kernels(plane: Any, nodes: Mapping[str, Node]) -> Iterator[_Executed]:
    """Yield asynchronous operators.

    A start belongs to the next "done" of the same operator in the same execution.
    """
    times: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for event in _select_events(plane, ASYNC_START, ASYNC_DONE):
        stats = event.read_stats()
        start, end = event.span
        key = (event.name, str(stats.get("name", "")), int(stats.get("step_id", 0)))
        times[key].append(start if event.name == ASYNC_START else end)
    for (kind, name, execution), starts in list(times.items()):
        if kind == ASYNC_DONE or name not in nodes:
            continue
        ends = sorted(times[ASYNC_DONE, name, execution])
        for start, end in itertools.zip_longest(sorted(starts), ends[: len(starts)]):
            span = (start, max(start, end or start))
            kernel = _make_host_kernel(
                name, node=nodes[name], span=span, lane="", kind=WAIT
            )
            yield _Executed(execution, kernel)


def _read_gpu_kernels(
    plane: Any, nodes: Mapping[str, Node], exchange_transfers: Container[str]
) -> Iterator[KernelEvent]:
    """Yield the kernels and copies of a physical GPU.

    Several logical devices may share it, so the device is the operator's.
    """
    for event in _select_events(plane):
        if not _STREAM.match(event.line.name):
            continue
        stats = event.read_stats()
        name, _, kind = str(stats.get("tf_op", "")).partition(":")
        transfer = str(stats.get(_EDGE, ""))
        kernel_owner = find_owner(TRANSFER.sub("", transfer) or name)
        # NCCL launches its kernels from a separate thread, which has no operator.
        is_nccl = event.name.startswith(_NCCL) and kernel_owner == Owner(None, OTHER)
        if is_nccl or transfer in exchange_transfers:
            kernel_owner = Owner(None, EXCHANGE)
        device = nodes[name].device if name in nodes else plane.name
        is_copy = event.name.startswith(_COPIES)
        yield KernelEvent(
            name or transfer,
            kind or event.name,
            device,
            *kernel_owner,
            *event.span,
            event.lane,
            COPY if is_copy else DEVICE,
        )


def drop_iterations(space: Any) -> None:
    """Remove the iterations of loops from a trace.

    TensorBoard's tab Profile would count them as steps.

    Source: xla/tsl/profiler/utils/group_events.cc, ProcessTensorFlowLoop.
    """
    host_planes = [plane for plane in space.planes if plane.name == HOST_PLANE]
    for plane in host_planes:
        for event in _select_events(plane):
            _delete_iterations(event.message.stats, plane)


def _delete_iterations(stats: Any, plane: Any) -> None:
    """Delete the numbers of iterations from the values of an event."""
    for index in reversed(range(len(stats))):
        if plane.stat_metadata[stats[index].metadata_id].name == _ITERATION:
            del stats[index]
