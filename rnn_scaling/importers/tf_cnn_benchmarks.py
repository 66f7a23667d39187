"""tf_cnn_benchmarks: settings, step lines and `total images/sec` of each run in a log.

Format: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py (print_info,
get_perf_timing, benchmark_one_step).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from rnn_scaling.audit.scaling_table import Cell, ScalingRow, parse_cell
from rnn_scaling.importers import rank_totals
from rnn_scaling.importers.common import ImportedLog, positive
from rnn_scaling.importers.rank_totals import RankReader, Total

FORMAT = "tf_cnn_benchmarks"
UNIT = "images/s"
MAX_DEVICES = 10_000_000
_DETECT = re.compile(r"\btotal images/sec: |\bStep\tImg/sec\t|\d\s+images/sec: \S+ \+/- ")
_SETTING = re.compile(r"(Model|Dataset|Mode|Batch size|Num batches|Devices|Data format|Variables|AllReduce):\s+(.*)")
_PER_DEVICE = re.compile(r"\s+(\S+) per device\s*")
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

    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    step: tuple[str, ...] | None = None
    step_line: int = 0
    is_done: bool = False


_NONE = _Stream()  # of ranks that have printed nothing of this format; never changed


def detect(head: str) -> bool:
    """A step line, their header, or a total."""
    return ("images/sec: " in head or "Img/sec" in head) and bool(_DETECT.search(head))


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads one row a run; a run without its total gives the rate of its last step line, and a problem.

    Raises:
      LogError: if no rate is there.
    """
    reader = _Reader(source)
    groups = reader.read_all(lines)
    notes = [*NOTES, *rank_totals.note(groups, UNIT), *_separate(groups)]
    return reader.log(groups, notes, "no images/sec in this file")


class _Reader(RankReader[_Stream]):
    format = title = FORMAT

    def read(self, line: int, rank: int | None, text: str) -> None:
        stream = self.streams.setdefault(rank, _NONE)
        if "images/sec: " in text:
            self._read_rate(line, rank, text, stream)
        elif match := _SETTING.match(text):
            if match[1] == "Model" and (stream.is_done or stream.step):
                self.end_without_total(rank)
                stream = _NONE
            if stream is _NONE:
                stream = self.streams[rank] = _Stream()
            stream.settings[match[1]] = match[2].strip()
        elif stream.settings and (match := _PER_DEVICE.fullmatch(text)):
            stream.settings["per device"] = match[1]

    def _read_rate(self, line: int, rank: int | None, text: str, stream: _Stream) -> None:
        if stream is _NONE:
            stream = self.streams[rank] = _Stream()
        if match := _TOTAL.fullmatch(text):
            rate = positive(match[1], "total images/sec")
            devices, workers = _devices(stream.settings)
            key = tuple(sorted(stream.settings.items()))
            row = _row(self.source, line, stream, devices, parse_cell(match[1]))
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
        line, step, rate = stream.step_line, stream.step[0], parse_cell(stream.step[1])
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
    """Devices together and processes that print a total each.

    Raises:
      ValueError: for a batch size that cannot be.
    """
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


def _row(source: str, line: int, stream: _Stream, devices: int | None, rate: Cell | None) -> ScalingRow:
    settings = stream.settings
    named = ("Model", "Dataset", "Mode", "Variables", "AllReduce", "Data format")
    return ScalingRow(
        source,
        line,
        series=", ".join(settings[name] for name in named if settings.get(name) not in (None, "training", "None")),
        devices=devices,
        batch_size=parse_cell(settings.get("per device", "")),
        global_batch_size=parse_cell(settings.get("Batch size", "").partition(" ")[0]),
        rate=rate,
        rate_unit=UNIT,
        extra=_spread(stream.step),
    )


def _spread(step: tuple[str, ...] | None) -> dict[str, Cell]:
    """The last step line's figures, by name."""
    if step is None:
        return {}
    names = ("steps", "images/s of step lines", "standard error (images/s)", "jitter (images/s)")
    cells = {name: parse_cell(text) for name, text in zip(names, step) if text is not None}
    return {name: cell for name, cell in cells.items() if cell is not None}


def _separate(groups: list[list[Total]]) -> list[str]:
    """Says that runs of equal settings were not added up."""
    keys = [group[0].key for group in groups]
    if len(set(keys)) == len(keys):
        return []
    return [
        "Runs with the same settings stand as rows of their own: repeats, or processes that do not know of each other "
        "(each with --num_gpus of its own); their rates are not added."
    ]
