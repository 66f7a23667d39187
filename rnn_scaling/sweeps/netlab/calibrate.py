"""What the links really carry: iperf3 from every node to the next one, all at once, as a ring of gradients goes."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.sweeps.netlab import tools
from rnn_scaling.sweeps.netlab.link import Link, in_words
from rnn_scaling.sweeps.netlab.names import Node
from rnn_scaling.sweeps.netlab.network import inside

PORT = 5201
CLIENT = ("-p", str(PORT), "-J", "--connect-timeout", "5000")
FULL = ("-t", "2", "-O", "1")  # seconds measured, after what slow start and a full bucket take
IDLE = ("-t", "1", "-b", "80k", "-l", "1k")  # ten packets, none of which waits for another
LISTEN_TRIES, LISTEN_PAUSE_S = 100, 0.05
TIMEOUT_S = 30
SHORTFALL = 0.1  # of the rate asked for from which on the links are not what they are called: headers take 4.4 %


class CalibrationFailed(RuntimeError):
    """iperf3 measured nothing, with what it said."""


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What one TCP stream from each node to the next carried while all sent, bits of payload a second.

    Attributes:
      bits_per_s: of each node, in rank order.
      round_trip_s: between two nodes while nobody else sent.
    """

    bits_per_s: tuple[float, ...]
    round_trip_s: float


def measure(nodes: Sequence[Node]) -> Calibration:
    """Measures the links of two nodes or more.

    Raises:
      CalibrationFailed: naming the node.
    """
    following = [*nodes[1:], nodes[0]]
    ((_, round_trip_s),) = _streams([(nodes[0], nodes[1])], IDLE)
    rates = [rate for rate, _ in _streams(list(zip(nodes, following)), FULL)]
    return Calibration(tuple(rates), round_trip_s)


def _streams(pairs: Sequence[tuple[Node, Node]], flags: Sequence[str]) -> list[tuple[float, float]]:
    """What `parse` says of one stream from the first to the second node of each pair, all at the same time."""
    with contextlib.ExitStack() as stack:
        for _, server in pairs:
            stack.enter_context(tools.running(inside(server, ["iperf3", "-s", "-1", "-p", str(PORT)])))
        _wait_until_all_listen([server for _, server in pairs])
        clients = [
            stack.enter_context(tools.running(inside(client, ["iperf3", "-c", server.address, *CLIENT, *flags])))
            for client, server in pairs
        ]
        return [_result(node, client) for (node, _), client in zip(pairs, clients)]


def parse(text: str) -> tuple[float, float]:
    """(bits a second that arrived, shortest round trip in seconds) by a client's JSON.

    Raises:
      CalibrationFailed: with iperf3's error, or that there is no result.
    """
    try:
        said = json.loads(text)
        if "error" in said:
            raise CalibrationFailed(said["error"])
        end: Mapping[str, Any] = said["end"]
        return float(end["sum_received"]["bits_per_second"]), float(end["streams"][0]["sender"]["min_rtt"]) / 1e6
    except (ValueError, LookupError, TypeError):
        raise CalibrationFailed("no result in what iperf3 said") from None


def in_a_line(link: Link, found: Calibration) -> str:
    """What was asked beside what was measured, for people."""
    rates = " to ".join(dict.fromkeys(in_words(extreme(found.bits_per_s)) for extreme in (min, max)))
    trip = found.round_trip_s * 1e3
    delay = f", {link.delay_s * 1e3:g} ms of delay one way" if link.delay_s else ""
    return (
        f"{in_words(link.bits_per_s)}{delay} asked; {rates} of payload measured, {len(found.bits_per_s)} nodes "
        f"sending at once; round trip {trip:.2g} ms"
    )


def warning(link: Link, found: Calibration) -> str | None:
    """What to know where links carry less than they are called; None where they do."""
    slowest = min(found.bits_per_s)
    if slowest >= (1 - SHORTFALL) * link.bits_per_s:
        return None
    return (
        f"--rate={link.bits_per_s / 1e6:g}mbit: a link carries {in_words(slowest)}; the processors of this machine may "
        "be the limit: ask for less, or for fewer workers, on a quiet machine"
    )


def _result(node: Node, client: subprocess.Popen[str]) -> tuple[float, float]:
    try:
        text, _ = client.communicate(timeout=TIMEOUT_S)
        return parse(text)
    except subprocess.TimeoutExpired:
        raise CalibrationFailed(f"{node.name}: iperf3 did not end within {TIMEOUT_S} s") from None
    except CalibrationFailed as e:
        raise CalibrationFailed(f"{node.name}: iperf3: {e}") from None


def _wait_until_all_listen(nodes: Sequence[Node]) -> None:
    """A client that comes before its server is refused."""
    waiting = list(nodes)
    for _ in range(LISTEN_TRIES):
        waiting = [node for node in waiting if f":{PORT} " not in tools.call(*inside(node, ["ss", "-ltn"]))]
        if not waiting:
            return
        time.sleep(LISTEN_PAUSE_S)
    raise CalibrationFailed(f"{waiting[0].name}: iperf3 -s does not listen")
