"""All-reduce times in the columns of NVIDIA's nccl-tests, so that whatever reads its logs reads these.

Format: NVIDIA/nccl-tests, src/util.cu. Time is the median here, not the mean. In place nothing is measured, since
TensorFlow's results are new tensors: those columns hold N/A.
"""

import os
import statistics
from collections.abc import Sequence

from rnn_scaling.links.series import FLOAT32_BYTES, Point, Series

_HEAD = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)
_UNIT = ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2)
_WIDTHS = (12, 12, 8, 6, 6, 10, 7, 7, 7, 7, 7, 7, 7)


def render(all_series: Sequence[Series], host: str, devices: Sequence[str]) -> str:
    """One block an algorithm."""
    return "\n".join(_block(series, host, devices) for series in all_series if series.points)


def _block(series: Series, host: str, devices: Sequence[str]) -> str:
    first, last = series.sizes[0], series.sizes[-1]
    factor = series.sizes[1] // first if len(series.sizes) > 1 else 1
    repeats = max(len(point.seconds) for point in series.points)
    compared = [point.wrong for point in series.points if point.wrong is not None]
    lines = [
        f"# all_reduce_perf's columns for TensorFlow's all-reduce by {series.name} (rnn_scaling.links): medians",
        f"# nThread 1 nGpus {series.ranks} minBytes {first} maxBytes {last} step: {factor}(factor) warmup iters: 1 "
        f"iters: {repeats} agg iters: 1 validation: {int(bool(compared))} graph: 0",
        "#",
        "# Using devices",
        *(f"#  Rank {k:2d} Group  0 Pid {os.getpid():6d} on {host} device {k:2d} [{d}]" for k, d in enumerate(devices)),
        "#",
        f"#{'out-of-place':>76}{'in-place':>24}",
        _line(_HEAD),
        _line(_UNIT),
    ]
    lines += [_row(series, point) for point in series.points]
    bad = sum(1 for wrong in compared if wrong)
    verdict = f"{bad} {'FAILED' if bad else 'OK'}" if compared else "N/A (no sum was compared)"
    lines.append(f"# Out of bounds values : {verdict}")
    lines.append(f"# Avg bus bandwidth    : {statistics.fmean(series.gb_per_s(p) for p in series.points):g}")
    lines.append("#")
    return "\n".join(lines) + "\n"


def _line(words: Sequence[str]) -> str:
    text = "".join(word.rjust(width) for word, width in zip(words, _WIDTHS)).rstrip()
    return "#" + text[1:]


def _row(series: Series, point: Point) -> str:
    algbw = point.num_bytes / point.median_s / 1e9
    wrong = "N/A" if point.wrong is None else str(point.wrong)
    numbers = (f"{1e6 * point.median_s:.2f}", f"{algbw:.2f}", f"{series.gb_per_s(point):.2f}", wrong)
    count = str(point.num_bytes // FLOAT32_BYTES)
    words = (str(point.num_bytes), count, "float", "sum", "-1", *numbers, *["N/A"] * 4)
    return "".join(word.rjust(width) for word, width in zip(words, _WIDTHS))
