"""Which differences between runs make their speeds incomparable, and what each usually does.

Records of the same work -> Differences, the grave ones first. What a record does not hold is UNKNOWN, which never
counts as equal. What follows from an option that was changed on purpose is no difference of its own.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.facts.readers import NOT_TOLD
from rnn_scaling.analysis.facts.separation import WITHOUT_EFFECT, variable_fact
from rnn_scaling.analysis.facts.table import (
    CAUTION,
    FACTS,
    INCOMPARABLE,
    Fact,
    Severity,
)
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import build_key, excluded_options
from rnn_scaling.analysis.metrics import common_unit
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import scale
from rnn_scaling.config.naming import TRAINER, told_work
from rnn_scaling.records.options import DEFAULTS, UNKNOWN
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.load import NOTICEABLE

NOT_RECORDED = "not-recorded"  # effect of what one side does not record
MISSING = "missing configurations"
MAX_SHOWN = 3  # values of one side

# Options that make it another amount or kind of work, by the effect.
_WORK = {
    "other-network": ("model",),
    "operations": (
        "unit_type",
        "num_encoder_layers",
        "num_decoder_layers",
        "num_units",
        "embedding_dim",
        "direction",
        "attention",
        "attention_architecture",
        "normalize_attention",
        "num_heads",
        "filter_size",
    ),
    "vocabulary": (
        "src_vocab_size",
        "tgt_vocab_size",
    ),
    "lengths": (
        "src_max_len",
        "tgt_max_len",
    ),
    "embedding": ("share_embedding",),
    "small-variables": ("biases_per_gate",),
    "random-numbers": ("dropout",),
    "other-loss": ("label_smoothing",),
    "evaluation": ("forward_only",),
    "decoding": ("decode",),
    "hypotheses": ("beam_size",),
    "longer-search": ("length_penalty",),
    "larger-batches": ("batch_size",),
    "less-work": ("global_batch_size",),
    "short-types": ("compute_dtype",),
    "host-work": ("data_source",),
    "other-sentences": (
        "src_file_name",
        "tgt_file_name",
        "src_vocab_file",
        "tgt_vocab_file",
        "num_buckets",
    ),
    "padding": ("pad_to",),
    "updated-arrays": ("optimizer",),
    "decay": ("weight_decay",),
    "fewer-exchanges": ("gradient_accumulation_steps",),
    "other-device": ("device",),
    "more-devices": (
        "num_devices",
        "num_workers",
    ),
    "servers": ("num_ps",),
    "more-cores": ("cpu_cores_per_device",),
}
# Options of how a run is measured, by the effect.
_MEASURING = {
    "shorter-warm-up": ("num_warmup_batches",),
    "fewer-batches": ("num_batches",),
    "other-end": (
        "until_steady",
        "target_ci",
        "max_batches",
        "stop_at_loss",
        "stop_at_accuracy",
        "num_epochs",
    ),
    "other-order": ("seed",),
}
WORK_OPTIONS = {name: effect for effect, names in _WORK.items() for name in names}
MEASURING_OPTIONS = {
    name: effect for effect, names in _MEASURING.items() for name in names
}
OTHER_WORK = "the work that they do"
OURS = "rnn_scaling.train"

# Field of a record's load -> its name.
SHARES = {"others": "load of other processes", "steal": "time stolen by the hypervisor"}


class Quantity(NamedTuple):
    """A number with its unit."""

    number: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """What differs between two sides.

    Attributes:
      what: Its name, as "CPU model" or "--batch_size".
      a: The values of one side: texts of facts, values of options, a Quantity or
        statements; UNKNOWN is among them if a record lacks the value.
      b: The values of the other side.
      effect: Name of what the difference usually does.
      severity: INCOMPARABLE if speeds differ for this reason alone, CAUTION if they may.
      unit: What the runs count.
    """

    what: str
    a: tuple[Any, ...]
    b: tuple[Any, ...]
    effect: str
    severity: Severity
    unit: str = ""

    @property
    def is_grave(self) -> bool:
        """Whether speeds differ for this reason alone."""
        return self.severity is INCOMPARABLE


def of_missing(labels: Sequence[str]) -> Difference:
    """Return the difference that configurations were not run again."""
    absent = (Statement("no-run-after"),)
    shown = (some(labels, "; "),)
    return Difference(MISSING, shown, absent, "missing-configurations", INCOMPARABLE)


def some(words: Iterable[str], joint: str = " or ") -> str:
    """The first of them, and how many more there are."""
    shown = [*words]
    more = [f"{len(shown) - MAX_SHOWN} more"] if len(shown) > MAX_SHOWN else []
    return joint.join([*shown[:MAX_SHOWN], *more])


def differences(
    records_a: Sequence[RunRecord], records_b: Sequence[RunRecord]
) -> list[Difference]:
    """What differs between two sets of runs that measured something, one or more; options are differences too.

    Options with several values on a side differ only if no value is on both: such sides can be compared one by one.
    """
    a = [_RunFacts(record) for record in records_a]
    b = [_RunFacts(record) for record in records_b]
    unordered = _options(a, b) + _programs(a, b) + _variables(a, b) + _loads(a, b)
    for fact in FACTS:
        common = {run.options(fact.deciding_options) for run in a} & {
            run.options(fact.deciding_options) for run in b
        }
        like_for_like = [
            [run for run in side if run.options(fact.deciding_options) in common]
            for side in (a, b)
        ]
        unordered += _compare_fact(fact, *like_for_like)
    return _in_order(unordered, [*a, *b])


def within(records: Sequence[RunRecord]) -> list[Difference]:
    """What differs among runs that should have been alike but for their options: one set of repeats, one sweep.

    `a` is what most of the runs have, and `b` what the others have; load that all runs had is on both sides.
    """
    runs = [_RunFacts(record) for record in records]
    unordered = _loads_within(runs)
    is_any_on_gpu = any(run.on_gpu for run in runs)
    groups = {
        names: group_by(runs, [run.options(names) for run in runs])
        for names in {fact.deciding_options for fact in FACTS}
    }
    for fact in FACTS:
        if is_any_on_gpu or not fact.is_gpu_only:
            for group in groups[fact.deciding_options].values():
                unordered += _compare_fact(fact, *_usual_and_others(fact, group))
    settings = [frozenset(run.variables.items()) for run in runs]
    if len(set(settings)) > 1:
        usual = statistics.mode(settings)
        parts = group_by(runs, [setting == usual for setting in settings])
        unordered += _variables(parts[True], parts[False])
    return _in_order(unordered, runs)


class _RunFacts:
    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.known = record.options.known
        variables = record.environment.variables.items()
        self.variables = {
            name: value for name, value in variables if name not in WITHOUT_EFFECT
        }

    @property
    def on_gpu(self) -> bool:
        return bool(self.known.get("device") == "gpu")

    def options(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Values of these options."""
        return tuple([self.known.get(name) for name in names])


Side = Sequence[_RunFacts]


def _in_order(unordered: Sequence[Difference], runs: Side) -> list[Difference]:
    """Each once, the grave first; effects speak of what the runs count."""
    names = {difference.what for difference in unordered}
    implied = {fact.name for fact in FACTS if fact.implied_by in names}
    unit = common_unit(run.record.unit for run in runs)
    once: list[Difference] = []
    for difference in unordered:
        named = dataclasses.replace(difference, unit=unit)
        if difference.what not in implied and named not in once:
            once.append(named)
    return sorted(once, key=lambda found: (not found.is_grave, found.a == (UNKNOWN,)))


def _compare_fact(fact: Fact, a: Side, b: Side) -> list[Difference]:
    runs = [*a, *b]
    if not a or not b or (fact.is_gpu_only and not all(run.on_gpu for run in runs)):
        return []
    values_a, values_b = ([fact.read(run.record) for run in side] for side in (a, b))
    effect = fact.effect or fact.name
    severity = fact.severity_on(any(run.on_gpu for run in runs))
    if None in values_a or None in values_b:
        effect = NOT_RECORDED
        severity = INCOMPARABLE if fact.is_vital else CAUTION
    elif not _differ(fact, values_a, values_b):
        return []
    shown_a, shown_b = (_shown(fact, values) for values in (values_a, values_b))
    return [Difference(fact.name, shown_a, shown_b, effect, severity)]


def _differ(fact: Fact, a: list[Any], b: list[Any]) -> bool:
    if fact.tolerance is None:
        return set(a) != set(b)
    numbers_a, numbers_b = (
        [value for value in side if value != NOT_TOLD] for side in (a, b)
    )
    if not numbers_a or not numbers_b:
        return bool(numbers_a) != bool(numbers_b)
    middle_a = statistics.median(numbers_a)
    middle_b = statistics.median(numbers_b)
    return abs(middle_a - middle_b) > fact.tolerance * max(middle_a, middle_b)


def _usual_and_others(fact: Fact, runs: Side) -> tuple[Side, Side]:
    """The runs that have what most have, and the others; runs that do not tell are among the others."""
    values = [fact.read(run.record) for run in runs]
    if len({*values}) == 1:
        return runs, []
    known = [value for value in values if value is not None]
    numbers = [value for value in known if value != NOT_TOLD]
    usual = NOT_TOLD
    if fact.tolerance is None:
        usual = statistics.mode(known)
    elif numbers:
        usual = statistics.median(numbers)
    parts = group_by(
        runs,
        [value is not None and not _differ(fact, [value], [usual]) for value in values],
    )
    return parts.get(True, []), parts.get(False, [])


def _shown(fact: Fact, values: list[Any]) -> tuple[Any, ...]:
    known = [value for value in values if value is not None]
    shown: list[Any] = [*dict.fromkeys(map(str, known))]
    numbers = [value for value in known if value != NOT_TOLD]
    if fact.tolerance is not None and numbers:
        scale = 2**30 if fact.unit == "GiB" else 1
        shown = [Quantity(statistics.median(numbers) / scale, fact.unit)]
    return (*shown, UNKNOWN) if len(known) < len(values) else tuple(shown)


def _options(a: Side, b: Side) -> list[Difference]:
    sides = [_values_of_options(side) for side in (a, b)]
    totals = [
        {scale.num_devices(run.record.options) for run in side} for side in (a, b)
    ]
    spread = scale.AXES if totals[0] == totals[1] else ()
    unlike = []
    for name, values_a in sides[0].items():
        values_b = sides[1].get(name)
        if values_b is None or name == TRAINER or values_a.keys() & values_b.keys():
            continue
        severity = INCOMPARABLE if name in WORK_OPTIONS else CAUTION
        effect = "same-work" if name in DEFAULTS else "foreign-option"
        effect = MEASURING_OPTIONS.get(name, WORK_OPTIONS.get(name, effect))
        if name in spread:
            severity = CAUTION
            effect = "other-processes"
        unlike.append(
            Difference(f"--{name}", (*values_a,), (*values_b,), effect, severity)
        )
    return unlike


def _values_of_options(side: Side) -> dict[str, dict[Any, None]]:
    """Return the values of each option that runs record, as dictionaries that keep their order."""
    values: dict[str, dict[Any, None]] = {}
    different = {id(run.record.options): run.record.options for run in side}
    for options in different.values():
        settings = dict(build_key(options))
        for name in sorted(options.known.keys() - excluded_options(options)):
            value = settings.get(name, DEFAULTS.get(name))
            values.setdefault(name, {})[value] = None
    return values


def _programs(a: Side, b: Side) -> list[Difference]:
    """The difference of two trainers; their options say whether they do the same work."""
    names = [
        dict.fromkeys(run.known.get(TRAINER, OURS) for run in side) for side in (a, b)
    ]
    if names[0].keys() & names[1].keys():
        works = [
            _works([run.known for run in side if TRAINER in run.known])
            for side in (a, b)
        ]
        is_known = [work != (UNKNOWN,) for work in works]
        # What differs between works that are known, the options say.
        if is_known[0] == is_known[1]:
            return []
        return [Difference(OTHER_WORK, works[0], works[1], NOT_RECORDED, INCOMPARABLE)]
    before, after = (tuple(side) for side in names)
    if any(told_work(run.known) is None for run in (*a, *b)):
        return [Difference(OTHER_WORK, before, after, "unknown-work", INCOMPARABLE)]
    return [Difference(f"--{TRAINER}", before, after, "other-program", CAUTION)]


def _works(runs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the work of each run in words; UNKNOWN alone if one does not record it."""
    works = list(dict.fromkeys(map(told_work, runs)))
    if None in works:
        return (UNKNOWN,)
    names = ("model", "batch_size", "global_batch_size")
    return tuple(
        [
            ", ".join([f"{n}={value}" for n, value in zip(names, work or ()) if value])
            for work in works
        ]
    )


def _variables(a: Side, b: Side) -> list[Difference]:
    lacking = [
        any("variables" in run.record.environment.missing for run in side)
        for side in (a, b)
    ]
    if any(lacking):
        before, after = (
            (UNKNOWN if lacks else Statement("recorded"),) for lacks in lacking
        )
        return [
            Difference("environment variables", before, after, NOT_RECORDED, CAUTION)
        ]
    names = sorted({name for run in (*a, *b) for name in run.variables})
    found = []
    for name in names:
        found += _compare_fact(variable_fact(name), a, b)
    return found


class _Taken(NamedTuple):
    """What was taken from a run: `share` of all its cores, `felt` of one device's if all fell on that."""

    share: float
    felt: float


def _taken(runs: Side, name: str, is_felt: bool = True) -> list[_Taken]:
    """What others ("others") or the hypervisor ("steal") took of each run, or of its most disturbed worker."""
    taken = []
    for record in (run.record for run in runs):
        if record.environment.load is None:
            continue
        share = getattr(record.environment.load, name)
        if name == "others" and record.workers:
            ranks = [rank.load_others or 0.0 for rank in record.workers.workers]
            share = max([share, *ranks])
        felt = disturbance.share_of_device(record, share) if is_felt else share
        taken.append(_Taken(share, felt))
    return taken


def _loads(a: Side, b: Side) -> list[Difference]:
    """Load is grave where one side had more of it than the other, and a caution where both had it."""
    loads = []
    # Machines with different numbers of devices have the same load if they lose the same share.
    counts = {scale.num_devices(run.record.options) for run in (*a, *b)}
    for name, what in SHARES.items():
        sides = [_taken(side, name, is_felt=len(counts) == 1) for side in (a, b)]
        is_recorded = [len(taken) == len(side) for taken, side in zip(sides, (a, b))]
        before, after = (
            (_load(taken) if recorded else UNKNOWN,)
            for taken, recorded in zip(sides, is_recorded)
        )
        felt = [[taken.felt for taken in side] for side in sides]
        if not all(is_recorded):
            loads.append(Difference(what, before, after, NOT_RECORDED, CAUTION))
        elif max(felt[0] + felt[1]) > NOTICEABLE:
            had_more = disturbance.had_more_load
            is_uneven = had_more(*felt) or had_more(*reversed(felt))
            severity = INCOMPARABLE if is_uneven else CAUTION
            loads.append(Difference(what, before, after, "load", severity))
    return loads


def _loads_within(runs: Side) -> list[Difference]:
    loads = []
    for name, what in SHARES.items():
        taken = _taken(runs, name)
        busy = [t for t in taken if t.felt > NOTICEABLE]
        if not busy:
            continue
        load = {"load": _load(busy)}
        usual = others = Statement("load-of-all-runs", values=load)
        if calm := len(taken) - len(busy):
            quiet = {"threshold": NOTICEABLE, "runs": calm}
            usual = Statement("quiet-runs", values=quiet)
            others = Statement("load-in-runs", values={**load, "runs": len(busy)})
        loads.append(Difference(what, (usual,), (others,), "load", CAUTION))
    return loads


def _load(taken: Sequence[_Taken]) -> Statement:
    shares = [share.share for share in taken]
    kind = "load-of-runs" if len(shares) > 1 else "load-of-run"
    return Statement(
        kind, values={"mean": statistics.fmean(shares), "most": max(shares)}
    )
