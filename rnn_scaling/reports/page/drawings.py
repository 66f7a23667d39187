"""The page's pictures, each with its numbers in words for who does not see it, and their legends."""

from collections.abc import Sequence

from rnn_scaling.analysis.attribution import REST, Attribution
from rnn_scaling.analysis.metrics import EFFICIENCY, WORK_PER_EXCHANGE, Metric
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files.terminal import three_digits
from rnn_scaling.reports.loss_statements import noise_of
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page.parts import MOST_FIGURES, Block, Figure, Key, Legend, Text, figure_of
from rnn_scaling.reports.pictures import batch_times, curves, figures, waterfall
from rnn_scaling.reports.summary import RunSteady, SeriesSummary, Summary
from rnn_scaling.reports.wording import sentence

DASHES = {"-": "", "--": "5 2.5", ":": "1.5 2", "-.": "6 2 1.5 2"}
SHAPES = {"o": "M14 3a3 3 0 1 0 .01 0z", "s": "M11 3h6v6h-6z", "^": "M14 2.4l3.6 6.4h-7.2z", "D": "M14 2l4 4-4 4-4-4z"}
STROKE, BAR, ARROW = "M14 1v10M11.5 1h5M11.5 11h5", "M3 1.5h22v9h-22z", "M20 2.4l-6 3.6 6 3.6zM20 6h7"
GAP = "M3 1.5h6l-2 9h-4zM12 1.5h13v9h-15z"

FEW = 2  # numbers of devices from which on a line says no more than a dot


def swatches(series: Sequence[SeriesSummary]) -> list[Key]:
    few, keys = series[: figures.MOST_LINES], []
    for member, look in zip(few, figures.looks(few)):
        colour, dash, shape = figures.themed(look["color"].lower()), DASHES[look["linestyle"]], SHAPES[look["marker"]]
        keys.append(Key(member.title, colour, dash, shape, has_line=True))
    return keys


def marks(*frames: curves.Frame) -> list[Key]:
    """The ideal, intervals, and, where one goes on beyond its frame, what says so."""
    muted = figures.themed(figures.MUTED)
    keys = [Key("ideal", muted, "2 2", has_line=True)]
    if any(frame.has_intervals for frame in frames):
        keys.append(Key("95 % interval over runs", muted, shape=STROKE))
    return [*keys, *([Key("interval goes on", muted, shape=ARROW)] if any(frame.cuts for frame in frames) else [])]


def bars(losses: Sequence[Attribution]) -> list[Key]:
    """What the bars of waterfalls are."""
    names = {name for loss in losses for name, _, _ in waterfall.parts_of(loss)}
    points = [part.points.value for loss in losses for part in loss.told if part.points]
    frames, blue = [waterfall.frame_of(loss) for loss in losses], figures.COLOURS[0].lower()
    entries = [
        (True, "ideal: n times one device", figures.GRID, BAR),
        (any(value > 0 for value in points), "lost", figures.LOSS, BAR),
        (any(value < 0 for value in points), "gained: below 0", figures.GAIN, BAR),
        (REST in names, f"{REST}: within {noise_of(losses)}", figures.REST, BAR),
        (True, "measured", blue, BAR),
        (any(frame.low for frame in frames), "with a gap: begins at 0, cut", blue, GAP),
    ]
    keys = [Key(text, figures.themed(colour), shape=shape) for is_there, text, colour, shape in entries if is_there]
    return [*keys, *marks(*frames)[1:]]


def curve(series: Sequence[SeriesSummary], metric: Metric, name: str, group: str = "") -> Figure:
    """One metric over the number of devices."""
    about = f"A line for each series. {_numbers(series, metric)} {curves.frame_of(series, metric).sentence}"
    return figure_of(curves.lines(series, metric, name=name), name, _titled(metric.caption, group), about)


def undrawn(count: int, noun: str) -> list[Text]:
    """A note where there are more lines than a picture has."""
    values = {"more": count - figures.MOST_LINES}
    return [Text(sentence(Statement("pictures-show-some", noun, values)), "note")] if values["more"] > 0 else []


def _titled(caption: str, group: str) -> str:
    """A picture's name, which no other one on the page has."""
    return f"{caption}, {group}" if group else caption


def _numbers(series: Sequence[SeriesSummary], metric: Metric) -> str:
    lines = []
    for member in series[: figures.MOST_LINES]:
        points = [
            f"{plus_minus(metric.printed(value), metric.digits)} on {row.row.num_devices}"
            for row in member.rows
            if (value := row.row.metric(metric))
        ]
        if points:
            lines.append(f"{member.title}: {', '.join(points)}.")
    return " ".join(lines)


def loss(series: SeriesSummary, split: Attribution, k: int) -> Figure:
    devices = series.largest.devices if series.largest else ""
    ideal, measured = split.ideal.value, split.ideal.value - split.loss.value
    values = {
        "ideal": three_digits(ideal),
        "parts": ", ".join(f"{name} {plus_minus(points, 1)}" for name, _, points in waterfall.parts_of(split)),
        "measured": three_digits(measured),
        "unit": series.unit,
        "share": 100 * measured / ideal,
        "frame": waterfall.frame_of(split).sentence,
    }
    about = sentence(Statement("picture-of-loss", values=values))
    name = f"waterfall-{k}"
    title = f"{series.title}, {devices}: where efficiency is lost"
    return figure_of(waterfall.waterfall(split, name), name, title, about)


def times(series: Sequence[SeriesSummary]) -> list[Figure]:
    """A picture for each series' run on one device and on the most, and what is said below it."""
    ends = [row for member in series for row in dict.fromkeys((member.rows[0], member.largest)) if row and row.steady]
    titles = {row: member.title for member in series for row in member.rows}
    drawn = []
    for k, row in enumerate(ends[:MOST_FIGURES]):
        run, name = row.steady[0], f"times-{k}"
        seconds = sorted(run.record.batches.seconds)
        values = {
            "batches": len(seconds),
            "least": 1000 * seconds[0],
            "median": 1000 * seconds[len(seconds) // 2],
            "most": 1000 * seconds[-1],
            "state": run.state.text,
        }
        about = sentence(Statement("picture-of-batches", run.file, values))
        title = f"{titles[row]}, {row.devices}"
        drawn.append(figure_of(batch_times.batch_times(run, name), name, title, about, _when(run)))
    return drawn


def _when(run: RunSteady) -> str:
    """The kind, the cut and what it moves, in a few words."""
    state = run.state
    if state.start is None or state.move is None:
        return state.text
    subject = f"{state.kind} ({state.passed})" if state.passed else state.kind
    values = {"start": state.start, "warmup": run.record.batches.warmup, "move": 100 * state.move}
    return sentence(Statement("steady-run", subject, values))


def glance(summary: Summary) -> list[Block]:
    """Efficiency as a picture, with its legend, of each kind of scaling that was measured on several devices."""
    groups = figures.groups(summary)
    drawn: list[Block] = []
    for k, (name, series) in enumerate(groups):
        scaled = [
            member for member in series if member.largest and member.largest.row.num_devices > 1 and member.largest.loss
        ]
        if scaled:
            group = name if len(groups) > 1 else ""
            figure, keys = _picture(scaled, f"glance-{k}", group)
            drawn += [*([Text(group, "h3")] if group else []), figure, Legend(f"Legend of {figure.title}", keys)]
            if summary.has_many_models and curves.work_points(scaled):
                figure = _work(scaled, f"work-{k}", group)
                drawn += [figure, Legend(f"Legend of {figure.title}", swatches(scaled))]
    return drawn


def is_curve(series: Sequence[SeriesSummary]) -> bool:
    """Whether the picture of the first screen is a line over devices; on two numbers of devices it is a dot."""
    return len({row.row.num_devices for member in series for row in member.rows if row.row.rate}) > FEW


def _picture(series: Sequence[SeriesSummary], name: str, group: str) -> tuple[Figure, list[Key]]:
    if is_curve(series):
        frame = curves.frame_of(series, EFFICIENCY)
        figure = curve(series, EFFICIENCY, name, group)
        return figure, [*swatches(series), *marks(frame)]
    title, frame = _titled(curves.dots_title(series), group), curves.dots_frame(series)
    numbers = "; ".join(f"{member.title}: {_efficiency(member)}" for member in series[: figures.MOST_LINES])
    about = f"A dot for each series. {numbers}. {frame.sentence}"
    return figure_of(curves.dots(series, name), name, title, about), marks(frame)


def _work(series: Sequence[SeriesSummary], name: str, group: str) -> Figure:
    few = series[: figures.MOST_LINES]
    points = curves.work_points(few)
    numbers = "; ".join(f"{member.model}: {_efficiency(member)} at {ratio:.4g} GFLOP" for member, ratio, _ in points)
    title = _titled(f"{EFFICIENCY.title} over {WORK_PER_EXCHANGE.title}", group)
    return figure_of(curves.work(few, name), name, title, f"A dot for each model. {numbers}.")


def _efficiency(series: SeriesSummary) -> str:
    return f"{plus_minus(series.largest.efficiency, EFFICIENCY.digits)} %" if series.largest else "n/a"
