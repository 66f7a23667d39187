"""The processes of a run: how they start, on this machine or by a launcher, and which of them failed."""

import contextlib
import dataclasses
import functools
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.cluster import fence, ports, tokens
from rnn_scaling.config import conflicts, flags, naming, registry
from rnn_scaling.config.flags import option
from rnn_scaling.config.run_config import OPTIONS, RunConfig
from rnn_scaling.config.spelling import spell
from rnn_scaling.records.parts import RunError
from rnn_scaling.sweeps import failure, template
from rnn_scaling.sweeps.estimate import Limit
from rnn_scaling.system import entry
from rnn_scaling.system.processes import process
from rnn_scaling.system.processes.process import Ended, IsAlive, OnLine, Task

TRAINER = process.our_module("rnn_scaling.train")
COMMAND = "local-cluster"
DEFAULT_MODE, DEFAULT_WORKERS = "collective_all_reduce", 2


@dataclasses.dataclass(frozen=True)
class ProcessCounts:
    """Processes."""

    workers: int | None = option(
        None,
        f"worker processes (default: --num_workers, else {DEFAULT_WORKERS})",
        minimum=1,
        maximum=1_024,
    )
    ps: int | None = option(
        None,
        "processes that hold the variables, in modes that have them (default: --num_ps, else 1)",
        minimum=1,
        maximum=1_024,
    )


@dataclasses.dataclass(frozen=True)
class Starter:
    trainer: Sequence[str] = TRAINER  # the command of one process, without its flags
    launch: str = ""  # a launcher with its flags, which places the processes; empty: they start on this machine

    def run(
        self,
        config: RunConfig,
        words: Sequence[str],
        timeout_s: float,
        on_line: OnLine = lambda line: None,
        is_alive: IsAlive | None = None,
    ) -> Ended:
        """Runs all processes to their ends; errors as in `process.run_together`.

        `is_alive` says whether a line of output restarts the time limit; without it, none does.
        """
        if self.launch or config.num_processes == 1:
            task = Task([*self._launcher(config), *self.trainer, *words])
            return process.run_together([task], timeout_s, on_line, is_alive)
        with fenced(config, self.tasks(config, words)) as tasks:
            return process.run_together(tasks, timeout_s, on_line, is_alive)

    def early_command(
        self, config: RunConfig, words: Sequence[str]
    ) -> list[str] | None:
        """The command of a run whose process can start before its turn; None: it is not ours, or has several."""
        is_ours = (
            tuple(self.trainer) == TRAINER
            and config.frameworks.framework == naming.OURS
        )
        return (
            [*TRAINER, *words]
            if is_ours and not self.launch and config.num_processes == 1
            else None
        )

    def answer(self, config: RunConfig, words: Sequence[str]) -> int:
        """Runs all processes here, with the streams of this process; returns the exit status."""
        try:
            with fenced(config, self.tasks(config, words, has_streams=True)) as tasks:
                ended = process.run_together(tasks, timeout_s=0.0, on_line=relay)
        except OSError as e:
            return entry.fail(f"the cluster did not start: {e.strerror or e}")
        return answer(ended, config)

    def tasks(
        self, config: RunConfig, words: Sequence[str], has_streams: bool = False
    ) -> list[Task]:
        environments = _on_loopback(config.num_processes)
        command = [*self.trainer, *words]
        return each_rank(
            config, [command] * len(environments), environments, has_streams
        )

    def shown(self, config: RunConfig, words: Sequence[str]) -> str:
        """The command that a person would type for a run; arguments as in `run`."""
        program, flags_of_all = shlex.join(self.trainer), shlex.join(words)
        if tuple(self.trainer) == TRAINER:
            is_local = config.num_processes > 1 and not self.launch
            program = f"{entry.program()} {_counted(config) if is_local else 'train'}"
        return " ".join(
            [*filter(None, [shlex.join(self._launcher(config))]), program, flags_of_all]
        )

    def _launcher(self, config: RunConfig) -> list[str]:
        return (
            [*shlex.split(self.launch), "-n", str(config.num_processes)]
            if self.launch
            else []
        )


def _counted(config: RunConfig) -> str:
    """The command of a run on this machine, up to its flags."""
    servers = f" --ps={config.cluster.num_ps}" if config.mode.has_servers else ""
    return f"{COMMAND} --workers={config.cluster.num_workers}{servers} --"


def launcher(text: str) -> str:
    """The value of --launch. Raises ValueError, saying what the text must be."""
    if words := template.words_of(text):
        template.require_here(words[0])
    return text


def names(config: RunConfig) -> list[str]:
    """Names of the processes of a run, by rank: coordinator, workers, parameter servers."""
    roles = config.roles()
    return [
        role if role == "coordinator" else f"{role} {roles[:rank].count(role)}"
        for rank, role in enumerate(roles)
    ]


def _on_loopback(count: int) -> list[dict[str, str]]:
    """The environment variables with which `count` ranks of this machine find each other."""
    meeting = ports.joined(ports.LOOPBACK, ports.free(ports.MEETING_PORTS))
    common = {
        "RNN_SCALING_LAUNCHER": COMMAND,
        "RNN_SCALING_SIZE": str(count),
        "RNN_SCALING_MEETING": meeting,
    }
    return [{**common, "RNN_SCALING_RANK": str(rank)} for rank in range(count)]


@contextlib.contextmanager
def fenced(config: RunConfig, tasks: Sequence[Task]) -> Iterator[list[Task]]:
    """The tasks of a run, in a private network if the system allows one."""
    exchanges = config.mode.trains_one_model
    with fence.network() as network:
        if exchanges and not network.enter:
            _warn_of_open_ports(network.reason)
        yield [
            dataclasses.replace(task, command=[*network.enter, *task.command])
            for task in tasks
        ]


@functools.cache
def _warn_of_open_ports(reason: str) -> None:
    """Once per process."""
    rule = "other machines may reach the open ports of this run, because it has no private network"
    entry.warn(f"{rule} ({reason}); docs/cluster.md describes how to fence them")


def each_rank(
    config: RunConfig,
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    has_streams: bool,
) -> list[Task]:
    """A task for each rank of a run, all with the same new token."""
    # A coordinator continues when a worker dies; in all other modes the run ends.
    survives = config.mode.has_coordinator
    token = {tokens.VARIABLE: tokens.generate()}
    return [
        Task(
            commands[rank],
            {**environments[rank], **token},
            prefix=_prefix(name) if rank else "",
            may_fail=survives and name.startswith("worker"),
            has_streams=has_streams and rank == 0,
        )
        for rank, name in enumerate(names(config))
    ]


def _prefix(name: str) -> str:
    return f"[{name}] "


def reason(ended: Ended, config: RunConfig, limit: Limit) -> RunError:
    if not ended.task:
        return failure.reason(ended.returncode, ended.timed_out, ended.lines, limit)
    name = names(config)[ended.task]
    error = failure.reason(
        ended.returncode, ended.timed_out, _lines_of(name, ended.lines), limit
    )
    return dataclasses.replace(
        error, message=f"{_who(config, ended.task)}: {error.message}"
    )


def killed(ended: Ended, config: RunConfig) -> str:
    """The rank that was killed, which the other ranks cannot know; empty: none was."""
    if ended.returncode >= 0 or ended.timed_out or len(ended.returncodes) < 2:
        return ""
    return f"{_who(config, ended.task)} was {failure.killed(-ended.returncode)}"


def _who(config: RunConfig, rank: int) -> str:
    return f"{names(config)[rank]} (rank {rank})"


def answer(ended: Ended, config: RunConfig) -> int:
    """Prints which rank failed and why, unless rank 0 has printed it; returns the exit status."""
    if not ended.returncode:
        return entry.EXIT_OK
    has_printed = ended.returncodes[0] > 0
    line = killed(ended, config)
    if not line and not has_printed:
        line = (
            _named_cause(ended, config) or reason(ended, config, Limit(0.0, "")).message
        )
    if has_printed and line:
        print(line, file=sys.stderr)
    elif line:
        entry.fail(line)
    return ended.returncode if ended.returncode > 0 else entry.EXIT_FAILED


def _named_cause(ended: Ended, config: RunConfig) -> str:
    """The error of the failed rank about a rank that it lost; empty: there is none."""
    lines = _lines_of(names(config)[ended.task], ended.lines)
    return next(
        (
            line.removeprefix("error: ")
            for line in reversed(lines)
            if line.startswith("error: rank ")
        ),
        "",
    )


def _lines_of(name: str, lines: Sequence[str]) -> list[str]:
    prefix = _prefix(name)
    return [line.removeprefix(prefix) for line in lines if line.startswith(prefix)]


def relay(line: str | None) -> None:
    if line:
        print(line, file=sys.stderr, flush=True)


def spelled(given: Mapping[str, Any]) -> list[str]:
    """Options by name as words of a command line."""
    return [spell(name, value) for name, value in given.items()]


def split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """(the command's own flags, those of the trainer behind --)."""
    end = list(words).index("--") if "--" in words else len(words)
    return list(words[:end]), list(words[end + 1 :])


def read(
    words: Sequence[str], groups: Sequence[type]
) -> tuple[list[Any], list[str], RunConfig]:
    """Command line -> (the command's own options, the trainer's flags of every rank, what runs with them).

    The first of the groups is ProcessCounts. Raises FlagErrors naming everything that is wrong.
    """
    own_words, trainer_words = split(words)
    fields = flags.fields(groups)
    given, lines = flags.parsed(own_words, {**OPTIONS, **fields})
    strays = [name for name in given if name not in fields]
    lines += [
        f"{spell(name, given.pop(name))} is a flag of the trainer; put it behind --"
        for name in strays
    ]
    try:
        options, lines = flags.build(groups, given, lines), []
    except flags.FlagErrors as e:
        options, lines = [group() for group in groups], e.lines
    flags_of_all, config = checked(trainer_words, dataclasses.asdict(options[0]), lines)
    if error := conflicts.keeps_trace(config):
        raise flags.FlagErrors([error])
    return options, flags_of_all, config


def checked(
    words: Sequence[str], counts: Mapping[str, int | None], lines: Sequence[str] = ()
) -> tuple[list[str], RunConfig]:
    """The flags of the trainer, the same for every rank, and what runs with them.

    `counts` are the command's --workers and --ps, if given. Raises FlagErrors for `lines` and every mistake.
    """
    wrong = list(lines)
    given, _ = flags.parsed(words, OPTIONS)  # `conflicts.checked` reports what is wrong
    mode = given.get("variable_update", DEFAULT_MODE)
    defaults: dict[str, Any] = {"variable_update": mode}
    if mode in registry.VARIABLE_UPDATES and not registry.mode_of(mode).is_distributed:
        several = registry.either(registry.distributed_modes())
        wrong.append(
            f"--variable_update={mode} runs in one process; use {several}, or the command train"
        )
    else:
        set_counts = {
            f"num_{name}": value for name, value in counts.items() if value is not None
        }
        for name, value in set_counts.items():
            if given.get(name, value) != value:
                flag = spell(name.removeprefix("num_"), value)
                wrong.append(
                    f"{flag} and {spell(name, given[name])} contradict each other; leave one out"
                )
        defaults |= {"num_workers": DEFAULT_WORKERS, **set_counts}
    given, config = conflicts.checked(words, wrong, defaults)
    return spelled(given), config
