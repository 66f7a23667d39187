"""Turn two sets of flags into runs in alternating order.

`ab` calls these functions. The order of the runs is what makes their comparison fair.
"""

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rnn_scaling.config import conflicts, flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.flags import option
from rnn_scaling.config.naming import NAMED, name_network
from rnn_scaling.config.spelling import spell
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import program_plan
from rnn_scaling.sweeps.axes import AXIS, split_axes
from rnn_scaling.sweeps.conduct import ConductOptions
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import OUTPUTS, Run
from rnn_scaling.sweeps.program_options import TrainerOptions, check_without_program
from rnn_scaling.sweeps.program_plan import ProgramRun
from rnn_scaling.sweeps.runs import AnyRun
from rnn_scaling.system.machine.gpus import describe_machine_size


@dataclasses.dataclass(frozen=True)
class AbOptions:
    """Sides: the two settings."""

    a: str | None = option(
        None,
        'flags of the first setting, in quotation marks; "" for only the common flags',
    )
    b: str | None = option(None, "flags of the second setting, like --a")
    repeats: int = option(5, "number of pairs of runs", minimum=1)
    out: str = option("results/ab", "parent folder of the folders a and b")
    max_regression: float = flags.max_regression(
        "largest slow-down of b with exit status 0"
    )


GROUPS = (AbOptions, ConductOptions, TrainerOptions)


@dataclasses.dataclass(frozen=True)
class Setting:
    """The flags of one side, or the flags that both sides share."""

    flags: dict[str, Any]  # flags of this suite
    program: dict[str, Any]  # options of the user's program
    axes: dict[str, list[str]]

    @property
    def has_program(self) -> bool:
        """Whether the runs are runs of the user's program."""
        return bool(self.program.get("trainer"))


class PairOptions(NamedTuple):
    """The command line of ab.

    Attributes:
      sides: The settings of a and b.
    """

    options: AbOptions
    conduct_options: ConductOptions
    sides: list[Setting]


def split_sides(words: Sequence[str]) -> PairOptions:
    """Read the command line of ab.

    Raises:
      FlagErrors: If anything is wrong; it names everything.
    """
    own_fields = flags.collect_fields(GROUPS[:2])
    program_fields = flags.collect_fields([TrainerOptions])
    axes, words = split_axes(words)
    values, lines = flags.parse_with_errors(
        words, {**own_fields, **program_fields, **configs.OPTIONS}
    )
    own_values = {name: values.pop(name) for name in own_fields if name in values}
    common = _make_setting(values, axes)
    sides = []
    for side in ("a", "b"):
        if side not in own_values:
            lines.append(f'--{side}="..." is missing; "" uses only the common flags')
            continue
        try:
            sides.append(_read_side(own_values[side], common))
        except flags.FlagErrors as e:
            lines += [f"--{side}: {line}" for line in e.lines]
        except ValueError as e:
            lines.append(f"--{side}={own_values[side]!r}: {e}")
    for name in OUTPUTS:
        if any(name in side.flags for side in sides):
            lines.append(f"--{name} is set by ab; leave it out")
    options, conduct_options = flags.build(GROUPS[:2], own_values, lines)
    return PairOptions(options, conduct_options, sides)


def _make_setting(values: dict[str, Any], axes: dict[str, list[str]]) -> Setting:
    """Return a setting whose program options are taken out of `values`."""
    program_fields = flags.collect_fields([TrainerOptions])
    program = {name: values.pop(name) for name in program_fields if name in values}
    return Setting(values, program, axes)


def _read_side(text: str, common: Setting) -> Setting:
    """Return one side.

    Args:
      text: The flags in quotation marks.
      common: The flags outside of the quotation marks.

    Raises:
      FlagErrors: If they are wrong, or a flag is also common.
      ValueError: If a quotation mark is missing.
    """
    axes, words = split_axes(shlex.split(text))
    known_fields = {**flags.collect_fields([TrainerOptions]), **configs.OPTIONS}
    own_setting = _make_setting(flags.parse(words, known_fields), axes)
    common_values = {**common.flags, **common.program}
    lines = []
    for name, value in {**own_setting.flags, **own_setting.program}.items():
        if name in common_values:
            common_flag = spell(name, common_values[name])
            lines.append(
                f"{spell(name, value)} conflicts with the common {common_flag}; give "
                "one"
            )
    for name in own_setting.axes:
        if name in common.axes:
            lines.append(f"{AXIS}{name} is also a common flag; give it once")
    side = Setting(
        {**common.flags, **own_setting.flags},
        {**common.program, **own_setting.program},
        {**common.axes, **own_setting.axes},
    )
    flags.build([TrainerOptions], side.program, lines)
    return side


def counterbalance(
    a: AnyRun, b: AnyRun, num_pairs: int, out: Path, first: int = 1
) -> list[Job]:
    """Return the runs in the order A B B A B A A B A B B A ..., to the folders a and b.

    Each side is first equally often, and a drift cancels in every four runs. Two pairs
    in a row have the same order as often as not, so if a run resembles the run before
    it, the differences of neighbouring pairs do not resemble each other.

    Args:
      a: The run of one side.
      b: The run of the other side.
      num_pairs: Number of pairs.
      out: Parent of the folders a and b.
      first: Number of the first pair.
    """
    jobs = []
    for pair in range(first, first + num_pairs):
        sides = [("a", a), ("b", b)]
        if pair % 4 in (2, 3):
            sides.reverse()
        for side, run in sides:
            repeated_run = dataclasses.replace(run, repeat=pair)
            jobs.append(Job(repeated_run, out / side, f"{side}/"))
    return jobs


def replace_disturbed(
    a: AnyRun,
    b: AnyRun,
    num_pairs: int,
    out: Path,
    records: Mapping[str, RunRecord],
) -> list[Job]:
    """Return further pairs in place of the pairs that other processes disturbed.

    The recorded load decides, never the rate. There is at most one further pair for two
    planned ones, and none if all pairs were disturbed, because the machine stays busy.

    Args:
      a: The run of one side.
      b: The run of the other side.
      num_pairs: Number of planned pairs.
      out: Parent of the folders a and b.
      records: The records of the planned runs, by the label of the job.
    """
    from rnn_scaling.analysis import disturbance  # loads numpy

    disturbed_pairs = set()
    for job in counterbalance(a, b, num_pairs, out):
        record = records.get(job.label)
        if record is not None and disturbance.is_disturbed(record):
            disturbed_pairs.add(job.run.repeat)
    if len(disturbed_pairs) == num_pairs:
        return []
    num_further = min(len(disturbed_pairs), math.ceil(num_pairs / 2))
    return counterbalance(a, b, num_further, out, first=num_pairs + 1)


def plan_runs(sides: Sequence[Setting]) -> list[AnyRun]:
    """Return the run of each side.

    Raises:
      FlagErrors: If anything is wrong, or only one side has a program of the user.
    """
    runs: list[AnyRun] = []
    lines: list[str] = []
    if len({side.has_program for side in sides}) > 1:
        lines.append(
            "--trainer is only on one side; give it to both, outside the quotation "
            "marks or in each"
        )
    for name, side in zip("ab", sides):
        try:
            make_run = _make_program_run if side.has_program else _make_suite_run
            runs.append(make_run(side))
        except flags.FlagErrors as e:
            lines += [f"--{name}: {line}" for line in e.lines]
    if lines:
        raise flags.FlagErrors(lines)
    return runs


def _make_suite_run(side: Setting) -> Run:
    machine = describe_machine_size()
    config = configs.resolve(side.flags, **machine)
    (options,) = flags.build([TrainerOptions], side.program)
    lines = check_without_program(options, side.axes)
    lines += conflicts.find_problems(config, side.flags, num_gpus=machine["num_gpus"])
    if lines:
        raise flags.FlagErrors(lines)
    flat = config.flat()
    name_parts = [name_network(flat), *(str(flat[name]) for name in NAMED[1:])]
    return Run("-".join(name_parts), side.flags, config)


def _make_program_run(side: Setting) -> ProgramRun:
    lists = {"num_devices": [1]}
    lists |= {name: [value] for name, value in side.flags.items()}
    (options,) = flags.build([TrainerOptions], side.program)
    runs = program_plan.plan(options, side.axes, lists, **describe_machine_size())
    if len(runs) == 1:
        return runs[0]
    lines = []
    for name, values in side.axes.items():
        if len(values) > 1:
            lines.append(f"{AXIS}{name}={','.join(values)} must be one value")
    raise flags.FlagErrors(lines)
