"""Network namespaces around one switch, each behind a limited link; all of it is removed when the block ends.

    node's eth0 -- rate limit -- port -- bridge            with a delay, between the bridges of any two nodes:
    bridge -- tap | vde_switch | wirefilter: half the delay | vde_switch in the middle | ... | bridge

Every interface lives in a namespace of this run, so the host's own network gets no new name, address or route. Few
kernels delay frames (netem), so vde's programs do.
"""

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.processes import alive
from rnn_scaling.processes.process import TETHER

PACKAGES = {"ip": "iproute2", "tc": "iproute2", "iperf3": "iperf3"}  # program -> package of Debian and Ubuntu
DELAY_PACKAGES = {"vde_switch": "vde2", "wirefilter": "vde2"}
CALL_TIMEOUT_S = 30
TRIES, PAUSE_S = 200, 0.05  # until something has started or ended
NAMESPACES = Path("/run/netns")  # where iproute2 keeps their names
BOOT = Path("/proc/sys/kernel/random/boot_id")
SWITCH, DEVICE = "switch", "eth0"
SUBNET, PREFIX_LENGTH = "10.200.0", 24  # of namespaces that reach nothing else, so no network outside can collide
SPARE_PORTS = 8  # of the switch in the middle
# A namespace's name contains the process that made it, so that the leftovers of a dead process are found.
_NAME = re.compile(r"rnn_scaling-(\d{1,9})-(\d{1,20})-([a-z0-9]{1,20})")
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
class NetworkNode:
    """One rank's machine: its name ("worker0"), its namespace, its address."""

    name: str
    namespace: str
    address: str

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs `words` in the node; `ip` becomes it, so the process number is the same."""
        return ["ip", "netns", "exec", self.namespace, *words]


@contextlib.contextmanager
def network(names: Sequence[str], link: NetworkLink) -> Iterator[tuple[NetworkNode, ...]]:
    """The nodes of a network; after the block no namespace of it is left, and no process in one.

    Raises Refusal naming what the kernel lacks or this process may not do.
    """
    process = alive.this_process()
    if process is None:
        raise entry.Refusal("netlab needs /proc; mount it")
    nodes = nodes_of(process, names)
    switch = namespace(process, SWITCH)
    with contextlib.ExitStack() as stack:
        try:
            _build(stack, switch, nodes, link)
            yield nodes
        finally:
            # A second Ctrl-C, or SIGTERM, does not stop the clean-up after the first.
            handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
            try:
                stack.close()
                remove([*(node.namespace for node in nodes), switch])
            finally:
                for number, handler in handlers.items():
                    signal.signal(number, handler)


def namespace(process: str, name: str) -> str:
    """The namespace of one node; `process`: of `alive.this_process`: number, start, boot."""
    number, start, _ = process.split(" ")
    return f"rnn_scaling-{number}-{start}-{name}"


def nodes_of(process: str, names: Sequence[str]) -> tuple[NetworkNode, ...]:
    """A node for every rank, in rank order; `process` as in `namespace`."""
    return tuple(NetworkNode(name, namespace(process, name), f"{SUBNET}.{rank + 1}") for rank, name in enumerate(names))


def makers(namespaces: Iterable[str], boot: str) -> dict[str, list[str]]:
    """The namespaces of each process that made some, as `alive.is_alive` accepts it; foreign names are left out."""
    found: dict[str, list[str]] = {}
    for name in namespaces:
        if match := _NAME.fullmatch(name):
            found.setdefault(f"{match[1]} {match[2]} {boot}", []).append(name)
    return found


def remove_leftovers() -> list[str]:
    """Removes the namespaces of dead processes with everything that runs in them; returns their names."""
    removed: list[str] = []
    for process, namespaces in makers(present(), BOOT.read_text().strip()).items():
        if not alive.is_alive(process):
            remove(namespaces)
            removed += namespaces
    return removed


def remove(namespaces: Sequence[str]) -> None:
    """Kills every process in the namespaces that exist, and deletes them."""
    existing = [name for name in namespaces if name in present()]
    for _ in range(TRIES):  # a process that is forked meanwhile is in the next list
        numbers = [number for name in existing for number in processes(name)]
        if not numbers:
            break
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(PAUSE_S)
    for name in existing:
        shutil.rmtree(delay_folder(name), ignore_errors=True)
        with contextlib.suppress(CallFailed):  # another netlab that starts removes the same leftovers
            call("ip", "netns", "delete", name)


def present() -> list[str]:
    return sorted(os.listdir(NAMESPACES)) if NAMESPACES.exists() else []


def processes(namespace: str) -> list[int]:
    """Numbers of the processes in a namespace; none where it has gone."""
    try:
        return [int(word) for word in call("ip", "netns", "pids", namespace).split()]
    except CallFailed:
        return []


def delay_folder(switch: str) -> Path:
    """Where the sockets of vde's programs are."""
    return Path("/run", switch)


def _build(stack: contextlib.ExitStack, switch: str, nodes: Sequence[NetworkNode], link: NetworkLink) -> None:
    """Makes switch and nodes; what it has made when it fails is the caller's to remove."""
    _make_namespace(switch)
    bridges = [f"bridge{index if link.delay_s else 0}" for index in range(len(nodes))]
    for bridge in dict.fromkeys(bridges):
        _need("bridges", "bridge", "ip", "-n", switch, "link", "add", bridge, "type", "bridge")
        _up(switch, bridge)
    for index, (node, bridge) in enumerate(zip(nodes, bridges, strict=True)):
        _make_namespace(node.namespace)
        port = f"port{index}"
        ends = ["link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", node.namespace]
        _need("pairs of virtual Ethernet devices", "veth", "ip", "-n", switch, *ends)
        call("ip", "-n", switch, "link", "set", port, "master", bridge)
        call("ip", "-n", node.namespace, "address", "add", f"{node.address}/{PREFIX_LENGTH}", "dev", DEVICE)
        # The node's end limits what it sends and the switch's end what it gets: a link that is as fast both ways.
        for namespace, device in ((node.namespace, DEVICE), (switch, port)):
            bucket = ["tbf", "rate", f"{link.bits_per_s:.0f}bit", "burst", str(link.burst_bytes)]
            words = ["qdisc", "add", "dev", device, "root", *bucket, "limit", str(link.queue_bytes)]
            _need("the token bucket filter (tbf)", "sch_tbf", "tc", "-n", namespace, *words)
            _up(namespace, device)
    if link.delay_s:
        _delay(stack, switch, bridges, link.delay_s)


def _make_namespace(name: str) -> None:
    _need("network namespaces (CONFIG_NET_NS)", "veth", "ip", "netns", "add", name)
    _up(name, "lo")  # a node reaches itself by its own address over it


def _up(namespace: str, device: str) -> None:
    call("ip", "-n", namespace, "link", "set", device, "up")


def _delay(stack: contextlib.ExitStack, switch: str, bridges: Sequence[str], delay_s: float) -> None:
    """Lets frames pass between bridges, each after the delay, until the stack is closed."""

    def start(*words: str) -> None:
        stack.enter_context(running(["ip", "netns", "exec", switch, *words]))

    sockets = delay_folder(switch)
    sockets.mkdir(mode=0o700)
    middle = sockets / "middle"
    start("vde_switch", "-n", str(len(bridges) + SPARE_PORTS), "-s", str(middle))
    wait_until((middle / "ctl").exists, "vde_switch did not start")
    for index, bridge in enumerate(bridges):
        outer, tap = sockets / f"node{index}", f"tap{index}"
        start("vde_switch", "-s", str(outer), "-t", tap)
        wait_until((outer / "ctl").exists, "vde_switch did not start")
        call("ip", "-n", switch, "link", "set", tap, "master", bridge, "up")
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
