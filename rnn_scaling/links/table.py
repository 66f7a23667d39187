"""Write results as Markdown that is readable as text, and in columns of nccl-tests.

`measuring` writes links.md with `render`, and the command prints the same text. The
columns of `format_nccl_tests` are those of NVIDIA's program, because other programs
read them; the texts of `render` may be changed.
"""

import dataclasses
import math
import os
import statistics
from collections.abc import Sequence

from rnn_scaling.links import gemm
from rnn_scaling.links.gemm import Gemm
from rnn_scaling.links.series import (
    ALL_REDUCE,
    FLOAT32_BYTES,
    MAX_FIT_RESIDUAL,
    Fit,
    Point,
    Series,
)
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.system.files.terminal import format_bytes

_MISSING = "n/a"
_NO_COPY = "no copy"
GIGA = 1e9
_NCCL_HEAD = (
    "size",
    "count",
    "type",
    "redop",
    "root",
    *("time", "algbw", "busbw", "#wrong") * 2,
)
_NCCL_UNIT = ("(B)", "(elements)", "", "", "", *("(us)", "(GB/s)", "(GB/s)", "") * 2)
_NCCL_WIDTHS = (12, 12, 8, 6, 6, 10, 7, 7, 7, 7, 7, 7, 7)


@dataclasses.dataclass(frozen=True)
class Measurements:
    """The results of all measurements.

    Attributes:
      devices: The devices of the ranks.
      series: All links and algorithms.
      nothing: The timed call that exchanges nothing, or None if it was not measured.
      left_out: The reasons for measurements that were left out.
      gradient_bytes: Presets and the bytes of their gradients.
      topology: The text of the GPU topology, or "".
      interrupted: A sentence about an interruption and the progress until then, or "".
      products: Rates of matrix products.
    """

    devices: str
    series: tuple[Series, ...]
    nothing: Series | None = None
    left_out: tuple[str, ...] = ()
    gradient_bytes: tuple[tuple[str, int], ...] = ()
    topology: str = ""
    interrupted: str = ""
    products: tuple[Gemm, ...] = ()

    @property
    def links(self) -> list[Series]:
        return [series for series in self.series if series.kind != ALL_REDUCE]

    @property
    def all_reduces(self) -> list[Series]:
        return [series for series in self.series if series.kind == ALL_REDUCE]

    @property
    def errors(self) -> list[str]:
        """Failures and wrong elements, one line each."""
        errors = [f"{line.name}: {line.error}" for line in self.series if line.error]
        for series in self.all_reduces:
            for point in series.points:
                if point.wrong:
                    size = format_bytes(point.num_bytes)
                    errors.append(
                        f"{series.name}: {point.wrong} wrong elements at {size}"
                    )
        return errors


def render(results: Measurements, every_size: bool = False) -> str:
    """Return the report; `every_size` adds a table of all times."""
    links = [link for link in results.links if link.points]
    reduces = [all_reduce for all_reduce in results.all_reduces if all_reduce.points]
    sections: dict[str, list[str]] = {}
    if links:
        sections["Memory and copies"] = [_format_links(links), _format_notes(links)]
    if results.products:
        sections["Matrix products"] = [_format_products(results.products)]
    if reduces:
        sections[f"All-reduce, {results.devices}"] = _format_all_reduces(
            results, reduces
        )
    if every_size:
        sections["Every size"] = [_format_sizes(results)]
    if results.topology:
        sections["Topology"] = [results.topology.rstrip() + "\n"]
    left_out = filter(None, [*results.left_out, results.interrupted])
    sections["Not measured"] = [_format_bullets(list(left_out))]
    sections["Failed or wrong"] = [_format_bullets(results.errors)]
    lines = ["# Links\n"]
    for title, texts in sections.items():
        if any(texts):
            lines += [f"## {title}\n", *filter(None, texts)]
    return "\n".join(lines)


def _format_links(links: Sequence[Series]) -> str:
    """Return the table of links with their fits."""
    head = (
        "Link",
        "Largest",
        "GB/s there (quartiles)",
        "Smallest",
        "us there",
        *_FIT_HEAD,
    )
    rows = []
    for series in links:
        first = series.points[0]
        last = series.points[-1]
        rate = _format_rate(series, last) if series.traffic else _NO_COPY
        largest = (format_bytes(last.num_bytes), rate)
        smallest = (format_bytes(first.num_bytes), _format_time(first))
        line = _fit(series.fit_medians(), bool(series.traffic))
        rows.append((series.name, *largest, *smallest, *line))
    text = (
        "\nGB/s: 10^9 bytes per second at the largest size, median of "
        f"{_format_repeats(links)} and quartiles. {_FIT_TEXT} Host memory: a copy "
        "counts each byte twice, as read and as written (as STREAM does); "
        "small sizes fit into the caches, and alpha is the time of the call "
        "from Python.\n"
    )
    return format_table(head, rows) + text


_FIT_HEAD = ("alpha (us)", "beta (GB/s)", "Line holds from", "Residual (%)")
_FIT_TEXT = (
    "time = alpha + bytes / beta is fitted to the medians (relative least squares; "
    "after ± the standard error). A line holds where no median is further from it than "
    f"{100 * MAX_FIT_RESIDUAL:.0f} %: from the size in the table to the largest; "
    "residual: the largest distance. In brackets: the line over all sizes, which does "
    "not hold."
)


def _fit(line: Fit | None, has_bandwidth: bool = True) -> tuple[str, ...]:
    """Return the cells of a fitted line; in brackets if it does not hold."""
    if line is None:
        return (_MISSING,) * 4
    alpha = _round_to_error(line.alpha_us, line.alpha_error_us)
    beta = "no growth"
    residual = f"{100 * line.largest_residual:.0f}"
    if line.beta_gb_per_s is not None and line.beta_error_gb_per_s is not None:
        beta = _NO_COPY
        if has_bandwidth:
            beta = _round_to_error(line.beta_gb_per_s, line.beta_error_gb_per_s)
    if not line.holds:
        return f"({alpha})", f"({beta})", "nowhere", residual
    return alpha, beta, format_bytes(line.from_bytes), residual


def _format_products(products: Sequence[Gemm]) -> str:
    """Return the table of matrix products, one line per type and device."""
    shapes: set[gemm.Shape] = set()
    for device_products in products:
        shapes.update(product.shape for product in device_products.products)
    ordered_shapes = sorted(shapes, key=gemm.count_flops)
    rows = []
    notes = []
    for device_products in products:
        rates = {}
        for product in device_products.products:
            rates[product.shape] = _format_number(
                device_products.rate(product).median / GIGA
            )
        best = [
            _format_number(value / GIGA)
            for value in dataclasses.astuple(device_products.best)
        ]
        cells = [rates.get(shape, _MISSING) for shape in ordered_shapes]
        rows.append(
            (
                device_products.dtype,
                device_products.devices,
                *cells,
                "{} ({} to {})".format(*best),
            )
        )
        notes += [
            f"{device_products.dtype}, {device_products.devices}: {note}"
            for note in device_products.notes
        ]
    text = (
        "\nGFLOP/s: 10^9 operations per second (2 m k n for [m, k] x [k, n]) "
        "of all devices that compute at once; medians, and quartiles for the "
        "best product. Reports show the arithmetic of runs on this machine as "
        "a share of the best product.\n"
    )
    titles = map(gemm.format_shape, ordered_shapes)
    head = ("Type", "Devices", *titles, "Best (quartiles)")
    return format_table(head, rows) + text + _format_bullets(notes)


def _format_all_reduces(
    results: Measurements, all_series: Sequence[Series]
) -> list[str]:
    """Return the tables of times, bandwidths and fits of all algorithms."""
    head = ("Size", *(series.name for series in all_series))
    points: dict[int, list[Point | None]] = {}
    for number, series in enumerate(all_series):
        for point in series.points:
            row = points.setdefault(point.num_bytes, [None] * len(all_series))
            row[number] = point
    times = []
    rates = []
    for size in sorted(points):
        times.append([format_bytes(size), *map(_format_time, points[size])])
        cells = zip(all_series, points[size])
        rates.append(
            [
                format_bytes(size),
                *(_format_median_rate(series, point) for series, point in cells),
            ]
        )
    parts = [
        "Time of one all-reduce of float32, us (median)\n",
        format_table(head, times),
        "Bus bandwidth, GB/s: size / time * 2(n-1)/n\n",
        format_table(head, rates),
        format_table(
            ("Algorithm", *_FIT_HEAD),
            [(series.name, *_fit(series.fit_medians())) for series in all_series],
        ),
        f"{_FIT_TEXT} Medians of {_format_repeats(all_series)}.\n",
        _format_notes(all_series),
        _format_comparison(all_series),
    ]
    if results.nothing and results.nothing.points:
        first = results.nothing.points[0]
        last = results.nothing.points[-1]
        parts.append(
            f"{_format_time(first)} us of each time are the call itself, "
            f"measured with nothing exchanged ({_format_time(last)} us at "
            f"{format_bytes(last.num_bytes)}).\n"
        )
    return parts


def _format_sizes(results: Measurements) -> str:
    """Return a table with the shortest time, median and quartiles of each size."""
    head = (
        "What",
        "Size",
        "Repeats",
        "Shortest (us)",
        "Lower quartile",
        "Median",
        "Upper quartile",
        "GB/s",
        "Wrong",
    )
    rows = []
    for series in results.series:
        for p in series.points:
            lower, upper = p.quartiles_s
            times = [
                _format_number(1e6 * seconds)
                for seconds in (min(p.seconds), lower, p.median_s, upper)
            ]
            repeats = f"{len(p.seconds)} x {p.calls}"
            wrong_text = _MISSING if p.wrong is None else str(p.wrong)
            rate = _format_number(series.gb_per_s(p)) if series.traffic else _NO_COPY
            rows.append(
                (
                    series.name,
                    format_bytes(p.num_bytes),
                    repeats,
                    *times,
                    rate,
                    wrong_text,
                )
            )
    text = (
        "\nRepeats: number of times x number of transfers in a row; each time "
        "is the mean of these transfers. GB/s of an all-reduce: busbw.\n"
    )
    return format_table(head, rows) + text


def _format_comparison(all_series: Sequence[Series]) -> str:
    """Return how many sums were wrong, and which were not compared."""
    total = 0
    num_compared = 0
    unproven = set()
    for series in all_series:
        for point in series.points:
            if point.wrong is None:
                unproven.add(series.name)
            else:
                total += point.wrong
                num_compared += 1
    if not num_compared:
        return "Wrong elements: n/a, no sum was compared.\n"
    text = (
        f"Wrong elements: {total} (all elements of all ranks are compared with "
        "the exact sum)."
    )
    if unproven:
        text += f" Not compared everywhere: {', '.join(sorted(unproven))}."
    return f"{text}\n"


def _format_notes(all_series: Sequence[Series]) -> str:
    by_note: dict[str, list[str]] = {}
    for series in all_series:
        for note in series.notes:
            by_note.setdefault(note, []).append(series.name)
    return _format_bullets(
        [f"{', '.join(names)}: {note}" for note, names in by_note.items()]
    )


def _format_bullets(lines: Sequence[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _format_repeats(all_series: Sequence[Series]) -> str:
    counts: list[int] = []
    for series in all_series:
        counts += [len(point.seconds) for point in series.points]
    low = min(counts)
    high = max(counts)
    return f"{high} repeats" if low == high else f"{low} to {high} repeats"


def _format_median_rate(series: Series, point: Point | None) -> str:
    return _MISSING if point is None else _format_number(series.gb_per_s(point))


def _format_rate(series: Series, point: Point) -> str:
    """Return the median of a rate, and its quartiles."""
    rate = series.gb_per_s(point)
    high, low = [rate * point.median_s / seconds for seconds in point.quartiles_s]
    return f"{_format_number(rate)} ({_format_number(low)} to {_format_number(high)})"


def _format_time(point: Point | None) -> str:
    return _MISSING if point is None else _format_number(1e6 * point.median_s)


def _round_to_error(value: float, error: float) -> str:
    """Round a value to the second digit of its error, with at most three decimals."""
    digits = min(3, max(0, 1 - math.floor(math.log10(error)))) if error > 0 else 3
    return f"{round(value, digits) + 0.0:,.{digits}f} ± {error:,.{digits}f}"  # + 0.0: no "-0"


def _format_number(value: float) -> str:
    """Format a number with three digits, never as a power of ten."""
    if abs(value) < 0.001:
        return f"{value:.3f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def format_nccl_tests(
    all_series: Sequence[Series], host: str, devices: Sequence[str]
) -> str:
    """Format all-reduce times in the columns of NVIDIA's nccl-tests.

    Format: NVIDIA/nccl-tests, src/util.cu. Time is the median here, not the mean. The
    in-place columns are N/A, because TensorFlow's results are new tensors.
    """
    return "\n".join(
        _format_nccl_block(series, host, devices)
        for series in all_series
        if series.points
    )


def _format_nccl_block(series: Series, host: str, devices: Sequence[str]) -> str:
    """Return one algorithm as a file of nccl-tests."""
    first = series.sizes[0]
    last = series.sizes[-1]
    factor = series.sizes[1] // first if len(series.sizes) > 1 else 1
    repeats = max(len(point.seconds) for point in series.points)
    compared = [point.wrong for point in series.points if point.wrong is not None]
    lines = [
        "# all_reduce_perf's columns for TensorFlow's all-reduce by "
        f"{series.name} (rnn_scaling.links): medians",
        f"# nThread 1 nGpus {series.ranks} minBytes {first} maxBytes {last} "
        f"step: {factor}(factor) warmup iters: 1 iters: {repeats} agg iters: 1 "
        f"validation: {int(bool(compared))} graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {k:2d} Group  0 Pid {os.getpid():6d} on {host} device {k:2d} "
            f"[{d}]"
            for k, d in enumerate(devices)
        ),
        "#",
        f"#{'out-of-place':>76}{'in-place':>24}",
        _format_nccl_line(_NCCL_HEAD),
        _format_nccl_line(_NCCL_UNIT),
    ]
    lines += [_format_nccl_row(series, point) for point in series.points]
    num_wrong = sum(1 for wrong in compared if wrong)
    verdict = "N/A (no sum was compared)"
    if compared:
        verdict = f"{num_wrong} FAILED" if num_wrong else "0 OK"
    mean = statistics.fmean(map(series.gb_per_s, series.points))
    lines.append(f"# Out of bounds values : {verdict}")
    lines.append(f"# Avg bus bandwidth    : {mean:g}")
    lines.append("#")
    return "\n".join(lines) + "\n"


def _format_nccl_line(words: Sequence[str]) -> str:
    return "#" + "".join(map(str.rjust, words, _NCCL_WIDTHS)).rstrip()[1:]


def _format_nccl_row(series: Series, point: Point) -> str:
    algbw = point.num_bytes / point.median_s / 1e9
    wrong_text = "N/A" if point.wrong is None else str(point.wrong)
    numbers = (
        f"{1e6 * point.median_s:.2f}",
        f"{algbw:.2f}",
        f"{series.gb_per_s(point):.2f}",
        wrong_text,
    )
    count = str(point.num_bytes // FLOAT32_BYTES)
    words = (str(point.num_bytes), count, "float", "sum", "-1", *numbers, *["N/A"] * 4)
    return "".join(map(str.rjust, words, _NCCL_WIDTHS))
