"""Whether the launcher started the processes that the run needs."""

from __future__ import annotations

from collections.abc import Iterator

from rnn_scaling import registry
from rnn_scaling.cluster.launch import Launch
from rnn_scaling.settings.config import RunConfig


def started_otherwise(config: RunConfig, launch: Launch | None) -> Iterator[str]:
    """Why `config` cannot run as it was started, a line or none.

    Args:
      launch: which of several processes this is; None: one alone was started.
    """
    update, wanted = config.update.variable_update, config.num_processes
    if launch is None:
        if wanted > 1:
            yield f"{_processes(config)} and one was started; {_remedy(config)}"
    elif not registry.is_distributed(update):
        yield (
            f"--variable_update={update} runs in one process, and {launch.launcher} started {launch.size}: each would "
            "do the same; use a mode of several workers, such as collective_all_reduce, or start one"
        )
    elif launch.size != wanted:
        yield f"{_processes(config)} and {launch.launcher} started {launch.size}; start {wanted}, or change the numbers"
    elif launch.num_ps not in (None, num_ps := config.roles().count("ps")):
        yield (
            f"--variable_update={update} needs {num_ps} parameter servers and {launch.launcher} has {launch.num_ps}; "
            "list as many there, or change --num_ps"
        )


def _processes(config: RunConfig) -> str:
    roles, cluster = config.roles(), config.cluster
    flags = [f"--num_workers={cluster.num_workers}"]
    if "ps" in roles:
        flags.append(f"--num_ps={cluster.num_ps}")
    coordinator = " (one of them the coordinator)" if "coordinator" in roles else ""
    mode = f"--variable_update={config.update.variable_update}"
    return f"{' and '.join(flags)} with {mode} need {len(roles)} processes{coordinator}"


def _remedy(config: RunConfig) -> str:
    servers = f" --ps={config.cluster.num_ps}" if "ps" in config.roles() else ""
    here = f"./run.sh local-cluster --workers={config.cluster.num_workers}{servers} -- ..."
    return (
        f"use {here} on this machine, or mpirun -np {config.num_processes} or srun -n {config.num_processes} on several"
    )
