"""Connections to a peer that is frozen are ended; those to others, and other files, stay."""

from __future__ import annotations

import os
import socket

from rnn_scaling.machine.cluster import connections


def test_connections_to_one_address_end_and_others_stay():
    with socket.create_server(("127.0.0.1", 0)) as frozen, socket.create_server(("127.0.0.1", 0)) as other:
        address = f"localhost:{frozen.getsockname()[1]}"
        number_of_files = len(os.listdir("/proc/self/fd"))
        with (
            socket.create_connection(frozen.getsockname()) as first,
            socket.create_connection(frozen.getsockname()) as second,
            socket.create_connection(other.getsockname()) as third,
        ):
            assert connections.cut(address) == 2
            assert first.recv(1) == second.recv(1) == b""
            third.sendall(b"open")
            assert other.accept()[0].recv(4) == b"open"
        assert len(os.listdir("/proc/self/fd")) == number_of_files


def test_an_address_that_nobody_is_connected_to_is_none_to_cut():
    assert connections.cut("127.0.0.1:1") == connections.cut("no.such.host.invalid:1") == 0
