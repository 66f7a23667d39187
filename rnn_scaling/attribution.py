"""Where the ideal goes: n x words/s(1) - words/s(n), split into parts that add up to it, each with its interval.

The parts are differences between rows that were measured, chosen so that they telescope. With X(mode, n, data) in
words/s, m the row's mode, d its data source, and a tower's batch size the same everywhere:

    fixed cost  = n [X(m,1,d) with the whole batch - X(m,1,d) with a tower's share]        strong scaling only
    contention  = n X(independent,1,device) - X(independent,n,device)
    exchange    = [X(independent,n,device) - X(m,n,device)] - n [X(independent,1,device) - X(m,1,device)]
    input       = [X(m,n,device) - X(m,n,d)] - n [X(m,1,device) - X(m,1,d)] - imbalance
    imbalance   = X(m,n,d) x (what the slowest tower's positions cost over the mean's - 1)
    residual    = the loss less all parts that are known

Where a run is missing its parts are unknown, stay in the residual, and the command that supplies the run is named.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling import config as configs
from rnn_scaling import rules
from rnn_scaling.rows import NOT_COMPARED, Key, Row, measured_batches, work_key
from rnn_scaling.statistics import Interval, combine

Coefficients = Mapping[int, float]  # of each row, by its id
FIXED, CONTENTION, EXCHANGE, INPUT, IMBALANCE = "fixed cost", "contention", "exchange", "input", "imbalance"
MEANING = {
    FIXED: "what a step costs however small a tower's share of the batch is",
    CONTENTION: "what independent replicas lose too: shared memory, caches, clocks and host threads",
    EXCHANGE: "what the mode loses beyond independent replicas: gradients and variables on their way",
    INPUT: "what the data source costs beyond words that are drawn on the device",
    IMBALANCE: "waiting for the tower with the longest sentences",
}


@dataclasses.dataclass(frozen=True)
class Part:
    """One share of the loss: `value` in words/s, `points` in percentage points of efficiency.

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
    return [_Attributor(row, by_key).attribute() if _has_loss(row) else None for row in wanted]


def _has_loss(row: Row) -> bool:
    return row.num_devices > 1 and None not in (row.rate, row.baseline, row.baseline and row.baseline.rate)


class _Attributor:
    def __init__(self, row: Row, by_key: Mapping[Key, Row]) -> None:
        self._row, self._n, self._by_key = row, row.num_devices, by_key
        self._used: dict[int, Row] = {}

    def attribute(self) -> Attribution:
        row, n = self._row, self._n
        config = row.config
        total = config["global_batch_size"]
        share = {"global_batch_size": 0, "batch_size": -(-total // n)} if total else {}
        one = {"num_devices": 1, **share}
        loss = _sum(self._times(n, row.baseline), self._times(-1, row))
        terms: list[tuple[str, list[tuple[float, dict[str, Any]]]]] = []
        if total:
            terms.append((FIXED, [(n, {"num_devices": 1}), (-n, one)]))
        device, independent = {"data_source": "device"}, {"variable_update": "independent", "data_source": "device"}
        terms.append((CONTENTION, [(n, {**one, **independent}), (-1, independent)]))
        if config["variable_update"] != "independent":
            here = [(-1, device), (n, {**one, **device})]
            terms.append((EXCHANGE, [(1, independent), (-n, {**one, **independent}), *here]))
        parts, known = [], {}
        for name, wanted in terms:
            part, coefficients = self._part(name, wanted)
            parts.append(part)
            known = _sum(known, coefficients)
        if config["data_source"] != "device":
            slack = imbalance(row)
            waited = {id(row): slack} if slack else {}
            waiting = _sum(self._times(0, row), waited)
            parts.append(Part(IMBALANCE, self._interval(waiting), self._points(waiting)))
            here = [(1, device), (-1, {}), (-n, {**one, **device}), (n, one)]
            part, coefficients = self._part(INPUT, here, less=waited)
            parts.append(part)
            known = _sum(known, waited, coefficients)
        residual = _sum(loss, {key: -value for key, value in known.items()})
        ideal = self._interval({id(row.baseline): n})
        return Attribution(
            row=row,
            ideal=ideal,
            loss=self._interval(loss),
            parts=tuple(parts),
            residual=self._interval(residual),
            loss_points=self._points(loss),
            residual_points=self._points(residual),
        )

    def _part(
        self, name: str, wanted: Sequence[tuple[float, dict[str, Any]]], less: Coefficients | None = None
    ) -> tuple[Part, Coefficients]:
        coefficients: Coefficients = {}
        commands = []
        for factor, changes in wanted:
            found = self._by_key.get(work_key(self._row.config, **changes))
            if found is None:
                commands.append(command(self._row.config, **changes))
            else:
                coefficients = _sum(coefficients, self._times(factor, found))
        if commands:
            return Part(name, None, None, tuple(dict.fromkeys(commands))), {}
        coefficients = _sum(coefficients, {key: -value for key, value in (less or {}).items()})
        return Part(name, self._interval(coefficients), self._points(coefficients)), coefficients

    def _times(self, factor: float, row: Row) -> Coefficients:
        self._used[id(row)] = row
        return {id(row): factor}

    def _interval(self, coefficients: Coefficients) -> Interval:
        used = [(factor, self._used[key].rate) for key, factor in coefficients.items() if factor]
        factors = [factor for factor, _ in used]
        return combine(lambda *rates: math.fsum(f * x for f, x in zip(factors, rates)), [rate for _, rate in used])

    def _points(self, coefficients: Coefficients) -> Interval:
        """Percentage points of the ideal, which is one of the uncertain rates itself."""
        base = id(self._row.baseline)
        used = {key: factor for key, factor in coefficients.items() if factor}
        if not used:
            return self._interval({})
        used.setdefault(base, 0.0)
        factors, at = list(used.values()), list(used).index(base)

        def share(*rates: float) -> float:
            return 100 * math.fsum(f * x for f, x in zip(factors, rates)) / (self._n * rates[at])

        return combine(share, [self._used[key].rate for key in used])


def _sum(*terms: Coefficients) -> Coefficients:
    total: dict[int, float] = {}
    for term in terms:
        for key, factor in term.items():
            total[key] = total.get(key, 0.0) + factor
    return total


def imbalance(row: Row) -> float:
    """How much faster the row would be if every step's positions were spread evenly over its towers; 0: not at all.

    A step takes as long as its slowest tower, and a tower as long as it has positions (words and padding), so step k
    of t seconds would have taken t x mean / max of the towers' positions.
    """
    seconds = balanced = 0.0
    for record in row.good:
        first = record.batches["warmup"]
        positions = record.batches.get("tower_positions") or []
        step_s, _ = measured_batches(record)
        if len(positions) != len(record.batches["seconds"]):
            return 0.0
        for time_s, towers in zip(step_s, positions[first:]):
            seconds += time_s
            balanced += time_s * sum(towers) / len(towers) / max(towers)
    return seconds / balanced - 1 if balanced else 0.0


def padding(row: Row) -> float | None:
    """Share of the computed positions that are padding; None where the record does not tell."""
    words = positions = 0
    for record in row.good:
        first = record.batches["warmup"]
        words += sum(sum(towers) for towers in record.batches.get("tower_words", [])[first:])
        positions += sum(sum(towers) for towers in record.batches.get("tower_positions", [])[first:])
    return 1 - words / positions if positions else None


def command(config: Mapping[str, Any], **changes: Any) -> str:
    """The sweep that runs this configuration with these changes."""
    wanted = {**config, **changes}
    known = {name: value for name, value in wanted.items() if name in configs.OPTIONS}
    unread = set(rules.unread(configs.from_flat(known), known))
    defaults = _defaults(wanted["preset"], wanted["device"])
    always = ("encoder_type", "variable_update", "num_devices")
    words = []
    for name, value in known.items():
        if name in unread or (name in NOT_COMPARED and name != "preset"):
            continue
        derived = name == "decoder_type" and value == wanted["encoder_type"]
        derived = derived or (
            name == "prefetch_data_to_device" and value == (wanted["data_source"] in ("host", "text"))
        )
        derived = derived or (name == "batch_size" and wanted["global_batch_size"])
        derived = derived or (name == "param_server_device" and value == wanted["device"])
        if name in always or (value != defaults[name] and not derived):
            words.append(rules.spell(name, value))
    return "./run.sh sweep " + " ".join(words)


@functools.lru_cache(maxsize=64)
def _defaults(preset: str, device: str) -> Mapping[str, Any]:
    return configs.resolve({"preset": preset, "device": device}, num_gpus=0, num_cores=1).flat()
