"""Which runs of the same options are repeats: those that no fact tells apart which makes runs incomparable.

Rows of a report and configurations of `compare` are both made by these rules, from the one table of facts.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from rnn_scaling.analysis.facts.readers import variable
from rnn_scaling.analysis.facts.table import CAUTION, FACTS, INCOMPARABLE, Fact
from rnn_scaling.analysis.grouping import grouped
from rnn_scaling.config import scale
from rnn_scaling.records.record import RunRecord

UNKNOWN = "unknown"
MOST_SHOWN = 100  # letters of a value in a title
Facts = tuple[tuple[str, str], ...]  # (name of a fact, its value)
Key = tuple[tuple[str, str], ...]
T = TypeVar("T")

# Variables by the start of their names: what they do, and how grave a difference is.
DETERMINISTIC = "deterministic kernels are slower, some by several times"
VARIABLES = {
    "TF_ENABLE_ONEDNN_OPTS": (
        "with oneDNN's kernels a CPU gave 1.2 to 1.8 times the items/s",
        INCOMPARABLE,
    ),
    "XLA_FLAGS": (
        "changes what XLA compiles; some settings trade speed for exact results",
        INCOMPARABLE,
    ),
    "TF_XLA_FLAGS": (
        "compiles parts of the step with XLA: items/s move by tens of percent",
        INCOMPARABLE,
    ),
    "NVIDIA_TF32_OVERRIDE": (
        "without TF32 matrix products on GPUs run at a fraction of the speed",
        INCOMPARABLE,
    ),
    "TF_DETERMINISTIC_OPS": (DETERMINISTIC, INCOMPARABLE),
    "TF_CUDNN_DETERMINISTIC": (DETERMINISTIC, INCOMPARABLE),
    "CUDA_LAUNCH_BLOCKING": (
        "waits after every kernel: slow by several times on small steps",
        INCOMPARABLE,
    ),
    "CUDA_VISIBLE_DEVICES": (
        "other cards, or another order: the exchange costs more or less",
        CAUTION,
    ),
    "OMP_": ("thread pools besides TensorFlow's take cores from the devices", CAUTION),
    "KMP_": ("thread pools besides TensorFlow's take cores from the devices", CAUTION),
    "MALLOC_": (
        "memory that goes back to the system costs up to tens of percent on CPUs",
        CAUTION,
    ),
    "GLIBC_TUNABLES": ("the allocator and huge pages: some percent on CPUs", CAUTION),
    "LD_PRELOAD": ("another allocator or a profiler in the process", CAUTION),
    "NCCL_": ("rings, protocols and links of the exchange between GPUs", CAUTION),
    "": ("may change kernels, threads or memory", CAUTION),
}
WITHOUT_EFFECT = {
    "TF_CPP_MIN_LOG_LEVEL",
    "RNN_SCALING_OPERATORS",
}  # "CPU operators" are what the latter chose


def variable_fact(name: str) -> Fact:
    effect, severity = next(
        meaning for start, meaning in VARIABLES.items() if name.startswith(start)
    )
    return Fact(f"variable {name}", variable(name), effect, severity)


_FACTS = (*FACTS, *map(variable_fact, VARIABLES))
# The facts in which runs on CPUs (False), or on GPUs (True), must agree.
SEPARATING = {
    on_gpu: tuple(
        fact
        for fact in _FACTS
        if fact.severity_on(on_gpu) == INCOMPARABLE and (on_gpu or not fact.gpu_only)
    )
    for on_gpu in (False, True)
}
NAMED = {fact.what: fact for fact in SEPARATING[True] + SEPARATING[False]}


def separating_facts(
    runs: Sequence[RunRecord], keys: Sequence[Key], also: Collection[str] = ()
) -> list[Facts]:
    """Of each run, the facts that tell it from other runs of the same options; nothing where all are repeats."""
    works = grouped(
        range(len(keys)),
        (tuple(item for item in key if item[0] not in scale.AXES) for key in keys),
    )
    facts_of_runs: list[Facts] = [()] * len(runs)
    for indices in works.values():
        for fact in SEPARATING[runs[indices[0]].config.get("device") == "gpu"]:
            groups = list(_settled(fact, indices, runs, keys))
            # A failed run, which has no rate, makes no row of its own.
            values = [
                {value for index, value in group if runs[index].throughput}
                for group in groups
            ]
            if fact.what in also or max(map(len, values)) > 1:
                for index, value in (pair for group in groups for pair in group):
                    facts_of_runs[index] += ((fact.what, value),)
    return facts_of_runs


def _settled(
    fact: Fact, indices: Sequence[int], runs: Sequence[RunRecord], keys: Sequence[Key]
) -> Iterator[list[tuple[int, str]]]:
    """(index, value) of the runs that must agree: all of them, or those on the same number of devices.

    A run that does not tell belongs to the only value that there is. Where there are several, and where the fact is
    vital, it stands for itself, unless it measured nothing.
    """
    for members in grouped(
        indices, (keys[i] if fact.is_by_count else () for i in indices)
    ).values():
        values = {i: fact.read(runs[i]) for i in members}
        known = list(
            dict.fromkeys(str(value) for value in values.values() if value is not None)
        ) or [UNKNOWN]
        untold = known[0] if len(known) == 1 and not fact.vital else UNKNOWN
        yield [
            (
                i,
                str(value)
                if value is not None
                else untold
                if runs[i].throughput
                else known[0],
            )
            for i, value in values.items()
        ]


def on_one_device(facts: Facts, candidates: Sequence[tuple[Facts, T]]) -> T | None:
    """The baseline of runs with these facts, among those of the same options on one device."""
    # It agrees in all that does not follow from the number of devices, and in that too where there are several.
    agreeing = [pair for pair in candidates if _fixed(pair[0]) == _fixed(facts)]
    same = [
        baseline for baseline_facts, baseline in agreeing if baseline_facts == facts
    ]
    return same[0] if same else agreeing[0][1] if len(agreeing) == 1 else None


def _fixed(facts: Facts) -> Facts:
    return tuple(pair for pair in facts if not NAMED[pair[0]].is_by_count)


def unconditional(facts: Facts) -> Facts:
    """Those which no option decides: runs that differ in one are incomparable whatever their options are."""
    return tuple(pair for pair in facts if not NAMED[pair[0]].follows)


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
