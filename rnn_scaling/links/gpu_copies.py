"""Copies between host and GPUs and between GPUs, through CUDA itself: which links there are, and their times.

A copy of pinned memory or between GPUs is timed by events on the GPU, from when its stream starts it to when it has
ended. CUDA stages a copy of pageable memory through the host's thread, so both ways at once take two threads and the
host's clock. Nothing of TensorFlow is in between, so a copy's time is the link's.

CUDA's runtime library is called through ctypes. Names, arguments and constants are those of the CUDA Runtime API
reference, "Memory Management", "Stream Management", "Event Management" and "Peer Device Memory Access".
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

BUDGET_S = 2.0  # of one size of one link
HOST_CLOCK = "by the host's clock, two threads"
NO_PEER_ACCESS = "no peer access: through the host"
MOST_CALLS = 100  # copies in a row: a stream's queue is not endless
# Values of cudaMemcpyKind.
HOST_TO_DEVICE = 1
DEVICE_TO_HOST = 2
DEVICE_TO_DEVICE = 3
NON_BLOCKING = 1  # cudaStreamNonBlocking: does not wait for the default stream
PEER_ACCESS_ALREADY_ENABLED = 704

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
"""The device of a stream, and what puts one copy into the stream."""


def find_library() -> Any:
    """The library of TensorFlow's CUDA packages, else one that the loader finds. Raises DeviceError: there is none."""
    tried = []
    for path in [
        *_packaged(),
        "libcudart.so.13",
        "libcudart.so.12",
        ctypes.util.find_library("cudart"),
    ]:
        if not path:
            continue
        try:
            library = ctypes.CDLL(str(path))
        except OSError as e:
            tried.append(f"{path} ({e})")
            continue
        for name, arguments in _ARGUMENTS.items():
            getattr(library, name).argtypes = arguments
        library.cudaGetErrorString.argtypes = (ctypes.c_int,)
        library.cudaGetErrorString.restype = ctypes.c_char_p
        return library
    raise DeviceError(
        f"no CUDA runtime library can be loaded (tried {', '.join(tried) or 'nothing'}); install tensorflow[and-cuda] "
        "(./run.sh does where it sees a GPU)"
    )


def _packaged() -> list[Path]:
    """libcudart of the packages nvidia-cuda-runtime-cu12 and its successors, which share the namespace `nvidia`."""
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or []) if package else []
    return sorted(
        path for folder in folders for path in Path(folder).glob("*/lib/libcudart.so.*")
    )


class Cuda:
    """The calls that copies need; whatever is allocated is freed at the end of its `with`, also after an error."""

    def __init__(self, library: Any) -> None:
        """library: `find_library()`'s, or one that behaves like it."""
        self._library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of the library. Raises DeviceError with CUDA's own words, if it fails."""
        self._check(name, getattr(self._library, name)(*arguments))

    def _check(self, name: str, code: int) -> None:
        if code:
            text = self._library.cudaGetErrorString(code).decode()
            raise DeviceError(f"{name}: {text} (CUDA error {code})")

    def use(self, device: int) -> None:
        """Makes `device` the one that this thread's next calls mean."""
        self.call("cudaSetDevice", device)

    def device_memory(self, device: int, num_bytes: int) -> AbstractContextManager[int]:
        self.use(device)
        return self._owned("cudaMalloc", "cudaFree", num_bytes)

    def pinned_memory(self, num_bytes: int) -> AbstractContextManager[int]:
        """Address of page-locked memory of the host."""
        return self._owned("cudaMallocHost", "cudaFreeHost", num_bytes)

    def stream(self, device: int) -> AbstractContextManager[int]:
        self.use(device)
        return self._owned(
            "cudaStreamCreateWithFlags", "cudaStreamDestroy", NON_BLOCKING
        )

    def event(self, device: int) -> AbstractContextManager[int]:
        """An event of a device that keeps its time."""
        self.use(device)
        return self._owned("cudaEventCreate", "cudaEventDestroy")

    @contextmanager
    def _owned(self, make: str, free: str, *arguments: Any) -> Iterator[int]:
        handle = ctypes.c_void_p()
        self.call(make, ctypes.byref(handle), *arguments)
        try:
            yield handle.value or 0
        except BaseException:
            getattr(self._library, free)(
                handle.value
            )  # what it answers would hide the first error
            raise
        self.call(free, handle.value)

    def enable_peer_access(self, device: int, peer: int) -> bool:
        """Lets `device` reach the memory of `peer` without the host; False where the machine cannot."""
        able = ctypes.c_int()
        self.call("cudaDeviceCanAccessPeer", ctypes.byref(able), device, peer)
        if not able.value:
            return False
        self.use(device)
        code = self._library.cudaDeviceEnablePeerAccess(peer, 0)
        if code == PEER_ACCESS_ALREADY_ENABLED:
            self._library.cudaGetLastError()  # forget it: the next check would find it
        else:
            self._check("cudaDeviceEnablePeerAccess", code)
        return True

    def elapsed_s(self, start: int, end: int) -> float:
        """Seconds between two events, once the second has happened."""
        self.call("cudaEventSynchronize", end)
        milliseconds = ctypes.c_float()
        self.call("cudaEventElapsedTime", ctypes.byref(milliseconds), start, end)
        return milliseconds.value / 1e3


@dataclasses.dataclass(frozen=True)
class Link:
    name: str
    lanes: tuple[Lane, ...]  # one for each direction at once
    by_events: bool = (
        True  # timed by the GPU; False: by the host's clock, a thread a lane
    )
    traffic: int = 1  # counted bytes for each byte of size
    note: str = ""


class Buffers:
    """Memory of the largest size wherever a copy starts or ends; freed by the stack that it was made with."""

    def __init__(
        self,
        cuda: Cuda,
        devices: Sequence[int],
        num_bytes: int,
        stack: contextlib.ExitStack,
    ) -> None:
        self.cuda = cuda
        self.num_bytes = num_bytes
        # Two of each: copies both ways at once share no buffer.
        self.device = {
            d: [stack.enter_context(cuda.device_memory(d, num_bytes)) for _ in range(2)] for d in devices
        }  # fmt: skip
        self.pinned = [
            stack.enter_context(cuda.pinned_memory(num_bytes)) for _ in range(2)
        ]
        self._arrays = [
            np.full(num_bytes, value, np.uint8) for value in (1, 2)
        ]  # kept alive; touched
        self.pageable = [array.ctypes.data for array in self._arrays]
        for address in self.pinned:
            ctypes.memset(address, 1, num_bytes)

    def copy(self, target: int, source: int, kind: int) -> Enqueue:
        return lambda size, stream: self.cuda.call(
            "cudaMemcpyAsync", target, source, size, kind, stream
        )

    def peer_copy(self, target: int, to: int, source: int, origin: int) -> Enqueue:
        """A copy from an address on the GPU `origin` to one on the GPU `to`."""
        return lambda size, stream: self.cuda.call(
            "cudaMemcpyPeerAsync", target, to, source, origin, size, stream
        )


def links(
    buffers: Buffers, devices: Sequence[int], origin: int | None = None
) -> list[Link]:
    """Return the links of the devices.

    Args:
      buffers: Where the copies start and end.
      devices: The GPUs.
      origin: The GPU whose links to the others are returned. If None, the links of
        each device with the host and within itself are.
    """
    found: list[Link] = []
    for d in devices:
        here = buffers.device[d]
        if origin is not None:
            if d != origin:
                found += _between(buffers, origin, d)
            continue
        for memory, host in (
            ("pinned", buffers.pinned),
            ("pageable", buffers.pageable),
        ):
            found += _both_ways(
                (f"host to GPU {d}, {memory}", f"GPU {d} to host, {memory}"),
                f"host and GPU {d}, both ways, {memory}",
                (d, buffers.copy(here[0], host[0], HOST_TO_DEVICE)),
                (d, buffers.copy(host[1], here[1], DEVICE_TO_HOST)),
                by_events=memory == "pinned",
            )
        inside = (d, buffers.copy(here[1], here[0], DEVICE_TO_DEVICE))
        note = "each byte counts twice: read and written"
        found.append(Link(f"within GPU {d}", (inside,), traffic=2, note=note))
    return found


def _both_ways(
    one_way: tuple[str, str],
    both_ways: str,
    there: Lane,
    back: Lane,
    by_events: bool = True,
    note: str = "",
) -> list[Link]:
    """Return the links of two ends: each way, and both at once."""
    return [
        Link(one_way[0], (there,), note=note),
        Link(one_way[1], (back,), note=note),
        Link(both_ways, (there, back), by_events, traffic=2, note=note),
    ]


def _between(buffers: Buffers, a: int, b: int) -> list[Link]:
    direct = [buffers.cuda.enable_peer_access(*pair) for pair in ((a, b), (b, a))]
    return _both_ways(
        (f"GPU {a} to GPU {b}", f"GPU {b} to GPU {a}"),
        f"GPU {a} and GPU {b}, both ways",
        (a, buffers.peer_copy(buffers.device[b][0], b, buffers.device[a][0], a)),
        (b, buffers.peer_copy(buffers.device[a][1], a, buffers.device[b][1], b)),
        note="peer access" if all(direct) else NO_PEER_ACCESS,
    )


def measure(
    cuda: Cuda,
    devices: Sequence[int],
    sizes: Sequence[int],
    repeats: int,
    tell: rounds.Tell,
    origin: int | None = None,
) -> list[Series]:
    """Times of `links` over `sizes` (bytes, increasing), and whether bytes arrive unchanged.

    `origin` is the GPU whose links to the others are measured; if None, the links to the host are. Raises DeviceError
    if CUDA fails, after it has freed all memory.
    """
    with contextlib.ExitStack() as stack:
        buffers = Buffers(cuda, devices, max(sizes), stack)
        measured = {link.name: link for link in links(buffers, devices, origin)}
        jobs = {}
        for name, link in measured.items():
            way = _Way(cuda, link, stack)
            jobs[name] = [(size, way.prepared(size)) for size in sizes]
        points = rounds.measured_points(jobs, repeats, BUDGET_S, tell, "copies")
        errors = _arrival_errors(buffers, devices, stack, origin)
    series = []
    for name, link in measured.items():
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

    way: "_Way"
    size: int
    calls: int = 1

    def seconds(self) -> float:
        return self.way.seconds(self.size, self.calls)


class _Way:
    """A link with its streams and events, ready to be timed."""

    def __init__(self, cuda: Cuda, link: Link, stack: contextlib.ExitStack) -> None:
        self._cuda = cuda
        self._link = link
        self._streams = [
            stack.enter_context(cuda.stream(device)) for device, _ in link.lanes
        ]
        self._start, self._end = (
            stack.enter_context(cuda.event(link.lanes[0][0])) for _ in range(2)
        )
        self._others = [
            stack.enter_context(cuda.event(device)) for device, _ in link.lanes[1:]
        ]

    def prepared(self, size: int) -> _SizedCopy:
        """Warm up, and find how many copies in a row make one repeat."""
        self.seconds(size, 1)
        calls = rounds.calls_of(self.seconds(size, 1), most_calls=MOST_CALLS)
        return _SizedCopy(self, size, calls)

    def seconds(self, size: int, calls: int) -> float:
        """Seconds of one copy, the mean of `calls` in a row; of all directions together."""
        return (self._on_gpu if self._link.by_events else self._on_host)(
            size, calls
        ) / calls

    def _on_gpu(self, size: int, calls: int) -> float:
        cuda, (first, *others) = self._cuda, self._streams
        cuda.use(self._link.lanes[0][0])
        cuda.call("cudaEventRecord", self._start, first)
        for stream in others:  # no direction starts before the clock does
            cuda.call("cudaStreamWaitEvent", stream, self._start, 0)
        for _ in range(calls):
            for (device, enqueue), stream in zip(self._link.lanes, self._streams):
                cuda.use(device)
                enqueue(size, stream)
        for (device, _), stream, event in zip(
            self._link.lanes[1:], others, self._others
        ):
            cuda.use(device)
            cuda.call("cudaEventRecord", event, stream)
            cuda.call(
                "cudaStreamWaitEvent", first, event, 0
            )  # nor does it end before the last one does
        cuda.use(self._link.lanes[0][0])
        cuda.call("cudaEventRecord", self._end, first)
        return cuda.elapsed_s(self._start, self._end)

    def _on_host(self, size: int, calls: int) -> float:
        start = threading.Barrier(len(self._streams))

        def run(lane: Lane, stream: int) -> tuple[float, float]:
            start.wait()
            self._cuda.use(lane[0])
            began = (
                time.perf_counter()
            )  # of this thread: the caller may be woken after it has begun
            for _ in range(calls):
                lane[1](size, stream)
            self._cuda.call("cudaStreamSynchronize", stream)
            return began, time.perf_counter()

        with ThreadPoolExecutor(len(self._streams)) as threads:
            spans = list(threads.map(run, self._link.lanes, self._streams))
        return max(ended for _, ended in spans) - min(began for began, _ in spans)


def _arrival_errors(
    buffers: Buffers,
    devices: Sequence[int],
    stack: contextlib.ExitStack,
    origin: int | None = None,
) -> dict[str, str]:
    """Link -> what is wrong, for every link on which bytes arrive changed or not at all."""
    cuda = buffers.cuda
    errors = {}
    streams = {device: stack.enter_context(cuda.stream(device)) for device in devices}
    pattern = np.random.default_rng(1).integers(0, 256, buffers.num_bytes, np.uint8)
    sent, back = buffers.pinned

    def wrong(*steps: Lane) -> int:
        np.add(
            pattern, 1, out=pattern
        )  # every byte differs from the last check's, which may still be in the buffers
        ctypes.memmove(sent, pattern.ctypes.data, buffers.num_bytes)
        ctypes.memset(back, 0, buffers.num_bytes)
        for device, enqueue in steps:
            cuda.use(device)
            enqueue(buffers.num_bytes, streams[device])
            cuda.call("cudaStreamSynchronize", streams[device])
        got = np.frombuffer(
            memoryview((ctypes.c_uint8 * buffers.num_bytes).from_address(back)),
            np.uint8,
        )
        return int(np.count_nonzero(got != pattern))

    wrong_bytes = f"wrong bytes of {buffers.num_bytes}"
    up = {}
    down = {}
    for d in devices:
        here = buffers.device[d][0]
        up[d] = (d, buffers.copy(here, sent, HOST_TO_DEVICE))
        down[d] = (d, buffers.copy(back, here, DEVICE_TO_HOST))
        if origin is None and (count := wrong(up[d], down[d])):
            errors[f"host to GPU {d}, pinned"] = (
                f"{count} {wrong_bytes} after a copy and back"
            )
    if origin is None:
        return errors
    others = [peer for peer in devices if peer != origin]
    pairs = [(origin, peer) for peer in others] + [(peer, origin) for peer in others]
    for a, b in pairs:
        copy = buffers.peer_copy(buffers.device[b][0], b, buffers.device[a][0], a)
        if count := wrong(up[a], (a, copy), down[b]):
            errors[f"GPU {a} to GPU {b}"] = f"{count} {wrong_bytes}"
    return errors
