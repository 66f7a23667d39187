"""What one measurement gave, as lines for a person who waits for the others. The tables come at the end."""

from __future__ import annotations

from rnn_scaling.links import gemm
from rnn_scaling.links.processes import WorkerOutcome
from rnn_scaling.links.series import ALL_REDUCE, Series, size_text
from rnn_scaling.links.table import GIGA

NOTHING = "nothing"  # the series of the call in which nothing is exchanged


def of(outcome: WorkerOutcome, what: str) -> list[str]:
    """A line for each series and product of a measurement, and for its failure."""
    lines = [_line(series) for series in outcome.series if series.points]
    for fields in outcome.facts.get("products", ()):
        product = gemm.from_json(fields)
        best = product.best
        lines.append(f"{product.dtype}, {product.devices}: {best.median / GIGA:.3g} GFLOP/s at best")
    if outcome.error:
        lines.append(f"{what}: failed: {outcome.error}")
    return lines


def _line(series: Series) -> str:
    first, last = series.points[0], series.points[-1]
    unit = "GB/s busbw" if series.kind == ALL_REDUCE else "GB/s"
    has_rate = series.traffic and series.name != NOTHING
    rate = f"{series.gb_per_s(last):.3g} {unit} at {size_text(last.num_bytes)}, " if has_rate else ""
    return f"{series.name}: {rate}{1e6 * first.median_s:.3g} us at {size_text(first.num_bytes)}"
