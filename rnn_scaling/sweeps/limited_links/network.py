"""Network namespaces around one switch, each behind a limited link; all of it is gone when the block ends.

    node's eth0 -- rate limit -- port -- bridge            with a delay, between the bridges of any two nodes:
    bridge -- tap | vde_switch | wirefilter: half the delay | vde_switch in the middle | ... | bridge

Every interface lives in a namespace of this run, so the host's own network gets no new name, address or route. The
namespaces have no names: the kernel removes each with its last process, and all of them end with this one. Few kernels
delay frames (netem), so vde's programs do.

What the links really carry says iperf3 from every node to the next one, all at once, as a ring of gradients goes.
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

from rnn_scaling.cluster import fence
from rnn_scaling.system import entry
from rnn_scaling.system.processes.process import TETHER

# program -> package of Debian and Ubuntu
PACKAGES = {
    "ip": "iproute2",
    "tc": "iproute2",
    "iperf3": "iperf3",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
DELAY_PACKAGES = {"vde_switch": "vde2", "wirefilter": "vde2"}
CALL_TIMEOUT_S = 30
TRIES = 200  # until something has started or ended
PAUSE_S = 0.05
DEVICE = "eth0"
# Of namespaces that reach nothing else, so no network outside can collide.
SUBNET = "10.200.0"
SPARE_PORTS = 8  # of the switch in the middle
# What may pass at once: at 1 Gbit/s less than 1 MB loses rate to the clock that refills
# the bucket, and one packet of 64 KiB, as TCP hands them to the kernel, must fit.
BURST_S = 0.008
LEAST_BURST_BYTES = 66_000
QUEUE_S = 0.05  # of data that waits before packets are lost: the buffer of a switch
PORT = 5201  # of iperf3
# Two seconds are measured, after a second for slow start and a full bucket.
FULL = ("-t", "2", "-O", "1")
# Ten packets, none of which waits for another.
IDLE = ("-t", "1", "-b", "80k", "-l", "1k")
SHORTFALL = 0.1  # share of the requested rate that may be missing: headers are 4.4 %
NEED = "--link_mbit and --link_latency_ms need"  # how each refusal begins


@dataclasses.dataclass(frozen=True)
class NetworkLink:
    """Every node's link to the switch, the same in both directions."""

    bits_per_s: (
        float  # that the token bucket lets through, headers of Ethernet included
    )
    delay_s: float = 0.0  # one way, between any two nodes

    @property
    def burst_bytes(self) -> int:
        return max(LEAST_BURST_BYTES, round(self.bits_per_s / 8 * BURST_S))

    @property
    def queue_bytes(self) -> int:
        """What waits in front of the bucket at most."""
        return self.burst_bytes + round(self.bits_per_s / 8 * QUEUE_S)


@dataclasses.dataclass(frozen=True)
class Namespace:
    """A network of its own, which lasts as long as the processes that are in it."""

    holder: int  # the process that keeps it until the block ends
    identity: str  # what /proc says of each process in it

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs `words` in it; `nsenter` becomes it, so the process number is the same."""
        return ["nsenter", f"--net=/proc/{self.holder}/ns/net", *words]

    def call(self, command: str) -> None:
        """Run a program in it, as `call` does."""
        call(*self.command(command.split()))

    def need(self, feature: str, module: str, command: str) -> None:
        """Ask the kernel for something in it, as `_need` does."""
        _need(feature, module, *self.command(command.split()))

    def processes(self) -> list[int]:
        """Numbers of the processes in it."""
        found = []
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):  # it has ended
                found += (
                    [int(path.parts[2])] if os.readlink(path) == self.identity else []
                )
        return found


@dataclasses.dataclass(frozen=True)
class NetworkNode(Namespace):
    """One rank's machine: its name ("worker0") and its address."""

    name: str
    address: str


@contextlib.contextmanager
def network(
    names: Sequence[str], link: NetworkLink
) -> Iterator[tuple[NetworkNode, ...]]:
    """The nodes of a network, in rank order; after the block no process is left in one.

    Raises Refusal naming what the kernel lacks or this process may not do.
    """
    with contextlib.ExitStack() as stack:
        switch, *spaces = (
            stack.enter_context(_namespace()) for _ in ["switch", *names]
        )
        nodes = tuple(
            NetworkNode(space.holder, space.identity, name, f"{SUBNET}.{number}")
            for number, (space, name) in enumerate(zip(spaces, names, strict=True), 1)
        )
        _build(stack, switch, nodes, link)
        yield nodes


@contextlib.contextmanager
def _namespace() -> Iterator[Namespace]:
    """Make a namespace that lasts as long as the block; kill what still runs in it."""
    with fence.network() as fenced:
        if not fenced.enter:
            raise entry.Refusal(
                f"{NEED} network namespaces of the kernel (CONFIG_NET_NS): "
                f"{fenced.reason}"
            )
        space = Namespace(fenced.holder, os.readlink(f"/proc/{fenced.holder}/ns/net"))
        try:
            yield space
        finally:
            _kill_all(space)


def _kill_all(space: Namespace) -> None:
    """Kill every process in a namespace."""
    for _ in range(TRIES):
        # A process that is forked meanwhile is in the next list.
        numbers = space.processes()
        if not numbers:
            return
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(PAUSE_S)


def _build(
    stack: contextlib.ExitStack,
    switch: Namespace,
    nodes: Sequence[NetworkNode],
    link: NetworkLink,
) -> None:
    """Connect the nodes with the switch."""
    bridges = [f"bridge{index if link.delay_s else 0}" for index in range(len(nodes))]
    for bridge in dict.fromkeys(bridges):
        switch.need("bridges", "bridge", f"ip link add {bridge} type bridge")
        switch.call(f"ip link set {bridge} up")
    bucket = (
        f"tbf rate {link.bits_per_s:.0f}bit burst {link.burst_bytes} "
        f"limit {link.queue_bytes}"
    )
    for index, (node, bridge) in enumerate(zip(nodes, bridges, strict=True)):
        port = f"port{index}"
        ends = f"{port} type veth peer name {DEVICE} netns {node.holder}"
        switch.need("pairs of virtual Ethernet devices", "veth", f"ip link add {ends}")
        switch.call(f"ip link set {port} master {bridge}")
        node.call(f"ip address add {node.address}/24 dev {DEVICE}")
        # The node's end limits what it sends and the switch's end what it gets: a link
        # that is as fast both ways.
        for space, device in ((node, DEVICE), (switch, port)):
            space.need(
                "the token bucket filter (tbf)",
                "sch_tbf",
                f"tc qdisc add dev {device} root {bucket}",
            )
            space.call(f"ip link set {device} up")
    if link.delay_s:
        _delay(stack, switch, bridges, link.delay_s)


def _delay(
    stack: contextlib.ExitStack,
    switch: Namespace,
    bridges: Sequence[str],
    delay_s: float,
) -> None:
    """Lets frames pass between bridges, each after the delay, until the stack is closed."""

    def start(*words: str) -> None:
        stack.enter_context(running(switch.command(words)))

    sockets = Path(
        stack.enter_context(tempfile.TemporaryDirectory(prefix="rnn_scaling."))
    )
    middle = sockets / "middle"
    start("vde_switch", "-n", str(len(bridges) + SPARE_PORTS), "-s", str(middle))
    wait_until((middle / "ctl").exists, "vde_switch did not start")
    for index, bridge in enumerate(bridges):
        outer, tap = sockets / f"node{index}", f"tap{index}"
        start("vde_switch", "-s", str(outer), "-t", tap)
        wait_until((outer / "ctl").exists, "vde_switch did not start")
        switch.call(f"ip link set {tap} master {bridge} up")
        start("wirefilter", "-v", f"{middle}:{outer}", "-d", f"{delay_s * 1e3 / 2:g}")


class CallFailed(RuntimeError):
    """A program failed; the message ends with its error output."""


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Raises CallFailed, with `otherwise`, if something does not happen in ten seconds."""
    for _ in range(TRIES):
        if is_so():
            return
        time.sleep(PAUSE_S)
    raise CallFailed(otherwise)


def refusals(has_delay: bool) -> list[str]:
    """Return why this machine cannot limit links, one line per reason.

    What the kernel lacks is found only later, when the network is built.
    """
    if not os.path.isdir("/proc/sys/net"):
        return [f"{NEED} the network namespaces of Linux; run them on Linux"]
    lines = []
    if os.geteuid() != 0:
        lines.append(f"{NEED} root; run the command with sudo")
    packages = {**PACKAGES, **(DELAY_PACKAGES if has_delay else {})}
    missing = [program for program in packages if shutil.which(program) is None]
    if missing:
        to_install = sorted({packages[program] for program in missing})
        lines.append(
            f"{NEED} {', '.join(packages)}, found no {', '.join(missing)}; "
            f"apt install {' '.join(to_install)}"
        )
    return lines


def call(*words: str) -> str:
    """What a program prints. Raises CallFailed if it ends with another status than 0, or not within CALL_TIMEOUT_S."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=CALL_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        error = (
            done.stderr.strip() or f"exit status {done.returncode}"
            if done.returncode
            else ""
        )
    except OSError as e:
        error = e.strerror or str(e)
    except subprocess.TimeoutExpired:
        error = f"no end after {CALL_TIMEOUT_S} s"
    if error:
        raise CallFailed(f"{' '.join(words)}: {error.splitlines()[0]}")
    return done.stdout


def _need(feature: str, module: str, *words: str) -> None:
    """Ask the kernel for a feature that it may not have.

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
                f"{NEED} CAP_SYS_ADMIN and CAP_NET_ADMIN: {e}; run the command outside "
                "of the container, or in a privileged one"
            ) from None
        raise entry.Refusal(
            f"{NEED} {feature} of the kernel: {e}; try modprobe {module}"
        ) from None


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
    """A program that runs while the block does, and dies with this process; its stdin stays open."""
    tethered = [sys.executable, "-I", str(TETHER), str(os.getpid()), *command]
    process = subprocess.Popen(
        tethered, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            process.kill()


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What one TCP stream from each node to the next carried while all sent."""

    bits_per_s: tuple[float, ...]  # payload of each node, in rank order
    round_trip_s: float  # between two nodes while no other node sent


def measure(nodes: Sequence[NetworkNode]) -> Calibration:
    """Measures the links of two nodes or more. Raises CallFailed naming the node."""
    ((_, round_trip_s),) = _streams([(nodes[0], nodes[1])], IDLE)
    rates = [
        rate for rate, _ in _streams(list(zip(nodes, [*nodes[1:], nodes[0]])), FULL)
    ]
    return Calibration(tuple(rates), round_trip_s)


def _streams(
    pairs: Sequence[tuple[NetworkNode, NetworkNode]], flags: Sequence[str]
) -> list[tuple[float, float]]:
    """Return what `parse_iperf3` reads of one stream per pair, all at the same time."""
    server_words = f"iperf3 -s -1 -p {PORT}".split()
    client_words = f"iperf3 -p {PORT} -J --connect-timeout 5000".split()
    with contextlib.ExitStack() as stack:
        for _, server in pairs:
            stack.enter_context(running(server.command(server_words)))
        for _, server in pairs:  # a client that comes before its server is refused
            listening = server.command(["ss", "-ltn"])
            wait_until(
                lambda: f":{PORT} " in call(*listening),  # noqa: B023
                f"{server.name}: iperf3 -s does not listen",
            )
        clients = []
        for client, server in pairs:
            words = [*client_words, "-c", server.address, *flags]
            clients.append(stack.enter_context(running(client.command(words))))
        return [_result(node, client) for (node, _), client in zip(pairs, clients)]


def _result(node: NetworkNode, client: subprocess.Popen[str]) -> tuple[float, float]:
    try:
        return parse_iperf3(client.communicate(timeout=CALL_TIMEOUT_S)[0])
    except subprocess.TimeoutExpired:
        raise CallFailed(
            f"{node.name}: iperf3 did not end within {CALL_TIMEOUT_S} s"
        ) from None
    except CallFailed as e:
        raise CallFailed(f"{node.name}: iperf3: {e}") from None


def parse_iperf3(text: str) -> tuple[float, float]:
    """(bits a second that arrived, shortest round trip in seconds) of a client's JSON."""
    try:
        output = json.loads(text)
        if "error" in output:
            raise CallFailed(output["error"])
        end = output["end"]
        return float(end["sum_received"]["bits_per_second"]), float(
            end["streams"][0]["sender"]["min_rtt"]
        ) / 1e6
    except (ValueError, LookupError, TypeError):
        raise CallFailed("iperf3 printed no result") from None


def description(link: NetworkLink, found: Calibration) -> str:
    rates = " to ".join(
        dict.fromkeys(megabits(extreme(found.bits_per_s)) for extreme in (min, max))
    )
    delay = f" and {link.delay_s * 1e3:g} ms one way" if link.delay_s else ""
    return (
        f"{megabits(link.bits_per_s)}{delay} asked; {rates} of payload measured, {len(found.bits_per_s)} nodes "
        f"sending at once; round trip {found.round_trip_s * 1e3:.2g} ms"
    )


def warnings(link: NetworkLink, found: Calibration) -> list[str]:
    """Return a warning if a link carries less than requested."""
    slowest = min(found.bits_per_s)
    if slowest >= (1 - SHORTFALL) * link.bits_per_s:
        return []
    return [
        f"--link_mbit={link.bits_per_s / 1e6:g}: a link carries {megabits(slowest)}; "
        "the CPU may be the limit; use a lower rate, fewer workers or a quiet machine"
    ]


def megabits(bits_per_s: float) -> str:
    """A rate for people.

    >>> megabits(2e8), megabits(9.417e8), megabits(1e9)
    ('200 Mbit/s', '942 Mbit/s', '1000 Mbit/s')
    """
    rate = bits_per_s / 1e6
    return f"{rate:.0f} Mbit/s" if rate >= 100 else f"{rate:.3g} Mbit/s"
