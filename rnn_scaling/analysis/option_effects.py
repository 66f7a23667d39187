"""The effect of each option on the rate, over all series that share the other options.

`reports.headline` states the effects.
"""

import dataclasses
import itertools
import math
from collections.abc import Hashable, Iterable, Sequence

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import UNIT
from rnn_scaling.analysis.rows import Row, make_series_key
from rnn_scaling.analysis.significance import (
    compute_joint_ratio,
    compute_needed_repeats,
)
from rnn_scaling.config.naming import NAMED
from rnn_scaling.records.options import DEFAULTS, UNKNOWN


@dataclasses.dataclass(frozen=True)
class OptionEffect:
    """The differences in rate between the values of one option.

    Attributes:
      option: The name of the option.
      values: The option's values, the fastest first.
      ratio: Rate with the fastest value / rate with the slowest one. Its interval holds
        together with the intervals of all pairs of values. Its run counts are the
        fewest runs behind a rate.
      max_difference: How much any two values can differ at most, given their intervals,
        as a share of the slower rate.
    """

    option: str
    values: tuple[Hashable, ...]
    ratio: Interval
    max_difference: float

    @property
    def num_pairs(self) -> int:
        """The number of pairs of values that are compared together."""
        return math.comb(len(self.values), 2)

    @property
    def seen_difference(self) -> float:
        """The difference of the fastest and the slowest value, as a share."""
        return self.ratio.value - 1

    @property
    def needed_repeats(self) -> int | None:
        """The repeats that would show the seen difference; None if too many."""
        return compute_needed_repeats(
            math.log(self.ratio.value),
            self.ratio.relative_error or 0.0,
            self.ratio.degrees,
            self.ratio.run_counts[0],
            len(self.values),
        )

    @property
    def is_significant(self) -> bool:
        """Whether the fastest value is certainly faster than the slowest one."""
        return self.ratio.low is not None and self.ratio.low > 1


def find_option_effects(rows: Sequence[Row]) -> list[OptionEffect]:
    """Return the effect of each option in which the rows differ.

    An option that follows from another one is left out: the kernel of the decoder is
    by default the kernel of the encoder, and some options are read only by one update
    mode.

    Args:
      rows: The rows of different series on the same number of devices, each with the
        interval of its rate.

    Returns:
      One effect for each option whose values all occur together with the same other
      options.
    """
    keys = [dict(make_series_key(row)) for row in rows]
    rates = [row.rate for row in rows if row.rate]
    names_in_keys: set[str] = set().union(*keys)
    columns: dict[str, list[Hashable]] = {}
    for name in dict.fromkeys([*NAMED, *sorted(names_in_keys - {UNIT})]):
        default = DEFAULTS.get(name, UNKNOWN)
        column = [key.get(name, default) for key in keys]
        is_varied = len(set(column)) > 1
        if is_varied and not _is_determined(column, columns.values()):
            columns[name] = column

    effects = []
    for name, column in columns.items():
        # Copies of another program have a mode, but its other runs do not.
        if UNKNOWN in column:
            continue
        other_columns = [columns[other] for other in columns if other != name]
        settings = list(zip(*other_columns)) or [()] * len(rows)
        effect = _measure_effect(name, column, settings, rates)
        if effect is not None:
            effects.append(effect)
    return effects


def _is_determined(
    column: Sequence[Hashable], columns: Iterable[Sequence[Hashable]]
) -> bool:
    """Return whether the values of one of the columns determine a column's values."""
    return any(
        len(set(zip(candidate, column))) == len(set(candidate)) for candidate in columns
    )


def _measure_effect(
    option: str,
    column: Sequence[Hashable],
    settings: Sequence[Hashable],
    rates: Sequence[Interval],
) -> OptionEffect | None:
    """Return the effect of an option.

    Returns:
      None if no setting of the other options has rates with all values of this option.

    Args:
      option: The name of the option.
      column: The option's value for each rate.
      settings: The values of the other options for each rate.
      rates: The rates.
    """
    rates_by_value: dict[Hashable, list[Interval]] = {value: [] for value in column}
    count = len(rates_by_value)
    for members in group_by(zip(column, rates), settings).values():
        by_value = dict(members)
        if len(by_value) == count:
            for value, rate in by_value.items():
                rates_by_value[value].append(rate)
    if not all(rates_by_value.values()):
        return None
    degrees = min(rate.degrees for rate in rates)
    num_runs = min(min(rate.run_counts) for rate in rates)
    means = {}
    for value, value_rates in rates_by_value.items():
        means[value] = _compute_mean_rate(value_rates, degrees, num_runs)
    ordered = sorted(means, key=lambda value: -means[value].value)
    ratios = [
        compute_joint_ratio(means[faster], means[slower], count)
        for faster, slower in itertools.combinations(ordered, 2)
    ]
    max_difference = max(change.high or 0.0 for change in ratios) - 1
    seen_ratio = compute_joint_ratio(means[ordered[0]], means[ordered[-1]], count)
    return OptionEffect(option, tuple(ordered), seen_ratio, max_difference)


def _compute_mean_rate(
    rates: Sequence[Interval], degrees: float, num_runs: int
) -> Interval:
    """Return the geometric mean of rates with different settings, without its ends.

    Args:
      rates: The rates.
      degrees: Degrees of freedom of its error.
      num_runs: The number of runs.
    """
    count = len(rates)
    value = math.exp(math.fsum(math.log(rate.value) for rate in rates) / count)
    errors = [rate.relative_error or 0.0 for rate in rates]
    error = math.hypot(*errors) / count
    if any(rate.is_corrected for rate in rates):
        # The errors of corrections have one cause, so their mean is not more precise.
        error = math.fsum(errors) / count
    return Interval(
        value,
        standard_error=value * error,
        degrees=degrees,
        run_counts=(num_runs,),
        rounding=max(rate.rounding for rate in rates),
    )
