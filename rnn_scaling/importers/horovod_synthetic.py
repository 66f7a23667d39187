"""Horovod's synthetic benchmarks (TensorFlow 1 and 2, Keras, PyTorch, elastic): `Total img/sec on N GPU(s)`.

Format: horovod/horovod, examples/*/*_synthetic_benchmark*.py.
"""

import dataclasses
import math
import re
import statistics
from collections.abc import Iterable

from rnn_scaling.importers import common, rank_totals
from rnn_scaling.importers.common import (
    ImportedLog,
    ScalingRow,
    detector,
    exact,
    not_negative,
    positive,
    printed,
)
from rnn_scaling.importers.rank_totals import RankReader, Total
from rnn_scaling.records import printed_number
from rnn_scaling.records.printed_number import Printed

FORMAT = "horovod_synthetic"
UNIT = "images/s"
detect = detector(
    r"\bIter #\d+: \S+ img/sec per \w+|\bImg/sec per \w+: |\bTotal img/sec on \S+ \w+\(s\): ",
    "img/sec",
    "Img/sec",
)
_SETTING = re.compile(r"(Model|Batch size|Number of (?:GPU|CPU)s): (.*)")
_ITER = re.compile(r"Iter #(\d+): (\S+) img/sec per (\w+)\s*")
_EACH = re.compile(r"Img/sec per (\w+): (\S+) \+-\s?(\S+)\s*")
_TOTAL = re.compile(r"Total img/sec on (\S+) (\w+)\(s\): (\S+) \+-\s?(\S+)\s*")
NOTES = (
    "Total = number of ranks * rank 0's mean rate: rank 0's clock stands for all, slower ranks show only through the "
    "synchronous steps.",
    "'+-' is 1.96 * standard deviation of the iterations (default 10 of 10 batches each): a spread between "
    "iterations, no interval of the mean; for the total it is that of rank 0 times the ranks.",
    "Batch size is per rank (weak scaling); an iteration's rate includes its host work, the data are synthetic.",
)


@dataclasses.dataclass
class _HorovodStream:
    """The output of one rank (or of a log without tags) so far."""

    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    per_device: str = ""  # images/s of a device, as printed
    line: int = 0
    rates: list[float] = dataclasses.field(
        default_factory=list
    )  # of the first MAX_ROWS iterations, by number
    is_on_cpus: bool = False  # a line says "per CPU" and not "per GPU"


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads one row a run; a run without its total gives ranks * mean of its iterations, and a problem."""
    reader = _HorovodReader(source)
    groups = reader.read_all(lines)
    return reader.log(
        groups, [*NOTES, *rank_totals.note(groups, UNIT)], "no img/sec in this file"
    )


@dataclasses.dataclass
class _HorovodReader(RankReader[_HorovodStream]):
    format = FORMAT
    num_runs: int = 0

    def read(self, line: int, rank: int | None, text: str) -> None:
        stream = self.streams.setdefault(rank, _HorovodStream())
        if match := _TOTAL.fullmatch(text):
            self.streams[rank] = _HorovodStream(settings=stream.settings)
            self.totals.append(self._total(match, line, rank, stream))
        elif match := _ITER.fullmatch(text):
            rate = positive(match[2], "img/sec of an iteration")
            if len(stream.rates) < common.MAX_ROWS:
                stream.rates.append(rate)
            stream.is_on_cpus |= match[3] == "CPU"
            stream.line = line
        elif match := _EACH.fullmatch(text):
            positive(match[2], "img/sec")
            stream.per_device = match[2]
        elif match := _SETTING.fullmatch(text):
            if match[1] == "Model":  # a new run begins
                self.end_without_total(rank)
                stream = self.streams[rank] = _HorovodStream()
                self.num_runs += 1
            stream.settings[match[1].partition(" of ")[0]] = match[2].strip()
            stream.is_on_cpus |= match[1].endswith("CPUs")

    def _total(
        self, match: re.Match[str], line: int, rank: int | None, stream: _HorovodStream
    ) -> Total:
        devices = int(positive(match[1], "a number of devices"))
        rate = printed(match[3], "Total img/sec")
        stream.is_on_cpus |= match[2] == "CPU"
        not_negative(match[4], "a spread")
        per_device = (
            printed_number.parse(stream.per_device) if stream.per_device else None
        )
        if per_device and (
            rate.low > devices * per_device.high or rate.high < devices * per_device.low
        ):
            text = f"the total {rate.text} is not {devices} * {per_device.text} = {devices * per_device.value:.1f}"
            self.problems.add(line, text, "total")
        listed = stream.settings.get("Number")
        if listed and listed != str(devices):
            self.problems.add(
                line,
                f"the total is for {devices} devices, but the settings say {listed}",
                "devices",
            )
        stream.line = line
        row = self._row(stream, devices, rate, printed_number.parse(match[4]))
        # Without tags a new heading is a new run: of the published scripts rank 0 alone prints.
        run = self.num_runs if rank is None else 0
        return Total(
            line,
            rank,
            (row.series, devices, str(row.batch_size), run),
            devices,
            rate.value,
            row,
        )

    def end_without_total(self, rank: int | None) -> None:
        stream = self.streams[rank]
        if not stream.rates:
            return
        line = stream.line
        try:
            devices = int(
                positive(stream.settings.get("Number", "1"), "a number of devices")
            )
        except ValueError as e:
            self.problems.add(line, str(e), "bad number")
            return
        count, mean = len(stream.rates), devices * statistics.fmean(stream.rates)
        text = f"no 'Total img/sec' follows iteration {count}: the run is cut short; "
        text += f"its rate is {devices} * the mean of {count} iterations"
        self.problems.add(line, text, "cut short")
        # The iterations were printed to 0.1; so is their mean.
        rate = Printed(
            mean, 10.0 ** (math.ceil(math.log10(devices)) - 1), f"{mean:.1f}"
        )
        spread = 1.96 * devices * statistics.pstdev(stream.rates)
        self.cut.append(
            self._row(stream, devices, rate, Printed(spread, 0.1, f"{spread:.1f}"))
        )

    def _row(
        self,
        stream: _HorovodStream,
        devices: int,
        rate: Printed,
        spread: Printed | None,
    ) -> ScalingRow:
        extra: dict[str, Printed | None] = {"1.96 std of iterations (images/s)": spread}
        if stream.per_device:
            extra["images/s of rank 0"] = printed_number.parse(stream.per_device)
        if stream.rates:
            extra["iterations"] = exact(len(stream.rates))
        return ScalingRow(
            self.source,
            stream.line,
            series=", ".join(
                filter(
                    None,
                    (
                        stream.settings.get("Model"),
                        "on CPUs" if stream.is_on_cpus else "",
                    ),
                )
            ),
            devices=devices,
            batch_size=printed_number.parse(stream.settings.get("Batch size", "")),
            rate=rate,
            rate_unit=UNIT,
            extra={name: cell for name, cell in extra.items() if cell is not None},
        )
