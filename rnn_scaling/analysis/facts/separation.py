"""Which runs of the same options are repeats: those that no fact tells apart which makes runs incomparable.

Rows of a report and configurations of `compare` are both made by these rules, from the one table of facts.
"""

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
MOST_SHOWN = 100  # letters of a value in a title
Facts = tuple[tuple[str, str], ...]  # (name of a fact, its value)
T = TypeVar("T")

# Variables by the start of their names: how grave a difference is.
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
WITHOUT_EFFECT = {
    "TF_CPP_MIN_LOG_LEVEL",
    "RNN_SCALING_OPERATORS",
}  # "CPU operators" are what the latter chose


def variable_fact(name: str) -> Fact:
    """Return the fact of an environment variable."""
    start = next(start for start in VARIABLES if name.startswith(start))
    effect = f"variable {start}".strip()
    what = f"variable {name}"
    return Fact(what, variable(name), VARIABLES[start], effect=effect)


_FACTS = (*FACTS, *map(variable_fact, VARIABLES))


def _separates(fact: Fact, on_gpu: bool) -> bool:
    """Return whether runs on GPUs, or on CPUs, must agree in a fact."""
    if fact.is_gpu_only and not on_gpu:
        return False
    return fact.severity_on(on_gpu) == INCOMPARABLE


SEPARATING = {
    on_gpu: tuple([fact for fact in _FACTS if _separates(fact, on_gpu)])
    for on_gpu in (False, True)
}
_ALL = {*SEPARATING[True], *SEPARATING[False]}
NAMED = {fact.name: fact for fact in _FACTS if fact in _ALL}
# Parts of a key in which runs of one work may differ.
VARIED = {*NAMED, *scale.AXES}


def separating_facts(
    sides: Sequence[Sequence[RunRecord]],
    keys: Sequence[Sequence[Key]],
    changed: Collection[str] = (),
) -> list[list[Facts]]:
    """Return the facts that distinguish each run from others of the same options.

    Args:
      sides: Sets of runs that are compared, or one set. A fact that distinguishes runs
        of one side is returned for the runs of all sides.
      keys: The key of each run.
      changed: Options in which the sides differ on purpose.
    """
    works: dict[Key, list[list[int]]] = {}
    for number, side_keys in enumerate(keys):
        for index, key in enumerate(side_keys):
            work = drop_options(key, {*changed, *scale.AXES})
            members = works.setdefault(work, [[] for _ in sides])
            members[number].append(index)
    facts: list[list[Facts]] = [[()] * len(side) for side in sides]
    for members in works.values():
        for fact in _FACTS:
            values = []
            for number, indices in enumerate(members):
                runs = sides[number]
                if indices and _separates(
                    fact, runs[indices[0]].options["device"] == "gpu"
                ):
                    for group in _settled(fact, indices, runs, keys[number]):
                        values.append((number, group))
            if any(_is_apart(group, sides[number]) for number, group in values):
                for number, group in values:
                    for index, value in group:
                        facts[number][index] += ((fact.name, value),)
    return facts


def _is_apart(group: Sequence[tuple[int, str]], runs: Sequence[RunRecord]) -> bool:
    """Return whether runs that must agree differ; a failed one makes no row of its own."""
    return len({value for index, value in group if runs[index].throughput}) > 1


def _settled(
    fact: Fact, indices: Sequence[int], runs: Sequence[RunRecord], keys: Sequence[Key]
) -> Iterator[list[tuple[int, str]]]:
    """Yield (index, value) of runs that must agree.

    These are all runs, or those on the same number of devices. A run without the value
    belongs to the only value that there is. If there are several, or if the fact is
    vital, it stands for itself, unless it measured nothing.
    """
    same = [keys[i] if fact.depends_on_device_count else () for i in indices]
    for members in group_by(indices, same).values():
        read = {i: fact.read(runs[i]) for i in members}
        known = [str(value) for value in read.values() if value is not None]
        distinct = list(dict.fromkeys(known)) or [UNKNOWN]
        unknown = distinct[0] if len(distinct) == 1 and not fact.is_vital else UNKNOWN
        settled = []
        for i, value in read.items():
            if value is not None:
                settled.append((i, str(value)))
            else:
                settled.append((i, unknown if runs[i].throughput else distinct[0]))
        yield settled


def find_baseline(facts: Facts, candidates: Sequence[tuple[Facts, T]]) -> T | None:
    """The baseline of runs with these facts, among those of the same options on one device."""
    # It agrees in all that does not follow from the number of devices, and in that too where there are several.
    agreeing = [pair for pair in candidates if _fixed(pair[0]) == _fixed(facts)]
    same = [
        baseline for baseline_facts, baseline in agreeing if baseline_facts == facts
    ]
    return same[0] if same else agreeing[0][1] if len(agreeing) == 1 else None


def _fixed(facts: Facts) -> Facts:
    return tuple(pair for pair in facts if not NAMED[pair[0]].depends_on_device_count)


def drop_decided_by_options(facts: Facts) -> Facts:
    """Those which no option decides: runs that differ in one are incomparable whatever their options are."""
    return tuple(pair for pair in facts if not NAMED[pair[0]].deciding_options)


def in_words(facts: Facts) -> list[str]:
    """ "CPU governor: powersave", one a fact; of a long value its beginning and a digest, so that it stays unique."""
    words = []
    for what, value in facts:
        digest = (
            f"... ({zlib.crc32(value.encode()):08x})" if len(value) > MOST_SHOWN else ""
        )
        words.append(f"{what}: {value[:MOST_SHOWN]}{digest}")
    return words


def values_of(what: str, runs: Iterable[RunRecord]) -> tuple[str, str]:
    """The fact of this name, and all values that runs of one series have."""
    values = (NAMED[what].read(run) for run in runs)
    return what, " or ".join(
        dict.fromkeys(str(value) for value in values if value is not None)
    ) or UNKNOWN
