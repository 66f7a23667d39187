"""What recommend found -> text, Markdown, JSON: the modes in a table, the answer, the command to copy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.ranking import EQUAL, OPEN, REFERENCE, Ranking, Standing
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.files import input_files
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.wording import sentences

SCHEMA = "rnn_scaling.recommend/2"
TOO_NOISY = 0.5  # a possible difference of this share is no answer


@dataclasses.dataclass(frozen=True)
class Advice:
    """What was measured.

    Attributes:
      ranking: the candidates by name; None: no run measured anything.
      taken: flags of the fastest, by name; empty without a ranking.
      command: that trains with them; "" without a ranking.
      unit: what the rates count.
      failed, left_out: names of candidates without a good run, and without any.
      records: of all runs.
    """

    ranking: Ranking[str] | None
    taken: dict[str, Any]
    command: str
    unit: str
    failed: Sequence[str]
    left_out: Sequence[str]
    records: Sequence[RunRecord]


def statements(advice: Advice) -> list[Statement]:
    """What holds of the candidates."""
    ranking, made = advice.ranking, []
    if ranking is None:
        return [Statement("recommend-nothing")]
    rate = ranking.standings[ranking.reference].rate
    made.append(Statement("recommend", ranking.reference, {"rate": interval_values(rate), "unit": advice.unit}))
    tied = [name for name in ranking.contenders if name != ranking.reference]
    if tied:
        made.append(_tie(tied, [ranking.standings[name].within for name in tied]))
    if advice.failed:
        made.append(Statement("recommend-failed", values={"names": list(advice.failed)}))
    if advice.left_out:
        made.append(Statement("recommend-left-out", values={"names": list(advice.left_out)}))
    loads = [load for record in advice.records if record.status == "ok" and (load := disturbance.load(record))]
    if loads:
        made.append(Statement("recommend-load", values={"share": max(loads), "runs": len(loads)}))
    return made


def _tie(names: list[str], within: Sequence[float | None]) -> Statement:
    """That the fastest is not shown to be faster than others, and by how much they may differ."""
    known = [share for share in within if share is not None]
    if len(known) < len(within):
        return Statement("recommend-one-round", values={"names": names})
    largest = max(known)
    kind = "recommend-equal" if largest <= EQUAL else "recommend-open" if largest < TOO_NOISY else "recommend-noisy"
    return Statement(kind, values={"names": names, "within": largest})


def text(advice: Advice) -> str:
    """For the terminal, and, below a title, for a file."""
    parts = [_table(advice, advice.ranking)] if advice.ranking else []
    parts.append(f"{sentences(statements(advice))}\n")
    return "\n".join([*parts, *([f"    {advice.command}\n"] if advice.command else [])])


def markdown(advice: Advice) -> str:
    """The file."""
    return f"# Recommendation\n\n{text(advice)}"


def _table(advice: Advice, ranking: Ranking[str]) -> str:
    head = ["Mode", "Runs", f"{advice.unit.capitalize()}/s", "% of best", "Verdict"]
    rows = [
        [name, str(standing.rate.processes[0]), plus_minus(standing.rate, 0), _share(standing), _verdict(standing)]
        for name, standing in sorted(ranking.standings.items(), key=lambda item: -item[1].rate.value)
    ]
    return markdown_table(head, rows)


def _share(standing: Standing) -> str:
    return "100" if standing.verdict == REFERENCE else plus_minus(standing.ratio.scaled(100), 1)


def _verdict(standing: Standing) -> str:
    if standing.verdict == REFERENCE:
        return "fastest"
    if standing.verdict == OPEN and standing.within is not None and standing.within <= EQUAL:
        return "as fast"
    return standing.verdict


def to_json(advice: Advice) -> str:
    """Everything, for a program; rates in items/s, shares as ratios."""
    ranking = advice.ranking
    content = {
        "schema": SCHEMA,
        "statements": [statement.data() for statement in statements(advice)],
        "command": advice.command or None,
        "unit": advice.unit,
        "taken": advice.taken or None,
        "alternatives": [_data(name, standing) for name, standing in ranking.standings.items()] if ranking else [],
        "failed": list(advice.failed),
        "left_out": list(advice.left_out),
    }
    return input_files.json_text(content)


def _data(name: str, standing: Standing) -> dict[str, Any]:
    return {
        "name": name,
        "runs": standing.rate.processes[0],
        "rate": _interval(standing.rate),
        "of_reference": _interval(standing.ratio),
        "verdict": standing.verdict,
    }


def _interval(value: Interval) -> dict[str, float | None]:
    return {"value": value.value, "low": value.low, "high": value.high}


RENDER = {"text": text, "markdown": markdown, "json": to_json}
