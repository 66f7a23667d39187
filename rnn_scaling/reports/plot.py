"""Words/s and speedup over the number of devices, one line for each encoder and update mode, as a PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rnn_scaling.rows import Row

# Okabe-Ito: told apart by colour-blind readers and in print; encoders differ by marker and line too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D")
STYLES = ("-", "--", ":", "-.")


def render(rows: Sequence[Row]) -> bytes:
    """A PNG with two panels: words/s, and speedup against the ideal.

    Raises:
      ValueError: if no row has a rate.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    measured = [row for row in rows if row.metric("words_per_second") is not None]
    if not measured:
        raise ValueError("expected at least one successful run")
    figure, (rates, speedups) = pyplot.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    encoders = _unique(row.config["encoder_type"] for row in measured)
    modes = _unique(row.config["variable_update"] for row in measured)
    most = max(row.config["num_devices"] for row in measured)
    speedups.plot([1, most], [1, most], color="0.6", linewidth=1, linestyle=(0, (2, 2)), label="ideal")
    for (encoder, mode), members in _series(measured).items():
        look = {
            "color": COLOURS[modes.index(mode) % len(COLOURS)],
            "marker": MARKERS[encoders.index(encoder) % len(MARKERS)],
            "linestyle": STYLES[encoders.index(encoder) % len(STYLES)],
            "label": f"{encoder}, {mode}",
        }
        rates.plot(*_points(members, "words_per_second"), **look)
        speedups.plot(*_points(members, "speedup"), **look)
    device = "GPUs" if all(row.config["device"] == "gpu" for row in measured) else "devices"
    for axes, title in ((rates, "processing speed (words/s)"), (speedups, "speedup")):
        axes.set_title(title, loc="left")
        axes.set_xlabel(f"number of {device}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    rates.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    figure.legend(*speedups.get_legend_handles_labels(), loc="outside right center", frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=130, metadata={"Software": None})
    pyplot.close(figure)
    return buffer.getvalue()


def _unique(values) -> list[str]:
    return list(dict.fromkeys(values))


def _series(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    series: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        config = row.config
        series.setdefault((config["encoder_type"], config["variable_update"]), []).append(row)
    return series


def _points(rows: Sequence[Row], metric: str) -> tuple[list[int], list[float]]:
    points = sorted((row.num_devices, row.metric(metric).value) for row in rows if row.metric(metric))
    return [n for n, _ in points], [value for _, value in points]
