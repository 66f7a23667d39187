"""Clusters of real engine processes without launcher, rendezvous and record."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from rnn_scaling.config import registry
from tests.support import forked

Addresses = Mapping[str, tuple[str, ...]]


@contextlib.contextmanager
def servers(
    engine: str, **tasks: int
) -> Iterator[tuple[Addresses, dict[tuple[str, int], Any]]]:
    """Start the servers of a cluster, and kill them at the end.

    Args:
      engine: Name of the engine.
      tasks: Number of tasks per role. The first task of the first role is the client,
        which is not started.

    Yields:
      The addresses of the cluster, and the server processes by (role, index).
    """
    with contextlib.ExitStack() as held:
        ports = iter([held.enter_context(_bound()) for _ in range(sum(tasks.values()))])
        addresses = {
            role: tuple(f"127.0.0.1:{next(ports)}" for _ in range(count))
            for role, count in tasks.items()
        }
    client = (next(iter(tasks)), 0)
    processes = {
        (role, index): forked.CONTEXT.Process(
            target=_serve, args=(engine, addresses, role, index), daemon=True
        )
        for role, count in tasks.items()
        for index in range(count)
        if (role, index) != client
    }
    try:
        for process in processes.values():
            process.start()
        yield addresses, processes
    finally:
        for process in processes.values():
            process.kill()
            process.join()


def request(addresses: Addresses, role: str, index: int, num_devices: int):
    """Return the request to an engine for one process of such a cluster."""
    from rnn_scaling.training.cluster import RankPosition
    from rnn_scaling.training.engines.local import Request

    position = RankPosition(role, index, addresses)
    return Request(
        "cpu", num_devices if role == "worker" else 1, 2, 1, position=position
    )


@contextlib.contextmanager
def _bound() -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        yield probe.getsockname()[1]


def _serve(engine: str, addresses: Addresses, role: str, index: int) -> None:
    # TensorFlow prints errors when the client is gone.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    registry.load(registry.ENGINES, engine).start(request(addresses, role, index, 2))
    multiprocessing.parent_process().join()
