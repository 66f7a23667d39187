"""Statements that answer which series is fastest, and how far it scales.

Two rates differ if the interval of their ratio excludes 1. Among several series,
Bonferroni's correction over all pairs keeps the chance of any false difference at 5 %.
A number without an interval over processes is never compared with another.

Terminal, page and JSON begin with these statements; `state_answer` has their
order.
"""

import dataclasses
import itertools
import shlex
import textwrap
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import correlation, disturbance
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import COST, WORK_PER_EXCHANGE
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.significance import (
    is_above,
)
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config import registry, scale
from rnn_scaling.config.naming import find_network_family, make_program_key
from rnn_scaling.config.spelling import make_sweep_command
from rnn_scaling.reports import certificates, headline, training_differences
from rnn_scaling.reports import series_statements as one_series
from rnn_scaling.reports.fastest_series import (
    DECISIONS,
    find_most_devices,
    format_devices,
    list_measured_counts,
    state_conditions,
    state_fastest,
)
from rnn_scaling.reports.summary import Scaling, SeriesSummary, Summary
from rnn_scaling.reports.wording import group_by_kind, write_sentences
from rnn_scaling.system.files.terminal import DEFAULT_COLUMNS
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD

# Kinds of statements that come before the answer.
_ALARM_KINDS = ("trains-wrong", *training_differences.KINDS)
_MAX_HEADLINES = 5  # lines
_MAX_ANSWERS = 3  # scalings of many models that have an answer each
_MAX_LOADED = 3  # more disturbed runs are not worth repeating: the machine is busy


def write_answer(summary: Summary) -> str:
    """Return the answer in English."""
    return write_sentences(state_answer(summary))


def answer_paragraphs(summary: Summary) -> tuple[list[str], list[str]]:
    """Return the answer in paragraphs.

    Returns:
      The headline of each scaling, of _MAX_HEADLINES lines in all, and the details of
      each scaling. Without headlines, the beginning of the details takes their place.
    """
    alarms: list[Statement] = []
    groups: list[list[Statement]] = [[]]
    statements = state_answer(summary)
    for statement in statements:
        if statement.kind == "scaling":
            groups.append([])
        is_alarm = statement.kind in _ALARM_KINDS
        (alarms if is_alarm else groups[-1]).append(statement)

    headlines = [write_sentences(alarms)] if alarms else []
    has_first = any(map(_select_leading_statements, groups))
    details = []
    for group in groups:
        title = [each for each in group if each.kind == "scaling"]
        later_statements = [each for each in group if each not in title]
        first = later_statements
        remaining_statements: list[Statement] = []
        if has_first:
            first = _select_leading_statements(group)
            remaining_statements = later_statements[len(first) :]
        headline_statements = _select_fitting_statements(title, first, headlines)
        if headline_statements:
            headlines.append(write_sentences([*title, *headline_statements]))
        remaining_statements = [
            *first[len(headline_statements) :],
            *remaining_statements,
        ]
        if remaining_statements:
            details.append(write_sentences([*title, *remaining_statements]))
    return headlines, details


def _select_leading_statements(group: Sequence[Statement]) -> list[Statement]:
    """Return the statements of a scaling, after its title, that are its headline."""
    statements = [each for each in group if each.kind != "scaling"]
    return list(
        itertools.takewhile(lambda each: each.kind in headline.KINDS, statements)
    )


def _select_fitting_statements(
    title: Sequence[Statement],
    statements: Sequence[Statement],
    headlines: Sequence[str],
) -> list[Statement]:
    """Return the first statements that fit in the headlines, which are not too long.

    Without any headline, the first statement fits.
    """
    num_lines = sum(map(_count_lines, headlines))
    explained_groups: list[list[Statement]] = []
    for statement in statements:
        if explained_groups and statement.kind in headline.EXPLANATIONS:
            explained_groups[-1].append(statement)
        else:
            explained_groups.append([statement])
    fitting_statements: list[Statement] = []
    for group in explained_groups:
        text = write_sentences([*title, *fitting_statements, *group])
        is_first = not headlines and not fitting_statements
        if not is_first and num_lines + _count_lines(text) > _MAX_HEADLINES:
            break
        fitting_statements += group
    return fitting_statements


def _count_lines(text: str) -> int:
    """Return the lines of a text on a usual terminal."""
    return len(textwrap.wrap(text, DEFAULT_COLUMNS))


def format_overview(summary: Summary) -> str:
    """Return the range over several series in English; "" for one series."""
    return write_sentences(state_overview(summary))


def state_answer(summary: Summary) -> list[Statement]:
    """State how far the only series scales, or which series is fastest.

    Weak and strong scaling have an answer each, because they are never compared.
    """
    if not summary.measured:
        return [state("no-run-succeeded")]
    answer = [
        *certificates.make_alarms(summary),
        *training_differences.make_alarms(summary),
    ]
    if summary.has_many_models:
        for name, series in summary.tables:
            answer += _state_models(summary, name, series)
    for name, series in _list_answered_scalings(summary):
        answer += _state_title(summary, name)
        answer += _state_fastest(_drop_machine(series))
        answer += _state_costs(summary, series)
    answer += _count_disturbed_left_out(summary)
    # Disturbed runs that do not count change no number.
    loaded = [
        name for name, row in list_few_disturbed_runs(summary) if not row.disturbed_runs
    ]
    if loaded:
        answer.append(state("loaded-runs", files=loaded))
    if trainers := summary.trainers_of_unknown_work:
        answer.append(state("unknown-work", trainers=trainers))
    return [*answer, *summary.checked_predictions]


def state_overview(summary: Summary) -> list[Statement]:
    """Return the range over several series, and how many can be judged."""
    overview = []
    for name, series in _list_answered_scalings(summary):
        if ranges := _state_ranges(_drop_machine(series)):
            overview += [*_state_title(summary, name), *ranges]
    return overview


def _list_answered_scalings(summary: Summary) -> list[Scaling]:
    """Return the scalings that have answers; [] if a report has too many of models."""
    if summary.has_many_models and len(summary.scalings) > _MAX_ANSWERS:
        return []
    return summary.scalings


def _state_title(summary: Summary, name: str) -> list[Statement]:
    return [state("scaling", name)] if len(summary.scalings) > 1 else []


def _drop_machine(series: Sequence[SeriesSummary]) -> list[SeriesSummary]:
    """Return the series of a scaling without the machine, which its title contains."""
    return [
        dataclasses.replace(
            member, title=member.title.removesuffix(f", {member.machine}")
        )
        for member in series
    ]


def _state_models(
    summary: Summary, name: str, series: Sequence[SeriesSummary]
) -> list[Statement]:
    """Return the range of the models' efficiencies.

    In modes that train one model, also return whether the efficiencies follow the work
    per exchanged MB.
    """
    model_statements = []
    if len(summary.tables) > 1 or _list_answered_scalings(summary):
        model_statements.append(state("scaling", name))
    without_range = state("none-on-several", series=len(series))
    model_statements += _state_ranges(series) or [without_range]
    model_statements += _state_unranked(series)
    if not registry.find_mode(series[0].mode).trains_one_model:
        return model_statements

    compared: dict[int, list[tuple[Interval, Interval, str]]] = {}
    for member in series:
        for row in member.rows:
            work = row.metric(WORK_PER_EXCHANGE)
            count = row.num_devices
            if work and row.efficiency_percent and count > 1:
                model = (
                    work,
                    row.efficiency_percent,
                    find_network_family(member.model),
                )
                compared.setdefault(count, []).append(model)
    # The number of devices that most models have.
    count = max(compared, key=lambda count: (len(compared[count]), count), default=0)
    models = compared.get(count, [])
    follows = correlation.state_efficiency_trend(
        [work for work, _, _ in models],
        [efficiency for _, efficiency, _ in models],
        [name for _, _, name in models],
    )
    return [*model_statements, follows]


def _state_fastest(series: Sequence[SeriesSummary]) -> list[Statement]:
    """State which series of a scaling is fastest, and which are not ranked."""
    if len(series) == 1:
        return one_series.make_statements(series[0])
    unranked = _state_unranked(series)
    parallel = [member for member in series if find_most_devices(member) > 1]
    if not parallel:
        sound_series, excluded = _select_sound([s for s in series if s.row_on(1)])
        first = state_fastest(sound_series, 1) if len(sound_series) > 1 else []
        none = state("none-on-several", series=len(series))
        return [*first, *excluded, none, *unranked]

    rivals = _select_one_model(parallel) or parallel
    candidates, excluded = _select_sound(rivals)
    if len(rivals) < len(parallel):
        excluded = [state("ranked-one-model"), *excluded]
    if not candidates:
        none = state("none-sound", series=len(rivals))
        return [none, *excluded, *unranked]

    sound, _ = _select_sound(parallel)
    fastest_statements = headline.make_statements(sound)
    fastest_statements += _state_fastest_on_one_device(candidates)
    if len(candidates) == 1:
        only_one = state("one-ranked", series=len(series))
        excluded = [only_one, *excluded]
    ranked = _state_fastest_on_several(candidates)
    if any(each.kind in headline.DECISIONS for each in fastest_statements):
        # One decision is enough.
        ranked = [each for each in ranked if each.kind not in DECISIONS]
    return [*fastest_statements, *ranked, *excluded, *unranked]


def _select_one_model(series: Sequence[SeriesSummary]) -> list[SeriesSummary]:
    """Return the series whose devices train one model."""
    return [
        member for member in series if registry.find_mode(member.mode).trains_one_model
    ]


def _state_costs(summary: Summary, series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return the lowest cost, if machines have prices.

    Series that do not train one model count only if no series trains one.
    """
    priced = []
    for member in _select_one_model(series) or series:
        if member.num_diverged:
            continue
        for row in member.rows:
            cost = row.metric(COST)
            if cost and row.priced:
                priced.append((cost, row, row.priced))
    if not priced:
        return []
    cost, cheapest, machine = min(priced, key=lambda item: item[0].value)
    return [
        state(
            "lowest-cost",
            summary.row_titles[cheapest],
            cost=cost,
            currency=machine.currency,
            machine=machine.name,
            unit=cheapest.unit,
            devices=cheapest.devices,
        )
    ]


def _state_unranked(series: Sequence[SeriesSummary]) -> list[Statement]:
    """State which series cannot be the fastest, by the reason."""
    names: dict[str, list[str]] = {}
    for member in series:
        if kind := _explain_missing_ranking(member):
            names.setdefault(kind, []).append(member.title)
    return [state(kind, names=titles) for kind, titles in names.items()]


def _explain_missing_ranking(series: SeriesSummary) -> str:
    """Return the kind of the statement about a series that is not ranked, or ""."""
    if series.num_diverged:
        return "not-ranked-diverged"
    if series.largest_row is None:
        return "not-ranked-failed"
    if series.failed_above and find_most_devices(series) == 1:
        return "not-ranked-failed-on-several"
    return ""


def _select_sound(
    series: Sequence[SeriesSummary],
) -> tuple[list[SeriesSummary], list[Statement]]:
    """Return the series whose training is not known to be wrong or to diverge.

    Returns:
      The series, and a statement if others are known to train wrong.
    """
    stable = [member for member in series if not member.num_diverged]
    sound = [member for member in stable if not certificates.trains_wrong(member)]
    return sound, [state("ranked-right")] if len(sound) < len(stable) else []


def _state_fastest_on_one_device(series: Sequence[SeriesSummary]) -> list[Statement]:
    """State which program is fastest on one device; [] of a single program."""
    measured_series = [member for member in series if member.row_on(1)]
    programs = {make_program_key(member.rows[0].options) for member in measured_series}
    return state_fastest(measured_series, 1) if len(programs) > 1 else []


def _state_fastest_on_several(candidates: Sequence[SeriesSummary]) -> list[Statement]:
    """State which series is fastest on the most devices that all have."""
    if len(candidates) == 1:
        return one_series.make_statements(candidates[0])
    common_counts = set.intersection(*map(list_measured_counts, candidates)) - {1}
    if not common_counts:
        return [state("no-common-devices"), *state_conditions(candidates, None)]
    return state_fastest(candidates, max(common_counts))


def _state_ranges(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return the range of efficiencies; [] of one series, or without efficiencies."""
    scaled_series = []
    for member in series:
        row = member.largest_row
        if row and row.num_devices > 1 and row.efficiency_percent:
            scaled_series.append(member)
    if len(series) < 2 or not scaled_series:
        return []
    ordered = sorted(scaled_series, key=lambda member: _find_efficiency(member).value)
    single_run_series = []
    judged_series = []
    for member in ordered:
        if not one_series.has_interval_over_runs(_find_efficiency(member)):
            single_run_series.append(member)
        elif not _find_efficiency(member).is_too_wide:
            judged_series.append(member)

    range_statements = []
    if len(judged_series) > 1:
        range_statements.append(_state_range(judged_series))
        if not is_above(
            _find_efficiency(judged_series[-1]),
            _find_efficiency(judged_series[0]),
            len(judged_series),
        ):
            range_statements.append(state("range-within-noise"))
    if len(single_run_series) > 1 and not judged_series:
        range_statements += [
            _state_range(single_run_series),
            state("single-runs"),
        ]
    elif single_run_series:
        range_statements.append(
            state(
                "series-of-single-runs",
                single=len(single_run_series),
                series=len(series),
            )
        )
    if num_unjudged := len(series) - len(judged_series) - len(single_run_series):
        range_statements.append(
            state("series-unjudged", unjudged=num_unjudged, series=len(series))
        )
    return range_statements


def _state_range(ordered: Sequence[SeriesSummary]) -> Statement:
    """Return the lowest and the highest efficiency of series in this order."""
    low = ordered[0]
    high = ordered[-1]
    values: dict[str, Any] = {
        "series": len(ordered),
        "low": _find_efficiency(low),
        "high": _find_efficiency(high),
        "low_name": low.title,
        "high_name": high.title,
        "low_devices": format_devices([low], find_most_devices(low)),
        "high_devices": format_devices([high], find_most_devices(high)),
    }
    if find_most_devices(low) != find_most_devices(high):
        return state("efficiency-range-mixed", **values)
    values["devices"] = format_devices([low, high], find_most_devices(low))
    return state("efficiency-range", **values)


def list_missing_run_commands(series: SeriesSummary) -> list[str]:
    """Return the commands of missing runs, each once, with the repeats of the series."""
    row = series.largest_row
    if row is None or not row.is_ours:
        return []
    commands: list[str] = []
    if row.num_devices == 1:
        if len(series.rows) == 1:
            axis = scale.find_axis(row.options)
            commands.append(make_sweep_command(row.options, **{axis: 2}))
    elif row.is_speedup_hidden:
        # Other runs explain nothing before these are repeated.
        return []
    elif row.efficiency_percent is None:
        commands.append(make_sweep_command(row.options, **scale.ON_ONE_DEVICE))
    elif series.largest_loss:
        for part in series.largest_loss.missing:
            commands += part.commands
    repeats = f" --repeats={len(row.records)}" if len(row.records) > 1 else ""
    return [f"{line}{repeats}" for line in dict.fromkeys(commands)]


def list_few_disturbed_runs(summary: Summary) -> list[tuple[str, Row]]:
    """Return (file, its row) of the disturbed good runs, if they are few.

    They are worth repeating, whether or not they count.
    """
    num_good = 0
    disturbed_files = []
    for row in summary.rows:
        num_good += len(row.good_runs)
        for run in filter(disturbance.is_disturbed, row.good_runs):
            disturbed_files.append((summary.files[id(run)], row))
    is_few = len(disturbed_files) <= min(_MAX_LOADED, num_good // 6)
    return disturbed_files if is_few else []


def _count_disturbed_left_out(summary: Summary) -> list[Statement]:
    """State which good runs, and how many batches, do not count; [] if all count."""
    files = []
    loads = []
    num_good = 0
    counted_runs = []
    for row in summary.rows:
        num_good += len(row.good_runs)
        counted_runs.append(row.counted_runs)
        for run in row.disturbed_runs:
            files.append(summary.files[id(run)])
            loads.append(disturbance.load(run))
    left_out_facts = []
    if files:
        left_out_facts.append(
            state(
                "disturbed-left-out",
                files=files,
                runs=num_good,
                share=max(loads),
                threshold=NOTICEABLE_LOAD,
            )
        )
    if batches := disturbance.count_batches_left_out(counted_runs):
        left_out_facts.append(
            state("batches-left-out", **batches, threshold=NOTICEABLE_LOAD)
        )
    return left_out_facts


def list_all_missing_run_commands(summary: Summary) -> list[str]:
    """Return the commands that complete the folder, each once.

    The first ones repeat the disturbed runs, if they are few.
    """
    commands = []
    for file, row in list_few_disturbed_runs(summary):
        if row.is_ours:
            path = shlex.quote(f"{summary.name}/{file}")
            repeats = f"--repeats={len(row.records)}"
            commands.append(f"rm {path} && {make_sweep_command(row.options)} {repeats}")
    for series in summary.series:
        commands += list_missing_run_commands(series)
    return [summary.command_for_folder(line) for line in dict.fromkeys(commands)]


def list_interval_kinds(series: Sequence[SeriesSummary]) -> list[str]:
    """Return the kinds of intervals in the sentences, each once.

    If there are several kinds, each follows the numbers that have it.
    """
    numbers: list[tuple[str, Interval | None]] = []
    for member in series:
        row = member.largest_row
        if row is None:
            continue
        name = "speedup and efficiency"
        main = row.efficiency_percent
        if main is None or row.num_devices == 1:
            name = f"{row.unit}/s"
            main = row.rate
        parts = member.parts_of(row)
        numbers.append((name, main))
        numbers += [("parts", part.points) for part in parts]
    groups = group_by_kind(numbers)
    if len(groups) < 2:
        return list(groups)
    texts = []
    for kind, pairs in groups.items():
        names = dict.fromkeys(name for name, _ in pairs)
        texts.append(f"{', '.join(names)}: {kind}")
    return texts


def _find_efficiency(series: SeriesSummary) -> Interval:
    assert series.largest_row and series.largest_row.efficiency_percent
    return series.largest_row.efficiency_percent
