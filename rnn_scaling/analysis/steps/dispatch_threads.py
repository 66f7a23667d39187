"""Find the number of inter-op threads from which dispatch does not limit the towers.

`recommend --threads` plans the runs (sweeps.thread_search); this module reads them.
"""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import (
    Interval,
    compute_interval_over_runs,
    divide_rates,
)
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import build_key
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import make_titles
from rnn_scaling.analysis.significance import Comparison, compare
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.record import RunRecord

OPTION = "inter_op_parallelism_threads"
_SLOWER = "slower"
# Slow-down that runs must be able to show. If they cannot, a slow-down may exist that
# they do not show.
_MAX_MISSED_SLOWDOWN = 0.2
_SERIAL = 1.05  # concurrency up to which towers count as one after another


@dataclasses.dataclass(frozen=True)
class Setting:
    """One number of threads on one number of devices."""

    threads: int
    runs: int
    failed: int
    rate: Interval | None
    relative_rate: Interval | None  # rate / the rate of the fastest number of threads
    # With the fastest number of threads; None for the fastest itself, and unless both
    # have two runs.
    comparison: Comparison | None
    # Towers that compute while at least one does, median over the traced steps; None
    # without a trace or with --xla.
    concurrency: float | None
    # The same over at least two runs that did not share their cores.
    concurrency_over_runs: Interval | None = None

    @property
    def is_slower(self) -> bool:
        """Whether it is significantly slower than the fastest."""
        return self.comparison is not None and self.comparison.verdict == _SLOWER

    @property
    def detectable(self) -> float:
        """The smallest slow-down that its runs would show; 0 if it is unknown."""
        return (self.comparison.detectable or 0.0) if self.comparison else 0.0

    @property
    def concurrency_ends(self) -> tuple[float, float]:
        """The ends of the interval of the concurrency, (1, inf) without one."""
        over_runs = self.concurrency_over_runs
        return (over_runs and over_runs.ends) or (1.0, math.inf)

    @property
    def percent(self) -> Interval | None:
        """The rate in per cent of the fastest rate."""
        return self.relative_rate and self.relative_rate.scaled(100)


@dataclasses.dataclass(frozen=True)
class Probe:
    """All numbers of threads on one number of devices, in order."""

    title: str
    unit: str  # the unit of the rates
    num_devices: int
    default: int  # the number of threads that the trainer chooses
    settings: tuple[Setting, ...]
    # Threads; None if no run measured a rate, or if a rate is corrected for load.
    fastest: int | None
    # The smallest number of threads that, like all larger ones up to the fastest, is
    # not significantly slower than the fastest; None if the runs are too few.
    sufficient: int | None
    runs: tuple[RunRecord, ...] = ()

    @property
    def has_rate(self) -> bool:
        """Whether any run measured a rate."""
        return any(setting.rate is not None for setting in self.settings)


def make_probes(
    records: Sequence[RunRecord], defaults: Mapping[int, int]
) -> list[Probe]:
    """Return a probe for each configuration, machine and number of devices.

    Args:
      records: The runs.
      defaults: Number of devices -> threads that the trainer chooses.
    """
    machines = group_by_machine(records)
    all_probes = []
    for machine, machine_records in machines.items():
        for probe in _make_probes(machine_records, defaults):
            if len(machines) > 1:
                title = f"{probe.title}, {machine}"
                probe = dataclasses.replace(probe, title=title)
            all_probes.append(probe)
    return all_probes


def _make_probes(
    records: Sequence[RunRecord], defaults: Mapping[int, int]
) -> Iterator[Probe]:
    rows = build_rows(records)
    keys = [build_key(row.options, **{"num_devices": 1, OPTION: 0}) for row in rows]
    groups = list(group_by(rows, keys).values())
    for title, group in zip(make_titles(groups), groups):
        by_devices = group_by(group, [row.num_devices for row in group])
        for count, members in sorted(by_devices.items()):
            yield _make_probe(title, count, defaults[count], members)


def _make_probe(
    title: str, num_devices: int, default: int, rows: Sequence[Row]
) -> Probe:
    """Return the settings of one series on one number of devices."""
    rows = sorted(rows, key=lambda row: row.options[OPTION])
    measured_rows = [row for row in rows if row.rate is not None]
    best = None
    # A test of runs does not contain the error of a correction for load.
    if all(row.corrected is None for row in measured_rows):
        best = max(
            measured_rows,
            key=lambda row: row.rate.value if row.rate else 0.0,
            default=None,
        )
    settings = tuple(_make_setting(row, best) for row in rows)
    runs = itertools.chain.from_iterable(row.good_runs for row in measured_rows)
    fastest = best.options[OPTION] if best else None
    return Probe(
        title=title,
        unit=rows[0].unit,
        num_devices=num_devices,
        default=default,
        settings=settings,
        fastest=fastest,
        sufficient=_find_sufficient_threads(settings, fastest),
        runs=tuple(runs),
    )


def _find_sufficient_threads(
    settings: Sequence[Setting], fastest: int | None
) -> int | None:
    """Return `sufficient` of a probe."""
    measured_settings = [setting for setting in settings if setting.rate]
    other_settings = [
        setting for setting in measured_settings if setting.threads != fastest
    ]
    if (
        fastest is None
        or not other_settings
        or not all(s.comparison for s in other_settings)
    ):
        return None
    sufficient = fastest
    for setting in reversed(other_settings):
        if setting.threads < fastest:
            if setting.is_slower:
                break
            sufficient = setting.threads
    return sufficient


def _make_setting(row: Row, best: Row | None) -> Setting:
    """Return a number of threads with its rate, compared with the fastest one."""
    comparison = None
    relative_rate = None
    if best is not None and row is not best:
        if len(row.counted_runs) > 1 and len(best.counted_runs) > 1:
            comparison = compare(best.run_rates, row.run_rates)
        if row.rate and best.rate:
            relative_rate = divide_rates(row.rate, best.rate)
    return Setting(
        threads=row.options[OPTION],
        runs=len(row.good_runs),
        failed=len(row.records) - len(row.good_runs),
        rate=row.rate,
        relative_rate=relative_rate,
        comparison=comparison,
        concurrency=_compute_mean_concurrency(row.good_runs),
        concurrency_over_runs=_average_concurrency_over_runs(row.good_runs),
    )


def _compute_mean_concurrency(records: Sequence[RunRecord]) -> float | None:
    # XLA's clusters of operators do not name their tower.
    traces = [run.trace for run in records if run.trace and not run.options["xla"]]
    steps = itertools.chain.from_iterable(trace.steps for trace in traces)
    known_concurrencies = [
        step.concurrency for step in steps if step.concurrency is not None
    ]
    return statistics.median(known_concurrencies) if known_concurrencies else None


def _average_concurrency_over_runs(records: Sequence[RunRecord]) -> Interval | None:
    # Towers that wait for a core look as if they waited for a thread.
    quiet_runs = [
        run
        for run in records
        if not (disturbance.load(run) or run.resolved.oversubscribed)
    ]
    means = [_compute_mean_concurrency([run]) for run in quiet_runs]
    known_means = [mean for mean in means if mean is not None]
    return compute_interval_over_runs(known_means) if len(known_means) > 1 else None


def make_statements(probe: Probe) -> list[Statement]:
    """State which number of threads suffices, and what hides it."""
    if not probe.has_rate:
        return [
            _state_probe(probe, "threads-not-measured"),
            *_state_disturbances(probe),
        ]
    statements = [_state_probe(probe, "threads-corrected")]
    if probe.fastest is not None:
        statements = _state_limit(probe, probe.fastest)
    failed_settings = [setting for setting in probe.settings if setting.rate is None]
    if failed_settings:
        statements.append(
            _state_probe(
                probe, "threads-failed", threads=_list_thread_counts(failed_settings)
            )
        )
    statements += _state_concurrency(probe)
    if probe.fastest is not None:
        statements.append(_state_default(probe))
    return [*statements, *_state_disturbances(probe)]


def _state_probe(probe: Probe, kind: str, **values: Any) -> Statement:
    return state(kind, probe.title, devices=probe.num_devices, **values)


def _list_thread_counts(settings: Sequence[Setting]) -> list[int]:
    return [setting.threads for setting in settings]


def _state_limit(probe: Probe, best: int) -> list[Statement]:
    """Return from how many threads dispatch does not limit the rate."""
    enough = probe.sufficient
    if enough is None:
        return [_state_probe(probe, "threads-one-run-each")]
    measured_settings = [setting for setting in probe.settings if setting.relative_rate]
    slow_settings = [
        setting for setting in measured_settings if setting.threads < enough
    ]
    if not slow_settings:
        return _state_missing_limit(probe, best)
    slower = []
    for setting in slow_settings:
        slower.append(
            _state_probe(
                probe, "threads-slower", threads=setting.threads, share=setting.percent
            )
        )
    candidates = [each for each in probe.settings if enough <= each.threads < best]
    noisy_settings = [
        setting for setting in candidates if setting.detectable > _MAX_MISSED_SLOWDOWN
    ]
    if noisy_settings:
        limit = max(setting.detectable for setting in noisy_settings)
        return [
            _state_probe(
                probe,
                "threads-unclear",
                best=best,
                threads=_list_thread_counts(noisy_settings),
                limit=limit,
            ),
            *slower,
        ]
    return [
        _state_probe(probe, "threads-enough", enough=enough, best=best),
        *slower,
    ]


def _state_missing_limit(probe: Probe, best: int) -> list[Statement]:
    """State that the fewest threads are as fast as any.

    The slow-down that the runs could have shown follows.
    """
    fewest = next(setting.threads for setting in probe.settings if setting.rate)
    other_settings = [setting for setting in probe.settings if setting.threads != best]
    limit = max((setting.detectable for setting in other_settings), default=0.0)
    if limit > _MAX_MISSED_SLOWDOWN:
        return [_state_probe(probe, "threads-too-noisy", best=best, limit=limit)]
    kind = "threads-fewest-fastest" if best == fewest else "threads-fewest-enough"
    statements = [_state_probe(probe, kind, best=best, fewest=fewest)]
    if limit:
        statements.append(_state_probe(probe, "threads-detectable", limit=limit))
    return statements


def _state_concurrency(probe: Probe) -> list[Statement]:
    """State whether towers run one after the other."""
    traced = [setting for setting in probe.settings if setting.concurrency is not None]
    if probe.num_devices == 1 or not traced:
        return []

    def sort_key(setting: Setting) -> tuple[bool, float]:
        return setting.concurrency_over_runs is not None, setting.concurrency or 0.0

    highest = max(traced, key=sort_key)
    values = {"at_once": highest.concurrency, "most": highest.threads}
    serial = [setting for setting in traced if setting.concurrency_ends[1] <= _SERIAL]
    if serial:
        return [
            _state_probe(
                probe, "towers-in-turn", threads=_list_thread_counts(serial), **values
            )
        ]
    unclear = [setting for setting in traced if setting.concurrency_ends[0] <= _SERIAL]
    if unclear:
        return [
            _state_probe(probe, "towers-unclear", threads=_list_thread_counts(unclear))
        ]
    return [_state_probe(probe, "towers-at-once", **values)]


def _state_default(probe: Probe) -> Statement:
    """State how fast the number of threads is that the trainer chooses."""
    default = probe.default
    for setting in probe.settings:
        if setting.threads == default and setting.rate is not None:
            break
    else:
        return _state_probe(probe, "default-not-measured", default=default)
    if default == probe.fastest:
        return _state_probe(probe, "default-fastest", default=default)
    kind = "default-slower" if setting.is_slower else "default-within-noise"
    if setting.comparison is None:
        kind = "default-one-run"
    return _state_probe(probe, kind, default=default, share=setting.percent)


def _state_disturbances(probe: Probe) -> Iterator[Statement]:
    """Yield other influences on the rates: shared cores, and other processes."""
    sharing = [run for run in probe.runs if run.resolved.oversubscribed]
    cores = [len(disturbance.bound_cores(run)) for run in sharing]
    loads = list(filter(None, map(disturbance.load, probe.runs)))
    if cores:
        yield _state_probe(probe, "threads-shared-cores", cores=max(cores))
    if loads:
        yield _state_probe(
            probe,
            "threads-load",
            load=max(loads),
            loaded=len(loads),
            runs=len(probe.runs),
        )
