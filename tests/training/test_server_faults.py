"""Killed or frozen servers, workers and coordinators.

tests/test_faults.py kills the server of a synchronous run, and the coordinator.
"""

import re
import signal

import pytest

from rnn_scaling.records import record
from tests.support import forked
from tests.support.ranks import Ranks, signal_others

# Only a run with a frozen rank waits for it. On a busy machine, five processes that
# load their graphs may be silent for some seconds.
HEARTBEAT_S = 10
FAST = [*forked.TINY, "--progress=false", "--cluster_timeout=60"]
SYNC = [
    "--variable_update=distributed_parameter_server",
    "--num_workers=2",
    "--num_ps=1",
]  # ranks 0 and 1, 2
ASYNC = [
    "--variable_update=async_parameter_server",
    "--num_workers=3",
    "--num_ps=1",
]  # rank 0, ranks 1 to 3, 4
ENDLESS = ["--num_batches=1000000"]
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


def _run(folder, words, size, *signals):
    """Return the ended ranks and the record of a run in which rank 0 sends signals."""
    frozen = {rank for _, rank, number in signals if number == STOP}
    heartbeat = f"--cluster_heartbeat={HEARTBEAT_S if frozen else 300}"
    words = [*FAST, *words, heartbeat, f"--result_file={folder}/run.json"]
    with Ranks(words, folder, size, prepare={0: (signal_others, *signals)}) as ranks:
        ended = {
            rank: trainer.end(120)
            for rank, trainer in enumerate(ranks.trainers)
            if rank not in frozen
        }
    return ended, record.read(folder / "run.json")


@pytest.mark.parametrize(
    "mode, victim, number, cause",
    [
        (SYNC, 1, KILL, "killed or crashed"),
        (SYNC, 1, STOP, "frozen"),
        (ASYNC, 4, KILL, "killed or crashed"),
    ],
)
def test_the_run_ends_at_every_rank_with_a_line_that_names_the_lost_one(
    mode, victim, number, cause, tmp_path
):
    size = 3 if mode is SYNC else 5
    ended, run = _run(tmp_path, [*mode, *ENDLESS], size, (4, victim, number))
    assert run.status == "failed" and len(run.batches.seconds) >= 4
    assert re.match(
        rf"rank {victim} \(host 127\.0\.0\.1, process \d+\) .*{cause}",
        run.error.message,
    )
    assert run.error.message in ended[0].stderr
    assert {ended[rank].returncode for rank in set(ended) - {victim}} == {1}


def test_workers_that_are_lost_are_named_and_the_others_go_on(tmp_path):
    ended, run = _run(
        tmp_path, [*ASYNC, "--num_batches=8"], 5, (3, 2, KILL), (5, 3, STOP)
    )
    assert ended[0].returncode == 0, ended[0].stderr
    assert run.status == "ok" and (run.batches.warmup, run.batches.measured) == (2, 8)
    assert [lost.rank for lost in run.workers.lost] == [2, 3]
    for lost, word in zip(run.workers.lost, ("killed", "frozen")):
        assert word in lost.error and f"warning: {lost.error};" in ended[0].stderr
    workers = run.workers.ranks[1:4]
    assert (
        sum(len(worker.items) for worker in workers)
        == 3 * 10
        == sum(run.workers.staleness.values()) + 3 * 2
    )
    assert sum(sum(worker.items) for worker in workers) == sum(run.batches.items)
    assert len(workers[0].items) > max(len(workers[1].items), len(workers[2].items))
