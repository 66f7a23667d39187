"""Run records -> rows: every configuration with its repeats, beside the same one on one device.

row: one configuration; series: rows that differ in the number of devices, or of workers, alone.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import confidence, disturbance
from rnn_scaling.analysis.confidence import (
    Interval,
    Scatter,
    over_processes,
    shared_scatters,
    within_interval,
)
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.grouping import grouped
from rnn_scaling.analysis.machines import Machine, machine
from rnn_scaling.analysis.metrics import (
    LATENCIES,
    METRICS,
    MONEY,
    Compute,
    Measured,
    Metric,
    common_unit,
    is_inference,
)
from rnn_scaling.analysis.prices import NO_PRICES, PricedMachine, PriceList
from rnn_scaling.config import registry, scale
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import (
    NOT_COMPARED,
    NOT_COMPARED_THEIRS,
    RESOLVED,
    unread_options,
)
from rnn_scaling.config.naming import TRAINER, network
from rnn_scaling.config.registry import WORKLOADS, workloads
from rnn_scaling.records.record import RunRecord

DevicesAndSamples = tuple[int, int]  # devices, samples of all of them in a step

Key = tuple[tuple[str, str], ...]
UNIT = "unit"  # in a key, beside the options: what is counted
DECODER = "decoder_type"
MANY_MODELS = 3
_READERS = registry.readers(WORKLOADS)
# What keys leave out, by whether runs are ours and whether they scale strongly: their total is then constant, and a
# tower's share follows from it.
_LEFT_OUT = {
    (is_ours, is_strong): names | ({"batch_size"} if is_strong else set())
    for is_ours, names in ((True, NOT_COMPARED), (False, NOT_COMPARED_THEIRS))
    for is_strong in (True, False)
}
_DEFAULTS = {name: field.default for name, field in configs.OPTIONS.items()}
_DEFAULT_TEXTS = {name: repr(default) for name, default in _DEFAULTS.items()}
_DEFAULT_ITEMS = frozenset(_DEFAULT_TEXTS.items())
# What is taken for granted of another trainer's runs that do not tell it; of all else None says that it is not known.
_GRANTED = {
    name: _DEFAULTS[name]
    for name in ("device", "num_workers", "global_batch_size", "data_source")
}
_UNTOLD = {**dict.fromkeys(_DEFAULTS), **_GRANTED, "variable_update": ""}


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One configuration: its runs in the order of their files."""

    records: tuple[RunRecord, ...]
    key: Key  # what these have in common (`row_key` and `facts`)
    one_device: Row | None = None  # the same configuration there
    scatter: Scatter | None = (
        None  # of processes, where its rate shares that with other rows; None: its own
    )
    fixed_total: int | None = (
        None  # samples a step of all devices, where rows of another trainer share it
    )
    facts: separation.Facts = ()  # what tells its runs from others of the same options, which are no repeats of them
    priced: PricedMachine | None = (
        None  # the machine of its runs in machines.toml; None if unknown
    )

    @property
    def baseline(self) -> Row | None:
        """The same configuration on one device, which is its own baseline; None if that measured nothing."""
        return self if self.num_devices == 1 and self.good else self.one_device

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        return with_total(full_config(self.records[0]), self.fixed_total)

    @functools.cached_property
    def is_ours(self) -> bool:
        """Whether our trainer made its runs, and its commands would make them again."""
        return TRAINER not in self.config

    @functools.cached_property
    def num_devices(self) -> int:
        """Devices of all its workers."""
        return scale.num_devices(self.config)

    @functools.cached_property
    def num_workers(self) -> int:
        """Its worker processes; 1 in a mode of one process."""
        return scale.num_workers(self.config)

    @property
    def devices(self) -> str:
        """ "2 devices", "4 workers of one device each"."""
        return scale.in_words(self.num_workers, self.config["num_devices"])

    @functools.cached_property
    def is_distributed(self) -> bool:
        """Whether several processes can take part in its mode."""
        return scale.axis(self.config) == "num_workers"

    @functools.cached_property
    def good(self) -> tuple[RunRecord, ...]:
        """The runs that measured something."""
        return tuple(r for r in self.records if r.status == "ok" and r.throughput)

    @functools.cached_property
    def counted(self) -> tuple[RunRecord, ...]:
        """The good runs behind its numbers: without disturbed ones, if enough are quiet."""
        return disturbance.select_quiet(self.good, disturbance.is_disturbed)

    @functools.cached_property
    def left_out(self) -> tuple[RunRecord, ...]:
        """The good runs that do not count, because they were disturbed."""
        counted = {id(record) for record in self.counted}
        return tuple(record for record in self.good if id(record) not in counted)

    @functools.cached_property
    def rate(self) -> Interval | None:
        """Items per second over the runs that count.

        The interval has no ends if no scatter is known. None without a good run.
        """
        if not self.counted:
            return None
        rate = over_processes(process_rates(self.counted), self.scatter)
        return rate.printed(self.rounding)

    @functools.cached_property
    def rounding(self) -> float:
        """By how much printed digits may change the logarithm of its rate.

        0.0 if no rate comes from a log.
        """
        shares = [run.log_rounding or 0.0 for run in self.counted]
        return abs(math.log1p(-max(shares, default=0.0)))

    @functools.cached_property
    def rate_within_run(self) -> Interval | None:
        """Items per second of its only run, with the interval over its batches.

        None with several runs, or if the run has no batches.
        """
        if len(self.counted) != 1 or not self.counted[0].batches.seconds:
            return None
        rate = within_interval(*measured_batches(self.counted[0]))
        return rate.printed(self.rounding)

    def told(self, name: str) -> Any:
        """The value of an option; None where it is not read, not recorded, or only stands for others."""
        workload = self.config["model"]
        if self.is_ours and name in RESOLVED:
            return None
        is_read = (
            not self.is_ours
            or workload not in WORKLOADS
            or workload in _READERS.get(name, WORKLOADS)
        )
        return self.known.get(name) if is_read else None

    @functools.cached_property
    def known(self) -> Mapping[str, Any]:
        """The options with known values: all of ours, which have defaults, and those that another program reports."""
        return (
            self.config
            if self.is_ours
            else with_total(known_config(self.records[0]), self.fixed_total)
        )

    @property
    def batch_size(self) -> int | None:
        """Samples of a device a step; None with one global batch, and where another trainer's records do not tell."""
        return (
            None if self.config["global_batch_size"] else self.known.get("batch_size")
        )

    @property
    def global_batch_size(self) -> int | None:
        """Samples of all devices an update; None where another trainer's records do not tell."""
        per_device = self.batch_size
        repeats = self.config.get("gradient_accumulation_steps") or 1
        total = None if per_device is None else per_device * self.num_devices * repeats
        return self.config["global_batch_size"] or total

    @property
    def unit(self) -> str:
        return self.records[0].unit

    @property
    def items(self) -> str:
        if self.config.get("decode"):
            return workloads.TRANSLATED
        return self._workload.items if self._workload else "as counted by the program"

    @property
    def samples(self) -> str:
        """What its batches hold: "sentence pairs", or "samples" where it is not known."""
        return self._workload.samples if self._workload else "samples"

    @property
    def _workload(self) -> workloads.Entry | None:
        return WORKLOADS.get(self.config["model"]) if self.is_ours else None

    def metric(self, metric: Metric) -> Interval | None:
        """A metric, before its factor; None where it cannot be known."""
        if metric.compute not in self._computed:
            one_device = self.baseline.rate if self.baseline else None
            measured = Measured(
                self.counted, self.num_devices, self.rate, one_device, self.priced
            )
            self._computed[metric.compute] = metric.compute(measured)
        return self._computed[metric.compute]

    @functools.cached_property
    def _computed(self) -> dict[Compute, Interval | None]:
        return {}


def full_config(record: RunRecord) -> dict[str, Any]:
    """Every option; one that a record does not name is newer than it, and had its default."""
    if TRAINER in record.config:  # what it does not tell of these is not known
        return {**_UNTOLD, "model": record.config[TRAINER], **_told(record)}
    return {**_DEFAULTS, **record.config}


def _told(record: RunRecord) -> dict[str, Any]:
    """What another trainer tells of itself; None is no value."""
    return {name: value for name, value in record.config.items() if value is not None}


def known_config(record: RunRecord) -> dict[str, Any]:
    """The options whose values are known: of another trainer those that its record tells."""
    return _told(record) if TRAINER in record.config else full_config(record)


def shown(rows: Sequence[Row]) -> list[Metric]:
    """The metrics that a report of these rows has, named after their unit; in the order of the table."""
    unit = common_unit(row.unit for row in rows)
    renamed = LATENCIES if all(is_inference(row.records) for row in rows) else {}
    table = [renamed.get(name, metric) for name, metric in METRICS.items()]
    possible = [
        metric for metric in table if not metric.of_models or has_many_models(rows)
    ]
    known = [
        metric
        for metric in possible
        if metric.always or any(row.metric(metric) for row in rows)
    ]
    currency = next(
        (row.priced.currency for row in rows if row.priced and row.priced.currency),
        MONEY,
    )
    return [metric.named_after(unit, currency) for metric in known]


def has_many_models(rows: Sequence[Row]) -> bool:
    """Whether rows of our trainer have so many models that a table compares these."""
    return (
        all(row.is_ours for row in rows)
        and len({row.config["model"] for row in rows}) >= MANY_MODELS
    )


def measured_batches(record: RunRecord) -> tuple[Sequence[float], Sequence[int]]:
    """(seconds, items) of the batches after the warm-up."""
    first = record.batches.warmup
    return record.batches.seconds[first:], record.batches.items[first:]


def process_rates(records: Sequence[RunRecord]) -> list[float]:
    """items/s of each run that measured something: of its batches, or as the log of a run without them says."""
    return [
        record.throughput.items_per_second
        if record.throughput and not record.batches.seconds
        else confidence.process_rate(*measured_batches(record))
        for record in records
    ]


def measured_seconds(record: RunRecord) -> float | None:
    """Seconds of the batches after the warm-up; None where a log does not tell them."""
    if record.batches.seconds or not record.throughput:
        return math.fsum(measured_batches(record)[0])
    return record.throughput.seconds


def _size(record: RunRecord) -> tuple[Key, tuple[int, int]] | None:
    """What is recorded of another trainer's size, and what else it has in common with its other sizes."""
    config = full_config(record)
    devices = scale.num_devices(config)
    total = config["global_batch_size"] or (config["batch_size"] or 0) * devices
    if TRAINER not in config or not total:
        return None
    return row_key(
        config, record.unit, **scale.ON_ONE_DEVICE, batch_size=None, global_batch_size=0
    ), (devices, total)


def work_key(config: Mapping[str, Any], /, **changes: Any) -> Key:
    """The options that runs of the same work, but for `changes`, have in common; unread ones are as by default."""
    changed = {**config, **changes}
    ignored = unread_options(changed)
    names = sorted(changed.keys() - _left_out(changed))
    return tuple(
        [
            (name, _DEFAULT_TEXTS[name] if name in ignored else repr(changed[name]))
            for name in names
        ]
    )


def row_key(config: Mapping[str, Any], unit: str, /, **changes: Any) -> Key:
    """What the runs of one row have in common: what they count, and of `work_key` all that is not as by default."""
    changed = {**config, **changes}
    names = changed.keys() - _left_out(changed) - unread_options(changed)
    return (
        (UNIT, repr(unit)),
        *sorted({(name, repr(changed[name])) for name in names} - _DEFAULT_ITEMS),
    )


def _left_out(config: Mapping[str, Any]) -> frozenset[str]:
    return _LEFT_OUT[TRAINER not in config, bool(config.get("global_batch_size"))]


def series_key(row: Row) -> Key:
    """What the rows of one series have in common: all of a row's key but what grows along the series."""
    return without(row.key, {scale.axis(row.config)})


def without(key: Key, names: Collection[str]) -> Key:
    return tuple(item for item in key if item[0] not in names)


def with_baselines(
    records: Sequence[RunRecord], prices: PriceList = NO_PRICES
) -> list[Row]:
    """One row for each configuration, in the order of their first records; `prices`: of the machines."""
    alone = _rows(records, prices)
    scatters = scatters_of(alone)
    alone = [
        dataclasses.replace(row, scatter=scatter)
        if (scatter := scatters.get(row.key))
        else row
        for row in alone
    ]
    ones = [row for row in alone if row.baseline]
    baselines = grouped(((row.facts, row) for row in ones), map(_work, ones))
    for i, row in enumerate(alone):
        if not row.baseline:
            baseline = separation.on_one_device(
                row.facts, baselines.get(_work(row), [])
            )
            alone[i] = dataclasses.replace(row, one_device=baseline)
    return alone


def _rows(records: Sequence[RunRecord], prices: PriceList) -> list[Row]:
    """The rows of these records without baselines, in the order of their first records."""
    totals = fixed_totals([_size(record) for record in records])
    keys = [
        row_key(with_total(full_config(run), total), run.unit)
        for run, total in zip(records, totals)
    ]
    groups = grouped(
        range(len(records)), zip(keys, separation.separating_facts(records, keys))
    )
    return [
        Row(
            tuple(records[i] for i in indices),
            key + facts,
            fixed_total=next((totals[i] for i in reversed(indices) if totals[i]), None),
            facts=facts,
            priced=next(
                (priced for i in indices if (priced := prices.match(records[i]))), None
            ),
        )
        for (key, facts), indices in groups.items()
    ]


def _work(row: Row) -> Key:
    return without(row.key[: len(row.key) - len(row.facts)], scale.AXES)


def scatters_of(rows: Sequence[Row]) -> dict[Key, Scatter | None]:
    """Return the scatter of the runs of each row, by the row's key.

    Rows with the same devices, workers and way of measuring share it, except that
    disturbed rows share none with quiet ones: they would widen their intervals.
    """
    good = [row for row in rows if row.good]
    how = []
    for row in good:
        methods = frozenset(map(_measured_how, row.counted))
        is_disturbed = any(map(disturbance.is_disturbed, row.counted))
        how.append((row.num_devices, row.num_workers, methods, is_disturbed))
    scatters: dict[Key, Scatter | None] = {}
    for members in grouped(good, how).values():
        rates = [process_rates(row.counted) for row in members]
        scatters |= zip((row.key for row in members), shared_scatters(rates))
    return scatters


def _measured_how(run: RunRecord) -> tuple[Machine, str | None, int | None, str]:
    """Machine, kind of device, measured batches (None: the run decided when to stop), and whose log has no batches."""
    decides = any(
        run.config.get(name)
        for name in ("until_steady", "stop_at_loss", "stop_at_accuracy")
    )
    batches = None if decides else len(measured_batches(run)[0])
    return (
        machine(run),
        run.resolved.device_type,
        batches,
        "" if run.batches.seconds else network(run.config),
    )


def fixed_totals(
    runs: Sequence[tuple[Hashable, DevicesAndSamples] | None],
) -> list[int | None]:
    """The total that a run shares with runs on other numbers of devices; None where it scales weakly, or alone.

    >>> fixed_totals([("a", (1, 64)), ("a", (2, 64)), ("b", (1, 64)), ("b", (2, 128)), None])
    [64, 64, None, None, None]
    """
    groups: dict[Hashable, set[DevicesAndSamples]] = {}
    for group, size in filter(None, runs):
        groups.setdefault(group, set()).add(size)
    strong = {
        group: _sizes_sharing(sizes, lambda size: size[1])
        for group, sizes in groups.items()
    }
    weak = {
        group: _sizes_sharing(sizes, lambda size: size[1] / size[0])
        for group, sizes in groups.items()
    }
    fixed = {
        (group, size)
        for group in groups
        if len(strong[group]) > len(weak[group])
        for size in strong[group]
    }
    return [run[1][1] if run in fixed else None for run in runs]


def with_total(config: dict[str, Any], total: int | None) -> dict[str, Any]:
    """The options of a run that shares this total."""
    return {**config, "global_batch_size": total} if total else config


def _sizes_sharing(
    sizes: set[DevicesAndSamples], constant: Callable[[DevicesAndSamples], float]
) -> list[DevicesAndSamples]:
    """The sizes whose constant another number of devices has, too."""
    devices: dict[float, set[int]] = {}
    for size in sizes:
        devices.setdefault(constant(size), set()).add(size[0])
    return [size for size in sizes if len(devices[constant(size)]) > 1]
