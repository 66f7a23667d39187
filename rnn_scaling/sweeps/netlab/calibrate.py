"""What the links really carry: iperf3 from every node to the next one, all at once, as a ring of gradients goes."""

import contextlib
import dataclasses
import json
import subprocess
from collections.abc import Sequence

from rnn_scaling.sweeps.netlab.network import CallFailed, NetworkLink, NetworkNode, call, running, wait_until

PORT = 5201
CLIENT = ("-p", str(PORT), "-J", "--connect-timeout", "5000")
FULL = ("-t", "2", "-O", "1")  # seconds measured, after a second for slow start and a full bucket
IDLE = ("-t", "1", "-b", "80k", "-l", "1k")  # ten packets, none of which waits for another
TIMEOUT_S = 30
SHORTFALL = 0.1  # share of the requested rate that may be missing: headers are 4.4 %


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What one TCP stream from each node to the next carried while all sent."""

    bits_per_s: tuple[float, ...]  # payload of each node, in rank order
    round_trip_s: float  # between two nodes while no other node sent


def measure(nodes: Sequence[NetworkNode]) -> Calibration:
    """Measures the links of two nodes or more. Raises CallFailed naming the node."""
    ((_, round_trip_s),) = _streams([(nodes[0], nodes[1])], IDLE)
    rates = [rate for rate, _ in _streams(list(zip(nodes, [*nodes[1:], nodes[0]])), FULL)]
    return Calibration(tuple(rates), round_trip_s)


def _streams(pairs: Sequence[tuple[NetworkNode, NetworkNode]], flags: Sequence[str]) -> list[tuple[float, float]]:
    """What `parse` reads of one stream from the first to the second node of each pair, all at the same time."""
    with contextlib.ExitStack() as stack:
        for _, server in pairs:
            stack.enter_context(running(server.command(["iperf3", "-s", "-1", "-p", str(PORT)])))
        for _, server in pairs:  # a client that comes before its server is refused
            listening = server.command(["ss", "-ltn"])
            wait_until(lambda: f":{PORT} " in call(*listening), f"{server.name}: iperf3 -s does not listen")  # noqa: B023
        clients = [
            stack.enter_context(running(client.command(["iperf3", "-c", server.address, *CLIENT, *flags])))
            for client, server in pairs
        ]
        return [_result(node, client) for (node, _), client in zip(pairs, clients)]


def _result(node: NetworkNode, client: subprocess.Popen[str]) -> tuple[float, float]:
    try:
        return parse(client.communicate(timeout=TIMEOUT_S)[0])
    except subprocess.TimeoutExpired:
        raise CallFailed(f"{node.name}: iperf3 did not end within {TIMEOUT_S} s") from None
    except CallFailed as e:
        raise CallFailed(f"{node.name}: iperf3: {e}") from None


def parse(text: str) -> tuple[float, float]:
    """(bits a second that arrived, shortest round trip in seconds) of a client's JSON."""
    try:
        output = json.loads(text)
        if "error" in output:
            raise CallFailed(output["error"])
        end = output["end"]
        return float(end["sum_received"]["bits_per_second"]), float(end["streams"][0]["sender"]["min_rtt"]) / 1e6
    except (ValueError, LookupError, TypeError):
        raise CallFailed("iperf3 printed no result") from None


def description(link: NetworkLink, found: Calibration) -> str:
    rates = " to ".join(dict.fromkeys(megabits(extreme(found.bits_per_s)) for extreme in (min, max)))
    delay = f" and {link.delay_s * 1e3:g} ms one way" if link.delay_s else ""
    return (
        f"{megabits(link.bits_per_s)}{delay} asked; {rates} of payload measured, {len(found.bits_per_s)} nodes "
        f"sending at once; round trip {found.round_trip_s * 1e3:.2g} ms"
    )


def warnings(link: NetworkLink, found: Calibration) -> list[str]:
    """A line if links carry less than requested."""
    slowest = min(found.bits_per_s)
    if slowest >= (1 - SHORTFALL) * link.bits_per_s:
        return []
    remedy = "the CPU may be the limit; use a lower rate, fewer workers or a quiet machine"
    return [f"--rate={link.bits_per_s / 1e6:g}mbit: a link carries {megabits(slowest)}; {remedy}"]


def megabits(bits_per_s: float) -> str:
    """A rate for people.

    >>> megabits(2e8), megabits(9.417e8), megabits(1e9)
    ('200 Mbit/s', '942 Mbit/s', '1000 Mbit/s')
    """
    rate = bits_per_s / 1e6
    return f"{rate:.0f} Mbit/s" if rate >= 100 else f"{rate:.3g} Mbit/s"
