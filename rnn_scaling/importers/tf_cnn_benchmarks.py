"""tf_cnn_benchmarks: settings, step lines and `total images/sec` of each run in a log.

Format: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py (print_info,
get_perf_timing, benchmark_one_step).
"""

import dataclasses
import re
from collections.abc import Iterable

from rnn_scaling.audit import numbers
from rnn_scaling.audit.numbers import Printed
from rnn_scaling.importers import rank_totals, tf_cnn_settings
from rnn_scaling.importers.common import ImportedLog, ScalingRow, detector, positive
from rnn_scaling.importers.rank_totals import RankReader, Total

FORMAT = "tf_cnn_benchmarks"
UNIT = "images/s"
MAX_DEVICES = 10_000_000
detect = detector(r"\btotal images/sec: |\bStep\tImg/sec\t|\d\s+images/sec: \S+ \+/- ", "images/sec: ", "Img/sec")
_SETTING = re.compile(r"([A-Za-z][\w ]{1,30}):\s+(\S.*)")
_FIRST = ("TensorFlow", "Model")  # with one of these a header begins
_KNOWN = (*_FIRST, "Dataset", "Mode", "Batch size", "Num batches", "Devices", "Data format", "Variables", "AllReduce")
_END = ("==========", "Generating ", "Running warm up")
_PER_DEVICE = re.compile(r"\s*(\S+) per device\s*")
MAX_COMMAND = 8000  # characters of a command line that are read
_STEP = re.compile(r"(\d+)\s+images/sec: (\S+)(?: \+/- (\S+) \(jitter = (\S+)\))?(?:\s+(?!\+/-)\S.*)?\s*")
_TOTAL = re.compile(r"total images/sec: (\S+)\s*")
NOTES = (
    "total images/sec = workers * steps * batch / wall time of all steps after the warm-up, by the printing worker's "
    "clock.",
    "A step line's images/sec is batch / mean step time so far, its +/- the standard error of the step rates "
    "(std / sqrt(steps)), jitter 1.4826 * MAD: no interval of repeated runs.",
    "The log does not give seconds; with several processes batch and rate of a step line are those of one worker.",
)


@dataclasses.dataclass
class _Stream:
    """The output of one rank (or of a log without tags) so far."""

    settings: dict[str, str] = dataclasses.field(default_factory=dict)  # of the header
    command: dict[str, str] = dataclasses.field(default_factory=dict)  # options of the command line before it
    in_header: bool = False
    step: tuple[str, ...] | None = None
    step_line: int = 0
    is_done: bool = False


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads one row a run; a run without its total gives the rate of its last step line, and a problem."""
    reader = _Reader(source)
    groups = reader.read_all(lines)
    notes = [*NOTES, *rank_totals.note(groups, UNIT), *_separate(groups)]
    return reader.log(groups, notes, "no images/sec in this file")


@dataclasses.dataclass
class _Reader(RankReader[_Stream]):
    format = FORMAT
    command: dict[str, str] = dataclasses.field(default_factory=dict)
    typed: str = ""  # a command line that goes on in the next line

    def read(self, line: int, rank: int | None, text: str) -> None:
        stream = self.streams.setdefault(rank, _Stream())
        if self.typed or tf_cnn_settings.is_command(text):
            self._read_command(text)
        elif "images/sec: " in text:
            self._read_rate(line, rank, text, stream)
        elif text.startswith(_END):
            stream.in_header = False
        elif (match := _SETTING.match(text)) and (stream.in_header or match[1] in _KNOWN):
            if match[1] in _FIRST and (stream.is_done or stream.step):
                self.end_without_total(rank)
                stream = self.streams[rank] = _Stream()
            if not stream.settings:
                stream.command = self.command
            stream.in_header = True
            stream.settings[match[1]] = match[2].strip()
        elif stream.settings and (match := _PER_DEVICE.fullmatch(text)):
            stream.settings["per device"] = match[1]

    def _read_command(self, text: str) -> None:
        self.typed += text.rstrip()
        if self.typed.endswith("\\") and len(self.typed) < MAX_COMMAND:
            self.typed = self.typed[:-1] + " "
            return
        self.command, self.typed = tf_cnn_settings.options_of(self.typed[:MAX_COMMAND]), ""

    def _read_rate(self, line: int, rank: int | None, text: str, stream: _Stream) -> None:
        if match := _TOTAL.fullmatch(text):
            rate = positive(match[1], "total images/sec")
            devices, workers = _devices(stream.settings)
            key = (tuple(sorted(stream.settings.items())), tuple(sorted(stream.command.items())))
            row = _row(self.source, line, stream, devices, numbers.parse(match[1]))
            self.totals.append(Total(line, rank, key, workers, rate, row))
            stream.is_done, stream.step = True, None
        elif match := _STEP.fullmatch(text):
            positive(match[2], "images/sec of a step line")
            stream.step, stream.step_line, stream.is_done = match.groups(), line, False
        else:
            self.problems.add(line, f"not understood: {text[:60]!r}", "not understood")

    def end_without_total(self, rank: int | None) -> None:
        stream = self.streams[rank]
        if stream.step is None or stream.is_done:
            return
        line, step, rate = stream.step_line, stream.step[0], numbers.parse(stream.step[1])
        try:
            devices, workers = _devices(stream.settings)
        except ValueError as e:
            self.problems.add(line, str(e), "bad number")
            return
        text = f"its rate is that of steps 1 to {step}"
        if workers > 1:
            text, rate = "its rate is one worker's, so the run has no rate", None
        self.problems.add(line, f"no 'total images/sec' follows step {step}: the run is cut short; {text}", "cut short")
        self.cut.append(_row(self.source, line, stream, devices, rate))


def _devices(settings: dict[str, str]) -> tuple[int | None, int]:
    """Devices together and processes that print a total each. Raises ValueError for a batch size that cannot be."""
    listed = settings.get("Devices", "").count("'") // 2
    total, per_device = settings.get("Batch size", "").partition(" ")[0], settings.get("per device", "")
    devices = listed or None
    if total and per_device:
        ratio = positive(total, "a global batch size") / positive(per_device, "a batch size per device")
        if ratio > MAX_DEVICES:
            raise ValueError(
                f"a global batch size of {total[:20]} at {per_device[:20]} per device is no number of devices"
            )
        devices = round(ratio) if abs(ratio - round(ratio)) < 1e-9 else devices
    is_one_list = "horovod" in settings.get("Devices", "")  # Horovod's list names every rank's device
    workers = listed if is_one_list else (devices or 1) // max(listed, 1)
    return devices, max(workers, 1)


def _row(source: str, line: int, stream: _Stream, devices: int | None, rate: Printed | None) -> ScalingRow:
    settings = stream.settings
    series, base = tf_cnn_settings.series(tf_cnn_settings.parting(settings, stream.command))
    return ScalingRow(
        source,
        line,
        series=series,
        base=base,
        devices=devices,
        batch_size=numbers.parse(settings.get("per device", "")),
        global_batch_size=numbers.parse(settings.get("Batch size", "").partition(" ")[0]),
        rate=rate,
        rate_unit=UNIT,
        extra=_spread(stream.step),
    )


def _spread(step: tuple[str, ...] | None) -> dict[str, Printed]:
    """The last step line's figures, by name."""
    if step is None:
        return {}
    names = ("steps", "images/s of step lines", "standard error (images/s)", "jitter (images/s)")
    cells = {name: numbers.parse(text) for name, text in zip(names, step) if text is not None}
    return {name: cell for name, cell in cells.items() if cell is not None}


def _separate(groups: list[list[Total]]) -> list[str]:
    """Says that runs of equal settings were not added up."""
    keys = [group[0].key for group in groups]
    if len(set(keys)) == len(keys):
        return []
    return [
        "Runs of which the log tells no difference stand as rows of their own: repeats, processes that do not know of "
        "each other (each with --num_gpus of its own), or options that neither header nor command names; their rates "
        "are not added."
    ]
