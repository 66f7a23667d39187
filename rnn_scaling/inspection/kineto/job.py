"""Read the traces of all ranks of a job, and find the ranks that the others wait for.

`inspect` reads a job with `read_job`; `report` shows it.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import Spread, measure_spread
from rnn_scaling.analysis.steps.straggler import (
    MAX_LATE_RANKS,
    MIN_SHARE,
    MIN_STEPS,
)
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.inspection.kineto import rank_trace, step_split
from rnn_scaling.inspection.kineto.alignment import Alignment, align
from rnn_scaling.inspection.kineto.rank_trace import RankTrace, read_trace
from rnn_scaling.inspection.kineto.step_split import SplitStep, split_steps
from rnn_scaling.system.files.input_files import DoorError

_LEVEL = 0.975  # one-sided, of the test for late ranks
# Share of a step. Above it, the clocks are too uncertain to show waiting.
_MAX_CLOCK_SCATTER = 0.05
_MAX_UNMATCHED = 0.1  # share of all collectives
# Parts that make a rank late.
_OWN_PARTS = (
    step_split.COMPUTE,
    step_split.COPIES,
    step_split.INPUT,
    step_split.HOST,
)


@dataclasses.dataclass(frozen=True, eq=False)
class TracedJob:
    """The traced steps of a job.

    Attributes:
      traces: The trace of each rank.
      world_size: Number of ranks of the job.
      steps: Numbers of the steps that every trace contains.
    """

    traces: Mapping[int, RankTrace]
    world_size: int
    steps: Sequence[int]

    @functools.cached_property
    def alignment(self) -> Alignment:
        return align(self.traces)

    @functools.cached_property
    def splits(self) -> Mapping[int, Sequence[SplitStep]]:
        """The steps of each rank."""
        splits = {}
        for rank, trace in self.traces.items():
            splits[rank] = split_steps(rank, trace, self.steps, self.alignment)
        return splits

    def average_part(self, name: str, rank: int) -> Spread:
        """Return the seconds per step of a part."""
        return measure_spread([step.parts[name] for step in self.splits[rank]])

    def average(self, name: str, rank: int) -> Spread:
        """Return the mean of a field of SplitStep, such as "seconds"."""
        return measure_spread([getattr(step, name) for step in self.splits[rank]])

    def average_ranks(self, name: str) -> float:
        """Return the mean of a field of SplitStep over all ranks."""
        return fmean([self.average(name, rank).mean for rank in self.traces])


def read_job(files: Sequence[Path]) -> TracedJob:
    """Return the job of these traces, one per rank.

    Raises:
      OSError: If a file is not a usable trace, or if the traces do not belong together.
    """
    traces: dict[int, RankTrace] = {}
    for file in files:
        trace = read_trace(file)
        rank = trace.rank or 0
        if trace.rank is None and len(files) > 1:
            raise DoorError(file, "does not contain its rank; rename it to rankN.json")
        if rank in traces:
            reason = (
                f"is a trace of rank {rank}, like {traces[rank].file}; give one "
                "trace per rank"
            )
            raise DoorError(file, reason)
        traces[rank] = trace
    traces = dict(sorted(traces.items()))
    sizes = {trace.world_size for trace in traces.values() if trace.world_size}
    if len(sizes) > 1:
        counts = " and ".join(map(str, sorted(sizes)))
        reason = (
            f"contains traces of jobs with {counts} ranks; give the traces of one job"
        )
        raise DoorError(files[0].parent, reason)
    common = sorted(set.intersection(*(set(trace.steps) for trace in traces.values())))
    if not common:
        reason = "the traces have no common step; trace the same steps on every rank"
        raise DoorError(files[0].parent, reason)
    world_size = max({max(traces) + 1} | sizes)
    if _start_at_different_steps(traces):
        # Otherwise the n-th calls of two ranks would be of different steps.
        for rank, trace in traces.items():
            traces[rank] = _drop_calls_before(trace, common[0])
    return TracedJob(traces, world_size, common)


def _start_at_different_steps(traces: Mapping[int, RankTrace]) -> bool:
    return len({min(trace.steps) for trace in traces.values()}) > 1


def _drop_calls_before(trace: RankTrace, step: int) -> RankTrace:
    """Return a trace without the collectives that started before a step."""
    start_ns, _ = trace.steps[step]
    calls = [call for call in trace.collectives if call.start_ns >= start_ns]
    return dataclasses.replace(trace, collectives=tuple(calls))


def make_statements(job: TracedJob) -> list[Statement]:
    """Return the verdict about waiting, and cautions."""
    facts = _state_doubts(job)
    if facts:
        facts = [Statement("kineto-inconclusive"), *facts]
    elif job.world_size == 1:
        facts = [Statement("kineto-one-rank")]
    else:
        facts = _state_verdict(job)
    if exchange_s := job.average_ranks("exchange_s"):
        exposed_s = job.average_ranks("exposed_s")
        values = {
            "exposed": exposed_s / job.average_ranks("seconds"),
            "hidden": 1 - exposed_s / exchange_s,
        }
        facts.append(Statement("kineto-exchange", values=values))
    if num_left_out := sum(trace.num_left_out for trace in job.traces.values()):
        facts.append(Statement("kineto-left-out", values={"events": num_left_out}))
    return facts


def _state_doubts(job: TracedJob) -> list[Statement]:
    """State why waiting cannot be judged; nothing if it can."""
    clocks = job.alignment.clocks
    num_unmatched = job.alignment.num_unmatched
    num_calls = len(job.alignment.calls) + num_unmatched
    scatter_s = max(clock.scatter_ns for clock in clocks.values()) / 1e9
    step_s = job.average_ranks("seconds")
    unaligned = [rank for rank in job.traces if rank not in clocks]
    uses_gpu = any(trace.uses_gpu for trace in job.traces.values())
    calls_nccl = False
    for trace in job.traces.values():
        calls_nccl |= not trace.uses_gpu and len(trace.spans[rank_trace.NCCL_CALL]) > 0
    is_unmatched = num_unmatched > _MAX_UNMATCHED * num_calls
    doubts = {
        "kineto-few-steps": job.world_size > 1 and len(job.steps) < MIN_STEPS,
        "kineto-ranks-missing": len(job.traces) < job.world_size,
        "kineto-no-kernels": calls_nccl,
        "kineto-first-steps": uses_gpu and _start_at_different_steps(job.traces),
        "kineto-clocks": unaligned,
        "kineto-unmatched": len(job.traces) > 1 and is_unmatched,
        "kineto-clock-scatter": scatter_s > _MAX_CLOCK_SCATTER * step_s,
    }
    values = {
        "steps": len(job.steps),
        "least": MIN_STEPS,
        "traced": len(job.traces),
        "all": job.world_size,
        "ranks": unaligned,
        "unmatched": num_unmatched,
        "calls": num_calls,
        "scatter": 1000 * scatter_s,
        "step": 1000 * step_s,
    }
    return [Statement(kind, values=values) for kind, holds in doubts.items() if holds]


def _state_verdict(job: TracedJob) -> list[Statement]:
    """Return the late ranks and why they are late, or a statement that no rank is.

    Late ranks wait less than all others, by at least MIN_SHARE of a step and by more
    than chance (Student's t over the steps, 97.5 % one-sided). As few ranks as possible
    are named. The order of arrival does not matter: a late rank delays other ranks, and
    further ranks wait for these.
    """
    waits_s = []
    for steps in job.splits.values():
        waits_s.append([step.parts[step_split.WAITS] for step in steps])
    waits = np.array(waits_s)
    step_s = job.average_ranks("seconds")
    quantile = t_quantile(_LEVEL, len(job.steps) - 1)
    order = np.argsort(waits.mean(axis=1), kind="stable")
    for size in range(1, min(MAX_LATE_RANKS, len(order) // 2) + 1):
        late_ranks = order[:size]
        other_ranks = order[size:]
        extra_wait_s = waits[other_ranks].min(axis=0) - waits[late_ranks].max(axis=0)
        error = extra_wait_s.std(ddof=1) / len(extra_wait_s) ** 0.5
        if extra_wait_s.mean() > max(quantile * error, MIN_SHARE * step_s):
            ranks = np.array(list(job.traces))[late_ranks]
            waiting_values = _list_waiting_values(waits[other_ranks], step_s)
            values = {"ranks": [str(rank) for rank in sorted(ranks)], **waiting_values}
            return [
                Statement("kineto-late", values=values),
                _state_cause(job, late_ranks, other_ranks),
            ]
    values = _list_waiting_values(waits, step_s)
    is_balanced = waits.mean() <= MIN_SHARE * step_s
    return [
        Statement("kineto-balanced" if is_balanced else "kineto-mixed", values=values)
    ]


def _list_waiting_values(waits: np.ndarray, step_s: float) -> dict[str, Any]:
    mean_s = float(waits.mean())
    return {"waited": 1000 * mean_s, "share": mean_s / (step_s or 1.0)}


def _state_cause(
    job: TracedJob, late_ranks: np.ndarray, other_ranks: np.ndarray
) -> Statement:
    """Return the part that makes the late ranks late."""
    longer_s = {}
    for part in _OWN_PARTS:
        means_s = np.array([job.average_part(part, rank).mean for rank in job.traces])
        longer_s[part] = float(means_s[late_ranks].mean() - means_s[other_ranks].mean())
    part = max(longer_s, key=longer_s.__getitem__)
    return Statement(f"kineto-late-{part}", values={"longer": 1000 * longer_s[part]})
