"""The page of predictions: measured and predicted points with their intervals."""

from collections.abc import Sequence

from rnn_scaling.analysis.prediction import predicting
from rnn_scaling.analysis.prediction.curves import Prediction
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
from rnn_scaling.reports.sections import Section
from rnn_scaling.reports.wording import sentence, sentences

# The heading of series that count or print different things.
COMMON_HEAD = ("Devices", "Source", "Rate", "Efficiency (%)", "Largest loss")


def render(
    found: report.PredictionReport, drawn: Sequence[Prediction], title: str
) -> bytes:
    """Return the page as UTF-8.

    Args:
      found: The predictions.
      drawn: The same on more numbers of devices, for the curves.
      title: The title of the page.
    """
    titles = [prediction.curve.name for prediction in found.predictions]
    is_single = len(titles) == 1
    lead = sentences(predicting.answer(found.predictions[0]))
    grids = [report.table(prediction) for prediction in found.predictions]
    head = []
    for common, *names in zip(COMMON_HEAD, *(grid.head for grid in grids)):
        head.append(names[0] if len(set(names)) == 1 else common)
    groups = []
    for name, grid in zip(titles, grids):
        lines = [("#assumptions", line) for line in grid.lines]
        groups.append(("" if is_single else name, lines))
    first: list[Block] = [Live("chart", [*_rates(drawn)])]
    losses = _losses(drawn)
    if is_single:
        first += losses
        losses = []
    numbers = [Group("figures", losses)] if losses else []
    refused = [Items(list(map(sentence, found.refused)))] if found.refused else []
    return document.page(
        title,
        [titles[0] if is_single else f"{len(titles)} series"],
        lead if is_single else f"{titles[0]}: {lead}",
        document.Overview(head, groups, "Measured and predicted", "long-cells"),
        _data(drawn),
        [
            PageSection("assumptions", "Assumptions", _assumptions(found)),
            PageSection(
                "numbers", "Losses and sizes", [*numbers, *_numbers(found, drawn)]
            ),
            PageSection("refused", "Not predicted", refused),
        ],
        first=first,
        remarks=" ".join(map(sentence, found.record)),
    )


def _rates(drawn: Sequence[Prediction]) -> list[Figure]:
    """Return a picture for each series."""
    figures = []
    for k, prediction in enumerate(drawn[: pictures.MOST]):
        name = f"fig-rates-{k}"
        figures.append(
            drawings.picture(pictures.chart(prediction), name, prediction.curve.name)
        )
    return figures


def _losses(drawn: Sequence[Prediction]) -> list[Block]:
    """Return a picture for each series whose losses are known."""
    title = "Efficiency and losses on each number of devices"
    figures: list[Block] = []
    for k, prediction in enumerate(drawn[: pictures.MOST]):
        if any(point.parts for point in prediction.points):
            name = f"losses-{k}"
            svg = pictures.losses_svg(prediction, name)
            about = prediction.curve.name
            figures.append(document.figure_of(svg, f"fig-{name}", title, about))
    return figures


def _assumptions(found: report.PredictionReport) -> list[Block]:
    blocks: list[Block] = []
    for one, sizes in zip(found.predictions, found.sizes):
        assumed = predicting.assumptions(one)
        statements = (*predicting.answer(one), *sizes.statements, *assumed)
        blocks.append(Body(Section(one.curve.name, notes=statements), has_title=True))
    return blocks


def _numbers(
    found: report.PredictionReport, drawn: Sequence[Prediction]
) -> list[Block]:
    """Return losses on all drawn numbers of devices, and memory, time and cost."""
    blocks: list[Block] = []
    for prediction, sizes in zip(drawn, found.sizes):
        name = prediction.curve.name
        shown = (*report.loss_tables(prediction), *report.size_tables(sizes))
        if shown:
            blocks.append(Body(Section(name, shown), name, has_title=True))
    return blocks


def _data(drawn: Sequence[Prediction]) -> explorer.Explorer:
    lines = []
    metrics = {
        metric.name: metric for metric in (pictures.SPEEDUP, pictures.EFFICIENCY)
    }
    parts = {}
    for k, prediction in enumerate(drawn):
        rate = pictures.rate_metric(prediction.curve)
        metrics.setdefault(rate.name, rate)
        line = pictures.line(prediction, k)
        lines.append(line)
        for point in prediction.points:
            for part in point.parts:
                parts[part] = explorer.Metric(part, f"lost to {part}", "points", 1)
    metrics |= parts
    known = {name for line in lines for point in line.points for name in point.values}
    # The first series has the answer that is the title.
    in_first = {name for point in lines[0].points for name in point.values}
    shown = [metric for name, metric in metrics.items() if name in known]
    shown.sort(key=lambda metric: metric.name not in in_first)
    return explorer.Explorer(shown, [DEVICES], lines)
