"""Times of copies between host and GPUs and between GPUs, through CUDA itself.

A copy of pinned memory or between GPUs is timed by events on the GPU, from its start in
the stream to its end. CUDA stages a copy of pageable memory through a thread of the
host, so both directions at once need two threads and the clock of the host. TensorFlow
is not involved, so the time of a copy is the time of the link.

The runtime library of CUDA is called through ctypes. Source of names, arguments and
constants: CUDA Runtime API reference, "Memory Management", "Stream Management", "Event
Management" and "Peer Device Memory Access".
"""

import contextlib
import ctypes
import ctypes.util
import dataclasses
import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rnn_scaling.links import rounds
from rnn_scaling.links.series import COPY, Series
from rnn_scaling.system.machine.gpus import DeviceError

_BUDGET_S = 2.0  # time for one size of one link
HOST_CLOCK = "by the host's clock, two threads"
NO_PEER_ACCESS = "no peer access: through the host"
_MAX_CALLS = 100  # copies in a row; the queue of a stream is limited
# Values of cudaMemcpyKind.
_HOST_TO_DEVICE = 1
_DEVICE_TO_HOST = 2
_DEVICE_TO_DEVICE = 3
_NON_BLOCKING = 1  # cudaStreamNonBlocking: does not wait for the default stream
_PEER_ACCESS_ALREADY_ENABLED = 704

_POINTER = ctypes.c_void_p
_OUT = ctypes.c_void_p
_ARGUMENTS = {
    "cudaSetDevice": (ctypes.c_int,),
    "cudaMalloc": (_OUT, ctypes.c_size_t),
    "cudaFree": (_POINTER,),
    "cudaMallocHost": (_OUT, ctypes.c_size_t),
    "cudaFreeHost": (_POINTER,),
    "cudaStreamCreateWithFlags": (_OUT, ctypes.c_uint),
    "cudaStreamDestroy": (_POINTER,),
    "cudaStreamSynchronize": (_POINTER,),
    "cudaStreamWaitEvent": (_POINTER, _POINTER, ctypes.c_uint),
    "cudaEventCreate": (_OUT,),
    "cudaEventDestroy": (_POINTER,),
    "cudaEventRecord": (_POINTER, _POINTER),
    "cudaEventSynchronize": (_POINTER,),
    "cudaEventElapsedTime": (_OUT, _POINTER, _POINTER),
    "cudaMemcpyAsync": (_POINTER, _POINTER, ctypes.c_size_t, ctypes.c_int, _POINTER),
    "cudaMemcpyPeerAsync": (
        _POINTER,
        ctypes.c_int,
        _POINTER,
        ctypes.c_int,
        ctypes.c_size_t,
        _POINTER,
    ),
    "cudaDeviceCanAccessPeer": (_OUT, ctypes.c_int, ctypes.c_int),
    "cudaDeviceEnablePeerAccess": (ctypes.c_int, ctypes.c_uint),
    "cudaGetLastError": (),
}

Enqueue = Callable[[int, int], None]  # (bytes, stream)
Lane = tuple[int, Enqueue]
"""The device of a stream, and the function that puts a copy into the stream."""


def find_library() -> Any:
    """Load the library of TensorFlow's CUDA packages, or one that the loader finds.

    Raises:
      DeviceError: If there is no library.
    """
    errors = []
    for path in [
        *_find_packaged_cudart(),
        "libcudart.so.13",
        "libcudart.so.12",
        ctypes.util.find_library("cudart"),
    ]:
        if not path:
            continue
        try:
            library = ctypes.CDLL(str(path))
        except OSError as e:
            errors.append(f"{path} ({e})")
            continue
        for name, arguments in _ARGUMENTS.items():
            getattr(library, name).argtypes = arguments
        library.cudaGetErrorString.argtypes = (ctypes.c_int,)
        library.cudaGetErrorString.restype = ctypes.c_char_p
        return library
    raise DeviceError(
        "no CUDA runtime library can be loaded (tried "
        f"{', '.join(errors) or 'nothing'}); install tensorflow[and-cuda] "
        "(./run.sh does it if it finds a GPU)"
    )


def _find_packaged_cudart() -> list[Path]:
    """Find libcudart of pip packages such as nvidia-cuda-runtime-cu12.

    They share the namespace `nvidia`.
    """
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or []) if package else []
    paths: list[Path] = []
    for folder in folders:
        paths += Path(folder).glob("*/lib/libcudart.so.*")
    return sorted(paths)


class Cuda:
    """The calls for copies. Each resource is freed at the end of its `with`."""

    def __init__(self, library: Any) -> None:
        """Use the library of `find_library`, or an equivalent one."""
        self._library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library.

        Raises:
          DeviceError: With the message of CUDA, if it fails.
        """
        self._check(name, getattr(self._library, name)(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code:
            text = self._library.cudaGetErrorString(code).decode()
            raise DeviceError(f"{name}: {text} (CUDA error {code})")

    def use(self, device: int) -> None:
        """Select the device of the next calls of this thread."""
        self.call("cudaSetDevice", device)

    def device_memory(self, device: int, num_bytes: int) -> AbstractContextManager[int]:
        self.use(device)
        return self._hold_resource("cudaMalloc", "cudaFree", num_bytes)

    def pinned_memory(self, num_bytes: int) -> AbstractContextManager[int]:
        """Allocate page-locked memory of the host."""
        return self._hold_resource("cudaMallocHost", "cudaFreeHost", num_bytes)

    def stream(self, device: int) -> AbstractContextManager[int]:
        self.use(device)
        return self._hold_resource(
            "cudaStreamCreateWithFlags", "cudaStreamDestroy", _NON_BLOCKING
        )

    def event(self, device: int) -> AbstractContextManager[int]:
        """Create an event of a device that records its time."""
        self.use(device)
        return self._hold_resource("cudaEventCreate", "cudaEventDestroy")

    @contextmanager
    def _hold_resource(self, make: str, free: str, *arguments: Any) -> Iterator[int]:
        handle = ctypes.c_void_p()
        self.call(make, ctypes.byref(handle), *arguments)
        try:
            yield handle.value or 0
        except BaseException:
            # A second error would hide the first one.
            getattr(self._library, free)(handle.value)
            raise
        self.call(free, handle.value)

    def enable_peer_access(self, device: int, peer: int) -> bool:
        """Let `device` access the memory of `peer`; return whether the machine can."""
        is_possible = ctypes.c_int()
        self.call("cudaDeviceCanAccessPeer", ctypes.byref(is_possible), device, peer)
        if not is_possible.value:
            return False
        self.use(device)
        code = self._library.cudaDeviceEnablePeerAccess(peer, 0)
        if code == _PEER_ACCESS_ALREADY_ENABLED:
            self._library.cudaGetLastError()  # Otherwise the next check would fail.
        else:
            self._check("cudaDeviceEnablePeerAccess", code)
        return True

    def elapsed_s(self, start: int, end: int) -> float:
        """Return the seconds between two events, after the second has happened."""
        self.call("cudaEventSynchronize", end)
        milliseconds = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value / 1e3


@dataclasses.dataclass(frozen=True)
class Link:
    """A link between memories.

    Attributes:
      name: The name of the series.
      lanes: One lane per direction that is used at once.
      by_events: Whether the GPU times it. Otherwise the host does, with a thread per
        lane.
      traffic: Counted bytes per byte of size.
      note: A remark for the report.
    """

    name: str
    lanes: tuple[Lane, ...]
    by_events: bool = True
    traffic: int = 1
    note: str = ""


class Buffers:
    """Two buffers of the largest size in each memory; an exit stack frees them."""

    def __init__(
        self,
        cuda: Cuda,
        devices: Sequence[int],
        num_bytes: int,
        stack: contextlib.ExitStack,
    ) -> None:
        self.cuda = cuda
        self.num_bytes = num_bytes
        # Copies in both directions at once use different buffers.
        self.device: dict[int, list[int]] = {}
        for device in devices:
            memories = [cuda.device_memory(device, num_bytes) for _ in range(2)]
            self.device[device] = list(map(stack.enter_context, memories))
        pinned = [cuda.pinned_memory(num_bytes) for _ in range(2)]
        self.pinned = list(map(stack.enter_context, pinned))
        # The arrays are kept alive. Filling them allocates their pages.
        self._arrays = [np.full(num_bytes, value, np.uint8) for value in (1, 2)]
        self.pageable = [array.ctypes.data for array in self._arrays]
        for address in self.pinned:
            ctypes.memset(address, 1, num_bytes)

    def copy(self, target: int, source: int, kind: int) -> Enqueue:
        return lambda size, stream: self.cuda.call(
            "cudaMemcpyAsync", target, source, size, kind, stream
        )

    def peer_copy(self, target: int, to: int, source: int, origin: int) -> Enqueue:
        """Return a function that copies memory from one GPU to another.

        Args:
          target: The address on GPU `to`.
          to: The number of the GPU that receives.
          source: The address on GPU `origin`.
          origin: The number of the GPU that sends.
        """
        return lambda size, stream: self.cuda.call(
            "cudaMemcpyPeerAsync", target, to, source, origin, size, stream
        )


def list_links(
    buffers: Buffers, devices: Sequence[int], origin: int | None = None
) -> list[Link]:
    """Return the links of the devices.

    Args:
      buffers: The memory for the copies.
      devices: The GPUs.
      origin: The GPU whose links to the others are returned. None for the links of each
        device with the host and within itself.
    """
    all_links: list[Link] = []
    for d in devices:
        own_memory = buffers.device[d]
        if origin is not None:
            if d != origin:
                all_links += _make_peer_links(buffers, origin, d)
            continue
        for memory, host in (
            ("pinned", buffers.pinned),
            ("pageable", buffers.pageable),
        ):
            all_links += _make_both_way_links(
                (f"host to GPU {d}, {memory}", f"GPU {d} to host, {memory}"),
                f"host and GPU {d}, both ways, {memory}",
                (d, buffers.copy(own_memory[0], host[0], _HOST_TO_DEVICE)),
                (d, buffers.copy(host[1], own_memory[1], _DEVICE_TO_HOST)),
                by_events=memory == "pinned",
            )
        lane = (d, buffers.copy(own_memory[1], own_memory[0], _DEVICE_TO_DEVICE))
        note = "each byte counts twice: read and written"
        all_links.append(Link(f"within GPU {d}", (lane,), traffic=2, note=note))
    return all_links


def _make_both_way_links(
    names: tuple[str, str],
    both_name: str,
    forward: Lane,
    backward: Lane,
    by_events: bool = True,
    note: str = "",
) -> list[Link]:
    """Return the links between two memories: each direction, and both at once."""
    return [
        Link(names[0], (forward,), note=note),
        Link(names[1], (backward,), note=note),
        Link(both_name, (forward, backward), by_events, traffic=2, note=note),
    ]


def _make_peer_links(buffers: Buffers, a: int, b: int) -> list[Link]:
    a_accesses_b = buffers.cuda.enable_peer_access(a, b)
    b_accesses_a = buffers.cuda.enable_peer_access(b, a)
    return _make_both_way_links(
        (f"GPU {a} to GPU {b}", f"GPU {b} to GPU {a}"),
        f"GPU {a} and GPU {b}, both ways",
        (a, buffers.peer_copy(buffers.device[b][0], b, buffers.device[a][0], a)),
        (b, buffers.peer_copy(buffers.device[a][1], a, buffers.device[b][1], b)),
        note="peer access" if a_accesses_b and b_accesses_a else NO_PEER_ACCESS,
    )


def measure(
    cuda: Cuda,
    devices: Sequence[int],
    sizes: Sequence[int],
    repeats: int,
    report: rounds.Report,
    origin: int | None = None,
) -> list[Series]:
    """Measure links over sizes, and check that bytes arrive unchanged.

    Args:
      cuda: The library.
      devices: The GPUs.
      sizes: Bytes, increasing.
      repeats: Number of rounds.
      report: Called with finished rounds, all rounds and a title.
      origin: See `list_links`.

    Raises:
      DeviceError: If CUDA fails. All memory has been freed then.
    """
    with contextlib.ExitStack() as stack:
        buffers = Buffers(cuda, devices, max(sizes), stack)
        series_by_name = {
            link.name: link for link in list_links(buffers, devices, origin)
        }
        jobs = {}
        for name, link in series_by_name.items():
            timer = _LinkTimer(cuda, link, stack)
            jobs[name] = [(size, timer.prepare(size)) for size in sizes]
        points = rounds.measure_points(
            jobs, repeats=repeats, budget_s=_BUDGET_S, report=report, title="copies"
        )
        errors = _find_arrival_errors(buffers, devices, stack, origin)
    series = []
    for name, link in series_by_name.items():
        notes = (link.note, "" if link.by_events else HOST_CLOCK)
        series.append(
            Series(
                COPY,
                name,
                points[name],
                link.traffic,
                notes=tuple(filter(None, notes)),
                error=errors.get(name, ""),
            )
        )
    return series


@dataclasses.dataclass(frozen=True)
class _SizedCopy:
    """One size of a link; see `rounds.Job`."""

    timer: "_LinkTimer"
    size: int
    calls: int = 1

    def seconds(self) -> float:
        return self.timer.seconds(self.size, self.calls)


class _LinkTimer:
    """Times a link with its streams and events."""

    def __init__(self, cuda: Cuda, link: Link, stack: contextlib.ExitStack) -> None:
        self._cuda = cuda
        self._link = link
        streams = [cuda.stream(device) for device, _ in link.lanes]
        self._streams = list(map(stack.enter_context, streams))
        self._start = stack.enter_context(cuda.event(link.lanes[0][0]))
        self._end = stack.enter_context(cuda.event(link.lanes[0][0]))
        lane_ends = [cuda.event(device) for device, _ in link.lanes[1:]]
        self._lane_ends = list(map(stack.enter_context, lane_ends))

    def prepare(self, size: int) -> _SizedCopy:
        """Warm up, and choose the number of copies per repeat."""
        self.seconds(size, 1)
        calls = rounds.choose_calls_per_repeat(
            self.seconds(size, 1), max_calls=_MAX_CALLS
        )
        return _SizedCopy(self, size, calls)

    def seconds(self, size: int, calls: int) -> float:
        """Return the mean seconds of `calls` copies in a row, in all directions."""
        time_copies = self._time_on_gpu if self._link.by_events else self._time_on_host
        return time_copies(size, calls) / calls

    def _time_on_gpu(self, size: int, calls: int) -> float:
        """Return the seconds of the calls between two events of the GPU."""
        cuda = self._cuda
        first, *other_streams = self._streams
        cuda.use(self._link.lanes[0][0])
        cuda.call("cudaEventRecord", self._start, first)
        for stream in other_streams:  # No direction starts before the first event.
            cuda.call("cudaStreamWaitEvent", stream, self._start, 0)
        for _ in range(calls):
            for (device, enqueue), stream in zip(self._link.lanes, self._streams):
                cuda.use(device)
                enqueue(size, stream)
        # The last event waits for all directions.
        for (device, _), stream, event in zip(
            self._link.lanes[1:], other_streams, self._lane_ends
        ):
            cuda.use(device)
            cuda.call("cudaEventRecord", event, stream)
            cuda.call("cudaStreamWaitEvent", first, event, 0)
        cuda.use(self._link.lanes[0][0])
        cuda.call("cudaEventRecord", self._end, first)
        return cuda.elapsed_s(self._start, self._end)

    def _time_on_host(self, size: int, calls: int) -> float:
        """Return the seconds of the calls by the host's clock."""
        start = threading.Barrier(len(self._streams))

        def run(lane: Lane, stream: int) -> tuple[float, float]:
            start.wait()
            self._cuda.use(lane[0])
            # Each thread reads the clock, because the caller may wake up later.
            began_s = time.perf_counter()
            for _ in range(calls):
                lane[1](size, stream)
            self._cuda.call("cudaStreamSynchronize", stream)
            return began_s, time.perf_counter()

        with ThreadPoolExecutor(len(self._streams)) as threads:
            spans = list(threads.map(run, self._link.lanes, self._streams))
        return max(ended_s for _, ended_s in spans) - min(
            began_s for began_s, _ in spans
        )


def _find_arrival_errors(
    buffers: Buffers,
    devices: Sequence[int],
    stack: contextlib.ExitStack,
    origin: int | None = None,
) -> dict[str, str]:
    """Return an error for each link on which bytes arrive changed or not at all."""
    cuda = buffers.cuda
    errors = {}
    streams = {device: stack.enter_context(cuda.stream(device)) for device in devices}
    pattern = np.random.default_rng(1).integers(0, 256, buffers.num_bytes, np.uint8)
    sent_buffer, received_buffer = buffers.pinned

    def count_wrong(*steps: Lane) -> int:
        # Buffers may contain the bytes of the last check, so every byte changes.
        np.add(pattern, 1, out=pattern)
        ctypes.memmove(sent_buffer, pattern.ctypes.data, buffers.num_bytes)
        ctypes.memset(received_buffer, 0, buffers.num_bytes)
        for device, enqueue in steps:
            cuda.use(device)
            enqueue(buffers.num_bytes, streams[device])
            cuda.call("cudaStreamSynchronize", streams[device])
        memory = (ctypes.c_uint8 * buffers.num_bytes).from_address(received_buffer)
        received = np.frombuffer(memoryview(memory), np.uint8)
        return int(np.count_nonzero(received != pattern))

    wrong_bytes = f"wrong bytes of {buffers.num_bytes}"
    up = {}
    down = {}
    for d in devices:
        memory = buffers.device[d][0]
        up[d] = (d, buffers.copy(memory, sent_buffer, _HOST_TO_DEVICE))
        down[d] = (d, buffers.copy(received_buffer, memory, _DEVICE_TO_HOST))
        if origin is None and (count := count_wrong(up[d], down[d])):
            errors[f"host to GPU {d}, pinned"] = (
                f"{count} {wrong_bytes} after a copy and back"
            )
    if origin is None:
        return errors
    peers = [device for device in devices if device != origin]
    pairs = [(origin, peer) for peer in peers] + [(peer, origin) for peer in peers]
    for a, b in pairs:
        copy = buffers.peer_copy(buffers.device[b][0], b, buffers.device[a][0], a)
        if count := count_wrong(up[a], (a, copy), down[b]):
            errors[f"GPU {a} to GPU {b}"] = f"{count} {wrong_bytes}"
    return errors
