"""Ranks of a trainer that is not ours: each records its own, rank 0 joins them."""

import json
import os
import socket
import subprocess
import sys
import threading

import pytest

from rnn_scaling import Recorder
from rnn_scaling.cluster import ports
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.records import record
from tests.support.paths import ROOT
from tests.test_recorder import Clock

LONG_S, SHORT_S = (
    60.0,
    0.05,
)  # more than a barrier takes on any machine; a wait that is in vain


def take_part(path, rank, step_s, num_ranks=2, timeout_s=LONG_S, warmup=2, steps=5):
    """Run one rank's program; return its record."""
    clock = Clock(1000.0 * rank)
    with Recorder(
        path,
        unit="tokens",
        num_devices=num_ranks,
        trainer="mine",
        num_warmup_batches=warmup,
        rank=rank,
        num_ranks=num_ranks,
        timeout_s=timeout_s,
        clock=clock,
    ) as one:
        meet = one._meeting.barrier
        # Rank 0 waits for the others after the warm-up, which does not belong to a step.
        one._meeting.barrier = lambda name: (
            setattr(clock, "now", clock.now + 30.0),
            meet(name),
        )
        for step in range(steps):
            clock.now += step_s(step) if callable(step_s) else step_s
            one.step(items=10 * (rank + 1), loss=float(rank), learning_rate=rank + 0.5)
    return one.close()


def run_together(*programs):
    """Run each program in a thread; return its error or None."""
    raised = [None] * len(programs)

    def run(number, program):
        try:
            program()
        except Exception as e:
            raised[number] = e

    threads = [threading.Thread(target=run, args=each) for each in enumerate(programs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LONG_S)
    return raised


def test_the_run_is_what_all_ranks_did_until_the_last_had_ended_and_no_clock_is_compared(
    tmp_path,
):
    path = tmp_path / "run.json"
    slow = [4.0, 4.0, 1.0, 2.0, 3.0]
    assert run_together(
        lambda: take_part(path, 0, 2.0), lambda: take_part(path, 1, slow.__getitem__)
    ) == [None, None]
    run = record.read(path)
    assert run.status == "ok" and run.config["num_devices"] == 2
    # Since the barrier after two batches rank 0 takes 2, 4, 6 s and rank 1 takes 1, 3, 6 s.
    assert run.batches.seconds == (4.0, 4.0, 2.0, 2.0, 2.0)
    assert run.batches.items == (30,) * 5 and run.batches.loss == (20 / 30,) * 5
    assert run.batches.learning_rate == (0.5,) * 5, "rank 0 counts"
    assert run.throughput.items_per_second == 3 * 30 / 6
    assert [
        (rank.rank, rank.seconds[2:], rank.items[0]) for rank in run.workers.ranks
    ] == [(0, (2.0, 2.0, 2.0), 10), (1, (1.0, 2.0, 3.0), 20)]
    assert "each rank counts seconds by" in run.workers.window
    assert [rank.load_others for rank in run.workers.ranks] == [None, None], (
        "each takes the other for load"
    )
    assert os.listdir(tmp_path) == ["run.json"], "the ranks' own files are gone"


def test_runs_at_the_same_place_follow_each_other(tmp_path):
    """Such as one for each epoch."""
    path = tmp_path / "run.json"

    def epochs(rank):
        return lambda: [take_part(path, rank, step_s) for step_s in (2.0, 4.0)]

    assert run_together(epochs(0), epochs(1)) == [None, None]
    assert record.read(path).batches.seconds == (4.0,) * 5
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_rank_that_never_comes_is_named_within_the_limit(tmp_path):
    path = tmp_path / "run.json"
    with pytest.raises(ClusterError, match="^rank 1 of 2 did not join within"):
        take_part(path, 0, 1.0, timeout_s=SHORT_S)
    run = record.read(path)
    assert (run.status, run.error.type) == ("failed", "ClusterError")
    assert "rank 1 of 2" in run.error.message
    with pytest.raises(ClusterError, match="rank 0 did not arrive"):
        take_part(tmp_path / "other.json", 1, 1.0, timeout_s=SHORT_S)
    assert not (tmp_path / "other.json").exists(), "rank 0 alone writes it"


def test_the_place_of_a_run_that_was_killed_is_not_taken_for_rank_0s(tmp_path):
    left = {"meeting": f"127.0.0.1:{ports.find_free()}", "job": "old", "token": "t"}
    (tmp_path / ".run.json.meeting").write_text(json.dumps(left))
    with pytest.raises(ClusterError, match="rank 0 did not arrive"):
        take_part(tmp_path / "run.json", 1, 1.0, timeout_s=SHORT_S)


def test_a_rank_with_another_number_of_steps_has_no_common_window(tmp_path):
    path = tmp_path / "run.json"
    run_together(
        lambda: take_part(path, 0, 1.0), lambda: take_part(path, 1, 1.0, steps=4)
    )
    run = record.read(path)
    assert run.status == "failed" and run.throughput is None
    assert run.error.message.startswith("rank 1 ")
    assert [len(rank.seconds) for rank in run.workers.ranks] == [5, 4], (
        "what was measured stays"
    )
    assert os.listdir(tmp_path) == ["run.json"], "the ranks' own files are gone"


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_fails_ends_the_wait_of_the_others(tmp_path, failing):
    path = tmp_path / "run.json"

    def fails(step):
        raise MemoryError("no more")

    step_s = {failing: fails, 1 - failing: 1.0}
    raised = run_together(
        lambda: take_part(path, 0, step_s[0]), lambda: take_part(path, 1, step_s[1])
    )
    assert type(raised[failing]) is MemoryError
    cause = f"rank {failing} (host {socket.gethostname()}, process {os.getpid()}) ended: no more"
    assert str(raised[1 - failing]) == cause
    run = record.read(path)
    assert run.status == "failed"
    assert run.error.message == ("no more" if failing == 0 else cause)
    assert os.listdir(tmp_path) == ["run.json"]


PROGRAM = """
import os, sys
from rnn_scaling import Recorder
with Recorder(sys.argv[1], num_devices=2, num_warmup_batches=1, timeout_s=60) as recorder:
    for step in range(4):
        if step == 2 and os.environ["RANK"] == sys.argv[2]:
            os._exit(9)
        recorder.step(items=1)
"""


def start(path, rank, dies):
    environ = {
        **os.environ,
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), str(dies)], env=environ
    )


def test_processes_of_torchrun_find_each_other_and_one_that_dies_is_named(tmp_path):
    started = [
        start(tmp_path / name, rank, dies)
        for name, dies in (("a.json", 7), ("b.json", 1))
        for rank in (1, 0)
    ]
    assert [each.wait(2 * LONG_S) for each in started] == [0, 0, 9, 0]
    good, bad = (record.read(tmp_path / name) for name in ("a.json", "b.json"))
    assert (good.status, good.workers.launcher, good.batches.items) == (
        "ok",
        "torchrun",
        (2,) * 4,
    )
    pids = [rank.pid for rank in good.workers.ranks]
    assert pids == [started[1].pid, started[0].pid]
    assert bad.status == "failed" and bad.error.message.startswith("rank 1 (host ")
    assert f"process {started[2].pid})" in bad.error.message
    assert sorted(os.listdir(tmp_path)) == ["a.json", "b.json"]
