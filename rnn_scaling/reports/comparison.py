"""What compare found -> text, Markdown or JSON."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.comparison import judgement
from rnn_scaling.analysis.comparison.costs import statements
from rnn_scaling.analysis.comparison.differences import UNKNOWN_EFFECT, Difference
from rnn_scaling.analysis.comparison.judgement import LabelledDifference, Question, Report, of_machine, some
from rnn_scaling.analysis.comparison.matching import InputError
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import BATCHES_NEEDED, Metric
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.files import input_files, terminal
from rnn_scaling.files.markdown import escaped
from rnn_scaling.reports import comparison_statements, machine_costs
from rnn_scaling.reports.numbers import differing, plus_minus
from rnn_scaling.reports.sections import Grid, Section, markdown
from rnn_scaling.reports.wording import counted, sentences
from rnn_scaling.settings import scale

SCHEMA = "rnn_scaling.compare/1"
BEFORE_AFTER = ("before", "after")


def compare(
    before: Path, after: Path, question: Question, format: str = "text", answer: Callable[[Report], str] | None = None
) -> int:
    """Prints the comparison of two sets of runs, and returns its exit status; a Refusal if there is nothing to compare.

    answer: printed in the place of the verdict: the sides are two settings A and B, neither of them the norm.
    """
    return tell(judged(before, after, question), format, answer)


def tell(report: Report, format: str = "text", answer: Callable[[Report], str] | None = None) -> int:
    """Prints a comparison; returns its exit status. Arguments as in `compare`."""
    if answer is not None:
        terminal.tell(f"{answer(report)}\n\n")
    names = BEFORE_AFTER if answer is None else ("A", "B")
    if format == "text":
        terminal.tell(f"{render_text(report, names)}\n")
    else:
        print(RENDER[format](report), flush=True)
    return report.exit_status


def judged(before: Path, after: Path, question: Question) -> Report:
    """Reads and compares two sets of runs. Raises Refusal if there is nothing to compare."""
    try:
        sides = judgement.read(before, after)
        entry.warn(*(f"{line}; left out" for side in sides for line in side.left_out))
        for side, prices in zip(sides, question.prices):
            entry.warn(*prices.unmatched([file.record for file in side.runs]))
        return judgement.judge(*sides, question)
    except InputError as e:
        raise entry.Refusal(*str(e).splitlines()) from None


def tell_machines(reports: Sequence[Report], output: Path | None = None, force: bool = False) -> int:
    """Prints the comparisons of the first machine with all others, and the cheapest; returns the exit status.

    Args:
      output: folder for the files of cost and speed, if they are wanted.
    """
    costs = [*{(cost.series, cost.folder): cost for report in reports for cost in report.machine_costs}.values()]
    if output is not None and not costs:
        raise entry.Refusal(f"--output={output} needs prices of the machines; give --machines=FILE (docs/machines.md)")
    status = max(map(tell, reports))
    if costs and len(reports) > 1:
        terminal.tell(f"\nresult: {sentences(statements(costs))}\n")
    if output is not None:
        machine_costs.write(costs, output, force)
    return status


def render_text(report: Report, names: Sequence[str] = BEFORE_AFTER) -> str:
    lines = [*_head(report, names), "", markdown(_sections(report, names), level=0)]
    return "\n".join([*lines, f"result: {_verdict(report)}"] if names is BEFORE_AFTER else lines).rstrip("\n")


def render_markdown(report: Report) -> str:
    lines = [f"**{_verdict(report)}**", "", *(f"{line}  " for line in _head(report)), ""]
    return escaped("\n".join([*lines, markdown(_sections(report), level=4)]).rstrip())


def render_json(report: Report) -> str:
    made = (*comparison_statements.verdict(report), *comparison_statements.method(report))
    fields: dict[str, Any] = {"schema": SCHEMA, "result": _verdict(report)}
    fields |= {"statements": [statement.data() for statement in made], **dataclasses.asdict(report)}
    fields["metric"] = report.metric.name
    fields["within"] = {when: [dataclasses.asdict(d) for d in unlike] for when, unlike in report.within}
    return input_files.json_text(fields).rstrip("\n")


RENDER: dict[str, Callable[[Report], str]] = {"text": render_text, "markdown": render_markdown, "json": render_json}


def _verdict(report: Report) -> str:
    return sentences(comparison_statements.verdict(report))


def _head(report: Report, names: Sequence[str] = BEFORE_AFTER) -> list[str]:
    lines = [
        f"{report.metric.title}: {names[0]} {report.before} ({counted(report.runs[0], 'run')}), "
        f"{names[1]} {report.after} ({counted(report.runs[1], 'run')})"
    ]
    changed = [f"--{change.name}={_plain(change.before)} -> {_plain(change.after)}" for change in report.changes]
    if names is BEFORE_AFTER and not report.is_history:
        lines.append(f"changed: {', '.join(changed) or 'no option'}")
    if report.machines:
        lines += [f"machine {when}: {name}" for when, name in zip(("before", "after"), report.machines)]
    if report.only_before:
        lines.append(f"only before, not compared: {some(report.only_before)}")
    if report.only_after:
        lines.append(f"only after, not compared: {some(report.only_after)}")
    return lines


def _plain(text: str) -> str:
    return text.strip("'") or '""'


def _table(report: Report, names: Sequence[str]) -> Grid:
    metric = report.metric
    unit = f", {metric.unit}" if metric.unit not in ("", metric.title) else ""
    sides = [f"{metric.title} {name}{unit}" for name in names]
    head = ["configuration", "runs", *sides, "change (95 % CI)", "p", "verdict"]
    is_gate = names is BEFORE_AFTER
    texts = [_verdict_cell(r, report.machines is None, is_gate) for r in report.results]
    if len(texts) > 1 and {r.reason for r in report.results} == {report.results[0].reason}:
        texts = [text.partition(":")[0] for text in texts]  # the result gives the reason of all
    return Grid("", head, [[*_cells(r, metric), text] for r, text in zip(report.results, texts)])


def _cells(result: Result, metric: Metric) -> list[str]:
    change, p_value = _change(result.comparison.ratio if result.comparison else None), "n/a"
    if result.p_adjusted is not None:
        p_value = f"{result.p_adjusted:.2g}" if result.p_adjusted >= 1e-4 else "< 0.0001"
    runs = "+".join(map(str, result.runs))
    before, after = (plus_minus(metric.printed(side), metric.digits) for side in (result.before, result.after))
    return [result.label, runs, before, after, change, p_value]


def _change(ratio: Interval | None) -> str:
    """ "+3.0 % (-1.0 % to +7.0 %)"; "n/a" for None."""
    if ratio is None or ratio.ends is None:
        return "n/a" if ratio is None else _signed(ratio.value)
    low, high = map(_signed, ratio.ends)
    return f"{_signed(ratio.value)} ({differing(ratio) if ratio.is_wide else f'{low} to {high}'})"


def _step_times(report: Report) -> tuple[tuple[Grid, ...], tuple[Statement, ...]]:
    """The table of step times, and a note if percentiles are missing."""
    known = [result for result in report.results if any(change.ratio for change in result.step_times)]
    lines = [[result.label, *(_change(change.ratio) for change in result.step_times)] for result in known]
    if not known:
        return (), ()
    head = ["configuration", *(f"p{percentile}" for percentile in BATCHES_NEEDED)]
    grid = Grid(f"Change of the {report.step_time} (95 % CI)", head, lines)
    needed = {f"p{percentile}": batches for percentile, batches in BATCHES_NEEDED.items()}
    lacks = any(change.ratio is None for result in known for change in result.step_times)
    return (grid,), (Statement("batches-needed", report.step_time, needed),) if lacks else ()


def _verdict_cell(result: Result, is_limited: bool, is_gate: bool) -> str:
    """What is known of a configuration; `is_gate`: whether a slow-down beyond the limit is a regression."""
    if result.p_adjusted is None or result.comparison is None:
        return f"cannot judge: {result.reason}"
    words = result.verdict
    if words == "no difference seen" and result.comparison.detectable is not None:
        words += f", smallest detectable {100 * result.comparison.detectable:.1f} %"
    if not is_gate:
        return {"slower": "B is slower", "faster": "B is faster"}.get(result.verdict, words)
    return {"regression": f"REGRESSION, {words}", "cannot judge": f"{words}; cannot judge: {result.reason}"}.get(
        result.gate, f"{words}, within the limit" if is_limited and result.verdict == "slower" else words
    )


def _sections(report: Report, names: Sequence[str] = BEFORE_AFTER) -> list[Section]:
    """The table, what it rests on, and the differences between the runs."""
    machines = [f for f in report.found if report.machines and of_machine(f.difference)]
    found = [f for f in report.found if f not in machines]
    grave = [f for f in found if f.difference.is_grave]
    unknown = [f for f in found if not f.difference.is_grave and f.difference.effect == UNKNOWN_EFFECT]
    cautions = [f for f in found if not f.difference.is_grave and f not in unknown]
    accepted = dict.fromkeys(report.accepted, " (accepted)")
    total = sum(all(r.runs) for r in report.results)
    not_recorded = list(dict.fromkeys(f.difference.what for f in unknown))
    runs = [f"{r.label}: {note}" for r in report.results for note in r.notes]
    notes: dict[str, Sequence[Statement | str]] = {
        "method": comparison_statements.method(report),
        "runs": [*runs[:20], *([f"{len(runs) - 20} more"] if len(runs) > 20 else [])],
        "differences between the machines": [_values(f.difference) for f in _by_name(machines)],
        "incomparable": [_difference(f, total) + accepted.get(f.difference.what, "") for f in grave],
        "differences to be careful with": [_difference(f, total) for f in cautions],
        "not recorded on both sides": [", ".join(not_recorded)] if not_recorded else [],
        **{f"runs {when} differ among themselves": _within(unlike) for when, unlike in report.within},
    }
    titled = [Section(title, notes=tuple(entries)) for title, entries in notes.items() if entries]
    priced = [machine_costs.section(report.machine_costs)] if report.machine_costs else []
    step_times, remarks = _step_times(report)
    return [Section("", (_table(report, names), *step_times), remarks), *priced, *titled]


def _difference(entry: LabelledDifference, total: int) -> str:
    where = "" if len(entry.labels) in (0, total) else f" [{some(entry.labels)}]"
    return f"{_values(entry.difference)}; {entry.difference.effect}{where}"


def _values(difference: Difference) -> str:
    return f"{difference.what}: {_plain(difference.a)} before, {_plain(difference.b)} after"


def _by_name(found: Sequence[LabelledDifference]) -> list[LabelledDifference]:
    """The first of each name, without the numbers of devices, which the table shows."""
    axes = [f"--{name}" for name in scale.AXES]
    return list({f.difference.what: f for f in reversed(found) if f.difference.what not in axes}.values())[::-1]


def _within(unlike: Sequence[Difference]) -> list[str]:
    values = [" and ".join(dict.fromkeys((_plain(found.a), _plain(found.b)))) for found in unlike]
    return [f"{found.what}: {value}; {found.effect}" for found, value in zip(unlike, values)]


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"
