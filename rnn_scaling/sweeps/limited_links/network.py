"""Network namespaces around one switch, each behind a limited link.

    node's eth0 -- rate limit -- port -- bridge

With a delay, between the bridges of any two nodes:

    bridge -- tap | vde_switch | wirefilter (half the delay) | vde_switch in the middle
    | wirefilter | vde_switch | tap -- bridge

Every interface lives in a namespace of this run, so the host's own network gets no new
name, address or route. The namespaces have no names: the kernel removes each with its
last process, and all processes end with this one. Few kernels can delay frames (netem),
so the programs of vde do.

iperf3 measures what the links really carry, from every node to the next one and all at
once, like a ring of gradients.

Only `run` builds the network. Needs root and the programs that `find_refusals` names.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rnn_scaling.cluster import network_namespace
from rnn_scaling.system import entry
from rnn_scaling.system.processes.process import PARENT_DEATH_LAUNCHER

# The package of each program, in Debian and Ubuntu.
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "iperf3": "iperf3",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
_DELAY_PACKAGES = {"vde_switch": "vde2", "wirefilter": "vde2"}
_CALL_TIMEOUT_S = 30
# Maximum number of pauses until something has started or ended.
_TRIES = 200
_PAUSE_S = 0.05
DEVICE = "eth0"
# No outside network can collide, because the namespaces reach nothing else.
_SUBNET = "10.200.0"
_SPARE_PORTS = 8  # of the switch in the middle
# Data that may pass at once. At 1 Gbit/s a bucket below 1 MB loses rate to the clock
# that refills it, and one packet of 64 KiB, as TCP hands them to the kernel, must fit.
_BURST_S = 0.008
_MIN_BURST_BYTES = 66_000
# Data that may wait before packets are lost, like the buffer of a switch.
_QUEUE_S = 0.05
_IPERF3_PORT = 5201
# Arguments of iperf3. Two seconds are measured, after a second for slow start and a
# full bucket.
RATE_ARGUMENTS = ("-t", "2", "-O", "1")
# Ten packets, none of which waits for another.
_ROUND_TRIP_ARGUMENTS = ("-t", "1", "-b", "80k", "-l", "1k")
# Share of the requested rate that may be missing; headers are 4.4 %.
_SHORTFALL = 0.1
_NEED = "--link_mbit and --link_latency_ms need"  # the beginning of each refusal


@dataclasses.dataclass(frozen=True)
class NetworkLink:
    """The link of every node to the switch, the same in both directions."""

    bits_per_s: float  # including the headers of Ethernet
    delay_s: float = 0.0  # one way, between any two nodes

    @property
    def burst_bytes(self) -> int:
        """The size of the token bucket."""
        return max(_MIN_BURST_BYTES, round(self.bits_per_s / 8 * _BURST_S))

    @property
    def queue_bytes(self) -> int:
        """The largest amount of data that waits in front of the bucket."""
        return self.burst_bytes + round(self.bits_per_s / 8 * _QUEUE_S)


@dataclasses.dataclass(frozen=True)
class Namespace:
    """A separate network, which lasts as long as the processes in it."""

    holder: int  # the process that keeps it until the block ends
    identity: str  # the target of /proc/PID/ns/net for each process in it

    def wrap_command(self, words: Sequence[str]) -> list[str]:
        """Return the command that runs `words` in it.

        `nsenter` becomes this program, so the process number is the same.
        """
        return ["nsenter", f"--net=/proc/{self.holder}/ns/net", *words]

    def call(self, command: str) -> None:
        """Run a program in it, like the function `call`."""
        call(*self.wrap_command(command.split()))

    def require_feature(self, feature: str, module: str, command: str) -> None:
        """Ask the kernel for a feature in it, like the function `_require_feature`."""
        _require_feature(feature, module, *self.wrap_command(command.split()))

    def list_processes(self) -> list[int]:
        """Return the numbers of the processes in it."""
        numbers = []
        # Not "[0-9]*/ns/net": glob raises if a process ends while it looks for the
        # file.
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # the process has ended
                if os.readlink(folder / "ns" / "net") == self.identity:
                    numbers.append(int(folder.name))
        return numbers


@dataclasses.dataclass(frozen=True)
class NetworkNode(Namespace):
    """The machine of one rank."""

    name: str  # such as "worker0"
    address: str


@contextlib.contextmanager
def open_network(
    names: Sequence[str], link: NetworkLink
) -> Iterator[tuple[NetworkNode, ...]]:
    """Yield the nodes of a network, in rank order; then end all processes in them.

    Raises:
      Refusal: If the kernel lacks a feature, or this process may not use it.
    """
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(_make_namespace())
        nodes = []
        for number, name in enumerate(names, 1):
            space = stack.enter_context(_make_namespace())
            address = f"{_SUBNET}.{number}"
            nodes.append(NetworkNode(space.holder, space.identity, name, address))
        _connect_nodes(stack, switch, nodes, link)
        yield tuple(nodes)


@contextlib.contextmanager
def _make_namespace() -> Iterator[Namespace]:
    """Make a namespace that lasts as long as the block; kill what still runs in it."""
    with network_namespace.create() as private_network:
        if not private_network.enter:
            raise entry.Refusal(
                f"{_NEED} network namespaces of the kernel (CONFIG_NET_NS): "
                f"{private_network.reason}"
            )
        space = Namespace(
            private_network.holder,
            os.readlink(f"/proc/{private_network.holder}/ns/net"),
        )
        try:
            yield space
        finally:
            _kill_all(space)


def _kill_all(space: Namespace) -> None:
    """Kill every process in a namespace."""
    for _ in range(_TRIES):
        # A process that is forked meanwhile is in the next list.
        numbers = space.list_processes()
        if not numbers:
            return
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(_PAUSE_S)


def _connect_nodes(
    stack: contextlib.ExitStack,
    switch: Namespace,
    nodes: Sequence[NetworkNode],
    link: NetworkLink,
) -> None:
    """Connect the nodes with the switch."""
    bridges = [f"bridge{index if link.delay_s else 0}" for index in range(len(nodes))]
    for bridge in dict.fromkeys(bridges):
        switch.require_feature("bridges", "bridge", f"ip link add {bridge} type bridge")
        switch.call(f"ip link set {bridge} up")
    bucket = (
        f"tbf rate {link.bits_per_s:.0f}bit burst {link.burst_bytes} "
        f"limit {link.queue_bytes}"
    )
    for index, (node, bridge) in enumerate(zip(nodes, bridges, strict=True)):
        port = f"port{index}"
        ends = f"{port} type veth peer name {DEVICE} netns {node.holder}"
        switch.require_feature(
            "pairs of virtual Ethernet devices", "veth", f"ip link add {ends}"
        )
        switch.call(f"ip link set {port} master {bridge}")
        node.call(f"ip address add {node.address}/24 dev {DEVICE}")
        # The node's end limits what it sends, and the switch's end what it receives.
        for space, device in ((node, DEVICE), (switch, port)):
            space.require_feature(
                "the token bucket filter (tbf)",
                "sch_tbf",
                f"tc qdisc add dev {device} root {bucket}",
            )
            space.call(f"ip link set {device} up")
    if link.delay_s:
        _delay_frames(stack, switch, bridges, link.delay_s)


def _delay_frames(
    stack: contextlib.ExitStack,
    switch: Namespace,
    bridges: Sequence[str],
    delay_s: float,
) -> None:
    """Delay the frames between bridges until the stack is closed."""

    def start(*words: str) -> None:
        stack.enter_context(keep_running(switch.wrap_command(words)))

    sockets = Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="rnn_scaling."))
    )
    middle = sockets / "middle"
    start("vde_switch", "-n", str(len(bridges) + _SPARE_PORTS), "-s", str(middle))
    wait_until((middle / "ctl").exists, "vde_switch did not start")
    for index, bridge in enumerate(bridges):
        tap = f"tap{index}"
        outer = sockets / f"node{index}"
        start("vde_switch", "-s", str(outer), "-t", tap)
        wait_until((outer / "ctl").exists, "vde_switch did not start")
        switch.call(f"ip link set {tap} master {bridge} up")
        start("wirefilter", "-v", f"{middle}:{outer}", "-d", f"{delay_s * 1e3 / 2:g}")


class CallFailed(RuntimeError):
    """A program failed; the message ends with its error output."""


def wait_until(condition: Callable[[], bool], message: str) -> None:
    """Wait for a condition; raise CallFailed with `message` after ten seconds."""
    for _ in range(_TRIES):
        if condition():
            return
        time.sleep(_PAUSE_S)
    raise CallFailed(message)


def find_refusals(has_delay: bool) -> list[str]:
    """Return why this machine cannot limit links, one line per reason.

    Missing features of the kernel are found only when the network is built.
    """
    if not os.path.isdir("/proc/sys/net"):
        return [f"{_NEED} the network namespaces of Linux; run them on Linux"]
    lines = []
    if os.geteuid() != 0:
        lines.append(f"{_NEED} root; run the command with sudo")
    packages = {**PACKAGES, **(_DELAY_PACKAGES if has_delay else {})}
    missing = [program for program in packages if shutil.which(program) is None]
    if missing:
        to_install = sorted({packages[program] for program in missing})
        lines.append(
            f"{_NEED} {', '.join(packages)}, found no {', '.join(missing)}; "
            f"apt install {' '.join(to_install)}"
        )
    return lines


def call(*words: str) -> str:
    """Return the output of a program.

    Raises:
      CallFailed: If its exit status is not 0, or it runs for more than _CALL_TIMEOUT_S.
    """
    try:
        result = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_CALL_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C"},
        )
        if not result.returncode:
            return result.stdout
        error = result.stderr.strip() or f"exit status {result.returncode}"
    except OSError as e:
        error = e.strerror or str(e)
    except subprocess.TimeoutExpired:
        error = f"did not end within {_CALL_TIMEOUT_S} s"
    raise CallFailed(f"{' '.join(words)}: {error.splitlines()[0]}")


def _require_feature(feature: str, module: str, *words: str) -> None:
    """Ask the kernel for a feature that it may lack.

    Args:
      feature: The feature in words.
      module: The module of the kernel that has it.
      words: The command that asks for it.

    Raises:
      Refusal: If the kernel lacks it, or this process may not use it.
    """
    try:
        call(*words)
    except CallFailed as e:
        if "Operation not permitted" in str(e):
            raise entry.Refusal(
                f"{_NEED} CAP_SYS_ADMIN and CAP_NET_ADMIN: {e}; run the command "
                "outside of the container, or in a privileged one"
            ) from None
        raise entry.Refusal(
            f"{_NEED} {feature} of the kernel: {e}; try modprobe {module}"
        ) from None


@contextlib.contextmanager
def keep_running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """Yield a program that runs while the block does, and ends with this process.

    Its stdin stays open.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", str(PARENT_DEATH_LAUNCHER), str(os.getpid()), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


class StreamResult(NamedTuple):
    """The measurements of one TCP stream."""

    bits_per_s: float  # payload that arrived
    round_trip_s: float  # the shortest one


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The rate of one TCP stream from each node to the next, while all nodes sent."""

    bits_per_s: tuple[float, ...]  # payload of each node, in rank order
    round_trip_s: float  # between two nodes while no other node sent


def measure(nodes: Sequence[NetworkNode]) -> Calibration:
    """Measure the links of two nodes or more; a CallFailed names the node."""
    [idle_stream] = _measure_streams([(nodes[0], nodes[1])], _ROUND_TRIP_ARGUMENTS)
    ring = list(zip(nodes, [*nodes[1:], nodes[0]]))
    streams = _measure_streams(ring, RATE_ARGUMENTS)
    rates = tuple(stream.bits_per_s for stream in streams)
    return Calibration(rates, idle_stream.round_trip_s)


def _measure_streams(
    pairs: Sequence[tuple[NetworkNode, NetworkNode]], flags: Sequence[str]
) -> list[StreamResult]:
    """Return the results of one stream per pair, all at the same time.

    Args:
      pairs: The sender and the receiver of each stream.
      flags: Further arguments of the senders' iperf3.
    """
    server_words = f"iperf3 -s -1 -p {_IPERF3_PORT}".split()
    client_words = f"iperf3 -p {_IPERF3_PORT} -J --connect-timeout 5000".split()
    with contextlib.ExitStack() as stack:
        for _, server in pairs:
            stack.enter_context(keep_running(server.wrap_command(server_words)))
        for _, server in pairs:  # a server that does not listen refuses its client
            listening = server.wrap_command(["ss", "-ltn"])
            wait_until(
                lambda: f":{_IPERF3_PORT} " in call(*listening),  # noqa: B023
                f"{server.name}: iperf3 -s does not listen",
            )
        clients = []
        for client, server in pairs:
            words = [*client_words, "-c", server.address, *flags]
            clients.append(
                stack.enter_context(keep_running(client.wrap_command(words)))
            )
        return [_read_result(node, client) for (node, _), client in zip(pairs, clients)]


def _read_result(node: NetworkNode, client: subprocess.Popen[str]) -> StreamResult:
    """Wait for iperf3 on a node; a CallFailed names the node."""
    try:
        return parse_iperf3(client.communicate(timeout=_CALL_TIMEOUT_S)[0])
    except subprocess.TimeoutExpired:
        raise CallFailed(
            f"{node.name}: iperf3 did not end within {_CALL_TIMEOUT_S} s"
        ) from None
    except CallFailed as e:
        raise CallFailed(f"{node.name}: iperf3: {e}") from None


def parse_iperf3(text: str) -> StreamResult:
    """Read the JSON of a client.

    Raises:
      CallFailed: If the client failed.
    """
    try:
        output = json.loads(text)
        if "error" in output:
            raise CallFailed(output["error"])
        end = output["end"]
        bits_per_s = float(end["sum_received"]["bits_per_second"])
        round_trip_us = float(end["streams"][0]["sender"]["min_rtt"])
        return StreamResult(bits_per_s, round_trip_us / 1e6)
    except (ValueError, LookupError, TypeError):
        raise CallFailed("iperf3 printed no result") from None


def describe(link: NetworkLink, calibration: Calibration) -> str:
    """Return the requested and the measured rates in words, for the record."""
    slowest = format_megabits(min(calibration.bits_per_s))
    fastest = format_megabits(max(calibration.bits_per_s))
    rates = slowest if slowest == fastest else f"{slowest} to {fastest}"
    requested = format_megabits(link.bits_per_s)
    if link.delay_s:
        requested += f" and {link.delay_s * 1e3:g} ms one way"
    return (
        f"{requested} asked; {rates} of payload measured, "
        f"{len(calibration.bits_per_s)} nodes sending at once; round trip "
        f"{calibration.round_trip_s * 1e3:.2g} ms"
    )


def find_warnings(link: NetworkLink, calibration: Calibration) -> list[str]:
    """Return a warning if a link carries less than requested."""
    slowest = min(calibration.bits_per_s)
    if slowest >= (1 - _SHORTFALL) * link.bits_per_s:
        return []
    return [
        f"--link_mbit={link.bits_per_s / 1e6:g}: a link carries only "
        f"{format_megabits(slowest)}; the CPU may be the limit; use a lower rate, "
        "fewer workers or a quiet machine"
    ]


def format_megabits(bits_per_s: float) -> str:
    """Format a rate for people.

    >>> megabits(2e8), megabits(9.417e8), megabits(1e9)
    ('200 Mbit/s', '942 Mbit/s', '1000 Mbit/s')
    """
    rate = bits_per_s / 1e6
    return f"{rate:.0f} Mbit/s" if rate >= 100 else f"{rate:.3g} Mbit/s"
