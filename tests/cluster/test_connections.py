"""Connections to a frozen host are closed; other connections and files stay open."""

import contextlib
import os
import socket
import threading

import pytest

from rnn_scaling.cluster import connections


def read_numbers(end):
    """Return the number of this process's file descriptors of a socket."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.fstat(int(name)).st_ino == os.fstat(end.fileno()).st_ino
    return count


def test_connections_to_one_address_end_and_others_stay():
    with (
        socket.create_server(("127.0.0.1", 0)) as frozen,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        address = f"localhost:{frozen.getsockname()[1]}"
        with (
            socket.create_connection(frozen.getsockname()) as first,
            socket.create_connection(frozen.getsockname()) as second,
            socket.create_connection(other.getsockname()) as third,
        ):
            assert connections.cut_connections(address) == 2
            assert first.recv(1) == second.recv(1) == b""
            third.sendall(b"open")
            assert other.accept()[0].recv(4) == b"open"
            assert [read_numbers(end) for end in (first, second, third)] == [1, 1, 1]


def test_without_connections_none_is_cut():
    assert (
        connections.cut_connections("127.0.0.1:1")
        == connections.cut_connections("no.such.host.invalid:1")
        == 0
    )


def test_a_server_that_comes_late_is_waited_for():
    with socket.socket() as late:
        late.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{late.getsockname()[1]}"
        waiting = threading.Thread(
            target=connections.wait_for_server, args=(address, 60.0), daemon=True
        )
        waiting.start()
        waiting.join(0.5)
        assert waiting.is_alive()
        late.listen()
        waiting.join(60)
        assert not waiting.is_alive()


def test_a_server_that_never_comes_is_named():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OSError, match=rf"{address} .* 0.3 s: Connection refused"):
            connections.wait_for_server(address, 0.3)
