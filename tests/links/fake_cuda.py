"""A fake CUDA runtime in host memory.

Its clock advances by ALPHA_MS + bytes / BYTES_PER_MS for each copy.
"""

import ctypes

ALPHA_MS, BYTES_PER_MS = 0.005, 12e6
ALREADY_ENABLED = 704


class FakeCudart:
    """A fake of libcudart that records every call.

    Call number `fail_at` of the function `fail` returns error 2. If `lost` is (a, b),
    copies from GPU a to GPU b move nothing.
    """

    def __init__(
        self, devices=2, peers=(), fail="", fail_at=1, broken_peer=False, lost=None
    ):
        self.calls, self.live = [], {}
        self._devices, self._peers, self._enabled = devices, set(peers), set()
        self._fail, self._fail_at, self._broken_peer = fail, fail_at, broken_peer
        self._stream_ms, self._event_ms, self._next = {}, {}, 0x1000
        self._lost, self.current = lost, 0

    def __getattr__(self, name):
        if not name.startswith("cuda"):
            raise AttributeError(name)

        def function(*arguments):
            self.calls.append(name)
            if name == self._fail and self.calls.count(name) == self._fail_at:
                return 2
            return getattr(self, "do_" + name)(*arguments) or 0

        return function

    def cudaGetErrorString(self, code):  # noqa: N802
        return {2: b"out of memory"}.get(code, b"unknown error")

    def _own(self, kind, out, content=None):
        self._next += 16
        handle = ctypes.addressof(content) if content is not None else self._next
        self.live[handle] = (kind, content)
        out._obj.value = handle
        return handle

    def _drop(self, kind, handle):
        assert self.live.pop(handle)[0] == kind

    def do_cudaSetDevice(self, device):
        assert 0 <= device < self._devices
        self.current = device

    def do_cudaMalloc(self, out, size):
        self._own("device", out, ctypes.create_string_buffer(size))

    def do_cudaFree(self, address):
        self._drop("device", address)

    def do_cudaMallocHost(self, out, size):
        self._own("pinned", out, ctypes.create_string_buffer(size))

    def do_cudaFreeHost(self, address):
        self._drop("pinned", address)

    def do_cudaStreamCreateWithFlags(self, out, flags):
        assert flags == 1
        self._stream_ms[self._own("stream", out)] = 0.0

    def do_cudaStreamDestroy(self, stream):
        self._drop("stream", stream)

    def do_cudaStreamSynchronize(self, stream):
        assert stream in self._stream_ms

    def do_cudaStreamWaitEvent(self, stream, event, flags):
        self._stream_ms[stream] = max(self._stream_ms[stream], self._event_ms[event])

    def do_cudaEventCreate(self, out):
        self._own("event", out)

    def do_cudaEventDestroy(self, event):
        self._drop("event", event)

    def do_cudaEventRecord(self, event, stream):
        self._event_ms[event] = self._stream_ms[stream]

    def do_cudaEventSynchronize(self, event):
        assert event in self._event_ms

    def do_cudaEventElapsedTime(self, out, start, end):
        out._obj.value = self._event_ms[end] - self._event_ms[start]

    def do_cudaMemcpyAsync(self, target, source, size, kind, stream):
        assert kind in (1, 2, 3)
        ctypes.memmove(target, source, size)
        self._stream_ms[stream] += ALPHA_MS + size / BYTES_PER_MS

    def do_cudaMemcpyPeerAsync(self, target, to, source, origin, size, stream):
        assert to != origin
        if (origin, to) != self._lost:
            ctypes.memmove(target, source, size)
        if self._broken_peer:
            ctypes.memset(target, 0, size)
        self._stream_ms[stream] += ALPHA_MS + size / BYTES_PER_MS

    def do_cudaDeviceCanAccessPeer(self, out, device, peer):
        out._obj.value = (device, peer) in self._peers

    def do_cudaDeviceEnablePeerAccess(self, peer, flags):
        if (self.current, peer) in self._enabled:
            return ALREADY_ENABLED
        self._enabled.add((self.current, peer))
        return 0

    def do_cudaGetLastError(self):
        return 0
