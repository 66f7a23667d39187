"""The page of predictions: measured and predicted points with their intervals, and the parts of what is lost."""

from collections.abc import Iterator, Sequence

from rnn_scaling.analysis.prediction import predicting
from rnn_scaling.analysis.prediction.curves import Prediction
from rnn_scaling.reports import prediction as report
from rnn_scaling.reports.page import document, explorer
from rnn_scaling.reports.page.document import (
    Block,
    Body,
    Group,
    Items,
    Live,
    PageSection,
    figure_of,
)
from rnn_scaling.reports.page.scaling_data import DEVICES, ends
from rnn_scaling.reports.pictures import prediction as pictures
from rnn_scaling.reports.sections import Section
from rnn_scaling.reports.wording import sentence, sentences

SPEEDUP, EFFICIENCY = "speedup", "efficiency"
PERCENT = report.PERCENT
# The heading of series that count or print different things.
COMMON_HEAD = ("Devices", "Source", "Rate", "Efficiency (%)", "Largest loss")


def render(
    found: report.PredictionReport, drawn: Sequence[Prediction], title: str
) -> bytes:
    """The page as UTF-8; drawn: the predictions on more numbers of devices, for the curves."""
    titles = [prediction.curve.name for prediction in found.predictions]
    lead = sentences(predicting.answer(found.predictions[0]))
    grids = [report.table(prediction) for prediction in found.predictions]
    head = []
    for k, common in enumerate(COMMON_HEAD):
        names = {grid.head[k] for grid in grids}
        head.append(names.pop() if len(names) == 1 else common)
    groups = [
        (name, [("#assumptions", line) for line in grid.lines])
        for name, grid in zip(titles, grids)
    ]
    svg = pictures.svg(drawn, "rates")
    first: list[Block] = [
        Live(
            "chart",
            [figure_of(svg, "fig-rates", "Rates over the number of devices", lead)],
        )
    ]
    losses, refused = [*_losses(drawn)], [Items([*map(sentence, found.refused)])]
    if len(titles) == 1:
        groups, first, losses = [("", groups[0][1])], first + losses, []
    losses = [Group("figures", losses)] if losses else []
    return document.page(
        title,
        [titles[0] if len(titles) == 1 else f"{len(titles)} series"],
        lead if len(titles) == 1 else f"{titles[0]}: {lead}",
        document.Overview(head, groups, "Measured and predicted", "long-cells"),
        _data(drawn),
        [
            PageSection("assumptions", "Assumptions", [*_assumptions(found)]),
            PageSection(
                "numbers", "Losses and sizes", [*losses, *_numbers(found, drawn)]
            ),
            PageSection("refused", "Not predicted", refused if found.refused else []),
        ],
        first=first,
        remarks=" ".join(map(sentence, found.record)),
    )


def _losses(drawn: Sequence[Prediction]) -> Iterator[Block]:
    """A picture for each series whose losses are known."""
    for k, prediction in enumerate(drawn[: pictures.MOST]):
        if any(point.parts for point in prediction.points):
            name, title = (
                f"losses-{k}",
                "Efficiency and losses on each number of devices",
            )
            yield figure_of(
                pictures.svg([prediction], name),
                f"fig-{name}",
                title,
                prediction.curve.name,
            )


def _assumptions(found: report.PredictionReport) -> Iterator[Block]:
    for one, sizes in zip(found.predictions, found.sizes):
        statements = (
            *predicting.answer(one),
            *sizes.statements,
            *predicting.assumptions(one),
        )
        yield Body(Section(one.curve.name, notes=statements), has_title=True)


def _numbers(
    found: report.PredictionReport, drawn: Sequence[Prediction]
) -> Iterator[Block]:
    """The losses on all drawn numbers of devices, and memory, time and cost."""
    for prediction, sizes in zip(drawn, found.sizes):
        shown = (*report.loss_tables(prediction), *report.size_tables(sizes))
        if shown:
            yield Body(
                Section(prediction.curve.name, shown),
                prediction.curve.name,
                has_title=True,
            )


def _data(drawn: Sequence[Prediction]) -> explorer.Explorer:
    lines = [_line(prediction) for prediction in drawn]
    units = dict.fromkeys(
        prediction.curve.unit for prediction in drawn if not prediction.curve.time
    )
    time_units = dict.fromkeys(
        prediction.curve.time.unit for prediction in drawn if prediction.curve.time
    )
    parts = dict.fromkeys(
        part
        for prediction in drawn
        for point in prediction.points
        for part in point.parts
    )
    metrics = [
        explorer.Metric(SPEEDUP, "speedup", "", 2, "n"),
        explorer.Metric(EFFICIENCY, "efficiency", "%", 1, "one"),
        *(
            explorer.Metric(unit, f"{unit}/s", f"{unit}/s", 1)
            for unit in units
            if unit != predicting.SPEEDUP
        ),
        *(explorer.Metric(f"time, {unit}", "time", unit, 2) for unit in time_units),
        *(explorer.Metric(part, f"lost to {part}", "points", 1) for part in parts),
    ]
    known = dict.fromkeys(
        name for line in lines for point in line.points for name in point.values
    )
    in_first = {
        name for point in lines[0].points for name in point.values
    }  # whose answer is the title
    shown = sorted(
        (metric for metric in metrics if metric.name in known),
        key=lambda one: one.name not in in_first,
    )
    return explorer.Explorer(shown, [explorer.Axis(DEVICES, "devices")], lines)


def _line(prediction: Prediction) -> explorer.Line:
    curve, points = prediction.curve, []
    measured = {point.devices for point in curve.points}
    rate_name = SPEEDUP if curve.unit == predicting.SPEEDUP else curve.unit
    if curve.time:
        rate_name = f"time, {curve.time.unit}"
    (known, new), shown = (
        predicting.sources(prediction),
        slice(1 if prediction.is_simulated else None),
    )
    for point in report.points(prediction):
        is_predicted, values = (
            point.devices not in measured,
            {rate_name: ends(curve.shown(point.devices, point.rate))[shown]},
        )
        if point.efficiency:
            values[SPEEDUP] = ends(point.efficiency.scaled(point.devices))[shown]
            values[EFFICIENCY] = ends(point.efficiency.scaled(PERCENT))[shown]
        values |= {
            part: [PERCENT * share, None, None] for part, share in point.parts.items()
        }
        noun = "machines" if curve.counts_machines else "devices"
        label = f"{point.devices:,} {noun}, {new if is_predicted else known}"
        points.append(
            explorer.Point(
                {DEVICES: point.devices}, values, label=label, is_predicted=is_predicted
            )
        )
    return explorer.Line(curve.name, points)
