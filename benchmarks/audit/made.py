"""Consistent tables of many forms, made from seeds: true numbers, the columns that follow, and their print."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable

WORDS = {
    "n": ("GPUs", "# GPUs", "Threads", "Workers", "Cores", "Processes", "Number of devices", "p", "Ranks", "GPU count"),
    "seconds": ("Time (s)", "Seconds", "Wall time (s)", "Runtime (s)", "Elapsed (s)", "Execution time (s)", "Tp"),
    "rate": (
        "images/sec",
        "words/s",
        "samples/s",
        "Throughput (tokens/s)",
        "imgs/s",
        "img/sec",
        "ops/s",
        "sequences/s",
    ),
    "speedup": ("Speedup", "Speed-up", "speedup", "Speed up", "Scaling", "Sp"),
    "efficiency": ("Efficiency", "Parallel efficiency", "scaling eff.", "Scaling efficiency", "% of linear"),
    "each": ("images/sec per GPU", "rate per worker (samples/s)", "tokens/s/GPU"),
    "batch": ("Batch size", "Batch / GPU", "Batch size per GPU"),
}
FORMS = ("md", "md", "md", "bare", "grid", "html", "csv", "tsv", "columns", "tex")
SUFFIX = {
    "bare": "md",
    "grid": "rst",
    "html": "html",
    "csv": "csv",
    "tsv": "tsv",
    "columns": "txt",
    "tex": "tex",
    "md": "md",
}


@dataclasses.dataclass
class Column:
    """kind: what it holds ("n", "rate", ...); show: from the true number to its cell."""

    kind: str
    header: str
    values: list[float]
    show: Callable[[float], str]


@dataclasses.dataclass
class Made:
    """A table: columns with their true numbers, and the cells as printed, which faults are put into."""

    family: str
    form: str
    columns: list[Column]
    cells: list[list[str]]
    labels: list[str] | None = None
    before: str = ""

    @property
    def suffix(self) -> str:
        return SUFFIX[self.form]

    def of(self, kind: str) -> int | None:
        """The first column of a kind."""
        return next((k for k, column in enumerate(self.columns) if column.kind == kind), None)

    def put(self, row: int, column: int, value: float) -> None:
        self.cells[row][column] = self.columns[column].show(value)

    def true(self, row: int, column: int) -> float:
        return self.columns[column].values[row]

    def text(self) -> tuple[str, list[int]]:
        """The document and the line of each row."""
        header = [column.header for column in self.columns]
        rows = self.cells
        if self.labels:
            header, rows = ["Mode", *header], [[label, *row] for label, row in zip(self.labels, rows)]
        lines, first, step = _FORM[self.form](header, rows)
        start = len(self.before.splitlines())
        places = [start + first + step * k + 1 for k in range(len(rows))]
        return self.before + "\n".join(lines) + "\n", places


def _md(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    lines = ["## Results", "", *(f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows))]
    return [*lines, "", "More words."], 4, 1


def _bare(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    return [" | ".join(row) for row in (header, ["---"] * len(header), *rows)], 2, 1


def _grid(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    widths = [max(map(len, cells)) for cells in zip(header, *rows)]
    rule = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    lines = [rule, _bar(header, widths), rule.replace("-", "=")]
    for row in rows:
        lines += [_bar(row, widths), rule]
    return lines, 3, 2


def _bar(row: list[str], widths: list[int]) -> str:
    return "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |"


def _html(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    lines = ["<table>", "<tr>" + "".join(f"<th>{cell}</th>" for cell in header) + "</tr>"]
    return [*lines, *("<tr>" + "".join(f"<td>{c}</td>" for c in row) + "</tr>" for row in rows), "</table>"], 2, 1


def _csv(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    return [",".join(f'"{cell}"' if "," in cell else cell for cell in row) for row in (header, *rows)], 1, 1


def _tsv(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    return ["\t".join(row) for row in (header, *rows)], 1, 1


def _columns(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    widths = [max(map(len, cells)) + 3 for cells in zip(header, *rows)]
    lines = ["".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in (header, *rows)]
    return [lines[0], "-" * sum(widths), *lines[1:]], 2, 1


def _tex(header: list[str], rows: list[list[str]]) -> tuple[list[str], int, int]:
    head = [r"\begin{tabular}{" + "r" * len(header) + "}", r"\toprule"]
    lines = [
        " & ".join(cell.replace("%", r"\%").replace("#", r"\#") for cell in row) + r" \\" for row in (header, *rows)
    ]
    return [*head, lines[0], r"\midrule", *lines[1:], r"\bottomrule", r"\end{tabular}"], 4, 1


_FORM = {
    "md": _md,
    "bare": _bare,
    "grid": _grid,
    "html": _html,
    "csv": _csv,
    "tsv": _tsv,
    "columns": _columns,
    "tex": _tex,
}
FAMILIES = (
    "weak",
    "strong",
    "rates",
    "times",
    "efficiency",
    "each",
    "series",
    "late",
    "models",
    "pair",
    "phases",
    "rate",
)


def make(seed: int) -> Made:
    """A consistent table; the families take turns, its form, words and digits are drawn."""
    rng = random.Random(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    form = "md" if family in ("series", "pair") and rng.random() < 0.5 else rng.choice(FORMS)
    counts = sorted(rng.sample([2, 3, 4, 6, 8, 12, 16, 24, 32, 64], rng.randint(4, 6)))
    counts = [count * 8 for count in (1, 2, 4, 8, 16)] if family == "late" else [1, *counts]
    words = {kind: rng.choice(choices) for kind, choices in WORDS.items()}
    rng_rows = [counts] if family != "series" else [counts, counts]
    columns: list[Column] = []
    labels = None
    parts = [_numbers(rng, rows) for rows in rng_rows]
    merged = {key: [value for part in parts for value in part[key]] for key in parts[0]}
    if family == "series":
        labels = [name for name in rng.choice([("replicated", "parameter_server"), ("fp32", "fp16")]) for _ in counts]
    show = _shows(rng)
    if "%" in words["efficiency"]:
        show["efficiency"] = lambda value: f"{100 * value:.1f}"
    for kind, header in _layout(family, words):
        columns.append(Column(kind.rstrip("23"), header, merged[kind], show[kind.rstrip("23")]))
    cells = [[column.show(column.values[row]) for column in columns] for row in range(len(merged["n"]))]
    return Made(family, form, columns, cells, labels)


def _layout(family: str, words: dict[str, str]) -> list[tuple[str, str]]:
    """(kind, header) of each column of a family."""
    kinds = {
        "weak": ("n", "batch", "work_s", "rate", "speedup", "efficiency"),
        "strong": ("n", "seconds", "speedup", "efficiency"),
        "rates": ("n", "rate", "speedup", "efficiency"),
        "times": ("n", "seconds", "speedup"),
        "efficiency": ("n", "rate", "efficiency"),
        "each": ("n", "each", "rate", "efficiency"),
        "series": ("n", "rate", "speedup", "efficiency"),
        "late": ("n", "rate", "speedup", "efficiency"),
        "models": ("n", "rate", "rate2", "rate3"),
        "pair": ("n", "rate", "rate2", "ratio", "speedup", "speedup2"),
        "phases": ("n", "init", "train", "seconds", "speedup"),
        "rate": ("n", "rate"),
    }[family]
    headers = {
        **words,
        "work_s": "Time of 20 batches (s)",
        "rate2": words["rate"],
        "init": "init (s)",
        "train": "train (s)",
        "ratio": "Throughput speedup (FP32 to mixed precision)",
    }
    if family == "models":
        headers |= {"rate": "InceptionV3", "rate2": "ResNet-50", "rate3": "VGG16"}
    if family == "pair":
        headers |= {"rate": "Throughput - FP32", "rate2": "Throughput - mixed precision"}
        headers |= {"speedup": "Weak scaling - FP32", "speedup2": "Weak scaling - mixed precision"}
    if family == "phases":
        headers["seconds"] = "total (s)"
    if family == "each":
        headers["rate"] = "Total " + headers["rate"]
    return [(kind, headers[kind]) for kind in kinds]


def _numbers(rng: random.Random, counts: list[int]) -> dict[str, list[float]]:
    """True numbers of one series on `counts` devices."""
    loss, one, batch = rng.uniform(0.01, 0.06), rng.uniform(40, 9000), float(rng.choice([16, 32, 64, 128]))
    efficiency = [1 / (1 + loss * (n / counts[0] - 1) ** 0.8) for n in counts]
    speedup = [n / counts[0] * e for n, e in zip(counts, efficiency)]
    rate = [one * counts[0] * s for s in speedup]
    first_s, init = rng.uniform(60, 3000), rng.uniform(4, 30)
    work = 20 * batch
    precise = rng.uniform(1.5, 2.8)
    losses = [rng.uniform(0.02, 0.08), rng.uniform(0.02, 0.08)]
    other = [[n / counts[0] / (1 + part * (n / counts[0] - 1) ** 0.8) for n in counts] for part in losses]
    second = [one * counts[0] * precise * s for s in other[0]]
    seconds = [first_s / s for s in speedup]
    train = [first_s / s - init * 0.1 for s in speedup]
    return {
        "n": [float(n) for n in counts],
        "batch": [batch] * len(counts),
        "work_s": [work * n / r for n, r in zip(counts, rate)],
        "seconds": seconds,
        "rate": rate,
        "rate2": second,
        "rate3": [one * counts[0] * 0.4 * s for s in other[1]],
        "each": [r / n for n, r in zip(counts, rate)],
        "speedup": speedup,
        "speedup2": [r / second[0] for r in second],
        "ratio": [b / a for a, b in zip(rate, second)],
        "efficiency": efficiency,
        "init": [s - t for s, t in zip(seconds, train)],
        "train": train,
    }


def _shows(rng: random.Random) -> dict[str, Callable[[float], str]]:
    """How each kind is printed: decimals, marks and units of one author."""
    x, bold = rng.choice(["", "x", "×", "x"]), rng.choice(["{}", "{}", "{}", "**{}**"])
    digits = rng.randint(2, 3)
    comma, rate_digits = rng.choice([",", ""]), rng.randint(0, 2)
    time_digits, percent = rng.randint(1, 3), rng.choice(["{:.1f}%", "{:.1f} %", "{:.2f}%", "fraction"])

    def share(value: float) -> str:
        return f"{value:.3f}" if percent == "fraction" else percent.format(100 * value)

    def rate(value: float) -> str:
        return f"{value:{comma}.{rate_digits}f}"

    def seconds(value: float) -> str:
        return f"{value:.{time_digits}f}"

    return {
        "n": lambda value: f"{value:g}",
        "batch": lambda value: f"{value:g}",
        "work_s": lambda value: f"{value:.{time_digits + 1}f}",
        "seconds": seconds,
        "init": seconds,
        "train": seconds,
        "rate": rate,
        "each": lambda value: f"{value:.2f}",
        "speedup": lambda value: bold.format(f"{value:.{digits}f}{x}"),
        "ratio": lambda value: f"{value:.2f}{x}",
        "efficiency": share,
    }
