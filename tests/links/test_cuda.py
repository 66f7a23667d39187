"""Copies through CUDA, on a runtime in host memory: the links, their times, and that nothing stays allocated."""

import contextlib
import ctypes

import pytest

from rnn_scaling.links import gpu_copies
from rnn_scaling.system.machine.gpus import DeviceError
from tests.links.fake_cuda import ALPHA_MS, BYTES_PER_MS, FakeCudart

SIZES = [2**n for n in range(2, 17, 2)]
BOTH = [(0, 1), (1, 0)]


def measure(library, sizes=SIZES, devices=(0, 1)):
    found = []
    for origin in (None, *devices[:-1]):
        found += gpu_copies.measure(
            gpu_copies.Cuda(library),
            list(devices),
            sizes,
            3,
            lambda *what: None,
            origin,
        )
    return {each.name: each for each in found}


def test_every_link_is_measured_and_everything_freed():
    library = FakeCudart(peers=BOTH)
    found = measure(library)
    assert set(found) == {
        *(f"host to GPU {d}, {m}" for d in (0, 1) for m in ("pinned", "pageable")),
        *(f"GPU {d} to host, {m}" for d in (0, 1) for m in ("pinned", "pageable")),
        *(f"host and GPU {d}, both ways, {m}" for d in (0, 1) for m in ("pinned", "pageable")),
        "within GPU 0", "within GPU 1", "GPU 0 to GPU 1", "GPU 1 to GPU 0", "GPU 0 and GPU 1, both ways",
    }  # fmt: skip
    assert all(each.sizes == SIZES and not each.error for each in found.values())
    assert library.live == {}


def test_events_give_the_gpu_s_own_time():
    fit = measure(FakeCudart(peers=BOTH))["host to GPU 0, pinned"].fit_medians()
    assert fit.alpha_us == pytest.approx(1e3 * ALPHA_MS, rel=1e-3)
    assert fit.beta_gb_per_s == pytest.approx(BYTES_PER_MS / 1e6, rel=1e-3)
    assert fit.holds and fit.from_bytes == SIZES[0]


def test_both_ways_at_once_carry_twice_the_bytes_in_the_time_of_one():
    found = measure(FakeCudart(peers=BOTH))
    for one, both in (
        ("host to GPU 0, pinned", "host and GPU 0, both ways, pinned"),
        ("GPU 0 to GPU 1", "GPU 0 and GPU 1, both ways"),
    ):
        first, second = found[one].points[-1], found[both].points[-1]
        assert second.median_s == pytest.approx(first.median_s, rel=1e-3)
        assert found[both].gb_per_s(second) == pytest.approx(
            2 * found[one].gb_per_s(first), rel=1e-3
        )


def test_pageable_copies_both_ways_take_the_host_s_clock():
    found = measure(FakeCudart(peers=BOTH))
    both = {
        name: each.notes
        for name, each in found.items()
        if name.startswith("host and GPU 0, both ways")
    }
    assert [both[name] for name in sorted(both)] == [
        (gpu_copies.HOST_CLOCK,),
        (),
    ]  # pageable, pinned


def test_says_whether_peers_reach_each_other():
    assert measure(FakeCudart(peers=BOTH))["GPU 0 to GPU 1"].notes == ("peer access",)
    library = FakeCudart(peers=[(0, 1)])
    assert measure(library)["GPU 0 to GPU 1"].notes == (gpu_copies.NO_PEER_ACCESS,)
    assert measure(FakeCudart())["GPU 0 to GPU 1"].notes == (gpu_copies.NO_PEER_ACCESS,)


def test_peer_access_that_is_on_already_is_no_error():
    library = FakeCudart(peers=BOTH)
    runtime = gpu_copies.Cuda(library)
    assert runtime.enable_peer_access(0, 1) and runtime.enable_peer_access(0, 1)
    assert library.calls[-1] == "cudaGetLastError"


def test_bytes_that_arrive_changed_are_named():
    found = measure(FakeCudart(peers=BOTH, broken_peer=True))
    assert "wrong bytes" in found["GPU 0 to GPU 1"].error
    assert "wrong bytes" in found["GPU 1 to GPU 0"].error
    assert found["host to GPU 0, pinned"].error == ""


@pytest.mark.parametrize("lost", BOTH)
def test_bytes_that_never_arrive_are_named_whatever_an_earlier_copy_left_there(lost):
    found = measure(FakeCudart(peers=BOTH, lost=lost))
    wrong = [name for name, each in found.items() if "wrong bytes" in each.error]
    assert wrong == [f"GPU {lost[0]} to GPU {lost[1]}"]


@pytest.mark.parametrize(
    "function, at",
    [
        ("cudaMalloc", 3),
        ("cudaMemcpyAsync", 30),
        ("cudaMemcpyPeerAsync", 3),
        ("cudaStreamSynchronize", 1),
    ],
)
def test_an_error_is_in_cuda_s_words_and_frees_everything(function, at):
    library = FakeCudart(peers=BOTH, fail=function, fail_at=at)
    with pytest.raises(
        DeviceError, match=rf"^{function}: out of memory \(CUDA error 2\)$"
    ):
        measure(library)
    assert library.live == {}


def test_an_error_while_freeing_does_not_hide_the_first():
    library = FakeCudart(fail="cudaFree")
    with (
        pytest.raises(KeyError, match="first"),
        gpu_copies.Cuda(library).device_memory(0, 8),
    ):
        raise KeyError("first")


def test_no_library_is_an_error_that_says_what_was_tried(monkeypatch):
    def missing(path):
        raise OSError("no such file")

    monkeypatch.setattr(gpu_copies.ctypes, "CDLL", missing)
    with pytest.raises(
        DeviceError, match=r"libcudart\.so\.13 \(no such file\).*tensorflow\[and-cuda\]"
    ):
        gpu_copies.find_library()


def test_the_library_s_functions_get_their_types(monkeypatch):
    library = type("Library", (), {})()
    for name in (*gpu_copies._ARGUMENTS, "cudaGetErrorString"):
        setattr(library, name, type("Function", (), {})())
    monkeypatch.setattr(gpu_copies.ctypes, "CDLL", lambda path: library)
    found = gpu_copies.find_library()
    # Without them ctypes would pass a size or an address as a C int, and cut it.
    assert found.cudaMemcpyAsync.argtypes[2] is ctypes.c_size_t
    assert found.cudaFree.argtypes == (ctypes.c_void_p,)
    assert found.cudaGetErrorString.restype is ctypes.c_char_p


def test_no_direction_starts_before_the_clock_or_ends_after_it():
    library = FakeCudart(peers=BOTH)
    runtime = gpu_copies.Cuda(library)
    with contextlib.ExitStack() as stack:
        buffers = gpu_copies.Buffers(runtime, [0, 1], 64, stack)
        link = next(
            each
            for each in gpu_copies.list_links(buffers, [0, 1], 0)
            if each.name == "GPU 0 and GPU 1, both ways"
        )
        way = gpu_copies._LinkTimer(runtime, link, stack)
        del library.calls[:]
        way.seconds(64, 2)
    calls = [call for call in library.calls if call not in ("cudaSetDevice",)][:10]
    assert calls == [
        "cudaEventRecord", "cudaStreamWaitEvent", *["cudaMemcpyPeerAsync"] * 4,
        "cudaEventRecord", "cudaStreamWaitEvent", "cudaEventRecord", "cudaEventSynchronize",
    ]  # fmt: skip
