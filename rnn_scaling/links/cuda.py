"""CUDA's runtime library through ctypes: memory, streams, events and copies, each error a DeviceError.

Nothing of TensorFlow is in between, so that a copy's time is the link's. Names, arguments and constants are those of
the CUDA Runtime API reference, "Memory Management", "Stream Management", "Event Management" and "Peer Device Memory
Access".
"""

import ctypes
import ctypes.util
import importlib.util
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from rnn_scaling.machine.gpus import DeviceError

HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3  # cudaMemcpyKind
NON_BLOCKING = 1  # cudaStreamNonBlocking: does not wait for the default stream
PEER_ACCESS_ALREADY_ENABLED = 704

_POINTER, _OUT = ctypes.c_void_p, ctypes.c_void_p
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
    "cudaMemcpyPeerAsync": (_POINTER, ctypes.c_int, _POINTER, ctypes.c_int, ctypes.c_size_t, _POINTER),
    "cudaDeviceCanAccessPeer": (_OUT, ctypes.c_int, ctypes.c_int),
    "cudaDeviceEnablePeerAccess": (ctypes.c_int, ctypes.c_uint),
    "cudaGetLastError": (),
}


def find_library() -> Any:
    """The library of TensorFlow's CUDA packages, else one that the loader finds. Raises DeviceError: there is none."""
    tried = []
    for path in [*_packaged(), "libcudart.so.13", "libcudart.so.12", ctypes.util.find_library("cudart")]:
        if not path:
            continue
        try:
            library = ctypes.CDLL(str(path))
        except OSError as e:
            tried.append(f"{path} ({e})")
            continue
        for name, arguments in _ARGUMENTS.items():
            getattr(library, name).argtypes = arguments
        library.cudaGetErrorString.argtypes, library.cudaGetErrorString.restype = (ctypes.c_int,), ctypes.c_char_p
        return library
    raise DeviceError(
        f"no CUDA runtime library can be loaded (tried {', '.join(tried) or 'nothing'}); install tensorflow[and-cuda] "
        "(./run.sh does where it sees a GPU)"
    )


def _packaged() -> list[Path]:
    """libcudart of the packages nvidia-cuda-runtime-cu12 and its successors, which share the namespace `nvidia`."""
    package = importlib.util.find_spec("nvidia")
    folders = list(package.submodule_search_locations or []) if package else []
    return sorted(path for folder in folders for path in Path(folder).glob("*/lib/libcudart.so.*"))


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
        return self._owned("cudaStreamCreateWithFlags", "cudaStreamDestroy", NON_BLOCKING)

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
            getattr(self._library, free)(handle.value)  # what it answers would hide the first error
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
