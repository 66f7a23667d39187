"""The page of predictions: measured and predicted points with their intervals.

The command `predict` writes it.
"""

from collections.abc import Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP, Metric
from rnn_scaling.analysis.prediction import predicting
from rnn_scaling.analysis.prediction.curves import Prediction
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import explorer
from rnn_scaling.reports import prediction as report
from rnn_scaling.reports.page import document, drawings
from rnn_scaling.reports.page.document import (
    Block,
    Body,
    Figure,
    Group,
    Items,
    Live,
    PageSection,
)
from rnn_scaling.reports.pictures import prediction as pictures
from rnn_scaling.reports.scaling_data import DEVICES
from rnn_scaling.reports.sections import Section, explain_numbers
from rnn_scaling.reports.wording import write_sentence, write_sentences

# The heading if the tables of several series have different headings.
_COMMON_HEAD = ("Devices", "Source", "Rate", "Efficiency (%)", "Largest loss")


def render(
    results: report.PredictionReport, curves: Sequence[Prediction], title: str
) -> bytes:
    """Return the page as UTF-8.

    Args:
      results: The predictions of the tables.
      curves: The predictions for the pictures, on more numbers of devices.
      title: The title of the page.
    """
    names = [prediction.curve.name for prediction in results.predictions]
    is_single = len(names) == 1
    lead = write_sentences(predicting.answer(results.predictions[0]))
    chart: list[Block] = [Live("chart", _draw_rates(curves))]
    losses = _make_loss_figures(curves)
    numbers = _make_number_blocks(results, curves)
    if is_single:
        chart += losses
    elif losses:
        numbers = [Group("figures", losses), *numbers]
    refused = (
        [Items(list(map(write_sentence, results.refused)))] if results.refused else []
    )
    return document.render_page(
        title,
        about=names if is_single else [f"{len(names)} series"],
        lead=lead if is_single else f"{names[0]}: {lead}",
        overview=_make_overview(results),
        explorer=_make_explorer(curves),
        sections=[
            PageSection("assumptions", "Assumptions", _make_assumption_blocks(results)),
            PageSection("numbers", "Losses and sizes", numbers),
            PageSection("refused", "Not predicted", refused),
        ],
        first=chart,
        remarks=[" ".join(map(write_sentence, results.record))],
        notes=list(map(write_sentence, _state_marks(results))),
    )


def _state_marks(results: report.PredictionReport) -> list[Statement]:
    """Return the lines that explain the marks of measured points."""
    intervals = []
    for prediction in results.predictions:
        intervals += [point.interval for point in prediction.curve.points]
    return explain_numbers(intervals)


def _make_overview(results: report.PredictionReport) -> document.Overview:
    """Return the table of all points; several series are groups with their names."""
    grids = [report.make_table(prediction) for prediction in results.predictions]
    head = []
    for common, *headings in zip(_COMMON_HEAD, *(grid.head for grid in grids)):
        head.append(headings[0] if len(set(headings)) == 1 else common)
    groups = []
    for prediction, grid in zip(results.predictions, grids):
        name = prediction.curve.name if len(grids) > 1 else ""
        groups.append((name, [("#assumptions", line) for line in grid.lines]))
    return document.Overview(head, groups, "Measured and predicted", "long-cells")


def _draw_rates(curves: Sequence[Prediction]) -> list[Figure]:
    """Return a picture for each series."""
    figures = []
    for k, prediction in enumerate(curves[: pictures.MAX_SERIES]):
        name = f"fig-rates-{k}"
        figures.append(
            drawings.draw_picture(
                pictures.make_chart(prediction), name, prediction.curve.name
            )
        )
    return figures


def _make_loss_figures(curves: Sequence[Prediction]) -> list[Block]:
    """Return a picture for each series whose losses are known."""
    title = "Efficiency and losses on each number of devices"
    figures: list[Block] = []
    for k, prediction in enumerate(curves[: pictures.MAX_SERIES]):
        if any(point.parts for point in prediction.points):
            name = f"losses-{k}"
            svg = pictures.draw_losses_svg(prediction, name)
            about = prediction.curve.name
            figures.append(document.make_figure(svg, f"fig-{name}", title, about))
    return figures


def _make_assumption_blocks(results: report.PredictionReport) -> list[Block]:
    blocks: list[Block] = []
    for prediction, sizes in zip(results.predictions, results.sizes):
        answer = predicting.answer(prediction)
        assumptions = predicting.state_assumptions(prediction)
        notes = (*answer, *sizes.statements, *assumptions)
        section = Section(prediction.curve.name, notes=notes)
        blocks.append(Body(section, has_title=True))
    return blocks


def _make_number_blocks(
    results: report.PredictionReport, curves: Sequence[Prediction]
) -> list[Block]:
    """Return the losses on all numbers of devices of the pictures, and memory, time and cost."""
    blocks: list[Block] = []
    for prediction, sizes in zip(curves, results.sizes):
        name = prediction.curve.name
        grids = (*report.make_loss_tables(prediction), *report.make_size_tables(sizes))
        if grids:
            blocks.append(Body(Section(name, grids), name, has_title=True))
    return blocks


def _make_explorer(curves: Sequence[Prediction]) -> explorer.Explorer:
    metrics = {metric.name: metric for metric in (SPEEDUP, EFFICIENCY)}
    lines = []
    parts = {}
    for k, prediction in enumerate(curves):
        rate = pictures.make_rate_metric(prediction.curve)
        metrics.setdefault(rate.name, rate)
        lines.append(pictures.make_line(prediction, k))
        for point in prediction.points:
            for part in point.parts:
                parts[part] = Metric(part, f"lost to {part}", "points", digits=1)
    metrics |= parts
    line_metrics = list(map(_list_metric_names, lines))
    used_names = set.union(*line_metrics)
    used_metrics = [metric for name, metric in metrics.items() if name in used_names]
    # The first series has the answer that is the title, so its metrics come first.
    used_metrics.sort(key=lambda metric: metric.name not in line_metrics[0])
    return explorer.Explorer(used_metrics, [DEVICES], lines)


def _list_metric_names(line: explorer.Line) -> set[str]:
    return set().union(*(point.values for point in line.points))
