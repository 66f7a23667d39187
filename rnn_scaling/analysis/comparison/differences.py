"""Which differences between runs make their speeds incomparable, and what each usually does.

Records of the same work -> Differences, the grave ones first. What a record does not hold is "unknown", which never
counts as equal. What follows from an option that was changed on purpose is no difference of its own.
"""

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance, rows
from rnn_scaling.analysis.facts.readers import NOT_TOLD
from rnn_scaling.analysis.facts.separation import WITHOUT_EFFECT, variable_fact
from rnn_scaling.analysis.facts.table import CAUTION, FACTS, INCOMPARABLE, Fact
from rnn_scaling.analysis.grouping import grouped
from rnn_scaling.analysis.metrics import ITEMS, common_unit
from rnn_scaling.config import run_config as configs
from rnn_scaling.config import scale
from rnn_scaling.config.naming import TRAINER, told_work
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.load import NOTICEABLE

UNKNOWN = "unknown"
UNKNOWN_EFFECT = "not recorded on both sides, so it may differ"
MAX_SHOWN = 3  # values of one side

# Options that make it another amount or kind of work, by what that does to items/s.
_WORK = {
    "another network, and perhaps another unit": ("model",),
    "items/s fall about in proportion to the operations an item": (
        *(
            "unit_type",
            "num_encoder_layers",
            "num_decoder_layers",
            "num_units",
            "embedding_dim",
            "direction",
        ),
        *(
            "attention",
            "attention_architecture",
            "normalize_attention",
            "num_heads",
            "filter_size",
        ),
    ),
    "a larger vocabulary makes a larger softmax layer: fewer items/s": (
        "src_vocab_size",
        "tgt_vocab_size",
    ),
    "longer sentences take more sequential steps, and have more padding": (
        "src_max_len",
        "tgt_max_len",
    ),
    "one embedding in place of two: less to exchange and to update": (
        "share_embedding",
    ),
    "more small variables, and the same arithmetic": ("biases_per_gate",),
    "dropout draws random numbers in every layer: fewer items/s": ("dropout",),
    "another loss, and nearly the same arithmetic": ("label_smoothing",),
    "evaluating computes no gradients: more items/s": ("forward_only",),
    "decoding computes one word after the other, and counts other items": ("decode",),
    "each more hypothesis is computed and not counted: fewer items/s": ("beam_size",),
    "another best hypothesis, and a search that ends later": ("length_penalty",),
    "larger batches give more items/s, most on GPUs": ("batch_size",),
    "strong scaling gives each device less work: fewer items/s": ("global_batch_size",),
    "16-bit types are up to several times faster where the hardware has units for them": (
        "compute_dtype",
    ),
    "host and text put work on the host that device and constant do not": (
        "data_source",
    ),
    "sentences have other lengths and another share of padding": (
        *(
            "src_file_name",
            "tgt_file_name",
            "src_vocab_file",
            "tgt_vocab_file",
            "num_buckets",
        ),
    ),
    "padding is computed and not counted: fewer items/s, and no tower waits for longer sentences": (
        "pad_to",
    ),
    "sgd updates one array a variable, momentum two, rmsprop and adam three": (
        "optimizer",
    ),
    "decay reads each matrix once more in an update": ("weight_decay",),
    "fewer exchanges and updates for the same items: more items/s": (
        "gradient_accumulation_steps",
    ),
    "many times faster or slower": ("device",),
    "items/s grow with it, efficiency falls": ("num_devices", "num_workers"),
    "servers share the traffic of the variables, and take cores": ("num_ps",),
    "more cores a device: more items/s of each, and another baseline": (
        "cpu_cores_per_device",
    ),
}
_MEASURING = {
    "a shorter warm-up counts slow first batches: fewer items/s": (
        "num_warmup_batches",
    ),
    "fewer batches hide a late slow-down, and runs vary more": ("num_batches",),
    "another rule for the end of the run": (
        *(
            "until_steady",
            "target_ci",
            "max_batches",
            "stop_at_loss",
            "stop_at_accuracy",
            "num_epochs",
        ),
    ),
    "no effect on synthetic data, another order of batches on text": ("seed",),
}
WORK_OPTIONS = {name: effect for effect, names in _WORK.items() for name in names}
MEASURING_OPTIONS = {
    name: effect for effect, names in _MEASURING.items() for name in names
}
OTHER_WORK = "the work that they do"
OURS = "rnn_scaling.train"

# Field of a record's load -> its name.
SHARES = {"others": "load of other processes", "steal": "time stolen by the hypervisor"}
LOAD_EFFECT = "items/s are lower by about that share, more when it is uneven over cores"


@dataclasses.dataclass(frozen=True)
class Difference:
    what: str  # its name, as "CPU model" or "--batch_size"
    a: str  # on this side, "unknown" if the records do not say; b in the same way
    b: str
    effect: str  # what it usually does
    severity: (
        str  # "incomparable": speeds differ for this reason alone, "caution": maybe
    )

    @property
    def is_grave(self) -> bool:
        """Whether speeds differ for this reason alone."""
        return self.severity == INCOMPARABLE


def differences(
    records_a: Sequence[RunRecord], records_b: Sequence[RunRecord]
) -> list[Difference]:
    """What differs between two sets of runs that measured something, one or more; options are differences too.

    Options with several values on a side differ only if no value is on both: such sides can be compared one by one.
    """
    a, b = (
        [_RunFacts(record) for record in records_a],
        [_RunFacts(record) for record in records_b],
    )
    unordered = _options(a, b) + _programs(a, b) + _variables(a, b) + _loads(a, b)
    for fact in FACTS:
        common = {run.options(fact.follows) for run in a} & {
            run.options(fact.follows) for run in b
        }
        like_for_like = [
            [run for run in side if run.options(fact.follows) in common]
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
        names: grouped(runs, [run.options(names) for run in runs])
        for names in {fact.follows for fact in FACTS}
    }
    for fact in FACTS:
        if is_any_on_gpu or not fact.gpu_only:
            for group in groups[fact.follows].values():
                unordered += _compare_fact(fact, *_usual_and_others(fact, group))
    settings = [repr(sorted(run.variables.items())) for run in runs]
    if len(set(settings)) > 1:
        usual = statistics.mode(settings)
        parts = grouped(runs, [setting == usual for setting in settings])
        unordered += _variables(parts[True], parts[False])
    return _in_order(unordered, runs)


class _RunFacts:
    def __init__(self, record: RunRecord) -> None:
        self.record, self.config = record, rows.known_config(record)
        variables = record.environment.variables.items()
        self.variables = {
            name: value for name, value in variables if name not in WITHOUT_EFFECT
        }
        self._options: dict[tuple[str, ...], tuple[str, ...]] = {}

    @property
    def on_gpu(self) -> bool:
        return self.config.get("device") == "gpu"

    def options(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Values of these options, as text."""
        if names not in self._options:
            self._options[names] = tuple(
                [repr(self.config.get(name)) for name in names]
            )
        return self._options[names]


Side = Sequence[_RunFacts]


def _in_order(unordered: Sequence[Difference], runs: Side) -> list[Difference]:
    """Each once, the grave first; effects speak of what the runs count."""
    names = {difference.what for difference in unordered}
    implied = {fact.what for fact in FACTS if fact.unless in names}
    unit = common_unit(run.record.unit for run in runs)
    worded = (
        dataclasses.replace(d, effect=d.effect.replace(f"{ITEMS}/s", f"{unit}/s"))
        for d in unordered
    )
    once = dict.fromkeys(
        difference for difference in worded if difference.what not in implied
    )
    return sorted(
        once, key=lambda difference: (not difference.is_grave, difference.a == UNKNOWN)
    )


def _compare_fact(fact: Fact, a: Side, b: Side) -> list[Difference]:
    runs = [*a, *b]
    if not a or not b or (fact.gpu_only and not all(run.on_gpu for run in runs)):
        return []
    values_a, values_b = ([fact.read(run.record) for run in side] for side in (a, b))
    effect, severity = fact.effect, fact.severity_on(any(run.on_gpu for run in runs))
    if None in values_a or None in values_b:
        effect, severity = UNKNOWN_EFFECT, INCOMPARABLE if fact.vital else CAUTION
    elif not _differ(fact, values_a, values_b):
        return []
    return [
        Difference(
            fact.what, _text(fact, values_a), _text(fact, values_b), effect, severity
        )
    ]


def _differ(fact: Fact, a: list[Any], b: list[Any]) -> bool:
    if fact.tolerance is None:
        return set(a) != set(b)
    numbers_a, numbers_b = (
        [value for value in side if value != NOT_TOLD] for side in (a, b)
    )
    if not numbers_a or not numbers_b:
        return bool(numbers_a) != bool(numbers_b)
    middle_a, middle_b = statistics.median(numbers_a), statistics.median(numbers_b)
    return abs(middle_a - middle_b) > fact.tolerance * max(middle_a, middle_b)


def _usual_and_others(fact: Fact, runs: Side) -> tuple[Side, Side]:
    """The runs that have what most have, and the others; runs that do not tell are among the others."""
    values = [fact.read(run.record) for run in runs]
    if len({*values}) == 1:
        return runs, []
    known = [value for value in values if value is not None]
    numbers = [value for value in known if value != NOT_TOLD]
    middle = (
        statistics.median(numbers)
        if fact.tolerance is not None and numbers
        else NOT_TOLD
    )
    usual = statistics.mode(known) if fact.tolerance is None else middle
    parts = grouped(
        runs,
        [value is not None and not _differ(fact, [value], [usual]) for value in values],
    )
    return parts.get(True, []), parts.get(False, [])


def _text(fact: Fact, values: list[Any]) -> str:
    known = [value for value in values if value is not None]
    words = [*dict.fromkeys(map(str, known))]
    numbers = [value for value in known if value != NOT_TOLD]
    if fact.tolerance is not None and numbers:
        words = [
            f"{statistics.median(numbers) / (2**30 if fact.unit == 'GiB' else 1):.4g} {fact.unit}"
        ]
    if len(known) < len(values):
        words.append(UNKNOWN)
    return some(words)


def some(words: Iterable[str], joint: str = " or ") -> str:
    """The first of them, and how many more there are."""
    shown = [*words]
    more = [f"{len(shown) - MAX_SHOWN} more"] if len(shown) > MAX_SHOWN else []
    return joint.join([*shown[:MAX_SHOWN], *more])


def _options(a: Side, b: Side) -> list[Difference]:
    sides = []
    for runs in (a, b):
        values: dict[str, dict[str, None]] = {}
        keys = {repr(run.config): run.config for run in runs}
        for key in map(dict, map(rows.work_key, keys.values())):
            for name, value in key.items():
                values.setdefault(name, {})[value] = None
        sides.append(values)
    in_a, in_b = sides
    unlike = [
        _option_difference(name, some(in_a[name]), some(in_b[name]))
        for name in in_a
        if name in in_b
        and name != TRAINER
        and not in_a[name].keys() & in_b[name].keys()
    ]
    totals = [{scale.num_devices(run.config) for run in side} for side in (a, b)]
    if totals[0] != totals[1]:
        return unlike
    spread = [f"--{name}" for name in scale.AXES]
    effect = "the same number of devices in other processes"
    return [
        dataclasses.replace(d, effect=effect, severity=CAUTION)
        if d.what in spread
        else d
        for d in unlike
    ]


def _option_difference(name: str, a: str, b: str) -> Difference:
    if name in WORK_OPTIONS:
        return Difference(f"--{name}", a, b, WORK_OPTIONS[name], INCOMPARABLE)
    effect = (
        "an option that leaves the work the same: a difference in speed is what it does"
    )
    if name not in configs.OPTIONS:
        effect = (
            "an option of another trainer: its effect on work and speed is not known"
        )
    return Difference(f"--{name}", a, b, MEASURING_OPTIONS.get(name, effect), CAUTION)


def _programs(a: Side, b: Side) -> list[Difference]:
    """The difference of two trainers; their options say whether they do the same work."""
    names = [
        dict.fromkeys(str(run.config.get(TRAINER, OURS)) for run in side)
        for side in (a, b)
    ]
    if names[0].keys() & names[1].keys():
        theirs = [
            [run.config for run in side if TRAINER in run.config] for side in (a, b)
        ]
        works = [dict.fromkeys(map(told_work, side)) for side in theirs]
        before, after = (
            UNKNOWN if None in side else some(map(_work_in_words, side))
            for side in works
        )
        if (before == UNKNOWN) == (
            after == UNKNOWN
        ):  # what differs between works that are told, the options say
            return []
        return [Difference(OTHER_WORK, before, after, UNKNOWN_EFFECT, INCOMPARABLE)]
    before, after = map(some, names)
    if any(told_work(run.config) is None for run in (*a, *b)):
        effect = (
            "programs that do not all record model and batch_size may do different work"
        )
        return [Difference(OTHER_WORK, before, after, effect, INCOMPARABLE)]
    return [
        Difference(
            f"--{TRAINER}",
            before,
            after,
            "another program for the same recorded work",
            CAUTION,
        )
    ]


def _work_in_words(work: tuple[Any, ...] | None) -> str:
    names = ("model", "batch_size", "global_batch_size")
    return ", ".join(
        f"{name}={value}" for name, value in zip(names, work or ()) if value
    )


def _variables(a: Side, b: Side) -> list[Difference]:
    lacking = [
        any("variables" in run.record.environment.missing for run in side)
        for side in (a, b)
    ]
    if any(lacking):
        before, after = (UNKNOWN if lacks else "recorded" for lacks in lacking)
        return [
            Difference("environment variables", before, after, UNKNOWN_EFFECT, CAUTION)
        ]
    names = sorted({name for run in (*a, *b) for name in run.variables})
    return [
        difference
        for name in names
        for difference in _compare_fact(variable_fact(name), a, b)
    ]


@dataclasses.dataclass(frozen=True)
class _Taken:
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
            share = max(
                [share, *(rank.load_others or 0.0 for rank in record.workers.workers)]
            )
        taken.append(
            _Taken(
                share, disturbance.share_of_device(record, share) if is_felt else share
            )
        )
    return taken


def _loads(a: Side, b: Side) -> list[Difference]:
    """Load is grave where one side had more of it than the other, and a caution where both had it."""
    loads = []
    # Machines with different numbers of devices have the same load if they lose the same share.
    is_felt = len({scale.num_devices(run.config) for run in (*a, *b)}) == 1
    for name, what in SHARES.items():
        sides = [_taken(side, name, is_felt) for side in (a, b)]
        is_recorded = [len(taken) == len(side) for taken, side in zip(sides, (a, b))]
        before, after = (
            _percent(taken) if recorded else UNKNOWN
            for taken, recorded in zip(sides, is_recorded)
        )
        if not all(is_recorded):
            loads.append(Difference(what, before, after, UNKNOWN_EFFECT, CAUTION))
        elif max(taken.felt for side in sides for taken in side) > NOTICEABLE:
            severity = INCOMPARABLE if _one_had_more(*sides) else CAUTION
            loads.append(Difference(what, before, after, LOAD_EFFECT, severity))
    return loads


def _one_had_more(a: Sequence[_Taken], b: Sequence[_Taken]) -> bool:
    """Return whether one side had more load than the other, beyond chance."""
    loads_a = [taken.felt for taken in a]
    loads_b = [taken.felt for taken in b]
    return disturbance.had_more_load(loads_a, loads_b) or disturbance.had_more_load(
        loads_b, loads_a
    )


def _loads_within(runs: Side) -> list[Difference]:
    loads = []
    for name, what in SHARES.items():
        taken = _taken(runs, name)
        busy = [t for t in taken if t.felt > NOTICEABLE]
        calm = len(taken) - len(busy)
        if not busy:
            continue
        usual = others = f"all runs: {_percent(busy)}"
        if calm:
            usual = f"at most {NOTICEABLE:.0%} of a device's cores in {_runs(calm)}"
            others = f"{_percent(busy)} in {_runs(len(busy))}"
        loads.append(Difference(what, usual, others, LOAD_EFFECT, CAUTION))
    return loads


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _percent(taken: Sequence[_Taken]) -> str:
    shares = [share.share for share in taken]
    most = f" (up to {max(shares):.1%})" if len(shares) > 1 else ""
    return f"{statistics.fmean(shares):.1%} of the cores{most}"
