"""python -m rnn_scaling local-cluster: one run of several processes, all of them on this machine."""

from collections.abc import Sequence

from rnn_scaling import entry, registry
from rnn_scaling.settings import flags
from rnn_scaling.sweeps import ranks

_MODES = ", ".join(
    mode for mode in registry.VARIABLE_UPDATES if registry.is_distributed(mode)
)

USAGE = f"""\
Runs the trainer as a cluster on this machine: every worker, parameter server and coordinator is a process. They
communicate over a loopback interface that no other machine reaches, nor any other program if Linux allows a private
network. The trainer's flags (./run.sh train --help) follow --. They are the same for all processes and are checked
before any starts.

    ./run.sh local-cluster -- --num_devices=1                       two workers, {ranks.DEFAULT_MODE}
    ./run.sh local-cluster --workers=3 -- --result_file=run.json
    ./run.sh local-cluster --workers=2 --ps=1 -- --variable_update=distributed_parameter_server

Modes of several processes: {_MODES}.

Rank 0 prints the table and the progress and writes the record; lines of other ranks begin with their name, as
[worker 1]. Workers share the cores of this machine: use no more of them than it has cores. On several machines, mpirun,
srun and Kubernetes start the same trainer (docs/cluster.md). The first process that fails ends the run and is named.

Exit status: 0 done, 1 a process failed, 2 the flags conflict, 130 interrupted."""


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = ranks.TRAINER) -> int:
    groups = [ranks.ProcessCounts]
    flags.answer(ranks.split(words)[0], USAGE, groups, "local-cluster")
    _, flags_of_all, config = ranks.read(words, groups)
    return ranks.Starter(trainer).answer(config, flags_of_all)
