"""The batch times of one run as a picture."""

from typing import Any

from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.summary import RunSteady


def batch_times(run: RunSteady, name: str) -> str:
    """Milliseconds of every batch of one run: default cut dashed, detected steady part shaded, levels as lines."""
    seconds, warmup = run.record.batches.seconds, run.record.batches.warmup
    times = [1000 * s for s in seconds]
    usual = sorted(times[warmup:])
    top = 1.5 * usual[int(0.95 * (len(usual) - 1))]
    state = run.state
    with figures.style():
        figure, axes = figures.blank(2.7, 1.55)
        if state.start is not None:
            axes.axvspan(state.start, len(times), color=figures.GAIN, alpha=0.16, linewidth=0)
        axes.axvline(warmup, color=figures.MUTED, linewidth=1, linestyle=(0, (3, 2)))
        inside = [(i, t) for i, t in enumerate(times) if t <= top]
        above = [i for i, t in enumerate(times) if t > top]
        axes.plot(*zip(*inside), linestyle="none", marker="o", markersize=1.8, color=figures.COLOURS[0])
        if above:
            mark: dict[str, Any] = {"linestyle": "none", "marker": "^", "markersize": 4, "clip_on": False}
            axes.plot(above, [top] * len(above), color=figures.LOSS, **mark)
            place: dict[str, Any] = {"xytext": (-3, -3), "textcoords": "offset points", "ha": "right", "va": "top"}
            axes.annotate(f"highest {max(times):,.0f} ms", (len(times), top), color=figures.MUTED, **place)
        axes.set(xlim=(-0.02 * len(times), len(times)), ylim=(0, top), xlabel="batch", ylabel="ms")
        from matplotlib.ticker import MaxNLocator

        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        figures.set_margins(figure, left=0.5, right=0.08, top=0.14, bottom=0.4)
        return figures.as_svg(figure, name)
