"""Test the search for the largest batch, the outcome of runs, and free memory."""

import pytest

from rnn_scaling.analysis import largest_batch
from rnn_scaling.analysis.largest_batch import (
    FAILED,
    FITS,
    TOO_LARGE,
    Bounds,
    Try,
    choose_next_batch,
    find_bounds,
)
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.system.machine import system
from tests.support.records import make_record

GIB = 2**30


def search(start, fits):
    """Return all tries of a search; `fits` decides whether a batch fits."""
    tries = []
    while (size := choose_next_batch(start, tries)) is not None:
        assert size not in [attempt.batch_size for attempt in tries]
        tries.append(Try(size, FITS if fits(size) else TOO_LARGE))
    return tries


@pytest.mark.parametrize("limit", [1, 32, 12_345])
def test_the_largest_is_found_to_a_sixteenth_in_few_runs(limit):
    tries = search(32, lambda size: size <= limit)
    result = find_bounds(tries)
    assert result.largest <= limit < result.too_large
    assert result.too_large - result.largest <= max(1, result.largest / 16)
    assert len(tries) <= 16


def test_nothing_fits_and_everything_fits():
    assert find_bounds(search(8, lambda size: False)).largest is None
    maximum = OPTIONS["batch_size"].metadata["maximum"]
    assert find_bounds(search(8, lambda size: True)).largest == maximum


def test_a_smaller_batch_that_was_killed_is_not_the_upper_end():
    result = find_bounds([Try(8, TOO_LARGE), Try(16, FITS), Try(32, TOO_LARGE)])
    assert result == Bounds(16, 32)


ABORTED = "killed by SIGABRT (last output: Fatal Python error: Aborted)"
KILLED = "killed by SIGKILL: often the kernel's out-of-memory killer"


@pytest.mark.parametrize(
    "kind, message, limit, outcome, is_certain",
    [
        ("ResourceExhaustedError", "lower --batch_size=64", None, TOO_LARGE, True),
        ("Signal", ABORTED, None, FAILED, True),
        ("NoRecord", "libc.so: cannot map zero-fill pages", GIB, TOO_LARGE, True),
        ("Signal", KILLED, None, TOO_LARGE, False),
        ("Signal", ABORTED, GIB, TOO_LARGE, False),
    ],
)
def test_an_error_shows_whether_memory_was_missing(
    kind, message, limit, outcome, is_certain
):
    attempt = largest_batch.judge_run(make_failed_run(kind, message), limit)
    assert attempt.outcome == outcome
    assert (attempt.message == message) is is_certain
    assert message in attempt.message


def make_failed_run(kind, message):
    error = {"type": kind, "message": message}
    return make_record("failed", config={"batch_size": 64}, error=error)


def test_a_run_above_the_limit_does_not_fit_and_a_failure_ends_the_search():
    run = make_record(config={"batch_size": 8}, memory={"peak_process_bytes": 2 * GIB})
    assert largest_batch.judge_run(run, GIB).outcome == TOO_LARGE
    assert largest_batch.judge_run(run, None) == Try(
        8, FITS, 2 * GIB, rate=run.throughput.items_per_second
    )
    assert choose_next_batch(8, [Try(8, FAILED)]) is None
    gpu = make_record(
        resolved={"device_type": "GPU"},
        memory={"peak_process_bytes": 5, "peak_device_bytes": [1 * GIB, 3 * GIB]},
    )
    assert largest_batch.judge_run(gpu, None).peak_bytes == 3 * GIB


def test_free_memory_is_the_rest_of_the_system_or_the_control_group(tmp_path):
    root = f"{tmp_path}/"
    assert system.find_available_memory_bytes(root) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal: 100 kB\nMemAvailable:    8000 kB\n"
    )
    assert system.find_available_memory_bytes(root) == 8000 * 1024
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/job\n0::/a/b\n")
    assert (
        system.find_available_memory_bytes(root) == 8000 * 1024
    )  # no group has a limit
    second = tmp_path / "sys/fs/cgroup/a"
    (second / "b").mkdir(parents=True)
    for name, text in (
        ("memory.max", "6000000\n"),
        ("memory.current", "2000000\n"),
        ("memory.stat", "anon 5\n"),
    ):
        (second / name).write_text(text)
    (second / "b/memory.max").write_text("max\n")
    (second / "b/memory.current").write_text("1000\n")
    assert system.find_available_memory_bytes(root) == 4_000_000
    (second / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert system.find_available_memory_bytes(root) == 4_500_000
    first = tmp_path / "sys/fs/cgroup/memory/job"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("3000000\n")
    (first / "memory.usage_in_bytes").write_text("2000000\n")
    assert system.find_available_memory_bytes(root) == 1_000_000


def test_both_ends_are_runs_even_if_memory_grows_unevenly():
    """Memory grows in blocks, so a line through small batches excludes 448."""

    def used_bytes(size):
        return int(GIB * (0.4 + 0.0012 * min(size, 360) + 0.0002 * max(0, size - 360)))

    tries = []
    limit = int(0.9 * GIB)
    while (size := choose_next_batch(32, tries)) is not None:
        memory = {"peak_process_bytes": used_bytes(size)}
        run = make_record(config={"batch_size": size}, memory=memory)
        tries.append(largest_batch.judge_run(run, limit))
    result = find_bounds(tries)
    assert used_bytes(result.largest) <= limit < used_bytes(result.too_large)
    sizes = {attempt.batch_size for attempt in tries}
    assert {result.largest, result.too_large} <= sizes
