"""Which differences between runs make their speeds incomparable, and what each usually does.

Records of the same work -> Differences, the grave ones first. What a record does not hold is "unknown", which never
counts as equal. What follows from an option that was changed on purpose is no difference of its own.
"""

from __future__ import annotations

import collections
import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import disturbance, rows
from rnn_scaling.analysis.facts.readers import NOT_TOLD
from rnn_scaling.analysis.facts.separation import VARIABLES, WITHOUT_EFFECT
from rnn_scaling.analysis.facts.table import CAUTION, FACTS, INCOMPARABLE, Fact
from rnn_scaling.analysis.metrics import ITEMS, common_unit
from rnn_scaling.machine.load import NOTICEABLE
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import scale
from rnn_scaling.settings.naming import TRAINER, told_work

UNKNOWN = "unknown"
UNKNOWN_EFFECT = "not recorded on every side, so nobody can tell whether it differs"
MAX_SHOWN = 3  # values of one side

# Options that make it another amount or kind of work, and what that does to items/s.
WORK_OPTIONS = {
    "model": "another workload: another network, and perhaps other items",
    **dict.fromkeys(
        (
            *("unit_type", "num_encoder_layers", "num_decoder_layers", "num_units", "embedding_dim", "direction"),
            *("attention", "attention_architecture", "normalize_attention"),
        ),
        "another network: items/s fall about in proportion to the operations an item",
    ),
    **dict.fromkeys(
        ("src_vocab_size", "tgt_vocab_size"),
        "a larger vocabulary makes a larger softmax layer and more to exchange: fewer items/s",
    ),
    **dict.fromkeys(
        ("src_max_len", "tgt_max_len"), "longer sentences: more steps one after the other and another share of padding"
    ),
    "share_embedding": "one embedding in place of two: less to exchange and to update, one look-up for both sides",
    "biases_per_gate": "more small variables, and the same arithmetic",
    "dropout": "dropout draws random numbers in every layer: fewer items/s",
    "batch_size": "larger batches give more items/s of the same code, most on GPUs",
    "global_batch_size": "strong scaling gives each device less work than weak scaling, so its items/s are lower",
    "compute_dtype": "16-bit types are up to several times faster where the hardware has units for them",
    "data_source": "host and text put work on the host that device and constant do not: the same or fewer items/s",
    **dict.fromkeys(
        ("src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file", "num_buckets"),
        "other sentences or buckets have other lengths and another share of padding: items/s move either way",
    ),
    "optimizer": "sgd updates one array a variable, momentum two, adam three: fewer items/s in this order",
    "device": "another kind of device: many times faster or slower",
    "num_devices": "items/s grow with the devices, efficiency falls",
    "num_workers": "items/s grow with the workers, efficiency falls",
    "num_ps": "more servers share the traffic of the variables, and take cores: items/s move either way",
    "cpu_cores_per_device": "more cores a device: more items/s of each, and another baseline",
}
MEASURING_OPTIONS = {
    "num_warmup_batches": "a shorter warm-up counts slow first batches: fewer items/s",
    "num_batches": "fewer batches: a late slow-down is not seen, and each run varies more",
    **dict.fromkeys(
        ("until_steady", "target_ci", "max_batches"), "another rule for the end of the run: other batches are measured"
    ),
    "seed": "other random words and weights: no effect on synthetic data, another order of batches on text",
}
OWN_EFFECT = "an option of the trainer's own: nobody here knows whether the work is the same, nor what it does to speed"
OTHER_WORK = "the work that they do"
OTHER_WORK_EFFECT = "other programs, whose records do not both tell the model and batch_size: their work may be another"
OTHER_PROGRAM_EFFECT = "another program for the same work, as far as it is told: a difference in speed is what it does"
OURS = "rnn_scaling.train"
SAME_DEVICES = "as many devices in all, in other processes: a difference in speed is what that does"
COMPARED_EFFECT = "an option that leaves the work the same: a difference in speed is what it does"

SHARES = {
    "others": ("load of other processes", "items/s are lower by about that share, more when it is uneven over cores"),
    "steal": ("time stolen by the hypervisor", "items/s are lower by about that share: other machines' work"),
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing in which two sets of runs differ.

    Attributes:
      what: its name, as "CPU model" or "--batch_size".
      a, b: what it is on each side, as text; "unknown" if the records do not say.
      effect: what such a difference usually does, and in which direction.
      severity: "incomparable": speeds differ for this reason alone; "caution": it may explain small changes.
    """

    what: str
    a: str
    b: str
    effect: str
    severity: str


def differences(records_a: Sequence[RunRecord], records_b: Sequence[RunRecord]) -> list[Difference]:
    """What differs between two sets of runs, the grave first; options are differences too.

    Args:
      records_a, records_b: runs that measured something, at least one a side. Options with several values on a side
        differ only if no value is on both sides: such sides can be compared configuration by configuration.

    Raises:
      ValueError: if a side is empty.
    """
    if not records_a or not records_b:
        raise ValueError(f"expected runs on both sides, got {len(records_a)} and {len(records_b)}")
    a, b = [_RunFacts(record) for record in records_a], [_RunFacts(record) for record in records_b]
    unordered = _options(a, b) + _programs(a, b) + _variables(a, b) + _loads(a, b)
    for fact in FACTS:
        common = {run.options(fact.follows) for run in a} & {run.options(fact.follows) for run in b}
        like_for_like = [[run for run in side if run.options(fact.follows) in common] for side in (a, b)]
        unordered += _compare_fact(fact, *like_for_like)
    return _in_order(unordered, [*a, *b])


def within(records: Sequence[RunRecord]) -> list[Difference]:
    """What differs among runs that should have been alike but for their options: one set of repeats, one sweep.

    Returns:
      Differences whose `a` is what most of the runs have, and `b` what the others have; load that all runs had is on
      both sides.
    """
    runs = [_RunFacts(record) for record in records]
    unordered = _loads_within(runs)
    is_any_on_gpu = any(run.on_gpu for run in runs)
    groups = {follows: _grouped(runs, follows) for follows in {fact.follows for fact in FACTS}}
    for fact in FACTS:
        if is_any_on_gpu or not fact.gpu_only:
            for group in groups[fact.follows]:
                unordered += _compare_fact(fact, *_usual_and_others(fact, group))
    settings = collections.Counter(repr(sorted(run.variables.items())) for run in runs)
    if len(settings) > 1:
        usual = settings.most_common(1)[0][0]
        same = [repr(sorted(run.variables.items())) == usual for run in runs]
        unordered += _variables(
            [run for run, is_usual in zip(runs, same) if is_usual],
            [run for run, is_usual in zip(runs, same) if not is_usual],
        )
    return _in_order(unordered, runs)


class _RunFacts:
    """A record with its options as they count."""

    def __init__(self, record: RunRecord) -> None:
        self.record, self.config = record, rows.known_config(record)
        self.knows_variables = "variables" not in record.environment.missing
        variables = record.environment.variables.items()
        self.variables = {name: value for name, value in variables if name not in WITHOUT_EFFECT}
        self._options: dict[tuple[str, ...], tuple[str, ...]] = {}

    @property
    def on_gpu(self) -> bool:
        return self.config.get("device") == "gpu"

    def options(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Values of these options, as text."""
        if names not in self._options:
            self._options[names] = tuple([repr(self.config.get(name)) for name in names])
        return self._options[names]


def _grouped(runs: Sequence[_RunFacts], follows: tuple[str, ...]) -> list[list[_RunFacts]]:
    """The runs that have these options in common, in the order of their first."""
    groups: dict[tuple[str, ...], list[_RunFacts]] = {}
    for run in runs:
        groups.setdefault(run.options(follows), []).append(run)
    return [*groups.values()]


def _in_order(unordered: Sequence[Difference], runs: Sequence[_RunFacts]) -> list[Difference]:
    """Each once, the grave first; effects speak of what the runs count."""
    names = {difference.what for difference in unordered}
    implied = {fact.what for fact in FACTS if fact.unless in names}
    unit = common_unit(run.record.unit for run in runs)
    worded = (dataclasses.replace(d, effect=d.effect.replace(f"{ITEMS}/s", f"{unit}/s")) for d in unordered)
    once = dict.fromkeys(difference for difference in worded if difference.what not in implied)
    return sorted(once, key=lambda difference: (difference.severity != INCOMPARABLE, difference.a == UNKNOWN))


def _compare_fact(fact: Fact, a: Sequence[_RunFacts], b: Sequence[_RunFacts]) -> list[Difference]:
    runs = [*a, *b]
    if not a or not b or (fact.gpu_only and not all(run.on_gpu for run in runs)):
        return []
    values_a, values_b = ([fact.read(run.record) for run in side] for side in (a, b))
    if None in values_a or None in values_b:
        severity = INCOMPARABLE if fact.vital else CAUTION
        return [Difference(fact.what, _text(fact, values_a), _text(fact, values_b), UNKNOWN_EFFECT, severity)]
    if not _differ(fact, values_a, values_b):
        return []
    severity = fact.severity_on(any(run.on_gpu for run in runs))
    return [Difference(fact.what, _text(fact, values_a), _text(fact, values_b), fact.effect, severity)]


def _differ(fact: Fact, a: list[Any], b: list[Any]) -> bool:
    if fact.tolerance is None:
        return set(a) != set(b)
    numbers_a, numbers_b = ([value for value in side if value != NOT_TOLD] for side in (a, b))
    if not numbers_a or not numbers_b:
        return bool(numbers_a) != bool(numbers_b)
    middle_a, middle_b = statistics.median(numbers_a), statistics.median(numbers_b)
    return abs(middle_a - middle_b) > fact.tolerance * max(middle_a, middle_b)


def _usual_and_others(fact: Fact, runs: list[_RunFacts]) -> tuple[list[_RunFacts], list[_RunFacts]]:
    """The runs that have what most have, and the rest; runs that do not tell are among the rest."""
    values = [fact.read(run.record) for run in runs]
    if len({*values}) == 1:
        return runs, []
    known = [value for value in values if value is not None]
    if fact.tolerance is None:
        usual = collections.Counter(known).most_common(1)[0][0]
        same = [value == usual for value in values]
    else:
        numbers = [value for value in known if value != NOT_TOLD]
        middle = statistics.median(numbers) if numbers else NOT_TOLD
        same = [value is not None and not _differ(fact, [value], [middle]) for value in values]
    return [run for run, is_usual in zip(runs, same) if is_usual], [run for run, ok in zip(runs, same) if not ok]


def _text(fact: Fact, values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    words = list(dict.fromkeys(map(str, known)))
    numbers = [value for value in known if value != NOT_TOLD]
    if fact.tolerance is not None and numbers:
        words = [f"{statistics.median(numbers) / (2**30 if fact.unit == 'GiB' else 1):.4g} {fact.unit}"]
    if len(known) < len(values):
        words.append(UNKNOWN)
    return _some(words)


def _some(words: Sequence[str]) -> str:
    rest = [f"{len(words) - MAX_SHOWN} more"] if len(words) > MAX_SHOWN else []
    return " or ".join([*words[:MAX_SHOWN], *rest])


def _options(a: Sequence[_RunFacts], b: Sequence[_RunFacts]) -> list[Difference]:
    sides = []
    for runs in (a, b):
        values: dict[str, dict[str, None]] = {}
        keys = {repr(run.config): run.config for run in runs}
        for key in map(dict, map(rows.work_key, keys.values())):
            for name, value in key.items():
                values.setdefault(name, {})[value] = None
        sides.append(values)
    unlike = [
        option_difference(name, _some(list(sides[0][name])), _some(list(sides[1][name])))
        for name in sides[0]
        if name in sides[1] and name != TRAINER and not sides[0][name].keys() & sides[1][name].keys()
    ]
    in_a, in_b = ({scale.num_devices(run.config) for run in side} for side in (a, b))
    if in_a != in_b:
        return unlike
    spread = [f"--{name}" for name in scale.AXES]
    return [dataclasses.replace(d, effect=SAME_DEVICES, severity=CAUTION) if d.what in spread else d for d in unlike]


def _programs(a: Sequence[_RunFacts], b: Sequence[_RunFacts]) -> list[Difference]:
    """That the sides are of different trainers; whether they do the same work, the options say where they are told."""
    names = [list(dict.fromkeys(str(run.config.get(TRAINER, OURS)) for run in side)) for side in (a, b)]
    if set(names[0]) & set(names[1]):
        theirs = [[run.config for run in side if TRAINER in run.config] for side in (a, b)]
        works = [dict.fromkeys(map(told_work, side)) for side in theirs]
        before, after = (UNKNOWN if None in side else _some([*map(_work_in_words, side)]) for side in works)
        if (before == UNKNOWN) == (after == UNKNOWN):  # what differs between works that are told, the options say
            return []
        return [Difference(OTHER_WORK, before, after, UNKNOWN_EFFECT, INCOMPARABLE)]
    one, other = map(_some, names)
    if any(told_work(run.config) is None for run in (*a, *b)):
        return [Difference(OTHER_WORK, one, other, OTHER_WORK_EFFECT, INCOMPARABLE)]
    return [Difference(f"--{TRAINER}", one, other, OTHER_PROGRAM_EFFECT, CAUTION)]


def _work_in_words(work: tuple[Any, ...] | None) -> str:
    names = ("model", "batch_size", "global_batch_size")
    return ", ".join(f"{name}={value}" for name, value in zip(names, work or ()) if value)


def option_difference(name: str, a: str, b: str) -> Difference:
    """The difference that an option of these values makes."""
    if name in WORK_OPTIONS:
        return Difference(f"--{name}", a, b, WORK_OPTIONS[name], INCOMPARABLE)
    effect = COMPARED_EFFECT if name in configs.OPTIONS else OWN_EFFECT
    return Difference(f"--{name}", a, b, MEASURING_OPTIONS.get(name, effect), CAUTION)


def _variables(a: Sequence[_RunFacts], b: Sequence[_RunFacts]) -> list[Difference]:
    in_a, in_b = ("recorded" if all(run.knows_variables for run in side) else UNKNOWN for side in (a, b))
    if UNKNOWN in (in_a, in_b):
        return [Difference("environment variables", in_a, in_b, UNKNOWN_EFFECT, CAUTION)]
    unlike = []
    for name in sorted({name for run in (*a, *b) for name in run.variables}):
        sides = [list(dict.fromkeys(str(run.variables.get(name, "not set")) for run in side)) for side in (a, b)]
        if set(sides[0]) != set(sides[1]):
            start = next(start for start in VARIABLES if name.startswith(start))
            effect, severity = VARIABLES[start]
            unlike.append(Difference(f"variable {name}", _some(sides[0]), _some(sides[1]), effect, severity))
    return unlike


def _shares(runs: Sequence[_RunFacts], name: str) -> list[float | None]:
    """Of each run; of several workers that of the most disturbed one, for which the others wait."""
    loads = [run.record.environment.load for run in runs]
    shares = [None if load is None else getattr(load, name) for load in loads]
    if name != "others":
        return shares
    workers = [run.record.workers.workers if run.record.workers else () for run in runs]
    by_run = [[rank.load_others for rank in ranks if rank.load_others is not None] for ranks in workers]
    return [share if share is None else max(share, *own) if own else share for share, own in zip(shares, by_run)]


@dataclasses.dataclass(frozen=True)
class _Taken:
    """What was taken from a run: `share` of all its cores, `felt` of one device's if all fell on that."""

    share: float
    felt: float


def _taken(runs: Sequence[_RunFacts], name: str, is_felt: bool = True) -> list[_Taken]:
    """What others ("others") or the hypervisor ("steal") took of each run that tells it."""
    shares = [(run, share) for run, share in zip(runs, _shares(runs, name)) if share is not None]
    return [_Taken(share, disturbance.felt(run.record, share) if is_felt else share) for run, share in shares]


def _loads(a: Sequence[_RunFacts], b: Sequence[_RunFacts]) -> list[Difference]:
    """Load is grave where one side had more of it than the other, and a caution where both had it."""
    loads = []
    # Of one device on as many; machines that differ in devices have the same load if they lose the same share.
    is_felt = len({scale.num_devices(run.config) for run in (*a, *b)}) == 1
    for name, (what, effect) in SHARES.items():
        in_a, in_b = _taken(a, name, is_felt), _taken(b, name, is_felt)
        known_a, known_b = len(in_a) == len(a), len(in_b) == len(b)
        text_a, text_b = (_percent(taken) if known else UNKNOWN for taken, known in ((in_a, known_a), (in_b, known_b)))
        if not known_a or not known_b:
            loads.append(Difference(what, text_a, text_b, UNKNOWN_EFFECT, CAUTION))
        elif max(taken.felt for taken in (*in_a, *in_b)) > NOTICEABLE:
            severity = INCOMPARABLE if _one_had_more(in_a, in_b) else CAUTION
            loads.append(Difference(what, text_a, text_b, effect, severity))
    return loads


def _one_had_more(a: Sequence[_Taken], b: Sequence[_Taken]) -> bool:
    """True if the means differ by what matters and by more than shares that vary as these do by chance."""
    felt = [[taken.felt for taken in side] for side in (a, b)]
    error = math.sqrt(sum(statistics.variance(side) / len(side) for side in felt if len(side) > 1))
    return abs(statistics.fmean(felt[0]) - statistics.fmean(felt[1])) > max(NOTICEABLE, 2 * error)


def _loads_within(runs: Sequence[_RunFacts]) -> list[Difference]:
    loads = []
    for name, (what, effect) in SHARES.items():
        known = _taken(runs, name)
        calm, busy = ([t for t in known if (t.felt > NOTICEABLE) is is_busy] for is_busy in (False, True))
        if busy and calm:
            text = f"at most {NOTICEABLE:.0%} of a device's cores in {_runs(len(calm))}"
            loads.append(Difference(what, text, f"{_percent(busy)} in {_runs(len(busy))}", effect, CAUTION))
        elif busy:  # nothing that tells the runs apart, but every one of them was slowed
            text = f"all runs: {_percent(busy)}"
            loads.append(Difference(what, text, text, effect, CAUTION))
    return loads


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _percent(taken: Sequence[_Taken]) -> str:
    shares = [each.share for each in taken]
    mean, most = statistics.fmean(shares), max(shares)
    return f"{mean:.1%} of the cores" + (f" (up to {most:.1%})" if len(shares) > 1 else "")
