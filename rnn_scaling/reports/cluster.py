"""The processes of a distributed run in words: lost workers, staleness, late ranks, and where its time went by rank."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.rows import Row, full_config
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import spread
from rnn_scaling.analysis.steps.straggler import Lateness, judge_ranks
from rnn_scaling.config import registry
from rnn_scaling.records.parts import Phases
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import Rank
from rnn_scaling.reports.numbers import share, unit_heading
from rnn_scaling.reports.sections import Columns, Grid, Section
from rnn_scaling.reports.steps import milliseconds
from rnn_scaling.system.files.terminal import three_digits

MOST_RANKS = 16  # in a table; of more it has the slowest, the median and the fastest
PHASES = {
    "start": "Start",
    "cluster": "Cluster",
    "build": "Build",
    "first_batch": "First batch",
}
PHASES |= {"warmup": "Warm-up", "measured": "Measured", "teardown": "End"}


def remarks(row: Row, title: str) -> list[Statement]:
    """How old the gradients of a series' workers were, that some were lost, that no step waited."""
    return [
        *_stale("stale-gradients", row.good, title),
        *_losses(row, title),
        *_unwaited(row, title),
    ]


def runs_with_losses(row: Row) -> list[RunRecord]:
    """The good runs that went on without some of their workers."""
    return [run for run in row.good if run.workers and run.workers.lost]


def _unwaited(row: Row, title: str) -> list[Statement]:
    texts = [run.batches.unwaited for run in row.good if run.batches.unwaited]
    values = {"steps": len(texts), "runs": len(row.good), "devices": row.devices}
    return (
        [Statement("steps-not-waited-for", title, {**values, "text": texts[0]})]
        if texts
        else []
    )


def _losses(row: Row, title: str) -> list[Statement]:
    runs = runs_with_losses(row)
    lost = [rank for run in runs if run.workers for rank in run.workers.lost]
    if not lost:
        return []
    values = {
        "lost": len(runs),
        "runs": len(row.good),
        "devices": row.devices,
        "workers": row.num_workers,
    }
    return [Statement("workers-lost", title, {**values, "first": _why_lost(lost[0])})]


def _why_lost(rank: Rank) -> str:
    """ "rank 2 on b: killed by signal 9"; the line that was said of it where that names it already."""
    if rank.error and rank.error.startswith(f"rank {rank.rank} "):
        return rank.error.rstrip(".")
    where = f" on {rank.host}" if rank.host else ""
    why = f": {rank.error.rstrip('.')}" if rank.error else ""
    return f"rank {rank.rank}{where}{why}"


def _stale(kind: str, runs: Sequence[RunRecord], title: str = "") -> list[Statement]:
    """How many updates old the gradients were; empty where all were new."""
    counts: Counter[int] = Counter()
    for run in runs:
        ages = (run.workers.staleness if run.workers else None) or {}
        counts.update({int(age): count for age, count in ages.items()})
    most = max((age for age, count in counts.items() if count), default=0)
    if not most:
        return []
    mean = sum(age * count for age, count in counts.items()) / counts.total()
    return [Statement(kind, title, {"mean": mean, "most": most})]


def lateness(run: RunRecord) -> Lateness | None:
    """Which ranks of a run the others wait for; None where it does not have several with batches of their own."""
    if run.workers is None:
        return None
    exchanges = registry.mode_of(full_config(run)["variable_update"]).trains_one_model
    return judge_ranks(run.workers, run.batches.warmup, exchanges)


def by_rank(row: Row, title: str) -> Section | None:
    """The ranks of a row's first good run; None of one worker, or where there is nothing to show."""
    if row.num_workers == 1 or not row.good:
        return None
    run, *others = row.good
    section, verdict = ranks_section(run, title), lateness(run)
    if verdict and others:
        same = sum(
            repeat is not None and repeat.late == verdict.late
            for repeat in map(lateness, others)
        )
        values = {"runs": len(row.good), "same": same, "others": len(others)}
        section = dataclasses.replace(
            section,
            notes=(*section.notes, Statement("ranks-of-first-run", values=values)),
        )
    return section if section.grids or section.notes else None


def ranks_section(run: RunRecord, title: str) -> Section:
    """The ranks of a run; no table where they timed no batches of their own."""
    verdict = lateness(run)
    grid = ranks_grid(verdict, run.unit) if verdict else steps_grid(run)
    why = (verdict.why,) if verdict else ()
    return Section(title, (grid,) if grid else (), (*why, *ranks_notes(run, verdict)))


def steps_grid(run: RunRecord) -> Grid | None:
    """A line for each worker to which a coordinator handed steps: how many it did; None of other runs."""
    workers = [
        rank
        for rank in (run.workers.workers if run.workers else ())
        if rank.items and not rank.seconds
    ]
    if not workers:
        return None
    steps, items = (
        sum(len(rank.items) for rank in workers),
        sum(sum(rank.items) for rank in workers),
    )
    fewest_first = sorted(workers, key=lambda rank: len(rank.items))
    lines = [
        [
            f"{rank.rank}{remark}",
            rank.host or "n/a",
            f"{len(rank.items):,}",
            f"{100 * sum(rank.items) / items:.1f}",
        ]
        for rank, remark in _folded(workers, fewest_first)
    ]
    head = ["Rank", "Host", f"Steps (of {steps:,})", f"{unit_heading(run.unit)} (%)"]
    return Grid("By rank", head, lines, text_columns=(1,))


def ranks_grid(verdict: Lateness, unit: str) -> Grid:
    """A line for each rank that timed its batches; of many the slowest, the median and the fastest."""
    columns: Columns = {
        "Host": lambda timed: timed.rank.host or "n/a",
        f"{unit_heading(unit)}/s": lambda timed: three_digits(timed.items_per_second),
        "Batch (ms)": lambda timed: milliseconds(spread(timed.seconds)),
    }
    if verdict.by_ready:
        columns["Gradients ready after (ms)"] = lambda timed: milliseconds(
            spread(timed.ready)
        )
    columns["Last in batches"] = lambda timed: str(timed.last)
    if any(timed.rank.load_others is not None for timed in verdict.ranks):
        columns["Load of others"] = lambda timed: (
            "n/a" if (load := timed.rank.load_others) is None else share(load)
        )
    slowest_first = sorted(
        verdict.ranks,
        key=lambda timed: (
            -spread(timed.ready if verdict.by_ready else timed.seconds).mean
        ),
    )
    lines = [
        [f"{timed.rank.rank}{remark}", *(cell(timed) for cell in columns.values())]
        for timed, remark in _folded(list(verdict.ranks), slowest_first)
    ]
    return Grid("By rank", ["Rank", *columns], lines, text_columns=(1,))


def ranks_notes(run: RunRecord, verdict: Lateness | None) -> list[Statement]:
    """What sd is, how old gradients were, which ranks were lost or failed, how the common window was made."""
    notes = _stale("gradients-age", [run])
    if verdict:
        notes.append(
            Statement(
                "ranks-scatter", values={"batches": len(verdict.ranks[0].seconds)}
            )
        )
    if verdict and len(verdict.ranks) > MOST_RANKS:
        notes.append(Statement("ranks-folded", values={"ranks": len(verdict.ranks)}))
    if run.workers:
        failed = [rank for rank in run.workers.ranks if rank.error]
        notes += [
            Statement("rank-lost", _why_lost(rank))
            for rank in run.workers.lost[:MOST_RANKS]
        ]
        notes += [
            Statement("rank-failed", _why_lost(rank)) for rank in failed[:MOST_RANKS]
        ]
    if run.workers and run.workers.window:
        notes.append(Statement("common-window", run.workers.window))
    return notes


def phases_grid(run: RunRecord) -> Grid:
    """A line for each process that tells it, and for the run: seconds of each phase, and their total."""
    ranks = [
        (rank, rank.phases)
        for rank in (run.workers.ranks if run.workers else ())
        if rank.phases
    ]
    slowest_first = sorted(
        ranks, key=lambda rank: -(rank[1].start + rank[1].cluster + rank[1].build)
    )
    names = [name for name in PHASES if name != "cluster" or run.workers]
    folded = _folded(ranks, slowest_first)
    lines = [
        [f"{rank.rank} ({rank.role}){remark}", *_seconds(phases, names)]
        for (rank, phases), remark in folded
    ]
    lines.append(["the run", *_seconds(run.phases, names)])
    head = [
        "Rank" if ranks else "Seconds",
        *(f"{PHASES[name]} (s)" for name in names),
        "Total (s)",
    ]
    return Grid("Seconds of the run", head, lines)


def as_json(run: RunRecord) -> dict[str, Any]:
    """Phases of the run and of its ranks in seconds, and which ranks are late."""
    ranks = [
        {
            "rank": rank.rank,
            "role": rank.role,
            "phases_s": {**rank.phases.parts, "total": rank.phases.total},
        }
        for rank in (run.workers.ranks if run.workers else ())
        if rank.phases
    ]
    return {
        "phases_s": {**run.phases.parts, "total": run.phases.total},
        "ranks": ranks,
        "late": _late_data(run),
    }


def _late_data(run: RunRecord) -> dict[str, Any] | None:
    verdict = lateness(run)
    return {"ranks": list(verdict.late), **verdict.why.data()} if verdict else None


def row_as_json(row: Row) -> dict[str, Any]:
    """Of each good run of a row: its late ranks, its lost ones, its staleness."""
    runs = []
    for run in row.good:
        lost, staleness = (
            (run.workers.lost, dict(run.workers.staleness or {}))
            if run.workers
            else ((), {})
        )
        runs.append(
            {
                "late": _late_data(run),
                "lost": [rank.rank for rank in lost],
                "staleness": staleness or None,
            }
        )
    return {"runs": runs}


def _folded(in_order: list[Any], slowest_first: list[Any]) -> list[tuple[Any, str]]:
    """All, or of many the slowest, the median and the fastest, with a remark that says which it is."""
    if len(in_order) <= MOST_RANKS:
        return [(member, "") for member in in_order]
    ends = (slowest_first[0], slowest_first[len(slowest_first) // 2], slowest_first[-1])
    return list(zip(ends, (", slowest", ", median", ", fastest")))


def _seconds(phases: Phases, names: Sequence[str]) -> list[str]:
    parts = phases.parts
    return [*(f"{parts.get(name, 0.0):.2f}" for name in names), f"{phases.total:.2f}"]
