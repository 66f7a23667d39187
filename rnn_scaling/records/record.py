"""The run record: raw seconds and items of one run with everything needed to understand them, as JSON.

Schema "rnn_scaling.run/1" is described in docs/record.md. A new field is added, an old one never changes its meaning.
`read` is the one door: what passed it has the types that stand here, and numbers that can be.
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
    Length,
    Name,
    decode,
    encode,
    not_null,
    spelled,
)
from rnn_scaling.records.environment import NOTHING_TOLD, Environment, Resolved
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
MOST_SHOWN = 5  # faults in a message
MULTILINE = ("topology", "diff")
_SUSPECT = re.compile(
    r"\\[bfnrtu]|[^\t\n\r\x20-\x7e]"
)  # in JSON, what may be a character that does not print
# Parts of the environment that no two runs share; the rest of it is kept once for thousands of records.
VARYING = ("started", "load_average", "cpu_mhz", "gpus", "gpus_after", "load", "clocks")


class RecordError(ValueError):
    """A file is not a run record. faults: a line for each thing that is wrong, with its path in the file."""

    def __init__(self, source: str, faults: list[str]) -> None:
        more = len(faults) - MOST_SHOWN
        rest = [f"{more} more {'faults' if more > 1 else 'fault'}"] if more > 0 else []
        super().__init__(f"{source}: {'. '.join([*faults[:MOST_SHOWN], *rest])}")
        self.faults = tuple(faults)


@dataclasses.dataclass(frozen=True, slots=True)
class RunRecord:
    """One run. What there is whole or not at all is None where the run did not get so far; the rest is then empty."""

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
    environment: Environment = NOTHING_TOLD
    graph: Graph | None = None  # None unless the run was traced, as `trace`
    trace: Trace | None = None
    unit: Name = "words"  # what its items are
    flops_per_item: Length | None = None  # of forward and backward; None: not known
    workers: Workers | None = None  # None: a run of one process
    certificate: Certificate | None = None  # None: not compared with serial training
    energy: Energy | None = None  # of this process's machine; None without counters
    log_format: Name | None = (
        None  # of the log that its numbers were read from; None: it timed its steps itself
    )
    # By what share of itself its rate may be off for the digits that the log printed, or by log_clock.
    log_rounding: Fraction | None = None
    # What timed that log's steps, the "arrival" of its lines or the "process"; None: it printed rates or seconds.
    log_clock: Name | None = None
    # What else the rate of that log may be; None: its lines have one meaning.
    log_findings: tuple[LogFinding, ...] | None = None
    output: PrintedOutput | None = None  # of another program; None: not seen
    ended: Name | None = (
        None  # how its program ended after it had written this, where that was not well
    )
    missing_output: Name | None = (
        None  # which output besides the numbers could not be written, and why
    )
    schema: str = SCHEMA

    def __post_init__(self) -> None:
        if not isinstance(self.options, Options):
            object.__setattr__(self, "options", Options(self.options))

    @property
    def config(self) -> dict[str, Any]:
        """The options as the file of the record contains them."""
        return self.options.recorded

    def to_json(self) -> str:
        """The record as JSON text; floats keep every digit, NaN and infinities become null."""
        fields: dict[str, Any] = {
            "schema": self.schema,
            "status": self.status,
            "error": encode(self.error),
            "unit": self.unit,
            "flops_per_item": encode(self.flops_per_item),
            "config": encode(self.config),
        }
        for name in (*_SELDOM, *PARTS):
            value = getattr(self, name)
            if value is not None or name in _ALWAYS:
                fields[name] = {} if value is None else encode(value)
        return json.dumps(fields, indent=1, allow_nan=False) + "\n"


_TYPES = typing.get_type_hints(RunRecord, include_extras=True)
_SELDOM = (
    "log_format",
    "log_rounding",
    "log_clock",
    "log_findings",
    "ended",
    "missing_output",
)
_TOP = {
    name: _TYPES[name] for name in ("error", "unit", "flops_per_item", *_SELDOM)
}  # what is no part of its own
PARTS = {
    name: not_null(kind)
    for name, kind in _TYPES.items()
    if name not in {"status", "options", "schema", *_TOP}
}
# Parts that a file has even if the run did not reach them.
_ALWAYS = PARTS.keys() - {"workers", "certificate", "energy", "output"}


def from_json(
    text: str,
    source: str = "record",
    *,
    derived: bool = True,
    kept: dict[Any, Any] | None = None,
) -> RunRecord:
    """Parses a record; a RecordError names everything that is wrong in a text that is none of this schema."""
    try:
        fields = input_files.parse_json(text)
    except input_files.JsonError as e:
        raise RecordError(source, [f"{e}; expected a run record"]) from None
    if not input_files.is_plain(text) and _SUSPECT.search(text):
        fields = _readable(fields)
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        got = (
            fields.get("schema") if isinstance(fields, dict) else type(fields).__name__
        )
        raise RecordError(source, [f"expected schema {SCHEMA!r}, got {got!r}"])
    if missing := {"status", "error", "config"} - fields.keys():
        raise RecordError(source, [f"{', '.join(sorted(missing))} missing"])
    faults: list[str] = []
    run = _decode(fields, derived, {} if kept is None else kept, faults)
    if run is None or faults:
        raise RecordError(source, faults)
    return run


def _readable(value: Any, lines: bool = False) -> Any:
    """The parsed JSON without anything that drives a terminal; only a few texts have several lines."""
    if type(value) is str:
        return entry.printable(value, lines)
    if type(value) is list:
        return [_readable(item, lines) for item in value]
    if type(value) is dict:
        return {
            entry.printable(name): _readable(item, name in MULTILINE)
            for name, item in value.items()
        }
    return value


def read(
    path: str | os.PathLike[str],
    *,
    derived: bool = True,
    kept: dict[Any, Any] | None = None,
) -> RunRecord:
    """Reads a record file; raises OSError if it cannot be read, RecordError if it is not a record."""
    try:
        text = input_files.read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise RecordError(str(path), ["not UTF-8 text; expected a run record"]) from e
    return from_json(text, str(path), derived=derived, kept=kept)


def find(path: str | os.PathLike[str]) -> RunRecord | None:
    """The record of a file; None: there is no file that can be read as one."""
    try:
        return read(path)
    except (OSError, RecordError):
        return None


def write(record: RunRecord, path: str | os.PathLike[str]) -> None:
    """Writes a record whole or not at all; after an OSError what was at `path` is still there."""
    write_text(record.to_json(), path)


def _decode(
    fields: dict[str, Any], derived: bool, kept: dict[Any, Any], faults: list[str]
) -> RunRecord | None:
    """The record of a file's fields; None where anything is wrong. Every part is judged, whatever the others have."""
    if fields["status"] not in STATUSES:
        faults.append(
            f"expected status {', '.join(STATUSES)}, got {fields['status']!r}"
        )
    options = _keep(fields["config"], "config", kept, faults, _options)
    parts = _parts(fields, kept, faults)
    before = len(faults)
    top = {
        name: decode(kind, fields[name], name, faults)
        for name, kind in _TOP.items()
        if name in fields
    }
    if len(faults) > before:
        return None
    run = RunRecord(
        status=fields["status"], options=options, **top, **parts
    )  # a part that is wrong is None
    in_file = fields.get("batches")
    noun = "items" if isinstance(in_file, dict) and "items" in in_file else "words"
    faults += _rate_faults(run, fields, derived, noun) + _part_faults(run, derived)
    if derived and not faults and run.status == "ok":
        faults += _judged(checks.window_faults, run.workers, run.batches, noun)
    return None if faults else run


def _parts(
    fields: dict[str, Any], kept: dict[Any, Any], faults: list[str]
) -> dict[str, Any]:
    """The parts that the file has, decoded; an empty one is a part that the run did not reach."""
    parts: dict[str, Any] = {}
    for name, kind in PARTS.items():
        value = fields.get(name, {})
        if value == {}:
            continue
        if name == "environment":
            parts[name] = _environment(value, kept, faults)
        elif name in ("resolved", "parameters"):
            parts[name] = _keep(
                value, name, kept, faults, functools.partial(decode, kind)
            )
        else:
            parts[name] = decode(kind, value, name, faults)
    return parts


def _rate_faults(
    run: RunRecord, fields: dict[str, Any], derived: bool, noun: str
) -> list[str]:
    """What does not fit in batches and throughput; a log may tell the rate alone."""
    if run.log_format is not None and run.batches == Batches():
        return []
    faults = _judged(checks.rate_faults, run.throughput, noun)
    if run.batches and (run.status == "ok" or run.throughput):
        throughput = run.throughput if derived else None
        faults += _judged(
            checks.batch_faults, run.batches, throughput, _towers(run), noun
        )
        if fields.get("throughput", {}) == {}:
            faults.append(
                "throughput is missing; expected items, seconds and items_per_second"
            )
    return faults


def _part_faults(run: RunRecord, derived: bool) -> list[str]:
    """What does not fit in the other parts."""
    towers = _towers(run)
    traced = (
        {run.options["num_devices"], towers} if towers else ()
    )  # of a worker, or where one drives all
    return [
        *_judged(checks.unit_faults, run.config or None, run.unit),
        *_judged(checks.rank_faults, run.workers),
        *_judged(checks.phase_faults, run.phases, run.batches if derived else None),
        *_judged(checks.clock_faults, run.environment and run.environment.clocks),
        *_judged(checks.trace_faults, run.trace, traced),
        *_judged(checks.graph_faults, run.graph),
    ]


def _judged(check: Callable[..., Iterable[str]], part: Any, *values: Any) -> list[str]:
    """The faults that a check finds in a part that there is; an error of the check is one too, and stops no folder."""
    try:
        return [] if part is None else list(check(part, *values))
    except Exception as e:
        return [f"{check.__name__} cannot judge its values ({type(e).__name__}: {e})"]


def _towers(run: RunRecord) -> int | None:
    """Return the towers of all workers; None if unknown, or if workers were lost."""
    if not run.config or (run.workers and run.workers.lost):
        return None
    sizes = [run.options[name] for name in scale.AXES]
    if any(type(size) is not int for size in sizes):
        return None
    return math.prod(sizes)


def _keep(
    value: Any,
    name: str,
    kept: dict[Any, Any],
    faults: list[str],
    decode_part: Callable[[Any, str, list[str]], Any],
) -> Any:
    """The part that `value` is; the same one for every record that has it."""
    key = (
        name,
        marshal.dumps(value, 2),
    )  # version 2: the same bytes for whatever is the same JSON, at once
    if key not in kept:
        before = len(faults)
        part = decode_part(value, name, faults)
        if len(faults) > before:
            return part
        kept[key] = part
    return kept[key]


def _options(value: Any, name: str, faults: list[str]) -> Options:
    if not isinstance(value, dict):
        faults.append(f"{name} is {spelled(value)}; expected the run's options")
        return Options({})
    faults += _judged(checks.config_faults, value)
    return Options(dict(zip(map(sys.intern, value), value.values())))


def _environment(
    value: Any, kept: dict[Any, Any], faults: list[str]
) -> Environment | None:
    if not isinstance(value, dict):
        return decode(Environment, value, "environment", faults)
    varying = {name: value[name] for name in VARYING if name in value}
    rest = {name: item for name, item in value.items() if name not in varying}
    shared = _keep(
        rest, "environment", kept, faults, functools.partial(decode, Environment)
    )
    specific = decode(Environment, varying, "environment", faults)
    if shared is None or specific is None:
        return None
    fields = {name: getattr(specific, name) for name in varying}
    return dataclasses.replace(
        shared, missing=shared.missing & specific.missing, **fields
    )
