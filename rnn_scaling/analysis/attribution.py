"""Where the ideal goes: n x items/s(1) - items/s(n), split into parts that add up to it, each with its interval.

The parts are steps between efficiencies that were measured, each against its own one device, so that a mode or a data
source that is slower on one device already is not charged for that. With X(mode, n, data) in items/s, m the row's mode,
d its data source, a tower's batch size the same everywhere, and E(m,n,d) = X(m,n,d) / (n X(m,1,d)):

    contention  = 1 - E(independent,n,device)
    exchange    = E(independent,n,device) - E(m,n,device)
    input       = E(m,n,device) - E(m,n,d)
    imbalance   = E(m,n,d) x slack; the other parts use E x (1 + slack), what evenly loaded towers would reach

times the ideal n X(m,1,d). In strong scaling one device has the whole batch of the ideal, so with f = X(m,1,d) with a
tower's share / X(m,1,d) with the whole batch

    fixed cost  = 1 - f, and the other parts are multiplied by f.

What is not known stays in the residual: where a run is missing, the command that supplies it is named. With every run
the residual is 0 by construction. The slack counts as exact, and assumes that a tower's time is proportional to its
positions, so imbalance is an upper bound and what is wrong with it is in its neighbours.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rnn_scaling import registry
from rnn_scaling.analysis.confidence import Interval, combine
from rnn_scaling.analysis.rows import Key, Row, measured_batches, work_key
from rnn_scaling.settings.spelling import command

FIXED, CONTENTION, EXCHANGE, INPUT, IMBALANCE = "fixed cost", "contention", "exchange", "input", "imbalance"
MEANING = {
    FIXED: "what a step costs however small a tower's share of the batch is",
    CONTENTION: "what independent replicas lose too: shared memory, caches, clocks and host threads",
    EXCHANGE: "what the mode loses beyond independent replicas: gradients and variables on their way",
    INPUT: "what the data source costs beyond items that are drawn on the device",
    IMBALANCE: "waiting for the tower with the longest sentences",
}


@dataclasses.dataclass(frozen=True)
class Part:
    """One share of the loss: `value` in items/s, `points` in percentage points of efficiency.

    Both are None where a run is missing, and `commands` then supply it. The uncertainty of the ideal is in the points.
    """

    name: str
    value: Interval | None
    points: Interval | None
    commands: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Attribution:
    """One row's loss against n times its baseline. loss = sum of the known parts + residual."""

    row: Row
    ideal: Interval
    loss: Interval
    parts: tuple[Part, ...]
    residual: Interval
    loss_points: Interval
    residual_points: Interval

    def points(self, value: Interval) -> float:
        """A loss in percentage points of efficiency."""
        return 100 * value.value / self.ideal.value


def attribute(row: Row, rows: Sequence[Row]) -> Attribution | None:
    """Splits one row's loss; None on one device, without a good run or without its baseline.

    Args:
      row: the configuration.
      rows: all rows of the report, in which the runs that the parts need are looked for.
    """
    return attribute_all([row], rows)[0]


def attribute_all(wanted: Sequence[Row], rows: Sequence[Row]) -> list[Attribution | None]:
    """`attribute` for each of the wanted rows; `rows` are indexed once."""
    by_key = {each.key: each for each in rows if each.rate is not None}
    return [_attribute(row, by_key) for row in wanted]


def _attribute(row: Row, by_key: Mapping[Key, Row]) -> Attribution | None:
    base = row.baseline
    if row.num_devices == 1 or row.rate is None or base is None or base.rate is None:
        return None
    return _Attributor(row, base, by_key).attribute()


Rates = Mapping[Key, float]  # items/s of each row
Share = Callable[[Rates], float]  # a number, or a part of the ideal, as a function of the rates


@dataclasses.dataclass(frozen=True)
class _Level:
    """An efficiency as a function of the rates of the rows with these keys."""

    value: Share
    keys: frozenset[Key] = frozenset()


@dataclasses.dataclass(frozen=True)
class _Missing:
    """An efficiency for which runs are missing; the commands that supply them."""

    commands: tuple[str, ...]


ONE = _Level(lambda rates: 1.0)


class _Attributor:
    def __init__(self, row: Row, base: Row, by_key: Mapping[Key, Row]) -> None:
        self._row, self._base, self._n = row, base.key, row.num_devices
        self._by_key = {**by_key, row.key: row, base.key: base}
        total = row.config["global_batch_size"]
        share = {"global_batch_size": 0, "batch_size": -(-total // self._n)} if total else {}
        self._one: dict[str, Any] = {"num_devices": 1, **share}

    def attribute(self) -> Attribution:
        n, mine, base = self._n, self._row.key, self._base
        loss = _Level(lambda rates: 1 - rates[mine] / (n * rates[base]), frozenset({mine, base}))
        levels = self._levels()
        known = [level for level in levels.values() if isinstance(level, _Level)]
        rest = _Level(lambda rates: 0.0)
        if len(known) < len(levels):
            keys = loss.keys.union(*(level.keys for level in known))
            rest = _Level(lambda rates: loss.value(rates) - math.fsum(k.value(rates) for k in known), keys)
        return Attribution(
            row=self._row,
            ideal=self._interval(lambda rates: n * rates[base], [base]),
            loss=self._items(loss),
            parts=tuple(
                Part(name, None, None, level.commands)
                if isinstance(level, _Missing)
                else Part(name, self._items(level), self._points(level))
                for name, level in levels.items()
            ),
            residual=self._items(rest),
            loss_points=self._points(loss),
            residual_points=self._points(rest),
        )

    def _levels(self) -> dict[str, _Level | _Missing]:
        """Each part, by name, as a share of the ideal."""
        config, n, mine, base = self._row.config, self._n, self._row.key, self._base
        device = {"data_source": "device"}
        chain: list[tuple[str, dict[str, Any]]] = [(CONTENTION, {**device, "variable_update": "independent"})]
        if registry.trains_one_model(config["variable_update"]):
            chain.append((EXCHANGE, device))
        if config["data_source"] != "device":
            chain.append((INPUT, {}))
        scale: _Level | _Missing = ONE
        before: _Level | _Missing = ONE
        parts: dict[str, _Level | _Missing] = {}
        if config["global_batch_size"]:
            scale = self._ratio({}, self._one, base)
            parts[FIXED] = _difference(ONE, scale, ONE)
        for name, changes in chain:
            after = self._efficiency(changes)
            parts[name] = _difference(before, after, scale)
            before = after
        slack = imbalance(self._row)
        if slack or config["data_source"] != "device":
            parts[IMBALANCE] = _Level(lambda rates: slack * rates[mine] / (n * rates[base]), frozenset({mine, base}))
        return parts

    def _efficiency(self, changes: Mapping[str, Any]) -> _Level | _Missing:
        """Of the row with these changes, against its own one device, as if its towers were evenly loaded."""
        many = work_key(self._row.config, **changes)
        slack = imbalance(self._by_key[many]) if many in self._by_key else 0.0
        level = self._ratio({**changes, **self._one}, changes, None)
        if isinstance(level, _Missing):
            return level
        reached = level.value
        return dataclasses.replace(level, value=lambda rates: reached(rates) * (1 + slack) / self._n)

    def _ratio(self, below: Mapping[str, Any], above: Mapping[str, Any], key_below: Key | None) -> _Level | _Missing:
        """items/s of the row with the changes `above` over that with the changes `below` (or of `key_below`)."""
        keys, commands = [], []
        for changes, key in ((below, key_below), (above, None)):
            key = key or work_key(self._row.config, **changes)
            keys.append(key)
            if key not in self._by_key:
                commands.append(command(self._row.config, **changes))
        if commands:
            return _Missing(tuple(commands))
        bottom, top = keys
        return _Level(lambda rates: rates[top] / rates[bottom], frozenset(keys))

    def _interval(self, function: Share, keys: Iterable[Key]) -> Interval:
        rates = {key: rate for key in keys if (rate := self._by_key[key].rate) is not None}
        return combine(lambda *values: function(dict(zip(rates, values))), list(rates.values()))

    def _items(self, level: _Level) -> Interval:
        """In items/s: times the ideal."""
        if not level.keys:
            return self._interval(level.value, [])
        base = self._base
        return self._interval(lambda rates: level.value(rates) * self._n * rates[base], level.keys | {base})

    def _points(self, level: _Level) -> Interval:
        return self._interval(lambda rates: 100 * level.value(rates), level.keys)


def _difference(before: _Level | _Missing, after: _Level | _Missing, scale: _Level | _Missing) -> _Level | _Missing:
    """(before - after) x scale; unknown where one of them is."""
    levels = (before, after, scale)
    if missing := [each for each in levels if isinstance(each, _Missing)]:
        return _Missing(tuple(dict.fromkeys(command for each in missing for command in each.commands)))
    first, second, factor = (each for each in levels if isinstance(each, _Level))
    keys = first.keys | second.keys | factor.keys
    return _Level(lambda rates: (first.value(rates) - second.value(rates)) * factor.value(rates), keys)


def imbalance(row: Row) -> float:
    """How much faster the row would be if every step's positions were spread evenly over its towers; 0: not at all.

    A step takes as long as its slowest tower, and a tower as long as it has positions (items and padding), so step k
    of t seconds would have taken t x mean / max of the towers' positions.
    """
    seconds = balanced = 0.0
    for record in row.good:
        if not record.batches.tower_positions:
            return 0.0
        step_s, _ = measured_batches(record)
        for time_s, towers in zip(step_s, record.batches.tower_positions[record.batches.warmup :]):
            seconds += time_s
            balanced += time_s * sum(towers) / len(towers) / max(towers)
    return seconds / balanced - 1 if balanced else 0.0


def padding(row: Row) -> float | None:
    """Share of the computed positions that are padding; None where the record does not tell."""
    items = positions = 0
    for record in row.good:
        first = record.batches.warmup
        items += sum(sum(towers) for towers in record.batches.tower_items[first:])
        positions += sum(sum(towers) for towers in record.batches.tower_positions[first:])
    return 1 - items / positions if positions else None
