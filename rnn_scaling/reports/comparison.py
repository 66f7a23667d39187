"""Compare two sets of runs, and render the result as text, Markdown or JSON.

Programs of users read the JSON, schema "rnn_scaling.compare/1": keys may be added, but
never rename one or change its meaning.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.comparison import judgement
from rnn_scaling.analysis.comparison.costs import MachineCost, make_statements
from rnn_scaling.analysis.comparison.differences import (
    NOT_RECORDED,
    Difference,
    join_some,
)
from rnn_scaling.analysis.comparison.judgement import (
    LabelledDifference,
    Question,
    Report,
    describes_machine,
)
from rnn_scaling.analysis.comparison.matching import Change, InputError
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import Interval, Scatter
from rnn_scaling.analysis.interval_kinds import IntervalKind, Note
from rnn_scaling.analysis.metrics import PERCENTILE_BATCHES, Metric
from rnn_scaling.analysis.significance import Gate, Verdict
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config import scale
from rnn_scaling.records.options import UNKNOWN
from rnn_scaling.reports import machine_costs
from rnn_scaling.reports.comparison_statements import (
    A_AND_B,
    BEFORE_AFTER,
    Sides,
    format_reason,
    state_method,
    state_verdicts,
)
from rnn_scaling.reports.differences import describe, format_value
from rnn_scaling.reports.json_data import format_plain_json
from rnn_scaling.reports.sections import (
    Grid,
    Section,
    explain_hidden,
    explain_numbers,
    format_markdown,
)
from rnn_scaling.reports.wording import (
    format_interval,
    format_interval_kind,
    format_note,
    format_signed_percent,
    format_spread,
    write_sentences,
)
from rnn_scaling.system import entry
from rnn_scaling.system.files import terminal
from rnn_scaling.system.files.markdown import escape
from rnn_scaling.system.files.terminal import format_count

SCHEMA = "rnn_scaling.compare/1"
_MAX_NOTES = 20  # notes about runs
_MIN_PRINTED_P = 1e-4  # smaller p-values are printed as "< 0.0001"


def compare(
    path_before: Path,
    path_after: Path,
    question: Question,
    format: str = "text",
    answer: Callable[[Report], str] | None = None,
) -> int:
    """Print the comparison of two sets of runs.

    Args:
      path_before: The first set.
      path_after: The second set.
      question: The question that the comparison answers.
      format: A key of RENDER.
      answer: A function of the text that replaces the verdict. The sets are then two
        settings A and B, neither of which is the norm.

    Returns:
      The exit status.

    Raises:
      Refusal: If there is nothing to compare.
    """
    report = read_and_judge(path_before, path_after, question)
    sides = BEFORE_AFTER
    if answer is not None:
        terminal.print_fitted(f"{answer(report)}\n\n")
        sides = A_AND_B
    if format == "text":
        terminal.print_fitted(f"{render_text(report, sides)}\n")
    else:
        print(RENDER[format](report), flush=True)
    return report.exit_status


def read_and_judge(path_before: Path, path_after: Path, question: Question) -> Report:
    """Return the comparison of two sets of runs.

    Raises:
      Refusal: If there is nothing to compare.
    """
    try:
        sides = judgement.read(path_before, path_after)
        for side in sides:
            entry.warn(*(f"{line}; left out" for line in side.left_out))
        for side, prices in zip(sides, question.prices):
            entry.warn(*prices.unmatched_warnings([file.record for file in side.runs]))
        return judgement.judge(*sides, question)
    except InputError as e:
        raise entry.Refusal(*str(e).splitlines()) from None


def print_machines(
    reports: Sequence[Report], output: Path | None = None, force: bool = False
) -> int:
    """Print the comparisons of the first machine with all others, and the cheapest.

    Args:
      reports: The comparisons.
      output: The folder for the files of cost and speed, if they are wanted.
      force: Whether files of other programs are overwritten.

    Returns:
      The exit status.

    Raises:
      Refusal: If files are wanted, but there are no prices.
    """
    # The first machine is in all reports.
    different_costs: dict[tuple[str, str], MachineCost] = {}
    for report in reports:
        for cost in report.machine_costs:
            different_costs[cost.series, cost.folder] = cost
    costs = list(different_costs.values())
    if output is not None and not costs:
        raise entry.Refusal(
            f"--output={output} needs prices of the machines; "
            "give --machines=FILE (docs/compare.md)"
        )
    for report in reports:
        terminal.print_fitted(f"{render_text(report)}\n")
    if costs and len(reports) > 1:
        terminal.print_fitted(f"\nresult: {write_sentences(make_statements(costs))}\n")
    if output is not None:
        machine_costs.write(costs, output, force)
    return max(report.exit_status for report in reports)


def render_text(report: Report, sides: Sides = BEFORE_AFTER) -> str:
    """Return the comparison for the terminal; only a gate ends with its verdict."""
    sections = format_markdown(_list_sections(report, sides), level=0)
    lines = [*_make_head_lines(report, sides), "", sections]
    if sides.is_gate:
        lines.append(f"result: {write_sentences(state_verdicts(report))}")
    return "\n".join(lines).rstrip("\n")


def render_markdown(report: Report) -> str:
    """Return the comparison as Markdown, with the verdict first."""
    lines = [f"**{write_sentences(state_verdicts(report))}**", ""]
    lines += [f"{line}  " for line in _make_head_lines(report, BEFORE_AFTER)]
    lines += ["", format_markdown(_list_sections(report, BEFORE_AFTER), level=4)]
    return escape("\n".join(lines).rstrip())


# Names in the JSON of fields that have another name in the code.
_JSON_NAMES = {
    "run_counts": "processes",
    "rounding_half_width": "by_digits",
    "differences": "found",
    "differences_inside": "within",
    "ran_in_two_sessions": "two_sittings",
}


def render_json(report: Report) -> str:
    """Return the comparison as JSON."""
    verdict = state_verdicts(report)
    fields: dict[str, Any] = {"schema": SCHEMA, "result": write_sentences(verdict)}
    fields["statements"] = [*verdict, *state_method(report)]
    fields |= _to_json_data(report)
    fields["metric"] = report.metric.name
    fields["changes"] = list(map(_make_change_data, report.changes))
    fields["within"] = {
        side: _to_json_data(difference)
        for side, difference in report.differences_inside
    }
    for name in ("results", "machine_ratios"):
        for result in fields[name]:
            result["reason"] = result["reason"] or ""
    return format_plain_json(fields).rstrip("\n")


def _make_change_data(change: Change) -> dict[str, str]:
    text_before, text_after = _format_options(change, repr)
    return {"name": change.name, "before": text_before, "after": text_after}


def _to_json_data(value: Any) -> Any:
    """Return a part of a report as JSON data, with statements and differences in words."""
    if isinstance(value, Statement):
        return BEFORE_AFTER.word(value)
    if isinstance(value, Difference):
        return describe(value, is_json=True).data()
    if isinstance(value, IntervalKind):
        return format_interval_kind(value)
    if isinstance(value, Note):
        return format_note(value)
    if isinstance(value, (list, tuple)):
        return [_to_json_data(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    data = {}
    for field in dataclasses.fields(value):
        name = _JSON_NAMES.get(field.name, field.name)
        data[name] = _to_json_data(getattr(value, field.name))
    if isinstance(value, Scatter):
        data["note"] = data["note"] or ""
    return data


def _format_options(change: Change, spell: Callable[[Any], str]) -> list[str]:
    """Return the value of an option before and after."""
    absent = "not used" if change.is_recorded else "not recorded"
    values = (change.before, change.after)
    return [absent if value is UNKNOWN else spell(value) for value in values]


RENDER: dict[str, Callable[[Report], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "json": render_json,
}


def _make_head_lines(report: Report, sides: Sides) -> Iterator[str]:
    """Yield the lines above the table: the sets, their options and their machines."""
    first = f"{sides.first} {report.before} ({format_count(report.runs[0], 'run')})"
    second = f"{sides.second} {report.after} ({format_count(report.runs[1], 'run')})"
    yield f"{report.metric.title}: {first}, {second}"
    if sides.is_gate and not report.is_history:
        changed_options = []
        for change in report.changes:
            texts = " -> ".join(_format_options(change, format_value))
            changed_options.append(f"--{change.name}={texts}")
        yield f"changed: {', '.join(changed_options) or 'no option'}"
    if report.machines:
        machine_before, machine_after = report.machines
        yield f"machine before: {machine_before}"
        yield f"machine after: {machine_after}"
    unpaired = (report.only_before, report.only_after)
    for place, labels in zip(sides.places, unpaired):
        if labels:
            yield f"only {place}, not compared: {join_some(labels, '; ')}"


def _make_results_grid(report: Report, sides: Sides) -> Grid:
    """Return a line for each configuration."""
    metric = report.metric
    unit = f", {metric.unit}" if metric.unit not in ("", metric.title) else ""
    rates = [f"{metric.title} {name}{unit}" for name in sides.names]
    head = ["configuration", "runs", *rates, "change (95 % CI)", "p", "verdict"]
    reasons = [result.reason for result in report.results]
    # The result gives the reason of all configurations, if it is the same.
    has_one_reason = len(reasons) > 1 and reasons.count(reasons[0]) == len(reasons)
    lines = []
    for result in report.results:
        verdict = _format_verdict_cell(result, report, sides)
        if has_one_reason:
            verdict = verdict.partition(":")[0]
        lines.append([*_format_number_cells(result, metric), verdict])
    return Grid("", head, lines)


def _format_number_cells(result: Result, metric: Metric) -> list[str]:
    return [
        result.label,
        "+".join(map(str, result.runs)),
        format_interval(metric.to_printed_unit(result.before), metric.digits),
        format_interval(metric.to_printed_unit(result.after), metric.digits),
        _format_change(result.comparison.ratio if result.comparison else None),
        _format_p_value(result.p_adjusted),
    ]


def _format_p_value(p_value: float | None) -> str:
    if p_value is None:
        return "n/a"
    return f"{p_value:.2g}" if p_value >= _MIN_PRINTED_P else "< 0.0001"


def _format_change(ratio: Interval | None) -> str:
    """Return "+3.0 % (-1.0 % to +7.0 %)"; "n/a" for None."""
    if ratio is None:
        return "n/a"
    change = format_signed_percent(ratio.value)
    if ratio.ends is None:
        return change
    if ratio.is_wide:
        return f"{change} ({format_spread(ratio)})"
    low, high = map(format_signed_percent, ratio.ends)
    return f"{change} ({low} to {high})"


def _make_step_times_grid(report: Report) -> Grid | None:
    """Return the changes of step times; None if none is known."""
    lines = []
    for result in report.results:
        if any(change.ratio for change in result.step_times):
            changes = [_format_change(change.ratio) for change in result.step_times]
            lines.append([result.label, *changes])
    if not lines:
        return None
    head = ["configuration", *(f"p{percentile}" for percentile in PERCENTILE_BATCHES)]
    return Grid(f"Change of the {report.step_time} (95 % CI)", head, lines)


def _list_missing_percentiles(report: Report) -> list[Statement]:
    """State how many batches percentiles need, if a shown configuration lacks one."""
    batches_needed = {
        f"p{percentile}": batches for percentile, batches in PERCENTILE_BATCHES.items()
    }
    for result in report.results:
        ratios = [change.ratio for change in result.step_times]
        if any(ratios) and None in ratios:
            return [state("batches-needed", report.step_time, **batches_needed)]
    return []


def _format_verdict_cell(result: Result, report: Report, sides: Sides) -> str:
    """Return the verdict about a configuration."""
    unjudged_text = f"{Verdict.UNJUDGED.value}: {format_reason(result, sides)}"
    if result.p_adjusted is None or result.comparison is None:
        return unjudged_text
    verdict = result.verdict.value
    detectable = result.comparison.detectable
    if result.verdict is Verdict.SAME and detectable is not None:
        verdict += f", smallest detectable {100 * detectable:.1f} %"
    if not sides.is_gate:
        return verdict if result.verdict is Verdict.SAME else f"B is {verdict}"
    if result.gate is Gate.REGRESSION:
        return f"REGRESSION, {verdict}"
    if result.gate is Gate.UNJUDGED:
        return f"{verdict}; {unjudged_text}"
    if result.verdict is Verdict.SLOWER and report.machines is None:
        return f"{verdict}, within the limit"
    return verdict


def _list_sections(report: Report, sides: Sides) -> list[Section]:
    """Return the table, its method, and the differences between the runs."""
    grids = [_make_results_grid(report, sides)]
    numbers = [result.before for result in report.results]
    numbers += [result.after for result in report.results]
    remarks = explain_numbers(numbers)
    remarks += explain_hidden(sum(result.hidden_by_load for result in report.results))
    if step_times := _make_step_times_grid(report):
        grids.append(step_times)
        remarks += _list_missing_percentiles(report)
    sections = [Section("", grids, tuple(remarks))]
    if report.machine_costs:
        sections.append(machine_costs.make_section(report.machine_costs))

    notes: dict[str, Sequence[Statement | str]] = {
        "method": state_method(report, sides),
        "runs": _run_notes(report, sides),
        **_make_difference_notes(report, sides),
    }
    for place, (_, differences) in zip(sides.places, report.differences_inside):
        title = f"runs {place} differ among themselves"
        notes[title] = _list_side_differences(differences)
    for title, entries in notes.items():
        if entries:
            sections.append(Section(title, notes=tuple(entries)))
    return sections


def _run_notes(report: Report, sides: Sides) -> list[str]:
    """Return the notes about the runs of configurations."""
    lines = []
    for result in report.results:
        lines += [f"{result.label}: {sides.word(note)}" for note in result.notes]
    if len(lines) > _MAX_NOTES:
        lines[_MAX_NOTES:] = [f"{len(lines) - _MAX_NOTES} more"]
    return lines


def _make_difference_notes(report: Report, sides: Sides) -> dict[str, list[str]]:
    """Return the differences between the sides, by the title of their list."""
    num_configurations = sum(all(result.runs) for result in report.results)
    machines = []
    incomparable_notes = []
    cautions = []
    not_recorded: dict[str, None] = {}
    for labelled in report.differences:
        difference = labelled.difference
        text = _format_difference(labelled, num_configurations, sides)
        is_unknown = difference.effect == NOT_RECORDED
        if is_unknown and not difference.is_incomparable:
            not_recorded[difference.name] = None
        elif report.machines and describes_machine(difference):
            machines.append(difference)
        elif difference.is_incomparable:
            is_accepted = difference.name in report.accepted
            incomparable_notes.append(f"{text} (accepted)" if is_accepted else text)
        else:
            cautions.append(text)
    return {
        "differences between the machines": _list_machine_notes(machines, sides),
        "incomparable": incomparable_notes,
        "differences to be careful with": cautions,
        "not recorded on both sides": [", ".join(not_recorded)] if not_recorded else [],
    }


def _format_difference(
    labelled: LabelledDifference, num_configurations: int, sides: Sides
) -> str:
    """Return a difference with its effect, and its configurations if it is not in all."""
    values = _format_values(labelled.difference, sides)
    text = f"{values}; {describe(labelled.difference).effect}"
    if len(labelled.labels) in (0, num_configurations):
        return text
    return f"{text} [{join_some(labelled.labels, '; ')}]"


def _format_values(difference: Difference, sides: Sides) -> str:
    texts = describe(difference)
    first, second = sides.places
    return f"{texts.name}: {texts.first} {first}, {texts.second} {second}"


def _list_machine_notes(differences: Iterable[Difference], sides: Sides) -> list[str]:
    """Return the first difference of each name.

    The table already shows the numbers of devices.
    """
    axes = [f"--{name}" for name in scale.AXES]
    first: dict[str, Difference] = {}
    for difference in differences:
        if difference.name not in axes:
            first.setdefault(difference.name, difference)
    return [_format_values(difference, sides) for difference in first.values()]


def _list_side_differences(differences: Iterable[Difference]) -> list[str]:
    """Return the differences between runs of one side, without what all runs share."""
    lines = []
    varied = [each for each in differences if each.first != each.second]
    for texts in map(describe, varied):
        values = " and ".join(dict.fromkeys((texts.first, texts.second)))
        lines.append(f"{texts.name}: {values}; {texts.effect}")
    return lines
