"""A Recorder accepts exactly the arguments that readers accept.

No fault costs the loop its steps or hides its error.
"""

import errno
import itertools
import math
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from rnn_scaling import Recorder
from rnn_scaling.records import record
from rnn_scaling.system.machine import load
from tests.support.paths import ROOT

INTEGERS = [0, 1, -1, 3, 2**53 + 1, 10**18 + 1, 10**308, 10**400, True, None]
FLOATS = [0.0, 0.5, 1e-300, 1.1e18, 3.6e38, 1e308, -1e308, math.inf, math.nan]
OBJECTS = ["5", "", "a\nb", "\ud800", b"5", 1j, [1], {}, object, np.ones(2)]
NUMPY = [
    np.int8(5),
    np.uint64(2**63),
    np.float16(6e4),
    np.longdouble("1e4000"),
    np.bool_(True),
    np.asarray([7.0]),
    np.complex64(1),
]
ODD = [*INTEGERS, *FLOATS, *OBJECTS, *NUMPY]
ARGUMENTS = (
    "unit",
    "num_devices",
    "trainer",
    "num_warmup_batches",
    "device_type",
    "flops_per_item",
)
SECONDS = (1e-15, 1e-9, 0.01, 1.0, 1e9, 0.0, -1.0, 1e19, math.nan)


@pytest.fixture(autouse=True)
def unwatched(monkeypatch):
    """Do not inspect this machine for each of hundreds of runs."""
    monkeypatch.setattr(load.LoadMeter, "read", lambda self: None)
    monkeypatch.setattr("rnn_scaling.training.recording.read_environment", lambda _: {})
    monkeypatch.setattr(
        "rnn_scaling.system.machine.clock_sampler.start", lambda resolved: None
    )


def test_what_is_accepted_is_read(tmp_path):
    """Arguments raise a ValueError, or every reader accepts the record."""
    ends = []
    for seed in range(100):
        path = tmp_path / f"{seed}.json"
        ends.append(end_of_run(random.Random(seed), path))
        assert path.exists() == (ends[-1] != "refused"), seed
    assert {"refused", "ok"} <= set(ends)


def end_of_run(draw, path):
    """Return "refused", or the status of a run of odd steps whose record was read."""
    now = [0.0]
    names = draw.sample(ARGUMENTS, draw.choice((0, 0, 1, 2)))
    given = {name: draw.choice(ODD) for name in names}
    if not given:
        option = draw.choice(("hidden", "batch_size", 5, None))
        given = {"options": {option: draw.choice(ODD)}}
    given = {"num_warmup_batches": 0, **given}
    try:
        recorder = Recorder(path, **given, clock=lambda: now[0])
    except ValueError:
        return "refused"
    record.read(path)
    recorder.start()
    for _ in range(6):
        before, step_s = now[0], draw.choice(SECONDS[: draw.choice((4, 9))])
        now[0] += step_s
        try:
            recorder.step(
                draw.choice([*ODD, *(3, 5, 10**17) * 7]),
                draw.choice([*ODD, *(2.0, 3.0) * 20]),
            )
        except ValueError:
            now[0] = before
            recorder.resume()
    closed = recorder.close()
    run = record.read(path)
    assert run.batches.items == closed.batches.items
    num_measured = len(run.batches.items) - run.config["num_warmup_batches"]
    assert (run.status == "ok") == (num_measured > 0)
    return run.status


def test_a_record_that_nobody_could_read_is_a_failed_one_of_the_same_steps(
    tmp_path, capsys
):
    clock = itertools.count().__next__
    options = {"num_warmup_batches": 0, "clock": clock}
    # `started` is the time of another clock.
    with Recorder(tmp_path / "run.json", **options, started=100.0) as recorder:
        recorder.step(items=3)
    run = record.read(tmp_path / "run.json")
    assert (run.status, run.error.type) == ("failed", "RecordError")
    assert run.batches.items == (3,)
    for text in (run.error.message, capsys.readouterr().err):
        assert "phases.start" in text


def test_a_forked_child_that_leaves_the_block_writes_nothing(tmp_path):
    code = (
        "import os, sys\n"
        "from rnn_scaling import Recorder\n"
        "with Recorder(sys.argv[1], num_warmup_batches=0) as recorder:\n"
        "    recorder.step(items=3)\n"
        "    if not os.fork():\n"
        "        sys.exit(3)\n"
        "    os.wait()\n"
        "    assert 'Killed' in open(sys.argv[1]).read()\n"
        "    recorder.step(items=4)\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "run.json")]
    subprocess.run(
        command, check=True, timeout=60, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    run = record.read(tmp_path / "run.json")
    assert (run.status, run.batches.items) == ("ok", (3, 4))


def fill_disk(monkeypatch):
    def fsync(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)


def test_a_full_disk_does_not_replace_the_error_of_the_loop(
    tmp_path, monkeypatch, capsys
):
    with (
        pytest.raises(KeyError, match="weights"),
        Recorder(tmp_path / "run.json") as recorder,
    ):
        recorder.step(items=3)
        fill_disk(monkeypatch)
        raise KeyError("weights")
    assert f"{tmp_path / 'run.json'}: No space left" in capsys.readouterr().err
    assert recorder.step_items == [3]


def test_a_full_disk_is_told_and_the_steps_can_be_written_again(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path / "run.json", num_warmup_batches=0)
    path = tmp_path / "run.json"
    with (
        monkeypatch.context() as patched,
        pytest.raises(OSError, match=f"No space left.*{path}"),
        recorder,
    ):
        recorder.step(items=3)
        fill_disk(patched)
    assert record.read(path).status == "failed"
    assert recorder.close().status == record.read(path).status == "ok"
