"""Network namespaces around one switch, each behind a limited link; all of it is gone when the block ends.

    node's eth0 -- rate limit -- port -- bridge            with a delay, between the bridges of any two nodes:
    bridge -- tap | vde_switch | wirefilter: half the delay | vde_switch in the middle | ... | bridge

Every interface lives in a namespace of this run, so the host's own network gets no new name, address or route. The
namespaces have no names: the kernel removes each with its last process, and all of them end with this one. Few kernels
delay frames (netem), so vde's programs do.
"""

import contextlib
import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.cluster import fence
from rnn_scaling.processes.process import TETHER

# program -> package of Debian and Ubuntu
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "iperf3": "iperf3", "nsenter": "util-linux", "unshare": "util-linux"}
DELAY_PACKAGES = {"vde_switch": "vde2", "wirefilter": "vde2"}
CALL_TIMEOUT_S = 30
TRIES, PAUSE_S = 200, 0.05  # until something has started or ended
DEVICE = "eth0"
SUBNET, PREFIX_LENGTH = "10.200.0", 24  # of namespaces that reach nothing else, so no network outside can collide
SPARE_PORTS = 8  # of the switch in the middle
# What may pass at once: at 1 Gbit/s less than 1 MB loses rate to the clock that refills the bucket, and one packet of
# 64 KiB, as TCP hands them to the kernel, must fit.
BURST_S, LEAST_BURST_BYTES = 0.008, 66_000
QUEUE_S = 0.05  # of data that waits before packets are lost: the buffer of a switch


@dataclasses.dataclass(frozen=True)
class NetworkLink:
    """Every node's link to the switch, the same in both directions."""

    bits_per_s: float  # that the token bucket lets through, headers of Ethernet included
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

    def call(self, *words: str) -> None:
        """Runs a program in it, as `call` does."""
        call(*self.command(words))

    def processes(self) -> list[int]:
        """Numbers of the processes in it."""
        found = []
        for path in Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):  # it has ended
                found += [int(path.parts[2])] if os.readlink(path) == self.identity else []
        return found


@dataclasses.dataclass(frozen=True)
class NetworkNode(Namespace):
    """One rank's machine: its name ("worker0") and its address."""

    name: str
    address: str


@contextlib.contextmanager
def network(names: Sequence[str], link: NetworkLink) -> Iterator[tuple[NetworkNode, ...]]:
    """The nodes of a network, in rank order; after the block no process is left in one.

    Raises Refusal naming what the kernel lacks or this process may not do.
    """
    with contextlib.ExitStack() as stack:
        switch, *spaces = (stack.enter_context(_namespace()) for _ in ["switch", *names])
        nodes = tuple(
            NetworkNode(space.holder, space.identity, name, f"{SUBNET}.{number}")
            for number, (space, name) in enumerate(zip(spaces, names, strict=True), 1)
        )
        _build(stack, switch, nodes, link)
        yield nodes


@contextlib.contextmanager
def _namespace() -> Iterator[Namespace]:
    """A new namespace; what runs in it when the block ends is killed."""
    with fence.network() as fenced:
        if not fenced.enter:
            raise entry.Refusal(f"netlab needs network namespaces of the kernel (CONFIG_NET_NS): {fenced.reason}")
        space = Namespace(fenced.holder, os.readlink(f"/proc/{fenced.holder}/ns/net"))
        try:
            yield space
        finally:
            for _ in range(TRIES):  # a process that is forked meanwhile is in the next list
                if not (numbers := space.processes()):
                    break
                for number in numbers:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(number, signal.SIGKILL)
                time.sleep(PAUSE_S)


def _build(stack: contextlib.ExitStack, switch: Namespace, nodes: Sequence[NetworkNode], link: NetworkLink) -> None:
    """Connects the nodes with the switch."""
    bridges = [f"bridge{index if link.delay_s else 0}" for index in range(len(nodes))]
    for bridge in dict.fromkeys(bridges):
        _need("bridges", "bridge", *switch.command(["ip", "link", "add", bridge, "type", "bridge"]))
        _up(switch, bridge)
    for index, (node, bridge) in enumerate(zip(nodes, bridges, strict=True)):
        port = f"port{index}"
        ends = ["ip", "link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", str(node.holder)]
        _need("pairs of virtual Ethernet devices", "veth", *switch.command(ends))
        switch.call("ip", "link", "set", port, "master", bridge)
        node.call("ip", "address", "add", f"{node.address}/{PREFIX_LENGTH}", "dev", DEVICE)
        # The node's end limits what it sends and the switch's end what it gets: a link that is as fast both ways.
        for space, device in ((node, DEVICE), (switch, port)):
            bucket = ["tbf", "rate", f"{link.bits_per_s:.0f}bit", "burst", str(link.burst_bytes)]
            words = ["tc", "qdisc", "add", "dev", device, "root", *bucket, "limit", str(link.queue_bytes)]
            _need("the token bucket filter (tbf)", "sch_tbf", *space.command(words))
            _up(space, device)
    if link.delay_s:
        _delay(stack, switch, bridges, link.delay_s)


def _up(space: Namespace, device: str) -> None:
    space.call("ip", "link", "set", device, "up")


def _delay(stack: contextlib.ExitStack, switch: Namespace, bridges: Sequence[str], delay_s: float) -> None:
    """Lets frames pass between bridges, each after the delay, until the stack is closed."""

    def start(*words: str) -> None:
        stack.enter_context(running(switch.command(words)))

    sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rnn_scaling.")))
    middle = sockets / "middle"
    start("vde_switch", "-n", str(len(bridges) + SPARE_PORTS), "-s", str(middle))
    wait_until((middle / "ctl").exists, "vde_switch did not start")
    for index, bridge in enumerate(bridges):
        outer, tap = sockets / f"node{index}", f"tap{index}"
        start("vde_switch", "-s", str(outer), "-t", tap)
        wait_until((outer / "ctl").exists, "vde_switch did not start")
        switch.call("ip", "link", "set", tap, "master", bridge, "up")
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
    """Why netlab cannot work on this machine; what the kernel lacks shows when it is asked."""
    if not os.path.isdir("/proc/sys/net"):
        return ["netlab needs the network namespaces of Linux; run it on Linux"]
    lines = ["netlab needs root; run it with sudo"] if os.geteuid() != 0 else []
    packages = {**PACKAGES, **(DELAY_PACKAGES if has_delay else {})}
    if missing := [program for program in packages if shutil.which(program) is None]:
        install = " ".join(sorted({packages[program] for program in missing}))
        lines.append(f"netlab needs {', '.join(packages)}, found no {', '.join(missing)}; apt install {install}")
    return lines


def call(*words: str) -> str:
    """What a program prints. Raises CallFailed if it ends with another status than 0, or not within CALL_TIMEOUT_S."""
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=CALL_TIMEOUT_S,
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        error = done.stderr.strip() or f"exit status {done.returncode}" if done.returncode else ""
    except OSError as e:
        error = e.strerror or str(e)
    except subprocess.TimeoutExpired:
        error = f"no end after {CALL_TIMEOUT_S} s"
    if error:
        raise CallFailed(f"{' '.join(words)}: {error.splitlines()[0]}")
    return done.stdout


def _need(feature: str, module: str, *words: str) -> None:
    """Asks the kernel for something that it may not have. Raises Refusal naming the feature and what to do."""
    try:
        call(*words)
    except CallFailed as e:
        if "Operation not permitted" in str(e):
            rule = "netlab needs CAP_SYS_ADMIN and CAP_NET_ADMIN"
            raise entry.Refusal(f"{rule}: {e}; run it outside of the container, or in a privileged one") from None
        raise entry.Refusal(f"netlab needs {feature} of the kernel: {e}; try modprobe {module}") from None


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
