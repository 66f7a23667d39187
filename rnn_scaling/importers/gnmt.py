"""GNMT in PyTorch (NVIDIA DeepLearningExamples, MLPerf training v0.6 and v0.7): the TRAIN lines as steps.

Format: mlcommons/training_results_v0.7, NVIDIA/benchmarks/gnmt/.../seq2seq/train/trainer.py and its logs,
NVIDIA/results/*/gnmt/result_*.txt.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence

from rnn_scaling.importers import common
from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    ScalingRow,
    by_rank,
    detector,
    exact,
    finish,
    positive,
)
from rnn_scaling.importers.rank_tags import Ranks
from rnn_scaling.records import printed_number
from rnn_scaling.records.parts import LogFinding, LogFindingKind
from rnn_scaling.system.files.markdown import Table, Value

FORMAT = "gnmt"
UNIT = "tokens/s"
WARMUP_STEPS = (
    50  # of a run; and the first step of every epoch, which waits for its data
)
MAX_RANKS = 1_000_000
AGREE = 0.05  # relative: a total of all ranks that is further from a whole multiple of one rank's says nothing of them
_TRAIN = re.compile(
    r"TRAIN \[(\d{1,7})\]\[(\d{1,9})/(\d{1,9})\]\s+Time (\S+) \((\S+?)\).{0,80}?Tok/s (\S+) \((\S+?)\)"
    r"(?:\s+Loss/tok (\S+))?"
)
detect = detector(_TRAIN, "TRAIN [")
_EPOCH = re.compile(r"Performance: Epoch: (\d{1,7})\s+Training: (\S+) Tok/s")
_OPTION = re.compile(
    r"\b(math|train[-_]batch[-_]size|train[-_]global[-_]batch[-_]size)[ =]'?([\w.]{1,20})"
)
_GLOBAL_BATCH = re.compile(r"\bglobal_batch_size\W{1,4}(?:value\W{1,4})?(\d{1,12})\b")
NOTES = (
    f"Rate: tokens / seconds of the steps that the log shows, summed over both; left out are the first {WARMUP_STEPS} "
    "steps of a run and the first step of every epoch. Tok/s in brackets is the log's mean of the steps' rates, in "
    "which long and short steps count alike.",
    "A TRAIN line is one rank's step: with several ranks the rate is that rank's times their number, or the sum where "
    "all of them print. 'Training: N Tok/s' at the end of an epoch is the log's own sum over ranks.",
    "Tokens are those of source and target.",
)
COLUMNS = (
    "Epoch", "Rank", "Steps", "Steps shown", "Seconds a step (mean)", "Tokens/s of the rank (mean of steps)",
    "Tokens/s of all ranks",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Step:
    line: int
    epoch: int
    step: int
    of: int
    seconds: float
    rate: float
    mean_s: str
    mean_rate: str

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.step


@dataclasses.dataclass
class _GnmtRun:
    """One run of all ranks: the steps of each, and what the log says of it."""

    steps: dict[int | None, list[_Step]] = dataclasses.field(default_factory=dict)
    totals: dict[int, float] = dataclasses.field(
        default_factory=dict
    )  # tokens/s of all ranks by epoch
    settings: dict[str, str] = dataclasses.field(default_factory=dict)


def parse(lines: Iterable[str], source: str, ranks: Ranks | None = None) -> ImportedLog:
    """Return one row per run.

    Args:
      lines: The lines of the log.
      source: Its name.
      ranks: FIRST if a TRAIN line is the total of all ranks; it is one rank's part
        otherwise.

    Raises:
      LogError: If the log has no TRAIN line.
    """
    problems = Problems()
    runs = [_GnmtRun()]
    settings: dict[str, str] = {}
    count = 0
    for line, rank, text in by_rank(lines):
        try:
            if "TRAIN [" in text:
                count += 1
                _train(line, rank, text, runs)
            elif match := _EPOCH.search(text):
                runs[-1].totals[int(match[1])] = positive(match[2], "Tok/s of an epoch")
            elif "batch" in text:
                settings |= {
                    name.replace("_", "-"): value
                    for name, value in _OPTION.findall(text)
                }
                if match := _GLOBAL_BATCH.search(text):
                    settings["train-global-batch-size"] = match[1]
        except ValueError as e:
            problems.add(line, f"{e}; line left out", "bad number")
        if problems.too_many(line, count, "TRAIN lines"):
            break
        runs[-1].settings = dict(settings)
    runs = [run for run in runs if run.steps]
    rows: list[ScalingRow] = []
    findings: list[LogFinding] = []
    for run in runs:
        row = _row(run, source, problems, findings, ranks)
        if row is not None:
            rows.append(row)
    epochs = Table(
        "GNMT epochs", COLUMNS, tuple(cells for run in runs for cells in _epochs(run))
    )
    nothing = "no TRAIN line of GNMT in this file"
    return finish(
        FORMAT, source, rows, [epochs], NOTES, problems, nothing, findings=findings
    )


def _train(line: int, rank: int | None, text: str, runs: list[_GnmtRun]) -> None:
    """Add one TRAIN line to the last run, or begin a new run with it."""
    match = _TRAIN.search(text)
    if match is None:
        raise ValueError(
            f"expected TRAIN [epoch][step/steps] Time s (mean) ... Tok/s rate (mean), got {text[:60]!r}"
        )
    if match[8] is not None and match[8].lower().lstrip("-") in ("nan", "inf"):
        raise ValueError(f"the loss is {match[8]}: the run diverged")
    step = _Step(
        line, int(match[1]), int(match[2]), int(match[3]), positive(match[4], "seconds"), positive(match[6], "Tok/s"),
        match[5], match[7],
    )  # fmt: skip
    if not step.seconds * step.rate <= common.LARGEST:
        raise ValueError(f"expected Tok/s of a step, got {match[6][:40]!r}")
    if rank is None:
        rank = _untagged_rank(runs[-1], step)
    before = runs[-1].steps.get(rank)
    if before and step.place <= before[-1].place:
        runs.append(_GnmtRun())
    runs[-1].steps.setdefault(rank, []).append(step)


def _untagged_rank(run: _GnmtRun, step: _Step) -> int | None:
    """Return the rank of a line without a tag, in the order in which ranks print.

    Ranks print the same steps, so a line continues the rank that is furthest of those
    before this step. A line with the first step of the run is a further rank, as long as
    no rank has printed more than two lines.
    """
    before = [rank for rank, steps in run.steps.items() if steps[-1].place < step.place]
    if before:
        return max(before, key=lambda rank: run.steps[rank][-1].place)
    all_steps = list(run.steps.values())
    is_another = all(
        steps[0].place == step.place and len(steps) <= 2 for steps in all_steps
    )
    return len(all_steps) if all_steps and is_another else None


def _row(
    run: _GnmtRun,
    source: str,
    problems: Problems,
    findings: list[LogFinding],
    ranks: Ranks | None,
) -> ScalingRow | None:
    """Return the row of a run, and add what else its rate may be to the findings.

    The log's own total is the rate if the steps that the log shows say something else,
    or nothing. None if the run has no total and ends within its warm-up.
    """
    kept = _kept(run)
    first = next(iter(run.steps.values()))[0]
    total = list(run.totals.values())[-1] if run.totals else None
    num_counted = sum(map(len, kept.values()))
    num_shown = sum(map(len, run.steps.values()))
    if not all(kept.values()) and total is not None:
        findings.append(_of_total(total, None, num_counted, num_shown))
        return _row_of(run, source, total, None, {})
    if not all(kept.values()):
        text = f"the run ends within its warm-up ({WARMUP_STEPS} steps): no rate"
        problems.add(first.line, text, "warm-up")
        return None
    rank_rates = [_rate(steps) for steps in kept.values()]
    devices = _devices(run, len(rank_rates))
    rate = math.fsum(rank_rates) * (devices / len(rank_rates) if devices else 1)
    if ranks == Ranks.FIRST:
        rate = rank_rates[0]
    elif devices is None and total is None:
        problems.add(
            first.line,
            "the log does not say how many ranks there were: the rate is one rank's",
            "ranks",
        )
    if len(rank_rates) > 1:
        findings.append(_of_ranks(rank_rates, ranks == Ranks.FIRST))
    extra = {
        "steps shown": exact(num_counted),
        "left out as warm-up": exact(num_shown - num_counted),
        "tokens/s a rank": _rounded(math.fsum(rank_rates) / len(rank_rates)),
    }
    if total is not None:
        extra["tokens/s of all ranks as printed"] = _rounded(total)
    if total is None or abs(rate / total - 1) <= AGREE or ranks == Ranks.FIRST:
        return _row_of(run, source, rate, devices, extra)
    findings.append(_of_total(total, rate, num_counted, num_shown))
    extra["tokens/s of the steps shown"] = _rounded(rate)
    return _row_of(run, source, total, devices, extra)


def _row_of(
    run: _GnmtRun,
    source: str,
    rate: float,
    devices: int | None,
    extra: Mapping[str, printed_number.Printed],
) -> ScalingRow:
    series = ["gnmt"]
    if "math" in run.settings:
        series.append(run.settings["math"])
    return ScalingRow(
        source,
        next(iter(run.steps.values()))[0].line,
        series=", ".join(series),
        devices=devices,
        batch_size=_size(run.settings.get("train-batch-size")),
        global_batch_size=_size(run.settings.get("train-global-batch-size")),
        rate=_rounded(rate),
        rate_unit=UNIT,
        extra=extra,
    )


def _kept(run: _GnmtRun) -> dict[int | None, list[_Step]]:
    """Return the steps of each rank after the warm-up.

    A rank without any is left out if others have some: a run that was started again
    after a line or two looks like a rank.
    """
    kept = {rank: _measured(steps) for rank, steps in run.steps.items()}
    with_steps = {rank: steps for rank, steps in kept.items() if steps}
    return with_steps if None in kept and with_steps else kept


def _rate(steps: Sequence[_Step]) -> float:
    """Return the tokens/s of one rank over the steps that its log shows."""
    tokens = math.fsum(step.seconds * step.rate for step in steps)
    return tokens / math.fsum(step.seconds for step in steps)


def _of_total(
    total: float, rate: float | None, num_counted: int, num_shown: int
) -> LogFinding:
    """Return that the log's own total is the rate; `rate` is that of its steps."""
    return LogFinding(
        kind=LogFindingKind.LOG_TOTAL.value,
        count=num_counted,
        total=num_shown,
        taken=total,
        other=rate,
    )


def _of_ranks(rank_rates: Sequence[float], is_first: bool) -> LogFinding:
    total = math.fsum(rank_rates)
    kind = LogFindingKind.FIRST_RANK if is_first else LogFindingKind.SUM_OF_RANKS
    return LogFinding(
        kind=kind.value,
        count=len(rank_rates),
        total=len(rank_rates),
        taken=rank_rates[0] if is_first else total,
        other=total if is_first else rank_rates[0],
    )


def _measured(steps: Sequence[_Step]) -> list[_Step]:
    """The steps of a rank without the first WARMUP_STEPS of its run, and without the first of every epoch."""
    first = steps[0].epoch
    return [
        step
        for step in steps
        if step.step > 0 and (step.epoch - first) * step.of + step.step >= WARMUP_STEPS
    ]


def _devices(run: _GnmtRun, num_printing: int) -> int | None:
    """How many ranks there were: those that print, batch sizes, or the log's total over one rank's rate."""
    if num_printing > 1:
        return num_printing
    sizes = [
        _size(run.settings.get(name))
        for name in ("train-global-batch-size", "train-batch-size")
    ]
    if (
        sizes[0]
        and sizes[1]
        and sizes[0].value % sizes[1].value == 0
        and sizes[0].value / sizes[1].value <= MAX_RANKS
    ):
        return round(sizes[0].value / sizes[1].value)
    steps = next(iter(run.steps.values()))
    for epoch, total in reversed(run.totals.items()):
        last = next((step for step in reversed(steps) if step.epoch == epoch), None)
        mean = printed_number.parse(last.mean_rate) if last else None
        if mean is not None and mean.value > 0 and total / mean.value <= MAX_RANKS:
            ratio = total / mean.value
            if round(ratio) >= 1 and abs(ratio - round(ratio)) <= AGREE * ratio:
                return round(ratio)
    return None


def _epochs(run: _GnmtRun) -> list[tuple[Value, ...]]:
    rows: list[tuple[Value, ...]] = []
    for rank, steps in run.steps.items():
        for epoch in dict.fromkeys(step.epoch for step in steps):
            epoch_steps = [step for step in steps if step.epoch == epoch]
            means = [
                printed_number.parse(text)
                for text in (epoch_steps[-1].mean_s, epoch_steps[-1].mean_rate)
            ]
            shown = [cell.value if cell else None for cell in means]
            rows.append(
                (
                    epoch,
                    rank,
                    epoch_steps[-1].of,
                    len(epoch_steps),
                    *shown,
                    run.totals.get(epoch),
                )
            )
    return rows


def _size(text: str | None) -> printed_number.Printed | None:
    return (
        printed_number.parse(text)
        if text and text.isdecimal() and int(text[:13]) > 0
        else None
    )


def _rounded(value: float) -> printed_number.Printed:
    """A mean of steps that were printed to about four digits, as a number to be read."""
    return printed_number.Printed(value, 1.0, f"{value:.0f}")
