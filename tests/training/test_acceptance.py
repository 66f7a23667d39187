"""What a Recorder accepts is what readers accept, and nothing that goes wrong costs the loop its steps or its error."""

from __future__ import annotations

import errno
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

ODD = [
    *(
        0,
        1,
        -1,
        3,
        2**53 + 1,
        10**18,
        10**18 + 1,
        10**308,
        10**400,
        10**5000,
        -(10**400),
        True,
        False,
        None,
    ),
    *(
        0.0,
        -0.0,
        0.5,
        1.0,
        1e-300,
        1e18,
        1.1e18,
        3.4e38,
        3.6e38,
        1e308,
        -1e308,
        math.inf,
        -math.inf,
        math.nan,
    ),
    *(
        "5",
        "",
        "tokens",
        "a\nb",
        "\x1b[2J",
        "\ud800",
        b"5",
        1j,
        [],
        [1],
        {},
        (1, 2),
        object,
        np.ones(2),
    ),
    *(
        np.int8(5),
        np.int64(2**62),
        np.uint64(2**63),
        np.float16(6e4),
        np.float32(3e38),
        np.float64(1e308),
    ),
    *(
        np.longdouble("1e4000"),
        np.bool_(True),
        np.asarray(7),
        np.asarray([7.0]),
        np.complex64(1),
        np.str_("x"),
    ),
]
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
    """No look at this machine for each of hundreds of runs."""
    monkeypatch.setattr(load.LoadMeter, "read", lambda self: None)
    monkeypatch.setattr("rnn_scaling.training.recording.read_environment", lambda _: {})
    monkeypatch.setattr(
        "rnn_scaling.system.machine.clock_sampler.start", lambda resolved: None
    )


def test_what_is_accepted_is_read(tmp_path):
    """The arguments are refused with a ValueError, or every reader takes the record, as good where steps are left."""
    ends = []
    for seed in range(300):
        path = tmp_path / f"{seed}.json"
        ends.append(end_of_run(random.Random(seed), path))
        assert path.exists() == (ends[-1] != "refused"), seed
    assert {"refused", "ok"} <= set(ends)


def end_of_run(draw, path):
    """Says "refused", or the status of a run of odd steps whose record was read."""
    now = [0.0]
    given = {
        name: draw.choice(ODD)
        for name in draw.sample(ARGUMENTS, draw.choice((0, 0, 1, 2)))
    }
    given |= (
        {"options": {draw.choice(("hidden", "batch_size", 5, None)): draw.choice(ODD)}}
        if not given
        else {}
    )
    try:
        recorder = Recorder(
            path, **{"num_warmup_batches": 0, **given}, clock=lambda: now[0]
        )
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
    left = recorder.close()
    run = record.read(path)
    assert run.batches.items == left.batches.items
    assert (run.status == "ok") == (
        len(run.batches.items) > run.config["num_warmup_batches"]
    )
    return run.status


def test_items_that_are_too_many_cost_none_of_the_steps_before(tmp_path):
    with (
        pytest.raises(ValueError, match="step 1"),
        Recorder(tmp_path / "run.json", num_warmup_batches=0) as recorder,
    ):
        recorder.step(items=3, loss=1e300)
        recorder.step(items=1e308)
    run = record.read(tmp_path / "run.json")
    assert (run.error.type, run.batches.items, run.batches.loss) == (
        "ValueError",
        (3,),
        (None,),
    )


def test_a_record_that_nobody_could_read_is_a_failed_one_of_the_same_steps(
    tmp_path, capsys
):
    now = [0.0]
    started_by_another_clock = 100.0
    options = {
        "num_warmup_batches": 0,
        "clock": lambda: now[0],
        "started": started_by_another_clock,
    }
    with Recorder(tmp_path / "run.json", **options) as recorder:
        now[0] += 1.0
        recorder.step(items=3)
    run = record.read(tmp_path / "run.json")
    assert (run.status, run.error.type, run.batches.items) == (
        "failed",
        "RecordError",
        (3,),
    )
    assert (
        "phases.start" in run.error.message
        and "phases.start" in capsys.readouterr().err
    )


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


def full(monkeypatch):
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
        full(monkeypatch)
        raise KeyError("weights")
    err = capsys.readouterr().err
    assert (
        f"warning: {tmp_path / 'run.json'}: No space left" in err
        and recorder.step_items == [3]
    )


def test_a_full_disk_is_told_and_the_steps_can_be_written_again(tmp_path, monkeypatch):
    recorder = Recorder(tmp_path / "run.json", num_warmup_batches=0)
    with (
        monkeypatch.context() as patched,
        pytest.raises(OSError, match="No space left") as told,
        recorder,
    ):
        recorder.step(items=3)
        full(patched)
    assert (
        told.value.filename == str(tmp_path / "run.json")
        and record.read(tmp_path / "run.json").status == "failed"
    )
    assert recorder.close().status == record.read(tmp_path / "run.json").status == "ok"
