"""Addresses HOST:PORT, ports that no program uses, and by which address other hosts reach this one."""

import contextlib
import hashlib
import ipaddress
import os
import socket

LOOPBACK = "127.0.0.1"
# All lie below the ports which Linux gives to outgoing connections (32768 and up), so that none of these takes one
# between the moment when it is found free and the moment when an engine listens there.
MEETING_PORTS = range(20000, 25000)
ENGINE_PORTS = range(25000, 32768)


def split(address: str) -> tuple[str, int]:
    """Host and port of HOST:PORT; an IPv6 host stands in brackets. Raises ValueError if it is none."""
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
        raise ValueError(f"{address}: no HOST:PORT")
    return host, int(port)


def joined(host: str, port: int) -> str:
    """HOST:PORT, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether a host, as it is written, is this machine and cannot be reached from another."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def of_job(job: str) -> int:
    """The port of a job's meeting where no launcher tells one: one for all hosts, most likely another for each job."""
    return MEETING_PORTS[
        int(hashlib.sha256(job.encode()).hexdigest(), 16) % len(MEETING_PORTS)
    ]


def free(ports: range = ENGINE_PORTS) -> int:
    """A port that is free at all addresses of this machine, another for each process that asks; OSError if none is."""
    start = os.getpid() * 7919  # a prime, so that neighbours start far apart
    for k in range(len(ports)):
        port = ports[(start + k) % len(ports)]
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    raise OSError(f"no port from {ports.start} to {ports.stop - 1} is free")


def host_for_others(meeting: str, rank: int) -> str:
    """The host by which other ranks reach this process; OSError if no way leads to the meeting.

    For rank 0 it is the meeting's host, which all others use already; for others the address of the interface that
    leads there. No packet is sent.
    """
    host, port = split(meeting)
    if rank == 0 or is_loopback(host):
        return LOOPBACK if host == "localhost" else host
    family, kind, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[
        0
    ]
    with socket.socket(family, kind) as probe:
        probe.connect(target)
        address = str(probe.getsockname()[0])
    # A host's own name may stand for 127.0.1.1 there: this is rank 0's host, and its name means it to the others.
    return host if is_loopback(address) else address
