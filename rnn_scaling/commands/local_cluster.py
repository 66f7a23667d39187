"""python -m rnn_scaling local-cluster: one run of several processes on this machine.

It only reads flags; `sweeps.ranks` starts the processes.
"""

from collections.abc import Sequence

from rnn_scaling.config import flags, registry
from rnn_scaling.sweeps import cluster_options, ranks
from rnn_scaling.sweeps.command_lines import LOCAL_CLUSTER, TRAINER
from rnn_scaling.sweeps.limited_links import run as limited_links
from rnn_scaling.system import entry

_MODES = ", ".join(registry.list_distributed_modes())

_USAGE = f"""\
Runs the trainer as a cluster on this machine: every worker, parameter server and
coordinator is a process. They communicate over a loopback interface that other machines
cannot reach; if Linux allows a private network, other programs cannot reach it either.
The trainer's flags (./run.sh train --help) follow --. They are the same for all
processes and are checked before any starts.

    ./run.sh local-cluster -- --num_devices=1  2 workers, {cluster_options.DEFAULT_MODE}
    ./run.sh local-cluster --workers=3 -- --result_file=run.json
    ./run.sh local-cluster --workers=2 --ps=1 -- \\
        --variable_update=distributed_parameter_server
    ./run.sh local-cluster --workers=3 --link_mbit=200 -- --result_file=run.json
    ./run.sh local-cluster --link_mbit=50 --link_latency_ms=5 -- \\
        --compress_gradients=int8

Modes of several processes: {_MODES}.

Rank 0 prints the table and the progress and writes the record; lines of other ranks
begin with their name, such as [worker 1]. Workers share the cores of this machine:
start at most as many as it has cores. On several machines, mpirun, srun and Kubernetes
start the same trainer (docs/cluster.md). The first process that fails ends the run and
is named.

With --link_mbit or --link_latency_ms the network is slower: each process gets its own
network namespace, behind a link to a common switch. This needs root, iproute2 and
iperf3, which measures the links before the run; the record contains the result. Nothing
is left on the machine, even after kill -9.

Exit status: 0 done; 1 a process failed or the links could not be measured; 2 the flags
conflict or this machine lacks a tool; 130 interrupted."""

GROUPS = (cluster_options.ProcessCounts, limited_links.LinkOptions)


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = TRAINER) -> int:
    """Run the command; return its exit status."""
    own_words, _ = cluster_options.split_at_dashes(words)
    flags.answer(own_words, _USAGE, GROUPS, LOCAL_CLUSTER)
    (_, link_options), rank_flags, config = cluster_options.read_command_line(
        words, GROUPS
    )
    link = link_options.link()
    if link is None:
        return ranks.Starter(trainer).run_here(config, rank_flags)
    return limited_links.run_ranks(link, trainer, rank_flags, config)
