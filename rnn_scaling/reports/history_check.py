"""Whether the latest entries of a history are slower: text, Markdown for the summary of a CI job, or JSON."""

from collections.abc import Sequence
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.history.curves import Judgement, Timeline
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files import input_files
from rnn_scaling.reports.history import rate, step_statements
from rnn_scaling.reports.numbers import interval_data
from rnn_scaling.reports.sections import Grid, Section, markdown
from rnn_scaling.reports.wording import sentences

SCHEMA = "rnn_scaling.history_check/1"
HEAD = ("Configuration", "Commit", "Rate", "Change (95 % CI)", "p", "Verdict")


def exit_status(judgements: Sequence[Judgement]) -> int:
    """0: a slow-down beyond the limit is excluded everywhere; 1: there is one; 2: cannot judge."""
    gates = {judgement.gate for judgement in judgements}
    if "regression" in gates:
        return entry.EXIT_FAILED
    return entry.EXIT_OK if gates == {"ok"} else entry.EXIT_USAGE


def statements(shown: Timeline, judgements: Sequence[Judgement], max_regression: float) -> list[Statement]:
    """The verdict, the steps that the latest entries have just shown, and what was not judged."""
    total = len(judgements)
    values: dict[str, Any] = {"limit": 100 * max_regression, "total": total}
    slower = sorted((j.change.value, j.curve.title) for j in judgements if j.gate == "regression")
    if slower:
        values |= {"slower": len(slower), "change": 100 * (slower[0][0] - 1)}
        made = [Statement("regressions" if total > 1 else "regression", slower[0][1], values)]
    elif exit_status(judgements) == entry.EXIT_OK:
        made = [Statement("no-regression", values=values)]
    else:
        reasons = [_reason(j, max_regression) for j in judgements if j.gate != "ok"] or ["no curve has two entries"]
        values |= {"unjudged": len(reasons), "reasons": [*dict.fromkeys(reasons)]}
        made = [Statement("some-not-judged" if total > 1 else "not-judged", values=values)]
    for judgement in judgements:
        made += step_statements(judgement.curve, judgement.curve.steps[-1]) if judgement.is_step else []
    return [*made, *([Statement("history-missing", values={"missing": [*shown.missing]})] if shown.missing else [])]


def _reason(judgement: Judgement, max_regression: float) -> str:
    if judgement.p_adjusted is None:
        return "fewer than 3 entries"
    return f"a slow-down of {100 * max_regression:g} % is neither shown nor excluded"


def render(shown: Timeline, judgements: Sequence[Judgement], max_regression: float, format: str) -> str:
    """The table and the verdict, which stands last in a terminal and first in Markdown."""
    made = statements(shown, judgements, max_regression)
    if format == "json":
        said = [statement.data() for statement in made]
        content = {"schema": SCHEMA, "statements": said, "results": [*map(_data, judgements)]}
        return input_files.json_text({**content, "exit_status": exit_status(judgements)})
    lines = [_cells(judgement, _reason(judgement, max_regression)) for judgement in judgements]
    section = Section("", (Grid("", HEAD, lines),), (Statement("history-method"),))
    body, verdict = markdown([section]) if lines else "", sentences(made)
    return f"**{verdict}**\n\n{body}" if format == "markdown" else f"{body}\nresult: {verdict}\n"


def _data(judgement: Judgement) -> dict[str, object]:
    facts = {"configuration": judgement.curve.title, "commit": judgement.curve.points[-1].entry.name}
    change = interval_data(judgement.change)
    return {
        **facts,
        "change": change,
        "p_adjusted": judgement.p_adjusted,
        "is_step": judgement.is_step,
        "gate": judgement.gate,
    }


def _cells(judgement: Judgement, reason: str) -> list[str]:
    curve, change, p_value = judgement.curve, judgement.change, judgement.p_adjusted
    ratios = [f"{100 * (ratio - 1):+.1f} %" for ratio in (change.value, *(change.ends or ()))]
    shown = f"{ratios[0]} ({' to '.join(ratios[1:])})" if ratios[1:] else ratios[0]
    p_text = "n/a" if p_value is None else f"{p_value:.2g}" if p_value >= 1e-4 else "< 0.0001"
    verdict = {"regression": "REGRESSION", "cannot judge": f"cannot judge: {reason}"}.get(judgement.gate, "ok")
    last = curve.points[-1]
    return [curve.title, last.entry.name, f"{rate(last)} {curve.unit}/s", shown, p_text, verdict]
