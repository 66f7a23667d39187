"""What compare found -> statements, text, Markdown or JSON."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.comparison import judgement, verdicts
from rnn_scaling.analysis.comparison.costs import statements
from rnn_scaling.analysis.comparison.differences import NOT_RECORDED, Difference, some
from rnn_scaling.analysis.comparison.judgement import (
    LabelledDifference,
    MachineRatio,
    MachineVerdict,
    Question,
    Report,
    of_machine,
)
from rnn_scaling.analysis.comparison.matching import (
    ALL_DEVICES,
    PER_DEVICE,
    Change,
    InputError,
)
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.analysis.confidence import ORDERED, Interval
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.metrics import BATCHES_NEEDED, Metric
from rnn_scaling.analysis.significance import Gate, Verdict
from rnn_scaling.analysis.statements import Statement, interval_values
from rnn_scaling.config import scale
from rnn_scaling.records.options import UNKNOWN
from rnn_scaling.reports import machine_costs
from rnn_scaling.reports.differences import describe, value_text
from rnn_scaling.reports.numbers import has_interval, plus_minus, spread_text
from rnn_scaling.reports.sections import Grid, Section, markdown
from rnn_scaling.reports.wording import phrase, sentences
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files, terminal
from rnn_scaling.system.files.markdown import escaped
from rnn_scaling.system.files.terminal import counted
from rnn_scaling.system.machine.load import NOTICEABLE

SCHEMA = "rnn_scaling.compare/1"
BEFORE_AFTER = ("before", "after")
MOST_STEP_TIMES = 3  # sentences about step times
SCOPES = {PER_DEVICE: "Per device", ALL_DEVICES: "With all devices"}


def compare(
    before: Path,
    after: Path,
    question: Question,
    format: str = "text",
    answer: Callable[[Report], str] | None = None,
) -> int:
    """Prints the comparison of two sets of runs, and returns its exit status; a Refusal if there is nothing to compare.

    answer: printed in the place of the verdict: the sides are two settings A and B, neither of them the norm.
    """
    report = read_and_judge(before, after, question)
    if answer is not None:
        terminal.tell(f"{answer(report)}\n\n")
    names = BEFORE_AFTER if answer is None else ("A", "B")
    if format == "text":
        terminal.tell(f"{render_text(report, names)}\n")
    else:
        print(RENDER[format](report), flush=True)
    return report.exit_status


def read_and_judge(before: Path, after: Path, question: Question) -> Report:
    """Reads and compares two sets of runs. Raises Refusal if there is nothing to compare."""
    try:
        sides = judgement.read(before, after)
        entry.warn(*(f"{line}; left out" for side in sides for line in side.left_out))
        for side, prices in zip(sides, question.prices):
            entry.warn(*prices.unmatched([file.record for file in side.runs]))
        return judgement.judge(*sides, question)
    except InputError as e:
        raise entry.Refusal(*str(e).splitlines()) from None


def print_machines(
    reports: Sequence[Report], output: Path | None = None, force: bool = False
) -> int:
    """Prints the comparisons of the first machine with all others, and the cheapest; returns the exit status.

    Args:
      output: folder for the files of cost and speed, if they are wanted.
    """
    costs = [
        *{
            (cost.series, cost.folder): cost
            for report in reports
            for cost in report.machine_costs
        }.values()
    ]
    if output is not None and not costs:
        raise entry.Refusal(
            f"--output={output} needs prices of the machines; give --machines=FILE (docs/machines.md)"
        )
    for report in reports:
        terminal.tell(f"{render_text(report)}\n")
    if costs and len(reports) > 1:
        terminal.tell(f"\nresult: {sentences(statements(costs))}\n")
    if output is not None:
        machine_costs.write(costs, output, force)
    return max(report.exit_status for report in reports)


def render_text(report: Report, names: Sequence[str] = BEFORE_AFTER) -> str:
    lines = [*_head(report, names), "", markdown(_sections(report, names), level=0)]
    return "\n".join(
        [*lines, f"result: {sentences(verdict_statements(report))}"]
        if names is BEFORE_AFTER
        else lines
    ).rstrip("\n")


def render_markdown(report: Report) -> str:
    lines = [
        f"**{sentences(verdict_statements(report))}**",
        "",
        *(f"{line}  " for line in _head(report)),
        "",
    ]
    return escaped("\n".join([*lines, markdown(_sections(report), level=4)]).rstrip())


def render_json(report: Report) -> str:
    made = (*verdict_statements(report), *method_statements(report))
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "result": sentences(verdict_statements(report)),
    }
    fields["statements"] = [statement.data() for statement in made]
    for field in dataclasses.fields(report):
        fields[field.name] = _plain_data(getattr(report, field.name))
    fields["metric"] = report.metric.name
    fields["changes"] = [
        {"name": change.name, **dict(zip(BEFORE_AFTER, _sides(change, repr)))}
        for change in report.changes
    ]
    fields["within"] = {when: _plain_data(unlike) for when, unlike in report.within}
    for name in ("results", "machine_ratios"):
        for entry_ in fields[name]:
            entry_["reason"] = entry_["reason"] or ""
    return input_files.json_text(fields).rstrip("\n")


def _plain_data(value: Any) -> Any:
    """Return a part of a report as JSON data, with statements and differences in words."""
    if isinstance(value, Statement):
        return phrase(value)
    if isinstance(value, Difference):
        return describe(value, is_json=True).data()
    if isinstance(value, (list, tuple)):
        return [_plain_data(item) for item in value]
    if not dataclasses.is_dataclass(value):
        return value
    names = [field.name for field in dataclasses.fields(value)]
    return {name: _plain_data(getattr(value, name)) for name in names}


def _sides(change: Change, spell: Callable[[Any], str]) -> list[str]:
    """Return the value of an option before and after."""
    absent = "not used" if change.is_recorded else "not told"
    values = (change.before, change.after)
    return [absent if value is UNKNOWN else spell(value) for value in values]


RENDER: dict[str, Callable[[Report], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "json": render_json,
}


def _head(report: Report, names: Sequence[str] = BEFORE_AFTER) -> list[str]:
    lines = [
        f"{report.metric.title}: {names[0]} {report.before} ({counted(report.runs[0], 'run')}), "
        f"{names[1]} {report.after} ({counted(report.runs[1], 'run')})"
    ]
    changed = [
        f"--{change.name}={' -> '.join(_sides(change, value_text))}"
        for change in report.changes
    ]
    if names is BEFORE_AFTER and not report.is_history:
        lines.append(f"changed: {', '.join(changed) or 'no option'}")
    if report.machines:
        lines += [
            f"machine {when}: {name}"
            for when, name in zip(("before", "after"), report.machines)
        ]
    if report.only_before:
        lines.append(f"only before, not compared: {some(report.only_before, '; ')}")
    if report.only_after:
        lines.append(f"only after, not compared: {some(report.only_after, '; ')}")
    return lines


def _table(report: Report, names: Sequence[str]) -> Grid:
    metric = report.metric
    unit = f", {metric.unit}" if metric.unit not in ("", metric.title) else ""
    sides = [f"{metric.title} {name}{unit}" for name in names]
    head = ["configuration", "runs", *sides, "change (95 % CI)", "p", "verdict"]
    is_gate = names is BEFORE_AFTER
    texts = [_verdict_cell(r, report.machines is None, is_gate) for r in report.results]
    reasons = [result.reason for result in report.results]
    if len(texts) > 1 and reasons.count(reasons[0]) == len(texts):
        # The result gives the reason of all.
        texts = [text.partition(":")[0] for text in texts]
    return Grid(
        "", head, [[*_cells(r, metric), text] for r, text in zip(report.results, texts)]
    )


def _cells(result: Result, metric: Metric) -> list[str]:
    change, p_value = (
        _change(result.comparison.ratio if result.comparison else None),
        "n/a",
    )
    if result.p_adjusted is not None:
        p_value = (
            f"{result.p_adjusted:.2g}" if result.p_adjusted >= 1e-4 else "< 0.0001"
        )
    runs = "+".join(map(str, result.runs))
    before, after = (
        plus_minus(metric.in_printed_unit(side), metric.digits)
        for side in (result.before, result.after)
    )
    return [result.label, runs, before, after, change, p_value]


def _change(ratio: Interval | None) -> str:
    """ "+3.0 % (-1.0 % to +7.0 %)"; "n/a" for None."""
    if ratio is None or ratio.ends is None:
        return "n/a" if ratio is None else _signed(ratio.value)
    low, high = map(_signed, ratio.ends)
    return f"{_signed(ratio.value)} ({spread_text(ratio) if ratio.is_wide else f'{low} to {high}'})"


def _step_times(report: Report) -> tuple[tuple[Grid, ...], tuple[Statement, ...]]:
    """The table of step times, and a note if percentiles are missing."""
    known = [
        result
        for result in report.results
        if any(change.ratio for change in result.step_times)
    ]
    lines = [
        [result.label, *(_change(change.ratio) for change in result.step_times)]
        for result in known
    ]
    if not known:
        return (), ()
    head = ["configuration", *(f"p{percentile}" for percentile in BATCHES_NEEDED)]
    grid = Grid(f"Change of the {report.step_time} (95 % CI)", head, lines)
    needed = {
        f"p{percentile}": batches for percentile, batches in BATCHES_NEEDED.items()
    }
    lacks = any(
        change.ratio is None for result in known for change in result.step_times
    )
    return (grid,), (
        Statement("batches-needed", report.step_time, needed),
    ) if lacks else ()


def _verdict_cell(result: Result, is_limited: bool, is_gate: bool) -> str:
    """What is known of a configuration; `is_gate`: whether a slow-down beyond the limit is a regression."""
    unjudged = f"{Verdict.UNJUDGED.value}: {reason_text(result)}"
    if result.p_adjusted is None or result.comparison is None:
        return unjudged
    words = result.verdict.value
    detectable = result.comparison.detectable
    if result.verdict is Verdict.SAME and detectable is not None:
        words += f", smallest detectable {100 * detectable:.1f} %"
    if not is_gate:
        return words if result.verdict is Verdict.SAME else f"B is {words}"
    if result.gate is Gate.REGRESSION:
        return f"REGRESSION, {words}"
    if result.gate is Gate.UNJUDGED:
        return f"{words}; {unjudged}"
    is_slower = is_limited and result.verdict is Verdict.SLOWER
    return f"{words}, within the limit" if is_slower else words


def reason_text(result: Result | MachineRatio) -> str:
    """Return why a result cannot be judged; "" if it can."""
    return phrase(result.reason) if result.reason else ""


def _sections(report: Report, names: Sequence[str] = BEFORE_AFTER) -> list[Section]:
    """The table, what it rests on, and the differences between the runs."""
    machines = [f for f in report.found if report.machines and of_machine(f.difference)]
    found = [f for f in report.found if f not in machines]
    grave = [f for f in found if f.difference.is_grave]
    unknown = [
        f
        for f in found
        if not f.difference.is_grave and f.difference.effect == NOT_RECORDED
    ]
    cautions = [f for f in found if not f.difference.is_grave and f not in unknown]
    accepted = dict.fromkeys(report.accepted, " (accepted)")
    total = sum(all(r.runs) for r in report.results)
    not_recorded = list(dict.fromkeys(f.difference.what for f in unknown))
    runs = [f"{r.label}: {phrase(note)}" for r in report.results for note in r.notes]
    notes: dict[str, Sequence[Statement | str]] = {
        "method": method_statements(report, names),
        "runs": [*runs[:20], *([f"{len(runs) - 20} more"] if len(runs) > 20 else [])],
        "differences between the machines": [
            _values(f.difference) for f in _by_name(machines)
        ],
        "incomparable": [
            _difference(f, total) + accepted.get(f.difference.what, "") for f in grave
        ],
        "differences to be careful with": [_difference(f, total) for f in cautions],
        "not recorded on both sides": [", ".join(not_recorded)] if not_recorded else [],
        **{
            f"runs {when} differ among themselves": _within(unlike)
            for when, unlike in report.within
        },
    }
    titled = [
        Section(title, notes=tuple(entries))
        for title, entries in notes.items()
        if entries
    ]
    priced = (
        [machine_costs.section(report.machine_costs)] if report.machine_costs else []
    )
    step_times, remarks = _step_times(report)
    return [
        Section("", (_table(report, names), *step_times), remarks),
        *priced,
        *titled,
    ]


def _difference(entry: LabelledDifference, total: int) -> str:
    labels = some(entry.labels, "; ")
    where = "" if len(entry.labels) in (0, total) else f" [{labels}]"
    return f"{_values(entry.difference)}; {describe(entry.difference).effect}{where}"


def _values(difference: Difference) -> str:
    shown = describe(difference)
    return f"{shown.name}: {shown.first} before, {shown.second} after"


def _by_name(found: Sequence[LabelledDifference]) -> list[LabelledDifference]:
    """The first of each name, without the numbers of devices, which the table shows."""
    axes = [f"--{name}" for name in scale.AXES]
    return list(
        {
            f.difference.what: f
            for f in reversed(found)
            if f.difference.what not in axes
        }.values()
    )[::-1]


def _within(unlike: Sequence[Difference]) -> list[str]:
    lines = []
    for found in map(describe, unlike):
        value = " and ".join(dict.fromkeys((found.first, found.second)))
        lines.append(f"{found.name}: {value}; {found.effect}")
    return lines


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def verdict_statements(report: Report) -> list[Statement]:
    """The answer (for machines, one per scope), and step times that changed although the metric did not."""
    return [
        *_gate(report),
        *step_time_statements(report, (report.before, report.after)),
    ]


def step_time_statements(
    report: Report, names: Sequence[str] = ("A", "B")
) -> list[Statement]:
    """The highest percentile that changed in each configuration whose metric did not, largest changes first."""
    made = []
    for result in report.results:
        shown = [
            (change.percentile, change.ratio)
            for change in result.step_times
            if change.is_shown and change.ratio
        ]
        if shown and result.verdict is Verdict.SAME:
            percentile, ratio = shown[-1]
            low, value, high = sorted(
                100 * abs(end - 1) for end in (ratio.value, *(ratio.ends or ()))
            )
            values = {
                "percentile": percentile,
                "time": report.step_time,
                "metric": report.metric.title,
            }
            values |= {
                "before": names[0],
                "after": names[1],
                "change": value,
                "low": low,
                "high": high,
            }
            made.append(
                Statement(
                    "step-time-grew" if ratio.value > 1 else "step-time-shrank",
                    result.label,
                    values,
                )
            )
    return sorted(made, key=lambda statement: -statement.values["change"])[
        :MOST_STEP_TIMES
    ]


def _gate(report: Report) -> list[Statement]:
    """The answer; for machines with prices, also the cheapest."""
    if report.machines:
        made = [statement for scope in SCOPES for statement in _of_scope(report, scope)]
        return [*made, *statements(report.machine_costs)]
    sittings = [Statement("two-sittings")] if report.two_sittings else []
    total = len(report.results)
    values: dict[str, Any] = {"limit": 100 * report.max_regression, "total": total}
    slower = [
        (r.comparison.ratio.value, r.label)
        for r in report.results
        if r.gate is Gate.REGRESSION and r.comparison
    ]
    if slower:
        ratio, label = min(slower)
        values |= {"slower": len(slower), "change": 100 * (ratio - 1)}
        return [
            Statement("regressions" if total > 1 else "regression", label, values),
            *sittings,
        ]
    unjudged = [result for result in report.results if result.gate is not Gate.PASSED]
    if not unjudged and report.exit_status == 0:
        return [Statement("no-regression", values=values), *sittings]
    grave = [entry.difference for entry in report.found if entry.difference.is_grave]
    if not unjudged:
        return [
            Statement(
                "not-judged",
                values={"reasons": [difference.what for difference in grave]},
            )
        ]
    values |= {
        "unjudged": len(unjudged),
        "reasons": list(dict.fromkeys(map(reason_text, unjudged))),
    }
    remedy = (
        [Statement("compare-machines-instead")] if any(map(of_machine, grave)) else []
    )
    return [
        Statement("some-not-judged" if total > 1 else "not-judged", values=values),
        *remedy,
    ]


def _of_scope(report: Report, scope: str) -> list[Statement]:
    """Which machine is faster: by how much in the only series, or in how many of several."""
    ratios = [ratio for ratio in report.machine_ratios if ratio.scope == scope]
    names = {"before": report.before, "after": report.after}
    if len(ratios) == 1:
        [only] = ratios
        ends = {
            "ratio": only.ratio,
            "low": only.low,
            "high": only.high,
            "reason": reason_text(only),
        }
        return [
            Statement(f"machine-{only.kind.value}", SCOPES[scope], {**names, **ends})
        ]
    groups = group_by(ratios, [ratio.kind for ratio in ratios])
    kinds = [kind for kind in MachineVerdict if kind in groups]
    values = {**names, "total": len(ratios)}
    return [
        Statement(
            f"machine-{kind.value}-series",
            SCOPES[scope],
            {**values, **_range_of(groups[kind])},
        )
        for kind in kinds
    ]


def _range_of(ratios: Sequence[MachineRatio]) -> dict[str, Any]:
    values = [ratio.ratio for ratio in ratios if ratio.ratio]
    return {
        "series": len(ratios),
        "low": min(values, default=None),
        "high": max(values, default=None),
    }


def disturbed_statements(
    report: Report, names: Sequence[str] = BEFORE_AFTER
) -> list[Statement]:
    """Return which runs do not count because they were disturbed; [] if none."""
    files: list[str] = []
    for result in report.results:
        for name, of_side in zip(names, result.disturbed):
            files.extend(f"{name} {file}" for file in of_side)
    values = {"files": list(dict.fromkeys(files)), "threshold": NOTICEABLE}
    kind = "disturbed-pairs" if report.paired else "disturbed-runs"
    return [Statement(kind, values=values)] if files else []


def method_statements(
    report: Report, names: Sequence[str] = BEFORE_AFTER
) -> list[Statement]:
    """Return tests, corrections, runs that do not count, and what intervals leave out."""
    judged = [result for result in report.results if result.p_adjusted is not None]
    compared = [result.comparison for result in report.results if result.comparison]
    sides = [
        side for result in report.results for side in (result.before, result.after)
    ]
    kinds = dict.fromkeys(side.kind for side in sides if side and has_interval(side))
    made = [Statement("interval-kind", kind) for kind in kinds]
    test = (
        "history-test"
        if report.is_history
        else "paired-test"
        if report.paired
        else "unpaired-test"
    )
    caveat = (
        "sittings-drift"
        if report.two_sittings
        else "all-devices-of-runs"
        if report.machines
        else ""
    )
    holds = {
        test: judged,
        "drift-in-interval": judged
        and any(ORDERED in comparison.ratio.kind for comparison in compared),
        "corrected-p": len(judged) > 1,
        caveat: caveat,
        "independent-sides": judged and test == "unpaired-test" and not caveat,
    }
    values = {"corrected-p": {"configurations": len(judged)}}
    made += [
        Statement(kind, values=values.get(kind, {}))
        for kind, is_held in holds.items()
        if is_held
    ]
    if any(
        change.ratio and change.ratio.ends
        for result in report.results
        for change in result.step_times
    ):
        made.append(Statement("step-time-intervals", report.step_time))
    # An answer about A and B already contains the disturbed runs.
    left_out = disturbed_statements(report) if names is BEFORE_AFTER else []
    return [*left_out, *made, *_single_runs(report)]


def _single_runs(report: Report) -> list[Statement]:
    """Why one run on a side cannot show a change, and how many runs would show a slow-down beyond the limit."""
    single: list[Result] = [
        r
        for r in report.results
        if r.comparison is not None and r.comparison.p_value is None
    ]
    if not single:
        return []
    limit = report.max_regression
    needed = [
        (verdicts.runs_for_spread(spread, limit), spread)
        for spread in verdicts.ASSUMED_SPREADS
    ]
    runs = [f"{count} at {100 * spread:.0f} %" for count, spread in needed if count]
    both = all(max(result.runs) == 1 for result in single)
    made = [Statement("one-run-a-side" if both else "one-run-on-one-side")]
    return (
        [*made, Statement("runs-needed", values={"limit": 100 * limit, "runs": runs})]
        if runs
        else made
    )


def ab_statements(report: Report) -> list[Statement]:
    """That one setting is faster, by how much, or why that is not clear."""
    unlike = list(
        dict.fromkeys(f.difference.what for f in report.found if f.difference.is_grave)
    )
    if options := [fact for fact in unlike if fact.startswith("--")]:
        return [Statement("ab-other-work", values={"options": options})]
    if unlike:
        return [Statement("ab-unlike", values={"facts": unlike})]
    ratios = [
        result.comparison.ratio
        for result in report.results
        if result.comparison is not None
    ]
    if len(ratios) != 1 or len(report.results) != 1:
        reasons = list(
            dict.fromkeys(reason_text(r) for r in report.results if r.reason)
        )
        return [
            Statement(
                "ab-no-answer",
                values={"reasons": reasons or ["no configuration in common"]},
            )
        ]
    return [_ab_ratio(ratios[0], report.results[0].runs[0])]


def _ab_ratio(ratio: Interval, pairs: int) -> Statement:
    """Of B's rate over A's in so many pairs."""
    values = {"ratio": interval_values(ratio), "pairs": pairs}
    if ratio.ends is None:
        return Statement("ab-one-pair", values=values)
    low, high = ratio.ends
    if low <= 1 <= high:
        digits = 2 if high - low >= 0.05 else 3
        ends = {"low": round(low, digits), "high": round(high, digits)}
        return Statement(
            "ab-wide" if ratio.is_wide else "ab-tie", values={**values, **ends}
        )
    if ratio.value > 1:
        return Statement("ab-faster", "B", {**values, "other": "A"})
    return Statement(
        "ab-faster",
        "A",
        {**values, "ratio": interval_values(ratio.inverse()), "other": "B"},
    )
