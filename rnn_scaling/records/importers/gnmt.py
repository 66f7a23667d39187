"""GNMT in PyTorch (NVIDIA DeepLearningExamples, MLPerf training v0.6 and v0.7).

Format: mlcommons/training_results_v0.7, NVIDIA/benchmarks/gnmt/.../seq2seq/train/
trainer.py and its logs, NVIDIA/results/*/gnmt/result_*.txt. A TRAIN line is one step of
one rank; `Performance:` is the log's own sum over ranks.
"""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rnn_scaling.records.importers import rates
from rnn_scaling.records.importers.rank_tags import Ranks
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
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.system.files.markdown import Table

NAME = "gnmt"
UNIT = "tokens"
WARMUP_STEPS = 50  # of a run; and the first step of each epoch, which waits for data
MAX_RANKS = 1_000_000
AGREE = 0.05  # relative difference up to which two totals are the same
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
NOTES = (
    f"Rate: tokens / seconds of the steps that the log shows, summed over both, without "
    f"the first {WARMUP_STEPS} steps of a run and the first step of every epoch. Tok/s in "
    "brackets is the log's mean of the steps' rates, in which long and short steps count "
    "alike.",
    "A TRAIN line is one rank's step: with several ranks the rate is that rank's times "
    "their number, or the sum if all of them print. 'Training: N Tok/s' at the end of an "
    "epoch is the log's own sum over ranks.",
    "Tokens are those of source and target.",
)
COLUMNS = (
    "Epoch", "Rank", "Steps", "Steps shown", "Seconds a step (mean)",
    "Tokens/s of the rank (mean of steps)", "Tokens/s of all ranks",
)  # fmt: skip


class _Step(NamedTuple):
    """One TRAIN line."""

    epoch: int
    step: int
    steps: int  # of the epoch
    seconds: float
    rate: float
    mean_s: str
    mean_rate: str
    line: int

    @property
    def place(self) -> tuple[int, int]:
        return self.epoch, self.step


@dataclasses.dataclass
class _Run:
    """The steps of each rank, and what the log says of all."""

    steps: dict[int | None, list[_Step]] = dataclasses.field(default_factory=dict)
    totals: dict[int, float] = dataclasses.field(default_factory=dict)  # by epoch
    settings: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def first(self) -> _Step:
        return next(iter(self.steps.values()))[0]


class Gnmt(LogFormat):
    """The format; see `reading`."""

    name = NAME
    has_rates = True

    def detect(self, text: str) -> bool:
        """Return whether a text has a TRAIN line."""
        return "TRAIN [" in text and _TRAIN.search(text) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return all runs. With Ranks.FIRST a TRAIN line is the total of all ranks."""
        problems = Problems()
        runs = [_Run()]
        settings: dict[str, str] = {}
        count = 0
        for line in log_lines(lines):
            try:
                if "TRAIN [" in line.text:
                    count += 1
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
            if problems.is_over_limit(line.number, count, "TRAIN lines"):
                break
            runs[-1].settings = dict(settings)
        runs = [run for run in runs if run.steps]
        imported = [_imported(run, problems, terms.ranks) for run in runs]
        epochs = Table(
            "GNMT epochs", COLUMNS, tuple(row for run in runs for row in _epochs(run))
        )
        return make_reading(
            NAME,
            problems,
            "no TRAIN line of GNMT in this file",
            runs=[run for run in imported if run is not None],
            tables=[epochs],
            notes=NOTES,
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
        match["mean_s"],
        match["mean_rate"],
        line.number,
    )
    parse_positive(str(step.seconds * step.rate), "Tok/s of a step")
    rank = _untagged_rank(runs[-1], step) if line.rank is None else line.rank
    before = runs[-1].steps.get(rank)
    if before and step.place <= before[-1].place:
        runs.append(_Run())
    runs[-1].steps.setdefault(rank, []).append(step)


def _untagged_rank(run: _Run, step: _Step) -> int | None:
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


def _imported(run: _Run, problems: Problems, ranks: Ranks | None) -> ImportedRun | None:
    """Return the run as a record.

    The log's own total is the rate if the steps that the log shows say something else,
    or nothing. None if the run has no total and ends within its warm-up.
    """
    kept = _kept(run)
    total = next(reversed(run.totals.values()), None)
    num_counted = sum(map(len, kept.values()))
    num_shown = sum(map(len, run.steps.values()))
    if not all(kept.values()):
        if total is None:
            text = f"the run ends within its warm-up ({WARMUP_STEPS} steps): no rate"
            problems.add(run.first.line, text, "warm-up")
            return None
        kind = LogFindingKind.LOG_TOTAL
        found = [rates.make_finding(kind, num_counted, num_shown, total)]
        return _record(run, total, None, found, {})
    of_ranks = [_rate(steps) for steps in kept.values()]
    devices = _devices(run, len(of_ranks))
    rate = math.fsum(of_ranks) * (devices / len(of_ranks) if devices else 1)
    if ranks == Ranks.FIRST:
        rate = of_ranks[0]
    elif devices is None and total is None:
        text = "the log does not say how many ranks there were: the rate is one rank's"
        problems.add(run.first.line, text, "ranks")
    findings = []
    if len(of_ranks) > 1:
        sides = [math.fsum(of_ranks), of_ranks[0]]
        kind = LogFindingKind.SUM_OF_RANKS
        if ranks == Ranks.FIRST:
            kind = LogFindingKind.FIRST_RANK
            sides.reverse()
        findings.append(rates.make_finding(kind, len(of_ranks), len(of_ranks), *sides))
    extra = {
        "steps shown": exact_number(num_counted),
        "left out as warm-up": exact_number(num_shown - num_counted),
        "tokens/s a rank": _rounded(math.fsum(of_ranks) / len(of_ranks)),
    }
    if total is not None:
        extra["tokens/s of all ranks as printed"] = _rounded(total)
    if total is None or abs(rate / total - 1) <= AGREE or ranks == Ranks.FIRST:
        return _record(run, rate, devices, findings, extra)
    kind = LogFindingKind.LOG_TOTAL
    findings.append(rates.make_finding(kind, num_counted, num_shown, total, rate))
    extra["tokens/s of the steps shown"] = _rounded(rate)
    return _record(run, total, devices, findings, extra)


def _record(
    run: _Run,
    rate: float,
    devices: int | None,
    findings: Sequence[LogFinding],
    extra: Mapping[str, Printed],
) -> ImportedRun:
    options = {
        "math": run.settings.get("math"),
        "num_devices": devices,
        "batch_size": _size(run, "train-batch-size"),
    }
    if options["batch_size"] is None:
        options["global_batch_size"] = _size(run, "train-global-batch-size")
    rounded = _rounded(rate)
    record = run_record(
        NAME, options, UNIT, rate, rounding=min(0.5 / rate, 0.5), findings=findings
    )
    return ImportedRun(run.first.line, record, extra, rounded)


def _kept(run: _Run) -> dict[int | None, list[_Step]]:
    """Return the steps of each rank after the warm-up.

    A rank without any is left out if others have some: a run that was started again
    after a line or two looks like a rank.
    """
    kept = {}
    for rank, steps in run.steps.items():
        first = steps[0].epoch
        kept[rank] = [
            each
            for each in steps
            if each.step > 0
            and (each.epoch - first) * each.steps + each.step >= WARMUP_STEPS
        ]
    with_steps = {rank: steps for rank, steps in kept.items() if steps}
    return with_steps if None in kept and with_steps else kept


def _rate(steps: Sequence[_Step]) -> float:
    """Return the tokens/s of one rank over the steps that its log shows."""
    tokens = math.fsum(step.seconds * step.rate for step in steps)
    return tokens / math.fsum(step.seconds for step in steps)


def _devices(run: _Run, num_printing: int) -> int | None:
    """Return how many ranks there were.

    They are those that print; else batch sizes, or the log's total by one rank's rate.
    """
    if num_printing > 1:
        return num_printing
    batch_size = _size(run, "train-batch-size")
    total_size = _size(run, "train-global-batch-size")
    if batch_size and total_size and total_size % batch_size == 0:
        return min(total_size // batch_size, MAX_RANKS)
    steps = next(iter(run.steps.values()))
    for epoch, total in reversed(run.totals.items()):
        means = [_mean(step.mean_rate) for step in steps if step.epoch == epoch]
        mean = means[-1] if means else None
        if mean and total / mean <= MAX_RANKS:
            ratio = total / mean
            if round(ratio) >= 1 and abs(ratio - round(ratio)) <= AGREE * ratio:
                return round(ratio)
    return None


def _epochs(run: _Run) -> list[tuple[int | float | None, ...]]:
    rows: list[tuple[int | float | None, ...]] = []
    for rank, steps in run.steps.items():
        for epoch, group in itertools.groupby(steps, key=lambda step: step.epoch):
            shown = list(group)
            last = shown[-1]
            means = (_mean(last.mean_s), _mean(last.mean_rate))
            total = run.totals.get(epoch)
            rows.append((epoch, rank, last.steps, len(shown), *means, total))
    return rows


def _mean(text: str) -> float | None:
    """Return a printed mean; None if it is not a number above 0."""
    try:
        return parse_positive(text, "a mean")
    except ValueError:
        return None


def _size(run: _Run, name: str) -> int | None:
    text = run.settings.get(name, "")
    return int(text) if re.fullmatch(r"0*[1-9]\d{0,12}", text) else None


def _rounded(value: float) -> Printed:
    """Return a mean of steps that were printed to about four digits."""
    return Printed(value, 1.0, f"{value:.0f}")
