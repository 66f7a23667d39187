"""The ranks of a distributed run: lost workers, staleness, late ranks, seconds by rank.

The keys of `make_row_data` are part of report.json: never rename one.
"""

import dataclasses
import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.steps.parts import measure_spread
from rnn_scaling.analysis.steps.straggler import Lateness, judge_ranks
from rnn_scaling.config import registry
from rnn_scaling.records import early_steps
from rnn_scaling.records.parts import Phases
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.workers import Rank
from rnn_scaling.reports.sections import Columns, Grid, Section
from rnn_scaling.reports.steps import format_milliseconds
from rnn_scaling.reports.wording import format_share, make_unit_heading
from rnn_scaling.system.files.terminal import format_three_digits

# The most ranks that a table lists. If there are more, it lists the slowest, the median
# and the fastest.
_MAX_RANKS = 16
PHASES = {
    "start": "Start",
    "cluster": "Cluster",
    "build": "Build",
    "first_batch": "First batch",
    "warmup": "Warm-up",
    "measured": "Measured",
    "teardown": "End",
}
Member = TypeVar("Member")


def state_workers(row: Row, title: str) -> list[Statement]:
    """State how old gradients were, which workers were lost, and steps without a wait."""
    statements = _state_staleness("stale-gradients", row.good_runs, title)
    values = {"runs": len(row.good_runs), "devices": row.devices}
    losing = runs_with_losses(row)
    if losing and losing[0].workers:
        first = _format_failure(losing[0].workers.lost[0])
        lost = {"lost": len(losing), "workers": row.num_workers, "first": first}
        statements.append(state("workers-lost", title, **values | lost))
    patterns = [_format_early_steps(run) for run in row.good_runs]
    patterns = [pattern for pattern in patterns if pattern]
    if patterns:
        steps = {"steps": len(patterns), "text": patterns[0]}
        statements.append(state("steps-not-waited-for", title, **values | steps))
    return statements


def _format_early_steps(run: RunRecord) -> str:
    """Return the sign that steps did not wait for the devices, or an empty text."""
    if run.batches.early_steps is None:
        return run.batches.unwaited or ""
    return early_steps.describe(run.batches.early_steps)


def runs_with_losses(row: Row) -> list[RunRecord]:
    """Return the good runs that continued without some of their workers."""
    return [run for run in row.good_runs if run.workers and run.workers.lost]


def _list_ranks_of_run(run: RunRecord) -> Sequence[Rank]:
    return run.workers.ranks if run.workers else ()


def _format_failure(rank: Rank) -> str:
    """Return the rank, its host and why it ended."""
    error = (rank.error or "").rstrip(".")
    # An older record has no kind of failure, but its error may name the rank.
    if rank.failure is not None or error.startswith(f"rank {rank.rank} "):
        return error
    name = f"rank {rank.rank} on {rank.host}" if rank.host else f"rank {rank.rank}"
    return f"{name}: {error}" if error else name


def _state_staleness(
    kind: str, runs: Sequence[RunRecord], title: str = ""
) -> list[Statement]:
    """State how many updates old the gradients were; nothing if all were new."""
    counts: Counter[int] = Counter()
    for run in runs:
        ages = (run.workers.staleness if run.workers else None) or {}
        counts.update({int(age): count for age, count in ages.items()})
    oldest = max((age for age, count in counts.items() if count), default=0)
    if not oldest:
        return []
    mean = sum(age * count for age, count in counts.items()) / counts.total()
    return [state(kind, title, mean=mean, most=oldest)]


def list_late_ranks(run: RunRecord) -> Lateness | None:
    """Return for which ranks the others wait; None unless several timed their batches."""
    if run.workers is None:
        return None
    exchanges = registry.find_mode(run.options["variable_update"]).trains_one_model
    return judge_ranks(run.workers, run.batches.warmup, exchanges)


def make_row_section(row: Row, title: str) -> Section | None:
    """Return the ranks of a row's first good run; None if there is nothing to show."""
    if row.num_workers == 1 or not row.good_runs:
        return None
    run, *repeats = row.good_runs
    section = make_ranks_section(run, title)
    lateness = list_late_ranks(run)
    if lateness and repeats:
        verdicts = [
            verdict.late_ranks for verdict in map(list_late_ranks, repeats) if verdict
        ]
        note = state(
            "ranks-of-first-run",
            runs=len(row.good_runs),
            same=verdicts.count(lateness.late_ranks),
            others=len(repeats),
        )
        section = dataclasses.replace(section, notes=(*section.notes, note))
    return section if section.grids or section.notes else None


def make_ranks_section(run: RunRecord, title: str) -> Section:
    """Return the ranks of a run; the table needs batches that the ranks timed."""
    lateness = list_late_ranks(run)
    grid = make_ranks_grid(lateness, run.unit) if lateness else _make_steps_grid(run)
    notes = [lateness.reason] if lateness else []
    notes += make_ranks_notes(run, lateness)
    return Section(title, (grid,) if grid else (), tuple(notes))


def _make_steps_grid(run: RunRecord) -> Grid | None:
    """Return how many steps each worker did for a coordinator; None of other runs."""
    everyone = run.workers.workers if run.workers else ()
    workers = [rank for rank in everyone if rank.items and not rank.seconds]
    if not workers:
        return None
    num_steps = sum(len(rank.items) for rank in workers)
    num_items = sum(sum(rank.items) for rank in workers)
    fewest_first = sorted(workers, key=lambda rank: len(rank.items))
    lines = []
    for rank, remark in _select_ranks(workers, fewest_first):
        share_of_items = f"{100 * sum(rank.items) / num_items:.1f}"
        name = f"{rank.rank}{remark}"
        lines.append([name, rank.host or "n/a", f"{len(rank.items):,}", share_of_items])
    steps_heading = f"Steps (of {num_steps:,})"
    head = ["Rank", "Host", steps_heading, f"{make_unit_heading(run.unit)} (%)"]
    return Grid("By rank", head, lines, text_columns=(1,))


def make_ranks_grid(lateness: Lateness, unit: str) -> Grid:
    """Return a line for each rank that timed its batches."""
    columns: Columns = {
        "Host": lambda rank_times: rank_times.rank.host or "n/a",
        f"{make_unit_heading(unit)}/s": lambda rank_times: format_three_digits(
            rank_times.items_per_second
        ),
        "Batch (ms)": lambda rank_times: format_milliseconds(
            measure_spread(rank_times.seconds)
        ),
    }
    if lateness.by_ready:
        columns["Gradients ready after (ms)"] = lambda rank_times: format_milliseconds(
            measure_spread(rank_times.ready)
        )
    columns["Last in batches"] = lambda rank_times: str(rank_times.num_last)
    if any(rank_times.rank.load_others is not None for rank_times in lateness.ranks):
        columns["Load of others"] = lambda rank_times: _load_text(rank_times.rank)

    compared_times = operator.attrgetter("ready" if lateness.by_ready else "seconds")
    slowest_first = sorted(
        lateness.ranks,
        key=lambda rank_times: -measure_spread(compared_times(rank_times)).mean,
    )
    lines = []
    for rank_times, remark in _select_ranks(lateness.ranks, slowest_first):
        cells = [cell(rank_times) for cell in columns.values()]
        lines.append([f"{rank_times.rank.rank}{remark}", *cells])
    return Grid("By rank", ["Rank", *columns], lines, text_columns=(1,))


def _load_text(rank: Rank) -> str:
    return "n/a" if rank.load_others is None else format_share(rank.load_others)


def make_ranks_notes(run: RunRecord, lateness: Lateness | None) -> list[Statement]:
    """State what sd is, which ranks were lost or failed, and how the window was made."""
    notes = _state_staleness("gradients-age", [run])
    if lateness:
        batches = len(lateness.ranks[0].seconds)
        notes.append(state("ranks-scatter", batches=batches))
        if len(lateness.ranks) > _MAX_RANKS:
            count = len(lateness.ranks)
            notes.append(state("ranks-folded", ranks=count))
    if run.workers:
        failed_ranks = [
            rank for rank in run.workers.ranks if rank.failure or rank.error
        ]
        for rank in run.workers.lost[:_MAX_RANKS]:
            notes.append(state("rank-lost", _format_failure(rank)))
        for rank in failed_ranks[:_MAX_RANKS]:
            notes.append(state("rank-failed", _format_failure(rank)))
        if run.workers.window:
            notes.append(state("common-window", run.workers.window))
    return notes


def make_phases_grid(run: RunRecord) -> Grid:
    """Return the seconds of each phase of the run, and of its ranks if recorded."""
    names = [name for name in PHASES if name != "cluster" or run.workers]
    ranks_with_phases = [
        (rank, rank.phases) for rank in _list_ranks_of_run(run) if rank.phases
    ]
    slowest_first = sorted(
        ranks_with_phases, key=lambda pair: -_sum_seconds_before_training(pair[1])
    )

    lines = []
    for (rank, phases), remark in _select_ranks(ranks_with_phases, slowest_first):
        name = f"{rank.rank} ({rank.role}){remark}"
        lines.append([name, *_make_phase_cells(phases, names)])
    lines.append(["the run", *_make_phase_cells(run.phases, names)])
    head = [
        "Rank" if ranks_with_phases else "Seconds",
        *(f"{PHASES[name]} (s)" for name in names),
    ]
    return Grid("Seconds of the run", [*head, "Total (s)"], lines)


def _sum_seconds_before_training(phases: Phases) -> float:
    return phases.start + phases.cluster + phases.build


def _make_phase_cells(phases: Phases, names: Sequence[str]) -> list[str]:
    seconds = [phases.parts.get(name, 0.0) for name in names]
    return [f"{second:.2f}" for second in (*seconds, phases.total)]


def run_data(run: RunRecord) -> dict[str, Any]:
    """Return the phases of the run and its ranks in seconds, and which are late."""
    ranks = []
    for rank in _list_ranks_of_run(run):
        if rank.phases:
            phases = _make_phases_data(rank.phases)
            ranks.append({"rank": rank.rank, "role": rank.role, "phases_s": phases})
    return {
        "phases_s": _make_phases_data(run.phases),
        "ranks": ranks,
        "late": _make_late_data(run),
    }


def _make_phases_data(phases: Phases) -> dict[str, float]:
    return {**phases.parts, "total": phases.total}


def _make_late_data(run: RunRecord) -> dict[str, Any] | None:
    lateness = list_late_ranks(run)
    return (
        {"ranks": list(lateness.late_ranks), **lateness.reason.data()}
        if lateness
        else None
    )


def make_row_data(row: Row) -> dict[str, Any]:
    """Return late ranks, lost ranks and staleness of each good run of a row."""
    runs = []
    for run in row.good_runs:
        lost = [rank.rank for rank in run.workers.lost] if run.workers else []
        staleness = dict(run.workers.staleness or {}) if run.workers else {}
        late_data = _make_late_data(run)
        runs.append({"late": late_data, "lost": lost, "staleness": staleness or None})
    return {"runs": runs}


def _select_ranks(
    in_order: Sequence[Member], slowest_first: Sequence[Member]
) -> list[tuple[Member, str]]:
    """Return the ranks of a table, each with a remark.

    Of more than _MAX_RANKS, these are the slowest, the median and the fastest.
    """
    if len(in_order) <= _MAX_RANKS:
        return [(member, "") for member in in_order]
    return [
        (slowest_first[0], ", slowest"),
        (slowest_first[len(slowest_first) // 2], ", median"),
        (slowest_first[-1], ", fastest"),
    ]
