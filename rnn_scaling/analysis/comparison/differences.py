"""Differences between runs that may change their speed.

An incomparable difference changes the speed by itself; any other difference is a
caution. A value that a record lacks is UNKNOWN and never counts as equal. If an option
was changed on purpose, the facts that follow from it are not listed.

The facts that may differ are rows of `facts.table`; this module decides only how much a
difference matters between two sets of runs.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.analysis import disturbance, load_effect
from rnn_scaling.analysis.facts.readers import NOT_REPORTED
from rnn_scaling.analysis.facts.separation import WITHOUT_EFFECT, make_variable_fact
from rnn_scaling.analysis.facts.table import (
    CAUTION,
    FACTS,
    INCOMPARABLE,
    Fact,
    Severity,
)
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import list_compared_options
from rnn_scaling.analysis.metrics import find_common_unit
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config import scale
from rnn_scaling.config.conditions import END_OPTIONS
from rnn_scaling.config.naming import TRAINER, find_recorded_work
from rnn_scaling.records.options import DEFAULTS, UNKNOWN
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD

NOT_RECORDED = "not-recorded"  # the effect if one side lacks the value
_MAX_LISTED = 3  # values of one side


def _group_effects_by_option(options: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return option -> effect from effect -> options."""
    effects: dict[str, str] = {}
    for effect, names in options.items():
        effects.update(dict.fromkeys(names, effect))
    return effects


# Options that change the amount or kind of work.
WORK_OPTIONS = _group_effects_by_option(
    {
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
        "vocabulary": ("src_vocab_size", "tgt_vocab_size"),
        "lengths": ("src_max_len", "tgt_max_len"),
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
        "more-devices": ("num_devices", "num_workers"),
        "servers": ("num_ps",),
        "more-cores": ("cpu_cores_per_device",),
    }
)
# Options that change how a run is measured.
MEASURING_OPTIONS = _group_effects_by_option(
    {
        "shorter-warm-up": ("num_warmup_batches",),
        "fewer-batches": ("num_batches",),
        "other-end": END_OPTIONS,
        "other-order": ("seed",),
    }
)
_OTHER_WORK = "the work that they do"
_SUITE_TRAINER = "rnn_scaling.train"

# Field of a record's load -> name of the difference.
LOAD_NAMES = {
    "others": "load of other processes",
    "steal": "time stolen by the hypervisor",
}


class Quantity(NamedTuple):
    """A number with its unit."""

    number: float
    unit: str


@dataclasses.dataclass(frozen=True)
class Difference:
    """A fact or an option with different values on two sides.

    A value is the text of a fact, the value of an option, a Quantity or a Statement; if
    a record lacks it, UNKNOWN is among the values of its side.

    Attributes:
      name: Name of the fact or option, such as "CPU model" or "--batch_size".
      first: Values of one side.
      second: Values of the other side.
      effect: Kind of the statement about the usual effect.
      severity: INCOMPARABLE or CAUTION.
      unit: The unit of the runs' rates.
    """

    name: str
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    effect: str
    severity: Severity
    unit: str = ""

    @property
    def is_incomparable(self) -> bool:
        """Whether this difference by itself changes the speed."""
        return self.severity is INCOMPARABLE


def list_missing_configurations(labels: Sequence[str]) -> Difference:
    """Return the difference that configurations were not run on the second side."""
    return Difference(
        "missing configurations",
        (join_some(labels, "; "),),
        (state("no-run-after"),),
        "missing-configurations",
        INCOMPARABLE,
    )


def join_some(texts: Iterable[str], separator: str = " or ") -> str:
    """Join the first texts, and the number of texts that were left out."""
    texts = list(texts)
    listed_texts = texts[:_MAX_LISTED]
    if len(texts) > _MAX_LISTED:
        listed_texts.append(f"{len(texts) - _MAX_LISTED} more")
    return separator.join(listed_texts)


def find_differences(
    first: Sequence[RunRecord], second: Sequence[RunRecord]
) -> list[Difference]:
    """Return the differences between two sets of runs, the incomparable ones first.

    An option with several values on a side differs only if no value is on both sides,
    because otherwise the runs with the common value can be compared.

    Args:
      first: Runs that measured something, at least one.
      second: The runs that they are compared with, at least one.
    """
    a = list(map(_RunFacts, first))
    b = list(map(_RunFacts, second))
    differences = _compare_options(a, b) + _compare_programs(a, b)
    differences += _compare_variables(a, b) + _compare_loads(a, b)
    for fact in FACTS:
        options = fact.deciding_options
        common = _list_option_sets(a, options) & _list_option_sets(b, options)
        matching_a = [run for run in a if run.options(options) in common]
        matching_b = [run for run in b if run.options(options) in common]
        differences += _compare_fact(fact, matching_a, matching_b)
    return _sort(differences, [*a, *b])


def find_differences_inside(records: Sequence[RunRecord]) -> list[Difference]:
    """Return the differences among runs that should differ in their options only.

    Returns:
      Differences with the value of most runs first and the values of the other runs
      second. Load of all runs is both.
    """
    runs = list(map(_RunFacts, records))
    differences = _list_loads_of_disturbed_runs(runs)
    any_on_gpu = any(run.on_gpu for run in runs)
    groups: dict[tuple[str, ...], dict[Any, list[_RunFacts]]] = {}
    for fact in FACTS:
        if fact.is_gpu_only and not any_on_gpu:
            continue
        options = fact.deciding_options
        if options not in groups:
            groups[options] = group_by(runs, [run.options(options) for run in runs])
        for group in groups[options].values():
            differences += _compare_fact(fact, *_split_usual(fact, group))
    settings = [frozenset(run.variables.items()) for run in runs]
    if len(set(settings)) > 1:
        usual_setting = statistics.mode(settings)
        parts = group_by(runs, [setting == usual_setting for setting in settings])
        differences += _compare_variables(parts[True], parts[False])
    return _sort(differences, runs)


class _RunFacts:
    """A record with its known options and the variables that may change its speed."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record
        self.known_options = record.options.known
        self.variables = {
            name: value
            for name, value in record.environment.variables.items()
            if name not in WITHOUT_EFFECT
        }

    @property
    def on_gpu(self) -> bool:
        return bool(self.known_options.get("device") == "gpu")

    @property
    def num_devices(self) -> int:
        return scale.count_devices(self.record.options)

    def options(self, names: tuple[str, ...]) -> tuple[Any, ...]:
        """Return the values of options; None for unknown values."""
        return tuple([self.known_options.get(name) for name in names])


Side = Sequence[_RunFacts]


def _list_option_sets(side: Side, names: tuple[str, ...]) -> set[tuple[Any, ...]]:
    return {run.options(names) for run in side}


def _sort(differences: Sequence[Difference], runs: Side) -> list[Difference]:
    """Return distinct differences that do not follow from others, the worst first."""
    names = {difference.name for difference in differences}
    implied = {fact.name for fact in FACTS if fact.implied_by in names}
    unit = find_common_unit(run.record.unit for run in runs)
    distinct: list[Difference] = []
    for difference in differences:
        difference = dataclasses.replace(difference, unit=unit)
        if difference.name not in implied and difference not in distinct:
            distinct.append(difference)

    def sort_key(difference: Difference) -> tuple[bool, bool]:
        return not difference.is_incomparable, difference.first == (UNKNOWN,)

    return sorted(distinct, key=sort_key)


def _compare_fact(fact: Fact, a: Side, b: Side) -> list[Difference]:
    """Return the difference in a fact; [] if it is equal or does not apply."""
    runs = [*a, *b]
    if not a or not b or (fact.is_gpu_only and not all(run.on_gpu for run in runs)):
        return []
    values_a = [fact.read(run.record) for run in a]
    values_b = [fact.read(run.record) for run in b]
    effect = fact.effect or fact.name
    severity = fact.severity_on(any(run.on_gpu for run in runs))
    if None in values_a or None in values_b:
        effect = NOT_RECORDED
        severity = INCOMPARABLE if fact.is_vital else CAUTION
    elif not _do_values_differ(fact, values_a, values_b):
        return []
    first = _list_distinct_values(fact, values_a)
    second = _list_distinct_values(fact, values_b)
    return [Difference(fact.name, first, second, effect, severity)]


def _do_values_differ(
    fact: Fact, values_a: Sequence[Any], values_b: Sequence[Any]
) -> bool:
    if fact.tolerance is None:
        return set(values_a) != set(values_b)
    numbers_a = [value for value in values_a if value != NOT_REPORTED]
    numbers_b = [value for value in values_b if value != NOT_REPORTED]
    if not numbers_a or not numbers_b:
        return bool(numbers_a) != bool(numbers_b)
    middle_a = statistics.median(numbers_a)
    middle_b = statistics.median(numbers_b)
    return abs(middle_a - middle_b) > fact.tolerance * max(middle_a, middle_b)


def _split_usual(fact: Fact, runs: Side) -> tuple[Side, Side]:
    """Return the runs with the most common value of a fact, and all other runs.

    Runs without a recorded value are among the other runs.
    """
    values = [fact.read(run.record) for run in runs]
    if len(set(values)) == 1:
        return runs, []
    recorded = [value for value in values if value is not None]
    numbers = [value for value in recorded if value != NOT_REPORTED]
    usual = NOT_REPORTED
    if fact.tolerance is None:
        usual = statistics.mode(recorded)
    elif numbers:
        usual = statistics.median(numbers)
    is_usual = [
        value is not None and not _do_values_differ(fact, [value], [usual])
        for value in values
    ]
    parts = group_by(runs, is_usual)
    return parts.get(True, []), parts.get(False, [])


def _list_distinct_values(fact: Fact, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values as texts, or the median of numbers that have a tolerance."""
    recorded = [value for value in values if value is not None]
    numbers = [value for value in recorded if value != NOT_REPORTED]
    distinct: list[Any] = list(dict.fromkeys(map(str, recorded)))
    if fact.tolerance is not None and numbers:
        distinct = [Quantity(statistics.median(numbers), fact.unit)]
    if len(recorded) < len(values):
        distinct.append(UNKNOWN)
    return tuple(distinct)


def _compare_options(a: Side, b: Side) -> list[Difference]:
    """Return the options that have no value in common."""
    all_values_a = _list_option_values(a)
    all_values_b = _list_option_values(b)
    num_devices_a = {run.num_devices for run in a}
    num_devices_b = {run.num_devices for run in b}
    differences = []
    for name, values_a in all_values_a.items():
        values_b = all_values_b.get(name)
        if values_b is None or name == TRAINER or values_a.keys() & values_b.keys():
            continue
        severity = CAUTION
        if name in scale.AXES and num_devices_a == num_devices_b:
            effect = "other-processes"
        elif name in WORK_OPTIONS:
            severity = INCOMPARABLE
            effect = WORK_OPTIONS[name]
        else:
            default = "same-work" if name in DEFAULTS else "foreign-option"
            effect = MEASURING_OPTIONS.get(name, default)
        first = tuple(values_a)
        second = tuple(values_b)
        differences.append(Difference(f"--{name}", first, second, effect, severity))
    return differences


def _list_option_values(side: Side) -> dict[str, dict[Any, None]]:
    """Return the values of each recorded option, as keys in their order."""
    values: dict[str, dict[Any, None]] = {}
    # Many runs share one object.
    distinct = {id(run.record.options): run.record.options for run in side}
    for options in distinct.values():
        for name, value in list_compared_options(options).items():
            values.setdefault(name, {})[value] = None
    return values


def _compare_programs(a: Side, b: Side) -> list[Difference]:
    """Return the difference between the trainers, if it is not one of their options."""
    programs_a = _list_user_programs(a)
    programs_b = _list_user_programs(b)
    if set(programs_a) & set(programs_b):
        work_a = _find_program_work(a)
        work_b = _find_program_work(b)
        # If both record their work, their options show how it differs.
        if (work_a == (UNKNOWN,)) == (work_b == (UNKNOWN,)):
            return []
        return [Difference(_OTHER_WORK, work_a, work_b, NOT_RECORDED, INCOMPARABLE)]
    name = f"--{TRAINER}"
    effect = "other-program"
    severity = CAUTION
    if any(find_recorded_work(run.known_options) is None for run in (*a, *b)):
        name = _OTHER_WORK
        effect = "work-not-recorded"
        severity = INCOMPARABLE
    return [Difference(name, programs_a, programs_b, effect, severity)]


def _list_user_programs(side: Side) -> tuple[str, ...]:
    names = [run.known_options.get(TRAINER, _SUITE_TRAINER) for run in side]
    return tuple(dict.fromkeys(names))


def _find_program_work(side: Side) -> tuple[Any, ...]:
    """Return the work of each program of a user; (UNKNOWN,) if one is not recorded."""
    programs = [run.known_options for run in side if TRAINER in run.known_options]
    works = list(map(find_recorded_work, programs))
    if None in works:
        return (UNKNOWN,)
    texts = []
    for sizes in filter(None, works):
        named_sizes = zip(("model", "batch_size", "global_batch_size"), sizes)
        texts.append(
            ", ".join([f"{name}={size}" for name, size in named_sizes if size])
        )
    return tuple(dict.fromkeys(texts))


def _compare_variables(a: Side, b: Side) -> list[Difference]:
    """Return the environment variables that differ."""
    is_recorded_a = _has_variables(a)
    is_recorded_b = _has_variables(b)
    if not is_recorded_a or not is_recorded_b:
        recorded = state("recorded")
        first = (recorded if is_recorded_a else UNKNOWN,)
        second = (recorded if is_recorded_b else UNKNOWN,)
        name = "environment variables"
        return [Difference(name, first, second, NOT_RECORDED, CAUTION)]
    names: set[str] = set().union(*(run.variables for run in (*a, *b)))
    differences = []
    for name in sorted(names):
        differences += _compare_fact(make_variable_fact(name), a, b)
    return differences


def _has_variables(side: Side) -> bool:
    return all("variables" not in run.record.environment.missing for run in side)


class _Load(NamedTuple):
    """The load of other programs on a run.

    Attributes:
      share: Share of the time of all cores of the run.
      compared_share: Share that is compared with other runs.
    """

    share: float
    compared_share: float


def _compute_loads(
    runs: Side, field: str, all_batches: bool, per_device: bool = True
) -> list[_Load]:
    """Return the load while the batches of each run that count ran.

    It is the load of the run's most disturbed worker.

    Args:
      runs: The runs; runs without a recorded load are left out.
      field: A key of LOAD_NAMES.
      all_batches: Whether disturbed batches count as well.
      per_device: Whether the compared share is a share of one device's cores, because
        all load may have been on them.
    """
    loads = []
    for run in runs:
        record = run.record
        if record.environment.load is None:
            continue
        processes = disturbance.count_watched_cores(record, all_batches)
        share = max(getattr(process, field) for process in processes)
        compared_share = share
        if per_device:
            compared_share = disturbance.convert_to_device_share(record, share)
        loads.append(_Load(share, compared_share))
    return loads


def _compare_loads(a: Side, b: Side) -> list[Difference]:
    """Return the load of both sides if it was noticeable on any.

    Runs are incomparable if one side had more load, and it may have caused much of the
    difference between their rates.
    """
    differences = []
    # Machines with different numbers of devices have the same load if they lose the
    # same share of all cores.
    per_device = len({run.num_devices for run in (*a, *b)}) == 1
    all_batches = disturbance.has_disturbed_run(run.record for run in (*a, *b))
    for field, name in LOAD_NAMES.items():
        loads_a = _compute_loads(a, field, all_batches, per_device)
        loads_b = _compute_loads(b, field, all_batches, per_device)
        first = (_load_statement(loads_a) if len(loads_a) == len(a) else UNKNOWN,)
        second = (_load_statement(loads_b) if len(loads_b) == len(b) else UNKNOWN,)
        effect = NOT_RECORDED
        severity = CAUTION
        if UNKNOWN not in first + second:
            effect = "load"
            shares_a = [load.compared_share for load in loads_a]
            shares_b = [load.compared_share for load in loads_b]
            if max(shares_a + shares_b) <= NOTICEABLE_LOAD:
                continue
            had_more = load_effect.had_more_load
            is_uneven = had_more(shares_a, shares_b) or had_more(shares_b, shares_a)
            records_a = [run.record for run in a]
            records_b = [run.record for run in b]
            if is_uneven and load_effect.may_explain(records_a, records_b):
                severity = INCOMPARABLE
        differences.append(Difference(name, first, second, effect, severity))
    return differences


def _list_loads_of_disturbed_runs(runs: Side) -> list[Difference]:
    """Return the load of the disturbed runs."""
    differences = []
    for field, name in LOAD_NAMES.items():
        loads = _compute_loads(runs, field, all_batches=False)
        noticeable_loads = [
            load for load in loads if load.compared_share > NOTICEABLE_LOAD
        ]
        if not noticeable_loads:
            continue
        values: dict[str, object] = {"load": _load_statement(noticeable_loads)}
        usual_statement = state("load-of-all-runs", **values)
        disturbed_statement = usual_statement
        if num_quiet := len(loads) - len(noticeable_loads):
            usual_statement = state(
                "quiet-runs", threshold=NOTICEABLE_LOAD, runs=num_quiet
            )
            values = {**values, "runs": len(noticeable_loads)}
            disturbed_statement = state("load-in-runs", **values)
        differences.append(
            Difference(
                name, (usual_statement,), (disturbed_statement,), "load", CAUTION
            )
        )
    return differences


def _load_statement(loads: Sequence[_Load]) -> Statement:
    shares = [load.share for load in loads]
    kind = "load-of-runs" if len(shares) > 1 else "load-of-run"
    return state(kind, mean=statistics.fmean(shares), most=max(shares))
