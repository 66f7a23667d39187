"""Workers whose sums are Horovod's, by Gloo: each on its own devices."""

import dataclasses
import math
import os
import socket
import sys
import threading
from collections.abc import Sequence
from types import ModuleType

from rnn_scaling.cluster import connections, ports
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import DeviceError
from rnn_scaling.training.cluster import Place
from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine, Request

JOB = "worker"


def start(request: Request) -> Engine:
    engine = local.start(request)
    place = request.place
    hvd = load()
    hosts = (
        [ports.split(address)[0] for address in place.addresses[JOB]]
        if place
        else [ports.LOOPBACK]
    )
    os.environ.update(slots(hosts, engine.rank))
    # Also under mpirun, which takes the end of a run for a failure where MPI was begun and not finished.
    transport = os.environ.setdefault("HOROVOD_CONTROLLER", "gloo")
    os.environ.setdefault("HOROVOD_CPU_OPERATIONS", transport)
    if transport == "gloo" and place:
        _prepare_gloo(place)
    try:
        hvd.init()
    except ValueError as e:
        raise DeviceError(f"Horovod ({transport}): {e}") from None
    if (hvd.rank(), hvd.size()) != (engine.rank, engine.size):
        raise DeviceError(
            f"Horovod ({transport}) calls this worker {hvd.rank()} of {hvd.size()}, but it is {engine.rank} of "
            f"{engine.size}; HOROVOD_CONTROLLER=gloo lets nothing but this program count"
        )
    return dataclasses.replace(engine, transport=transport)


def load() -> ModuleType:
    """horovod.tensorflow, which needs Keras; DeviceError if it does not load, as if built for another TensorFlow."""
    if "keras" in sys.modules and sys.modules["keras"] is None:
        del sys.modules["keras"]
    try:
        import horovod.tensorflow as hvd
    except Exception as e:
        reason = entry.first_line(e)
        raise DeviceError(
            f"horovod.tensorflow does not load; ./run.sh setup-horovod builds it anew ({reason})"
        ) from e
    return hvd


def slots(hosts: Sequence[str], rank: int) -> dict[str, str]:
    """Where a worker stands among all, in the variables that Horovod reads."""
    local = [peer_rank for peer_rank, host in enumerate(hosts) if host == hosts[rank]]
    local_rank = local.index(rank)
    # Those that have the same number on their hosts.
    across = [
        peer_rank
        for peer_rank, host in enumerate(hosts)
        if hosts[:peer_rank].count(host) == local_rank
    ]
    variables = {"HOROVOD_HOSTNAME": hosts[rank]}
    for prefix, number, count in (
        ("HOROVOD_", rank, len(hosts)),
        ("HOROVOD_LOCAL_", local_rank, len(local)),
        ("HOROVOD_CROSS_", across.index(rank), len(across)),
    ):
        variables |= {f"{prefix}RANK": str(number), f"{prefix}SIZE": str(count)}
    return variables


def _interface_of(host: str) -> str:
    """This machine's network interface that has the address of `host`; DeviceError if none has it."""
    import psutil  # comes with Horovod

    wanted = {info[4][0] for info in socket.getaddrinfo(host, None)}
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address in wanted for address in addresses):
            return str(name)
    raise DeviceError(
        f"no network interface of this machine has the address of {host}; HOROVOD_GLOO_IFACE names one"
    )


def _prepare_gloo(place: Place) -> None:
    """Says where Gloo's workers find each other: at the address of worker 0's engine, where that serves a table."""
    host, port = ports.split(place.addresses[JOB][0])
    os.environ.update(
        HOROVOD_GLOO_RENDEZVOUS_ADDR=host, HOROVOD_GLOO_RENDEZVOUS_PORT=str(port)
    )
    os.environ.setdefault(
        "HOROVOD_GLOO_TIMEOUT_SECONDS", str(math.ceil(place.timeout_s))
    )
    if "HOROVOD_GLOO_IFACE" not in os.environ:
        os.environ["HOROVOD_GLOO_IFACE"] = _interface_of(
            ports.split(place.addresses[JOB][place.index])[0]
        )
    if place.index:  # Horovod ends this process where it finds no table yet
        try:
            connections.wait_for_server(place.addresses[JOB][0], place.timeout_s)
        except OSError as e:
            rule = f"Horovod's table at worker 0's address {e} (--cluster_timeout)"
            raise DeviceError(
                f"{rule}; see what rank 0 printed, or give a longer timeout"
            ) from None
    else:
        from horovod.runner.http.http_server import (
            RendezvousHandler,
            RendezvousHTTPServer,
        )

        try:
            server = RendezvousHTTPServer(
                (host, port), RendezvousHandler, False
            )  # at this address alone
        except OSError as e:
            raise OSError(
                f"port {port} of {host}, where Horovod's workers find each other: {e.strerror}"
            ) from None
        threading.Thread(target=server.serve_forever, daemon=True).start()
