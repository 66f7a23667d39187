"""What was measured, as Markdown that is plain text too, and in the columns of nccl-tests."""

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
    HOLDS_WITHIN,
    Fit,
    Point,
    Series,
    size_text,
)
from rnn_scaling.system.files.markdown import markdown_table

MISSING = "n/a"
NO_COPY = "no copy"
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
    devices: str
    series: tuple[Series, ...]
    nothing: Series | None = (
        None  # the timed call with nothing exchanged; None: not measured
    )
    left_out: tuple[str, ...] = ()  # what was not measured and why, a line each
    gradient_bytes: tuple[tuple[str, int], ...] = ()  # preset -> bytes of its gradients
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
        """What failed or is wrong, a line each."""
        errors = [
            f"{series.name}: {series.error}" for series in self.series if series.error
        ]
        wrong = [
            (series.name, point)
            for series in self.all_reduces
            for point in series.points
            if point.wrong
        ]
        return errors + [
            f"{name}: {at.wrong} wrong elements at {size_text(at.num_bytes)}"
            for name, at in wrong
        ]


def render(results: Measurements, every_size: bool = False) -> str:
    """The report; with `every_size` also a table of all times of memory and copies."""
    links = [link for link in results.links if link.points]
    reduces = [all_reduce for all_reduce in results.all_reduces if all_reduce.points]
    sections = {
        "Memory and copies": [_links(links), _notes(links)] if links else [],
        "Matrix products": [_products(results.products)] if results.products else [],
        f"All-reduce, {results.devices}": _all_reduce(results, reduces)
        if reduces
        else [],
        "Every size": [_every_size(results)] if every_size else [],
        "Topology": [results.topology.rstrip() + "\n"] if results.topology else [],
        "Not measured": [
            _bullets([*results.left_out, *filter(None, [results.interrupted])])
        ],
        "Failed or wrong": [_bullets(results.errors)],
    }
    parts = [
        part
        for title, texts in sections.items()
        if any(texts)
        for part in (f"## {title}\n", *texts)
    ]
    return "\n".join(part for part in ("# Links\n", *parts) if part)


def _links(links: Sequence[Series]) -> str:
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
        rate = _rate(series, last) if series.traffic else NO_COPY
        sizes = size_text(last.num_bytes), size_text(first.num_bytes)
        rows.append(
            (
                series.name,
                sizes[0],
                rate,
                sizes[1],
                _us(first),
                *_fit(series.fitted(), bool(series.traffic)),
            )
        )
    text = (
        f"\nGB/s: 10^9 bytes a second at the largest size, median of {_repeats(links)} and quartiles. "
        f"{_FIT_TEXT} Host memory: a copy counts each byte twice, as read and as written (as STREAM does); small sizes "
        "lie in the caches, and alpha is the call from Python.\n"
    )
    return markdown_table(head, rows) + text


_FIT_HEAD = ("alpha (us)", "beta (GB/s)", "Line holds from", "Residual (%)")
_FIT_TEXT = (
    "time = alpha + bytes / beta is fitted to the medians (relative least squares; after ± the standard error). "
    "A line holds where no median is further from it than "
    f"{100 * HOLDS_WITHIN:.0f} %: from the size in the table to the largest; residual: the largest distance. "
    "In brackets: the line over all sizes, which does not hold."
)


def _fit(line: Fit | None, has_bandwidth: bool = True) -> tuple[str, ...]:
    if line is None:
        return (MISSING,) * 4
    alpha = _with_error(line.alpha_us, line.alpha_error_us)
    beta = "no growth"
    residual = f"{100 * line.largest_residual:.0f}"
    if line.beta_gb_per_s is not None and line.beta_error_gb_per_s is not None:
        beta = (
            _with_error(line.beta_gb_per_s, line.beta_error_gb_per_s)
            if has_bandwidth
            else NO_COPY
        )
    if not line.holds:
        return f"({alpha})", f"({beta})", "nowhere", residual
    return alpha, beta, size_text(line.from_bytes), residual


def _products(products: Sequence[Gemm]) -> str:
    shapes = sorted(
        {product.shape for gemm_ in products for product in gemm_.products},
        key=gemm.flops,
    )
    titles = [gemm.title(shape) for shape in shapes]
    rows = []
    for gemm_ in products:
        rates = {
            product.shape: _number(gemm_.rate(product).median / GIGA)
            for product in gemm_.products
        }
        best = tuple(_number(value / GIGA) for value in dataclasses.astuple(gemm_.best))
        cells = [rates.get(shape, MISSING) for shape in shapes]
        rows.append((gemm_.dtype, gemm_.devices, *cells, "{} ({} to {})".format(*best)))
    text = (
        "\nGFLOP/s: 10^9 operations a second, 2 m k n for [m, k] x [k, n], of all the devices that compute at once; "
        "medians, and of the best product the quartiles. Runs of this machine relate to the best.\n"
    )
    head = ("Type", "Devices", *titles, "Best (quartiles)")
    notes = [
        f"{product.dtype}, {product.devices}: {note}"
        for product in products
        for note in product.notes
    ]
    return markdown_table(head, rows) + text + _bullets(notes)


def _all_reduce(results: Measurements, shown: Sequence[Series]) -> list[str]:
    head = ("Size", *(series.name for series in shown))
    sizes = sorted({size for series in shown for size in series.sizes})
    points = [{point.num_bytes: point for point in series.points} for series in shown]
    times = [
        [size_text(size), *(_us(by_size.get(size)) for by_size in points)]
        for size in sizes
    ]
    rates = []
    for size in sizes:
        cells = [
            _rate(series, by_size.get(size), False)
            for series, by_size in zip(shown, points)
        ]
        rates.append([size_text(size), *cells])
    parts = [
        "Time of one all-reduce of float32, us (median)\n",
        markdown_table(head, times),
        "Bus bandwidth, GB/s: size / time * 2(n-1)/n\n",
        markdown_table(head, rates),
        markdown_table(
            ("Algorithm", *_FIT_HEAD),
            [(series.name, *_fit(series.fitted())) for series in shown],
        ),
        f"{_FIT_TEXT} Medians of {_repeats(shown)}.\n",
        _notes(shown),
        _compared(shown),
    ]
    if results.nothing and results.nothing.points:
        first = results.nothing.points[0]
        last = results.nothing.points[-1]
        parts.append(
            f"Of each time, {_us(first)} us are the call itself: the same call with nothing "
            f"exchanged ({_us(last)} us at {size_text(last.num_bytes)}).\n"
        )
    return parts


def _every_size(results: Measurements) -> str:
    """Shortest, median and quartiles of the repeats of each size."""
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
            times = [
                _number(1e6 * t)
                for t in (
                    min(p.seconds),
                    p.quartiles_s[0],
                    p.median_s,
                    p.quartiles_s[1],
                )
            ]
            repeats = f"{len(p.seconds)} x {p.calls}"
            wrong = MISSING if p.wrong is None else str(p.wrong)
            rate = _number(series.gb_per_s(p)) if series.traffic else NO_COPY
            rows.append(
                (series.name, size_text(p.num_bytes), repeats, *times, rate, wrong)
            )
    text = "\nRepeats: times measured x transfers in a row of which each is the mean. GB/s of an all-reduce: busbw.\n"
    return markdown_table(head, rows) + text


def _compared(shown: Sequence[Series]) -> str:
    points = [(series.name, point.wrong) for series in shown for point in series.points]
    unproven = sorted({name for name, wrong in points if wrong is None})
    if all(wrong is None for _, wrong in points):
        return "Wrong elements: n/a, no sum was compared.\n"
    total = sum(wrong or 0 for _, wrong in points)
    text = (
        f"Wrong elements: {total}, of all elements of all ranks, against the exact sum."
    )
    return (
        f"{text} Not compared everywhere: {', '.join(unproven)}.\n"
        if unproven
        else f"{text}\n"
    )


def _notes(shown: Sequence[Series]) -> str:
    by_note: dict[str, list[str]] = {}
    for series in shown:
        for note in series.notes:
            by_note.setdefault(note, []).append(series.name)
    return _bullets([f"{', '.join(names)}: {note}" for note, names in by_note.items()])


def _bullets(lines: Sequence[str]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def _repeats(shown: Sequence[Series]) -> str:
    counts = [len(point.seconds) for series in shown for point in series.points]
    low = min(counts)
    high = max(counts)
    return f"{high} repeats" if low == high else f"{low} to {high} repeats"


def _rate(series: Series, point: Point | None, with_quartiles: bool = True) -> str:
    if point is None:
        return MISSING
    rate = series.gb_per_s(point)
    if not with_quartiles:
        return _number(rate)
    low, high = (
        rate * point.median_s / seconds for seconds in reversed(point.quartiles_s)
    )
    return f"{_number(rate)} ({_number(low)} to {_number(high)})"


def _us(point: Point | None) -> str:
    return MISSING if point is None else _number(1e6 * point.median_s)


def _with_error(value: float, error: float) -> str:
    """A value to the second digit of its error, three behind the point at most."""
    digits = min(3, max(0, 1 - math.floor(math.log10(error)))) if error > 0 else 3
    return f"{round(value, digits) + 0.0:,.{digits}f} ± {error:,.{digits}f}"  # + 0.0: no "-0"


def _number(value: float) -> str:
    """Three digits, never in powers of ten."""
    if abs(value) < 0.001:
        return f"{value:.3f}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def nccl_tests(all_series: Sequence[Series], host: str, devices: Sequence[str]) -> str:
    """All-reduce times in the columns of NVIDIA's nccl-tests, so that whatever reads its logs reads these.

    Format: NVIDIA/nccl-tests, src/util.cu. Time is the median here, not the mean. In place nothing is measured, since
    TensorFlow's results are new tensors: those columns hold N/A.
    """
    return "\n".join(
        _nccl_block(series, host, devices) for series in all_series if series.points
    )


def _nccl_block(series: Series, host: str, devices: Sequence[str]) -> str:
    first = series.sizes[0]
    last = series.sizes[-1]
    factor = series.sizes[1] // first if len(series.sizes) > 1 else 1
    repeats = max(len(point.seconds) for point in series.points)
    compared = [point.wrong for point in series.points if point.wrong is not None]
    lines = [
        f"# all_reduce_perf's columns for TensorFlow's all-reduce by {series.name} (rnn_scaling.links): medians",
        f"# nThread 1 nGpus {series.ranks} minBytes {first} maxBytes {last} step: {factor}(factor) warmup iters: 1 "
        f"iters: {repeats} agg iters: 1 validation: {int(bool(compared))} graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {k:2d} Group  0 Pid {os.getpid():6d} on {host} device {k:2d} [{d}]"
            for k, d in enumerate(devices)
        ),
        "#",
        f"#{'out-of-place':>76}{'in-place':>24}",
        _nccl_line(_NCCL_HEAD),
        _nccl_line(_NCCL_UNIT),
    ]
    lines += [_nccl_row(series, point) for point in series.points]
    bad = sum(1 for wrong in compared if wrong)
    verdict = (
        f"{bad} {'FAILED' if bad else 'OK'}"
        if compared
        else "N/A (no sum was compared)"
    )
    lines.append(f"# Out of bounds values : {verdict}")
    lines.append(
        f"# Avg bus bandwidth    : {statistics.fmean(series.gb_per_s(p) for p in series.points):g}"
    )
    lines.append("#")
    return "\n".join(lines) + "\n"


def _nccl_line(words: Sequence[str]) -> str:
    text = "".join(
        word.rjust(width) for word, width in zip(words, _NCCL_WIDTHS)
    ).rstrip()
    return "#" + text[1:]


def _nccl_row(series: Series, point: Point) -> str:
    algbw = point.num_bytes / point.median_s / 1e9
    wrong = "N/A" if point.wrong is None else str(point.wrong)
    numbers = (
        f"{1e6 * point.median_s:.2f}",
        f"{algbw:.2f}",
        f"{series.gb_per_s(point):.2f}",
        wrong,
    )
    count = str(point.num_bytes // FLOAT32_BYTES)
    words = (str(point.num_bytes), count, "float", "sum", "-1", *numbers, *["N/A"] * 4)
    return "".join(word.rjust(width) for word, width in zip(words, _NCCL_WIDTHS))
