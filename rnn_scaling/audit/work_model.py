"""Rate x seconds against what the settings imply: how many items a sample has, and which rows do not fit.

work = rate x seconds = items a sample x batch_size x devices x batches. Items a sample are 1 for images and unknown for
words; in one table they must be the same in every row, and a row where they are not has a wrong number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.having import DevicesAndSeconds, RateAndSeconds, having
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingRow

# A sample is one item under these units.
SAMPLE_UNITS = ("images/s", "examples/s", "samples/s", "sequences/s", "sentences/s", "pairs/s")
# Rates in these count steps, however many samples one has: alone they do not say whether more devices do more.
STEP_UNITS = ("steps/s", "iterations/s", "batches/s", "updates/s")
# Two rows prove an agreement only when chance could hardly make it.
_NARROW = 1e-3

WEAK, STRONG, EACH, VARIES = "weak", "strong", "each", "varies"


class Timed(RateAndSeconds, DevicesAndSeconds):
    """A row whose work can be compared with that of others."""


@dataclasses.dataclass(frozen=True)
class WorkModel:
    """What the rows of one series agree on.

    kind: WEAK (work grows with devices), STRONG (it does not), EACH (it seems not to: the rates are a worker's),
      VARIES (the rows agree on nothing: sentences of many lengths).
    items: items a sample, where batch size and batches are known, else items a device and run; VARIES: its range.
    absolute: batch size and batches are both known, so that `items` are items a sample.
    rows, fits: the rows, and whether each agrees.
    """

    kind: str
    items: Bounds
    absolute: bool
    rows: tuple[Timed, ...]
    fits: tuple[bool, ...]


def samples(row: ScalingRow, with_devices: bool = True) -> float:
    """Samples of a row by its settings; a setting that is not known counts as 1."""
    batches = row.batches.value if row.batches else 1.0
    if row.global_batch_size:
        return row.global_batch_size.value * batches
    batch = row.batch_size.value if row.batch_size else 1.0
    return batch * batches * ((row.devices or 1) if with_devices else 1)


def product(row: RateAndSeconds) -> Bounds:
    """Rate x seconds.

    Means over several runs, which have a spread, need not multiply to the mean work: the mean of 1 / x is not 1 over
    the mean of x. Their product is only known within the spread.
    """
    spread = max(row.rate.relative_spread, row.seconds.relative_spread)
    return (rounding.of(row.rate) * rounding.of(row.seconds)).widened(spread)


def models(rows: Sequence[ScalingRow]) -> list[WorkModel]:
    """One model a series with two usable rows or more; series of one row are taken together."""
    by_series: dict[tuple[object, ...], list[Timed]] = {}
    for row in having(rows, Timed):
        settings = (bool(row.batch_size), bool(row.global_batch_size), bool(row.batches), row.rate_unit)
        by_series.setdefault((row.series, *settings), []).append(row)
    single: dict[tuple[object, ...], list[Timed]] = {}
    for key, members in by_series.items():
        if len(members) == 1:
            single.setdefault(key[1:], []).extend(members)
    groups = [members for members in by_series.values() if len(members) > 1]
    groups += [members for members in single.values() if len(members) > 1]
    return [_model(members) for members in groups]


def alone(rows: Sequence[ScalingRow], known: Sequence[WorkModel]) -> list[Timed]:
    """Usable rows that are in none of the known models: they have no other to agree with."""
    together = {id(row) for model in known for row in model.rows}
    return [row for row in having(rows, Timed) if id(row) not in together]


def has_settings(row: ScalingRow) -> bool:
    """Whether a row says how many samples it processed."""
    return bool((row.batch_size or row.global_batch_size) and row.batches)


def _model(rows: Sequence[Timed]) -> WorkModel:
    """By the printed numbers where all rows agree on them as rounded; else within their spreads."""
    exact = _agreed(rows, [rounding.of(row.rate) * rounding.of(row.seconds) for row in rows])
    return exact if exact.kind != VARIES and all(exact.fits) else _agreed(rows, [product(row) for row in rows])


def _agreed(rows: Sequence[Timed], products: Sequence[Bounds]) -> WorkModel:
    weak = [made / samples(row) for row, made in zip(rows, products)]
    fixed = [made / samples(row, with_devices=False) for row, made in zip(rows, products)]
    shared_weak, members_weak = rounding.consensus(weak)
    shared_fixed, members_fixed = rounding.consensus(fixed)
    absolute = all(map(has_settings, rows))
    given_global = all(row.global_batch_size for row in rows)
    if not given_global and len(members_fixed) > len(members_weak) and _agree(fixed, members_fixed):
        kind = EACH if absolute and not falls(rows) else STRONG
        return WorkModel(kind, shared_fixed, absolute, tuple(rows), _flags(rows, members_fixed))
    if _agree(weak, members_weak) or len(members_weak) == len(rows):  # intervals that all meet do not vary
        kind = STRONG if given_global else WEAK
        return WorkModel(kind, shared_weak, absolute, tuple(rows), _flags(rows, members_weak))
    span = Bounds(min(i.low for i in weak), max(i.high for i in weak))
    return WorkModel(VARIES, span, absolute, tuple(rows), (True,) * len(rows))


def _flags(rows: Sequence[Timed], members: Sequence[int]) -> tuple[bool, ...]:
    inside = set(members)
    return tuple(k in inside for k in range(len(rows)))


def _agree(values: Sequence[Bounds], members: Sequence[int]) -> bool:
    if 2 * len(members) <= len(values):
        return False
    narrow = all(values[k].high - values[k].low <= _NARROW * values[k].high for k in members)
    return len(members) >= 3 or (len(members) == 2 and narrow)


def falls(rows: Sequence[DevicesAndSeconds]) -> bool:
    """Whether more devices take less time, as with a fixed total work."""
    few, many = min(rows, key=lambda r: r.devices), max(rows, key=lambda r: r.devices)
    speedup = few.seconds.value / many.seconds.value
    return speedup > 1 + 0.2 * (many.devices / few.devices - 1)


def facts(known: Sequence[WorkModel]) -> list[str]:
    """What rows imply, in a sentence a model of theirs: for the reader, not a fault."""
    out = []
    for model in known:
        if not model.absolute or model.kind == EACH:
            continue
        name = f"{model.rows[0].series}: " if model.rows[0].series else ""
        low, high = f"{model.items.low:.7g}", f"{model.items.high:.7g}"
        if model.kind == VARIES:
            out.append(
                f"{name}rate x seconds is {model.items.low:.6g} to {model.items.high:.6g} items a sample: it varies, "
                "as with sentences of many lengths, or the seconds hold more than the rate's steps"
            )
        else:
            whole = model.items.integers()
            exactly = f", {whole[0]} within rounding" if len(whole) == 1 and low != high else ""
            fitting = sum(model.fits)
            out.append(
                f"{name}rate x seconds is {low if low == high else f'{low} to {high}'} items a sample in "
                f"{fitting} of {len(model.fits)} rows{exactly} ({model.kind} scaling)"
            )
    return out
