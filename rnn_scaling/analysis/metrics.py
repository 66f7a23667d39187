"""The table of metrics: what is new is one row, and every table, file, picture and `compare --metric` has it.

"items", "item" and "money" in a name or title are placeholders for the unit of the run and the currency of
machines.toml: items_per_second of words is words_per_second.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval, interval_over_runs, ratio
from rnn_scaling.analysis.exchange import exchanged_bytes
from rnn_scaling.analysis.machines import energy_per_item, nodes
from rnn_scaling.analysis.prices import PricedMachine
from rnn_scaling.records.record import RunRecord

ITEMS = "items"
MONEY = "money"
BILLION = 1e9
MOST_LETTERS = 60  # of a unit in a name
# A run that trains has step times; one that decodes or evaluates has latencies.
STEP_TIME = "step time"
LATENCY = "latency"
BATCHES_NEEDED = {
    50: 2,
    95: 20,
    99: 100,
}  # percentile of step times -> batches of a run with one above it
GIB = 2**30


@dataclasses.dataclass(frozen=True)
class Measured:
    """What the metrics of one configuration are computed from: its good runs, items/s, and items/s on one device."""

    runs: tuple[RunRecord, ...]
    num_devices: int
    rate: Interval | None
    one_device: Interval | None
    priced: PricedMachine | None = None


Compute = Callable[[Measured], Interval | None]


@dataclasses.dataclass(frozen=True)
class Metric:
    name: str  # in CSV, JSON, file names and on the command line
    title: str  # in sentences, notes and pictures
    unit: str  # of a printed number
    factor: float  # printed number / computed one
    digits: int  # of a printed number
    compute: Compute  # the number with its interval; None where it cannot be known
    header: str = ""  # of a table's column, where title and unit do not say it
    # What perfect scaling gives on n devices; such a metric needs runs on one device. None: there is no ideal.
    ideal: Callable[[int], float] | None = None
    always: bool = False  # has its column in every report; another one only where a row has a value
    compares_models: bool = False  # tells models apart, and not their speed; has its column where a report has many
    drawn: bool = True  # has a picture in a report

    @functools.lru_cache(maxsize=256)  # noqa: B019  # the few metrics live as long as the program
    def named_after(self, unit: str, currency: str = MONEY) -> Metric:
        """The same metric with the unit in its names: `unit` is "words" or "tokens", or "items" for whatever it is."""
        words = {ITEMS: unit, "item": unit.removesuffix("s"), MONEY: currency}
        texts: dict[str, Any] = {
            name: getattr(self, name) for name in ("title", "unit", "header", "name")
        }
        for name, text in texts.items():
            if name == "name":  # of a file: no path
                words = {
                    word: re.sub(r"\W+", "_", new)[:MOST_LETTERS]
                    for word, new in words.items()
                }
                words[MONEY] = words[MONEY].lower()
            texts[name] = re.sub("|".join(words), lambda found: words[found[0]], text)  # noqa: B023  # used at once
        return dataclasses.replace(self, **texts)

    @property
    def column(self) -> str:
        title = self.title[:1].upper() + self.title[1:]
        return self.header or (
            f"{title} ({self.unit})" if self.unit not in ("", self.title) else title
        )

    @property
    def caption(self) -> str:
        unit = f"{self.unit} of ideal" if self.ideal and self.unit else self.unit
        return self.title if unit in ("", self.title) else f"{self.title}, {unit}"

    def in_printed_unit(self, value: Interval | None) -> Interval | None:
        """A computed number in the unit that is printed."""
        return value if value is None or self.factor == 1 else value.scaled(self.factor)


def _speedup(measured: Measured) -> Interval | None:
    """items/s on n devices / items/s on one; on one device 1 by definition, without uncertainty."""
    if measured.rate is None or measured.one_device is None:
        return None
    if measured.num_devices == 1:
        return Interval.exact(1.0, "by definition")
    return ratio(measured.rate, measured.one_device)


def _efficiency(measured: Measured) -> Interval | None:
    """Speedup / n."""
    speedup = _speedup(measured)
    return (
        speedup
        if speedup is None or measured.num_devices == 1
        else speedup.scaled(1 / measured.num_devices)
    )


def _flops_per_second(measured: Measured) -> Interval | None:
    """FLOP/s of forward and backward, by the operations that one item needs."""
    flops_per_item = _of_processes([run.flops_per_item for run in measured.runs])
    return (
        measured.rate.scaled(flops_per_item.value)
        if measured.rate and flops_per_item
        else None
    )


def _share_of_peak(measured: Measured) -> Interval | None:
    """FLOP/s / those of the matrix products that were measured on the same devices, which count as exact.

    A record has the peak of its own process's devices; those of other workers count as the same.
    """
    flops = _flops_per_second(measured)
    peak = _of_processes([_peak(run, measured.num_devices) for run in measured.runs])
    return flops.scaled(1 / peak.value) if flops and peak else None


def _peak(run: RunRecord, num_devices: int) -> float | None:
    num_local = len(run.resolved.devices or ())
    peak = run.resolved.peak_flops_per_second
    return (
        peak
        if peak is None or num_local in (0, num_devices)
        else peak * num_devices / num_local
    )


def _parameters(measured: Measured) -> Interval | None:
    return _counted(
        [run.parameters.trainable if run.parameters else None for run in measured.runs]
    )


def _exchanged_bytes(measured: Measured) -> Interval | None:
    return _counted(
        [exchanged_bytes(run, measured.num_devices) for run in measured.runs]
    )


def _flops_per_step(measured: Measured) -> Interval | None:
    """FLOPs of forward and backward of one device in a step."""
    flops: list[float | None] = []
    for run in measured.runs:
        items = run.throughput.items if run.throughput else None
        steps = run.batches.measured * measured.num_devices
        flops.append(
            items * run.flops_per_item / steps
            if items and run.flops_per_item and steps
            else None
        )
    return _counted(flops)


def _flops_per_byte(measured: Measured) -> Interval | None:
    """FLOPs of a step for each byte that is exchanged in it; None where nothing is exchanged."""
    flops = _flops_per_step(measured)
    exchanged = _exchanged_bytes(measured)
    return (
        flops.scaled(1 / exchanged.value)
        if flops and exchanged and exchanged.value
        else None
    )


def _counted(values: Sequence[float | None]) -> Interval | None:
    """The mean over runs of what is counted, not measured; None where one run does not tell it."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return Interval.exact(math.fsum(known) / len(known), "counted, not measured")


def _peak_memory_gib(measured: Measured) -> Interval | None:
    """The most that a process had in use on the host: of several workers the one with the most."""
    peaks = []
    for run in measured.runs:
        ranks = run.workers.workers if run.workers else ()
        workers = [
            run.memory.peak_process_bytes if run.memory else None,
            *(rank.peak_process_bytes for rank in ranks),
        ]
        peaks.append(max((peak for peak in workers if peak), default=None))
    return _gib(peaks)


def _peak_device_memory_gib(measured: Measured) -> Interval | None:
    devices = [
        run.memory.peak_device_bytes if run.memory else None for run in measured.runs
    ]
    return _gib([max(device, default=None) if device else None for device in devices])


LAST_SHARE = 0.1  # of the measured batches, whose accuracy is that of the run


def _accuracy(measured: Measured) -> Interval | None:
    """The share of right predictions in the last tenth of the measured batches, one at least."""
    shares = []
    for batches in (run.batches for run in measured.runs):
        if not batches.correct or not batches.loss_items:
            return None
        last = max(1, math.ceil(LAST_SHARE * batches.measured))
        shares.append(sum(batches.correct[-last:]) / sum(batches.loss_items[-last:]))
    if not shares:
        return None
    if min(shares) == 0:
        mean = math.fsum(shares) / len(shares)
        return Interval(
            mean, kind="an accuracy of 0 gives no interval", run_counts=(len(shares),)
        )
    return interval_over_runs(shares)


def is_inference(runs: Iterable[RunRecord]) -> bool:
    """Whether the runs decode or evaluate: the time of a batch is then called latency."""
    return any(run.options["decode"] or run.options["forward_only"] for run in runs)


def _sentences_per_second(measured: Measured) -> Interval | None:
    """Of all towers, where nothing is trained."""
    rates: list[float | None] = []
    for run in measured.runs if is_inference(measured.runs) else ():
        if run.unit == "images":
            return None
        samples = run.resolved.tower_batch_sizes
        taken = run.throughput.seconds if run.throughput else None
        rates.append(
            sum(samples) * run.batches.measured / taken if samples and taken else None
        )
    return _of_processes(rates)


def step_times(run: RunRecord) -> Sequence[float]:
    """Seconds of each measured batch; empty for a log, because its lines may cover several batches."""
    return () if run.log_format else run.batches.seconds[run.batches.warmup :]


def _percentile(needed: int) -> Compute:
    """The percentile 1 - 1/`needed` of the step times; None if a run has fewer batches than `needed`."""

    def compute(measured: Measured) -> Interval | None:
        runs = [step_times(run) for run in measured.runs]
        if min(map(len, runs), default=0) < needed:
            return None
        return _of_processes(
            [
                statistics.quantiles(seconds, n=needed, method="inclusive")[-1]
                for seconds in runs
            ]
        )

    return compute


def _of_all_nodes(measured: Measured, name: str) -> float:
    """A value of machines.toml, summed over the nodes of the runs; 0 if unknown."""
    return (
        getattr(measured.priced, name) * nodes(measured.runs[0])
        if measured.priced and measured.runs
        else 0.0
    )


def _items_per_money(measured: Measured) -> Interval | None:
    """Items per unit of the currency; the price is exact."""
    price = _of_all_nodes(measured, "price_per_hour")
    return measured.rate.scaled(3600 / price) if measured.rate and price else None


def _money_per_billion(measured: Measured) -> Interval | None:
    per_money = _items_per_money(measured)
    return per_money and per_money.inverse(BILLION)


def _energy_per_item(measured: Measured) -> Interval | None:
    """Joules per item, measured or from the power in machines.toml; `kind` says which."""
    used = [energy_per_item(run) for run in measured.runs]
    sources = {source for _, source in used}
    value = _of_processes([joules for joules, _ in used]) if len(sources) == 1 else None
    if (
        value is None
        and measured.rate
        and (power_w := _of_all_nodes(measured, "power_w"))
    ):
        value = measured.rate.inverse(power_w)
        sources = {f"estimated from a stated power of {power_w:g} W"}
    return value and dataclasses.replace(value, kind=f"{value.kind}; {sources.pop()}")


def _longest_step(measured: Measured) -> Interval | None:
    return _of_processes([max(step_times(run), default=None) for run in measured.runs])


def _of_processes(values: Sequence[float | None]) -> Interval | None:
    """The geometric mean over processes; None where one is not known."""
    known = [value for value in values if value]
    if not known or len(known) < len(values):
        return None
    mean = interval_over_runs(known)
    return (
        mean
        if mean.ends
        else dataclasses.replace(mean, kind="one process gives no interval")
    )


def _gib(peaks: Sequence[int | None]) -> Interval | None:
    """Bytes, one a process, as GiB; None where one is not known."""
    return _of_processes([peak / GIB if peak else None for peak in peaks])


def _step_time(name: str, title: str, compute: Compute) -> Metric:
    return Metric(f"step_{name}_s", title, "ms", 1e3, 2, compute, drawn=False)


def _latency(step_time: Metric) -> Metric:
    """The same metric of runs that decode or evaluate."""
    name = step_time.name.replace("step_", "latency_")
    title = step_time.title.replace(STEP_TIME, LATENCY)
    return dataclasses.replace(step_time, name=name, title=title, drawn=True)


METRICS = {
    metric.name: metric
    for metric in (
        Metric(
            *(
                "items_per_second",
                "items/s",
                "items/s",
                1,
                1,
                lambda measured: measured.rate,
            ),
            header="Processing speed (items/s)",
            always=True,
        ),
        Metric(
            *("speedup", "speedup", "", 1, 2, _speedup),
            header="Speedup ratio",
            ideal=float,
            always=True,
        ),
        Metric(
            "efficiency",
            "efficiency",
            "%",
            100,
            1,
            _efficiency,
            ideal=lambda n: 1.0,
            always=True,
        ),
        Metric(
            "accuracy",
            "accuracy",
            "%",
            100,
            1,
            _accuracy,
            header="Accuracy at the end (%)",
        ),
        Metric(
            "sentences_per_second",
            "sentences/s",
            "sentences/s",
            1,
            1,
            _sentences_per_second,
        ),
        *(
            _step_time(f"p{p}", f"{STEP_TIME} p{p}", _percentile(batches))
            for p, batches in BATCHES_NEEDED.items()
        ),
        _step_time("max", f"longest {STEP_TIME}", _longest_step),
        Metric("flops_per_second", "GFLOP/s", "GFLOP/s", 1e-9, 2, _flops_per_second),
        Metric("share_of_peak", "share of peak", "%", 100, 1, _share_of_peak),
        Metric("items_per_money", "million items/money", "", 1e-6, 2, _items_per_money),
        Metric(
            "money_per_billion_items",
            "cost of a billion items",
            MONEY,
            1,
            2,
            _money_per_billion,
        ),
        Metric("energy_per_item_j", "energy per item", "mJ", 1e3, 2, _energy_per_item),
        Metric("peak_memory_gib", "peak memory", "GiB", 1, 2, _peak_memory_gib),
        Metric(
            "peak_device_memory_gib",
            "peak device memory",
            "GiB",
            1,
            2,
            _peak_device_memory_gib,
        ),
        Metric(
            "flops_per_exchanged_byte",
            "work per exchanged MB",
            "GFLOP",
            1e-3,
            2,
            _flops_per_byte,
            compares_models=True,
        ),
        Metric(
            "flops_per_step",
            "work per step",
            "GFLOP",
            1e-9,
            2,
            _flops_per_step,
            compares_models=True,
        ),
        Metric(
            "exchanged_bytes_per_step",
            "exchanged per step",
            "MB",
            1e-6,
            2,
            _exchanged_bytes,
            compares_models=True,
        ),
        Metric(
            "parameters",
            "parameters",
            "million",
            1e-6,
            2,
            _parameters,
            compares_models=True,
        ),
    )
}
RATE, SPEEDUP, EFFICIENCY = (
    METRICS[name] for name in ("items_per_second", "speedup", "efficiency")
)
COST = METRICS["money_per_billion_items"]
ENERGY = METRICS["energy_per_item_j"]
ACCURACY = METRICS["accuracy"]
STEP_TIMES = tuple(metric for metric in METRICS.values() if STEP_TIME in metric.title)
LATENCIES = {metric.name: _latency(metric) for metric in STEP_TIMES}
MODEL_METRICS = tuple(metric for metric in METRICS.values() if metric.compares_models)
WORK_PER_EXCHANGE = METRICS["flops_per_exchanged_byte"]


def common_unit(units: Iterable[str]) -> str:
    """The only unit; "items" where there are several, or none."""
    different = set(units)
    return different.pop() if len(different) == 1 else ITEMS


def with_article(unit: str) -> str:
    """ "a word" of "words", "an item" of "items"."""
    return f"{'an' if unit[0] in 'aeiou' else 'a'} {unit.removesuffix('s')}"
