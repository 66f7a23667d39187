"""What compare found -> text, Markdown or JSON."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.comparison import judgement, verdicts
from rnn_scaling.analysis.comparison.differences import UNKNOWN_EFFECT, Difference
from rnn_scaling.analysis.comparison.judgement import (
    LabelledDifference,
    Question,
    Report,
    of_machine,
    some,
)
from rnn_scaling.analysis.comparison.matching import ALL_DEVICES, PER_DEVICE, InputError
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import ORDERED
from rnn_scaling.analysis.facts.table import INCOMPARABLE
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.files import input_files, terminal
from rnn_scaling.files.markdown import escaped, markdown_table
from rnn_scaling.reports.numbers import has_interval, plus_minus
from rnn_scaling.settings import scale

SCHEMA = "rnn_scaling.compare/1"
SCOPES = {PER_DEVICE: "Per device", ALL_DEVICES: "With all devices"}
BEFORE_AFTER = ("before", "after")
KINDS = {  # of statements about machines
    "faster": "{after} is faster",
    "slower": "{after} is slower",
    "tie": "the difference is within the noise",
    "unknown": "cannot judge",
}


def compare(
    before: Path,
    after: Path,
    question: Question,
    format: str = "text",
    answer: Callable[[Report], str] | None = None,
) -> int:
    """Prints the comparison of two sets of runs.

    Args:
      answer: printed first, in the place of the verdict: the sides are two settings A and B, neither of them the norm.

    Returns:
      0: a slow-down beyond the limit is excluded everywhere; 1: there is one; 2: cannot judge.

    Raises:
      Refusal: if there is nothing to compare.
    """
    try:
        sides = judgement.read(before, after)
        entry.warn(*(f"{line}; left out" for side in sides for line in side.left_out))
        report = judgement.judge(*sides, question)
    except InputError as e:
        raise entry.Refusal(*str(e).splitlines()) from None
    if answer is not None:
        terminal.tell(f"{answer(report)}\n\n")
    names = BEFORE_AFTER if answer is None else ("A", "B")
    if format == "text" and sys.stdout.isatty():
        head, *rows = _table(report, names)
        terminal.tell(f"{_text(report, markdown_table(head, rows, padded=False).splitlines(), '- ', names)}\n")
    elif format == "text":
        print(_text(report, _columns(_table(report, names)), "  - ", names), flush=True)
    else:
        print(RENDER[format](report), flush=True)
    return report.exit_status


def render_text(report: Report) -> str:
    """For a file or a pipe; a terminal has the table that fits it."""
    return _text(report, _columns(_table(report)), "  - ")


def _text(report: Report, table: Sequence[str], bullet: str, names: Sequence[str] = BEFORE_AFTER) -> str:
    """The whole comparison; a terminal breaks lines that do not begin with blanks."""
    lines = [*_head(report, names), "", *table, ""]
    for title, entries in _sections(report):
        lines += [f"{title}:", *(f"{bullet}{entry}" for entry in entries), ""] if entries else []
    return "\n".join([*lines, f"result: {verdict(report)}"] if names is BEFORE_AFTER else lines[:-1])


def render_markdown(report: Report) -> str:
    """For a pull request or a job's summary."""
    head, *rows = _table(report)
    table = markdown_table(head, rows, padded=False)
    lines = [f"**{verdict(report)}**", "", *(f"{line}  " for line in _head(report)), "", table]
    for title, entries in _sections(report):
        lines += [f"#### {title}", "", *(f"- {entry}" for entry in entries), ""] if entries else []
    return escaped("\n".join(lines).rstrip())


def render_json(report: Report) -> str:
    """Everything, for a program."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "result": verdict(report),
        **dataclasses.asdict(report),
        "metric": report.metric.name,
    }
    fields["within"] = {when: [dataclasses.asdict(d) for d in unlike] for when, unlike in report.within}
    return input_files.json_text(fields).rstrip("\n")


RENDER: dict[str, Callable[[Report], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "json": render_json,
}


def verdict(report: Report) -> str:
    """The answer in one sentence, or one for each scope where machines are compared."""
    if report.machines:
        return " ".join(
            _of_scope(report, scope) for scope in SCOPES if any(s.scope == scope for s in report.statements)
        )
    limit, total = f"{100 * report.max_regression:g} %", len(report.results)
    limit += " between two sittings" if report.two_sittings else ""
    slower = [(r.comparison.ratio.value, r.label) for r in report.results if r.gate == "regression" and r.comparison]
    if slower:
        change, label = min(slower, key=lambda each: each[0])
        where = f" in {len(slower)} of {total} configurations, worst" if total > 1 else ","
        return f"regression beyond {limit}{where} {_signed(change)}: {label}"
    open_ = [r for r in report.results if r.gate != "ok"]
    if not open_ and report.exit_status == 0:
        return f"no regression beyond {limit} in {_count(total, 'configuration')}"
    if not open_:
        return "cannot judge: " + some([f.difference.what for f in report.found if _grave(f.difference)])
    reasons = list(dict.fromkeys(r.reason for r in open_))
    several = any(_grave(f.difference) and of_machine(f.difference) for f in report.found)
    remedy = "; to compare two machines, add --across=machine" if several else ""
    return f"cannot judge{f' {len(open_)} of {total} configurations' if total > 1 else ''}: {some(reasons, 1)}{remedy}"


def _of_scope(report: Report, scope: str) -> str:
    """Which machine is faster: by how much in the only series, or in how many of several."""
    stated = [each for each in report.statements if each.scope == scope]
    if len(stated) == 1:
        [only] = stated
        ends = f"{_short(only.ratio)} ({_short(only.low)} to {_short(only.high)}) times as fast as {report.before}"
        why = f"cannot judge: {only.reason}" if only.kind == "unknown" else f"{report.after} is {ends}"
        return f"{SCOPES[scope]}: {why}{', which is within the noise' if only.kind == 'tie' else ''}."
    parts = []
    for kind, words in KINDS.items():
        ratios = [each.ratio for each in stated if each.kind == kind and each.ratio]
        ends = f" ({_short(min(ratios))} to {_short(max(ratios))} times)" if ratios else ""
        if count := sum(each.kind == kind for each in stated):
            parts.append(f"{words.format(after=report.after)} in {count} of {len(stated)} series{ends}")
    return f"{SCOPES[scope]}: {'; '.join(parts)}."


def _short(ratio: float | None) -> str:
    return "n/a" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def _head(report: Report, names: Sequence[str] = BEFORE_AFTER) -> list[str]:
    lines = [
        f"{report.metric.title}: {names[0]} {report.before} ({_count(report.runs[0], 'run')}), "
        f"{names[1]} {report.after} ({_count(report.runs[1], 'run')})"
    ]
    changed = [f"--{c.name}={_plain(c.before)} -> {_plain(c.after)}" for c in report.changes]
    if names is BEFORE_AFTER:
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


def _table(report: Report, names: Sequence[str] = BEFORE_AFTER) -> list[list[str]]:
    metric = report.metric
    unit = f", {metric.unit}" if metric.unit not in ("", metric.title) else ""
    head = [
        "configuration",
        "runs",
        *(f"{metric.title} {name}{unit}" for name in names),
        "change (95 % CI)",
        "p",
        "verdict",
    ]
    is_gate = names is BEFORE_AFTER
    return [head, *([*_cells(r, metric), _verdict_cell(r, report.machines is None, is_gate)] for r in report.results)]


def _cells(result: Result, metric: Metric) -> list[str]:
    comparison, change, p_value = result.comparison, "n/a", "n/a"
    if comparison is not None:
        ratio = comparison.ratio
        change = _signed(ratio.value)
        if ratio.low is not None and ratio.high is not None:
            change += f" ({_signed(ratio.low)} to {_signed(ratio.high)})"
    if result.p_adjusted is not None:
        p_value = f"{result.p_adjusted:.2g}" if result.p_adjusted >= 1e-4 else "< 0.0001"
    runs = "+".join(map(str, result.runs))
    before, after = (plus_minus(metric.printed(side), metric.digits) for side in (result.before, result.after))
    return [result.label, runs, before, after, change, p_value]


def _verdict_cell(result: Result, is_limited: bool, is_gate: bool) -> str:
    """What is known of a configuration; `is_gate`: whether a slow-down beyond the limit is a regression."""
    if result.p_adjusted is None or result.comparison is None:
        return f"cannot judge: {result.reason}"
    words = result.verdict
    if words == "no difference seen" and result.comparison.detectable is not None:
        words += f", smallest detectable {100 * result.comparison.detectable:.1f} %"
    if not is_gate:
        return {"slower": "B is slower", "faster": "B is faster"}.get(result.verdict, words)
    return {
        "regression": f"REGRESSION, {words}",
        "cannot judge": f"{words}; cannot judge: {result.reason}",
    }.get(result.gate, f"{words}, within the limit" if is_limited and result.verdict == "slower" else words)


def _sections(report: Report) -> list[tuple[str, list[str]]]:
    machines = [f for f in report.found if report.machines and of_machine(f.difference)]
    found = [f for f in report.found if f not in machines]
    grave = [f for f in found if _grave(f.difference)]
    unknown = [f for f in found if not _grave(f.difference) and f.difference.effect == UNKNOWN_EFFECT]
    cautions = [f for f in found if not _grave(f.difference) and f not in unknown]
    accepted = dict.fromkeys(report.accepted, " (accepted)")
    total = sum(all(r.runs) for r in report.results)
    names = list(dict.fromkeys(f.difference.what for f in unknown))
    runs = [f"{r.label}: {note}" for r in report.results for note in r.notes]
    return [
        ("what this rests on", _method(report)),
        ("runs", [*runs[:20], *([f"{len(runs) - 20} more of the kind"] if len(runs) > 20 else [])]),
        ("what differs between the machines", [_values(f.difference) for f in _by_name(machines)]),
        ("incomparable", [_difference(f, total) + accepted.get(f.difference.what, "") for f in grave]),
        ("differences to be careful with", [_difference(f, total) for f in cautions]),
        ("not recorded on every side, so nobody can tell", [", ".join(names)] if names else []),
        *((f"runs {when} differ among themselves", _within(unlike)) for when, unlike in report.within),
    ]


def _method(report: Report) -> list[str]:
    judged = [r for r in report.results if r.p_adjusted is not None]
    sides = [side for r in report.results for side in (r.before, r.after)]
    kinds = dict.fromkeys(side.kind for side in sides if side and has_interval(side))
    lines = [f"±: {kind}" for kind in kinds]
    if judged:
        test = "Student's t over pairs of runs" if report.paired else "Welch's t over the configuration's own runs"
        drift = f"; {ORDERED}" if any(ORDERED in r.comparison.ratio.kind for r in judged if r.comparison) else ""
        lines.append(f"change and p: {test}, of the logarithm; each run is a process{drift}")
    if len(judged) > 1:
        lines.append(
            f"{len(judged)} configurations are tested: p is after Holm's correction, so that the chance of any false "
            "alarm among them is at most 5 %; each interval stands for itself"
        )
    if report.two_sittings:
        lines.append(
            "all runs of one side came after those of the other: what drifted between the two sittings is not in the "
            f"interval; {entry.program()} ab measures both in turns"
        )
    elif report.machines:
        lines.append("all devices: the most that a side's runs have, which may be fewer than its machine has")
    elif judged and not report.paired:
        lines.append(
            "the sides count as independent: a machine that changed between them looks like a change; "
            f"{entry.program()} ab runs both in turns"
        )
    if single := [r for r in report.results if r.comparison is not None and r.comparison.p_value is None]:
        lines += _one_run(single, report.max_regression)
    return lines


def _one_run(results: Sequence[Result], limit: float) -> list[str]:
    """Why one run on a side cannot tell, and how many runs would show a slow-down beyond the limit, a share."""
    where = "a side" if all(max(result.runs) == 1 for result in results) else "on one side"
    needed = [(spread, verdicts.runs_for_spread(spread, limit)) for spread in verdicts.ASSUMED_SPREADS]
    words = [f"{k} if runs vary by {spread:.0%} (standard deviation)" for spread, k in needed if k]
    lines = [
        f"one run {where}: memory layout, placement and load are drawn anew by each process, and the batches of one "
        "tell nothing of that"
    ]
    if words:
        lines.append(f"runs a side that show a slow-down of {100 * limit:g} % in 80 of 100 cases: {', '.join(words)}")
    return lines


def _difference(entry: LabelledDifference, total: int) -> str:
    where = "" if len(entry.labels) in (0, total) else f" [{some(entry.labels)}]"
    return f"{_values(entry.difference)}; {entry.difference.effect}{where}"


def _values(difference: Difference) -> str:
    return f"{difference.what}: {_plain(difference.a)} before, {_plain(difference.b)} after"


def _by_name(found: Sequence[LabelledDifference]) -> list[LabelledDifference]:
    """The first of each name, without the numbers of devices, which the configurations tell."""
    axes = [f"--{name}" for name in scale.AXES]
    return list({f.difference.what: f for f in reversed(found) if f.difference.what not in axes}.values())[::-1]


def _within(unlike: Sequence[Difference]) -> list[str]:
    return [
        f"{d.what}: {_plain(d.a) if d.a == d.b else f'{_plain(d.a)} and {_plain(d.b)}'}; {d.effect}" for d in unlike
    ]


def _columns(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in table]


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _grave(difference: Difference) -> bool:
    return difference.severity == INCOMPARABLE
