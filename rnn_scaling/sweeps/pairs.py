"""Two sets of flags -> their runs, in alternating order."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.flags import option
from rnn_scaling.config.naming import NAMED, network
from rnn_scaling.config.spelling import spell
from rnn_scaling.sweeps import command_plan
from rnn_scaling.sweeps.command_plan import AXIS, CommandRun, TrainerOptions
from rnn_scaling.sweeps.conduct import ConductOptions
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import OUTPUTS, Run
from rnn_scaling.sweeps.runs import AnyRun
from rnn_scaling.system.machine.gpus import machine_size


@dataclasses.dataclass(frozen=True)
class AbOptions:
    """Sides: the two settings."""

    a: str | None = option(
        None, 'flags of the first setting, in quotation marks; "": only the common ones'
    )
    b: str | None = option(None, "flags of the second setting")
    repeats: int = option(5, "pairs of runs", minimum=1)
    out: str = option("results/ab", "parent folder of a and b")
    max_regression: float = flags.max_regression(
        "limit for the exit status: how much slower b may be"
    )


GROUPS = (AbOptions, ConductOptions, TrainerOptions)


@dataclasses.dataclass(frozen=True)
class Setting:
    """One side: flags of this suite's trainer, of a command of the user's, and values of its axes."""

    flags: dict[str, Any]
    theirs: TrainerOptions
    axes: dict[str, list[str]]


def split_sides(
    words: Sequence[str],
) -> tuple[AbOptions, ConductOptions, list[Setting]]:
    """Command line -> (options of ab, how runs are made, sides a and b)."""
    own_fields, of_trainer = flags.fields(GROUPS[:2]), flags.fields([TrainerOptions])
    common_axes, words = command_plan.split_axes(words)
    common, lines = flags.parsed(words, {**own_fields, **of_trainer, **configs.OPTIONS})
    single = {name: common.pop(name) for name in own_fields if name in common}
    sides: list[Setting] = []
    for side in ("a", "b"):
        if side not in single:
            lines.append(f'--{side}="..." is missing; "" uses only the common flags')
            continue
        try:
            axes, other_words = command_plan.split_axes(shlex.split(single[side]))
            given = flags.parse(other_words, {**of_trainer, **configs.OPTIONS})
        except flags.FlagErrors as e:
            lines += [f"--{side}: {line}" for line in e.lines]
            continue
        except ValueError as e:
            lines.append(f"--{side}={single[side]!r}: {e}")
            continue
        lines += [
            f"--{side}: {spell(name, given[name])} and the common {spell(name, common[name])}; give one"
            for name in given.keys() & common.keys()
        ]
        lines += [
            f"--{side}: {AXIS}{name} is also common; give one"
            for name in axes.keys() & common_axes.keys()
        ]
        both = {**common, **given}
        try:
            (theirs,) = flags.build(
                [TrainerOptions],
                {name: both.pop(name) for name in of_trainer if name in both},
            )
        except flags.FlagErrors as e:
            lines += [f"--{side}: {line}" for line in e.lines]
            continue
        sides.append(Setting(both, theirs, {**common_axes, **axes}))
    reserved = [name for name in OUTPUTS if any(name in side.flags for side in sides)]
    lines += [f"--{name} is set by ab; leave it out" for name in reserved]
    options, how = flags.build(GROUPS[:2], single, lines)
    return options, how, sides


def counterbalanced(a: AnyRun, b: AnyRun, pairs: int, out: Path) -> list[Job]:
    """A B B A A B B A ..., to folders a and b: each is first equally often, and a drift cancels in every four runs."""
    jobs = []
    for pair in range(1, pairs + 1):
        sides = [("a", a), ("b", b)] if pair % 2 else [("b", b), ("a", a)]
        for side, run in sides:
            run = dataclasses.replace(run, repeat=pair)
            jobs.append(Job(run, out / side, f"{side}/"))
    return jobs


def runs(sides: Sequence[Setting]) -> list[AnyRun]:
    """The run of each side, both of this suite's trainer or both of a user's command."""
    made: list[AnyRun] = []
    lines: list[str] = []
    if len({bool(side.theirs.trainer) for side in sides}) > 1:
        lines.append(
            "--trainer is only on one side; give it to both, outside the quotation marks or in each"
        )
    for name, side in zip("ab", sides):
        try:
            made.append(_theirs(side) if side.theirs.trainer else _ours(side))
        except flags.FlagErrors as e:
            lines += [f"--{name}: {line}" for line in e.lines]
    if lines:
        raise flags.FlagErrors(lines)
    return made


def _ours(side: Setting) -> Run:
    machine, given = machine_size(), side.flags
    config = configs.resolve(given, **machine)
    lines = command_plan.missing_trainer(side.theirs, side.axes)
    if lines := [
        *lines,
        *conflicts.problems(config, given, num_gpus=machine["num_gpus"]),
    ]:
        raise flags.FlagErrors(lines)
    flat = config.flat()
    return Run(
        "-".join([network(flat), *(str(flat[name]) for name in NAMED[1:])]),
        given,
        config,
    )


def _theirs(side: Setting) -> CommandRun:
    lists = {
        "num_devices": [1],
        **{name: [value] for name, value in side.flags.items()},
    }
    planned = command_plan.plan(side.theirs, side.axes, lists, **machine_size())
    if len(planned) > 1:
        several = [name for name, values in side.axes.items() if len(values) > 1]
        raise flags.FlagErrors(
            [
                f"{AXIS}{name}={','.join(side.axes[name])} must be one value"
                for name in several
            ]
        )
    return planned[0]
