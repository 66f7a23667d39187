"""Run records of this suite: their derived numbers against the raw ones, and a table of their rates."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.audit.finding import IMPOSSIBLE, Finding, Place
from rnn_scaling.analysis.audit.tables import Table
from rnn_scaling.config import scale
from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records import record
from rnn_scaling.records.record import SCHEMA, RecordError, RunRecord

_SCHEMA = SCHEMA.partition("/")[0] + "/"  # of every version
_SLACK = 1e-6  # seconds: records may round what they derive


def is_own(path: Path) -> bool:
    """Whether a file says that it is a run record."""
    with path.open("rb") as file:
        return _SCHEMA.encode() in file.read(400)


def read(path: Path) -> list[tuple[Path, RunRecord]]:
    """The run records of a file or folder; none if a file is none. Raises OSError, or RecordError for a wrong one."""
    if path.is_dir():
        found = []
        for file in sorted(path.rglob("*.json")):
            with contextlib.suppress(RecordError):
                found.append((file, record.read(file, derived=False)))
        if not found:
            kinds = "without documents that are read (docs/audit.md lists their kinds)"
            raise RecordError(str(path), [f"a folder without run records, and {kinds}"])
        return found
    if path.suffix != ".json" or not is_own(path):
        return []
    return [(path, record.read(path, derived=False))]


def pairs(run: RunRecord) -> Iterator[tuple[str, float | None, str, float | None]]:
    """(name, derived number, name, what it must be) of everything that a record says twice."""
    batches, throughput = run.batches, run.throughput
    seconds, items = batches.seconds[batches.warmup :], batches.items[batches.warmup :]
    if throughput:
        yield (
            "throughput.words",
            throughput.items,
            "sum of batches.words",
            sum(items) if items else None,
        )
        total = math.fsum(seconds) if seconds else None
        yield "throughput.seconds", throughput.seconds, "sum of batches.seconds", total
        yield (
            "throughput.words",
            throughput.items,
            "words that the settings imply",
            _implied(run),
        )
        if throughput.seconds and throughput.items:
            rate = throughput.items / throughput.seconds
            yield (
                "throughput.words_per_second",
                throughput.items_per_second,
                "words / seconds",
                rate,
            )
        workers = run.workers
        timed = (
            [rank for rank in workers.ranks if rank.seconds]
            if workers and not workers.lost
            else []
        )
        if timed:
            first = batches.warmup
            ends = max(math.fsum(rank.seconds[first:]) for rank in timed)
            yield (
                "throughput.words",
                throughput.items,
                "words of all ranks",
                sum(sum(r.items[first:]) for r in timed),
            )
            yield (
                "throughput.seconds",
                throughput.seconds,
                "latest end of the ranks",
                ends,
            )
    if any(run.phases.parts.values()):
        yield (
            "phases.total",
            run.phases.total,
            "sum of phases",
            math.fsum(run.phases.parts.values()),
        )
    yield (
        "batches.measured",
        batches.measured,
        "batches after warm-up",
        len(seconds) if seconds else None,
    )


def _implied(run: RunRecord) -> float | None:
    """Words of the measured batches where every sentence has its full length, as synthetic ones do."""
    config = run.config
    is_strong = bool(config.get("global_batch_size"))
    batch = config.get("global_batch_size" if is_strong else "batch_size")
    source, target = config.get("src_max_len"), config.get("tgt_max_len")
    if run.unit != "words" or config.get("data_source") == "text" or TRAINER in config:
        return None
    if batch is None or source is None or target is None:
        return None
    times = (
        1
        if is_strong
        else (scale.num_devices(config) or 1)
        * config.get("gradient_accumulation_steps", 1)
    )
    return float(batch * times * (run.batches.measured or 0) * (source + target))


def check(records: Sequence[tuple[Path, RunRecord]]) -> tuple[int, list[Finding]]:
    """The number of comparisons in some records, and a finding for each derived number that differs."""
    compared, found = 0, []
    for path, run in records:
        for name, derived, raw, expected in pairs(run) if run.status == "ok" else ():
            if derived is None or expected is None:
                continue
            compared += 1
            tolerance = max(
                _SLACK,
                1e-6 * abs(expected),
                2 * (run.log_rounding or 0) * abs(expected),
            )
            if abs(derived - expected) > tolerance:
                place = Place(0, raw, name, f"{derived:.12g}", expected, expected)
                found.append(
                    Finding(
                        "record", IMPOSSIBLE, str(path), (place,), f"{name} = {raw}"
                    )
                )
    return compared, found


def table(records: Sequence[tuple[Path, RunRecord]], source: str) -> Table:
    """A row for each run that ended well: series, devices and rate."""
    header = ("series", "devices", "rate")
    rows = []
    for line, (_, run) in enumerate(records, 1):
        if run.status == "ok" and run.throughput and run.throughput.items_per_second:
            name = " ".join(
                str(run.config.get(key, ""))
                for key in ("model", "encoder_type", "variable_update")
            )
            rate = repr(float(run.throughput.items_per_second))
            rows.append(
                (line, (name.strip(), str(scale.num_devices(run.config)), rate))
            )
    return Table(source, 0, header, tuple(rows))
