"""Workers that exchange through Horovod, by default over Gloo.

`config.registry` names this module for `start`; the update mode calls `load`.
"""

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
from rnn_scaling.training.cluster import RankPosition
from rnn_scaling.training.engines import local
from rnn_scaling.training.engines.local import Engine, Request

_JOB = "worker"


def start(request: Request) -> Engine:
    """Join Horovod's ranks; raises like `local.start`."""
    engine = local.start(request)
    position = request.position
    hvd = load()
    hosts = (
        [ports.split(address)[0] for address in position.addresses[_JOB]]
        if position
        else [ports.LOOPBACK]
    )
    os.environ.update(make_slot_variables(hosts, engine.rank))
    # Gloo is the default even under mpirun, which reports a failure if a process ends
    # after MPI was initialised and not finalised.
    transport = os.environ.setdefault("HOROVOD_CONTROLLER", "gloo")
    os.environ.setdefault("HOROVOD_CPU_OPERATIONS", transport)
    if transport == "gloo" and position:
        _prepare_gloo(position)
    try:
        hvd.init()
    except ValueError as e:
        raise DeviceError(f"Horovod ({transport}): {e}") from None
    if (hvd.rank(), hvd.size()) != (engine.rank, engine.size):
        raise DeviceError(
            f"Horovod ({transport}) numbers this worker {hvd.rank()} of {hvd.size()}, "
            f"but it is {engine.rank} of {engine.size}; with HOROVOD_CONTROLLER=gloo "
            "this program numbers the workers"
        )
    return dataclasses.replace(engine, transport=transport)


def load() -> ModuleType:
    """Import horovod.tensorflow, which needs Keras.

    Raises:
      DeviceError: If it does not load, for example because it was built for another
        version of TensorFlow.
    """
    if "keras" in sys.modules and sys.modules["keras"] is None:
        del sys.modules["keras"]
    try:
        import horovod.tensorflow as hvd
    except Exception as e:
        reason = entry.find_first_line(e)
        raise DeviceError(
            f"horovod.tensorflow cannot be imported ({reason}); ./run.sh setup-horovod "
            "rebuilds it"
        ) from e
    return hvd


def make_slot_variables(hosts: Sequence[str], rank: int) -> dict[str, str]:
    """Return the ranks and sizes of a worker as the variables that Horovod reads."""
    local = [peer_rank for peer_rank, host in enumerate(hosts) if host == hosts[rank]]
    local_rank = local.index(rank)
    # Ranks with the same local rank on their hosts.
    cross = [
        peer_rank
        for peer_rank, host in enumerate(hosts)
        if hosts[:peer_rank].count(host) == local_rank
    ]
    variables = {"HOROVOD_HOSTNAME": hosts[rank]}
    for prefix, number, count in (
        ("HOROVOD_", rank, len(hosts)),
        ("HOROVOD_LOCAL_", local_rank, len(local)),
        ("HOROVOD_CROSS_", cross.index(rank), len(cross)),
    ):
        variables |= {f"{prefix}RANK": str(number), f"{prefix}SIZE": str(count)}
    return variables


def _find_network_interface(host: str) -> str:
    """Return this machine's network interface that has the address of `host`.

    Raises:
      DeviceError: If no interface has this address.
    """
    import psutil  # comes with Horovod

    host_addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address in host_addresses for address in addresses):
            return str(name)
    raise DeviceError(
        f"no network interface of this machine has the address of {host}; name one "
        "with HOROVOD_GLOO_IFACE"
    )


def _prepare_gloo(position: RankPosition) -> None:
    """Prepare Gloo's rendezvous at the address of worker 0's engine.

    Worker 0 serves the table in which Gloo's workers find each other.
    """
    host, port = ports.split(position.addresses[_JOB][0])
    os.environ.update(
        HOROVOD_GLOO_RENDEZVOUS_ADDR=host, HOROVOD_GLOO_RENDEZVOUS_PORT=str(port)
    )
    os.environ.setdefault(
        "HOROVOD_GLOO_TIMEOUT_SECONDS", str(math.ceil(position.timeout_s))
    )
    if "HOROVOD_GLOO_IFACE" not in os.environ:
        os.environ["HOROVOD_GLOO_IFACE"] = _find_network_interface(
            ports.split(position.addresses[_JOB][position.index])[0]
        )
    if position.index:
        # Horovod ends a process that does not find the table.
        try:
            connections.wait_for_server(position.addresses[_JOB][0], position.timeout_s)
        except OSError as e:
            rule = f"Horovod's table of workers on rank 0: {e} (--cluster_timeout)"
            raise DeviceError(
                f"{rule}; read the output of rank 0, or raise --cluster_timeout"
            ) from None
    else:
        from horovod.runner.http.http_server import (
            RendezvousHandler,
            RendezvousHTTPServer,
        )

        try:
            # It listens at this address only.
            server = RendezvousHTTPServer((host, port), RendezvousHandler, False)
        except OSError as e:
            raise OSError(
                f"cannot open port {port} of {host} for Horovod's workers: {e.strerror}"
            ) from None

        threading.Thread(target=server.serve_forever, daemon=True).start()
