"""Compare the derived numbers of this suite's run records with the raw ones."""

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from rnn_scaling.analysis.audit.finding import IMPOSSIBLE, Finding, Place
from rnn_scaling.records import record
from rnn_scaling.records.record import SCHEMA, RecordError, RunRecord

_SCHEMA = SCHEMA.partition("/")[0] + "/"  # the start of every version
_SLACK = 1e-6  # relative, or seconds: records may round what they derive


def is_own(path: Path) -> bool:
    """Return whether a file begins like a run record."""
    with path.open("rb") as file:
        return _SCHEMA.encode() in file.read(400)


def read(path: Path) -> list[tuple[Path, RunRecord]]:
    """Return the run records of a folder or of a file, which may not be a record.

    Raises:
      OSError: If the file cannot be read.
      RecordError: If a record is wrong, or if a folder has no records.
    """
    if not path.is_dir():
        is_record = path.suffix == ".json" and is_own(path)
        return [(path, record.read(path, check_derived=False))] if is_record else []
    records = []
    for file in sorted(path.rglob("*.json")):
        with contextlib.suppress(RecordError):
            records.append((file, record.read(file, check_derived=False)))
    if not records:
        kinds = "without documents that are read (docs/audit.md lists their kinds)"
        raise RecordError(str(path), [f"a folder without run records, and {kinds}"])
    return records


def _derived_numbers(
    run: RunRecord,
) -> Iterator[tuple[str, float | None, str, float | None]]:
    """Yield the name of each derived number, the number, its formula and its value."""
    first = run.batches.warmup
    seconds = run.batches.seconds[first:]
    items = run.batches.items[first:]
    words = "throughput.words"
    if rate := run.throughput:
        time = "throughput.seconds"
        if items:
            yield words, rate.items, "sum of batches.words", sum(items)
        if seconds:
            yield time, rate.seconds, "sum of batches.seconds", math.fsum(seconds)
        if rate.seconds and rate.items:
            name = "throughput.words_per_second"
            quotient = rate.items / rate.seconds
            yield name, rate.items_per_second, "words / seconds", quotient
        workers = run.workers
        ranks = workers.ranks if workers and not workers.lost else ()
        timed_ranks = [rank for rank in ranks if rank.seconds]
        if timed_ranks:
            total = sum(sum(rank.items[first:]) for rank in timed_ranks)
            last = max(math.fsum(rank.seconds[first:]) for rank in timed_ranks)
            yield words, rate.items, "words of all ranks", total
            yield time, rate.seconds, "latest end of the ranks", last
    if any(run.phases.parts.values()):
        total_s = math.fsum(run.phases.parts.values())
        yield "phases.total", run.phases.total, "sum of phases", total_s
    if seconds:
        num_measured = run.batches.measured
        yield "batches.measured", num_measured, "batches after warm-up", len(seconds)


def check(records: Sequence[tuple[Path, RunRecord]]) -> tuple[int, list[Finding]]:
    """Return the number of comparisons, and a finding for each number that differs."""
    num_comparisons = 0
    findings = []
    for path, run in records:
        for name, derived, formula, expected in _derived_numbers(run):
            if run.status != "ok" or derived is None or expected is None:
                continue
            num_comparisons += 1
            rounding = max(_SLACK, 2 * (run.log_rounding or 0)) * abs(expected)
            if abs(derived - expected) > max(_SLACK, rounding):
                place = Place(0, formula, name, f"{derived:.12g}", expected, expected)
                relation = f"{name} = {formula}"
                finding = Finding("record", IMPOSSIBLE, str(path), (place,), relation)
                findings.append(finding)
    return num_comparisons, findings
