"""Run several processes over limited links, which are measured before the run.

`local-cluster` calls `run_ranks` if a flag limits the links.
"""

import dataclasses
from collections.abc import Sequence

from rnn_scaling.cluster.launch import NETWORK
from rnn_scaling.config.flags import option
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.sweeps import early_checks, ranks
from rnn_scaling.sweeps.command_lines import LOCAL_CLUSTER, CommandLine
from rnn_scaling.sweeps.limited_links import network
from rnn_scaling.sweeps.limited_links.network import NetworkLink, NetworkNode
from rnn_scaling.system import entry
from rnn_scaling.system.machine.cores import list_available_cores
from rnn_scaling.system.processes import process

_DEFAULT_MBIT = 1_000.0
_MAX_NODES = 250  # addresses of the subnet
_RENDEZVOUS_PORT = 29_500  # any port: no other program uses the namespace
# A node reaches nothing outside, so TensorFlow must not use a proxy to reach another
# node.
_PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


@dataclasses.dataclass(frozen=True)
class LinkOptions:
    """Limited links: each process behind a slower network (needs root)."""

    link_mbit: float | None = option(
        None,
        "rate of the link of each process, in each direction, in Mbit/s (default: not "
        f"limited; {_DEFAULT_MBIT:g} with --link_latency_ms)",
        minimum=0.1,
        maximum=100_000.0,
    )
    link_latency_ms: float | None = option(
        None,
        "delay between two processes, one way, in ms; needs the package vde2 and works "
        "up to about 200 Mbit/s (default: 0)",
        minimum=0.0,
        maximum=1_000.0,
    )

    def link(self) -> NetworkLink | None:
        """Return the link of each process, or None if no link is limited."""
        if self.link_mbit is None and self.link_latency_ms is None:
            return None
        mbit = _DEFAULT_MBIT if self.link_mbit is None else self.link_mbit
        return NetworkLink(mbit * 1e6, (self.link_latency_ms or 0.0) / 1e3)


def run_ranks(
    link: NetworkLink, trainer: Sequence[str], flags: Sequence[str], config: RunConfig
) -> int:
    """Run all ranks, each behind its own link.

    Args:
      link: The link of every process.
      trainer: The command of one rank, without its flags.
      flags: The flags of the trainer, the same for every rank.
      config: The configuration of the run.

    Returns:
      The exit status.

    Raises:
      Refusal: If this machine cannot limit links, or not this number of links.
    """
    if config.num_processes > _MAX_NODES:
        raise entry.Refusal(
            f"limited links connect at most {_MAX_NODES} processes, got "
            f"{config.num_processes}; use fewer --workers or --ps"
        )
    if lines := network.find_refusals(bool(link.delay_s)):
        raise entry.Refusal(*lines)
    entry.warn(*early_checks.check_cores([config], len(list_available_cores())))
    names = [name.replace(" ", "") for name in ranks.list_rank_names(config)]
    with network.open_network(names, link) as nodes:
        try:
            description = _measure(link, nodes)
            commands = []
            for rank, node in enumerate(nodes):
                words = node.wrap_command([*trainer, *flags])
                variables = make_environment(nodes, rank, description)
                commands.append(CommandLine(words, variables))
            tasks = ranks.make_rank_tasks(config, commands, has_streams=True)
            outcome = process.run_together(tasks, 0.0, ranks.print_line)
        except network.CallFailed as e:
            return entry.fail(f"cannot measure the limited links: {e}")
        except OSError as e:
            return entry.fail(f"cannot start a process: {e.strerror or e}")
    return ranks.report_end(outcome, config)


def make_environment(
    nodes: Sequence[NetworkNode], rank: int, description: str
) -> dict[str, str]:
    """Return the variables with which a rank finds the other ranks.

    Args:
      nodes: The node of each rank.
      rank: The rank that gets these variables.
      description: The network in words, for the record.
    """
    return {
        **dict.fromkeys(_PROXIES, ""),
        "RNN_SCALING_LAUNCHER": LOCAL_CLUSTER,
        "RNN_SCALING_RANK": str(rank),
        "RNN_SCALING_SIZE": str(len(nodes)),
        "RNN_SCALING_MEETING": f"{nodes[0].address}:{_RENDEZVOUS_PORT}",
        "RNN_SCALING_HOST": nodes[rank].address,
        # Each node has its own network, but all share the processors.
        "RNN_SCALING_LOCAL_RANK": str(rank),
        "RNN_SCALING_LOCAL_SIZE": str(len(nodes)),
        NETWORK: description,
    }


def _measure(link: NetworkLink, nodes: Sequence[NetworkNode]) -> str:
    """Measure the links; return the requested and the measured rates in words."""
    if len(nodes) == 1:
        return f"{network.format_megabits(link.bits_per_s)} asked, one node"
    calibration = network.measure(nodes)
    description = network.describe(link, calibration)
    print(f"link: {description}", flush=True)
    entry.warn(*network.find_warnings(link, calibration))
    return description
