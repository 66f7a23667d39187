"""Decide which runs with the same options are repeats.

Runs are repeats if they agree in every fact that could make them incomparable. Rows of
a report and configurations of `compare` follow the same rules and table of facts.

`make_variable_fact` makes the fact of an environment variable. All other facts are rows
of `table`.
"""

import itertools
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from rnn_scaling.analysis.facts.readers import variable
from rnn_scaling.analysis.facts.table import CAUTION, FACTS, INCOMPARABLE, Fact
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import Key, drop_options
from rnn_scaling.config import scale
from rnn_scaling.records.record import RunRecord

UNKNOWN = "unknown"
_MAX_LETTERS = 100  # letters of a value in a title
Facts = tuple[tuple[str, str], ...]  # (name of a fact, its value)
T = TypeVar("T")

# Start of the names of variables -> severity of a difference.
VARIABLES = {
    **dict.fromkeys(
        (
            "TF_ENABLE_ONEDNN_OPTS",
            "XLA_FLAGS",
            "TF_XLA_FLAGS",
            "NVIDIA_TF32_OVERRIDE",
            "TF_DETERMINISTIC_OPS",
            "TF_CUDNN_DETERMINISTIC",
            "CUDA_LAUNCH_BLOCKING",
        ),
        INCOMPARABLE,
    ),
    **dict.fromkeys(
        (
            "CUDA_VISIBLE_DEVICES",
            "OMP_",
            "KMP_",
            "MALLOC_",
            "GLIBC_TUNABLES",
            "LD_PRELOAD",
            "NCCL_",
            "",
        ),
        CAUTION,
    ),
}
# The fact "CPU operators" contains what RNN_SCALING_OPERATORS chose.
WITHOUT_EFFECT = {"TF_CPP_MIN_LOG_LEVEL", "RNN_SCALING_OPERATORS"}


def make_variable_fact(name: str) -> Fact:
    """Return the fact of an environment variable."""
    start = next(start for start in VARIABLES if name.startswith(start))
    effect = f"variable {start}".strip()
    return Fact(f"variable {name}", variable(name), VARIABLES[start], effect=effect)


_FACTS = (*FACTS, *map(make_variable_fact, VARIABLES))


def _must_agree(fact: Fact, on_gpu: bool) -> bool:
    """Return whether runs on GPUs, or on CPUs, must agree in a fact."""
    if fact.is_gpu_only and not on_gpu:
        return False
    return fact.severity_on(on_gpu) == INCOMPARABLE


NAMED = {
    fact.name: fact
    for fact in _FACTS
    if _must_agree(fact, on_gpu=True) or _must_agree(fact, on_gpu=False)
}
# Parts of a key in which runs of one work may differ.
VARIED = {*NAMED, *scale.AXES}


def list_separating_facts(
    sides: Sequence[Sequence[RunRecord]],
    keys: Sequence[Sequence[Key]],
    changed_options: Collection[str] = (),
) -> list[list[Facts]]:
    """Return the facts that distinguish each run from others of the same options.

    Args:
      sides: Sets of runs that are compared, or one set. A fact that distinguishes runs
        of one side is returned for the runs of all sides.
      keys: The key of each run.
      changed_options: Options in which the sides differ on purpose.
    """
    runs = list(itertools.chain.from_iterable(sides))
    run_keys = list(itertools.chain.from_iterable(keys))
    numbers: list[int] = []  # number of the side of each run
    for number, side in enumerate(sides):
        numbers += [number] * len(side)
    works = [drop_options(key, {*changed_options, *scale.AXES}) for key in run_keys]
    facts: list[Facts] = [()] * len(runs)
    for members in group_by(range(len(runs)), works).values():
        for fact in _FACTS:
            identities = [
                (numbers[i], run_keys[i] if fact.depends_on_device_count else ())
                for i in members
            ]
            # Runs that must agree: of one side or, for some facts, of one key.
            groups = list(group_by(members, identities).values())
            for i, value in _list_separating_values(fact, groups, runs).items():
                facts[i] += ((fact.name, value),)
    remaining = iter(facts)
    return [list(itertools.islice(remaining, len(side))) for side in sides]


def _list_separating_values(
    fact: Fact, groups: Sequence[Sequence[int]], runs: Sequence[RunRecord]
) -> dict[int, str]:
    """Return the value of a fact for each run; empty if it distinguishes no runs.

    Args:
      fact: The fact.
      groups: The numbers of runs that must agree with each other.
      runs: All runs.
    """
    values: dict[int, str] = {}
    is_apart = False
    for group in groups:
        if not _must_agree(fact, runs[group[0]].options["device"] == "gpu"):
            continue
        values |= zip(group, _fill_agreed_values(fact, [runs[i] for i in group]))
        # Failed runs do not count.
        measured_values = {values[i] for i in group if runs[i].throughput}
        is_apart = is_apart or len(measured_values) > 1
    return values if is_apart else {}


def _fill_agreed_values(fact: Fact, runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield the value of each of some runs that must agree.

    A run without the value gets the value of the others. If these have several, or if
    the fact is vital, its value is UNKNOWN, unless the run measured nothing.
    """
    values = list(map(fact.read, runs))
    known_texts = [str(value) for value in values if value is not None]
    distinct = list(dict.fromkeys(known_texts)) or [UNKNOWN]
    text_of_unknown = (
        distinct[0] if len(distinct) == 1 and not fact.is_vital else UNKNOWN
    )
    for run, value in zip(runs, values):
        if value is not None:
            yield str(value)
        else:
            yield text_of_unknown if run.throughput else distinct[0]


def find_baseline(facts: Facts, candidates: Sequence[tuple[Facts, T]]) -> T | None:
    """Return the baseline of runs with some facts.

    The baseline agrees in all facts that do not depend on the number of devices. If
    several do, it agrees in all facts.

    Args:
      candidates: (facts, baseline) of runs with the same options on one device.
    """
    fixed_facts = _count_independent_facts(facts)
    agreeing = []
    for baseline_facts, baseline in candidates:
        if baseline_facts == facts:
            return baseline
        if _count_independent_facts(baseline_facts) == fixed_facts:
            agreeing.append(baseline)
    return agreeing[0] if len(agreeing) == 1 else None


def _count_independent_facts(facts: Facts) -> Facts:
    return tuple(pair for pair in facts if not NAMED[pair[0]].depends_on_device_count)


def drop_decided_by_options(facts: Facts) -> Facts:
    """Drop the facts that options decide.

    Runs that differ in the others are incomparable whatever their options are.
    """
    return tuple(pair for pair in facts if not NAMED[pair[0]].deciding_options)


def describe_facts(facts: Facts) -> list[str]:
    """Return texts such as "CPU governor: powersave".

    A long value is shortened and gets a digest, so that it stays unique.
    """
    texts = []
    for name, value in facts:
        text = f"{name}: {value[:_MAX_LETTERS]}"
        if len(value) > _MAX_LETTERS:
            text += f"... ({zlib.crc32(value.encode()):08x})"
        texts.append(text)
    return texts


def list_values_of(name: str, runs: Iterable[RunRecord]) -> tuple[str, str]:
    """Return a fact with all values that runs of one series have."""
    values = [NAMED[name].read(run) for run in runs]
    texts = dict.fromkeys(str(value) for value in values if value is not None)
    return name, " or ".join(texts) or UNKNOWN
