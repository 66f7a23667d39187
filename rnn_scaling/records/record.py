"""The run record: raw seconds and items of one run with all facts that explain them.

docs/record.md describes schema "rnn_scaling.run/1". New fields may be added; existing
ones never change their meaning. Every record is checked by `from_json`, so that its
fields have the types below and plausible numbers.

The field names of `RunRecord` are keys of the file, except `options`, whose key is
`config`; they have no older names, so never rename one.
"""

import dataclasses
import functools
import json
import marshal
import math
import os
import re
import sys
import typing
from collections.abc import Callable, Iterable
from typing import Any

from rnn_scaling.config import scale
from rnn_scaling.records import checks
from rnn_scaling.records.certificate import Certificate
from rnn_scaling.records.decoding import (
    Fraction,
    Name,
    PositiveNumber,
    decode,
    encode,
    quote,
    require_not_null,
)
from rnn_scaling.records.environment import (
    UNKNOWN_ENVIRONMENT,
    Environment,
    LoadWindows,
    Resolved,
)
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import (
    Batches,
    Energy,
    LogFinding,
    Memory,
    Parameters,
    Phases,
    PrintedOutput,
    RunError,
    SteadyState,
    Throughput,
)
from rnn_scaling.records.step_parts import Graph, Trace
from rnn_scaling.records.workers import Workers
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text

SCHEMA = "rnn_scaling.run/1"
STATUSES = ("ok", "failed", "interrupted")
_MAX_FAULTS = 5  # faults that a message names
MULTILINE = ("topology", "diff")  # fields whose texts may have several lines
# JSON that may contain a character that does not print.
_UNPRINTABLE = re.compile(r"\\[bfnrtu]|[^\t\n\r\x20-\x7e]")
# Parts of the environment that differ between runs; thousands of records share the
# others.
_VARYING = (
    "started",
    "load_average",
    "cpu_mhz",
    "gpus",
    "gpus_after",
    "load",
    "clocks",
)


Cache = dict[Any, Any]


class RecordError(ValueError):
    """A file is not a run record.

    Attributes:
      faults: One line per fault, with the path in the file.
    """

    def __init__(self, source: str, faults: list[str]) -> None:
        lines = faults[:_MAX_FAULTS]
        num_others = len(faults) - len(lines)
        if num_others:
            lines.append(f"{num_others} more {'faults' if num_others > 1 else 'fault'}")
        super().__init__(f"{source}: {'. '.join(lines)}")
        self.faults = tuple(faults)


@dataclasses.dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. Parts that the run did not reach are None or empty."""

    status: str
    error: RunError | None
    options: Options
    resolved: Resolved = Resolved()
    parameters: Parameters | None = None
    batches: Batches = Batches()
    throughput: Throughput | None = None
    memory: Memory | None = None
    steady_state: SteadyState | None = None
    phases: Phases = Phases()
    environment: Environment = UNKNOWN_ENVIRONMENT
    # Both are None unless the run was traced.
    graph: Graph | None = None
    trace: Trace | None = None
    unit: Name = "words"  # name of one item, plural
    # Forward and backward; None if unknown.
    flops_per_item: PositiveNumber | None = None
    workers: Workers | None = None  # None for a run of one process
    certificate: Certificate | None = None  # None without a serial comparison
    energy: Energy | None = None  # None without counters
    # Format of the log with the numbers; None if the run timed its steps.
    log_format: Name | None = None
    # Relative error of the rate that the log's digits, or `log_clock`, allow.
    log_rounding: Fraction | None = None
    # "arrival" if the lines of the log were timed as they arrived, "process" if the
    # program was timed; None if the log printed rates or seconds.
    log_clock: Name | None = None
    # Other possible readings of the log; None if its lines have one meaning.
    log_findings: tuple[LogFinding, ...] | None = None
    output: PrintedOutput | None = None  # None for our trainer and for logs
    # How the program failed after it had written this record; None if it did not.
    ended: Name | None = None
    # Output that could not be written and why, apart from the numbers.
    missing_output: Name | None = None
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if not isinstance(self.options, Options):
            object.__setattr__(self, "options", Options(self.options))

    @property
    def config(self) -> dict[str, Any]:
        """The options as the record's file contains them."""
        return self.options.recorded

    def to_json(self) -> str:
        """Return the record as JSON; NaN and infinities become null."""
        fields: dict[str, Any] = {
            "schema": self.schema,
            "status": self.status,
            "error": encode(self.error),
            "unit": self.unit,
            "flops_per_item": encode(self.flops_per_item),
            "config": encode(self.config),
        }
        for name in (*_OPTIONAL, *PARTS):
            value = getattr(self, name)
            if value is not None or name in _ALWAYS:
                fields[name] = {} if value is None else encode(value)
        return json.dumps(fields, indent=1, allow_nan=False) + "\n"


_TYPES = typing.get_type_hints(RunRecord, include_extras=True)
_OPTIONAL = (
    "log_format",
    "log_rounding",
    "log_clock",
    "log_findings",
    "ended",
    "missing_output",
)
# Fields that are not objects.
TOP_FIELDS = {
    name: _TYPES[name] for name in ("error", "unit", "flops_per_item", *_OPTIONAL)
}
PARTS = {
    name: require_not_null(kind)
    for name, kind in _TYPES.items()
    if name not in {"status", "options", "schema", *TOP_FIELDS}
}
# Parts that a file has even if the run did not reach them.
_ALWAYS = PARTS.keys() - {"workers", "certificate", "energy", "output"}


def from_json(
    text: str,
    source: str = "record",
    *,
    check_derived: bool = True,
    cache: Cache | None = None,
) -> RunRecord:
    """Return the record of a JSON text.

    Args:
      text: The text.
      source: The name of the file, for errors.
      check_derived: Whether to check values that follow from others, such as sums.
      cache: Parts of the records that were read before, to share equal parts.

    Raises:
      RecordError: If the text is not a record; it contains every fault.
    """
    try:
        fields = input_files.parse_json(text)
    except input_files.JsonError as e:
        raise RecordError(source, [f"{e}; expected a run record"]) from None
    if not input_files.is_plain(text) and _UNPRINTABLE.search(text):
        fields = _make_printable(fields)
    if not isinstance(fields, dict):
        kind = type(fields).__name__
        fault = (
            f"not a run record: expected a JSON object with schema {SCHEMA!r}, "
            f"got a {kind}"
        )
        raise RecordError(source, [fault])
    schema = fields.get("schema")
    if schema != SCHEMA:
        raise RecordError(source, [f"expected schema {SCHEMA!r}, got {schema!r}"])
    if missing := {"status", "error", "config"} - fields.keys():
        raise RecordError(source, [f"the record lacks {', '.join(sorted(missing))}"])
    faults: list[str] = []
    run = _decode(fields, check_derived, {} if cache is None else cache, faults)
    if run is None or faults:
        raise RecordError(source, faults)
    return run


def _make_printable(value: Any, is_multiline: bool = False) -> Any:
    """Return parsed JSON without control characters, and mostly without line breaks."""
    if type(value) is str:
        return entry.make_printable(value, is_multiline)
    if type(value) is list:
        return [_make_printable(item, is_multiline) for item in value]
    if type(value) is dict:
        return {
            entry.make_printable(name): _make_printable(item, name in MULTILINE)
            for name, item in value.items()
        }
    return value


def read(
    path: str | os.PathLike[str],
    *,
    check_derived: bool = True,
    cache: Cache | None = None,
) -> RunRecord:
    """Return the record of a file, with the arguments of `from_json`.

    Raises:
      OSError: If the file cannot be read.
      RecordError: If it is not a record.
    """
    try:
        text = input_files.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RecordError(str(path), ["not UTF-8 text; expected a run record"]) from e
    return from_json(text, str(path), check_derived=check_derived, cache=cache)


def find(path: str | os.PathLike[str]) -> RunRecord | None:
    """Return the record of a file, or None if it cannot be read as one."""
    try:
        return read(path)
    except (OSError, RecordError):
        return None


def write(record: RunRecord, path: str | os.PathLike[str]) -> None:
    """Write a record completely or, after an OSError, not at all."""
    write_text(record.to_json(), path)


def _decode(
    fields: dict[str, Any], check_derived: bool, cache: Cache, faults: list[str]
) -> RunRecord | None:
    """Return the record of a file's fields, or None if anything is wrong.

    Every part is checked, even if another one has faults.
    """
    if fields["status"] not in STATUSES:
        status = fields["status"]
        faults.append(f"expected status {', '.join(STATUSES)}, got {status!r}")
    options = _share(
        fields["config"],
        name="config",
        cache=cache,
        faults=faults,
        decode_part=_decode_options,
    )
    parts = _decode_parts(fields, cache, faults)
    num_faults = len(faults)
    top_fields = {}
    for name, kind in TOP_FIELDS.items():
        if name in fields:
            top_fields[name] = decode(kind, fields[name], name, faults)
    if len(faults) > num_faults:
        return None
    # Parts with faults are None.
    run = RunRecord(status=fields["status"], options=options, **top_fields, **parts)
    batches = fields.get("batches")
    has_items = isinstance(batches, dict) and "items" in batches
    noun = "items" if has_items else "words"
    faults += _find_rate_faults(run, fields, check_derived, noun)
    faults += _find_part_faults(run, check_derived)
    if check_derived and not faults and run.status == "ok":
        faults += _run_check(checks.find_window_faults, run.workers, run.batches, noun)
    return None if faults else run


def _decode_parts(
    fields: dict[str, Any], cache: Cache, faults: list[str]
) -> dict[str, Any]:
    """Return the decoded parts that the run reached."""
    parts: dict[str, Any] = {}
    for name, kind in PARTS.items():
        value = fields.get(name, {})
        if value == {}:
            continue
        if name == "environment":
            parts[name] = _decode_environment(value, cache, faults)
        elif name in ("resolved", "parameters"):
            decode_part = functools.partial(decode, kind)
            parts[name] = _share(
                value, name=name, cache=cache, faults=faults, decode_part=decode_part
            )
        else:
            parts[name] = decode(kind, value, name, faults)
    return parts


def _find_rate_faults(
    run: RunRecord, fields: dict[str, Any], check_derived: bool, noun: str
) -> list[str]:
    """Check batches and throughput; a record of a log may contain only the rate."""
    if run.log_format is not None and run.batches == Batches():
        return []
    faults = _run_check(checks.find_rate_faults, run.throughput, noun)
    if run.batches and (run.status == "ok" or run.throughput):
        throughput = run.throughput if check_derived else None
        faults += _run_check(
            checks.find_batch_faults, run.batches, throughput, _count_towers(run), noun
        )
        if fields.get("throughput", {}) == {}:
            faults.append(
                "throughput is missing; expected items, seconds and items_per_second"
            )
    return faults


def _find_part_faults(run: RunRecord, check_derived: bool) -> list[str]:
    """Check the other parts."""
    towers = _count_towers(run)
    # A trace contains the towers of one worker, or of all if one process drives them.
    traced_towers = {run.options["num_devices"], towers} if towers else ()
    batches = run.batches if check_derived else None
    return [
        *_run_check(checks.find_unit_faults, run.config or None, run.unit),
        *_run_check(checks.find_rank_faults, run.workers),
        *_run_check(checks.find_phase_faults, run.phases, batches),
        *_run_check(checks.find_load_faults, _load_windows(run)),
        *_run_check(
            checks.find_clock_faults, run.environment and run.environment.clocks
        ),
        *_run_check(checks.find_trace_faults, run.trace, traced_towers),
        *_run_check(checks.find_graph_faults, run.graph),
    ]


def _load_windows(run: RunRecord) -> dict[str, LoadWindows]:
    """Return the windows of the recording process and of each rank, by their path."""
    windows = {}
    if run.environment and run.environment.load and run.environment.load.windows:
        windows["environment.load.windows"] = run.environment.load.windows
    for i, rank in enumerate(run.workers.ranks if run.workers else ()):
        if rank.load_windows:
            windows[f"workers.ranks[{i}].load_windows"] = rank.load_windows
    return windows


def _run_check(
    check: Callable[..., Iterable[str]], part: Any, *values: Any
) -> list[str]:
    """Return the faults that a check finds in a part, if the record has it.

    An exception in the check becomes a fault, so that one file cannot stop the reading
    of a folder.
    """
    try:
        return [] if part is None else list(check(part, *values))
    except Exception as e:
        return [f"{check.__name__} cannot judge its values ({type(e).__name__}: {e})"]


def _count_towers(run: RunRecord) -> int | None:
    """Return the towers of all workers; None if unknown, or if workers were lost."""
    if not run.config or (run.workers and run.workers.lost):
        return None
    sizes = [run.options[name] for name in scale.AXES]
    if any(type(size) is not int for size in sizes):
        return None
    return math.prod(sizes)


def _share(
    value: Any,
    name: str,
    cache: Cache,
    faults: list[str],
    decode_part: Callable[[Any, str, list[str]], Any],
) -> Any:
    """Return the decoded part, the same object for all records with equal JSON."""
    # Version 2 of the format has no references, so equal JSON has equal bytes.
    key = (name, marshal.dumps(value, 2))
    if key not in cache:
        num_faults = len(faults)
        part = decode_part(value, name, faults)
        if len(faults) > num_faults:
            return part
        cache[key] = part
    return cache[key]


def _decode_options(value: Any, name: str, faults: list[str]) -> Options:
    if not isinstance(value, dict):
        faults.append(f"{name} is {quote(value)}; expected the run's options")
        return Options({})
    faults += _run_check(checks.find_config_faults, value)
    return Options(dict(zip(map(sys.intern, value), value.values())))


def _decode_environment(
    value: Any, cache: Cache, faults: list[str]
) -> Environment | None:
    if not isinstance(value, dict):
        return decode(Environment, value, "environment", faults)
    varying = {name: item for name, item in value.items() if name in _VARYING}
    constant = {name: item for name, item in value.items() if name not in _VARYING}
    decode_part = functools.partial(decode, Environment)
    shared = _share(
        constant,
        name="environment",
        cache=cache,
        faults=faults,
        decode_part=decode_part,
    )
    specific = decode(Environment, varying, "environment", faults)
    if shared is None or specific is None:
        return None
    fields = {name: getattr(specific, name) for name in varying}
    missing_fields = shared.missing & specific.missing
    return dataclasses.replace(shared, missing=missing_fields, **fields)
