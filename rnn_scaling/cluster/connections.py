"""Connections of other libraries: waits for a server that comes late, and ends those that hang on a frozen peer.

gRPC waits for ever for a peer that is silent: its calls end only with the connection.
"""

import contextlib
import os
import socket
import time
from pathlib import Path

from rnn_scaling.cluster import ports
from rnn_scaling.cluster.launch import RETRY_S

FILES = Path("/proc/self/fd")


def wait_for_server(address: str, timeout_s: float) -> None:
    """Returns once something accepts connections there; OSError with the last reason if nothing does in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = max(RETRY_S, deadline - time.monotonic())
        try:
            socket.create_connection(ports.split(address), left_s).close()
            return
        except OSError as e:
            if time.monotonic() >= deadline:
                reason = e.strerror or str(e)
                raise OSError(
                    f"{address} was not reached within {timeout_s:g} s: {reason}"
                ) from None
        time.sleep(RETRY_S)


def cut(address: str) -> int:
    """Shuts this process's TCP connections to an address down, as if the peer had died; returns how many it found."""
    host, port = ports.split(address)
    try:
        hosts = {
            str(info[4][0])
            for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        }
        files = [int(entry.name) for entry in FILES.iterdir()]
    except OSError:
        return 0
    return sum(_cut(number, hosts, port) for number in files)


def _cut(number: int, hosts: set[str], port: int) -> bool:
    """Whether a file of this process was such a connection."""
    with contextlib.suppress(OSError):
        copy = os.dup(number)
        try:
            end = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            return False
        with end:
            if (
                end.family in (socket.AF_INET, socket.AF_INET6)
                and end.type == socket.SOCK_STREAM
            ):
                peer = end.getpeername()
                if peer[1] == port and str(peer[0]).removeprefix("::ffff:") in hosts:
                    end.shutdown(socket.SHUT_RDWR)
                    return True
    return False
