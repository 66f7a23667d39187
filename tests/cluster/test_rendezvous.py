"""Ranks that join, agree, wait for each other and leave; and what a meeting makes of strangers and of mistakes."""

from __future__ import annotations

import json
import os
import resource
import socket
import threading
import time

import pytest

from rnn_scaling.cluster import member as member_module
from rnn_scaling.cluster import peers, ports, wire
from rnn_scaling.cluster import rendezvous as meetings
from rnn_scaling.cluster.failure import ClusterError, Failure, FailureKind
from rnn_scaling.cluster.member import Member
from tests.cluster.ranks import (
    PATIENCE_S,
    VERSIONS,
    a_hello,
    a_launch,
    a_meeting,
    a_member,
    connected,
    in_background,
    join_and_leave,
    joined_members,
    members_of,
    together,
)

MANY = 256


def test_ranks_join_pass_barriers_gather_report_and_leave():
    hellos = [{"address": f"h{rank}:1"} for rank in range(4)]
    members = members_of(4, [(rank, {"hello": hellos[rank]}) for rank in range(4)])
    meeting = members[0]._launch.meeting

    def run(member):
        joined = member.join()
        member.barrier("step")
        member.barrier("step")  # a name may come again
        gathered = member.gather("values", {"seconds": [0.5, float("inf")]})
        member.report([1, 2])
        member.report("x")
        member.barrier("end")
        reports = member.reports()
        member.leave()
        member.leave()  # nothing more
        return joined, gathered, reports

    results = together(members, run)
    pid = os.getpid()
    expected = tuple(
        peers.Peer(rank, "worker", f"h{rank}", pid, f"h{rank}:1") for rank in range(4)
    )
    assert [result[0] for result in results] == [expected] * 4
    assert [result[1] for result in results] == [
        [{"seconds": [0.5, float("inf")]}] * 4,
        None,
        None,
        None,
    ]
    assert (
        results[0][2] == dict.fromkeys(range(4), [[1, 2], "x"]) and results[1][2] == {}
    )
    assert not any(member.failed.is_set() or member.lost for member in members)
    with socket.create_server(ports.split(meeting)):  # nothing listens there any longer
        pass


def test_a_rank_0_that_is_slow_to_answer_is_waited_for(monkeypatch):
    """Nobody gives up and comes again, which would look as if it had crashed."""
    monkeypatch.setattr(member_module, "CONNECT_S", 0.1)
    accept = meetings.Rendezvous._accept

    def slowly(meeting):
        time.sleep(0.5)
        accept(meeting)

    monkeypatch.setattr(meetings.Rendezvous, "_accept", slowly)
    assert together(members_of(3), join_and_leave) == ["left"] * 3


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
    members = members_of(3, ranks)
    line = f"ranks 1 and 2: {rule}"
    assert together(members, join_and_leave) == [line] * 3
    failure = Failure(FailureKind.NOT_JOINED, None, line)
    assert [member.failure for member in members] == [failure] * 3


def test_ranks_that_never_join_are_named_to_those_that_did():
    members = members_of(4, [(0, {"timeout_s": 0.5}), (3, {})])
    meeting = members[0]._launch.meeting
    rule = "ranks 1 and 2 of 4 did not join within 0.5 s (--cluster_timeout)"
    line = f"{rule}; see what they printed, and whether their hosts reach {meeting}"
    assert together(members, join_and_leave) == [line] * 2


@pytest.mark.parametrize(
    "is_seen", [False, True], ids=["before it is seen", "while it waits"]
)
def test_an_interrupted_rank_0_is_told_to_who_waits_with_it_for_others(
    is_seen, monkeypatch
):
    """Also if it is interrupted before its own thread has the answer to its hello, when others have joined already."""
    both = members_of(3, [(0, {}), (1, {})])
    introduced = both[0]._introduced

    def interrupt():
        while not (both[0]._meeting and both[0]._meeting.others()) or (
            is_seen and both[0]._channel is None
        ):
            time.sleep(0.01)
        both[0].abort("interrupted by SIGINT")

    def introduce(*given):
        connection = introduced(*given)
        if not is_seen:
            both[0].failed.wait(PATIENCE_S)
        return connection

    monkeypatch.setattr(both[0], "_introduced", introduce)
    threading.Thread(target=interrupt, daemon=True).start()
    line = f"rank 0 (host h0, process {os.getpid()}) ended: interrupted by SIGINT"
    assert together(both, Member.join) == [line, line]


def test_a_rank_whose_rank_0_never_listens_says_so():
    meeting = a_meeting()
    with pytest.raises(ClusterError) as error:
        a_member(1, 2, meeting, timeout_s=0.5).join()
    line = str(error.value)
    assert (
        line.startswith("rank 1: ")
        and meeting in line
        and "0.5 s (--cluster_timeout)" in line
    )
    assert "Connection refused" in line and "--coordinator_address=HOST:PORT" in line


def test_two_processes_of_one_rank_end_the_run():
    members = members_of(3, [(0, {}), (1, {}), (1, {"launch": {"host": "other"}})])
    lines = together(members, join_and_leave)
    assert len(set(lines)) == 1 and "two processes with the same rank" in lines[0]
    assert "(host h1, " in lines[0] and "(host other, " in lines[0]


def test_a_second_process_of_a_rank_reports_nothing():
    meeting = a_meeting()
    first = a_member(0, 3, meeting)
    thread = in_background(first, Member.join)
    with connected(meeting) as second, connected(meeting) as third:
        second.sendall(a_hello(1, 3) + wire.encode("report", values="first"))
        assert second.recv(1)  # it has been seen, and so comes before the other
        third.sendall(a_hello(1, 3) + wire.encode("report", values="second"))
        assert (
            first.failed.wait(PATIENCE_S)
            and "two processes with the same rank" in first.failure.message
        )
    thread.join(PATIENCE_S)
    assert first.reports() == {1: ["first"]}


def test_a_rank_of_another_size_ends_the_run():
    meeting = a_meeting()
    members = [a_member(0, 2, meeting), a_member(1, 3, meeting)]
    sizes = "was started as one of 3 ranks, rank 0 as one of 2; start all ranks with one command"
    assert (
        together(members, join_and_leave)
        == [f"rank 1 (host h1, process {os.getpid()}) {sizes}"] * 2
    )


def test_a_late_second_process_of_a_rank_is_sent_away_and_disturbs_nobody():
    members = joined_members(2)
    with pytest.raises(
        ClusterError, match="has begun without it; start all ranks by one command"
    ):
        a_member(1, 2, members[0]._launch.meeting).join()
    assert (
        together(
            members, lambda member: (member.barrier("still there"), member.leave())
        )
        == [(None, None)] * 2
    )


def test_the_port_of_rank_0_is_taken():
    with socket.create_server((ports.LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            ClusterError,
            match=f"port {port} of 127.0.0.1.*--coordinator_address=HOST:PORT",
        ):
            a_member(0, 2, f"127.0.0.1:{port}").join()


@pytest.mark.parametrize(
    "host, rule",
    [
        ("192.0.2.7", "192.0.2.7 is no address of this host, where rank 0 runs"),
        ("no.such.invalid", "cannot wait at"),
    ],
)
def test_rank_0_runs_elsewhere_than_its_address_says(host, rule):
    with pytest.raises(ClusterError, match=rule):
        a_member(0, 2, f"{host}:20001").join()


def test_hundreds_of_ranks_join_and_pass_a_barrier():
    """As plain connections: a thread for each would be a test of threads."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * MANY)), hard))
    meeting = a_meeting()
    first = a_member(0, MANY, meeting)
    outcome = []
    thread = threading.Thread(
        target=lambda: outcome.extend(together([first], many_ranks_body)), daemon=True
    )
    thread.start()
    others = []
    try:
        for rank in range(1, MANY):
            others.append(connected(meeting))
            others[-1].sendall(a_hello(rank, MANY))
        files = [other.makefile("rb") for other in others]
        assert {json.loads(file.readline())["kind"] for file in files} == {"seen"}
        assert {len(next_of(file, "welcome")["peers"]) for file in files} == {MANY}
        for rank, other in enumerate(others, 1):
            other.sendall(
                wire.encode(
                    "come", name="squares", timeout_s=PATIENCE_S, value=rank * rank
                )
            )
        assert {next_of(file, "pass")["name"] for file in files} == {"squares"}
        for other in others:
            other.sendall(wire.encode("leave"))
        thread.join(PATIENCE_S)
        assert outcome == [(MANY, [rank * rank for rank in range(MANY)])]
    finally:
        for other in others:
            other.close()


def many_ranks_body(member):
    size = len(member.join())
    gathered = member.gather("squares", 0)
    member.leave()
    return size, gathered


def next_of(file, kind):
    while (message := json.loads(file.readline()))["kind"] != kind:
        assert message["kind"] == "beat"
    return message


def test_a_barrier_that_one_rank_never_reaches():
    members = members_of(3)

    def body(member):
        member.join()
        if member is members[2]:
            member.failed.wait(PATIENCE_S)
            return member.failure.message
        return member.barrier("step", timeout_s=0.3)

    lines = together(members, body)
    assert (
        len(set(lines)) == 1
        and lines[0].startswith("rank 2 ")
        and "'step' within 0.3 s" in lines[0]
    )


def test_a_rank_that_leaves_while_others_wait_for_it():
    members = joined_members(2)
    lines = together(
        members,
        lambda member: (
            member.barrier("end") if member is members[0] else member.leave()
        ),
    )
    assert lines[0].startswith("rank 1 (host h1, ") and "left before 'end'" in lines[0]


def test_rank_0_leaves_last():
    members = joined_members(3)
    first = in_background(members[0], Member.leave)
    together(members[1:2], Member.leave)
    first.join(0.3)
    members[2].report("late")
    assert together(members[2:], Member.leave) == [None]
    first.join(PATIENCE_S)
    assert members[0].reports() == {2: ["late"]} and not any(
        member.failed.is_set() for member in members
    )


def test_rank_0_waits_for_who_has_not_left_but_not_for_ever():
    members = joined_members(2)
    members[0]._timeout_s = 0.3
    (line,) = together(members[:1], Member.leave)
    assert "rank 1 did not leave" in line and line.endswith(
        "within 0.3 s (--cluster_timeout)"
    )
    assert members[1].failed.wait(PATIENCE_S) and members[1].failure.message == line


def test_what_json_does_not_hold_is_refused_where_it_is_sent():
    members = joined_members(2)
    with pytest.raises(TypeError):
        members[1].report({1, 2})
    big = "x" * (wire.LONGEST_OF_STRANGERS * 2)  # more than a stranger may send
    members[1].report(big)
    assert (
        together(members, lambda member: (member.barrier("end"), member.leave()))
        == [(None, None)] * 2
    )
    assert members[0].reports() == {1: [big]}


@pytest.mark.parametrize(
    "host, bound",
    [("localhost", True), ("127.0.0.1", True), (socket.gethostname(), False)],
)
def test_rank_0_listens_on_loopback_alone_unless_other_machines_take_part(host, bound):
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        pytest.skip("this host's name has no address")
    launch = a_launch(0, 2, ports.joined(host, ports.free(ports.MEETING_PORTS)))
    with meetings.listen(launch) as listener:
        assert ports.is_loopback(listener.getsockname()[0]) is bound


def test_disagreement_names_many_ranks_and_flags_shortly():
    def joined(batch_sizes, **more):
        hellos = [
            peers.Hello("worker", {"batch_size": size} | more, {})
            for size in batch_sizes
        ]
        return {
            rank: (peers.Peer(rank, "worker", "h", 1, ""), hello)
            for rank, hello in enumerate(hellos)
        }

    assert peers.disagreement(joined([1, 1, 1])) == ""
    line = peers.disagreement(joined([1, 2, 1, 3, 2, 2, 2, 2]))
    assert (
        line.startswith("ranks 1, 4, 5, 6 and 1 others: --batch_size=2, ")
        and "--batch_size=1" in line
    )
