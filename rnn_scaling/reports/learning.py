"""What runs learned: do several devices reach the target in less time than one device? Sentences, table, curves."""

import math
from collections.abc import Mapping
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.learning import (
    ACCURACY,
    LOSS,
    WINDOW_BATCHES,
    Learned,
    Learning,
    Target,
    curve,
)
from rnn_scaling.analysis.losses import OtherLosses
from rnn_scaling.analysis.metrics import ITEMS, common_unit
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.reports.numbers import interval_data, plain, plus_minus, unit_heading
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.sections import Columns, Section, grid_of

SECONDS = "seconds"
MOST_POINTS = 300  # of a line of a picture
LOG_FROM = (
    20.0  # largest loss / smallest from which on the axis of losses is logarithmic
)


def in_words(target: Target) -> str:
    """ "90 % accuracy", "a loss of 2.5"."""
    return (
        f"{100 * target.value:g} % accuracy"
        if target.kind == ACCURACY
        else f"a loss of {target.value:g}"
    )


def statements(learning: Learning, titles: dict[Row, str]) -> list[Statement]:
    """Return whether several devices reach the target sooner than one device.

    Without a configuration on several devices, it is about one device. Configurations
    that train otherwise come first, because their times compare different trainings.
    """
    several = [learned for learned in learning.learned if learned.row.num_devices > 1]
    found = [_trains_otherwise(proof, titles) for proof in learning.other_losses]
    others = {id(proof.row) for proof in learning.other_losses}
    for learned in several or learning.learned:
        if id(learned.row) in others:
            found += _alone(learning, learned, titles[learned.row])
        else:
            found += _statements(learning, learned, titles[learned.row])
    ratios = [
        learning.sooner(learned)
        for learned in several
        if learned.seconds and id(learned.row) not in others
    ]
    if any(ratio and not ratio.ends for ratio in ratios):
        found.append(Statement("target-single-runs"))
    return found


def _trains_otherwise(proof: OtherLosses, titles: dict[Row, str]) -> Statement:
    values = {
        "devices": proof.row.devices,
        "fewer_devices": proof.reference.devices,
        "step": proof.step,
        "loss": proof.loss,
        "fewer_devices_loss": proof.reference_loss,
        "repeats": proof.repeats,
    }
    return Statement("target-other-losses", titles[proof.row], values)


def _alone(learning: Learning, learned: Learned, title: str) -> list[Statement]:
    """Return what holds of one configuration, without a comparison."""
    if learned.seconds is None or learned.items is None:
        return [_missed(learning.target, learned, title)]
    return [_reached(learning.target, learned, title)]


def _reached(target: Target, learned: Learned, title: str) -> Statement:
    assert learned.seconds and learned.items
    values = {
        "devices": learned.row.devices,
        "target": in_words(target),
        "unit": learned.row.unit,
        "seconds": interval_values(learned.seconds),
        "items": interval_values(learned.items),
    }
    return Statement("target-reached", title, values)


def _statements(learning: Learning, learned: Learned, title: str) -> list[Statement]:
    """Return what holds of a configuration, and how it compares with one device."""
    target = learning.target
    baseline = learning.baseline(learned)
    sooner = learning.sooner(learned)
    if learned.seconds is None or learned.items is None:
        return [_missed(target, learned, title)]
    reached = _reached(target, learned, title)
    values: dict[str, Any] = dict(reached.values)
    if learned.row.num_devices == 1:
        return [reached]
    if baseline is None:
        return [reached, Statement("target-without-baseline", title)]
    if baseline.seconds is None or sooner is None:
        return [reached, _missed(target, baseline, title)]
    work = learned.items.value / baseline.items.value if baseline.items else 1.0
    values |= {
        "sooner": interval_values(sooner),
        "work": work,
        "baseline_seconds": interval_values(baseline.seconds),
    }
    is_noise = sooner.ends is not None and sooner.ends[0] <= 1 <= sooner.ends[1]
    kind = "target-sooner" if sooner.value >= 1 else "target-later"
    return [Statement("target-within-noise" if is_noise else kind, title, values)]


def _missed(target: Target, learned: Learned, title: str) -> Statement:
    """That not all runs of a configuration reached the target, and how near they came."""
    values = {
        "devices": learned.row.devices,
        "runs": len(learned.needed),
        "target": in_words(target),
    }
    if learned.best is None:
        return Statement(
            "target-not-recorded",
            title,
            {**values, "quantity": target.kind, "batches": WINDOW_BATCHES},
        )
    best = (
        f"{100 * learned.best:.1f} %"
        if target.kind == ACCURACY
        else f"{learned.best:.4g}"
    )
    missed = sum(items is None for items in learned.needed)
    return Statement("target-missed", title, {**values, "best": best, "missed": missed})


def notes(learning: Learning) -> list[Statement]:
    unit = common_unit(learning.windows)
    is_reached = all(
        items is not None for learned in learning.learned for items in learned.needed
    )
    kind = "target-highest" if is_reached else "target-lowest"
    chosen = Statement(kind, values={"target": in_words(learning.target)})
    windows = [plain(window, 0) for window in sorted(learning.windows.values())]
    per = (
        "predictions"
        if unit == ITEMS or learning.target.kind == ACCURACY
        else "predicted items"
    )
    window = Statement("target-window", values={"windows": windows, "per": per})
    return [
        *([] if learning.target.is_given else [chosen]),
        window,
        Statement("target-seconds", values={"unit": unit}),
    ]


def section(learning: Learning, titles: dict[Row, str]) -> Section:
    unit = unit_heading(common_unit(learned.row.unit for learned in learning.learned))
    columns: Columns = {
        "Series": lambda learned: titles[learned.row],
        "Devices": lambda learned: str(learned.row.num_devices),
        "Global batch": lambda learned: str(learned.row.global_batch_size or "n/a"),
        f"{unit} to target": lambda learned: (
            plus_minus(learned.items, 0) if learned.seconds else "not reached"
        ),
        f"{unit}/s": lambda learned: plus_minus(learned.row.rate, 1),
        "Seconds": lambda learned: plus_minus(learned.seconds, 1),
        "Times as fast as one device": lambda learned: (
            plus_minus(learning.sooner(learned), 2)
            if learned.row.num_devices > 1
            else ""
        ),
    }
    table = grid_of(f"Until {in_words(learning.target)}", columns, learning.learned)
    return Section(
        "Learning", (table,), (*statements(learning, titles), *notes(learning))
    )


def as_json(learning: Learning, titles: dict[Row, str]) -> dict[str, Any]:
    target = learning.target
    return {
        "target": {
            "kind": target.kind,
            "value": target.value,
            "given": target.is_given,
        },
        "windows": dict(learning.windows),
        "statements": [statement.data() for statement in statements(learning, titles)],
        "rows": [
            {
                "series": titles[learned.row],
                "num_devices": learned.row.num_devices,
                "global_batch": learned.row.global_batch_size,
                "needed": list(learned.needed),
                "items": interval_data(learned.items),
                "seconds": interval_data(learned.seconds),
                "best": learned.best,
                "times_as_soon": interval_data(learning.sooner(learned)),
            }
            for learned in learning.learned
        ],
    }


def by_row(
    learning: Learning, row: Row
) -> tuple[Interval | None, Interval | None, Interval | None]:
    """(items to the target, seconds, times as soon as one device) of a row; None each where not known."""
    found = next((learned for learned in learning.learned if learned.row is row), None)
    if found is None:
        return None, None, None
    return (
        found.items,
        found.seconds,
        learning.sooner(found) if row.num_devices > 1 else None,
    )


def line_names(learning: Learning, titles: dict[Row, str]) -> dict[Row, str]:
    """The names of the lines of pictures, by row; `titles`: those of the series."""
    return {
        learned.row: f"{titles[learned.row]}, {learned.row.devices}"
        for learned in learning.learned
    }


def kinds(learning: Learning) -> list[tuple[str, str]]:
    """(what is drawn, over what) of the pictures of a folder."""
    has_accuracy = any(
        run.batches.correct for learned in learning.learned for run in learned.row.good
    )
    return [
        (kind, over)
        for kind in ([ACCURACY] if has_accuracy else []) + [LOSS]
        for over in (ITEMS, SECONDS)
    ]


def picture_title(learning: Learning, kind: str, over: str) -> str:
    """What stands over a picture."""
    unit = common_unit(learning.windows)
    return f"{kind.capitalize()} over {unit if over == ITEMS else 'seconds at the measured speed'}"


def points(
    learned: Learned, learning: Learning, kind: str, over: str
) -> list[tuple[float, float]]:
    """The line of a configuration, that of its first run; accuracy in per cent."""
    run = learned.row.good[0]
    smooth = curve(run.batches, kind, learning.windows[learned.row.unit])
    rate = (
        run.throughput.items_per_second if over == SECONDS and run.throughput else 1.0
    )
    factor = 100.0 if kind == ACCURACY else 1.0
    line = [
        (items / rate, factor * value)
        for items, value in zip(smooth.items, smooth.values)
        if math.isfinite(value)
    ]
    return line[:: max(1, len(line) // MOST_POINTS)]


def draw(
    learning: Learning, names: Mapping[Row, str], kind: str, over: str, name: str = ""
) -> str:
    """A line for each configuration, the target dashed."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    few = learning.learned[: figures.MOST_LINES]
    lines = [points(member, learning, kind, over) for member in few]
    with figures.style():
        figure, axes = figures.blank(4.2, 3.0, entries=len(few) + 1)
        for k, (member, line) in enumerate(zip(few, lines)):
            x, y = zip(*line) if line else ((), ())
            axes.plot(
                x,
                y,
                linewidth=1.4,
                label=figures.in_legend(names[member.row]),
                **figures.line_look(k),
            )
        if learning.target.kind == kind:
            level = learning.target.value * (100 if kind == ACCURACY else 1)
            axes.axhline(
                level,
                color=figures.MUTED,
                linewidth=1,
                linestyle=(0, (2, 2)),
                label="target",
            )
        values = [value for line in lines for _, value in line]
        if (
            kind == LOSS
            and values
            and min(values) > 0
            and max(values) > LOG_FROM * min(values)
        ):
            axes.set_yscale("log")
        elif kind == ACCURACY:
            axes.set_ylim(0, 104)
        across = (
            common_unit(learning.windows)
            if over == ITEMS
            else "seconds at the measured speed"
        )
        axes.set(
            title=f"{kind.capitalize()}{', %' if kind == ACCURACY else ''}",
            xlabel=across,
        )
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        figures.add_legend(figure)
        return figures.as_svg(figure, name or f"{kind}-{over}")
