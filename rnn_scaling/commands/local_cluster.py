"""python -m rnn_scaling local-cluster: one run of several processes, all of them on this machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling import entry, registry
from rnn_scaling.models.config import option
from rnn_scaling.processes import process
from rnn_scaling.settings import conflicts, flags
from rnn_scaling.sweeps import ranks

_MODES = ", ".join(mode for mode in registry.VARIABLE_UPDATES if registry.is_distributed(mode))

USAGE = f"""\
Starts the trainer as a cluster on this machine: each worker, each parameter server and, where the mode has one, the
coordinator is a process of its own, and they talk over a loopback interface that no other machine reaches, and no
other program where Linux lets you have a network of your own. The flags behind -- are the trainer's
(./run.sh train --help), the same for all processes, and checked once before any starts.

    ./run.sh local-cluster -- --num_devices=1                       two workers, {ranks.DEFAULT_MODE}
    ./run.sh local-cluster --workers=3 -- --result_file=run.json
    ./run.sh local-cluster --workers=2 --ps=1 -- --variable_update=distributed_parameter_server

Modes of several processes: {_MODES}.

Rank 0's table, progress and record are the command's; what the others say begins with [worker 1]. The workers share the
cores of this machine: more of them than it has cores for measures how they take turns. Other machines: mpirun, srun and
Kubernetes start the same trainer (docs/cluster.md). The first process that fails ends all, and is named.

Exit status: 0 done, 1 a process failed, 2 the flags conflict, 130 interrupted."""


@dataclasses.dataclass(frozen=True)
class LocalClusterOptions:
    """Local cluster."""

    workers: int | None = option(
        None,
        f"worker processes (default: what --num_workers says, else {ranks.DEFAULT_WORKERS})",
        minimum=1,
        maximum=1_024,
    )
    ps: int | None = option(
        None,
        "processes that hold the variables, in modes that have such (default: what --num_ps says, else 1)",
        minimum=1,
        maximum=1_024,
    )


@entry.command
def main(words: Sequence[str], trainer: Sequence[str] = ranks.TRAINER) -> int:
    """Runs a cluster; returns the exit status."""
    end = words.index("--") if "--" in words else len(words)
    own_words, flags_of_all = words[:end], words[end + 1 :]
    flags.answer(own_words, USAGE, [LocalClusterOptions], "local-cluster")
    own, wrong = ranks.own_options(own_words, LocalClusterOptions)
    counts = {"workers": own.workers, "ps": own.ps}
    flags_of_all, config = ranks.checked(flags_of_all, counts, wrong)
    if lost := conflicts.keeps_trace(config):
        raise flags.FlagErrors([lost])
    starter = ranks.Starter(trainer)
    try:
        with ranks.fenced(config, starter.tasks(config, flags_of_all, has_streams=True)) as tasks:
            ended = process.run_together(tasks, timeout_s=0.0, on_line=ranks.relay)
    except OSError as e:
        return entry.fail(f"the cluster was not started: {e.strerror or e}")
    return ranks.answer(ended, config)
