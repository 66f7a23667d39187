"""tf_cnn_benchmarks: settings, step lines and `total images/sec` of each run in a log.

Format: tensorflow/benchmarks, scripts/tf_cnn_benchmarks/benchmark_cnn.py (print_info, get_perf_timing,
benchmark_one_step). The header names no parameter device, precision or XLA; the command before it often does.
"""

import dataclasses
import re
import shlex
from collections.abc import Iterable, Mapping

from rnn_scaling.importers import rank_totals
from rnn_scaling.importers.common import ImportedLog, ScalingRow, detector, positive
from rnn_scaling.importers.rank_totals import RankReader, Total
from rnn_scaling.records import printed_number
from rnn_scaling.records.printed_number import Printed

FORMAT = "tf_cnn_benchmarks"
UNIT = "images/s"
MAX_DEVICES = 10_000_000
detect = detector(
    r"\btotal images/sec: |\bStep\tImg/sec\t|\d\s+images/sec: \S+ \+/- ",
    "images/sec: ",
    "Img/sec",
)
_SETTING = re.compile(r"([A-Za-z][\w ]{1,30}):\s+(\S.*)")
_FIRST = ("TensorFlow", "Model")  # with one of these a header begins
_KNOWN = (
    *_FIRST,
    "Dataset",
    "Mode",
    "Batch size",
    "Num batches",
    "Devices",
    "Data format",
    "Variables",
    "AllReduce",
)
_END = ("==========", "Generating ", "Running warm up")
_PER_DEVICE = re.compile(r"\s*(\S+) per device\s*")
MAX_COMMAND = 8000  # characters of a command line that are read
_STEP = re.compile(
    r"(\d+)\s+images/sec: (\S+)(?: \+/- (\S+) \(jitter = (\S+)\))?(?:\s+(?!\+/-)\S.*)?\s*"
)
_TOTAL = re.compile(r"total images/sec: (\S+)\s*")
SEPARATE = (
    "Runs of which the log tells no difference stand as rows of their own: repeats, processes that do not know of each "
    "other (each with --num_gpus of its own), or options that neither header nor command names; their rates are not "
    "added."
)
PROGRAM = "tf_cnn_benchmarks.py"
_OPTION = re.compile(r"--?([A-Za-z]\w*)(?:=(.*))?", re.DOTALL)
# What says how large a run is or where its files are; the rest of the header and of the command parts series.
_SIZE = {
    "Batch size", "per device", "Num batches", "Num epochs", "Devices", "num_gpus", "batch_size", "num_batches",
    "num_epochs", "num_warmup_batches", "display_every", "data_dir", "train_dir", "trace_file", "graph_file",
    "tfprof_file", "benchmark_log_dir", "summary_verbosity", "save_summaries_steps", "worker_hosts", "ps_hosts",
    "controller_host", "job_name", "task_index", "print_training_accuracy",
}  # fmt: skip
# The same thing under the name that the command line has for it.
_HEADER_NAME = {
    "model": "Model", "data_name": "Dataset", "data_format": "Data format", "optimizer": "Optimizer",
    "variable_update": "Variables", "all_reduce_spec": "AllReduce", "use_nccl": "Use NCCL",
    "staged_vars": "Staged vars", "cross_replica_sync": "Sync", "horovod_device": "Horovod on", "device": "Device",
}  # fmt: skip
_DEFAULTS = {
    "Mode": "training", "SingleSess": "False", "NUMA bind": "False", "Layout optimizer": "False", "AllReduce": "None",
    "Optimizer": "sgd", "Sync": "True", "Device": "gpu",
}  # fmt: skip
# How values and gradients get from device to device.
_MODES = {
    "Variables", "AllReduce", "Use NCCL", "Staged vars", "Sync", "Horovod on", "SingleSess", "local_parameter_device",
    "hierarchical_copy", "gradient_repacking", "compact_gradient_transfer", "agg_small_grads_max_bytes",
    "agg_small_grads_max_group", "allreduce_merge_scope", "variable_consistency", "network_topology", "server_protocol",
}  # fmt: skip
_PARAMETER_DEVICE = re.compile(
    r"param(eter)?s?[ _]device|\bps[ _]device", re.IGNORECASE
)
_OWN_PARAMETERS = {
    "replicated",
    "independent",
    "horovod",
    "distributed_all_reduce",
    "collective_all_reduce",
}
_MODE_WORDS = re.compile(
    r"param(eter)?s?[ _]device|\bps[ _]|nccl|all_?reduce|variable_update", re.IGNORECASE
)
_ORDER = (
    "Model",
    "Dataset",
    "Mode",
    "Variables",
    "AllReduce",
    "Use NCCL",
    "local_parameter_device",
    "Data format",
)
_BARE = frozenset(
    {"Model", "Dataset", "Mode", "Variables", "AllReduce", "Data format"}
)  # values that name themselves
_IN_WORDS = {
    ("Use NCCL", "true"): "NCCL", ("Use NCCL", "false"): "no NCCL", ("use_fp16", "true"): "fp16",
    ("xla", "true"): "XLA", ("Device", "cpu"): "on CPUs", ("Cluster", "true"): "in a cluster",
}  # fmt: skip
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
    command: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # options of the command line before it
    in_header: bool = False
    step: tuple[str, ...] | None = None
    step_line: int = 0
    is_done: bool = False


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads one row a run; a run without its total gives the rate of its last step line, and a problem."""
    reader = _Reader(source)
    groups = reader.read_all(lines)
    is_repeated = len({group[0].key for group in groups}) < len(groups)
    notes = [
        *NOTES,
        *rank_totals.note(groups, UNIT),
        *([SEPARATE] if is_repeated else []),
    ]
    return reader.log(groups, notes, "no images/sec in this file")


@dataclasses.dataclass
class _Reader(RankReader[_Stream]):
    format = FORMAT
    command: dict[str, str] = dataclasses.field(default_factory=dict)
    typed: str = ""  # a command line that goes on in the next line

    def read(self, line: int, rank: int | None, text: str) -> None:
        stream = self.streams.setdefault(rank, _Stream())
        if self.typed or (
            PROGRAM in text and " -" in text.partition(PROGRAM)[2]
        ):  # the command of a run
            self._read_command(text)
        elif "images/sec: " in text:
            self._read_rate(line, rank, text, stream)
        elif text.startswith(_END):
            stream.in_header = False
        elif (match := _SETTING.match(text)) and (
            stream.in_header or match[1] in _KNOWN
        ):
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
        self.command, self.typed = _options_of(self.typed[:MAX_COMMAND]), ""

    def _read_rate(
        self, line: int, rank: int | None, text: str, stream: _Stream
    ) -> None:
        if match := _TOTAL.fullmatch(text):
            rate = positive(match[1], "total images/sec")
            devices, workers = _devices(stream.settings)
            key = (
                tuple(sorted(stream.settings.items())),
                tuple(sorted(stream.command.items())),
            )
            row = _row(
                self.source, line, stream, devices, printed_number.parse(match[1])
            )
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
        line, step, rate = (
            stream.step_line,
            stream.step[0],
            printed_number.parse(stream.step[1]),
        )
        try:
            devices, workers = _devices(stream.settings)
        except ValueError as e:
            self.problems.add(line, str(e), "bad number")
            return
        text = f"its rate is that of steps 1 to {step}"
        if workers > 1:
            text, rate = "its rate is one worker's, so the run has no rate", None
        self.problems.add(
            line,
            f"no 'total images/sec' follows step {step}: the run is cut short; {text}",
            "cut short",
        )
        self.cut.append(_row(self.source, line, stream, devices, rate))


def _devices(settings: dict[str, str]) -> tuple[int | None, int]:
    """Devices together and processes that print a total each. Raises ValueError for a batch size that cannot be."""
    listed = settings.get("Devices", "").count("'") // 2
    total, per_device = (
        settings.get("Batch size", "").partition(" ")[0],
        settings.get("per device", ""),
    )
    devices = listed or None
    if total and per_device:
        ratio = positive(total, "a global batch size") / positive(
            per_device, "a batch size per device"
        )
        if ratio > MAX_DEVICES:
            raise ValueError(
                f"a global batch size of {total[:20]} at {per_device[:20]} per device is no number of devices"
            )
        devices = round(ratio) if abs(ratio - round(ratio)) < 1e-9 else devices
    is_one_list = "horovod" in settings.get(
        "Devices", ""
    )  # Horovod's list names every rank's device
    workers = listed if is_one_list else (devices or 1) // max(listed, 1)
    return devices, max(workers, 1)


def _row(
    source: str, line: int, stream: _Stream, devices: int | None, rate: Printed | None
) -> ScalingRow:
    settings = stream.settings
    series, base = _series(_parting(settings, stream.command))
    figures = (
        "steps",
        "images/s of step lines",
        "standard error (images/s)",
        "jitter (images/s)",
    )
    cells = {
        name: printed_number.parse(text)
        for name, text in zip(figures, stream.step or ())
        if text is not None
    }
    return ScalingRow(
        source,
        line,
        series=series,
        base=base,
        devices=devices,
        batch_size=printed_number.parse(settings.get("per device", "")),
        global_batch_size=printed_number.parse(
            settings.get("Batch size", "").partition(" ")[0]
        ),
        rate=rate,
        rate_unit=UNIT,
        extra={name: cell for name, cell in cells.items() if cell is not None},
    )


def _options_of(command: str) -> dict[str, str]:
    """The options of a command line by the header's name where it has one; a flag without a value is "true"."""
    text = command.partition(PROGRAM)[2].replace("\\\n", " ")
    try:
        words = shlex.split(text)
    except (
        ValueError
    ):  # a quotation mark that belongs to what stands around the command
        words = text.split()
    options: dict[str, str] = {}
    waiting = ""
    for word in words:
        match = _OPTION.fullmatch(word)
        if match and not word[1:2].isdigit():
            name = _HEADER_NAME.get(match[1], match[1])
            options[name] = "true" if match[2] is None else match[2]
            waiting = name if match[2] is None else ""
        elif waiting:
            options[waiting], waiting = word, ""
        else:
            break  # the end of the command: a pipe, a redirection
    return options


def _parting(header: Mapping[str, str], command: Mapping[str, str]) -> dict[str, str]:
    """What parts the series of a run, by name: all settings but its size, places and defaults.

    command: `_options_of` the command before it; the header counts where both say something.
    """
    settings = {**command, **header}
    if "'/cpu" in header.get("Devices", "") or "/cpu:" in header.get("Devices", ""):
        settings["Device"] = "cpu"
    if "job:" in header.get(
        "Devices", ""
    ):  # its parameters come over the network, to a lone worker too
        settings["Cluster"] = "true"
    kept = {}
    for name, value in settings.items():
        default = _DEFAULTS.get(name, "" if name == "Use NCCL" else "false")
        if name not in _SIZE and value.lower() not in (default.lower(), ""):
            kept[name] = value
    return kept


def _series(settings: Mapping[str, str]) -> tuple[str, str]:
    """(the series of a run, what a run on one device must share to be its baseline), as texts."""
    ordered = [
        *(name for name in _ORDER if name in settings),
        *sorted(settings.keys() - set(_ORDER)),
    ]
    words = {name: _words(name, settings[name]) for name in ordered}
    shared = [
        text
        for name, text in words.items()
        if not _is_mode(name) or _copies_alone(name, settings)
    ]
    return ", ".join(words.values()), ", ".join(shared)


def _copies_alone(name: str, settings: Mapping[str, str]) -> bool:
    """Whether an option has even a lone device copy all parameters from the host, and gradients to it, each step."""
    if not _PARAMETER_DEVICE.search(name) or not settings[name].lower().lstrip(
        "/"
    ).startswith("cpu"):
        return False
    return (
        settings.get("Variables") not in _OWN_PARAMETERS
        and settings.get("Device", "").lower() != "cpu"
    )


def _is_mode(name: str) -> bool:
    """Whether an option says how values are exchanged, also under the name that a changed copy of the program has."""
    return name in _MODES or _MODE_WORDS.search(name) is not None


def _words(name: str, value: str) -> str:
    if name in _BARE:
        return value
    if name == "local_parameter_device":
        return f"parameters on {value}"
    return _IN_WORDS.get((name, value.lower()), f"{name} {value}")
