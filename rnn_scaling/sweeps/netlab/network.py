"""Network namespaces around one switch, each behind a limited link; all of it gone at the end, whatever the end is.

Every interface lives in a namespace of this run, the switch's too: the host's own network gets no new name, address or
route, and deleting the namespaces deletes all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.processes import alive
from rnn_scaling.sweeps.netlab import delayed, names, tools
from rnn_scaling.sweeps.netlab.link import Link
from rnn_scaling.sweeps.netlab.names import Node

NAMESPACES = Path("/run/netns")  # where iproute2 keeps their names
BOOT = Path("/proc/sys/kernel/random/boot_id")
KILL_TRIES, KILL_PAUSE_S = 100, 0.05
BRIDGE, DEVICE = "bridge", "eth0"


@contextlib.contextmanager
def network(wanted: Sequence[str], link: Link) -> Iterator[tuple[Node, ...]]:
    """The nodes of a network that stands while the block runs; afterwards no namespace and no process in one is left.

    Raises:
      Refusal: naming what the kernel or this process lacks.
    """
    process = alive.this_process()
    if process is None:
        raise entry.Refusal("netlab needs /proc, which tells processes apart; mount it")
    made = names.nodes(process, wanted)
    switch = names.namespace(process, names.SWITCH)
    with contextlib.ExitStack() as stack:
        try:
            _build(stack, switch, made, link)
            yield made
        finally:
            with _deaf():
                stack.close()
                remove([*(node.namespace for node in made), switch])


def inside(node: Node, command: Sequence[str]) -> list[str]:
    """The command that runs `command` in a node; `ip` becomes it, so its process number is the same."""
    return ["ip", "netns", "exec", node.namespace, *command]


def remove_leftovers() -> list[str]:
    """Ends and removes what processes left that no longer live; returns the names of their namespaces."""
    removed: list[str] = []
    for process, namespaces in names.makers(_present(), BOOT.read_text().strip()).items():
        if not alive.is_alive(process):
            remove(namespaces)
            removed += namespaces
    return removed


def remove(namespaces: Sequence[str]) -> None:
    """Kills every process in these namespaces and deletes them; names that do not exist are passed over."""
    present = [name for name in namespaces if name in _present()]
    for _ in range(KILL_TRIES):  # whoever forks meanwhile is in the next list
        processes = [number for name in present for number in _processes(name)]
        if not processes:
            break
        for number in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(KILL_PAUSE_S)
    for name in present:
        shutil.rmtree(delayed.folder(name), ignore_errors=True)
        with contextlib.suppress(tools.CallFailed):  # another netlab that starts removes the same leftovers
            tools.call("ip", "netns", "delete", name)


def _build(stack: contextlib.ExitStack, switch: str, nodes: Sequence[Node], link: Link) -> None:
    """Makes switch and nodes; what it had made when it fails is the caller's to remove."""
    _make_namespace(switch)
    bridges = [f"{BRIDGE}{index}" for index in range(len(nodes))] if link.delay_s else [BRIDGE] * len(nodes)
    for bridge in dict.fromkeys(bridges):
        tools.need("bridges", "bridge", "ip", "-n", switch, "link", "add", bridge, "type", "bridge")
        _up(switch, bridge)
    for index, (node, bridge) in enumerate(zip(nodes, bridges, strict=True)):
        _make_namespace(node.namespace)
        port = f"port{index}"
        ends = ["link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", node.namespace]
        tools.need("pairs of virtual Ethernet devices", "veth", "ip", "-n", switch, *ends)
        tools.call("ip", "-n", switch, "link", "set", port, "master", bridge)
        address = f"{node.address}/{names.PREFIX_LENGTH}"
        tools.call("ip", "-n", node.namespace, "address", "add", address, "dev", DEVICE)
        # The node's end limits what it sends and the switch's end what it gets: a link that is as fast both ways.
        for namespace, device in ((node.namespace, DEVICE), (switch, port)):
            _limit(namespace, device, link)
            _up(namespace, device)
    if link.delay_s:
        delayed.connect(stack, switch, bridges, link.delay_s)


def _make_namespace(name: str) -> None:
    tools.need("network namespaces (CONFIG_NET_NS)", "veth", "ip", "netns", "add", name)
    _up(name, "lo")  # a node reaches itself by its own address over it


def _up(namespace: str, device: str) -> None:
    tools.call("ip", "-n", namespace, "link", "set", device, "up")


def _limit(namespace: str, device: str, link: Link) -> None:
    bucket = ["tbf", "rate", f"{link.bits_per_s:.0f}bit", "burst", str(link.burst_bytes)]
    words = ["qdisc", "add", "dev", device, "root", *bucket, "limit", str(link.queue_bytes)]
    tools.need("the token bucket filter (tbf)", "sch_tbf", "tc", "-n", namespace, *words)


def _present() -> list[str]:
    try:
        return sorted(os.listdir(NAMESPACES))
    except FileNotFoundError:  # until the first namespace is made
        return []


def _processes(namespace: str) -> list[int]:
    """Numbers of the processes in a namespace; this process is in none of them."""
    try:
        return [int(word) for word in tools.call("ip", "netns", "pids", namespace).split()]
    except tools.CallFailed:  # it has gone meanwhile
        return []


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """A second Ctrl-C, or SIGTERM, does not stop the clearing up after the first."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
