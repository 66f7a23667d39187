"""python -m rnn_scaling ab: two sets of flags, run in turns, and whether their speeds differ."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.machine.cores import available_cores
from rnn_scaling.machine.gpus import visible_gpus
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import conflicts, flags, sweep_options
from rnn_scaling.settings.config import option
from rnn_scaling.settings.spelling import spell
from rnn_scaling.sweeps.conduct import EXIT_USAGE, TRAINER, ConductOptions, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import NAMED, Run

USAGE = """\
python -m rnn_scaling ab --a="--flags" --b="--flags" [--repeats=N] [--out=DIR] [common flags]    (or ./run.sh ab)

Which of two settings is faster, and is the difference real? Runs both in turns (A B B A A B B A ...), so that a machine
that slows down or speeds up does so for both, then compares them pair by pair.

    python -m rnn_scaling ab --a="--variable_update=replicated" --b="--variable_update=parameter_server" --num_devices=2
    python -m rnn_scaling ab --a="" --b="--xla=true" --repeats=10 --out=results/xla

Flags outside the quotation marks go to both. The records are in DIR/a and DIR/b, those of one pair under the same
number. Stopped and started again with the same command it goes on; failed runs, limits and --force are as in
python -m rnn_scaling sweep.

Exit status: that of python -m rnn_scaling compare DIR/a DIR/b: 0 no regression, 1 b is slower by more than the
limit, 2 cannot judge; 2 also when the flags conflict or the folder cannot be used, 130 interrupted."""

RESERVED = ("result_file", "log_dir", "progress")


@dataclasses.dataclass(frozen=True)
class AbOptions:
    """The two sides."""

    a: str | None = option(None, 'flags of the first setting, in quotation marks; "": only the common ones')
    b: str | None = option(None, "flags of the second setting")
    repeats: int = option(5, "pairs of runs", minimum=1)
    out: str = option("results/ab", "folder of the folders a and b")
    max_regression: str = option("", "handed to compare: how much slower b may be (compare's default: 5%)")


def main(argv: Sequence[str] | None = None, trainer: Sequence[str] = TRAINER) -> int:
    """Runs both sides and compares them; returns the exit status.

    Args:
      argv: the command line; that of the process if None.
      trainer: the command that runs one configuration.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if flags.wants_help(words):
        print(flags.help_text(USAGE, {"ab": AbOptions, "conduct": ConductOptions}))
        return 0
    try:
        own, how, sides = split_sides(words)
        runs = [_run(side, given) for side, given in zip("ab", sides)]
    except flags.FlagErrors as e:
        for line in e.lines:
            print(f"error: {line}", file=sys.stderr)
        return EXIT_USAGE
    out = Path(own.out)
    limit = [f"--max_regression={own.max_regression}"] if own.max_regression else []
    question = [str(out / "a"), str(out / "b"), "--paired", *limit]
    if limit and (wrong := _refused(question)):
        print(f"error: {wrong}", file=sys.stderr)
        return EXIT_USAGE
    jobs = counterbalanced(runs[0], runs[1], own.repeats, out)
    done = conduct(jobs, out, how, again=["python", "-m", "rnn_scaling", "ab", *words], trainer=trainer)
    if done.exit_status is not None:
        # 1 would say that b is slower
        return EXIT_USAGE if done.exit_status == 1 else done.exit_status
    done.print_failures()
    from rnn_scaling.commands import compare  # loads numpy and scipy, which a wrong flag need not wait for

    return compare.main(question)


def _refused(question: Sequence[str]) -> str:
    """What compare will not take, before hours of runs that it would not judge; "" when it takes everything."""
    from rnn_scaling.commands import compare

    try:
        compare.parse(question)
    except compare.InputError as e:
        return str(e)
    return ""


def split_sides(words: Sequence[str]) -> tuple[AbOptions, ConductOptions, list[dict[str, Any]]]:
    """Command line -> (own options, the trainer's flags of a and b).

    Raises:
      FlagErrors: naming every unknown flag, malformed value and contradiction.
    """
    groups = (AbOptions, ConductOptions)
    own_fields = sweep_options.fields(groups)
    common = flags.parse(words, {**own_fields, **configs.OPTIONS})
    single = {name: common.pop(name) for name in own_fields if name in common}
    lines, sides = [], []
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
    own, how = sweep_options.build(groups, single, lines)
    return own, how, sides


def counterbalanced(a: Run, b: Run, pairs: int, out: Path) -> list[Job]:
    """A B B A A B B A ...: each side is as often first, and a steady drift cancels in every four runs."""
    jobs = []
    for pair in range(1, pairs + 1):
        sides = [("a", a), ("b", b)] if pair % 2 else [("b", b), ("a", a)]
        for side, run in sides:
            run = dataclasses.replace(run, repeat=pair)
            jobs.append(Job(run, out / side, f"{side}/{run.label}"))
    return jobs


def _run(side: str, given: dict[str, Any]) -> Run:
    num_gpus = visible_gpus()
    config = configs.resolve(given, num_gpus=num_gpus, num_cores=len(available_cores()))
    lines = conflicts.problems(config, given, num_gpus=num_gpus)
    if lines:
        raise flags.FlagErrors([f"--{side}: {line}" for line in lines])
    flat = config.flat()
    return Run("-".join(str(flat[name]) for name in NAMED), given, config)
