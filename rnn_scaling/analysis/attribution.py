"""Split the loss of scaling into parts that add up to it, each with its interval.

The loss is n x items/s(1) - items/s(n). Its parts are differences of measured
efficiencies, each relative to the same mode and data on one device. With X(mode, n,
data) in items/s, m the row's mode, d its data source, i the mode without any exchange,
a tower's batch size the same everywhere, and E(m,n,d) = X(m,n,d) / (n X(m,1,d)):

    contention  = 1 - E(i,n,device)
    exchange    = E(i,n,device) - E(m,n,device)
    input       = E(m,n,device) - E(m,n,d)
    imbalance   = E(m,n,d) x slack; the other parts use E x (1 + slack), which evenly
                  loaded towers would reach

times the ideal n X(m,1,d). In strong scaling, with f = X(m,1,d) with a tower's share /
X(m,1,d) with the whole batch, fixed cost = 1 - f, and the other parts are multiplied by
f. If n devices of a CPU share c < n cores, oversubscription = 1 - c/n, and contention =
c/n - E(i,n,device). This assumes that every device keeps a core busy. If the efficiency
of any row of the table is known to be above its c/n, no row has this part.

A part whose runs are missing stays in the residual, and the commands for these runs are
named. A part is significant if its interval excludes 0 by more than the load of other
processes may explain. docs/reading.md explains the method.

Reports call `attribute_all` once for all rows. A new part needs a `LossPartName` and a
term in the sum above.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval, combine, divide_rates, find_slope
from rnn_scaling.analysis.keys import Key
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.significance import estimate_foreseen_effect, propose_repeats
from rnn_scaling.analysis.statements import Word
from rnn_scaling.config import registry, scale
from rnn_scaling.config.spelling import make_sweep_command
from rnn_scaling.system.machine.cores import compute_max_efficiency


class LossPartName(Word):
    """The name of a part of an efficiency loss, in the order of tables and colours."""

    OVERSUBSCRIPTION = "oversubscription"
    FIXED = "fixed cost"
    CONTENTION = "contention"
    EXCHANGE = "exchange"
    INPUT = "input"
    IMBALANCE = "imbalance"
    UNEXPLAINED = "the rest"


OVERSUBSCRIPTION, FIXED, CONTENTION, EXCHANGE, INPUT, IMBALANCE, UNEXPLAINED = (
    LossPartName
)
ALL = 100.0  # points of efficiency; more cannot be lost
ROUNDING = 1e-9  # points of efficiency due to floating point
_MIN_POINTS = 5e-4  # fewer points would be printed as 0.000
Rates = Mapping[Key, float]  # items/s of each row


@dataclasses.dataclass(frozen=True)
class Share:
    """A share of the ideal, as a function of the rates of some rows.

    Attributes:
      keys: Keys of these rows.
      interval: The interval of a share that is one ratio, from logarithms.
      missing: Options of runs that are needed but were not measured.
    """

    value: Callable[[Rates], float]
    keys: frozenset[Key] = frozenset()
    interval: Interval | None = None
    missing: tuple[Mapping[str, Any], ...] = ()

    def __sub__(self, share: Share) -> Share:
        interval = None
        if not self.keys and share.interval:
            interval = share.interval.subtracted_from(self.value({}))
        elif self.interval and not (share.keys or share.missing):
            interval = self.interval.shifted(-share.value({}))
        return Share(
            lambda rates: self.value(rates) - share.value(rates),
            self.keys | share.keys,
            interval,
            self.missing + share.missing,
        )

    def __mul__(self, share: Share) -> Share:
        if share is _ONE:
            return self
        return Share(
            lambda rates: self.value(rates) * share.value(rates),
            self.keys | share.keys,
            missing=self.missing + share.missing,
        )

    def scaled(self, factor: float) -> Share:
        """Return the share times a factor of at least 0."""
        return Share(
            lambda rates: self.value(rates) * factor,
            self.keys,
            self.interval.scaled(factor) if self.interval and factor else None,
            self.missing,
        )


_ONE = Share(lambda rates: 1.0)
_NOTHING = Share(lambda rates: 0.0)


@dataclasses.dataclass(frozen=True)
class LossPart:
    """One part of the loss.

    Attributes:
      value: Lost items/s; None if a run is missing.
      points: Lost percentage points of efficiency; None if a run is missing.
      commands: Commands for the missing runs, if this suite can train them.
      is_significant: Whether the part differs from 0.
      may_be_load: Whether its interval excludes 0, but the load of other processes may
        explain it.
      load_points: The points that the load of other processes may explain.
    """

    name: LossPartName
    value: Interval | None
    points: Interval | None
    commands: tuple[str, ...] = ()
    is_significant: bool = False
    may_be_load: bool = False
    load_points: float = 0.0

    @property
    def lost_points(self) -> float:
        """The points without their interval; 0 if a run is missing."""
        return self.points.value if self.points else 0.0


@dataclasses.dataclass(frozen=True)
class Attribution:
    """The loss of one row against n times its baseline.

    The loss is the sum of the known parts and `residual`, and also the sum of the
    significant parts and `unexplained`.

    Attributes:
      ideal, loss, residual: In items/s.
      parts: All parts, with missing and insignificant ones.
      loss_points, residual_points: In percentage points of efficiency.
      rows: All rows whose rates the loss and its parts depend on.
      max_efficiency: The efficiency that devices which share cores can reach. 1 if they
        do not share any, or if a row of the table has reached more than its own bound.
      is_bound: Whether the cores limit the row, and no row of the table is above its
        bound.
    """

    row: Row
    ideal: Interval
    loss: Interval
    parts: tuple[LossPart, ...]
    residual: Interval
    loss_points: Interval
    residual_points: Interval
    unexplained: LossPart
    rows: tuple[Row, ...]
    max_efficiency: float = 1.0
    is_bound: bool = False

    @property
    def significant_parts(self) -> tuple[LossPart, ...]:
        """The parts that differ from 0, the largest loss first."""
        significant = [part for part in self.parts if part.is_significant]
        return tuple(sorted(significant, key=lambda part: -part.lost_points))

    @property
    def is_significant(self) -> bool:
        """Whether any part differs from 0, so that a table of parts is not noise."""
        return bool(self.significant_parts)

    @property
    def is_split(self) -> bool:
        """Whether parts are named.

        The loss must not be a gain. It must differ from 0, or the significant parts
        must explain all of it.
        """
        if self.loss_points.ends is None:
            return False
        low, high = self.loss_points.ends
        explains_all = self.is_significant and (
            self.unexplained.is_significant or not self._has_unexplained_points
        )
        return high >= 0 and (low > 0 or explains_all)

    @property
    def displayed_parts(self) -> tuple[LossPart, ...]:
        """The parts of a table or a picture; empty without a significant part."""
        if not self.is_significant:
            return ()
        if self.unexplained.points and self._has_unexplained_points:
            return (*self.significant_parts, self.unexplained)
        return self.significant_parts

    @property
    def _has_unexplained_points(self) -> bool:
        points = self.unexplained.points
        return points is not None and points.ends != (0.0, 0.0)

    @property
    def missing(self) -> tuple[LossPart, ...]:
        """The parts whose runs are missing; empty if nothing is lost."""
        if _find_low_end(self.loss_points) <= 0:
            return ()
        return tuple(part for part in self.parts if part.commands)

    def useful_repeats(self) -> tuple[int, float | None]:
        """Return how many repeats are useful, and the smallest part that they show.

        Returns:
          The number of repeats, and the points of efficiency that they show in 80 of
          100 cases; None if these are unknown.
        """
        points = [part.points for part in self.parts if part.points]
        points = points or [self.loss_points]
        num_runs, repeats = propose_repeats(points)
        effects = []
        for value in points:
            error = value.standard_error
            if error:
                effects.append(
                    estimate_foreseen_effect(error, value.degrees, num_runs, repeats)
                )
        if not effects:
            return repeats, None
        rounding = max(value.rounding_half_width for value in points)
        return repeats, min(ALL, max(effects) + rounding)


def _find_low_end(interval: Interval) -> float:
    """Return the lower end; the number itself without an interval."""
    return interval.value if interval.low is None else interval.low


def attribute_all(
    scaled_rows: Sequence[Row], rows: Sequence[Row]
) -> list[Attribution | None]:
    """Split the losses of some rows.

    Args:
      scaled_rows: The rows whose losses are split.
      rows: All rows of the table.

    Returns:
      None for a row on one device, without a good run or without its baseline.
    """
    # A row and its baseline count the same batches, which the table need not do.
    scaled_rows = [row.beside_baseline for row in scaled_rows]
    pairs = itertools.chain.from_iterable((row.baseline, row) for row in scaled_rows)
    by_key = {row.key: row for row in (*rows, *filter(None, pairs)) if row.rate}
    excesses = list(filter(None, map(_compute_excess_over_cores, by_key.values())))
    is_refuted = any(_find_low_end(excess) > 0 for excess in excesses)
    is_bound = all(excess.value <= 0 for excess in excesses)
    losses: list[Attribution | None] = []
    for row in scaled_rows:
        base = row.baseline if row.num_devices > 1 and row.rate else None
        if base is None or base.rate is None:
            losses.append(None)
        else:
            attributor = _Attributor(
                row, base=base, by_key=by_key, is_refuted=is_refuted, is_bound=is_bound
            )
            losses.append(attributor.attribute())
    return losses


def _compute_excess_over_cores(row: Row) -> Interval | None:
    """Return by how much a row's efficiency exceeds what its cores allow.

    Returns:
      A share of the ideal, negative below the bound; None if the row's devices do
      not share cores, or its efficiency is unknown.
    """
    cores = disturbance.count_shared_cores(row.good_runs)
    efficiency = row.metric(EFFICIENCY) if row.num_devices > 1 else None
    if not cores or efficiency is None:
        return None
    return efficiency.shifted(-compute_max_efficiency(row.num_devices, cores))


class _Attributor:
    """Splits the loss of one row."""

    def __init__(
        self,
        row: Row,
        base: Row,
        by_key: Mapping[Key, Row],
        is_refuted: bool,
        is_bound: bool,
    ) -> None:
        self._row = row
        self._base_key = base.key
        self._n = row.num_devices
        self._by_key = by_key
        self._is_refuted = is_refuted
        self._is_bound = is_bound
        self._ideal = _require_rate(base).scaled(row.num_devices)
        # One device with the batch of a tower.
        self._tower_changes: dict[str, Any] = dict(scale.ON_ONE_DEVICE)
        total = row.options["global_batch_size"]
        if total:
            self._tower_changes["global_batch_size"] = 0
            self._tower_changes["batch_size"] = -(-total // self._n)

    def attribute(self) -> Attribution:
        """Return the parts of the row's loss and the residual."""
        loss = _ONE - self._measured_efficiency()
        efficiencies = {
            name: self._efficiency_with(changes)
            for name, changes in self._list_part_changes()
        }
        max_efficiency = self._max_efficiency(efficiencies.values())
        shares = self._split_efficiency_loss(efficiencies, max_efficiency)
        parts = tuple(self._make_part(name, share) for name, share in shares.items())

        known_shares = [share for share in shares.values() if not share.missing]
        significant = [shares[part.name] for part in parts if part.is_significant]
        residual = self._subtract_parts(loss, known_shares, len(shares))
        unexplained = self._subtract_parts(loss, significant, len(shares))
        loss_points = self._to_points(loss)
        residual_points = self._to_points(residual)
        keys = loss.keys.union(*[share.keys for share in known_shares])
        return Attribution(
            row=self._row,
            ideal=self._ideal,
            loss=self._to_items_per_s(loss_points),
            parts=parts,
            residual=self._to_items_per_s(residual_points),
            loss_points=loss_points,
            residual_points=residual_points,
            unexplained=self._make_part(UNEXPLAINED, unexplained),
            rows=tuple(row for key, row in self._by_key.items() if key in keys),
            max_efficiency=max_efficiency,
            is_bound=self._is_bound and max_efficiency < 1,
        )

    def _measured_efficiency(self) -> Share:
        key = self._row.key
        base_key = self._base_key
        n = self._n
        return Share(
            lambda rates: rates[key] / (n * rates[base_key]),
            frozenset({key, base_key}),
            self._row.metric(EFFICIENCY),
        )

    def _subtract_parts(
        self, loss: Share, parts: Sequence[Share], num_parts: int
    ) -> Share:
        """Return the loss without some parts; exactly nothing without all of them."""
        if len(parts) == num_parts:
            return _NOTHING
        return functools.reduce(operator.sub, parts, loss)

    def _make_part(self, name: LossPartName, share: Share) -> LossPart:
        """Return a part with its interval, or the commands for its missing runs."""
        if share.missing:
            missing_changes = share.missing if self._row.is_ours else ()
            commands = [
                make_sweep_command(self._row.options, **changes)
                for changes in missing_changes
            ]
            return LossPart(name, None, None, tuple(dict.fromkeys(commands)))
        points = self._to_points(share)
        items = self._to_items_per_s(points)
        if points.ends is None:
            return LossPart(name, items, points)
        low, high = points.ends
        if low <= _MIN_POINTS and high >= -_MIN_POINTS:
            return LossPart(name, items, points)
        load_points = self._load_points(share)
        may_be_load = min(abs(low), abs(high)) <= load_points
        return LossPart(
            name,
            items,
            points,
            is_significant=not may_be_load,
            may_be_load=may_be_load,
            load_points=load_points,
        )

    def _load_points(self, share: Share) -> float:
        """Return the points that the load of other processes may explain."""
        rows = {key: self._by_key[key] for key in share.keys}
        rates = [_require_rate(row).value for row in rows.values()]
        function = _make_share_function(share, rows)
        points = 0.0
        for i, row in enumerate(rows.values()):
            slowing = row.max_slowing
            effect = ALL * rates[i] * abs(find_slope(function, rates, i))
            if slowing and effect:
                points += effect * slowing / (1 - slowing) if slowing < 1 else math.inf
        return points

    def _list_part_changes(self) -> Iterator[tuple[LossPartName, dict[str, Any]]]:
        """Yield (part, changes to the row) from the ideal to the row itself.

        Each part is the efficiency before minus the efficiency with these changes.
        """
        config = self._row.options
        mode = registry.find_mode(config["variable_update"])
        data_source = registry.find_input_free_source(config["data_source"])
        device = {"data_source": data_source}
        yield (CONTENTION, {**device, "variable_update": mode.exchange_free_mode})
        if mode.trains_one_model:
            yield (EXCHANGE, device)
        if config["data_source"] != data_source:
            yield (INPUT, {})

    def _max_efficiency(self, efficiencies: Iterable[Share]) -> float:
        """Return the efficiency that devices which share cores can reach.

        Returns:
          1.0 if they do not share any, or if that bound is refuted by a row of the
          table or by one of these efficiencies.
        """
        cores = disturbance.count_shared_cores(self._row.good_runs)
        if not cores or self._is_refuted:
            return 1.0
        bound = compute_max_efficiency(self._n, cores)
        for efficiency in efficiencies:
            if efficiency.missing:
                continue
            if _find_low_end(self._to_points(efficiency)) > ALL * bound:
                return 1.0
        return bound

    def _split_efficiency_loss(
        self, efficiencies: Mapping[LossPartName, Share], max_efficiency: float
    ) -> dict[LossPartName, Share]:
        """Return each part as a share of the ideal."""
        config = self._row.options
        # Rate of one device with a tower's share / with the whole batch.
        fixed_factor = _ONE
        shares: dict[LossPartName, Share] = {}
        if config["global_batch_size"]:
            fixed_factor = self._compare_rates({}, self._tower_changes, self._base_key)
            shares[FIXED] = _ONE - fixed_factor
        if max_efficiency < 1:
            bound = Share(lambda rates: max_efficiency)
            efficiencies = {OVERSUBSCRIPTION: bound, **efficiencies}
        previous = _ONE
        for name, efficiency in efficiencies.items():
            shares[name] = (previous - efficiency) * fixed_factor
            previous = efficiency
        slack = self._row.imbalance
        if slack or config["data_source"] != "device":
            shares[IMBALANCE] = self._measured_efficiency().scaled(slack)
        return shares

    def _efficiency_with(self, changes: Mapping[str, Any]) -> Share:
        """Return the efficiency of the row with some changes, and even towers."""
        key = self._row.key_with(**changes)
        slack = self._by_key[key].imbalance if key in self._by_key else 0.0
        speedup = self._compare_rates({**changes, **self._tower_changes}, changes)
        return speedup.scaled((1 + slack) / self._n)

    def _compare_rates(
        self,
        denominator_changes: Mapping[str, Any],
        numerator_changes: Mapping[str, Any],
        denominator: Key | None = None,
    ) -> Share:
        """Return the ratio of the rates of the row with two sets of changes.

        Args:
          denominator: The key of the denominator, if it is not the row with changes.
        """
        denominator = denominator or self._row.key_with(**denominator_changes)
        numerator = self._row.key_with(**numerator_changes)
        missing_changes = []
        if denominator not in self._by_key:
            missing_changes.append(denominator_changes)
        if numerator not in self._by_key:
            missing_changes.append(numerator_changes)
        interval = None
        if numerator != denominator and not missing_changes:
            interval = divide_rates(
                _require_rate(self._by_key[numerator]),
                _require_rate(self._by_key[denominator]),
            )
        return Share(
            lambda rates: rates[numerator] / rates[denominator],
            frozenset((denominator, numerator)),
            interval,
            tuple(missing_changes),
        )

    def _to_points(self, share: Share) -> Interval:
        """Return a share in points of efficiency, with ends that can be lost."""
        if share.interval:
            points = share.interval.scaled(ALL)
        else:
            rates = {key: _require_rate(self._by_key[key]) for key in share.keys}
            function = _make_share_function(share, rates)
            points = combine(
                lambda *values: ALL * function(*values), list(rates.values())
            )
        if points.ends is not None and max(map(abs, points.ends)) <= ROUNDING:
            return dataclasses.replace(points, value=0.0, low=0.0, high=0.0)
        return points.capped(ALL)

    def _to_items_per_s(self, points: Interval) -> Interval:
        """Return points of efficiency in items/s."""
        return points.scaled(self._ideal.value / ALL)


def _make_share_function(share: Share, keys: Iterable[Key]) -> Callable[..., float]:
    """Return the value of a share as a function of one rate per key."""
    return lambda *values: share.value(dict(zip(keys, values)))


def _require_rate(row: Row) -> Interval:
    if row.rate is None:
        raise ValueError("expected a row with at least one good run")
    return row.rate
