"""Start the ranks of a run, here or by a launcher, and find the one that failed.

`Starter.make_tasks` returns the tasks in the order of the ranks, because
`ProcessOutcome.task` is read as the number of the rank that failed.
"""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Iterator, Sequence

from rnn_scaling.cluster import network_namespace, ports, tokens
from rnn_scaling.config import naming
from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.records.parts import RunError
from rnn_scaling.sweeps import command_lines, failure, placeholders
from rnn_scaling.sweeps.command_lines import LOCAL_CLUSTER, TRAINER, CommandLine
from rnn_scaling.sweeps.estimate import Limit
from rnn_scaling.system import entry
from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.process import (
    IsProgress,
    OnLine,
    ProcessOutcome,
    Task,
)


@dataclasses.dataclass(frozen=True)
class Starter:
    """Starts runs of this suite's trainer."""

    trainer: Sequence[str] = TRAINER  # the command of one rank, without its flags
    # A launcher with its flags; empty if the ranks start on this machine.
    launch: str = ""

    def build_command(self, config: RunConfig, flags: Sequence[str]) -> CommandLine:
        """Return the command line of a run, or of each of its ranks."""
        return command_lines.make_suite_command(
            config, flags, self.trainer, self.launch
        )

    def run(
        self,
        config: RunConfig,
        flags: Sequence[str],
        timeout_s: float,
        on_line: OnLine = lambda line: None,
        is_progress: IsProgress | None = None,
    ) -> ProcessOutcome:
        """Run all ranks to their ends.

        Args:
          config: The configuration of the run.
          flags: The flags of the run.
          timeout_s: Time limit in seconds; 0 for no limit.
          on_line: Called with each line of output, and with None if only time has
            passed.
          is_progress: Returns whether a line of output restarts the time limit; None if
            no line does.
        """
        if self.launch or config.num_processes == 1:
            task = self.build_command(config, flags).make_task()
            return process.run_together([task], timeout_s, on_line, is_progress)
        with _open_private_network(config, self.make_tasks(config, flags)) as tasks:
            return process.run_together(tasks, timeout_s, on_line, is_progress)

    def can_start_early(self, config: RunConfig) -> bool:
        """Return whether the process of a run can start before its turn.

        Only this suite's own training waits until it may begin, and only one process.
        """
        return (
            tuple(self.trainer) == TRAINER
            and config.frameworks.framework == naming.OWN_FRAMEWORK
            and not self.launch
            and config.num_processes == 1
        )

    def run_here(self, config: RunConfig, flags: Sequence[str]) -> int:
        """Run all ranks with the streams of this process; return the exit status."""
        try:
            tasks = self.make_tasks(config, flags, has_streams=True)
            with _open_private_network(config, tasks) as private_tasks:
                outcome = process.run_together(private_tasks, 0.0, print_line)
        except OSError as e:
            return entry.fail(f"the cluster did not start: {e.strerror or e}")
        return report_end(outcome, config)

    def make_tasks(
        self, config: RunConfig, flags: Sequence[str], has_streams: bool = False
    ) -> list[Task]:
        """Return a task for each rank on this machine."""
        words = self.build_command(config, flags).words
        address = ports.join(ports.LOOPBACK, ports.find_free(ports.RENDEZVOUS_PORTS))
        commands = []
        for rank in range(config.num_processes):
            variables = {
                "RNN_SCALING_LAUNCHER": LOCAL_CLUSTER,
                "RNN_SCALING_SIZE": str(config.num_processes),
                "RNN_SCALING_MEETING": address,
                "RNN_SCALING_RANK": str(rank),
            }
            commands.append(CommandLine(words, variables))
        return make_rank_tasks(config, commands, has_streams)


def check_launcher(text: str) -> str:
    """Return the value of --launch; a ValueError explains the rule."""
    if words := placeholders.split_words(text):
        placeholders.require_program(words[0])
    return text


def list_rank_names(config: RunConfig) -> list[str]:
    """Return the names of a run's ranks: coordinator, workers, parameter servers."""
    roles = config.list_roles()
    names = []
    for rank, role in enumerate(roles):
        number = roles[:rank].count(role)
        names.append(role if role == "coordinator" else f"{role} {number}")
    return names


@contextlib.contextmanager
def _open_private_network(
    config: RunConfig, tasks: Sequence[Task]
) -> Iterator[list[Task]]:
    """Yield the tasks of a run, in a private network if the system allows one."""
    with network_namespace.create() as network:
        if config.mode.trains_one_model and not network.enter:
            _warn_about_open_ports(network.reason)
        private_tasks = []
        for task in tasks:
            command = [*network.enter, *task.command]
            private_tasks.append(dataclasses.replace(task, command=command))
        yield private_tasks


@functools.cache
def _warn_about_open_ports(reason: str) -> None:
    """Warn once per process."""
    entry.warn(
        "other machines may reach the open ports of this run, because it has "
        f"no private network ({reason}); docs/cluster.md describes how to "
        "protect them"
    )


def make_rank_tasks(
    config: RunConfig, commands: Sequence[CommandLine], has_streams: bool
) -> list[Task]:
    """Return a task for each rank of a run, all with the same new token.

    Args:
      config: The configuration of the run.
      commands: The command line of each rank.
      has_streams: Whether rank 0 has the streams of this process.
    """
    token = {tokens.VARIABLE: tokens.generate_token()}
    tasks = []
    for rank, name in enumerate(list_rank_names(config)):
        command = commands[rank]
        task = Task(
            command.words,
            {**command.variables, **token},
            prefix=_make_line_prefix(name) if rank else "",
            # A coordinator continues if a worker dies; in all other modes the run ends.
            may_fail=config.mode.has_coordinator and name.startswith("worker"),
            has_streams=has_streams and rank == 0,
        )
        tasks.append(task)
    return tasks


def _make_line_prefix(name: str) -> str:
    return f"[{name}] "


def explain(outcome: ProcessOutcome, config: RunConfig, limit: Limit) -> RunError:
    """Return the error of a run without a result; it names a failed rank above 0."""
    lines = outcome.lines
    if outcome.task:
        lines = _rank_lines(outcome, config)
    error = failure.explain_end(outcome.returncode, outcome.timed_out, lines, limit)
    if not outcome.task:
        return error
    message = f"{_rank_title(outcome, config)}: {error.message}"
    return dataclasses.replace(error, message=message)


def describe_killed_rank(outcome: ProcessOutcome, config: RunConfig) -> str:
    """Name the rank that was killed, and its signal, or return "".

    The other ranks cannot know this.
    """
    if outcome.returncode >= 0 or outcome.timed_out or len(outcome.returncodes) < 2:
        return ""
    cause = failure.describe_signal(-outcome.returncode)
    return f"{_rank_title(outcome, config)} was {cause}"


def _rank_title(outcome: ProcessOutcome, config: RunConfig) -> str:
    return f"{list_rank_names(config)[outcome.task]} (rank {outcome.task})"


def report_end(outcome: ProcessOutcome, config: RunConfig) -> int:
    """Print which rank failed and why; return the exit status.

    An error that rank 0 has printed is not repeated.
    """
    if not outcome.returncode:
        return entry.EXIT_OK
    has_printed = outcome.returncodes[0] > 0
    line = describe_killed_rank(outcome, config)
    if not line and not has_printed:
        line = _find_lost_rank(outcome, config)
        line = line or explain(outcome, config, Limit(0.0, "")).message
    if has_printed and line:
        print(line, file=sys.stderr)
    elif line:
        entry.fail(line)
    return outcome.returncode if outcome.returncode > 0 else entry.EXIT_FAILED


def _find_lost_rank(outcome: ProcessOutcome, config: RunConfig) -> str:
    """Return the failed rank's error about a rank that it lost, or ""."""
    for line in reversed(_rank_lines(outcome, config)):
        if line.startswith("error: rank "):
            return line.removeprefix("error: ")
    return ""


def _rank_lines(outcome: ProcessOutcome, config: RunConfig) -> list[str]:
    """Return the lines that the failed rank printed."""
    prefix = _make_line_prefix(list_rank_names(config)[outcome.task])
    lines = [line for line in outcome.lines if line.startswith(prefix)]
    return [line.removeprefix(prefix) for line in lines]


def print_line(line: str | None) -> None:
    """Print a line of output on stderr."""
    if line:
        print(line, file=sys.stderr, flush=True)
