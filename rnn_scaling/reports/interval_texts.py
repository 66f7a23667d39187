"""The text for each kind of interval, for notes, JSON and CSV.

Users' programs read these texts in CSV and JSON, so change a text only if it is wrong.
A new `Basis` or `Note` needs a text here.
"""

from collections.abc import Iterator

from rnn_scaling.analysis.confidence import MIN_BATCHES
from rnn_scaling.analysis.interval_kinds import (
    Basis,
    EnergySource,
    IntervalKind,
    Note,
)
from rnn_scaling.analysis.ranking import JOINT_COVERAGE

_BASES = {
    Basis.UNKNOWN: "",
    Basis.RUNS: "95 % CI over {counts} runs",
    Basis.PAIRS: "95 % CI over {counts} pairs of runs",
    Basis.BATCHES: (
        "95 % CI over batches within one run; says nothing about other runs"
    ),
    Basis.RANKING: f"{JOINT_COVERAGE:.0%} for all {{counts}} together",
    Basis.RANK_CORRELATION: "95 % CI of a rank correlation",
    Basis.HISTORY: "95 % CI over entries",
    Basis.REPEATS: "repeats",
    Basis.DRAWS: "95 % of the draws",
    Basis.MODELS: "average of models",
    Basis.FURTHER_RUN: "a further run",
    Basis.BATCH_SIZE: "one batch size",
    Basis.SIMULATION: (
        "no interval: the standard error is that of the random numbers, and says"
        " nothing about what was assumed"
    ),
    Basis.DEFINITION: "by definition",
    Basis.COUNT: "counted, not measured",
    Basis.CONSTANT: "the same whatever was measured",
    Basis.REFERENCE: "itself",
    Basis.EQUAL_RUNS: "the same in all runs",
    Basis.ONE_RUN_EACH: "one run of each: --repeats=3 gives intervals",
    Basis.ONE_PROCESS: "one run gives no interval",
    Basis.NO_SCATTER: "no interval",
    Basis.FEW_BATCHES: f"fewer than {MIN_BATCHES} batches give no interval",
    Basis.FEW_ENTRIES: "too few entries",
    Basis.FEW_RUNS_FOR_FIT: "as many runs as unknowns",
    Basis.ZERO_ACCURACY: "an accuracy of 0 gives no interval",
}
_NOTES = {
    Note.POOLED: (
        "rows with the same number of devices share one variance, unless a row's own"
        " is larger"
    ),
    Note.ORDERED: "not narrower than the scatter of runs in order of time makes it",
    Note.DRIFT: "includes drift of the machine between two sessions",
    Note.CORRECTED: "corrected for other programs' load, with the error of this",
    Note.ALL_BATCHES: "disturbed batches count too, unlike in the printed rates",
    Note.DISTURBED: "measured beside other programs",
    Note.PRINTED: "wider by half a unit of the last digits that logs printed",
}


def interval_text(kind: IntervalKind) -> str:
    """Return the basis of an interval, or why it is missing; "" if unknown."""
    template = _BASES[kind.basis]
    if kind.basis in (Basis.RUNS, Basis.PAIRS) and kind.counts == (1,):
        template = "95 % CI over 1 run"
    texts = [template.format(counts=" and ".join(map(str, kind.counts)))]
    texts += map(note_text, kind.notes)
    if kind.energy is not None:
        texts += _energy_texts(kind.energy)
    return "; ".join(texts)


def note_text(note: Note) -> str:
    return _NOTES[note]


def _energy_texts(source: EnergySource) -> Iterator[str]:
    if source.stated_power_w:
        yield f"estimated from a stated power of {source.stated_power_w:g} W"
        return
    yield f"measured: {', '.join(source.measured)}"
    for counter, reason in source.not_measured:
        yield f"not measured: {counter} ({reason})"
