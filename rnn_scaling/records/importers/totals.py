"""Logs that print settings, sometimes steps, and one rate per run, on one or all ranks.

A format is a row of `formats.FORMATS` with the patterns of its lines and a function
that translates its settings.
"""

import dataclasses
import re
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.cell_numbers import ARITHMETIC_ERROR, PrintedNumber
from rnn_scaling.records.importers.reading import (
    MAX_LINE_CHARACTERS,
    PIECE,
    ImportedRun,
    LogFormat,
    LogLine,
    Problems,
    Reading,
    Terms,
    make_reading,
    parse_positive,
    parse_printed,
    read_log_lines,
    run_record,
)
from rnn_scaling.system.files.terminal import format_count

# Ranks of one run that each time the same synchronous steps differ by less: they start
# and stop within milliseconds.
_SAME_TOTAL = 0.01
_MAX_ROUNDING = 0.5  # share of a rate that is a single digit, 1
PER_DEVICE = "per device"  # setting whose line has no name
_OPTION = re.compile(r"--?([A-Za-z][\w-]*)(?:=| +(?!-))?(\S*)")


@dataclasses.dataclass(frozen=True)
class Description:
    """The options of a run according to its settings."""

    options: Mapping[str, Any]
    workers: int = 1  # number of ranks that each print a total


def _describe_groups(
    header: Mapping[str, str], command: Mapping[str, str]
) -> Description:
    """Return the number of devices and the batch size of one device, as printed."""
    options = {}
    for name in ("num_devices", "batch_size"):
        if name in header:
            options[name] = int(parse_positive(header[name], name))
    return Description(options)


@dataclasses.dataclass
class Stream:
    """The output of one rank, or of a log without tags, since the last run."""

    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    command: dict[str, str] = dataclasses.field(default_factory=dict)
    in_header: bool = False
    # The groups of the lines of its steps.
    steps: list[dict[str, str]] = dataclasses.field(default_factory=list)
    line: int = 0  # line of the last step
    is_done: bool = False  # whether its total was read

    def groups(self) -> dict[str, str]:
        """Return its settings and the groups of its last step."""
        return {**(self.steps[-1] if self.steps else {}), **self.settings}


class _Total(NamedTuple):
    line: LogLine
    key: Hashable  # the settings of the run
    workers: int
    rate: float
    run: ImportedRun


@dataclasses.dataclass(frozen=True)
class Settings:
    """The form in which the settings of a run are printed."""

    pattern: str  # pattern of a line from its beginning, with groups name and value
    known: frozenset[str]  # names that are read in any line
    begins: frozenset[str]  # names with which a run begins
    # Beginnings of the lines behind a header; in a header all names are read.
    header_end: tuple[str, ...] = ()
    program: str = ""  # the program whose command line may be in the log


@dataclasses.dataclass(frozen=True)
class TotalsFormat(LogFormat):
    """A format with one printed rate per run.

    Groups of the patterns are rate, step, num_devices, batch_size and others that are
    columns. Patterns match a whole line.
    """

    name: str
    unit: str
    needles: tuple[str, ...]
    total: str
    notes: tuple[str, ...]
    rate_meaning: str
    detected: str = ""
    describe: Callable[[Mapping[str, str], Mapping[str, str]], Description] = (
        _describe_groups
    )
    settings: Settings | None = None
    step: str = ""
    # Titles of columns by group; those of the last step begin with "step ". With a
    # column "epoch", a total is printed per epoch, and the last one counts.
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    loss: str = ""  # pattern of a loss that is not a number, with a group step
    # Whether each rank prints its own steps.
    has_rank_steps: bool = False
    # Returns the rate of a run that was cut short, or None, and its last step.
    cut_rate: (
        Callable[[Stream, Description], tuple[PrintedNumber | None, str]] | None
    ) = None
    has_rates = True

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return all runs; one without its total has the rate of its steps."""
        reader = _Reader(self, terms)
        for line in read_log_lines(
            lines, longest=MAX_LINE_CHARACTERS if self.step else PIECE
        ):
            try:
                reader.take(line)
            except ValueError as e:
                reader.problems.add(line.number, str(e))
        for rank in reader.printing_ranks[: 1 if self.has_rank_steps else None]:
            reader.end_without_total(rank)
        groups = _group_totals(reader.totals)
        runs = [*(group[0].run for group in groups), *reader.cut]
        notes = [*self.notes, *_note_repeated_totals(groups, self.unit)]
        return make_reading(
            self.name,
            reader.problems,
            f"this file contains no rate of {self.name}",
            runs=sorted(runs, key=lambda run: run.line),
            notes=notes,
        )


class _Reader:
    """The state of reading one log."""

    def __init__(self, format: TotalsFormat, terms: Terms) -> None:
        self.format = format
        self.terms = terms
        self.problems = Problems()
        self.streams: dict[int | None, Stream] = {}
        self.totals: list[_Total] = []
        self.cut: list[ImportedRun] = []
        self._num_runs = 0  # headings so far
        self._command: dict[str, str] = {}

    def take(self, line: LogLine) -> None:
        """Read one line."""
        form = self.format
        text = line.text.strip()
        stream = self.streams.setdefault(line.rank, Stream())
        if match := re.fullmatch(form.total, text):
            try:
                self._add_total(line, stream, match)
            finally:
                stream.is_done = True
                stream.steps = []
        elif form.step and (match := re.fullmatch(form.step, text)):
            parse_positive(match["rate"], form.rate_meaning)
            stream.steps.append(match.groupdict(""))
            stream.line = line.number
            stream.is_done = False
        elif form.loss and (match := re.match(form.loss, text)):
            reason = f"the loss of batch {match['step']} is nan: the run diverged"
            self.problems.add(line.number, reason, "loss")
        elif form.settings is not None:
            self._take_setting(line, stream, form.settings)

    @property
    def printing_ranks(self) -> list[int | None]:
        """The ranks with steps, the lowest first; None for lines without a tag."""
        ranks = [rank for rank, stream in self.streams.items() if stream.steps]
        return sorted(ranks, key=lambda rank: rank or 0)

    def _describe(self, stream: Stream, groups: Mapping[str, str]) -> Description:
        # Settings without a tag are those of all ranks.
        untagged = self.streams.get(None, stream)
        settings = {**untagged.settings, **groups}
        return self.format.describe(settings, stream.command or self._command)

    def end_without_total(self, rank: int | None) -> None:
        """Add the run of a rank whose total never came, if it had steps."""
        form = self.format
        stream = self.streams[rank]
        has_total = any(total.line.rank == rank for total in self.totals)
        is_done = stream.is_done or ("epoch" in form.columns and has_total)
        if not stream.steps or is_done or form.cut_rate is None:
            return
        try:
            description = self._describe(stream, stream.groups())
        except ValueError as e:
            self.problems.add(stream.line, str(e), "bad number")
            return
        if form.has_rank_steps and not description.options.get("num_devices"):
            num_ranks = len(self.printing_ranks)
            devices = self.terms.num_devices or (num_ranks if num_ranks > 1 else None)
            options = {**description.options, "num_devices": devices}
            description = dataclasses.replace(description, options=options)
        rate, reason = form.cut_rate(stream, description)
        missing = f"no '{form.rate_meaning}' follows {reason}"
        self.problems.add(stream.line, missing, "cut short")
        self.cut.append(self._run(stream, description, rate, stream.settings))

    def _take_setting(self, line: LogLine, stream: Stream, form: Settings) -> None:
        """Read a command line, a setting or the end of a header."""
        if form.program and f"{form.program} -" in line.text:
            words = line.text.partition(form.program)[2]
            options = _OPTION.findall(re.split(r"\s\d?[|>&;]", words)[0])
            self._command = {}
            for option, value in options:
                self._command[option.replace("-", "_")] = value.strip("'\"") or "true"
            return
        if form.header_end and line.text.startswith(form.header_end):
            stream.in_header = False
        match = re.match(form.pattern, line.text)
        if match is None:
            return
        name = match["name"] or PER_DEVICE
        if not stream.in_header and name not in form.known:
            return
        is_over = stream.is_done or stream.steps or not form.header_end
        if name in form.begins and is_over:
            self.end_without_total(line.rank)
            stream = Stream()
            self.streams[line.rank] = stream
            self._num_runs += 1
        if not stream.settings:
            stream.command = self._command
        stream.in_header = bool(form.header_end)
        stream.settings[name] = match["value"].strip()

    def _add_total(self, line: LogLine, stream: Stream, match: re.Match[str]) -> None:
        form = self.format
        rate = parse_printed(match["rate"], form.rate_meaning)
        groups = stream.groups()
        groups |= {name: text for name, text in match.groupdict().items() if text}
        description = self._describe(stream, groups)
        devices = description.options.get("num_devices") or 1
        stream.line = line.number
        run = self._run(stream, description, rate, groups)
        # Without tags a new heading is a new run, unless every rank prints a header.
        has_header = form.settings is not None and form.settings.header_end
        number = 0 if has_header or line.rank is not None else self._num_runs
        settings = {**stream.command, **stream.settings}
        key = (tuple(sorted(settings.items())), devices, number)
        total = _Total(line, key, description.workers, rate.value, run)
        of_rank = [each for each in self.totals if each.line.rank == line.rank]
        epoch = total.run.extra.get("epoch")
        last_epoch = of_rank[-1].run.extra.get("epoch") if of_rank else None
        if epoch and last_epoch and last_epoch.value < epoch.value:
            self.totals.remove(of_rank[-1])
        self.totals.append(total)

    def _run(
        self,
        stream: Stream,
        description: Description,
        rate: PrintedNumber | None,
        groups: Mapping[str, str],
    ) -> ImportedRun:
        form = self.format
        texts = {"steps": str(len(stream.steps) or ""), **groups}
        for step in stream.steps[-1:]:
            texts |= {f"step {name}": text for name, text in step.items()}
        extra_numbers = {}
        for name, title in form.columns.items():
            cell = cell_numbers.parse_cell(texts.get(name, ""))
            if cell is not None:
                extra_numbers[title] = cell
        rounding = (
            0.5 * rate.resolution / rate.value + ARITHMETIC_ERROR if rate else 0.0
        )
        record = run_record(
            form.name,
            description.options,
            form.unit,
            rate.value if rate else None,
            rounding=min(rounding, _MAX_ROUNDING),
        )
        return ImportedRun(stream.line, record, extra_numbers, rate)


def _group_totals(totals: Iterable[_Total]) -> list[list[_Total]]:
    """Return the totals of each run in the order of the log, the lowest rank first.

    If lines have tags, the k-th total of a rank with the same settings belongs to the
    k-th run. Otherwise consecutive totals with the same settings are one run if they
    are not more than its ranks and agree within _SAME_TOTAL.
    """
    groups: list[list[_Total]] = []
    tagged: dict[tuple[Hashable, int], list[_Total]] = {}
    counts: Counter[tuple[Hashable, int]] = Counter()
    for total in totals:
        rank = total.line.rank
        group: list[_Total] = []
        if rank is not None and total.workers > 1:
            counts[total.key, rank] += 1
            group = tagged.setdefault((total.key, counts[total.key, rank]), [])
        elif groups and _belongs_to_group(total, groups[-1]):
            group = groups[-1]
        if not group:
            groups.append(group)
        group.append(total)
    for group in groups:
        group.sort(key=lambda total: total.line.rank or 0)
    return groups


def _belongs_to_group(total: _Total, group: Sequence[_Total]) -> bool:
    first = group[0]
    is_untagged = total.line.rank is None and first.line.rank is None
    is_same = abs(total.rate - first.rate) <= _SAME_TOTAL * first.rate
    has_room = len(group) < total.workers
    return is_untagged and total.key == first.key and has_room and is_same


def _note_repeated_totals(groups: Sequence[Sequence[_Total]], unit: str) -> list[str]:
    """Return a note on the runs with several totals, which count as one total."""
    repeated = [group for group in groups if len(group) > 1]
    if not repeated:
        return []
    first = repeated[0]
    rates = [total.rate for total in first]
    spread = (max(rates) - min(rates)) / first[0].rate
    note = (
        f"line {first[0].line.number}: {len(first)} ranks printed a total "
        f"({min(rates):.10g} to {max(rates):.10g} {unit}/s, {spread:.2%} "
        "apart). It is the same total of all ranks, so it counts once, as the "
        "lowest rank printed it."
    )
    if len(repeated) > 1:
        note += f" The same holds for {format_count(len(repeated) - 1, 'more run')}."
    return [note]


def average_steps(
    stream: Stream, description: Description
) -> tuple[PrintedNumber | None, str]:
    """Return the number of devices times the mean of the steps, which print one device."""
    devices = description.options["num_devices"]
    count = len(stream.steps)
    if devices is None:
        return (
            None,
            f"step {count}, and the number of ranks is unknown; add --num_devices",
        )
    mean = devices * statistics.fmean(float(step["rate"]) for step in stream.steps)
    reason = (
        f"iteration {count}: the run is cut short; its rate is {devices} * the mean of "
        f"{count} iterations"
    )
    # The iterations were printed to 0.1; so is their mean.
    return PrintedNumber(mean, 0.1 * devices, f"{mean:.1f}"), reason


def find_last_step(
    stream: Stream, description: Description
) -> tuple[PrintedNumber | None, str]:
    """Return the rate of the last step, which is the mean of all steps."""
    step = stream.steps[-1]
    reason = f"step {step['step']}: the run is cut short; its rate"
    if description.workers > 1:
        return None, f"{reason} covers only one worker, so the run has no rate"
    rate = cell_numbers.parse_cell(step["rate"])
    return rate, f"{reason} covers steps 1 to {step['step']}"
