"""The search for the largest batch: what is run next, what a run says, how much memory there is."""

from __future__ import annotations

import random

import pytest

from rnn_scaling.machine import memory
from rnn_scaling.sweeps import largest_batch
from rnn_scaling.sweeps.largest_batch import FAILED, FITS, TOO_LARGE, Tried, expected_bytes, next_batch, what_is_known
from tests.support.records import make_record

GIB = 2**30


def search(start, fits, bytes_of=None, limit_bytes=None):
    """All tries of a search on a machine where `fits` says which batches do."""
    tries = []
    while (size := next_batch(start, tries, limit_bytes)) is not None:
        assert size not in [each.batch_size for each in tries]
        outcome = FITS if fits(size) else TOO_LARGE
        tries.append(Tried(size, outcome, bytes_of(size) if bytes_of and outcome == FITS else None))
    return tries


@pytest.mark.parametrize("most", [1, 7, 31, 32, 33, 100, 1000, 1023, 12_345])
def test_the_largest_is_found_to_a_sixteenth_in_few_runs(most):
    tries = search(32, lambda size: size <= most)
    found = what_is_known(tries, None)
    assert found.largest <= most < found.too_large and not found.is_predicted
    assert found.too_large - found.largest <= max(1, found.largest / 16)
    assert len(tries) <= 16


def test_nothing_fits_and_everything_fits():
    assert what_is_known(search(8, lambda size: False), None).largest is None
    assert what_is_known(search(8, lambda size: True), None).largest == largest_batch._most()


@pytest.mark.parametrize("fixed, each, limit", [(0.5, 0.004, 4.0), (0.1, 0.5, 16.0), (2.0, 0.0001, 8.0)])
def test_no_batch_is_tried_that_a_line_through_smaller_ones_says_is_too_large(fixed, each, limit):
    rng = random.Random(1)
    noisy = lambda size: int(GIB * (fixed + each * size) * (1 + 0.01 * rng.random()))  # noqa: E731
    tries = search(4, lambda size: True, noisy, int(limit * GIB))
    assert all(each.peak_bytes <= limit * GIB for each in tries)
    found = what_is_known(tries, int(limit * GIB))
    ideal = (limit - fixed) / each
    assert found.is_predicted and 0.85 * ideal <= found.largest <= ideal


def test_what_a_batch_will_take_is_an_upper_bound_that_never_falls():
    grown = [Tried(1, FITS, 100), Tried(2, FITS, 330), Tried(4, FITS, 430)]
    assert all(expected_bytes(grown, each.batch_size) >= each.peak_bytes for each in grown)
    assert expected_bytes(grown, 8) >= 830
    assert expected_bytes(grown[:1], 8) is None
    shrunk = [Tried(1, FITS, 200), Tried(2, FITS, 180)]
    assert expected_bytes(shrunk, 100) >= 200


@pytest.mark.parametrize(
    "kind, message, limit, outcome",
    [
        ("ResourceExhaustedError", "out of memory: lower --batch_size=64", None, TOO_LARGE),
        ("Signal", "killed by SIGKILL: often the kernel's out-of-memory killer", None, TOO_LARGE),
        ("Signal", "killed by SIGABRT (last said: Fatal Python error: Aborted)", GIB, TOO_LARGE),
        ("Signal", "killed by SIGABRT (last said: Fatal Python error: Aborted)", None, FAILED),
        ("Signal", "killed by SIGABRT (last said: what():  std::bad_alloc)", None, TOO_LARGE),
        ("NoRecord", "ended with exit status 137 and no result: nothing on stderr", None, TOO_LARGE),
        ("NoRecord", "ended with exit status 3 and no result: nothing on stderr", GIB, FAILED),
        ("NoRecord", "ended with exit status 127 and no result: libc.so: cannot map zero-fill pages", GIB, TOO_LARGE),
        ("InternalError", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", None, TOO_LARGE),
        ("ValueError", "no such luck", GIB, FAILED),
    ],
)
def test_which_ends_are_out_of_memory(kind, message, limit, outcome):
    run = make_record("failed", config={"batch_size": 64}, error={"type": kind, "message": message})
    tried = largest_batch.tried(run, limit)
    assert (tried.batch_size, tried.outcome) == (64, outcome) and message in tried.words
    assert tried.words.startswith("killed: perhaps") == ("killed by SIG" in message and "bad" not in message
                                                         and outcome == TOO_LARGE or "137" in message)  # fmt: skip


def test_a_run_that_took_more_than_it_may_does_not_fit_and_a_failure_ends_the_search():
    run = make_record(config={"batch_size": 8}, memory={"peak_process_bytes": 2 * GIB})
    assert largest_batch.tried(run, GIB).outcome == TOO_LARGE
    assert largest_batch.tried(run, None) == Tried(8, FITS, 2 * GIB, rate=run.throughput.items_per_second)
    assert next_batch(8, [Tried(8, FAILED)], None) is None
    gpu = make_record(
        resolved={"device_type": "GPU"}, memory={"peak_process_bytes": 5, "peak_device_bytes": [1 * GIB, 3 * GIB]}
    )
    assert largest_batch.tried(gpu, None).peak_bytes == 3 * GIB


def test_the_kernel_holds_a_process_to_more_than_it_may_use_and_less_than_is_free():
    assert largest_batch.kernel_limit(4 * GIB, 100 * GIB, 1) == 5 * GIB
    assert largest_batch.kernel_limit(8 * GIB, 10 * GIB, 1) == int(9.5 * GIB)
    assert largest_batch.kernel_limit(4 * GIB, 10 * GIB, 2) == int(4.75 * GIB)
    assert largest_batch.kernel_limit(4 * GIB, None, 1) == 5 * GIB


def test_free_memory_is_what_the_system_or_the_control_group_has_left(tmp_path):
    root = f"{tmp_path}/"
    assert memory.available_bytes(root) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 100 kB\nMemAvailable:    8000 kB\n")
    assert memory.available_bytes(root) == 8000 * 1024
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/job\n0::/a/b\n")
    assert memory.available_bytes(root) == 8000 * 1024  # no group has a limit
    second = tmp_path / "sys/fs/cgroup/a"
    (second / "b").mkdir(parents=True)
    for name, text in (("memory.max", "6000000\n"), ("memory.current", "2000000\n"), ("memory.stat", "anon 5\n")):
        (second / name).write_text(text)
    (second / "b/memory.max").write_text("max\n")
    (second / "b/memory.current").write_text("1000\n")
    assert memory.available_bytes(root) == 4_000_000
    (second / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert memory.available_bytes(root) == 4_500_000
    first = tmp_path / "sys/fs/cgroup/memory/job"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("3000000\n")
    (first / "memory.usage_in_bytes").write_text("2000000\n")
    assert memory.available_bytes(root) == 1_000_000
