"""Run records -> rows: every configuration with its repeats, beside the same one on one device.

row: one configuration; series: rows that differ in the number of devices, or of workers, alone.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from rnn_scaling.analysis import confidence, disturbance
from rnn_scaling.analysis.confidence import (
    Interval,
    Scatter,
    interval_over_batches,
    interval_over_runs,
    shared_scatters,
)
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import Key, build_key, drop_options
from rnn_scaling.analysis.machines import machine
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
from rnn_scaling.config.conditions import RESOLVED
from rnn_scaling.config.naming import network
from rnn_scaling.config.registry import WORKLOADS, workloads
from rnn_scaling.records.options import UNKNOWN, Options
from rnn_scaling.records.record import RunRecord

DevicesAndSamples = tuple[int, int]  # devices, samples of all of them in a step

DECODER = "decoder_type"
MANY_MODELS = 3
_READERS = registry.readers(WORKLOADS)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One configuration: its runs in the order of their files."""

    records: tuple[RunRecord, ...]
    key: Key  # the options that they have in common, and `facts`
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
        return self if self.num_devices == 1 and self.good_runs else self.one_device

    @functools.cached_property
    def options(self) -> Options:
        """The options of its runs; with the total that runs of another trainer share."""
        options = self.records[0].options
        if self.fixed_total:
            return options.changed(global_batch_size=self.fixed_total)
        return options

    def key_with(self, **changes: Any) -> Key:
        """Return the key of the row that differs from this one in these options."""
        return build_key(self.options, self.unit, **changes) + self.facts

    @property
    def is_ours(self) -> bool:
        """Whether our trainer made its runs, and its commands would make them again."""
        return self.options.is_ours

    @functools.cached_property
    def num_devices(self) -> int:
        """Devices of all its workers."""
        return scale.num_devices(self.options)

    @functools.cached_property
    def num_workers(self) -> int:
        """Its worker processes; 1 in a mode of one process."""
        return scale.num_workers(self.options)

    @property
    def devices(self) -> str:
        """ "2 devices", "4 workers of one device each"."""
        return scale.in_words(self.num_workers, self.options["num_devices"])

    @functools.cached_property
    def is_distributed(self) -> bool:
        """Whether several processes can take part in its mode."""
        return scale.axis(self.options) == "num_workers"

    @functools.cached_property
    def good_runs(self) -> tuple[RunRecord, ...]:
        """The runs that measured something."""
        return tuple(r for r in self.records if r.status == "ok" and r.throughput)

    @functools.cached_property
    def counted_runs(self) -> tuple[RunRecord, ...]:
        """The good runs behind its numbers: without disturbed ones, if enough are quiet."""
        return disturbance.select_quiet(self.good_runs, disturbance.is_disturbed)

    @functools.cached_property
    def disturbed_runs(self) -> tuple[RunRecord, ...]:
        """The good runs that do not count, because they were disturbed."""
        counted = {id(record) for record in self.counted_runs}
        return tuple(record for record in self.good_runs if id(record) not in counted)

    @functools.cached_property
    def rate(self) -> Interval | None:
        """Items per second over the runs that count.

        The interval has no ends if no scatter is known. None without a good run.
        """
        if not self.counted_runs:
            return None
        rate = interval_over_runs(process_rates(self.counted_runs), self.scatter)
        return rate.with_rounding(self.rounding)

    @functools.cached_property
    def rounding(self) -> float:
        """By how much printed digits may change the logarithm of its rate.

        0.0 if no rate comes from a log.
        """
        shares = [run.log_rounding or 0.0 for run in self.counted_runs]
        return abs(math.log1p(-max(shares, default=0.0)))

    @functools.cached_property
    def rate_within_run(self) -> Interval | None:
        """Items per second of its only run, with the interval over its batches.

        None with several runs, or if the run has no batches.
        """
        if len(self.counted_runs) != 1 or not self.counted_runs[0].batches.seconds:
            return None
        rate = interval_over_batches(*measured_batches(self.counted_runs[0]))
        return rate.with_rounding(self.rounding)

    def reported(self, name: str) -> Any:
        """Return the value of an option; None if it is unknown, unread or replaced."""
        workload = self.options["model"]
        if self.is_ours:
            readers = _READERS.get(name, WORKLOADS)
            is_unread = workload in WORKLOADS and workload not in readers
            if name in RESOLVED or is_unread:
                return None
        return self.options.known.get(name)

    @property
    def batch_size(self) -> int | None:
        """Samples per device and step; None with one global batch, or if unknown."""
        if self.options["global_batch_size"]:
            return None
        return self.options["batch_size"] or None

    @property
    def global_batch_size(self) -> int | None:
        """Samples of all devices per update; None if unknown."""
        total = self.options["global_batch_size"]
        if total or self.batch_size is None:
            return total or None
        repeats = self.options["gradient_accumulation_steps"] or 1
        return self.batch_size * self.num_devices * repeats

    @property
    def unit(self) -> str:
        return self.records[0].unit

    @property
    def items(self) -> str:
        if self.options["decode"]:
            return workloads.TRANSLATED
        return self._workload.items if self._workload else "as counted by the program"

    @property
    def samples(self) -> str:
        """What its batches hold: "sentence pairs", or "samples" where it is not known."""
        return self._workload.samples if self._workload else "samples"

    @property
    def _workload(self) -> workloads.Entry | None:
        return WORKLOADS.get(self.options["model"]) if self.is_ours else None

    def metric(self, metric: Metric) -> Interval | None:
        """A metric, before its factor; None where it cannot be known."""
        if metric.compute not in self._computed:
            one_device = self.baseline.rate if self.baseline else None
            measured = Measured(
                self.counted_runs, self.num_devices, self.rate, one_device, self.priced
            )
            self._computed[metric.compute] = metric.compute(measured)
        return self._computed[metric.compute]

    @functools.cached_property
    def _computed(self) -> dict[Compute, Interval | None]:
        return {}


def select_metrics(rows: Sequence[Row]) -> list[Metric]:
    """The metrics that a report of these rows has, named after their unit; in the order of the table."""
    unit = common_unit(row.unit for row in rows)
    renamed = LATENCIES if all(is_inference(row.records) for row in rows) else {}
    table = [renamed.get(name, metric) for name, metric in METRICS.items()]
    possible = [
        metric
        for metric in table
        if not metric.compares_models or has_many_models(rows)
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
        and len({row.options["model"] for row in rows}) >= MANY_MODELS
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


def series_key(row: Row) -> Key:
    """Return what the rows of one series have in common."""
    return drop_options(row.key, {scale.axis(row.options)})


def build_rows(
    records: Sequence[RunRecord], prices: PriceList = NO_PRICES
) -> list[Row]:
    """Return one row for each configuration, in the order of their first records."""
    return build_compared_rows([records], prices=prices, finds_totals=True)[0]


def build_compared_rows(
    sides: Sequence[Sequence[RunRecord]],
    changed: Collection[str] = (),
    *,
    prices: PriceList = NO_PRICES,
    finds_totals: bool = False,
) -> list[list[Row]]:
    """Return the rows of each side, with their baselines and scatters.

    Args:
      sides: Runs that are compared with each other, or one set of runs.
      changed: Options in which the sides differ on purpose.
      prices: Prices of the machines.
      finds_totals: Whether runs of another trainer with one total of samples scale
        strongly.

    A fact that tells runs of the same options apart on one side does so on all sides.
    """
    totals = [
        _fixed_totals(side) if finds_totals else [None] * len(side) for side in sides
    ]
    keys = [build_keys(*parts) for parts in zip(sides, totals)]
    facts = separation.separating_facts(sides, keys, changed)
    return [
        _with_baselines(_rows(*parts, prices))
        for parts in zip(sides, keys, facts, totals)
    ]


def build_keys(
    records: Sequence[RunRecord], totals: Sequence[int | None] = ()
) -> list[Key]:
    """Return the key of each run; `totals` as from `fixed_totals`."""
    known: dict[tuple[int, str, int | None], Key] = {}
    keys = []
    for run, total in itertools.zip_longest(records, totals):
        # Records of one configuration share the object.
        identity = (id(run.options), run.unit, total)
        if identity not in known:
            changes = {"global_batch_size": total} if total else {}
            known[identity] = build_key(run.options, run.unit, **changes)
        keys.append(known[identity])
    return keys


def _rows(
    records: Sequence[RunRecord],
    keys: Sequence[Key],
    facts_of_runs: Sequence[separation.Facts],
    totals: Sequence[int | None],
    prices: PriceList,
) -> list[Row]:
    """Return rows without baselines, in the order of their first records."""
    rows = []
    groups = group_by(range(len(records)), zip(keys, facts_of_runs))
    for (key, facts), indices in groups.items():
        members = tuple([records[i] for i in indices])
        priced = filter(None, map(prices.match, members))
        row_totals = [totals[i] for i in indices if totals[i]]
        rows.append(
            Row(
                members,
                key + facts,
                fixed_total=row_totals[-1] if row_totals else None,
                facts=facts,
                priced=next(priced, None),
            )
        )
    return rows


def _with_baselines(rows: Sequence[Row]) -> list[Row]:
    scatters = shared_scatters_by_key(rows)
    rows = [dataclasses.replace(row, scatter=scatters.get(row.key)) for row in rows]
    ones = [row for row in rows if row.baseline]
    baselines = group_by(((row.facts, row) for row in ones), map(_work, ones))
    completed = []
    for row in rows:
        if not row.baseline:
            candidates = baselines.get(_work(row), [])
            baseline = separation.find_baseline(row.facts, candidates)
            row = dataclasses.replace(row, one_device=baseline)
        completed.append(row)
    return completed


def _work(row: Row) -> Key:
    return drop_options(row.key[: len(row.key) - len(row.facts)], scale.AXES)


def shared_scatters_by_key(rows: Sequence[Row]) -> dict[Key, Scatter | None]:
    """Return the scatter of the runs of each row, by the row's key.

    Rows with the same devices, workers and way of measuring share it, except that
    disturbed rows share none with quiet ones: they would widen their intervals.
    """
    good = [row for row in rows if row.good_runs]
    how = []
    for row in good:
        methods = frozenset(map(_measured_how, row.counted_runs))
        is_disturbed = any(map(disturbance.is_disturbed, row.counted_runs))
        how.append((row.num_devices, row.num_workers, methods, is_disturbed))
    scatters: dict[Key, Scatter | None] = {}
    for members in group_by(good, how).values():
        rates = [process_rates(row.counted_runs) for row in members]
        scatters |= zip((row.key for row in members), shared_scatters(rates))
    return scatters


def _measured_how(run: RunRecord) -> tuple[Hashable, ...]:
    """Machine, kind of device, batches (None: the run decided), and whose log has none."""
    options = run.options
    decides = (
        options["until_steady"]
        or options["stop_at_loss"]
        or options["stop_at_accuracy"]
    )
    return (
        machine(run),
        run.resolved.device_type,
        None if decides else len(measured_batches(run)[0]),
        "" if run.batches.seconds else network(options),
    )


def _fixed_totals(records: Sequence[RunRecord]) -> list[int | None]:
    return fixed_totals([_size(record) for record in records])


def _size(record: RunRecord) -> tuple[Key, DevicesAndSamples] | None:
    """Return what runs of other sizes have in common with a foreign run, and its size."""
    options = record.options
    devices = scale.num_devices(options)
    total = options["global_batch_size"] or (options["batch_size"] or 0) * devices
    if options.is_ours or not total:
        return None
    changes = {**scale.ON_ONE_DEVICE, "batch_size": UNKNOWN, "global_batch_size": 0}
    return build_key(options, record.unit, **changes), (devices, total)


def fixed_totals(
    runs: Sequence[tuple[Hashable, DevicesAndSamples] | None],
) -> list[int | None]:
    """The total that a run shares with runs on other numbers of devices; None where it scales weakly, or alone.

    >>> fixed_totals([("a", (1, 64)), ("a", (2, 64)), ("b", (1, 64)), ("b", (2, 128)), None])
    [64, 64, None, None, None]
    """
    sizes_of_groups: dict[Hashable, set[DevicesAndSamples]] = {}
    for group, size in filter(None, runs):
        sizes_of_groups.setdefault(group, set()).add(size)
    fixed: set[tuple[Hashable, DevicesAndSamples]] = set()
    for group, sizes in sizes_of_groups.items():
        strong = _sizes_sharing(sizes, lambda size: size[1])
        weak = _sizes_sharing(sizes, lambda size: size[1] / size[0])
        if len(strong) > len(weak):
            fixed.update((group, size) for size in strong)
    return [run[1][1] if run and run in fixed else None for run in runs]


def _sizes_sharing(
    sizes: set[DevicesAndSamples], constant: Callable[[DevicesAndSamples], float]
) -> list[DevicesAndSamples]:
    """The sizes whose constant another number of devices has, too."""
    devices: dict[float, set[int]] = {}
    for size in sizes:
        devices.setdefault(constant(size), set()).add(size[0])
    return [size for size in sizes if len(devices[constant(size)]) > 1]
