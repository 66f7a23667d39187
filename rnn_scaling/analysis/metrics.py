"""The metrics of a configuration, which tables, files, pictures and `compare` share.

"items", "item" and "money" in names and titles are placeholders for the unit of the run
and for the currency of machines.toml: with words, items_per_second is words_per_second.

A new metric is one row of `_ALL_METRICS`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence

from rnn_scaling.analysis.confidence import (
    Interval,
    compute_interval_over_runs,
    divide_rates,
)
from rnn_scaling.analysis.disturbance import has_disturbed_run, select_counted_batches
from rnn_scaling.analysis.exchange import count_exchanged_bytes
from rnn_scaling.analysis.interval_kinds import Basis, EnergySource, IntervalKind
from rnn_scaling.analysis.machines import compute_energy_per_item, count_nodes
from rnn_scaling.analysis.prices import PricedMachine
from rnn_scaling.records.record import RunRecord

ITEMS = "items"
MONEY = "money"
BILLION = 1e9
GIB = 2**30
_SECONDS_PER_HOUR = 3600
_MAX_UNIT_LENGTH = 60  # letters of a unit in the name of a file
# Runs that train have step times; runs that decode or evaluate have latencies.
STEP_TIME = "step time"
LATENCY = "latency"
# Percentile of step times -> batches of a run, of which one is above the percentile.
PERCENTILE_BATCHES = {50: 2, 95: 20, 99: 100}
_ACCURACY_SHARE = 0.1  # share of the measured batches, at the end of the run


@dataclasses.dataclass(frozen=True)
class Measured:
    """The data of one configuration from which its metrics are computed.

    Attributes:
      runs: The runs that count.
      rate: Items per second.
      base_rate: Items per second on one device.
      priced: The machine in machines.toml.
      counts_all_batches: Whether disturbed batches count, even if no run is disturbed.
    """

    runs: tuple[RunRecord, ...]
    num_devices: int
    rate: Interval | None
    base_rate: Interval | None
    priced: PricedMachine | None = None
    counts_all_batches: bool = False

    @classmethod
    def of_run(cls, run: RunRecord) -> Measured:
        """Return the data of one run, for metrics that need only its batches."""
        return cls((run,), num_devices=0, rate=None, base_rate=None)

    def step_times(self) -> list[Sequence[float]]:
        """Return the seconds of the batches of each run that count."""
        all_batches = self.counts_all_batches or has_disturbed_run(self.runs)
        return [list_step_times(run, all_batches) for run in self.runs]


Compute = Callable[[Measured], Interval | None]


@dataclasses.dataclass(frozen=True)
class Metric:
    """A quantity of a configuration, with its names and its printed form.

    Attributes:
      name: Name in CSV, JSON, file names and on the command line.
      title: Name in sentences, notes and pictures.
      unit: Unit of the printed number.
      factor: Printed number / computed number.
      digits: Most decimals of the printed number.
      compute: Returns the number with its interval; None if it is unknown.
      header: Heading in tables; by default the title with the unit.
      ideal: Computed number of perfect scaling: "n" is the number of devices, "one" is
        1. A metric with an ideal needs runs on one device.
      is_main: Whether every report has its column. Other columns need a value.
      compares_models: Whether it describes models instead of speed. Its column needs a
        report of many models.
      has_picture: Whether reports have a picture of it.
    """

    name: str
    title: str
    unit: str = ""
    factor: float = 1.0
    digits: int = 2
    compute: Compute = lambda measured: None
    header: str = ""
    ideal: str = ""
    is_main: bool = False
    compares_models: bool = False
    has_picture: bool = True

    @functools.lru_cache(maxsize=256)  # noqa: B019  # the few metrics live as long as the program
    def with_unit(self, unit: str, currency: str = MONEY) -> Metric:
        """Return the metric with a unit, such as "words", and a currency in its names."""
        texts = {ITEMS: unit, "item": unit.removesuffix("s"), MONEY: currency}
        # The name becomes the name of a file.
        name_texts = {}
        for placeholder, text in texts.items():
            name_texts[placeholder] = re.sub(r"\W+", "_", text)[:_MAX_UNIT_LENGTH]
        name_texts[MONEY] = name_texts[MONEY].lower()
        return dataclasses.replace(
            self,
            name=_fill(self.name, name_texts),
            title=_fill(self.title, texts),
            unit=_fill(self.unit, texts),
            header=_fill(self.header, texts),
        )

    @property
    def column(self) -> str:
        if self.header:
            return self.header
        title = self.title[:1].upper() + self.title[1:]
        return title if self.unit in ("", self.title) else f"{title} ({self.unit})"

    @property
    def caption(self) -> str:
        unit = f"{self.unit} of ideal" if self.ideal and self.unit else self.unit
        return self.title if unit in ("", self.title) else f"{self.title}, {unit}"

    def ideal_value(self, devices: float) -> float | None:
        """Return the printed number of perfect scaling; None if there is no ideal."""
        return {"one": self.factor, "n": devices}.get(self.ideal)

    def to_printed_unit(self, value: Interval | None) -> Interval | None:
        """Convert a computed number to the unit of the printed one."""
        if value is None or self.factor == 1:
            return value
        return value.scaled(self.factor)


def _fill(template: str, texts: dict[str, str]) -> str:
    """Replace the placeholders of a text, all at once."""
    return re.sub("|".join(texts), lambda match: texts[match[0]], template)


def _compute_speedup(measured: Measured) -> Interval | None:
    """Return items/s on n devices / items/s on one; exactly 1 on one device."""
    if measured.rate is None or measured.base_rate is None:
        return None
    if measured.num_devices == 1:
        return Interval.exact(1.0, Basis.DEFINITION)
    return divide_rates(measured.rate, measured.base_rate)


def _compute_efficiency(measured: Measured) -> Interval | None:
    """Return speedup / n."""
    speedup = _compute_speedup(measured)
    if speedup is None or measured.num_devices == 1:
        return speedup
    return speedup.scaled(1 / measured.num_devices)


def _compute_flops_per_second(measured: Measured) -> Interval | None:
    """Return FLOP/s of forward and backward, from the operations of one item."""
    flops_per_item = _average_over_runs([run.flops_per_item for run in measured.runs])
    if measured.rate is None or flops_per_item is None:
        return None
    return measured.rate.scaled(flops_per_item.value)


def _compute_share_of_peak(measured: Measured) -> Interval | None:
    """Return FLOP/s / FLOP/s of matrix products on the same devices.

    The peak counts as exact.
    """
    flops = _compute_flops_per_second(measured)
    peak = _average_over_runs(
        [_compute_peak_flops(run, measured.num_devices) for run in measured.runs]
    )
    return flops.scaled(1 / peak.value) if flops and peak else None


def _compute_peak_flops(run: RunRecord, num_devices: int) -> float | None:
    """Return the peak FLOP/s of all devices.

    A record has the peak of the devices of one process. The devices of other workers
    are assumed to have the same.
    """
    num_local = len(run.resolved.devices or ())
    peak = run.resolved.peak_flops_per_second
    if peak is None or num_local in (0, num_devices):
        return peak
    return peak * num_devices / num_local


def _count_parameters(measured: Measured) -> Interval | None:
    sizes = [run.parameters for run in measured.runs]
    return _compute_mean_count([size.trainable if size else None for size in sizes])


def _count_exchanged_bytes(measured: Measured) -> Interval | None:
    return _compute_mean_count(
        [count_exchanged_bytes(run, measured.num_devices) for run in measured.runs]
    )


def _compute_flops_per_step(measured: Measured) -> Interval | None:
    """Return FLOPs of forward and backward of one device in a step."""
    counts: list[float | None] = []
    for run in measured.runs:
        items = run.throughput.items if run.throughput else None
        steps = run.batches.measured * measured.num_devices
        if items and run.flops_per_item and steps:
            counts.append(items * run.flops_per_item / steps)
        else:
            counts.append(None)
    return _compute_mean_count(counts)


def _compute_flops_per_byte(measured: Measured) -> Interval | None:
    """Return FLOPs of a step per exchanged byte; None if nothing is exchanged."""
    flops = _compute_flops_per_step(measured)
    exchanged = _count_exchanged_bytes(measured)
    if flops is None or exchanged is None or not exchanged.value:
        return None
    return flops.scaled(1 / exchanged.value)


def _compute_mean_count(counts: Sequence[float | None]) -> Interval | None:
    """Return the mean of counts over the runs; None if a run does not record its count."""
    recorded = [count for count in counts if count is not None]
    if not recorded or len(recorded) < len(counts):
        return None
    return Interval.exact(math.fsum(recorded) / len(recorded), Basis.COUNT)


def _find_peak_memory_gib(measured: Measured) -> Interval | None:
    """Return the peak memory of a process on the host; the largest of several workers."""
    peaks = []
    for run in measured.runs:
        ranks = run.workers.workers if run.workers else ()
        process_peaks = [rank.peak_process_bytes for rank in ranks]
        if run.memory:
            process_peaks.append(run.memory.peak_process_bytes)
        peaks.append(max(filter(None, process_peaks), default=None))
    return _compute_mean_gib(peaks)


def _find_peak_device_memory_gib(measured: Measured) -> Interval | None:
    peaks = []
    for run in measured.runs:
        device_peaks = run.memory.peak_device_bytes if run.memory else None
        peaks.append(max(device_peaks or (), default=None))
    return _compute_mean_gib(peaks)


def _compute_accuracy(measured: Measured) -> Interval | None:
    """Return the share of correct predictions in the last batches, at least one."""
    shares = []
    for run in measured.runs:
        batches = run.batches
        if not batches.correct or not batches.loss_items:
            return None
        last = max(1, math.ceil(_ACCURACY_SHARE * batches.measured))
        shares.append(sum(batches.correct[-last:]) / sum(batches.loss_items[-last:]))
    if not shares:
        return None
    if min(shares) == 0:
        mean = math.fsum(shares) / len(shares)
        kind = IntervalKind(Basis.ZERO_ACCURACY)
        return Interval(mean, kind=kind, run_counts=(len(shares),))
    return compute_interval_over_runs(shares)


def is_inference(runs: Iterable[RunRecord]) -> bool:
    """Return whether runs decode or evaluate, so that their batches have latencies."""
    return any(run.options["decode"] or run.options["forward_only"] for run in runs)


def _compute_sentences_per_second(measured: Measured) -> Interval | None:
    """Return sentences/s of all towers; None for runs that train, and for images."""
    if not is_inference(measured.runs):
        return None
    rates: list[float | None] = []
    for run, seconds in zip(measured.runs, measured.step_times()):
        if run.unit == "images":
            return None
        samples = run.resolved.tower_batch_sizes
        if samples and seconds:
            rates.append(sum(samples) * len(seconds) / math.fsum(seconds))
        else:
            rates.append(None)
    return _average_over_runs(rates)


def list_step_times(run: RunRecord, all_batches: bool = False) -> Sequence[float]:
    """Return the seconds of each measured batch that counts.

    Args:
      run: The run.
      all_batches: Whether disturbed batches count as well.

    Returns:
      An empty sequence for a log, whose lines may cover several batches.
    """
    return () if run.log_format else select_counted_batches(run, all_batches)[0]


def _make_percentile(min_batches: int) -> Compute:
    """Return a function that computes the percentile 1 - 1/`min_batches` of step times.

    Its result is None if a run has fewer batches.
    """

    def compute(measured: Measured) -> Interval | None:
        percentiles = []
        for seconds in measured.step_times():
            if len(seconds) < min_batches:
                return None
            quantiles = statistics.quantiles(seconds, n=min_batches, method="inclusive")
            percentiles.append(quantiles[-1])
        return _average_over_runs(percentiles)

    return compute


def _sum_over_nodes(measured: Measured, name: str) -> float:
    """Return a value of machines.toml, summed over the nodes of the runs; 0 if unknown."""
    if not measured.priced or not measured.runs:
        return 0.0
    return float(getattr(measured.priced, name) * count_nodes(measured.runs[0]))


def _compute_items_per_money(measured: Measured) -> Interval | None:
    """Return items per unit of the currency. The price is exact."""
    price_per_hour = _sum_over_nodes(measured, "price_per_hour")
    if measured.rate is None or not price_per_hour:
        return None
    return measured.rate.scaled(_SECONDS_PER_HOUR / price_per_hour)


def _compute_money_per_billion(measured: Measured) -> Interval | None:
    per_money = _compute_items_per_money(measured)
    return per_money and per_money.inverse(BILLION)


def _compute_energy_per_item(measured: Measured) -> Interval | None:
    """Return joules per item, measured or from the power in machines.toml."""
    energies = [compute_energy_per_item(run) for run in measured.runs]
    sources = {energy[1] if energy else None for energy in energies}
    source = sources.pop() if len(sources) == 1 else None
    if source is not None:
        value = _average_over_runs(
            [energy[0] if energy else None for energy in energies]
        )
        if value is not None:
            return _add_energy_source(value, source)
    power_w = _sum_over_nodes(measured, "power_w")
    if measured.rate is None or not power_w:
        return None
    source = EnergySource(stated_power_w=power_w)
    return _add_energy_source(measured.rate.inverse(power_w), source)


def _add_energy_source(value: Interval, source: EnergySource) -> Interval:
    kind = dataclasses.replace(value.kind, energy=source)
    return dataclasses.replace(value, kind=kind)


def _find_longest_step(measured: Measured) -> Interval | None:
    return _average_over_runs(
        [max(seconds, default=None) for seconds in measured.step_times()]
    )


def _average_over_runs(values: Sequence[float | None]) -> Interval | None:
    """Return the geometric mean over runs; None if one has no value."""
    known_values = [value for value in values if value]
    if not known_values or len(known_values) < len(values):
        return None
    mean = compute_interval_over_runs(known_values)
    if mean.ends:
        return mean
    return dataclasses.replace(mean, kind=IntervalKind(Basis.ONE_PROCESS))


def _compute_mean_gib(sizes: Sequence[int | None]) -> Interval | None:
    """Return the mean of bytes per process in GiB; None if one has no value."""
    return _average_over_runs([size / GIB if size else None for size in sizes])


def _make_step_time_metrics() -> list[Metric]:
    def make_metric(name: str, title: str, compute: Compute) -> Metric:
        return Metric(
            f"step_{name}_s",
            title=title,
            unit="ms",
            factor=1e3,
            digits=2,
            compute=compute,
            has_picture=False,
        )

    percentiles = [
        make_metric(
            f"p{percent}", f"{STEP_TIME} p{percent}", _make_percentile(min_batches)
        )
        for percent, min_batches in PERCENTILE_BATCHES.items()
    ]
    return [
        *percentiles,
        make_metric("max", f"longest {STEP_TIME}", _find_longest_step),
    ]


def _make_latency_metric(step_time: Metric) -> Metric:
    """Return the metric of runs that decode or evaluate."""
    name = step_time.name.replace("step_", "latency_")
    title = step_time.title.replace(STEP_TIME, LATENCY)
    return dataclasses.replace(step_time, name=name, title=title, has_picture=True)


RATE = Metric(
    "items_per_second",
    title="items/s",
    unit="items/s",
    factor=1,
    digits=1,
    compute=lambda measured: measured.rate,
    header="Processing speed (items/s)",
    is_main=True,
)
SPEEDUP = Metric(
    "speedup",
    title="speedup",
    unit="",
    factor=1,
    digits=2,
    compute=_compute_speedup,
    header="Speedup ratio",
    ideal="n",
    is_main=True,
)
EFFICIENCY = Metric(
    "efficiency",
    title="efficiency",
    unit="%",
    factor=100,
    digits=1,
    compute=_compute_efficiency,
    ideal="one",
    is_main=True,
)
ACCURACY = Metric(
    "accuracy",
    title="accuracy",
    unit="%",
    factor=100,
    digits=1,
    compute=_compute_accuracy,
    header="Accuracy at the end (%)",
)
COST = Metric(
    "money_per_billion_items",
    title="cost of a billion items",
    unit=MONEY,
    factor=1,
    digits=2,
    compute=_compute_money_per_billion,
)
ENERGY = Metric(
    "energy_per_item_j",
    title="energy per item",
    unit="mJ",
    factor=1e3,
    digits=2,
    compute=_compute_energy_per_item,
)
STEP_TIMES = tuple(_make_step_time_metrics())
LATENCIES = {metric.name: _make_latency_metric(metric) for metric in STEP_TIMES}
WORK_PER_EXCHANGE = Metric(
    "flops_per_exchanged_byte",
    title="work per exchanged MB",
    unit="GFLOP",
    factor=1e-3,
    digits=2,
    compute=_compute_flops_per_byte,
    compares_models=True,
)
MODEL_METRICS = (
    WORK_PER_EXCHANGE,
    Metric(
        "flops_per_step",
        title="work per step",
        unit="GFLOP",
        factor=1e-9,
        digits=2,
        compute=_compute_flops_per_step,
        compares_models=True,
    ),
    Metric(
        "exchanged_bytes_per_step",
        title="exchanged per step",
        unit="MB",
        factor=1e-6,
        digits=2,
        compute=_count_exchanged_bytes,
        compares_models=True,
    ),
    Metric(
        "parameters",
        title="parameters",
        unit="million",
        factor=1e-6,
        digits=2,
        compute=_count_parameters,
        compares_models=True,
    ),
)
_ALL_METRICS = (
    RATE,
    SPEEDUP,
    EFFICIENCY,
    ACCURACY,
    Metric(
        "sentences_per_second",
        title="sentences/s",
        unit="sentences/s",
        factor=1,
        digits=1,
        compute=_compute_sentences_per_second,
    ),
    *STEP_TIMES,
    Metric(
        "flops_per_second",
        title="GFLOP/s",
        unit="GFLOP/s",
        factor=1e-9,
        digits=2,
        compute=_compute_flops_per_second,
    ),
    Metric(
        "share_of_peak",
        title="share of peak",
        unit="%",
        factor=100,
        digits=1,
        compute=_compute_share_of_peak,
    ),
    Metric(
        "items_per_money",
        title="million items/money",
        unit="",
        factor=1e-6,
        digits=2,
        compute=_compute_items_per_money,
    ),
    COST,
    ENERGY,
    Metric(
        "peak_memory_gib",
        title="peak memory",
        unit="GiB",
        factor=1,
        digits=2,
        compute=_find_peak_memory_gib,
    ),
    Metric(
        "peak_device_memory_gib",
        title="peak device memory",
        unit="GiB",
        factor=1,
        digits=2,
        compute=_find_peak_device_memory_gib,
    ),
    *MODEL_METRICS,
)
METRICS = {metric.name: metric for metric in _ALL_METRICS}


def find_common_unit(units: Iterable[str]) -> str:
    """Return the only unit; "items" unless there is exactly one."""
    distinct = set(units)
    return distinct.pop() if len(distinct) == 1 else ITEMS


def add_article(unit: str) -> str:
    """Return "a word" for "words", "an item" for "items"."""
    article = "an" if unit[0] in "aeiou" else "a"
    return f"{article} {unit.removesuffix('s')}"
