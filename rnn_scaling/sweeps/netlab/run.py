"""One run in a network made for it: the links are measured, each rank gets a node."""

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.cluster.launch import NETWORK
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.models.config import option
from rnn_scaling.processes import process
from rnn_scaling.sweeps import early_checks, ranks
from rnn_scaling.sweeps.netlab import network
from rnn_scaling.sweeps.netlab.network import NetworkLink, NetworkNode

# Bits per second, in powers of 1000. tc's "mbps" are megabytes per second and therefore refused.
RATE_UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
DELAY_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
RATE_RULE = "a number and kbit, mbit or gbit, from 100kbit to 100gbit, such as 200mbit (bits a second)"
DELAY_RULE = "a number and us, ms or s, up to 1s, such as 5ms (one way)"
SLOWEST, FASTEST = 1e5, 1e11  # bits a second
LONGEST_DELAY_S = 1.0
MOST_NODES = 250  # addresses of the subnet
RENDEZVOUS_PORT = 29_500  # any: the namespace has no other program
# Nothing outside can be reached from a node, and what TensorFlow sends to another one must not go to a proxy.
PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


def parse_rate(text: str) -> float:
    """ "200mbit" -> 2e8 bits a second. Raises ValueError, saying what the text must be."""
    rate = _parse(text, RATE_UNITS, "/s")
    if rate is None or not SLOWEST <= rate <= FASTEST:
        raise ValueError(RATE_RULE)
    return rate


def parse_delay(text: str) -> float:
    """ "5ms" -> 0.005 s; "0" -> 0; errors as in `parse_rate`."""
    delay = 0.0 if text.strip() == "0" else _parse(text, DELAY_UNITS)
    if delay is None or delay > LONGEST_DELAY_S:
        raise ValueError(DELAY_RULE)
    return delay


def _parse(text: str, units: dict[str, float], ending: str = "") -> float | None:
    match = re.fullmatch(
        rf"(\d{{1,12}}(?:\.\d{{1,12}})?) ?({'|'.join(units)})(?:{ending})?",
        text.strip().lower(),
    )
    return float(match[1]) * units[match[2]] if match else None


@dataclasses.dataclass(frozen=True)
class NetlabOptions:
    """Network."""

    rate: float = option(
        1e9,
        "rate of every node's link, in each direction (default: 1gbit)",
        parse=parse_rate,
        shown="200mbit",
    )
    delay: float = option(
        0.0,
        "delay between two nodes, one way; needs the package vde2, works up to about 200 Mbit/s (default: 0)",
        parse=parse_delay,
        shown="5ms",
    )


GROUPS = (ranks.ProcessCounts, NetlabOptions)


def run(words: Sequence[str], trainer: Sequence[str]) -> int:
    (_, options), flags_of_all, config = ranks.read(words, GROUPS)
    if config.num_processes > MOST_NODES:
        raise entry.Refusal(
            f"netlab has room for {MOST_NODES} processes, got {config.num_processes}"
        )
    link = NetworkLink(options.rate, options.delay)
    if lines := network.refusals(bool(link.delay_s)):
        raise entry.Refusal(*lines)
    entry.warn(*early_checks.crowding([config], len(available_cores())))
    with network.network(
        [name.replace(" ", "") for name in ranks.names(config)], link
    ) as nodes:
        try:
            described = _measured(link, nodes)
            commands = [node.command([*trainer, *flags_of_all]) for node in nodes]
            variables = [
                environment(nodes, rank, described) for rank in range(len(nodes))
            ]
            tasks = ranks.each_rank(config, commands, variables, has_streams=True)
            ended = process.run_together(tasks, 0.0, ranks.relay)
        except network.CallFailed as e:
            return entry.fail(f"netlab: cannot measure the links: {e}")
        except OSError as e:
            return entry.fail(f"netlab: cannot start a process: {e.strerror or e}")
    return ranks.answer(ended, config)


def environment(
    nodes: Sequence[NetworkNode], rank: int, described: str
) -> dict[str, str]:
    return {
        **dict.fromkeys(PROXIES, ""),
        "RNN_SCALING_LAUNCHER": "netlab",
        "RNN_SCALING_RANK": str(rank),
        "RNN_SCALING_SIZE": str(len(nodes)),
        "RNN_SCALING_MEETING": f"{nodes[0].address}:{RENDEZVOUS_PORT}",
        "RNN_SCALING_HOST": nodes[rank].address,
        # Nodes have networks of their own but share the processors.
        "RNN_SCALING_LOCAL_RANK": str(rank),
        "RNN_SCALING_LOCAL_SIZE": str(len(nodes)),
        NETWORK: described,
    }


def _measured(link: NetworkLink, nodes: Sequence[NetworkNode]) -> str:
    """The network in words: what was requested and what it carries."""
    if len(nodes) == 1:
        return f"{network.megabits(link.bits_per_s)} asked, one node"
    measured = network.measure(nodes)
    described = network.description(link, measured)
    print(f"link: {described}", flush=True)
    entry.warn(*network.warnings(link, measured))
    return described
