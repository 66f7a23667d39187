"""Where the ideal goes: n x items/s(1) - items/s(n), split into parts that add up to it, each with its interval.

The parts are steps between efficiencies that were measured, each against its own one device. With X(mode, n, data) in
items/s, m the row's mode, d its data source, i the mode without any exchange, a tower's batch size the same everywhere,
and E(m,n,d) = X(m,n,d) / (n X(m,1,d)):

    contention  = 1 - E(i,n,device)
    exchange    = E(i,n,device) - E(m,n,device)
    input       = E(m,n,device) - E(m,n,d)
    imbalance   = E(m,n,d) x slack; the other parts use E x (1 + slack), what evenly loaded towers would reach

times the ideal n X(m,1,d). In strong scaling, with f = X(m,1,d) with a tower's share / X(m,1,d) with the whole batch,
fixed cost = 1 - f, and the other parts are multiplied by f. Where n devices of a CPU share c < n cores,
oversubscription = 1 - c/n, and contention = c/n - E(i,n,device). That is computed from the assumption that every device
keeps a core busy. If the efficiency of any row of the table is known to be above its c/n, no row has this part.

What is not known stays in the residual: where a run is missing, the command that supplies it is named. A part is told
if its interval excludes 0 by more than other processes may have taken. docs/methods/attribution.md explains the method.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.confidence import Interval, combine, ratio, slope
from rnn_scaling.analysis.keys import Key
from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.analysis.rows import Row, measured_batches
from rnn_scaling.analysis.significance import foreseen_effect, more_repeats
from rnn_scaling.analysis.statements import Word
from rnn_scaling.config import registry, scale
from rnn_scaling.config.spelling import command
from rnn_scaling.system.machine.cores import most_of_ideal


class Part(Word):
    """A part of an efficiency loss, in the order of tables and colours."""

    OVERSUBSCRIPTION = "oversubscription"
    FIXED = "fixed cost"
    CONTENTION = "contention"
    EXCHANGE = "exchange"
    INPUT = "input"
    IMBALANCE = "imbalance"
    UNEXPLAINED = "the rest"


OVERSUBSCRIPTION, FIXED, CONTENTION, EXCHANGE, INPUT, IMBALANCE, UNEXPLAINED = Part
ALL = 100.0  # points of efficiency: more than that cannot be lost
# In points of efficiency: rounding of floating point, and the least that is not 0.000.
ROUNDING = 1e-9
LEAST = 5e-4
Rates = Mapping[Key, float]  # items/s of each row


@dataclasses.dataclass(frozen=True)
class Share:
    """A number, or a part of the ideal, as a function of the rates of the rows with these keys."""

    value: Callable[[Rates], float]
    keys: frozenset[Key] = frozenset()
    interval: Interval | None = (
        None  # of a share that is one ratio, made on the scale of logarithms
    )
    missing: tuple[
        Mapping[str, Any], ...
    ] = ()  # options of runs without which it is not known

    def __sub__(self, share: Share) -> Share:
        interval = None
        if not self.keys and share.interval:
            interval = share.interval.subtracted_from(self.value({}))
        elif self.interval and not (share.keys or share.missing):
            interval = self.interval.shifted(-share.value({}))
        missing = self.missing + share.missing
        return Share(
            lambda rates: self.value(rates) - share.value(rates),
            self.keys | share.keys,
            interval,
            missing,
        )

    def __mul__(self, share: Share) -> Share:
        if share is ONE:
            return self
        missing = self.missing + share.missing
        return Share(
            lambda rates: self.value(rates) * share.value(rates),
            self.keys | share.keys,
            missing=missing,
        )


ONE = Share(lambda rates: 1.0)
NOTHING = Share(lambda rates: 0.0)


@dataclasses.dataclass(frozen=True)
class LossPart:
    """One share of the loss; `value` and `points` are None where a run is missing."""

    name: Part
    value: Interval | None  # as a share of the ideal, in items/s
    points: Interval | None  # the same in percentage points of efficiency
    commands: tuple[str, ...] = ()  # that supply a missing run, if our trainer makes it
    is_significant: bool = False  # it can be told apart from 0
    may_be_load: bool = (
        False  # its interval excludes 0, but other processes may have used that much
    )


@dataclasses.dataclass(frozen=True)
class Attribution:
    """One row's loss against n times its baseline: known parts + residual, or parts that differ from 0 + rest."""

    row: Row
    ideal: Interval  # in items/s, as loss and residual
    loss: Interval
    parts: tuple[
        LossPart, ...
    ]  # every part, also those that need a missing run and those within the noise
    residual: Interval
    loss_points: Interval  # in percentage points of efficiency, as residual_points
    residual_points: Interval
    unexplained: LossPart  # what is left of the loss without the parts that are told
    rows: tuple[Row, ...]  # all whose rates the loss and its parts are made of
    # The efficiency that devices which share cores can reach; 1 if they do not share
    # any, or if a row of the table is known to have reached more than its own share.
    max_efficiency: float = 1.0
    is_bound: bool = False  # no row of the table is above what its cores allow

    @property
    def significant_parts(self) -> tuple[LossPart, ...]:
        """The parts that differ from 0, the largest loss first."""
        parts = [
            (part.points.value, part)
            for part in self.parts
            if part.is_significant and part.points
        ]
        return tuple(part for _, part in sorted(parts, key=lambda pair: -pair[0]))

    @property
    def is_significant(self) -> bool:
        """Whether there is anything to show: a table or a picture of the parts would else draw noise."""
        return bool(self.significant_parts)

    @property
    def is_split(self) -> bool:
        """Whether parts are named: what is named adds up to a loss that can be told from 0, or is all of it."""
        ends = self.loss_points.ends
        rest = self.unexplained.points
        is_all = self.is_significant and (
            self.unexplained.is_significant or rest is None or rest.ends == (0.0, 0.0)
        )
        return ends is not None and ends[1] >= 0 and (ends[0] > 0 or is_all)

    @property
    def displayed_parts(self) -> tuple[LossPart, ...]:
        """What a table or a picture shows: the told parts, then the rest where there is one; empty without any."""
        points = self.unexplained.points
        return (
            (
                *self.significant_parts,
                *([self.unexplained] if points and points.ends != (0.0, 0.0) else []),
            )
            if self.is_significant
            else ()
        )

    @property
    def missing(self) -> tuple[LossPart, ...]:
        """The parts of a loss that missing runs of our trainer would show; none if nothing is lost."""
        is_lost = (self.loss_points.ends or (self.loss_points.value,))[0] > 0
        return tuple(part for part in self.parts if part.commands and is_lost)

    def would_show(self) -> tuple[int, float | None]:
        """(useful number of repeats, smallest loss in points that they show in 80 of 100 cases; None: unknown)."""
        values = [part.points for part in self.parts if part.points] or [
            self.loss_points
        ]
        now, repeats = more_repeats(values)
        errors = [
            (value.standard_error, value.degrees)
            for value in values
            if value.standard_error
        ]
        if not errors:
            return repeats, None
        effects = [
            foreseen_effect(error, degrees, now, repeats) for error, degrees in errors
        ]
        return repeats, min(
            ALL, max(effects) + max(value.rounding_half_width for value in values)
        )


def attribute_all(
    wanted: Sequence[Row], rows: Sequence[Row]
) -> list[Attribution | None]:
    """Splits the loss of the wanted rows; None on one device, without a good run or without its baseline."""
    rows_with_baselines = [
        row for scaled in wanted for row in (scaled.baseline, scaled) if row is not None
    ]
    by_key = {
        row.key: row for row in (*rows, *rows_with_baselines) if row.rate is not None
    }
    above_cores = [
        interval for row in by_key.values() if (interval := _above_cores(row))
    ]
    is_refuted = any((above.ends or (above.value,))[0] > 0 for above in above_cores)
    is_bound = all(above.value <= 0 for above in above_cores)
    losses = []
    for row in wanted:
        base = row.baseline if row.num_devices > 1 and row.rate else None
        losses.append(
            _Attributor(row, base, by_key, is_refuted, is_bound).attribute()
            if base and base.rate
            else None
        )
    return losses


def _above_cores(row: Row) -> Interval | None:
    """Return by how much a row's efficiency exceeds what its cores allow.

    Returns:
      A share of the ideal, negative below the bound; None if the row's devices do
      not share cores, or its efficiency is unknown.
    """
    cores = disturbance.shared_cores(row.good_runs)
    efficiency = row.metric(EFFICIENCY) if row.num_devices > 1 else None
    if not cores or efficiency is None:
        return None
    return efficiency.shifted(-most_of_ideal(row.num_devices, cores))


class _Attributor:
    def __init__(
        self,
        row: Row,
        base: Row,
        by_key: Mapping[Key, Row],
        is_refuted: bool,
        is_bound: bool,
    ) -> None:
        self._row = row
        self._base = base.key
        self._n = row.num_devices
        self._by_key = by_key
        self._is_refuted = is_refuted
        self._is_bound = is_bound
        self._ideal = _rate(base).scaled(row.num_devices)
        total = row.options["global_batch_size"]
        share = (
            {"global_batch_size": 0, "batch_size": -(-total // self._n)}
            if total
            else {}
        )
        self._one: dict[str, Any] = {**scale.ON_ONE_DEVICE, **share}

    def attribute(self) -> Attribution:
        n = self._n
        mine = self._row.key
        base = self._base
        efficiency = self._row.metric(EFFICIENCY)
        lost = efficiency and efficiency.subtracted_from(1.0)
        loss = Share(
            lambda rates: 1 - rates[mine] / (n * rates[base]),
            frozenset({mine, base}),
            lost,
        )
        reached = {name: self._efficiency(changes) for name, changes in self._chain()}
        most = self._most(reached.values())
        levels = self._levels(reached, most)
        parts = tuple(self._part(name, level) for name, level in levels.items())
        known = [level for level in levels.values() if not level.missing]
        reported = [levels[part.name] for part in parts if part.is_significant]
        residual, rest = (
            functools.reduce(operator.sub, some, loss)
            if len(some) < len(levels)
            else NOTHING
            for some in (known, reported)
        )
        residual_points = self._points(residual)
        loss_points = self._points(loss)
        return Attribution(
            row=self._row,
            ideal=self._ideal,
            loss=self._items(loss_points),
            parts=parts,
            residual=self._items(residual_points),
            loss_points=loss_points,
            residual_points=residual_points,
            unexplained=self._part(UNEXPLAINED, rest),
            rows=tuple(
                row
                for key, row in self._by_key.items()
                if key in loss.keys.union(*[level.keys for level in known])
            ),
            max_efficiency=most,
            is_bound=self._is_bound and most < 1,
        )

    def _part(self, name: Part, level: Share) -> LossPart:
        if level.missing:
            runs = level.missing if self._row.is_ours else ()
            return LossPart(
                name,
                None,
                None,
                tuple(dict.fromkeys(command(self._row.options, **run) for run in runs)),
            )
        points = self._points(level)
        if points.ends is None or points.ends[0] <= LEAST and points.ends[1] >= -LEAST:
            return LossPart(name, self._items(points), points)
        may_be_load = min(map(abs, points.ends)) <= self._by_load(level)
        return LossPart(
            name,
            self._items(points),
            points,
            is_significant=not may_be_load,
            may_be_load=may_be_load,
        )

    def _by_load(self, level: Share) -> float:
        """Points of efficiency by which the level may be wrong, for other processes slowed the rows it is made of."""
        rows = {key: self._by_key[key] for key in level.keys}
        rates = [_rate(row).value for row in rows.values()]
        wrong = 0.0
        for i, row in enumerate(rows.values()):
            taken = disturbance.max_slowing(row.counted_runs)
            moved = (
                ALL
                * rates[i]
                * abs(
                    slope(
                        lambda *values: level.value(dict(zip(rows, values))), rates, i
                    )
                )
            )
            if taken and moved:
                wrong += moved * taken / (1 - taken) if taken < 1 else math.inf
        return wrong

    def _chain(self) -> list[tuple[Part, dict[str, Any]]]:
        """(part, the changes to the row whose efficiency it ends at), from the ideal down to the row itself."""
        config = self._row.options
        device = {"data_source": registry.without_input(config["data_source"])}
        alone = registry.mode_of(config["variable_update"]).without_exchange
        chain: list[tuple[Part, dict[str, Any]]] = [
            (CONTENTION, {**device, "variable_update": alone})
        ]
        if registry.mode_of(config["variable_update"]).trains_one_model:
            chain.append((EXCHANGE, device))
        if config["data_source"] not in device.values():
            chain.append((INPUT, {}))
        return chain

    def _most(self, reached: Iterable[Share]) -> float:
        """Return the efficiency that devices which share cores can reach.

        Returns:
          1.0 if they do not share any, or if that bound is refuted by a row of the
          table or by one of these efficiencies.
        """
        cores = disturbance.shared_cores(self._row.good_runs)
        if not cores or self._is_refuted:
            return 1.0
        most = most_of_ideal(self._n, cores)
        for level in reached:
            points = None if level.missing else self._points(level)
            if points and (points.ends or (points.value,))[0] > ALL * most:
                return 1.0
        return most

    def _levels(self, reached: Mapping[Part, Share], most: float) -> dict[Part, Share]:
        """Each part, by name, as a share of the ideal; `most`: what devices that share cores can reach."""
        config = self._row.options
        n = self._n
        mine = self._row.key
        base = self._base
        of_ideal = before = (
            ONE  # of_ideal: one device with a tower's share, of one with the whole batch
        )
        parts: dict[Part, Share] = {}
        if config["global_batch_size"]:
            of_ideal = self._ratio({}, self._one, base)
            parts[FIXED] = ONE - of_ideal
        if most < 1:
            reached = {OVERSUBSCRIPTION: Share(lambda rates: most), **reached}
        for name, after in reached.items():
            parts[name] = (before - after) * of_ideal
            before = after
        slack = imbalance(self._row)
        if slack or config["data_source"] != "device":
            efficiency = self._row.metric(EFFICIENCY)
            lost = efficiency.scaled(slack) if efficiency and slack else None
            used = frozenset({mine, base})
            parts[IMBALANCE] = Share(
                lambda rates: slack * rates[mine] / (n * rates[base]), used, lost
            )
        return parts

    def _efficiency(self, changes: Mapping[str, Any]) -> Share:
        """Of the row with these changes, against its own one device, as if its towers were evenly loaded."""
        many = self._row.key_with(**changes)
        slack = imbalance(self._by_key[many]) if many in self._by_key else 0.0
        level = self._ratio({**changes, **self._one}, changes, None)
        reached = level.value
        factor = (1 + slack) / self._n
        interval = level.interval and level.interval.scaled(factor)
        return Share(
            lambda rates: reached(rates) * factor, level.keys, interval, level.missing
        )

    def _ratio(
        self, below: Mapping[str, Any], above: Mapping[str, Any], key_below: Key | None
    ) -> Share:
        """items/s of the row with the changes `above` over that with the changes `below` (or of `key_below`)."""
        bottom = key_below or self._row.key_with(**below)
        top = self._row.key_with(**above)
        missing = [
            changes
            for key, changes in ((bottom, below), (top, above))
            if key not in self._by_key
        ]
        interval = None
        if top != bottom and not missing:
            interval = ratio(_rate(self._by_key[top]), _rate(self._by_key[bottom]))
        return Share(
            lambda rates: rates[top] / rates[bottom],
            frozenset((bottom, top)),
            interval,
            tuple(missing),
        )

    def _points(self, level: Share) -> Interval:
        """In points of efficiency; no end is beyond what can be lost."""
        rates = {key: _rate(self._by_key[key]) for key in level.keys}
        function = level.value
        if level.interval:
            points = level.interval.scaled(ALL)
        else:
            points = combine(
                lambda *values: ALL * function(dict(zip(rates, values))),
                list(rates.values()),
            )
        is_nothing = points.ends is not None and max(map(abs, points.ends)) <= ROUNDING
        return (
            dataclasses.replace(points, value=0.0, low=0.0, high=0.0)
            if is_nothing
            else points.capped(ALL)
        )

    def _items(self, points: Interval) -> Interval:
        """The same share of the ideal, in items/s."""
        return points.scaled(self._ideal.value / ALL)


def _rate(row: Row) -> Interval:
    if row.rate is None:
        raise ValueError("expected a row with a good run")
    return row.rate


def imbalance(row: Row) -> float:
    """How much faster the row would be if every step's positions were spread evenly over its towers; 0: not at all.

    A step of t seconds, whose slowest tower decides, would have taken t x mean / max of the towers' positions.
    """
    seconds = balanced = 0.0
    for record in row.good_runs:
        if not record.batches.tower_positions:
            return 0.0
        step_s, _ = measured_batches(record)
        for time_s, towers in zip(
            step_s, record.batches.tower_positions[record.batches.warmup :]
        ):
            seconds += time_s
            balanced += time_s * (
                sum(towers) / (len(towers) * max(towers))
            )  # of even towers exactly the time
    return (
        max(0.0, seconds / balanced - 1) if balanced else 0.0
    )  # rounding alone can make even towers a gain


def padding(row: Row) -> float | None:
    """Share of the computed positions that are padding; None where the record does not tell."""
    items = positions = 0
    for record in row.good_runs:
        first = record.batches.warmup
        items += sum(sum(towers) for towers in record.batches.tower_items[first:])
        positions += sum(
            sum(towers) for towers in record.batches.tower_positions[first:]
        )
    return 1 - items / positions if positions else None
