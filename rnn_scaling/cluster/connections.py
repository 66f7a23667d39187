"""Connections of other libraries: wait for a late server, close those to a frozen rank.

gRPC waits for ever for a silent process: its calls end only with the connection.

`training` calls these functions around libraries that it cannot change.
"""

import contextlib
import os
import socket
import time
from pathlib import Path

from rnn_scaling.cluster import ports
from rnn_scaling.cluster.launch import RETRY_S

_OPEN_FILES = Path("/proc/self/fd")


def wait_for_server(address: str, timeout_s: float) -> None:
    """Return once a server accepts connections at HOST:PORT.

    Raises:
      OSError: If none does within `timeout_s`; it has the last reason.
    """
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


def cut_connections(address: str) -> int:
    """Shut down this process's TCP connections to an address, as if its host had died.

    Returns:
      The number of connections.
    """
    host, port = ports.split(address)
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        descriptors = [int(entry.name) for entry in _OPEN_FILES.iterdir()]
    except OSError:
        return 0
    hosts = {str(address_info[4][0]) for address_info in infos}
    return sum(_cut(descriptor, hosts, port) for descriptor in descriptors)


def _cut(descriptor: int, hosts: set[str], port: int) -> bool:
    """Shut down a file if it is a connection to the port of one of these hosts."""
    with contextlib.suppress(OSError):
        copy = os.dup(descriptor)
        try:
            connection = socket.socket(fileno=copy)
        except OSError:  # It is not a socket.
            os.close(copy)
            return False
        with connection:
            if _is_to(connection, hosts, port):
                connection.shutdown(socket.SHUT_RDWR)
                return True
    return False


def _is_to(connection: socket.socket, hosts: set[str], port: int) -> bool:
    """Return whether a connection leads to a port of one of these hosts."""
    if connection.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    if connection.type != socket.SOCK_STREAM:
        return False
    remote = connection.getpeername()
    host = str(remote[0]).removeprefix("::ffff:")
    return remote[1] == port and host in hosts
