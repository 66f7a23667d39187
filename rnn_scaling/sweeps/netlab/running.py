"""One run in a network made for it: what dead runs left goes, the links are measured, each rank gets a node."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.cluster.launch import NETWORK
from rnn_scaling.machine.cores import available_cores
from rnn_scaling.processes import process
from rnn_scaling.processes.process import Task
from rnn_scaling.sweeps import ranks
from rnn_scaling.sweeps.netlab import calibrate, network
from rnn_scaling.sweeps.netlab.link import in_words
from rnn_scaling.sweeps.netlab.names import Node
from rnn_scaling.sweeps.netlab.options import Wanted

MEETING_PORT = 29_500  # any: nobody else is in the namespace
# Nothing outside can be reached from a node, and what TensorFlow sends to another one must not go to a proxy.
PROXIES = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")


def run(wanted: Wanted, trainer: Sequence[str]) -> int:
    """Runs the ranks; returns the exit status.

    Raises:
      Refusal: naming what the kernel or this process lacks.
    """
    if removed := network.remove_leftovers():
        print(f"removed {len(removed)} network namespaces that a killed run had left", file=sys.stderr)
    if wanted.cores > (there := len(available_cores())):
        entry.warn(f"workers keep {wanted.cores} cores busy and {there} are there: they take turns, on any network")
    names = [name.replace(" ", "") for name in ranks.names(wanted.config)]
    with network.network(names, wanted.link) as nodes:
        try:
            described = _measured(wanted, nodes)
            ended = process.run_together(_tasks(wanted, nodes, described, trainer), 0.0, ranks.relay)
        except calibrate.CalibrationFailed as e:
            return entry.fail(f"netlab: the links were not measured: {e}")
        except OSError as e:
            return entry.fail(f"netlab: a process was not started: {e.strerror or e}")
    return ranks.answer(ended, wanted.config)


def environment(nodes: Sequence[Node], rank: int, described: str) -> dict[str, str]:
    """The variables of one rank."""
    return {
        **dict.fromkeys(PROXIES, ""),
        "RNN_SCALING_LAUNCHER": "netlab",
        "RNN_SCALING_RANK": str(rank),
        "RNN_SCALING_SIZE": str(len(nodes)),
        "RNN_SCALING_MEETING": f"{nodes[0].address}:{MEETING_PORT}",
        "RNN_SCALING_HOST": nodes[rank].address,
        # Nodes have networks of their own but share the processors.
        "RNN_SCALING_LOCAL_RANK": str(rank),
        "RNN_SCALING_LOCAL_SIZE": str(len(nodes)),
        NETWORK: described,
    }


def _tasks(wanted: Wanted, nodes: Sequence[Node], described: str, trainer: Sequence[str]) -> list[Task]:
    commands = [network.inside(node, [*trainer, *wanted.words]) for node in nodes]
    variables = [environment(nodes, rank, described) for rank in range(len(nodes))]
    return ranks.each_rank(wanted.config, commands, variables, has_streams=True)


def _measured(wanted: Wanted, nodes: Sequence[Node]) -> str:
    """The network in words: what was asked for and what it carries."""
    if len(nodes) == 1:  # it has nobody to send to
        return f"{in_words(wanted.link.bits_per_s)} asked, one node"
    measured = calibrate.measure(nodes)
    described = calibrate.in_a_line(wanted.link, measured)
    print(f"link: {described}", flush=True)
    entry.warn(*filter(None, [calibrate.warning(wanted.link, measured)]))
    return described
