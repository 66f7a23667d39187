"""The search for the largest batch: what is run next, what a run says, how much memory there is."""

from __future__ import annotations

import pytest

from rnn_scaling.analysis import largest_batch
from rnn_scaling.analysis.largest_batch import (
    FAILED,
    FITS,
    TOO_LARGE,
    Try,
    bounds,
    next_batch,
)
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.system.machine import system
from tests.support.records import make_record

GIB = 2**30


def search(start, fits):
    """All tries of a search on a machine where `fits` says which batches do."""
    tries = []
    while (size := next_batch(start, tries)) is not None:
        assert size not in [each.batch_size for each in tries]
        tries.append(Try(size, FITS if fits(size) else TOO_LARGE))
    return tries


@pytest.mark.parametrize("most", [1, 7, 31, 32, 33, 100, 1000, 1023, 12_345])
def test_the_largest_is_found_to_a_sixteenth_in_few_runs(most):
    tries = search(32, lambda size: size <= most)
    found = bounds(tries)
    assert found.largest <= most < found.too_large
    assert found.too_large - found.largest <= max(1, found.largest / 16)
    assert len(tries) <= 16


def test_nothing_fits_and_everything_fits():
    assert bounds(search(8, lambda size: False)).largest is None
    assert (
        bounds(search(8, lambda size: True)).largest
        == OPTIONS["batch_size"].metadata["maximum"]
    )


def test_both_ends_of_the_answer_are_runs_however_memory_grows():
    """In blocks: 256 and less take as a line has it that ends above the limit for 448, and 448 fits."""

    def taken(size):
        return int(GIB * (0.4 + 0.0012 * min(size, 360) + 0.0002 * max(0, size - 360)))

    tries, limit = [], int(0.9 * GIB)
    while (size := next_batch(32, tries)) is not None:
        run = make_record(
            config={"batch_size": size}, memory={"peak_process_bytes": taken(size)}
        )
        tries.append(largest_batch.outcome(run, limit))
    found = bounds(tries)
    assert taken(found.largest) <= limit < taken(found.too_large)
    assert {found.largest, found.too_large} <= {each.batch_size for each in tries}
    fits, too_large = largest_batch.statements(tries, "pairs", limit, is_finished=True)
    assert (fits.kind, fits.values["batch_size"]) == ("batch-fits-limit", found.largest)
    assert (too_large.kind, too_large.values["batch_size"]) == (
        "batch-too-large",
        found.too_large,
    )


def test_a_smaller_batch_that_was_killed_is_no_upper_end():
    found = bounds([Try(8, TOO_LARGE), Try(16, FITS), Try(32, TOO_LARGE)])
    assert (found.largest, found.too_large) == (16, 32)


@pytest.mark.parametrize(
    "kind, message, limit, outcome",
    [
        (
            "ResourceExhaustedError",
            "out of memory: lower --batch_size=64",
            None,
            TOO_LARGE,
        ),
        (
            "Signal",
            "killed by SIGKILL: often the kernel's out-of-memory killer",
            None,
            TOO_LARGE,
        ),
        (
            "Signal",
            "killed by SIGABRT (last output: Fatal Python error: Aborted)",
            GIB,
            TOO_LARGE,
        ),
        (
            "Signal",
            "killed by SIGABRT (last output: Fatal Python error: Aborted)",
            None,
            FAILED,
        ),
        (
            "Signal",
            "killed by SIGABRT (last output: what():  std::bad_alloc)",
            None,
            TOO_LARGE,
        ),
        (
            "NoRecord",
            "ended with exit status 137 and no result: nothing on stderr",
            None,
            TOO_LARGE,
        ),
        (
            "NoRecord",
            "ended with exit status 3 and no result: nothing on stderr",
            GIB,
            FAILED,
        ),
        (
            "NoRecord",
            "ended with exit status 127 and no result: libc.so: cannot map zero-fill pages",
            GIB,
            TOO_LARGE,
        ),
        ("InternalError", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", None, TOO_LARGE),
        ("ValueError", "no such luck", GIB, FAILED),
    ],
)
def test_which_ends_are_out_of_memory(kind, message, limit, outcome):
    run = make_record(
        "failed", config={"batch_size": 64}, error={"type": kind, "message": message}
    )
    tried = largest_batch.outcome(run, limit)
    assert (tried.batch_size, tried.outcome) == (64, outcome) and message in tried.words
    assert tried.words.startswith("killed: perhaps") == ("killed by SIG" in message and "bad" not in message
                                                         and outcome == TOO_LARGE or "137" in message)  # fmt: skip


def test_a_run_that_took_more_than_it_may_does_not_fit_and_a_failure_ends_the_search():
    run = make_record(config={"batch_size": 8}, memory={"peak_process_bytes": 2 * GIB})
    assert largest_batch.outcome(run, GIB).outcome == TOO_LARGE
    assert largest_batch.outcome(run, None) == Try(
        8, FITS, 2 * GIB, rate=run.throughput.items_per_second
    )
    assert next_batch(8, [Try(8, FAILED)]) is None
    gpu = make_record(
        resolved={"device_type": "GPU"},
        memory={"peak_process_bytes": 5, "peak_device_bytes": [1 * GIB, 3 * GIB]},
    )
    assert largest_batch.outcome(gpu, None).peak_bytes == 3 * GIB


def test_free_memory_is_what_the_system_or_the_control_group_has_left(tmp_path):
    root = f"{tmp_path}/"
    assert system.available_memory_bytes(root) is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(
        "MemTotal: 100 kB\nMemAvailable:    8000 kB\n"
    )
    assert system.available_memory_bytes(root) == 8000 * 1024
    (tmp_path / "proc/self/cgroup").write_text("4:memory:/job\n0::/a/b\n")
    assert system.available_memory_bytes(root) == 8000 * 1024  # no group has a limit
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
    assert system.available_memory_bytes(root) == 4_000_000
    (second / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
    assert system.available_memory_bytes(root) == 4_500_000
    first = tmp_path / "sys/fs/cgroup/memory/job"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("3000000\n")
    (first / "memory.usage_in_bytes").write_text("2000000\n")
    assert system.available_memory_bytes(root) == 1_000_000
