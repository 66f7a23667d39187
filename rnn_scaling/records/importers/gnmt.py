"""GNMT in PyTorch (NVIDIA DeepLearningExamples, MLPerf training v0.6 and v0.7).

Format: mlcommons/training_results_v0.7, NVIDIA/benchmarks/gnmt/.../seq2seq/train/
trainer.py and its logs, NVIDIA/results/*/gnmt/result_*.txt. A TRAIN line is one step of
one rank; `Performance:` is the log's own sum over ranks.
"""

import dataclasses
import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.importers import rates
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.importers.rates import RankRate
from rnn_scaling.records.importers.reading import (
    ImportedRun,
    LogFormat,
    LogLine,
    Problems,
    Reading,
    Terms,
    exact_number,
    log_lines,
    make_reading,
    parse_positive,
    run_record,
)
from rnn_scaling.records.parts import LogFinding, LogFindingKind
from rnn_scaling.system.files.markdown import Table, Value

NAME = "gnmt"
_UNIT = "tokens"
# Steps of a run that are left out, like the first step of each epoch, which waits for
# data.
_WARMUP_STEPS = 50
_MAX_RANKS = 1_000_000
_AGREE = 0.05  # largest relative difference of two totals that agree
_TRAIN = re.compile(
    r"TRAIN \[(?P<epoch>\d{1,7})\]\[(?P<step>\d{1,9})/(?P<steps>\d{1,9})\]\s+"
    r"Time (?P<seconds>\S+) \((?P<mean_s>\S+?)\).{0,80}?"
    r"Tok/s (?P<rate>\S+) \((?P<mean_rate>\S+?)\)(?:\s+Loss/tok (?P<loss>\S+))?"
)
_EPOCH = re.compile(r"Performance: Epoch: (\d{1,7})\s+Training: (\S+) Tok/s")
_OPTION = re.compile(
    r"\b(math|train[-_]batch[-_]size|train[-_]global[-_]batch[-_]size)"
    r"[ =]'?([\w.]{1,20})"
)
_GLOBAL_BATCH = re.compile(r"\bglobal_batch_size\W{1,4}(?:value\W{1,4})?(\d{1,12})\b")
_NOTES = (
    "The rate is all tokens / all seconds of the steps in the log. The first "
    f"{_WARMUP_STEPS} steps of a run and the first step of every epoch do not count. "
    "Tok/s in brackets is the log's mean of the rates of steps, whatever their length.",
    "A TRAIN line is a step of one rank. If only one of several ranks prints, its rate "
    "is multiplied by their number; otherwise the rates are added. 'Training: N Tok/s' "
    "at the end of an epoch is the log's own sum over ranks.",
    "Tokens are source and target tokens.",
)
_COLUMNS = (
    "Epoch", "Rank", "Steps", "Steps shown", "Seconds a step (mean)",
    "Tokens/s of the rank (mean of steps)", "Tokens/s of all ranks",
)  # fmt: skip


class _Step(NamedTuple):
    """One TRAIN line."""

    epoch: int
    number: int  # in its epoch, from 0
    epoch_length: int  # number of steps of the epoch
    seconds: float
    rate: float
    mean_s: PrintedNumber | None
    mean_rate: PrintedNumber | None
    line: int

    @property
    def position(self) -> tuple[int, int]:
        return self.epoch, self.number


@dataclasses.dataclass
class _Run:
    """The steps of each rank, and the settings and totals of the run."""

    steps_by_rank: dict[int | None, list[_Step]] = dataclasses.field(
        default_factory=dict
    )
    totals: dict[int, float] = dataclasses.field(default_factory=dict)  # by epoch
    settings: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def first(self) -> _Step:
        return next(iter(self.steps_by_rank.values()))[0]

    def batch_size_setting(self, name: str) -> int | None:
        """Return a batch size from the settings; None if it is not a number above 0."""
        text = self.settings.get(name, "")
        return int(text) if re.fullmatch(r"0*[1-9]\d{0,12}", text) else None


class Gnmt(LogFormat):
    """The log of one or more trainings."""

    name = NAME
    needles = ("TRAIN [",)
    detected = _TRAIN.pattern
    has_rates = True

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return all runs. With Ranks.FIRST, a TRAIN line is the total of all ranks."""
        problems = Problems()
        runs = [_Run()]
        settings: dict[str, str] = {}
        for line in log_lines(lines):
            try:
                if "TRAIN [" in line.text:
                    _add_step(line, runs)
                elif match := _EPOCH.search(line.text):
                    total = parse_positive(match[2], "Tok/s of an epoch")
                    runs[-1].totals[int(match[1])] = total
                elif "batch" in line.text:
                    for name, value in _OPTION.findall(line.text):
                        settings[name.replace("_", "-")] = value
                    if match := _GLOBAL_BATCH.search(line.text):
                        settings["train-global-batch-size"] = match[1]
            except ValueError as e:
                problems.add(line.number, f"{e}; line left out", "bad number")
            runs[-1].settings = dict(settings)

        rows: list[tuple[Value, ...]] = []
        imported = []
        for run in runs:
            if not run.steps_by_rank:
                continue
            rows += _list_epoch_rows(run)
            record = _make_imported_run(run, problems, terms)
            if record is not None:
                imported.append(record)
        return make_reading(
            NAME,
            problems,
            "this file contains no TRAIN line of GNMT",
            runs=imported,
            tables=[Table("GNMT epochs", _COLUMNS, tuple(rows))],
            notes=_NOTES,
        )


def _add_step(line: LogLine, runs: list[_Run]) -> None:
    """Add one TRAIN line to the last run, or begin a new run with it."""
    match = _TRAIN.search(line.text)
    if match is None:
        raise ValueError(
            "expected TRAIN [epoch][step/steps] Time s (mean) ... Tok/s rate (mean), "
            f"got {line.text[:60]!r}"
        )
    if (match["loss"] or "").lower().lstrip("-") in ("nan", "inf"):
        raise ValueError(f"the loss is {match['loss']}: the run diverged")
    step = _Step(
        int(match["epoch"]),
        int(match["step"]),
        int(match["steps"]),
        parse_positive(match["seconds"], "seconds"),
        parse_positive(match["rate"], "Tok/s"),
        cell_numbers.parse_cell(match["mean_s"]),
        cell_numbers.parse_cell(match["mean_rate"]),
        line.number,
    )
    parse_positive(str(step.seconds * step.rate), "Tok/s of a step")
    rank = _guess_rank(runs[-1], step) if line.rank is None else line.rank
    earlier = runs[-1].steps_by_rank.get(rank)
    if earlier and step.position <= earlier[-1].position:
        runs.append(_Run())
    runs[-1].steps_by_rank.setdefault(rank, []).append(step)


def _guess_rank(run: _Run, step: _Step) -> int | None:
    """Return the rank of a line without a tag, in the order in which ranks print.

    Ranks print the same steps, so a line continues the rank that is furthest, of those
    before this step. A line with the first step of the run is another rank, as long as
    no rank has printed more than two lines.
    """
    earlier_positions = {}
    for rank, steps in run.steps_by_rank.items():
        if steps[-1].position < step.position:
            earlier_positions[rank] = steps[-1].position
    if earlier_positions:
        return max(earlier_positions, key=lambda rank: earlier_positions[rank])
    for steps in run.steps_by_rank.values():
        if steps[0].position != step.position or len(steps) > 2:
            return None
    return len(run.steps_by_rank) or None


def _make_imported_run(
    run: _Run, problems: Problems, terms: Terms
) -> ImportedRun | None:
    """Return the run as a record.

    Returns:
      None if the run has no total and ends within its warm-up.
    """
    counted_steps = _drop_warmup(run)
    total = next(reversed(run.totals.values()), None)
    num_counted = sum(map(len, counted_steps.values()))
    num_printed = sum(map(len, run.steps_by_rank.values()))
    if not all(counted_steps.values()):
        if total is None:
            reason = f"the run ends within its warm-up ({_WARMUP_STEPS} steps) and has no rate"
            problems.add(run.first.line, reason, "warm-up")
            return None
        kind = LogFindingKind.LOG_TOTAL
        finding = rates.make_finding(kind, num_counted, num_printed, total)
        return _make_run(run, total, None, [finding], {})

    rank_rates = [RankRate(_mean_rate(steps)) for steps in counted_steps.values()]
    devices = _count_devices(run, len(rank_rates)) or terms.num_devices
    if devices is None and total is None and terms.ranks != Ranks.FIRST:
        reason = (
            "the log does not give the number of ranks, so the rate is that of one "
            "rank; add --num_devices=N"
        )
        problems.add(run.first.line, reason, "ranks")
    shown_rate = _sum_rank_rates(rank_rates, devices, terms)
    findings = list(shown_rate.findings)
    extra_numbers = {
        "steps shown": exact_number(num_counted),
        "left out as warm-up": exact_number(num_printed - num_counted),
        "tokens/s a rank": _rounded_number(
            statistics.fmean(rank.rate for rank in rank_rates)
        ),
    }
    if total is not None:
        extra_numbers["tokens/s of all ranks as printed"] = _rounded_number(total)
    rate = _choose_rate(shown_rate.rate, total, terms)
    if rate != shown_rate.rate:
        kind = LogFindingKind.LOG_TOTAL
        finding = rates.make_finding(
            kind, num_counted, num_printed, rate, shown_rate.rate
        )
        findings.append(finding)
        extra_numbers["tokens/s of the steps shown"] = _rounded_number(shown_rate.rate)
    return _make_run(run, rate, devices, findings, extra_numbers)


def _sum_rank_rates(
    rank_rates: Sequence[RankRate], devices: int | None, terms: Terms
) -> RankRate:
    """Return the rate of all ranks according to the steps that the log shows.

    It is the sum of the ranks that print. A single printing rank counts for all devices,
    unless the user takes its rate for the total or the number of devices is unknown.
    """
    first = rank_rates[0]
    if len(rank_rates) > 1:
        by_default = dataclasses.replace(terms, ranks=terms.ranks or Ranks.SUM)
        return rates.combine_ranks(rank_rates, by_default, counts_items=True)
    if terms.ranks == Ranks.FIRST or devices is None:
        return first
    return dataclasses.replace(first, rate=first.rate * devices)


def _choose_rate(shown_rate: float, total: float | None, terms: Terms) -> float:
    """Return the total of the log if it contradicts the rate of the steps shown.

    With Ranks.FIRST, the steps are the total.
    """
    if total is None or terms.ranks == Ranks.FIRST:
        return shown_rate
    return shown_rate if abs(shown_rate / total - 1) <= _AGREE else total


def _make_run(
    run: _Run,
    rate: float,
    devices: int | None,
    findings: Sequence[LogFinding],
    extra: Mapping[str, PrintedNumber],
) -> ImportedRun:
    options = {
        "math": run.settings.get("math"),
        "num_devices": devices,
        "batch_size": run.batch_size_setting("train-batch-size"),
    }
    if options["batch_size"] is None:
        options["global_batch_size"] = run.batch_size_setting("train-global-batch-size")
    record = run_record(
        NAME, options, _UNIT, rate, rounding=min(0.5 / rate, 0.5), findings=findings
    )
    return ImportedRun(run.first.line, record, extra, _rounded_number(rate))


def _drop_warmup(run: _Run) -> dict[int | None, list[_Step]]:
    """Return the steps of each rank after the warm-up.

    A run that was restarted after a line or two looks like a rank without such steps; it
    is left out if other ranks have some.
    """
    counted_steps: dict[int | None, list[_Step]] = {}
    for rank, steps in run.steps_by_rank.items():
        first = steps[0].epoch
        counted_steps[rank] = []
        for step in steps:
            num_steps = (step.epoch - first) * step.epoch_length + step.number
            if step.number > 0 and num_steps >= _WARMUP_STEPS:
                counted_steps[rank].append(step)
    with_steps = {rank: steps for rank, steps in counted_steps.items() if steps}
    return with_steps if None in counted_steps and with_steps else counted_steps


def _mean_rate(steps: Iterable[_Step]) -> float:
    """Return the tokens/s of one rank over the steps that its log shows."""
    return rates.mean_rate(
        rates.Stretch(step.seconds * step.rate, step.seconds) for step in steps
    )


def _count_devices(run: _Run, num_printing: int) -> int | None:
    """Return the number of ranks; None if it is not known.

    It is the number of ranks that print; or else follows from the batch sizes, or from
    the total of the log and the rate of one rank.
    """
    if num_printing > 1:
        return num_printing
    batch_size = run.batch_size_setting("train-batch-size")
    total_size = run.batch_size_setting("train-global-batch-size")
    if batch_size and total_size and total_size % batch_size == 0:
        return min(total_size // batch_size, _MAX_RANKS)
    steps = next(iter(run.steps_by_rank.values()))
    for epoch, total in reversed(run.totals.items()):
        means = [step.mean_rate for step in steps if step.epoch == epoch]
        mean = means[-1].value if means and means[-1] else 0.0
        ratio = total / mean if mean > total / _MAX_RANKS else 0.0
        if round(ratio) >= 1 and abs(ratio - round(ratio)) <= _AGREE * ratio:
            return round(ratio)
    return None


def _list_epoch_rows(run: _Run) -> list[tuple[Value, ...]]:
    """Return a row of COLUMNS per rank and epoch."""
    rows: list[tuple[Value, ...]] = []
    for rank, steps in run.steps_by_rank.items():
        for epoch, group in itertools.groupby(steps, key=lambda step: step.epoch):
            printed_steps = list(group)
            last = printed_steps[-1]
            means = [
                mean.value if mean else None for mean in (last.mean_s, last.mean_rate)
            ]
            total = run.totals.get(epoch)
            rows.append(
                (epoch, rank, last.epoch_length, len(printed_steps), *means, total)
            )
    return rows


def _rounded_number(value: float) -> PrintedNumber:
    """Return a mean of steps that were printed with about four digits."""
    return PrintedNumber(value, 1.0, f"{value:.0f}")
