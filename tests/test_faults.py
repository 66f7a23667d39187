"""Faults of a real local cluster.

Each fault ends the run in time, with one line that names rank and cause, a record of the
finished measurements, and without any remaining process.
"""

import errno
import os
import signal
import socket
import sys
import time

import pytest

from rnn_scaling.cluster import ports
from rnn_scaling.commands import train
from rnn_scaling.records import record
from rnn_scaling.sweeps.limited_links import network
from tests.commands.test_limited_links import list_namespaces, start
from tests.support.faults import children, is_alive, wait_until
from tests.support.forked import TINY, LocalCluster
from tests.sweeps.test_limited_links import real

# For tests that freeze a rank. The others keep the default, so that a slow rank does not
# count as lost.
HEARTBEAT_S = 4
ENDLESS = [*TINY, "--num_batches=1000000", "--cluster_timeout=60"]
COLLECTIVE, SERVERS, ASYNC = (
    f"--variable_update={mode}"
    for mode in (
        "collective_all_reduce",
        "distributed_parameter_server",
        "async_parameter_server",
    )
)
SOON_S = 60  # the limit of every run here


@pytest.fixture
def started(tmp_path):
    """Return a function that starts clusters; kill them after the test."""
    clusters = []

    def start(*words, **faults):
        by_rank = {
            int(name.removeprefix("rank_")): fault for name, fault in faults.items()
        }
        result = f"--result_file={tmp_path}/run.json"
        own = ["--workers=2", *(["--ps=1"] if COLLECTIVE not in words else [])]
        clusters.append(
            LocalCluster([*own, "--", *ENDLESS, result, *words], tmp_path, by_rank)
        )
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.kill()


def measures(cluster, tmp_path):
    """Wait until all ranks have reported batches; return their PIDs in the order of ranks."""
    cluster.wait_for("measuring")
    wait_until(
        lambda: (tmp_path / "stderr.txt").read_text().count("measuring: ") > 5,
        "batches are told",
    )
    return sorted(children(cluster.pid))


def find_both_ranks(cluster):
    """Return the PIDs of both ranks, or fewer if the cluster ends first.

    One rank may end before the other starts.
    """
    seen = set()
    wait_until(
        lambda: (
            seen.update(children(cluster.pid))
            or len(seen) == 2
            or not is_alive(cluster.pid)
        ),
        "both run",
    )
    return seen


def ends(cluster, pids, tmp_path):
    """Wait for the end of a cluster; return the line with its cause, and its record."""
    done = cluster.end(SOON_S + 60)
    assert done.returncode == 1, done.stderr
    for pid in pids:
        wait_until(lambda pid=pid: not is_alive(pid), f"{pid} is gone")
    lines = [
        line.removeprefix("error: ")
        for line in done.stderr.splitlines()
        if line.startswith("error: ")
    ]
    assert len(lines) == 1, done.stderr
    return lines[0], record.read(tmp_path / "run.json")


KILLED, FROZEN = "ended: killed or crashed", f"has not answered for {HEARTBEAT_S} s"


@pytest.mark.parametrize(
    "mode, rank, number, line, said",
    [
        (COLLECTIVE, 1, signal.SIGKILL, "rank 1 ", KILLED),
        (COLLECTIVE, 1, signal.SIGSTOP, "rank 1 ", FROZEN),
        (
            COLLECTIVE,
            0,
            signal.SIGKILL,
            "worker 0 (rank 0) was killed by SIGKILL",
            KILLED,
        ),
        (COLLECTIVE, 0, signal.SIGSTOP, "rank 0 ", FROZEN),
        (SERVERS, 2, signal.SIGKILL, "rank 2 ", KILLED),
        (
            ASYNC,
            0,
            signal.SIGKILL,
            "coordinator (rank 0) was killed by SIGKILL",
            KILLED,
        ),
    ],
    ids=[
        "worker-killed",
        "worker-frozen",
        "rank-0-killed",
        "rank-0-frozen",
        "ps-killed",
        "coordinator-killed",
    ],
)
def test_a_rank_that_is_lost_while_it_trains(
    mode, rank, number, line, said, started, tmp_path
):
    cluster = started(
        mode, f"--cluster_heartbeat={HEARTBEAT_S if number == signal.SIGSTOP else 300}"
    )
    pids = measures(cluster, tmp_path)
    os.kill(pids[rank], number)
    told, found = ends(cluster, pids, tmp_path)
    assert told.startswith(line) and (said in told or number == signal.SIGKILL)
    assert found.status == "failed"
    if rank:
        assert found.error.message.startswith(f"rank {rank} ")
        assert said in found.error.message
        assert len(found.workers.ranks) == len(pids)
        assert found.workers.ranks[rank].error == found.error.message
        assert found.batches.measured > 0 and found.workers.ranks[0].seconds


def sleep():
    time.sleep(600)


def take_engine_port():
    """Make the rank's engine choose a port on which another program listens."""
    taken = socket.socket()
    taken.bind(("", 0))
    taken.listen()
    port = taken.getsockname()[1]
    taken.detach()
    ports.find_free = lambda *_: port


def fill_disk():
    """Let every record but the first fail with a full disk.

    The first record is written before anything else.
    """
    fsync, count = os.fsync, [0]

    def full(file):
        count[0] += 1
        if count[0] > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(file)

    os.fsync = full


def differ_in_flags():
    main = train.main
    train.main = lambda: main([*sys.argv[1:], "--seed=7"])


def take_rendezvous_port():
    """Listen on the port that rank 0 needs for the rendezvous."""
    taken = socket.create_server(ports.split(os.environ["RNN_SCALING_MEETING"]))
    taken.detach()


@pytest.mark.parametrize(
    "fault, rank, words, line",
    [
        (
            sleep,
            1,
            ["--cluster_timeout=2"],
            "rank 1 of 2 did not join within 2 s (--cluster_timeout)",
        ),
        (take_engine_port, 1, [], "rank 1 (host 127.0.0.1, process "),
        (take_rendezvous_port, 0, [], "port "),
        (
            differ_in_flags,
            1,
            [],
            "rank 1 (host 127.0.0.1): --seed=7, but rank 0 has --seed=1; ",
        ),
    ],
    ids=["never-joins", "engine-port-taken", "rendezvous-port-taken", "other-flags"],
)
def test_a_rank_that_does_not_fit(fault, rank, words, line, started, tmp_path):
    cluster = started(COLLECTIVE, *words, **{f"rank_{rank}": fault})
    told, found = ends(cluster, find_both_ranks(cluster), tmp_path)
    assert told.startswith(line)
    assert found.status == "failed" and found.error.message == told


def test_a_full_disk_at_the_record(started, tmp_path):
    cluster = started(
        COLLECTIVE, "--num_batches=3", "--cluster_heartbeat=300", rank_0=fill_disk
    )
    told, _ = ends(cluster, find_both_ranks(cluster), tmp_path)
    assert told.startswith(f"--result_file={tmp_path}/run.json: No space left")


@real
def test_a_link_that_breaks_ends_the_run_by_the_ranks_name(tmp_path):
    """Break the link in the middle of the real trainer's steps."""
    endless = ["--num_batches=1000000", "--cluster_heartbeat=1", "--cluster_timeout=60"]
    tiny = [word for word in TINY if "num_batches" not in word]
    result = tmp_path / "run.json"
    process = start(
        "--link_mbit=1000",
        "--",
        COLLECTIVE,
        *tiny,
        *endless,
        f"--result_file={result}",
        fake="",
    )
    assert process.stderr is not None
    next(line for line in process.stderr if line.startswith("measuring: "))
    _, _, worker_1 = list_namespaces(process)
    worker_1.call(f"ip link set {network.DEVICE} down")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    [line] = (line for line in err.splitlines() if line.startswith("error: "))
    assert line.startswith("error: rank 1 (host 10.200.0.2, process ")
    assert line.endswith("network to it is down")
    failed = record.read(result)
    assert failed.status == "failed" and failed.error and failed.error.message in line
    assert failed.batches.seconds
    assert failed.workers
    assert failed.workers.link
    assert "1000 Mbit/s" in failed.workers.link
