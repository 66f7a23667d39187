"""Addresses HOST:PORT, free ports, and the address by which other hosts reach this one.

All parts of the suite that listen or connect spell addresses with these functions.
"""

import contextlib
import hashlib
import ipaddress
import os
import socket

LOOPBACK = "127.0.0.1"
# All ports lie below the ports that Linux gives to outgoing connections (32768 and up).
# Otherwise such a connection could take a port after it was found free and before an
# engine listens at it.
RENDEZVOUS_PORTS = range(20000, 25000)
ENGINE_PORTS = range(25000, 32768)


def split(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT; an IPv6 host must be in brackets.

    Raises:
      ValueError: If the text is not HOST:PORT.
    """
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if is_bracketed:
        host = host[1:-1]
    is_port = (
        port.isascii() and port.isdecimal() and len(port) <= 5 and 0 < int(port) < 65536
    )
    if (
        not host
        or not is_port
        or (":" in host and not is_bracketed)
        or any(c.isspace() or c in "[]/" for c in host)
    ):
        raise ValueError(f"{address} is not HOST:PORT")
    return host, int(port)


def join(host: str, port: int) -> str:
    """Return HOST:PORT, with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host's name means this machine on every machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def choose_rendezvous_port(job: str) -> int:
    """Return the port of a job's rendezvous if the launcher does not set one.

    All hosts of a job compute the same port, and another job most likely a different
    one.
    """
    number = int(hashlib.sha256(job.encode()).hexdigest(), 16)
    return RENDEZVOUS_PORTS[number % len(RENDEZVOUS_PORTS)]


def find_free(ports: range = ENGINE_PORTS) -> int:
    """Return a port that is free at all addresses of this machine.

    Processes that ask at the same time get different ports.

    Raises:
      OSError: If all ports are in use.
    """
    start = os.getpid() * 7919  # a prime, so that neighbours start far apart
    for offset in range(len(ports)):
        port = ports[(start + offset) % len(ports)]
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    raise OSError(f"no port from {ports.start} to {ports.stop - 1} is free")


def find_reachable_host(rendezvous: str, rank: int) -> str:
    """Return the host by which other ranks reach this process. No packet is sent.

    For rank 0 it is the host of the rendezvous, which all others use already; for
    other ranks it is the address of the interface that leads to the rendezvous.

    Raises:
      OSError: If no route leads to the rendezvous.
    """
    host, port = split(rendezvous)
    if rank == 0 or is_loopback(host):
        return LOOPBACK if host == "localhost" else host
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    family, kind, _, _, target = infos[0]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        address = str(probe.getsockname()[0])
    # On its own host a name may mean 127.0.1.1. Then this is rank 0's host, and
    # the name means its real address on other hosts.
    return host if is_loopback(address) else address
