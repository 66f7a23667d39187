"""The first statements of an answer: the speedup, and the effect of each option.

An answer prints the statements in this order. A statement that explains another one
follows it directly.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import SPEEDUP
from rnn_scaling.analysis.option_effects import OptionEffect, find_option_effects
from rnn_scaling.analysis.ranking import MAX_UNCERTAINTY, NEGLIGIBLE_DIFFERENCE
from rnn_scaling.analysis.rows import Row, max_slowing_beyond
from rnn_scaling.analysis.significance import MAX_REPEATS
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config import registry
from rnn_scaling.config.naming import NAMED, make_program_key
from rnn_scaling.config.spelling import spell
from rnn_scaling.reports.fastest_series import (
    format_devices,
    has_lost_workers,
    list_measured_counts,
)
from rnn_scaling.reports.repeat_commands import repeat_quietly
from rnn_scaling.reports.series_statements import (
    is_corrected,
    is_precise,
)
from rnn_scaling.reports.summary import SeriesSummary

_MAX_EFFECTS = 3  # options whose effect the answer contains
# Statements about an effect that is within the noise.
DECISIONS = (
    "take-any",
    "seen-effect",
    "seen-effect-too-small",
    "effect-needs-quiet-runs",
)
# Statements that explain the one before them, so they stay together.
EXPLANATIONS = (
    "speedups-corrected",
    "repeat-on-quiet-machine",
    "quiet-machine",
    "effect-without-exchange",
    *DECISIONS,
)
# Statements of the first paragraph.
KINDS = (
    "speedup-range",
    "speedup-alike",
    "speedups-hidden-by-load",
    "all-speedups-hidden-by-load",
    "effect-of-two",
    "effect-of-several",
    "effect-equal",
    "effect-open",
    *EXPLANATIONS,
)


def make_statements(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return the speedup over all series, and the effect of each option.

    Returns:
      [] if there are fewer than two series, if they are of several programs or have no
      common number of devices, or if a run lost workers. The speedup is left out if a
      rate is too uncertain, and the effects also if the load of the rows differs.
    """
    programs = {make_program_key(member.rows[0].options) for member in series}
    if len(programs) > 1 or len(series) < 2:
        return []
    common_counts = set.intersection(*map(list_measured_counts, series)) - {1}
    if not common_counts:
        return []
    count = max(common_counts)
    rows = [row for member in series if (row := member.row_on(count))]
    if any(map(has_lost_workers, rows)):
        return []
    statements = _state_speedups(series, rows, count)
    if all(is_precise(row.rate) for row in rows) and _have_equal_load(rows):
        has_corrected = any(row.corrected is not None for row in rows)
        for effect in find_option_effects(rows)[:_MAX_EFFECTS]:
            statements += _state_effects(effect, has_corrected)
    return statements


def _state_speedups(
    series: Sequence[SeriesSummary], rows: Sequence[Row], count: int
) -> list[Statement]:
    """Return the range of the speedups, and which ones load hides.

    Args:
      series: The series.
      rows: The row of each series on `count` devices.
      count: The number of devices.
    """
    hidden = []
    judged_rows = []
    for member, row in zip(series, rows):
        if row.is_speedup_hidden:
            hidden.append(member)
        else:
            judged_rows.append(row)
    speedup_statements: list[Statement] = []
    if judged_rows and all(is_precise(row.metric(SPEEDUP)) for row in judged_rows):
        place = format_devices(series, count)
        speedup_statements += _state_ranges(judged_rows, count, place)
    if hidden:
        statement = state("all-speedups-hidden-by-load")
        if judged_rows:
            names = [member.title for member in hidden]
            statement = state(
                "speedups-hidden-by-load", names=names, series=len(series)
            )
        speedup_statements += [statement, repeat_quietly(hidden)]
    return speedup_statements


def _state_ranges(rows: Sequence[Row], count: int, place: str) -> Iterator[Statement]:
    """Yield the smallest and the largest speedup, and how many are corrected for load.

    Args:
      rows: The rows on `count` devices, whose speedups are precise.
      count: The number of devices.
      place: The words for this number.
    """
    speedups = [row.metric(SPEEDUP) for row in rows]
    ordered = sorted(speedup.value for speedup in speedups if speedup)
    values = {
        "low": ordered[0],
        "high": ordered[-1],
        "low_share": 100 * ordered[0] / count,
        "high_share": 100 * ordered[-1] / count,
    }
    is_alike = round(ordered[0], 2) == round(ordered[-1], 2)
    kind = "speedup-alike" if is_alike else "speedup-range"
    yield state(kind, place, **values)
    if num_corrected := sum(map(is_corrected, rows)):
        points = math.ceil(max(map(_compute_half_width_percent, speedups)) / count)
        values = {"corrected": num_corrected, "series": len(rows), "points": points}
        yield state("speedups-corrected", **values)


def _compute_half_width_percent(speedup: Interval | None) -> float:
    """Return the longer half of a speedup's interval, in per cent, as tables print it."""
    assert speedup and speedup.ends
    low, high = speedup.ends
    return 100 * max(high - speedup.value, speedup.value - low)


def _have_equal_load(rows: Sequence[Row]) -> bool:
    """Return whether load of other processes cannot explain differences of rows."""
    return not any(
        max_slowing_beyond(first, second)
        for first, second in itertools.permutations(rows, 2)
    )


def _state_effects(effect: OptionEffect, has_corrected: bool) -> list[Statement]:
    """State which value of an option is fastest, or how much the values may differ.

    Args:
      effect: The effect of the option.
      has_corrected: Whether a rate is corrected for load, with an error that repeats do
        not reduce.

    Returns:
      [] if the values may differ by more than is worth saying.
    """
    if effect.max_difference <= NEGLIGIBLE_DIFFERENCE:
        equal = state("effect-equal", **_list_effect_values(effect))
        return [equal, *_allow_any(effect)]
    if effect.is_significant and is_precise(effect.ratio):
        return _state_winner(effect)
    if effect.max_difference > MAX_UNCERTAINTY:
        return []
    effect_open = state("effect-open", **_list_effect_values(effect))
    return [effect_open, *_state_remedies(effect, has_corrected)]


def _list_effect_values(effect: OptionEffect) -> dict[str, Any]:
    """Return the values of the statements about an option's effect."""
    names = _list_value_names(effect)
    return {
        "names": names,
        "within": effect.max_difference,
        "slowest": names[-1],
        "count": len(names),
        "others": len(names) - 1,
        "pairs": effect.num_pairs,
        "ratio": effect.ratio,
    }


def _state_winner(effect: OptionEffect) -> list[Statement]:
    """State how much faster than the slowest the fastest value is."""
    names = _list_value_names(effect)
    kind = "effect-of-two" if len(names) == 2 else "effect-of-several"
    statements = [state(kind, names[0], **_list_effect_values(effect))]
    if _is_gain_by_exchange(effect):
        statements.append(state("effect-without-exchange", names[-1]))
    return statements


def _state_remedies(effect: OptionEffect, has_corrected: bool) -> list[Statement]:
    """State what would decide an open effect, or that any value may be taken."""
    if has_corrected:
        return [state("effect-needs-quiet-runs")]
    values = {
        "seen": effect.seen_difference,
        "repeats": effect.needed_repeats,
        "most": MAX_REPEATS,
    }
    if effect.needed_repeats is None:
        return [*_allow_any(effect), state("seen-effect-too-small", **values)]
    return [state("seen-effect", **values)]


def _allow_any(effect: OptionEffect) -> list[Statement]:
    """State that any value may be taken, if the values can replace each other."""
    if not _can_replace_each_other(effect):
        return []
    return [state("take-any", others=len(effect.values) - 1)]


def _do_values_train_one_model(effect: OptionEffect) -> list[bool]:
    """Return whether each value of the option "variable_update" trains one model."""
    return [registry.find_mode(str(value)).trains_one_model for value in effect.values]


def _can_replace_each_other(effect: OptionEffect) -> bool:
    """Return whether a user may take any value of an option.

    Separate copies of a model cannot replace a single shared model.
    """
    if effect.option != "variable_update":
        return True
    return len(set(_do_values_train_one_model(effect))) == 1


def _is_gain_by_exchange(effect: OptionEffect) -> bool:
    """Return whether a mode that exchanges is faster than one that does not."""
    if effect.option != "variable_update":
        return False
    trains_one_model = _do_values_train_one_model(effect)
    return trains_one_model[0] and not trains_one_model[-1]


def _list_value_names(effect: OptionEffect) -> list[str]:
    """Return the values of an option as a reader knows them, the fastest first."""
    if effect.option in NAMED:
        return list(map(str, effect.values))
    return [spell(effect.option, value).removeprefix("--") for value in effect.values]
