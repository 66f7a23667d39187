"""Ranks that join, agree, wait for each other and leave."""

import json
import os
import resource
import socket
import threading
import time

import pytest

from rnn_scaling.cluster import introduction, ports, rank_info, server, wire
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.rank_connection import RankConnection
from tests.cluster.ranks import (
    PATIENCE_S,
    VERSIONS,
    connect,
    find_free_address,
    join_and_leave,
    join_connections,
    make_connection,
    make_connections,
    make_hello,
    make_launch,
    meet_and_leave,
    run_together,
    start_in_background,
)

MANY = 256


def test_ranks_join_pass_barriers_gather_report_and_leave():
    hellos = [{"address": f"h{rank}:1"} for rank in range(4)]
    connections = make_connections(
        4, [(rank, {"hello": hellos[rank]}) for rank in range(4)]
    )
    address = connections[0]._launch.rendezvous

    def run(connection):
        joined = connection.join()
        connection.barrier("step")
        connection.barrier("step")  # A name may be used again.
        gathered = connection.gather("values", {"seconds": [0.5, float("inf")]})
        connection.report([1, 2])
        connection.report("x")
        connection.barrier("end")
        reports = connection.list_reports()
        connection.leave()
        connection.leave()  # It does nothing.
        return joined, gathered, reports

    results = run_together(connections, run)
    pid = os.getpid()
    expected = tuple(
        rank_info.RankInfo(rank, "worker", f"h{rank}", pid, f"h{rank}:1")
        for rank in range(4)
    )
    assert [result[0] for result in results] == [expected] * 4
    assert [result[1] for result in results] == [
        [{"seconds": [0.5, float("inf")]}] * 4,
        None,
        None,
        None,
    ]
    assert results[0][2] == dict.fromkeys(range(4), [[1, 2], "x"])
    assert results[1][2] == {}
    assert not any(
        connection.failed.is_set() or connection.lost for connection in connections
    )
    with socket.create_server(ports.split(address)):  # The port is free again.
        pass


def test_ranks_wait_for_a_slow_rank_0(monkeypatch):
    """Expect ranks to keep waiting.

    A rank that disconnected and connected again would look like a rank that crashed.
    """
    monkeypatch.setattr(introduction, "CONNECT_S", 0.1)
    accept = server.Server.accept

    def slowly(self):
        time.sleep(0.5)
        accept(self)

    monkeypatch.setattr(server.Server, "accept", slowly)
    assert run_together(make_connections(3), join_and_leave) == ["left"] * 3


@pytest.mark.parametrize(
    "hello, rule",
    [
        (
            {"flags": {"batch_size": 64, "kernel": "a"}},
            "--batch_size=64 --kernel=a, but rank 0 has --batch_size=32 no --kernel; give every rank the same flags",
        ),
        (
            {"versions": VERSIONS | {"tensorflow": "2.20.0"}, "flags": {"a": 1}},
            "tensorflow 2.20.0, but rank 0 has tensorflow 2.21.0; install the same versions on every host",
        ),
    ],
    ids=["flags", "versions"],
)
def test_ranks_that_differ_end_every_rank_with_one_line(hello, rule):
    ranks = [(0, {}), (1, {"hello": hello}), (2, {"hello": hello})]
    connections = make_connections(3, ranks)
    line = f"ranks 1 and 2: {rule}"
    assert run_together(connections, join_and_leave) == [line] * 3
    failure = Failure(FailureKind.NOT_JOINED, None, line)
    assert [connection.failure for connection in connections] == [failure] * 3


def test_ranks_that_never_join_are_named_to_those_that_did():
    connections = make_connections(4, [(0, {"timeout_s": 0.5}), (3, {})])
    address = connections[0]._launch.rendezvous
    rule = "ranks 1 and 2 of 4 did not join within 0.5 s (--cluster_timeout)"
    line = f"{rule}; check their output, and whether their hosts can reach {address}"
    assert run_together(connections, join_and_leave) == [line] * 2


@pytest.mark.parametrize(
    "is_seen", [False, True], ids=["before it is seen", "while it waits"]
)
def test_an_interruption_of_rank_0_reaches_ranks_that_wait_to_join(
    is_seen, monkeypatch
):
    """Interrupt rank 0 before or after the answer to its own hello.

    The other rank has already joined.
    """
    both = make_connections(3, [(0, {}), (1, {})])
    introduced = both[0]._introduction.send_hello

    def interrupt():
        while not (both[0]._rendezvous and both[0]._rendezvous.list_other_ranks()) or (
            is_seen and both[0]._receiver is None
        ):
            time.sleep(0.01)
        both[0].abort("interrupted by SIGINT")

    def introduce(*arguments):
        connection = introduced(*arguments)
        if not is_seen:
            both[0].failed.wait(PATIENCE_S)
        return connection

    monkeypatch.setattr(both[0]._introduction, "send_hello", introduce)
    threading.Thread(target=interrupt, daemon=True).start()
    line = f"rank 0 (host h0, process {os.getpid()}) ended: interrupted by SIGINT"
    assert run_together(both, RankConnection.join) == [line, line]


def test_a_rank_whose_rank_0_never_listens_says_so():
    address = find_free_address()
    with pytest.raises(ClusterError) as error:
        make_connection(1, 2, address, timeout_s=0.5).join()
    line = str(error.value)
    assert line.startswith("rank 1: ")
    assert address in line
    assert "0.5 s (--cluster_timeout)" in line
    assert "Connection refused" in line and "--coordinator_address=HOST:PORT" in line


def test_two_processes_of_one_rank_end_the_run():
    connections = make_connections(
        3, [(0, {}), (1, {}), (1, {"launch": {"host": "other"}})]
    )
    lines = run_together(connections, join_and_leave)
    assert len(set(lines)) == 1 and "two processes with the same rank" in lines[0]
    assert "(host h1, " in lines[0] and "(host other, " in lines[0]


def test_a_rank_of_another_size_ends_the_run():
    address = find_free_address()
    connections = [make_connection(0, 2, address), make_connection(1, 3, address)]
    sizes = "was started as one of 3 ranks, but rank 0 as one of 2; start all ranks with one command"
    assert (
        run_together(connections, join_and_leave)
        == [f"rank 1 (host h1, process {os.getpid()}) {sizes}"] * 2
    )


def test_a_late_second_process_of_a_rank_is_sent_away_and_disturbs_nobody():
    connections = join_connections(2)
    with pytest.raises(
        ClusterError, match="has begun without it; start all ranks with one command"
    ):
        make_connection(1, 2, connections[0]._launch.rendezvous).join()
    assert run_together(connections, meet_and_leave) == ["left"] * 2


def test_the_port_of_rank_0_is_taken():
    with socket.create_server((ports.LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            ClusterError,
            match=f"port {port} of 127.0.0.1.*--coordinator_address=HOST:PORT",
        ):
            make_connection(0, 2, f"127.0.0.1:{port}").join()


@pytest.mark.parametrize(
    "host, rule",
    [
        ("192.0.2.7", "192.0.2.7 is not an address of this host, where rank 0 runs"),
        ("no.such.invalid", "cannot listen at"),
    ],
)
def test_rank_0_runs_elsewhere_than_its_address_says(host, rule):
    with pytest.raises(ClusterError, match=rule):
        make_connection(0, 2, f"{host}:20001").join()


def test_hundreds_of_ranks_join_and_pass_a_barrier():
    """Use plain connections, because a thread per rank would mainly test threads."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MANY)), hard))
    address = find_free_address()
    first = make_connection(0, MANY, address)
    outcome = []
    thread = threading.Thread(
        target=lambda: outcome.extend(run_together([first], meet_and_gather)),
        daemon=True,
    )
    thread.start()
    others = []
    try:
        for rank in range(1, MANY):
            others.append(connect(address))
            others[-1].sendall(make_hello(rank, MANY))
        files = [other.makefile("rb") for other in others]
        assert {json.loads(file.readline())["kind"] for file in files} == {"seen"}
        assert {len(receive_next(file, "welcome")["peers"]) for file in files} == {MANY}
        for rank, other in enumerate(others, 1):
            other.sendall(
                wire.encode(
                    "come", name="squares", timeout_s=PATIENCE_S, value=rank * rank
                )
            )
        assert {receive_next(file, "pass")["name"] for file in files} == {"squares"}
        for other in others:
            other.sendall(wire.encode("leave"))
        thread.join(PATIENCE_S)
        assert outcome == [(MANY, [rank * rank for rank in range(MANY)])]
    finally:
        for other in others:
            other.close()


def meet_and_gather(connection):
    size = len(connection.join())
    gathered = connection.gather("squares", 0)
    connection.leave()
    return size, gathered


def receive_next(file, kind):
    while (message := json.loads(file.readline()))["kind"] != kind:
        assert message["kind"] == "beat"
    return message


def test_a_barrier_that_one_rank_never_reaches():
    connections = make_connections(3)

    def body(connection):
        connection.join()
        if connection is connections[2]:
            connection.failed.wait(PATIENCE_S)
            return connection.failure.message
        return connection.barrier("step", timeout_s=0.3)

    lines = run_together(connections, body)
    assert len(set(lines)) == 1
    assert lines[0].startswith("rank 2 ")
    assert "'step' within 0.3 s" in lines[0]


def test_a_rank_that_leaves_while_others_wait_for_it():
    connections = join_connections(2)
    lines = run_together(
        connections,
        lambda connection: (
            connection.barrier("end")
            if connection is connections[0]
            else connection.leave()
        ),
    )
    assert lines[0].startswith("rank 1 (host h1, ") and "left before 'end'" in lines[0]


def test_rank_0_leaves_last():
    connections = join_connections(3)
    first = start_in_background(connections[0], RankConnection.leave)
    run_together(connections[1:2], RankConnection.leave)
    first.join(0.3)
    connections[2].report("late")
    assert run_together(connections[2:], RankConnection.leave) == [None]
    first.join(PATIENCE_S)
    assert connections[0].list_reports() == {2: ["late"]}
    assert not any(connection.failed.is_set() for connection in connections)


def test_rank_0_waits_for_ranks_that_have_not_left_within_its_time_limit():
    connections = join_connections(2)
    connections[0]._timeout_s = 0.3
    [line] = run_together(connections[:1], RankConnection.leave)
    assert "rank 1 did not leave" in line
    assert line.endswith("within 0.3 s (--cluster_timeout)")
    assert connections[1].failed.wait(PATIENCE_S)
    assert connections[1].failure.message == line


def test_a_report_must_be_json_and_may_be_long():
    connections = join_connections(2)
    with pytest.raises(TypeError):
        connections[1].report({1, 2})
    big = "x" * (wire.MAX_STRANGER_BYTES * 2)  # more than a stranger may send
    connections[1].report(big)
    assert run_together(connections, meet_and_leave) == ["left"] * 2
    assert connections[0].list_reports() == {1: [big]}


@pytest.mark.parametrize(
    "host, bound",
    [("localhost", True), ("127.0.0.1", True), (socket.gethostname(), False)],
)
def test_rank_0_listens_only_on_loopback_unless_other_machines_take_part(host, bound):
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        pytest.skip("this host's name has no address")
    launch = make_launch(
        0, 2, ports.join(host, ports.find_free(ports.RENDEZVOUS_PORTS))
    )
    with server.listen(launch) as listener:
        assert ports.is_loopback(listener.getsockname()[0]) is bound
