"""One HTML page that opens from disk: nothing in it is fetched, and its words and numbers are those of the Summary."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.attribution import CONTENTION, EXCHANGE, FIXED, IMBALANCE, INPUT, MEANING, OVERSUBSCRIPTION
from rnn_scaling.analysis.metrics import ITEMS, one_of
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import answer, table
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page import inside
from rnn_scaling.reports.page.parts import MOST_FIGURES, Figure, Grid, figure_of
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.summary import RowSummary, RunSteady, SeriesSummary, Summary, repeated

ORDER = (OVERSUBSCRIPTION, CONTENTION, EXCHANGE, INPUT, IMBALANCE, FIXED)
TEMPLATES = Path(__file__).parent / "template"
MOST_COMMANDS = 200  # rows with a command of their own
ROUNDING = 1e-9  # shares below it are the error of floating point
MOST_STEADY = 500  # runs in the table of steady states


def render(summary: Summary, made_by: str = "") -> bytes:
    """The page as UTF-8.

    Args:
      summary: what it says.
      made_by: the command that shows these pictures, where it is not the command report.
    """
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["unbroken"] = _unbroken
    page = environment.get_template("page.html").render(**_context(summary, made_by))
    return page.encode()


def _context(summary: Summary, made_by: str) -> dict[str, Any]:
    measured = summary.measured
    losses = [each for each in measured if each.largest and each.largest.loss and each.largest.loss.is_told]
    parts = [each.largest.loss.parts for each in losses if each.largest and each.largest.loss]
    return {
        "schema": REPORT_SCHEMA,
        "name": Path(summary.name).resolve().name or summary.name,
        "report_command": made_by or f"{entry.program()} report {shlex.quote(summary.name)}",
        "runs": summary.runs,
        "unit": summary.unit,
        "one": one_of(summary.unit),
        "counted": list(dict.fromkeys((each.unit, each.rows[0].row.items) for each in summary.series)),
        "lead": _unbroken(answer.lead(summary)),
        "overview": _unbroken(answer.overview(summary)),
        "sentences": [_unbroken(answer.sentence(each)) for each in summary.series] if len(summary.series) > 1 else [],
        "missing": _missing(summary),
        "cautions": summary.cautions,
        "kinds": answer.kinds(summary.series),
        "series": [_series(each, k) for k, each in enumerate(summary.series)],
        "commands": _row_commands(summary),
        "curves": _curves(summary),
        "losses": [_loss(each, k) for k, each in enumerate(losses)],
        "splits": [(grid, table.parts_notes(each)) for each in measured if (grid := _split(each))],
        "meaning": {
            name: MEANING[name].replace(ITEMS, summary.unit)
            for name in ORDER
            if name in {part.name for loss in parts for part in loss}
        },
        "steps": inside.steps_of(measured),
        "step_parts": inside.parts_of(measured),
        "counts": inside.counts_of(summary),
        "times": _batch_times(measured),
        "steady": _steady_grid(summary),
        "unjudged": summary.unjudged,
        "speedups": [grid for each in measured if (grid := _speedups(each))],
        "fixed_cost": [text for each in measured if (text := _fixed_cost(each))],
        "padding": _padding(measured),
        "scalings": {each.strong for each in summary.series},
        "failures": _failures(summary),
        "left_out": summary.left_out,
        "facts": summary.facts,
        "differences": _differences(summary),
    }


def _unbroken(text: str) -> str:
    """The text with a number, its interval and its unit kept on one line."""
    text = re.sub(r" \[(-?[\d.,]+), (-?[\d.,]+)\]", "\u00a0[\\1,\u00a0\\2]", text)
    return text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")


def _missing(summary: Summary) -> list[tuple[str, list[str]]]:
    """(series, commands that supply what could not be said of them); series that need the same are one entry."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for each in summary.series[:MOST_FIGURES]:
        if commands := answer.missing(each):
            titles.setdefault(tuple(commands), []).append(each.title)
    return [("; ".join(names), [summary.supplying(c) for c in commands]) for commands, names in titles.items()]


def _series(series: SeriesSummary, k: int) -> dict[str, Any]:
    rows = [row.row for row in series.rows]
    head, lines = table.grid(rows)
    further = table.further_grid(rows)
    config = rows[-1].config
    if series.strong:
        constant = (
            f"Strong scaling: all devices together have {config['global_batch_size']} {rows[-1].samples} a step, so a "
            "device has less to do the more there are."
        )
    else:
        constant = (
            f"Weak scaling: every device has {config['batch_size']} {rows[-1].samples} a step, so n devices do n times "
            "the work."
        )
    return {
        "id": f"series-{k}",
        "title": series.title,
        "constant": constant,
        "grid": Grid(series.title, head, lines),
        "notes": table.notes(rows),
        "further": Grid(f"{series.title}: what else was measured", *further) if further[1] else None,
        "further_notes": table.further_notes(rows),
        "command": series.command(),
    }


def _row_commands(summary: Summary) -> list[tuple[str, str, str]]:
    rows = [(series.title, row.devices, row.row) for series in summary.series for row in series.rows]
    return [(title, count, repeated(row)) for title, count, row in rows[:MOST_COMMANDS]]


def _curves(summary: Summary) -> list[dict[str, Any]]:
    """The pictures of weak and of strong scaling, each with a legend of its own."""
    groups = figures.groups(summary)
    curves = []
    for k, (name, series) in enumerate(groups):
        if pictures := _lines(series, f"-{k}" if k else ""):
            titles = [each.title for each in series[: figures.MOST_LINES]]
            curves.append(
                {
                    "name": name if len(groups) > 1 else "",
                    "figures": pictures,
                    "legend": list(zip(titles, _swatches(series))),
                    "undrawn": max(0, len(series) - figures.MOST_LINES),
                }
            )
    return curves


def _split(series: SeriesSummary) -> Grid | None:
    """What each part takes on every number of devices; one number alone stands beside its waterfall already."""
    head, lines = table.parts_grid(series)
    return Grid(f"{series.title}: points of efficiency", head, lines) if len(lines) > 1 else None


def _lines(series: Sequence[SeriesSummary], suffix: str) -> list[Figure]:
    if len({row.row.num_devices for each in series for row in each.rows if row.row.rate}) < 2:
        return []  # one number of devices makes no line
    pictures = []
    for metric in figures.drawn(series):
        if any(row.row.metric(metric) for each in series for row in each.rows):
            about = (
                f"{metric.caption} over the number of devices, a line for each series; the numbers stand in the tables "
                "above."
            )
            name = f"fig-{metric.name}{suffix}"
            pictures.append(figure_of(figures.lines(series, metric, name=name), name, metric.caption, about))
    return pictures


def _swatches(series: Sequence[SeriesSummary]) -> list[dict[str, str]]:
    dashes = {"-": "", "--": "5 2.5", ":": "1.5 2", "-.": "6 2 1.5 2"}
    shapes = {
        "o": "M14 3a3 3 0 1 0 .01 0z",
        "s": "M11 3h6v6h-6z",
        "^": "M14 2.4l3.6 6.4h-7.2z",
        "D": "M14 2l4 4-4 4-4-4z",
    }
    looks = figures.looks(series[: figures.MOST_LINES])
    return [
        {
            "colour": figures.themed(look["color"].lower()),
            "dash": dashes[look["linestyle"]],
            "shape": shapes[look["marker"]],
        }
        for look in looks
    ]


def _loss(series: SeriesSummary, k: int) -> dict[str, Any]:
    row = series.largest
    if row is None or row.loss is None:
        raise ValueError("expected a row with a loss")
    loss = row.loss
    lines = [[part.name, plus_minus(part.points, 1), plus_minus(part.value, 1)] for part in loss.shown]
    lines.append(["whole loss", plus_minus(loss.loss_points, 1), plus_minus(loss.loss, 1)])
    values = [*(part.points for part in loss.shown), loss.loss_points]
    kinds = dict.fromkeys(f"± is the longer side of the interval: {v.kind}." for v in values if v and v.half_width)
    caption = f"{series.title}: loss on {row.devices} against {row.row.num_devices} times one"
    figure = None
    if k < MOST_FIGURES and loss.is_told:
        about = f"{answer.sentence(series)} The numbers stand in the table beside it."
        figure = figure_of(figures.waterfall(loss, f"waterfall-{k}"), f"waterfall-{k}", caption, about)
    return {
        "title": f"{series.title}, {row.devices}",
        "figure": figure,
        "grid": Grid(caption, ["Part", "Points of efficiency", f"{series.unit.capitalize()}/s"], lines),
        "notes": [*kinds],
        "command": series.command(),
    }


def _batch_times(series: Sequence[SeriesSummary]) -> list[tuple[Figure, str]]:
    """A picture for each series' run on one device and on the most."""
    ends = [row for each in series for row in dict.fromkeys((each.rows[0], each.largest)) if row and row.steady]
    titles = {id(row): each.title for each in series for row in each.rows}
    drawn = []
    for k, row in enumerate(ends[:MOST_FIGURES]):
        run = row.steady[0]
        title = f"{titles[id(row)]}, {row.devices}"
        about = f"{run.file}: {len(run.record.batches.seconds)} batches, {run.state.text}"
        drawn.append((figure_of(figures.batch_times(run, f"times-{k}"), f"times-{k}", title, about), _when(run)))
    return drawn


def _when(run: RunSteady) -> str:
    """The kind, the cut and what it moves, in a few words."""
    state, warmup = run.state, run.record.batches.warmup
    if state.start is None or state.move is None:
        return state.text
    start = "the first batch" if state.start == 0 else f"batch {state.start}"
    move = f"{100 * state.move:+.1f} %".replace("-", "\u2212")
    return f"{state.kind}, steady from {start}; the headline, which skips {warmup}, would move by {move}"


def _steady_grid(summary: Summary) -> Grid | None:
    runs = [(row.devices, run) for each in summary.series for row in each.rows for run in row.steady][:MOST_STEADY]
    head = ["Run", "Devices", "Kind", "Skipped", "Steady from batch", "Headline would move"]
    lines = [_steady_line(count.split()[0], run) for count, run in runs]
    return Grid("What the batch times of each run say", head, lines, (2,)) if lines else None


def _steady_line(count: str, run: RunSteady) -> list[str]:
    state = run.state
    start = "n/a" if state.start is None else str(state.start)
    move = "n/a" if state.move is None else f"{100 * state.move:+.1f} %"
    return [run.file, count, state.kind, str(run.record.batches.warmup), start, move]


PHASES = {"start": "Start", "build": "Build", "first_batch": "First batch", "warmup": "Warm-up", "measured": "Measured"}


def _speedups(series: SeriesSummary) -> Grid | None:
    rows = [row for row in series.rows if row.speedups]
    if len(rows) < 2:
        return None
    head = [
        "Devices",
        "Measured",
        "Train",
        "Total",
        "Same work",
        *(f"{name} (s)" for name in (*PHASES.values(), "End")),
    ]
    return Grid(series.title, head, [_speedup_line(row) for row in rows])


def _speedup_line(row: RowSummary) -> list[str]:
    speedups = row.speedups
    if speedups is None:
        raise ValueError("expected a row with phases")
    three = [plus_minus(value, 2) for value in (speedups.steady, speedups.train, speedups.total)]
    seconds = [f"{speedups.phases.get(name, 0.0):.2f}" for name in (*PHASES, "teardown")]
    return [str(row.row.num_devices), *three, f"{speedups.same_work:.2f}", *seconds]


def _fixed_cost(series: SeriesSummary) -> str | None:
    row = series.largest
    if row is None or row.speedups is None or row.row.num_devices == 1:
        return None
    speedups = row.speedups
    whole = sum(speedups.phases.values())
    return (
        f"{series.title}: on {row.devices} {speedups.once:.1f} s of {whole:.1f} s are spent once, whatever the number "
        f"of batches (start, build, first batch, end). The {series.unit} of the run on 1 device would be done "
        f"{speedups.same_work:.2f} times as soon on {row.devices}, not {speedups.steady.value:.2f} times."
    )


def _padding(series: Sequence[SeriesSummary]) -> Grid | None:
    rows = [(each.title, row) for each in series for row in each.rows if row.padding or row.imbalance > ROUNDING]
    head = ["Series", "Devices", "Padding (% of positions)", "Waiting for the longest (% of time)"]
    lines = [
        [
            title,
            str(row.row.num_devices),
            "n/a" if row.padding is None else f"{100 * row.padding:.1f}",
            f"{100 * row.imbalance / (1 + row.imbalance):.1f}",
        ]
        for title, row in rows
    ]
    return Grid("Padding, and waiting for the tower with the longest sentences", head, lines) if lines else None


def _differences(summary: Summary) -> Grid | None:
    head = ["What", "Most runs", "Others", "What it does", "Gravity"]
    lines = [[d.what, d.a, d.b, d.effect, d.severity] for d in summary.differences]
    return Grid("Differences between the runs", head, lines, (1, 2, 3, 4)) if lines else None


def _failures(summary: Summary) -> Grid | None:
    lines = [[f.file, f.title, str(f.num_devices), f.reason] for f in summary.failures]
    return Grid("Runs that measured nothing", ["File", "Series", "Devices", "Reason"], lines, (1, 3)) if lines else None
