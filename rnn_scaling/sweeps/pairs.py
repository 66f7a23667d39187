"""Two sets of flags -> their runs, in turns."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import conflicts, flags
from rnn_scaling.settings.config import option
from rnn_scaling.settings.naming import NAMED, network
from rnn_scaling.settings.spelling import spell
from rnn_scaling.sweeps.conduct import ConductOptions
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run

RESERVED = ("result_file", "log_dir", "progress")


@dataclasses.dataclass(frozen=True)
class AbOptions:
    """The two sides."""

    a: str | None = option(None, 'flags of the first setting, in quotation marks; "": only the common ones')
    b: str | None = option(None, "flags of the second setting")
    repeats: int = option(5, "pairs of runs", minimum=1)
    out: str = option("results/ab", "folder of the folders a and b")
    max_regression: float = option(
        0.05, "how much slower b may be, as 5% or 0.05: what compare is asked", parse=flags.share, shown="SHARE"
    )


GROUPS = (AbOptions, ConductOptions)


def split_sides(words: Sequence[str]) -> tuple[AbOptions, ConductOptions, list[dict[str, Any]]]:
    """Command line -> (own options, the trainer's flags of a and b).

    Raises:
      FlagErrors: naming every unknown flag, malformed value and contradiction.
    """
    own_fields = flags.fields(GROUPS)
    lines: list[str] = []
    try:
        common = flags.parse(words, {**own_fields, **configs.OPTIONS})
    except flags.FlagErrors as e:
        common, lines = e.given, e.lines
    single = {name: common.pop(name) for name in own_fields if name in common}
    sides: list[dict[str, Any]] = []
    for side in ("a", "b"):
        if side not in single:
            lines.append(f'--{side}="..." is missing; "" stands for the common flags alone')
            continue
        try:
            given = flags.parse(shlex.split(single[side]), configs.OPTIONS)
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
        sides.append({**common, **given})
    reserved = [name for name in RESERVED if any(name in given for given in sides)]
    lines += [f"--{name} is set by ab; leave it out" for name in reserved]
    own, how = flags.build(GROUPS, single, lines)
    return own, how, sides


def counterbalanced(a: Run, b: Run, pairs: int, out: Path) -> list[Job]:
    """A B B A A B B A ...: each side is as often first, and a steady drift cancels in every four runs.

    Args:
      a, b: the two settings.
      pairs: runs of each.
      out: folder whose folders `a` and `b` get the records.
    """
    jobs = []
    for pair in range(1, pairs + 1):
        sides = [("a", a), ("b", b)] if pair % 2 else [("b", b), ("a", a)]
        for side, run in sides:
            run = dataclasses.replace(run, repeat=pair)
            jobs.append(Job(run, out / side, f"{side}/{run.label}"))
    return jobs


def runs(sides: Sequence[Mapping[str, Any]]) -> list[Run]:
    """The run of each side.

    Raises:
      FlagErrors: naming every conflict of both.
    """
    num_gpus, made, lines = visible_gpus(), [], []
    for side, given in zip("ab", sides):
        config = configs.resolve(given, num_gpus=num_gpus, num_cores=len(available_cores()))
        lines += [f"--{side}: {line}" for line in conflicts.problems(config, given, num_gpus=num_gpus)]
        flat = config.flat()
        made.append(Run("-".join([network(flat), *(str(flat[name]) for name in NAMED[1:])]), given, config))
    if lines:
        raise flags.FlagErrors(lines)
    return made
