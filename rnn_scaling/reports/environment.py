"""The machines, versions and conditions of the runs of a report.

`analysis.facts.table` lists the facts of a run. `make_statements` makes the cautions.
"""

import dataclasses
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

from rnn_scaling.analysis.clocks import (
    compute_median_clocks_mhz,
    format_caution,
    list_clock_cautions,
)
from rnn_scaling.analysis.facts.table import FACTS, PACKAGES, TRAINING
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.terminal import format_count
from rnn_scaling.system.machine import throttling

# Packages are listed by the names that pip has.
_FACTS = [fact for fact in FACTS if fact.name not in PACKAGES and fact not in TRAINING]
_MAX_LISTED_VALUES = 4  # different values that are listed
UPDATES_SKIPPED = "updates-skipped"  # because of float16
# The kinds of cautions in their order. A new kind needs a row here, its condition in
# `_find_cautions`, and a template.
_KINDS = (
    "gpus-shared",
    "cpu-devices",
    "cpu-devices-only",
    "too-few-cores",
    "gpus-throttled",
    "workers-on-one-host",
    "network-simulated",
    "window-off",
    UPDATES_SKIPPED,
    "clocks",
)
# The common window may differ from rank 0's clock by the larger of these: barriers take
# some time.
_BARRIERS_S = 0.1
_BARRIERS_SHARE = 0.02


@dataclasses.dataclass(frozen=True)
class EnvironmentFact:
    """One property of the environment."""

    name: str
    values: tuple[tuple[str, int], ...]  # value, number of runs with it

    @property
    def text(self) -> str:
        """The value; several values with their numbers of runs."""
        if len(self.values) == 1:
            return self.values[0][0]
        texts = [
            f"{value} ({format_count(count, 'run')})"
            for value, count in self.values[:_MAX_LISTED_VALUES]
        ]
        num_hidden = len(self.values) - _MAX_LISTED_VALUES
        if num_hidden > 0:
            texts.append(f"{num_hidden} more")
        return "; ".join(texts)


def list_facts(records: Sequence[RunRecord]) -> tuple[EnvironmentFact, ...]:
    """Return machines, versions, threads, load and clocks of all runs.

    Facts that no record contains are omitted.
    """
    counts: dict[str, Counter[str]] = {}
    for record in records:
        for name, value in run_facts(record).items():
            if value:
                counts.setdefault(name, Counter())[value] += 1
    recorded_facts = [
        EnvironmentFact(name, tuple(values.items())) for name, values in counts.items()
    ]
    return (*recorded_facts, *_load_facts(records), *_list_clock_facts(records))


def make_statements(records: Sequence[RunRecord]) -> list[Statement]:
    """Return the cautions of `_KINDS` that apply to the runs.

    A caution that several runs share is returned once, with their number and the values
    of the most extreme run.
    """
    counts: Counter[Hashable] = Counter()
    findings: dict[Hashable, Statement] = {}
    for record in records:
        for key, finding in _find_cautions(record):
            counts[key] += 1
            earlier_finding = findings.setdefault(key, finding)
            if finding.values.get("most", 0) > earlier_finding.values.get("most", 0):
                findings[key] = finding
    has_gpus = any(run.resolved.device_type not in ("CPU", None) for run in records)
    found = []
    for key, finding in findings.items():
        kind = finding.kind
        if kind == "cpu-devices" and not has_gpus:
            kind = "cpu-devices-only"
        found.append(
            state(
                kind,
                finding.subject,
                runs=counts[key],
                total=len(records),
                **finding.values,
            )
        )
    return sorted(found, key=lambda statement: _KINDS.index(statement.kind))


def _find_cautions(record: RunRecord) -> list[tuple[Hashable, Statement]]:
    """Return what a reader should know about the machine of a run.

    Returns:
      Pairs of a key, which is equal for the same finding in other runs, and the finding.
    """
    resolved = record.resolved
    machine_cautions = []
    if resolved.logical_devices:
        is_cpu = resolved.device_type == "CPU"
        machine_cautions.append(state("cpu-devices" if is_cpu else "gpus-shared"))
    if resolved.oversubscribed:
        machine_cautions.append(state("too-few-cores"))
    if any(map(_is_throttled, record.environment.gpus_after)):
        machine_cautions.append(state("gpus-throttled"))
    workers = record.workers
    if workers and len(workers.workers) > 1:
        if 0 < len(workers.hosts) < len(workers.workers):
            machine_cautions.append(state("workers-on-one-host"))
        if workers.link:
            machine_cautions.append(state("network-simulated", workers.link))
        if deviation := _compute_window_deviation(record, workers.window_seconds):
            machine_cautions.append(state("window-off", most=deviation))
    if skipped := record.batches.skipped_updates:
        machine_cautions.append(state(UPDATES_SKIPPED, most=skipped))
    keyed_cautions: list[tuple[Hashable, Statement]] = []
    keyed_cautions += [
        ((finding.kind, finding.subject), finding) for finding in machine_cautions
    ]
    # The text of a caution contains numbers, so its key identifies it.
    for caution in list_clock_cautions(record.environment.clocks):
        keyed_cautions.append((caution.key, state("clocks", format_caution(caution))))
    return keyed_cautions


def _compute_window_deviation(run: RunRecord, window_s: float | None) -> float:
    """Return the difference of the common window from rank 0's clock, as a share.

    Returns:
      0.0 if barriers explain the difference.
    """
    if not run.throughput or not window_s:
        return 0.0
    measured_s = math.fsum(run.batches.seconds[run.batches.warmup :])
    difference = abs(window_s - measured_s)
    is_explained = difference <= max(_BARRIERS_S, _BARRIERS_SHARE * measured_s)
    return 0.0 if is_explained else difference / measured_s


def run_facts(record: RunRecord) -> dict[str, str]:
    """Return a run's machine, software and processes; "" if a fact is unknown."""
    env = record.environment
    facts_by_name = {
        fact.name: fact.text(record)
        for fact in _FACTS
        if env.gpus or not fact.is_gpu_only
    }
    return {
        **facts_by_name,
        "parameters": _format_parameters(record),
        **dict(sorted(env.packages.items())),
        **dict(sorted(env.variables.items())),
    }


def _format_parameters(record: RunRecord) -> str:
    """Return the numbers of one copy: trained, moving averages and optimizer.

    Returns:
      "" if the record does not contain them.
    """
    numbers = record.parameters
    if numbers is None or numbers.moving is None or numbers.optimizer is None:
        return ""
    moving = f", {numbers.moving:,} moving averages" if numbers.moving else ""
    optimizer = f"{numbers.optimizer:,} of the optimizer"
    return f"{numbers.trainable:,} trained{moving}, {optimizer}"


def _load_facts(records: Sequence[RunRecord]) -> list[EnvironmentFact]:
    loads = [
        load.others + load.steal
        for record in records
        if (load := record.environment.load)
    ]
    if not loads:
        return []
    mean = sum(loads) / len(loads)
    text = f"{mean:.1%} of the run's cores on average, {max(loads):.1%} at most"
    return [EnvironmentFact("Load of other processes", ((text, len(loads)),))]


def _list_clock_facts(records: Sequence[RunRecord]) -> list[EnvironmentFact]:
    """Return the range of the clocks of each kind, during the batches."""
    sampled = [
        clocks
        for record in records
        if (clocks := compute_median_clocks_mhz(record.environment.clocks))
    ]
    if not sampled:
        return []
    clocks_by_kind: dict[str, list[float]] = {}
    for clocks in sampled:
        for kind, values in clocks.items():
            clocks_by_kind.setdefault(kind, []).extend(values)
    texts = []
    for kind, values in clocks_by_kind.items():
        ends = dict.fromkeys((f"{min(values):.0f}", f"{max(values):.0f}"))
        texts.append(f"{kind} {' to '.join(ends)} MHz")
    name = "Clocks during the batches (medians of each device)"
    return [EnvironmentFact(name, ((", ".join(texts), len(sampled)),))]


def _is_throttled(gpu: Mapping[str, str]) -> bool:
    """Return whether a GPU had reduced clocks for any reason except idling."""
    reasons = throttling.parse(gpu.get(throttling.FIELD, "0")) or 0
    return bool(reasons & ~throttling.IDLE_BIT)
