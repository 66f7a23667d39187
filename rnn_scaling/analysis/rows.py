"""Group run records into rows, and find the baseline of each row.

A row is one configuration with its repeats. Its baseline is the same configuration on
one device. A series is the rows that differ only in the number of devices or workers.

Everything that reports a rate starts from a `Row`. Its properties are computed from the
records alone, so rows may be built again at any time.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Hashable, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance, load_correction, load_effect
from rnn_scaling.analysis.confidence import (
    Interval,
    Scatter,
    compute_interval_over_batches,
    compute_interval_over_runs,
    compute_shared_scatters,
)
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.keys import Key, build_key, drop_options
from rnn_scaling.analysis.machines import identify_machine
from rnn_scaling.analysis.metrics import (
    EFFICIENCY,
    LATENCIES,
    METRICS,
    MONEY,
    SPEEDUP,
    Compute,
    Measured,
    Metric,
    find_common_unit,
    is_inference,
)
from rnn_scaling.analysis.prices import NO_PRICES, PricedMachine, PriceList
from rnn_scaling.config import registry, scale
from rnn_scaling.config.conditions import RESOLVED, STOP_OPTIONS
from rnn_scaling.config.naming import name_network
from rnn_scaling.config.registry import WORKLOADS, workloads
from rnn_scaling.records.options import UNKNOWN, Options
from rnn_scaling.records.record import RunRecord

DevicesAndSamples = tuple[int, int]  # devices, samples of all of them in a step

DECODER = "decoder_type"
_MIN_COMPARED_MODELS = 3  # models of a report that compares models
_READERS = registry.find_readers(WORKLOADS)


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """One configuration.

    Attributes:
      records: The runs of the row, in the order of their files.
      key: The options that the runs have in common, and `facts`.
      one_device: The same configuration on one device.
      scatter: The scatter of runs that the row shares with others; None for its own.
      fixed_total: Samples per step of all devices, if rows of another trainer share it.
      facts: Facts that distinguish the runs from others with the same options, which
        are therefore not repeats.
      priced: The machine of the runs in machines.toml.
      counts_all_batches: Whether disturbed batches count, because the row is compared
        with disturbed runs. They also count if runs of the row itself are disturbed.
    """

    records: tuple[RunRecord, ...]
    key: Key
    one_device: Row | None = None
    scatter: Scatter | None = None
    fixed_total: int | None = None
    facts: separation.Facts = ()
    priced: PricedMachine | None = None
    counts_all_batches: bool = False

    @property
    def baseline(self) -> Row | None:
        """The same configuration on one device; None if that measured nothing.

        A row on one device is its own baseline.
        """
        return self if self.num_devices == 1 and self.good_runs else self.one_device

    @functools.cached_property
    def options(self) -> Options:
        """The options of the runs, with the total that another trainer's runs share."""
        options = self.records[0].options
        if self.fixed_total:
            return options.replace(global_batch_size=self.fixed_total)
        return options

    def key_with(self, **changes: Any) -> Key:
        """Return the key of a row that differs from this one in some options."""
        return build_key(self.options, self.unit, **changes) + self.facts

    @property
    def is_ours(self) -> bool:
        """Whether this suite trained the runs, so that its commands can repeat them."""
        return self.options.is_ours

    @functools.cached_property
    def num_devices(self) -> int:
        """Devices of all workers."""
        return scale.count_devices(self.options)

    @functools.cached_property
    def num_workers(self) -> int:
        """Worker processes; 1 if the mode has a single process."""
        return scale.count_workers(self.options)

    @property
    def devices(self) -> str:
        """Text such as "2 devices" or "4 workers of one device each"."""
        return scale.describe(self.num_workers, self.options["num_devices"])

    @functools.cached_property
    def is_distributed(self) -> bool:
        """Whether the mode allows several processes."""
        return scale.find_axis(self.options) == "num_workers"

    @functools.cached_property
    def good_runs(self) -> tuple[RunRecord, ...]:
        """The runs that measured something."""
        return tuple(
            run for run in self.records if run.status == "ok" and run.throughput
        )

    @functools.cached_property
    def counted_runs(self) -> tuple[RunRecord, ...]:
        """The good runs that count: without disturbed ones, if enough are quiet."""
        return disturbance.select_quiet(self.good_runs, disturbance.is_disturbed)

    @functools.cached_property
    def disturbed_runs(self) -> tuple[RunRecord, ...]:
        """The good runs that do not count, because they were disturbed."""
        counted_ids = {id(run) for run in self.counted_runs}
        return tuple(run for run in self.good_runs if id(run) not in counted_ids)

    @functools.cached_property
    def rate(self) -> Interval | None:
        """Items per second over the runs that count.

        The interval has no ends if no scatter is known. None without a good run.
        """
        if not self.counted_runs:
            return None
        rate = compute_interval_over_runs(self.run_rates, self.scatter)
        if self.corrected is not None:
            rate = rate.with_further_error(
                self.corrected.error, load_correction.CORRECTION_DEGREES, Note.CORRECTED
            )
        return rate.with_rounding(self.rounding)

    @functools.cached_property
    def corrected(self) -> load_correction.CorrectedRates | None:
        """The rates without other programs, of a row with disturbed runs.

        None if no run that counts is disturbed, if the rates cannot be corrected, or if
        the row counts all batches.
        """
        if self.counts_all_batches:
            return None
        return load_correction.correct_rates(self.counted_runs)

    @property
    def run_rates(self) -> Sequence[float]:
        """Items per second of each run that counts, corrected if necessary."""
        if self.corrected is not None:
            return self.corrected.rates
        return run_rates(self.counted_runs, self.counts_all_batches)

    @functools.cached_property
    def measured_rate(self) -> Interval | None:
        """Items per second as measured: the rate without a correction for load."""
        if self.corrected is None:
            return self.rate
        return compute_interval_over_runs(run_rates(self.counted_runs))

    @functools.cached_property
    def is_slowed(self) -> bool:
        """Whether its rate contains the load of other programs, without a correction."""
        is_disturbed = disturbance.has_disturbed_run(self.counted_runs)
        return is_disturbed and self.corrected is None

    @property
    def max_slowing(self) -> float:
        """The largest share of the rate that load may have taken; see `load_effect`."""
        if self.corrected is not None:
            return 0.0
        return load_effect.max_slowing(self.counted_runs, self.counts_all_batches)

    @functools.cached_property
    def rounding(self) -> float:
        """How far printed digits may move the logarithm of the rate.

        0.0 if no rate comes from a log.
        """
        shares = [run.log_rounding or 0.0 for run in self.counted_runs]
        return abs(math.log1p(-max(shares, default=0.0)))

    @functools.cached_property
    def rate_within_run(self) -> Interval | None:
        """Items per second of the only run, with the interval over its batches.

        None with several runs, if the run has no batches, or if its rate is corrected.
        """
        if len(self.counted_runs) != 1 or not self.counted_runs[0].batches.seconds:
            return None
        if self.corrected is not None:
            return None
        counted_batches = disturbance.select_counted_batches(
            self.counted_runs[0], self.counts_all_batches
        )
        rate = compute_interval_over_batches(*counted_batches)
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

    @functools.cached_property
    def efficiency_percent(self) -> Interval | None:
        """The efficiency in per cent; None if load of other programs hides it."""
        return EFFICIENCY.to_printed_unit(self.shown_metric(EFFICIENCY))

    @functools.cached_property
    def imbalance(self) -> float:
        """How much faster it would be with evenly loaded towers; 0 for not at all.

        The slowest tower decides the time of a step, so with even towers the step would
        take its time x mean / max of the towers' positions.
        """
        seconds = 0.0
        balanced_s = 0.0
        for record in self.good_runs:
            first = record.batches.warmup
            positions = record.batches.tower_positions[first:]
            if not record.batches.tower_positions:
                return 0.0
            for time_s, towers in zip(record.batches.seconds[first:], positions):
                seconds += time_s
                # For even towers, this is exactly the time.
                balanced_s += time_s * (sum(towers) / (len(towers) * max(towers)))
        if not balanced_s:
            return 0.0
        # Rounding can make even towers a gain.
        return max(0.0, seconds / balanced_s - 1)

    @functools.cached_property
    def padding(self) -> float | None:
        """The share of computed positions that are padding; None if not recorded."""
        items = 0
        positions = 0
        for record in self.good_runs:
            first = record.batches.warmup
            items += sum(map(sum, record.batches.tower_items[first:]))
            positions += sum(map(sum, record.batches.tower_positions[first:]))
        return 1 - items / positions if positions else None

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
            return workloads.DECODED_ITEMS
        return self._workload.items if self._workload else "as counted by the program"

    @property
    def samples(self) -> str:
        """Unit of a batch size, such as "sentence pairs"; "samples" if unknown."""
        return self._workload.samples if self._workload else "samples"

    @property
    def _workload(self) -> workloads.Entry | None:
        return WORKLOADS.get(self.options["model"]) if self.is_ours else None

    @functools.cached_property
    def beside_baseline(self) -> Row:
        """The row as it is compared with its baseline.

        If load slowed only one of them, and no correction is possible, all batches of
        both count. Rates alone do not change.
        """
        base = self.one_device
        if base is not None and (self.is_slowed or base.is_slowed):
            return count_all_batches(self)
        return self

    @functools.cached_property
    def is_speedup_hidden(self) -> bool:
        """Whether load of other programs hides the speedup.

        True if load that only the row or its baseline had may have changed the speedup,
        or if the correction for load leaves it too uncertain. Neither tables nor
        sentences contain such a speedup.
        """
        row = self.beside_baseline
        baseline = row.baseline
        if baseline is None or baseline is row:
            return False
        speedup = self.metric(SPEEDUP)
        if speedup is not None and speedup.is_corrected:
            return speedup.is_too_wide
        return bool(
            max_slowing_beyond(row, baseline) or max_slowing_beyond(baseline, row)
        )

    def shown_metric(self, metric: Metric) -> Interval | None:
        """Return a metric for a report: None if it is unknown, or if load hides it."""
        if metric.ideal and self.is_speedup_hidden:
            return None
        return self.metric(metric)

    def metric(self, metric: Metric) -> Interval | None:
        """Return a metric in its computed unit; None if it is unknown."""
        if metric.compute not in self._computed:
            self._computed[metric.compute] = self._compute(metric)
        return self._computed[metric.compute]

    def _compute(self, metric: Metric) -> Interval | None:
        # A metric with an ideal is relative to one device.
        row = self.beside_baseline if metric.ideal else self
        measured = Measured(
            row.counted_runs,
            num_devices=row.num_devices,
            rate=row.rate,
            base_rate=row.baseline.rate if row.baseline else None,
            priced=row.priced,
            counts_all_batches=row.counts_all_batches,
        )
        value = metric.compute(measured)
        if value is None or not self._has_other_rates(row):
            return value
        kind = value.kind.with_note(Note.ALL_BATCHES)
        return dataclasses.replace(value, kind=kind)

    def _has_other_rates(self, row: Row) -> bool:
        """Return whether a row has another rate than this one, or another baseline."""
        pairs = [(self.rate, row.rate)]
        if self.one_device and row.one_device:
            pairs.append((self.one_device.rate, row.one_device.rate))
        return any(
            not math.isclose(own.value, other.value)
            for own, other in pairs
            if own and other
        )

    @functools.cached_property
    def _computed(self) -> dict[Compute, Interval | None]:
        return {}


def select_metrics(rows: Sequence[Row]) -> list[Metric]:
    """Return the metrics of a report, with the unit of its rows in their names."""
    latencies = LATENCIES if all(is_inference(row.records) for row in rows) else {}
    compares_models = has_many_models(rows)
    metrics = []
    for name, metric in METRICS.items():
        metric = latencies.get(name, metric)
        has_values = metric.is_main or any(row.metric(metric) for row in rows)
        if has_values and (compares_models or not metric.compares_models):
            metrics.append(metric)
    unit = find_common_unit(row.unit for row in rows)
    currencies = [row.priced.currency for row in rows if row.priced]
    currency = next(filter(None, currencies), MONEY)
    return [metric.with_unit(unit, currency) for metric in metrics]


def has_many_models(rows: Sequence[Row]) -> bool:
    """Return whether this suite trained the rows, with enough models to compare."""
    if not all(row.is_ours for row in rows):
        return False
    return len({row.options["model"] for row in rows}) >= _MIN_COMPARED_MODELS


def run_rates(records: Sequence[RunRecord], all_batches: bool = False) -> list[float]:
    """Return items/s of each run; see `disturbance.compute_counted_rate`.

    Args:
      records: Runs that are averaged.
      all_batches: Whether disturbed batches count, even if no run is disturbed.
    """
    all_batches = all_batches or disturbance.has_disturbed_run(records)
    return [disturbance.compute_counted_rate(record, all_batches) for record in records]


def find_measured_seconds(record: RunRecord) -> float | None:
    """Return the seconds of the batches after the warm-up; None if a log lacks them."""
    if record.batches.seconds or not record.throughput:
        return math.fsum(record.batches.seconds[record.batches.warmup :])
    return record.throughput.seconds


def make_series_key(row: Row) -> Key:
    """Return the key that the rows of one series have in common."""
    return drop_options(row.key, {scale.find_axis(row.options)})


def build_rows(
    records: Sequence[RunRecord], prices: PriceList = NO_PRICES
) -> list[Row]:
    """Return one row for each configuration, in the order of their first records."""
    return build_compared_rows([records], prices=prices, finds_totals=True)[0]


def build_compared_rows(
    sides: Sequence[Sequence[RunRecord]],
    changed_options: Collection[str] = (),
    *,
    prices: PriceList = NO_PRICES,
    finds_totals: bool = False,
) -> list[list[Row]]:
    """Return the rows of each side, with their baselines and scatters.

    A fact that distinguishes runs of the same options on one side does so on all sides.

    Args:
      sides: Runs that are compared with each other, or one set of runs.
      changed_options: Options in which the sides differ on purpose.
      prices: Prices of the machines.
      finds_totals: Whether runs of another trainer with one total of samples scale
        strongly.
    """
    totals: list[list[int | None]] = [[None] * len(side) for side in sides]
    if finds_totals:
        totals = [find_fixed_totals(list(map(_split_off_size, side))) for side in sides]
    keys = list(map(build_keys, sides, totals))
    facts = separation.list_separating_facts(sides, keys, changed_options)
    rows_of_sides = []
    for side in zip(sides, keys, facts, totals):
        rows_of_sides.append(_add_baselines(_make_rows(*side, prices)))
    return rows_of_sides


def build_keys(
    records: Sequence[RunRecord], totals: Sequence[int | None] = ()
) -> list[Key]:
    """Return the key of each run; `totals` as from `find_fixed_totals`."""
    key_cache: dict[tuple[int, str, int | None], Key] = {}
    keys = []
    for run, total in itertools.zip_longest(records, totals):
        # Records of one configuration share the object.
        identity = (id(run.options), run.unit, total)
        if identity not in key_cache:
            changes = {"global_batch_size": total} if total else {}
            key_cache[identity] = build_key(run.options, run.unit, **changes)
        keys.append(key_cache[identity])
    return keys


def _make_rows(
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
        rows.append(
            Row(
                members,
                key + facts,
                fixed_total=next(filter(None, (totals[i] for i in indices)), None),
                facts=facts,
                priced=next(priced, None),
            )
        )
    return rows


def _add_baselines(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with their shared scatter and their baselines."""
    scatters = compute_shared_scatters_by_key(rows)
    rows = [dataclasses.replace(row, scatter=scatters.get(row.key)) for row in rows]
    on_one_device = [row for row in rows if row.baseline]
    baselines = group_by(
        ((row.facts, row) for row in on_one_device), map(_work_key, on_one_device)
    )
    rows_with_baselines = []
    for row in rows:
        if not row.baseline:
            candidates = baselines.get(_work_key(row), ())
            baseline = separation.find_baseline(row.facts, candidates)
            row = dataclasses.replace(row, one_device=baseline)
        rows_with_baselines.append(row)
    return rows_with_baselines


def count_all_batches(row: Row) -> Row:
    """Return a row and its baseline, both with the load of other programs.

    The scatter that they shared is of rates without it.
    """
    base = row.one_device and count_all_batches(row.one_device)
    return dataclasses.replace(
        row, counts_all_batches=True, scatter=None, one_device=base
    )


def max_slowing_beyond(row: Row, reference: Row) -> float:
    """Return the share of a row's rate that load may have taken unlike in another row.

    Returns:
      0.0 if the load cannot make the row slower than the reference.
    """
    if row.corrected is not None:
        return 0.0
    if reference.corrected is not None:
        return row.max_slowing
    all_batches = row.counts_all_batches or reference.counts_all_batches
    return load_effect.max_slowing_beyond(
        row.counted_runs, reference.counted_runs, all_batches
    )


def _work_key(row: Row) -> Key:
    return drop_options(row.key[: len(row.key) - len(row.facts)], scale.AXES)


def compute_shared_scatters_by_key(rows: Sequence[Row]) -> dict[Key, Scatter | None]:
    """Return the scatter of the runs of each row, by the row's key.

    Rows with the same devices, workers and way of measuring share it, except that
    disturbed rows share none with quiet ones: they would widen their intervals.
    """
    measured_rows = [row for row in rows if row.good_runs]
    conditions = []
    for row in measured_rows:
        methods = frozenset(map(_make_method_key, row.counted_runs))
        load = (disturbance.has_disturbed_run(row.counted_runs), row.is_slowed)
        conditions.append((row.num_devices, row.num_workers, methods, load))
    scatters: dict[Key, Scatter | None] = {}
    for members in group_by(measured_rows, conditions).values():
        rates = [row.run_rates for row in members]
        scatters |= zip((row.key for row in members), compute_shared_scatters(rates))
    return scatters


def _make_method_key(run: RunRecord) -> tuple[Hashable, ...]:
    """Return what runs with one scatter have in common.

    These are the machine, the kind of device, the number of batches unless the run
    itself ended the training, and the network if a log has no batches.
    """
    options = run.options
    ends_itself = any(options[name] for name in STOP_OPTIONS)
    return (
        identify_machine(run),
        run.resolved.device_type,
        None if ends_itself else len(run.batches.seconds[run.batches.warmup :]),
        "" if run.batches.seconds else name_network(options),
    )


def _split_off_size(record: RunRecord) -> tuple[Key, DevicesAndSamples] | None:
    """Return the key of another trainer's run without its size, and its size.

    Returns:
      None for a run of this suite, or if the size is unknown.
    """
    options = record.options
    devices = scale.count_devices(options)
    total = options["global_batch_size"] or (options["batch_size"] or 0) * devices
    if options.is_ours or not total:
        return None
    changes = {**scale.ON_ONE_DEVICE, "batch_size": UNKNOWN, "global_batch_size": 0}
    return build_key(options, record.unit, **changes), (devices, total)


def find_fixed_totals(
    runs: Sequence[tuple[Hashable, DevicesAndSamples] | None],
) -> list[int | None]:
    """Return the total that each run shares with runs on other numbers of devices.

    The total is None for runs that scale weakly, or without runs on other numbers of
    devices.

    >>> runs = [("a", (1, 64)), ("a", (2, 64)), ("b", (1, 64)), ("b", (2, 128)), None]
    >>> find_fixed_totals(runs)
    [64, 64, None, None, None]
    """
    known_totals = set(filter(None, runs))
    groups = group_by(
        (size for _, size in known_totals), (group for group, _ in known_totals)
    )
    sizes_of_runs: set[tuple[Hashable, DevicesAndSamples]] = set()
    for group, sizes in groups.items():
        strong = _select_shared_sizes(sizes, lambda size: size[1])
        weak = _select_shared_sizes(sizes, lambda size: size[1] / size[0])
        if len(strong) > len(weak):
            sizes_of_runs.update((group, size) for size in strong)
    return [run[1][1] if run and run in sizes_of_runs else None for run in runs]


def _select_shared_sizes(
    sizes: Sequence[DevicesAndSamples], constant: Callable[[DevicesAndSamples], float]
) -> list[DevicesAndSamples]:
    """Return the sizes whose constant occurs with several numbers of devices."""
    shared_sizes: list[DevicesAndSamples] = []
    for members in group_by(sizes, map(constant, sizes)).values():
        if len({devices for devices, _ in members}) > 1:
            shared_sizes += members
    return shared_sizes
