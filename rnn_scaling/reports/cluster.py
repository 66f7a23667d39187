"""The processes of a distributed run in words: lost workers, staleness, late ranks, and where its time went by rank."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import spread
from rnn_scaling.analysis.steps.straggler import Lateness, judge_ranks
from rnn_scaling.config import registry
from rnn_scaling.records.parts import EarlyStepsKind, Phases
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import Rank
from rnn_scaling.reports.numbers import share, unit_heading
from rnn_scaling.reports.sections import Columns, Grid, Section
from rnn_scaling.reports.steps import milliseconds
from rnn_scaling.reports.wording import phrase
from rnn_scaling.system.files.terminal import three_digits

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


def worker_statements(row: Row, title: str) -> list[Statement]:
    """State how old gradients were, that workers were lost, that no step waited."""
    found = _stale("stale-gradients", row.good_runs, title)
    values = {"runs": len(row.good_runs), "devices": row.devices}
    losing = runs_with_losses(row)
    if losing and losing[0].workers:
        first = _why_lost(losing[0].workers.lost[0])
        lost = {"lost": len(losing), "workers": row.num_workers, "first": first}
        found.append(Statement("workers-lost", title, values | lost))
    patterns = [early_steps(run) for run in row.good_runs]
    patterns = [pattern for pattern in patterns if pattern]
    if patterns:
        steps = {"steps": len(patterns), "text": patterns[0]}
        found.append(Statement("steps-not-waited-for", title, values | steps))
    return found


def early_steps(run: RunRecord) -> str:
    """Return the sign that steps did not wait for the devices, or an empty text."""
    pattern = run.batches.early_steps
    if pattern is None:
        return run.batches.unwaited or ""
    if pattern.kind not in {kind.value for kind in EarlyStepsKind}:
        return phrase(Statement("early-steps-other"))
    values = {
        "steps": pattern.steps,
        "total": pattern.total_steps,
        "seconds": pattern.seconds,
        "share": pattern.seconds / max(pattern.total_seconds, 1e-9),
        "total_seconds": pattern.total_seconds,
    }
    return phrase(Statement(f"early-steps-{pattern.kind}", values=values))


def runs_with_losses(row: Row) -> list[RunRecord]:
    """Return the good runs that continued without some of their workers."""
    return [run for run in row.good_runs if run.workers and run.workers.lost]


def _ranks(run: RunRecord) -> Sequence[Rank]:
    return run.workers.ranks if run.workers else ()


def _why_lost(rank: Rank) -> str:
    """Return "rank 2 on b: killed by signal 9", or an error that names the rank."""
    error = (rank.error or "").rstrip(".")
    if error.startswith(f"rank {rank.rank} "):
        return error
    where = f" on {rank.host}" if rank.host else ""
    return f"rank {rank.rank}{where}{f': {error}' if error else ''}"


def _stale(kind: str, runs: Sequence[RunRecord], title: str = "") -> list[Statement]:
    """State how many updates old the gradients were; nothing if all were new."""
    counts: Counter[int] = Counter()
    for run in runs:
        ages = (run.workers.staleness if run.workers else None) or {}
        counts.update({int(age): count for age, count in ages.items()})
    most = max((age for age, count in counts.items() if count), default=0)
    if not most:
        return []
    mean = sum(age * count for age, count in counts.items()) / counts.total()
    return [Statement(kind, title, {"mean": mean, "most": most})]


def late_ranks(run: RunRecord) -> Lateness | None:
    """Which ranks of a run the others wait for; None where it does not have several with batches of their own."""
    if run.workers is None:
        return None
    exchanges = registry.mode_of(run.options["variable_update"]).trains_one_model
    return judge_ranks(run.workers, run.batches.warmup, exchanges)


def row_section(row: Row, title: str) -> Section | None:
    """Return the ranks of a row's first good run; None if there is nothing to show."""
    if row.num_workers == 1 or not row.good_runs:
        return None
    run, *others = row.good_runs
    section = ranks_section(run, title)
    verdict = late_ranks(run)
    if verdict and others:
        repeats = [repeat.late for repeat in map(late_ranks, others) if repeat]
        values = {
            "runs": len(row.good_runs),
            "same": repeats.count(verdict.late),
            "others": len(others),
        }
        note = Statement("ranks-of-first-run", values=values)
        section = dataclasses.replace(section, notes=(*section.notes, note))
    return section if section.grids or section.notes else None


def ranks_section(run: RunRecord, title: str) -> Section:
    """Return the ranks of a run; no table if they timed no batches of their own."""
    verdict = late_ranks(run)
    grid = ranks_grid(verdict, run.unit) if verdict else steps_grid(run)
    why = (verdict.why,) if verdict else ()
    return Section(title, (grid,) if grid else (), (*why, *ranks_notes(run, verdict)))


def steps_grid(run: RunRecord) -> Grid | None:
    """Return how many steps each worker did for a coordinator; None of other runs."""
    every = run.workers.workers if run.workers else ()
    workers = [rank for rank in every if rank.items and not rank.seconds]
    if not workers:
        return None
    steps = sum(len(rank.items) for rank in workers)
    items = sum(sum(rank.items) for rank in workers)
    fewest_first = sorted(workers, key=lambda rank: len(rank.items))
    lines = []
    for rank, remark in _folded(workers, fewest_first):
        share_of_items = f"{100 * sum(rank.items) / items:.1f}"
        name = f"{rank.rank}{remark}"
        lines.append([name, rank.host or "n/a", f"{len(rank.items):,}", share_of_items])
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
    """State what sd is, which ranks were lost or failed, and how the window was made."""
    notes = _stale("gradients-age", [run])
    if verdict:
        batches = len(verdict.ranks[0].seconds)
        notes.append(Statement("ranks-scatter", values={"batches": batches}))
        if len(verdict.ranks) > MOST_RANKS:
            count = len(verdict.ranks)
            notes.append(Statement("ranks-folded", values={"ranks": count}))
    if run.workers:
        failed = [rank for rank in run.workers.ranks if rank.error]
        named = {"rank-lost": run.workers.lost, "rank-failed": failed}
        for kind, ranks in named.items():
            few = list(ranks)[:MOST_RANKS]
            notes += [Statement(kind, _why_lost(rank)) for rank in few]
        if run.workers.window:
            notes.append(Statement("common-window", run.workers.window))
    return notes


def phases_grid(run: RunRecord) -> Grid:
    """Return the seconds of each phase, by rank if they are recorded, and of the run."""
    names = [name for name in PHASES if name != "cluster" or run.workers]

    def line(title: str, phases: Phases) -> list[str]:
        seconds = [phases.parts.get(name, 0.0) for name in names]
        return [title, *(f"{second:.2f}" for second in (*seconds, phases.total))]

    ranks = [(rank, rank.phases) for rank in _ranks(run) if rank.phases]
    slowest_first = sorted(
        ranks, key=lambda rank: -(rank[1].start + rank[1].cluster + rank[1].build)
    )
    lines = [
        line(f"{rank.rank} ({rank.role}){remark}", phases)
        for (rank, phases), remark in _folded(ranks, slowest_first)
    ]
    head = ["Rank" if ranks else "Seconds", *(f"{PHASES[name]} (s)" for name in names)]
    lines.append(line("the run", run.phases))
    return Grid("Seconds of the run", [*head, "Total (s)"], lines)


def run_data(run: RunRecord) -> dict[str, Any]:
    """Return the phases of the run and its ranks in seconds, and which are late."""
    ranks = [
        {"rank": rank.rank, "role": rank.role, "phases_s": _phases_data(rank.phases)}
        for rank in _ranks(run)
        if rank.phases
    ]
    return {
        "phases_s": _phases_data(run.phases),
        "ranks": ranks,
        "late": _late_data(run),
    }


def _phases_data(phases: Phases) -> dict[str, float]:
    return {**phases.parts, "total": phases.total}


def _late_data(run: RunRecord) -> dict[str, Any] | None:
    verdict = late_ranks(run)
    return {"ranks": list(verdict.late), **verdict.why.data()} if verdict else None


def row_data(row: Row) -> dict[str, Any]:
    """Return late ranks, lost ranks and staleness of each good run of a row."""
    runs = []
    for run in row.good_runs:
        lost = [rank.rank for rank in run.workers.lost] if run.workers else []
        staleness = dict(run.workers.staleness or {}) if run.workers else {}
        late = _late_data(run)
        runs.append({"late": late, "lost": lost, "staleness": staleness or None})
    return {"runs": runs}


def _folded(in_order: list[Any], slowest_first: list[Any]) -> list[tuple[Any, str]]:
    """All, or of many the slowest, the median and the fastest, with a remark that says which it is."""
    if len(in_order) <= MOST_RANKS:
        return [(member, "") for member in in_order]
    ends = (slowest_first[0], slowest_first[len(slowest_first) // 2], slowest_first[-1])
    return list(zip(ends, (", slowest", ", median", ", fastest")))
