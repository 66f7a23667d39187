"""Connections of other programs to the rendezvous, and ranks with invalid messages."""

import contextlib
import json
import socket
import threading
import time

import pytest

from rnn_scaling.cluster import ports, server, wire
from rnn_scaling.cluster.failure import ClusterError
from rnn_scaling.cluster.rank_connection import RankConnection
from tests.cluster.ranks import (
    PATIENCE_S,
    connect,
    find_free_address,
    make_connection,
    make_hello,
    rank_0_joins,
    receive_until_closed,
    start_in_background,
)
from tests.support import faults

STRANGERS = {
    "job": {"job_id": "other"},
    "token": {"token": "0123456789abcdeF"},
    "no token": {"token": ""},
}
TOKEN = {"token": "0123456789abcdef"}

INVALID = {
    "a browser": b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "bytes": bytes(range(256)) + b"\n",
    "no hello": b'{"kind": "beat"}\n',
    "a hello without a rank": b'{"kind": "hello", "job": "test"}\n',
    "a proof that is no text": b'{"kind": "hello", "job": "test", "proof": [1]}\n',
    "a proof of other letters": b'{"kind": "hello", "job": "test", "proof": "\\ud800\xc3\xa9"}\n',
    "nested less": b'{"kind": "hello", "job": "test", "flags": '
    + b"[" * 940
    + b"]" * 940
    + b"}\n",
    "a line without end": b"x" * (wire.MAX_STRANGER_BYTES + 2),
    "nothing": b"",
}


def test_a_rank_that_finds_another_program_reports_it():
    with socket.create_server((ports.LOOPBACK, 0)) as other:
        address = ports.join(*other.getsockname())
        threading.Thread(
            target=lambda: other.accept()[0].sendall(b"SSH-2.0-other\r\n"), daemon=True
        ).start()
        with pytest.raises(ClusterError, match="another program answers there"):
            make_connection(1, 2, address, timeout_s=0.1).join()


@pytest.mark.parametrize("name", STRANGERS)
def test_a_rank_of_another_job_or_token_gets_no_answer_and_disturbs_nobody(name):
    address = find_free_address()
    both = [make_connection(rank, 2, address, TOKEN) for rank in range(2)]
    with rank_0_joins(*both):
        with connect(address) as stranger:
            stranger.sendall(make_hello(1, 2, **TOKEN | STRANGERS[name]))
            assert receive_until_closed(stranger) == b""
        other = make_connection(1, 2, address, TOKEN | STRANGERS[name], timeout_s=0.5)
        with pytest.raises(ClusterError, match="RNN_SCALING_JOB_TOKEN") as error:
            other.join()
    for text in (str(error.value), repr(both[0]._launch)):
        assert "0123" not in text
    assert "test" not in str(error.value)


def test_a_program_in_the_place_of_rank_0_learns_no_token():
    heard = []

    def answer():
        with contextlib.suppress(OSError):
            while True:
                with other.accept()[0] as end:
                    heard.append(end.recv(1 << 16))
                    end.sendall(
                        wire.encode(
                            "seen", rank_0="rank 0", proof=json.loads(heard[0])["proof"]
                        )
                    )

    with socket.create_server((ports.LOOPBACK, 0)) as other:
        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ClusterError, match="another program answers there"):
            make_connection(
                1, 2, ports.join(*other.getsockname()), TOKEN, timeout_s=0.5
            ).join()
    assert heard and TOKEN["token"].encode() not in heard[0]


@pytest.mark.parametrize(
    "sent", [b"", b'{"kind": "hel'], ids=["silent", "half a hello"]
)
def test_ranks_are_served_while_hundreds_of_connections_say_nothing(sent, monkeypatch):
    monkeypatch.setattr(
        server, "STRANGER_S", PATIENCE_S * 2
    )  # They make room before their time limit.
    address = find_free_address()
    connections = [make_connection(rank, 3, address, TOKEN) for rank in range(3)]
    first = connections[0]
    with contextlib.ExitStack() as held, rank_0_joins(*connections):
        for _ in range(200):
            held.enter_context(connect(address)).sendall(sent)
        # The system accepts connections before.
        faults.wait_until(lambda: first._rendezvous, "rank 0 has a rendezvous")
        served = list(first._rendezvous._server._connections)
        num_strangers = sum(each.is_stranger for each in served)
        assert num_strangers <= server.MAX_STRANGERS


def test_a_stranger_that_sends_byte_by_byte_has_the_time_limit_of_a_silent_one(
    monkeypatch,
):
    monkeypatch.setattr(server, "STRANGER_S", 0.3)
    address = find_free_address()
    connections = [make_connection(rank, 2, address) for rank in range(2)]
    silenced = pytest.raises(OSError)
    with rank_0_joins(*connections), connect(address) as stranger, silenced:
        for _ in range(600):
            stranger.sendall(b"x")
            time.sleep(0.05)


def test_strangers_that_send_invalid_messages_are_sent_away_and_disturb_nobody(
    monkeypatch,
):
    monkeypatch.setattr(
        server, "STRANGER_S", PATIENCE_S * 2
    )  # They are rejected for their messages, not for silence.
    address = find_free_address()
    with rank_0_joins(*(make_connection(rank, 2, address) for rank in range(2))):
        for name, content in INVALID.items():
            with connect(address) as stranger:
                stranger.sendall(content)
                if not content:
                    stranger.shutdown(socket.SHUT_WR)
                assert receive_until_closed(stranger) == b"", name


def test_a_rank_that_sends_invalid_messages_ends_the_run_by_its_name():
    address = find_free_address()
    first = make_connection(0, 2, address)
    thread = start_in_background(first, RankConnection.join)
    with connect(address) as second:
        second.sendall(make_hello(1, 2) + b"{}\n")
        first.failed.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert first.failure.message.startswith("rank 1 (host h, process 1) ")
