"""The processes of a distributed run in words: lost workers, staleness, late ranks, and where its time went by rank."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling import registry
from rnn_scaling.analysis.rows import Row, full_config
from rnn_scaling.analysis.steps import late_ranks
from rnn_scaling.analysis.steps.late_ranks import Lateness
from rnn_scaling.analysis.steps.parts import spread
from rnn_scaling.files.terminal import three_digits
from rnn_scaling.records.parts import Phases
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import Rank
from rnn_scaling.reports.numbers import share
from rnn_scaling.reports.wording import sentence

MOST_RANKS = 16  # in a table; of more it has the slowest, the median and the fastest
PHASES = {
    "start": "Start",
    "cluster": "Cluster",
    "build": "Build",
    "first_batch": "First batch",
    "warmup": "Warm-up",
    "measured": "Measured",
    "teardown": "End",
}

Grid = tuple[list[str], list[list[str]]]


def remarks(row: Row) -> list[str]:
    """What must be said beside a rate: how old workers' gradients were, that some were lost, that no step waited."""
    return [text for text in (_staleness(row.good), _losses(row), _unwaited(row)) if text]


def runs_with_losses(row: Row) -> list[RunRecord]:
    """The good runs that went on without some of their workers."""
    return [run for run in row.good if run.workers and run.workers.lost]


def _unwaited(row: Row) -> str:
    sentences = [run.batches.unwaited for run in row.good if run.batches.unwaited]
    which = "In its run" if len(row.good) == 1 else f"In {len(sentences)} of its {len(row.good)} runs"
    return f"{which} on {row.devices}: {sentences[0]}" if sentences else ""


def _losses(row: Row) -> str:
    runs = runs_with_losses(row)
    if not runs:
        return ""
    lost = [rank for run in runs if run.workers for rank in run.workers.lost]
    which = "In its run" if len(row.good) == 1 else f"In {len(runs)} of its {len(row.good)} runs"
    workers = "a worker was lost" if len(lost) == len(runs) else "workers were lost"
    return (
        f"{which} on {row.devices} {workers} ({_why_lost(lost[0])}): the rate is not that of {row.num_workers} workers."
    )


def _why_lost(rank: Rank) -> str:
    """ "rank 2 on b: killed by signal 9"; the line that was said of it where that names it already."""
    if rank.error and rank.error.startswith(f"rank {rank.rank} "):
        return rank.error.rstrip(".")
    where = f" on {rank.host}" if rank.host else ""
    why = f": {rank.error.rstrip('.')}" if rank.error else ""
    return f"rank {rank.rank}{where}{why}"


def _staleness(runs: Sequence[RunRecord]) -> str:
    counts: dict[int, int] = {}
    for run in runs:
        for age, count in ((run.workers.staleness if run.workers else None) or {}).items():
            counts[int(age)] = counts.get(int(age), 0) + count
    updates, largest = sum(counts.values()), max((age for age, count in counts.items() if count), default=0)
    if not largest:
        return ""
    mean = sum(age * count for age, count in counts.items()) / updates
    return (
        f"Its gradients were {mean:.1f} updates old on average, {largest} at most: it trains something else than a "
        "synchronous mode."
    )


def lateness(run: RunRecord) -> Lateness | None:
    """Which ranks of a run the others wait for; None where it does not have several with batches of their own."""
    if run.workers is None:
        return None
    exchanges = registry.trains_one_model(full_config(run)["variable_update"])
    return late_ranks.judge(run.workers, run.batches.warmup, exchanges)


@dataclasses.dataclass(frozen=True)
class ByRank:
    """The ranks of a row's first good run: no table and no sentence where they timed no batches of their own."""

    grid: Grid | None = None
    late: str = ""  # which of them are, in a sentence
    notes: tuple[str, ...] = ()


def by_rank(row: Row) -> ByRank:
    """The ranks of a row; nothing of one worker, or without a good run."""
    if row.num_workers == 1 or not row.good:
        return ByRank()
    run, *others = row.good
    verdict = lateness(run)
    notes = ranks_notes(run, verdict)
    if verdict and others:
        same = sum(other is not None and other.late == verdict.late for other in map(lateness, others))
        again = "all say" if same == len(others) else f"{same} of the other {len(others)} say"
        notes.append(f"This is the first of {len(row.good)} runs; {again} the same of its ranks.")
    if verdict is None:
        return ByRank(steps_grid(run), notes=tuple(notes))
    return ByRank(ranks_grid(verdict, row.unit), late_sentence(verdict), tuple(notes))


def steps_grid(run: RunRecord) -> Grid | None:
    """(header, a line for each worker to which a coordinator handed steps): how many it did; None of other runs."""
    workers = [rank for rank in (run.workers.workers if run.workers else ()) if rank.items and not rank.seconds]
    if not workers:
        return None
    steps, items = sum(len(rank.items) for rank in workers), sum(sum(rank.items) for rank in workers)
    fewest_first = sorted(workers, key=lambda rank: len(rank.items))
    return ["Rank", "Host", f"Steps (of {steps:,})", f"{run.unit.capitalize()} (%)"], [
        [f"{rank.rank}{remark}", rank.host or "n/a", f"{len(rank.items):,}", f"{100 * sum(rank.items) / items:.1f}"]
        for rank, remark in _folded(workers, fewest_first)
    ]


def late_sentence(told: Lateness) -> str:
    """Which ranks are late, and by how much."""
    return sentence(told.why)


def ranks_grid(told: Lateness, unit: str) -> Grid:
    """(header, a line for each rank that timed its batches); of many the slowest, the median and the fastest."""
    loads = any(each.rank.load_others is not None for each in told.ranks)
    head = [
        "Rank",
        "Host",
        f"{unit.capitalize()}/s",
        "Batch (ms)",
        *(["Gradients ready after (ms)"] if told.by_ready else []),
    ]
    head += ["Last in batches", *(["Load of others"] if loads else [])]
    slowest_first = sorted(told.ranks, key=lambda each: -spread(each.ready if told.by_ready else each.seconds).mean)
    return head, [
        [
            f"{each.rank.rank}{remark}",
            each.rank.host or "n/a",
            three_digits(each.items_per_second),
            _milliseconds(each.seconds),
            *([_milliseconds(each.ready)] if told.by_ready else []),
            str(each.last),
            *(["n/a" if each.rank.load_others is None else share(each.rank.load_others)] if loads else []),
        ]
        for each, remark in _folded(list(told.ranks), slowest_first)
    ]


def ranks_notes(run: RunRecord, told: Lateness | None) -> list[str]:
    """What sd is, how old gradients were, which ranks were lost or failed, how the common window was made."""
    lines = [text] if (text := _staleness([run])) else []
    if told:
        folded = f" {len(told.ranks)} ranks: the slowest, the median and the fastest are shown."
        many = folded if len(told.ranks) > MOST_RANKS else ""
        lines.append(f"sd is the standard deviation over the {len(told.ranks[0].seconds)} measured batches.{many}")
    if run.workers:
        lines += [f"Lost: {_why_lost(rank)}." for rank in run.workers.lost[:MOST_RANKS]]
        lines += [f"Failed: {_why_lost(rank)}." for rank in run.workers.ranks if rank.error][:MOST_RANKS]
        lines += [f"Common window: {run.workers.window}."] if run.workers.window else []
    return lines


def phases_grid(run: RunRecord) -> Grid:
    """(header, a line for each process that tells it, and for the run): seconds of each phase, and their total."""
    ranks = [(rank, rank.phases) for rank in (run.workers.ranks if run.workers else ()) if rank.phases]
    slowest_first = sorted(ranks, key=lambda each: -(each[1].start + each[1].cluster + each[1].build))
    names = [name for name in PHASES if name != "cluster" or run.workers]
    lines = [
        [f"{rank.rank} ({rank.role}){remark}", *_seconds(phases, names)]
        for (rank, phases), remark in _folded(ranks, slowest_first)
    ]
    lines.append(["the run", *_seconds(run.phases, names)])
    return ["Rank" if ranks else "Seconds", *(f"{PHASES[name]} (s)" for name in names), "Total (s)"], lines


def as_json(run: RunRecord) -> dict[str, Any]:
    """Phases of the run and of its ranks in seconds, and which ranks are late."""
    verdict = lateness(run)
    ranks = run.workers.ranks if run.workers else ()
    return {
        "phases_s": {**run.phases.parts, "total": run.phases.total},
        "ranks": [
            {"rank": rank.rank, "role": rank.role, "phases_s": {**rank.phases.parts, "total": rank.phases.total}}
            for rank in ranks
            if rank.phases
        ],
        "late": {"ranks": list(verdict.late), **verdict.why.data()} if verdict else None,
    }


def row_as_json(row: Row) -> dict[str, Any]:
    """Of each good run of a row: its late ranks, its lost ones, its staleness."""
    runs = []
    for run in row.good:
        told, workers = lateness(run), run.workers
        runs.append(
            {
                "late": {"ranks": list(told.late), **told.why.data()} if told else None,
                "lost": [rank.rank for rank in workers.lost] if workers else [],
                "staleness": dict(workers.staleness) if workers and workers.staleness else None,
            }
        )
    return {"runs": runs}


def _folded(in_order: list[Any], slowest_first: list[Any]) -> list[tuple[Any, str]]:
    """All, or of many the slowest, the median and the fastest, with a remark that says which it is."""
    if len(in_order) <= MOST_RANKS:
        return [(each, "") for each in in_order]
    ends = (slowest_first[0], slowest_first[len(slowest_first) // 2], slowest_first[-1])
    return list(zip(ends, (", slowest", ", median", ", fastest")))


def _milliseconds(values: Sequence[float]) -> str:
    value = spread(values)
    return f"{1000 * value.mean:.2f} sd {1000 * value.scatter:.2f}"


def _seconds(phases: Phases, names: Sequence[str]) -> list[str]:
    parts = phases.parts
    return [*(f"{parts.get(name, 0.0):.2f}" for name in names), f"{phases.total:.2f}"]
