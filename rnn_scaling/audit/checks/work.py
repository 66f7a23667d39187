"""Rate x seconds = the work that batch size, devices and batches imply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.audit import misprints, rounding, work_model
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, column_of, expect, of_row
from rnn_scaling.audit.having import RateAndSeconds, having
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, ScalingTable
from rnn_scaling.audit.tables.columns import recognise
from rnn_scaling.audit.work_model import Timed, WorkModel

NAME = "work"


class _WithWork(RateAndSeconds):
    work: Cell


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each row whose work is not that of its settings; None for each comparison that holds."""
    for row in having(table.rows, _WithWork):
        counted = recognise(column_of(table, "work", row)).unit
        if row.rate_unit and counted and counted != row.rate_unit:
            continue  # pairs, and cells a second
        value = rounding.of(row.work) / rounding.of(row.seconds)
        good = rounding.of(row.work).meets(work_model.product(row))
        cause = "the rate is not the work over the seconds"
        yield None if good else of_row(NAME, IMPOSSIBLE, table, row, "rate", value, cause)
    trusted = _confirmed(table, context)
    models = context.models(table)
    for model in models:
        yield from _series(table, model, context, trusted)
    yield from _known(table, work_model.alone(table.rows, models), context.items_per_sample)


def _confirmed(table: ScalingTable, context: Context) -> dict[int, bool]:
    """Rows (by identity) whose rate fits speedup or efficiency, where rates do as a rule -> whether n fits too."""
    out: dict[int, bool] = {}
    for judged in context.judged(table):
        verdict = judged.verdict
        for related in (verdict.by_speedup, verdict.by_efficiency):
            if related and related.reading.field == "rate" and not related.fit.doubtful:
                for k, holds in related.fit.holds.items():
                    if holds:
                        counted = related is verdict.by_efficiency or bool(
                            verdict.within and verdict.within.holds.get(k)
                        )
                        out[id(verdict.rows[k])] = counted or out.get(id(verdict.rows[k]), False)
    return out


def _series(
    table: ScalingTable, model: WorkModel, context: Context, confirmed: Mapping[int, bool]
) -> Iterator[Finding | None]:
    if model.kind == work_model.VARIES:
        yield from _known(table, model.rows, context.items_per_sample)
        return
    if model.kind == work_model.EACH:
        yield _each(table, model)
    for row, fits in zip(model.rows, model.fits):
        if fits:
            yield None
            continue
        settings = work_model.samples(row, with_devices=model.kind not in (work_model.EACH, work_model.STRONG))
        if id(row) in confirmed:
            yield _seconds_finding(table, row, model, settings, counted=confirmed[id(row)])
            continue
        value = model.items * settings / rounding.of(row.seconds)
        yield of_row(NAME, IMPOSSIBLE, table, row, "rate", value, _cause(row, model, settings))
    if model.absolute and model.kind != work_model.EACH:
        of_samples = model.rows[0].rate_unit in work_model.SAMPLE_UNITS
        yield from _window(table, model, 1.0 if of_samples else context.items_per_sample)


def _known(table: ScalingTable, rows: Sequence[Timed], items: float | None) -> Iterator[Finding | None]:
    """Rows that agree on nothing, each against the items a sample that the user knows."""
    if items is None:
        return
    rows = [row for row in rows if work_model.has_settings(row)]
    fits = {
        a_device: [
            work_model.product(row).meets(rounding.point(items * work_model.samples(row, with_devices=a_device)))
            for row in rows
        ]
        for a_device in (True, False)
    }  # the batch size is a device's, or that of all of them
    a_device = sum(fits[True]) >= sum(fits[False])
    for row, good in zip(rows, fits[a_device]):
        if good:
            yield None
            continue
        settings = work_model.samples(row, with_devices=a_device)
        value = rounding.point(items * settings) / rounding.of(row.seconds)
        cause = (
            f"rate x seconds is {(work_model.product(row) / settings).middle:.6g} items a sample, not {items:g}: the "
            "rate, the seconds or a setting is wrong"
        )
        yield of_row(NAME, IMPOSSIBLE, table, row, "rate", value, cause)


def _cause(row: Timed, model: WorkModel, settings: float) -> str:
    ratio = work_model.product(row) / settings / model.items
    if model.kind == work_model.WEAK:
        if ratio.meets(rounding.point(1 / row.devices)):
            return f"the rate is one worker's, not the total of {row.devices}"
        devices = (ratio * row.devices).integers()
        if len(devices) == 1 and devices[0] > 0:
            return _of_other_devices(row, devices[0])
    if row.batches:
        for shift in (-1, 1):
            if ratio.meets(rounding.point((row.batches.value + shift) / row.batches.value)):
                return (
                    f"items counted over another window than the seconds: {row.batches.value + shift:.0f} batches "
                    f"against {row.batches.value:.0f}"
                )
    return f"rate x seconds is {ratio.middle:.4g} of the other rows' work: the rate, the seconds or a setting is wrong"


def _of_other_devices(row: Timed, devices: int) -> str:
    return f"rate x seconds is the work of {devices} devices, not of {row.devices}: a row of another number"


def _seconds_finding(table: ScalingTable, row: Timed, model: WorkModel, settings: float, counted: bool) -> Finding:
    """The rate fits what was made from it: the seconds are wrong, or the devices, or the batch size."""
    value = model.items * settings / rounding.of(row.rate)
    devices = (work_model.product(row) / settings / model.items * row.devices).integers()
    is_new = len(devices) == 1 and devices[0] not in {0, *(other.devices for other in model.rows)}
    if is_new and not counted and model.kind == work_model.WEAK:
        cause = _of_other_devices(row, devices[0])
        return of_row(NAME, IMPOSSIBLE, table, row, "devices", str(devices[0]), cause)
    for name in ("global_batch_size", "batch_size"):
        cell = getattr(row, name)
        others = (getattr(other, name) for other in model.rows if other is not row)
        usual = {other.value for other in others if other}
        if cell and len(usual) == 1 and cell.value not in usual and model.kind != work_model.EACH:
            right = usual.pop()
            if (work_model.product(row) / settings * cell.value / right).meets(model.items):
                cause = f"rate x seconds is the work of the batch size {right:g}, as in the other rows"
                return of_row(NAME, IMPOSSIBLE, table, row, name, f"{right:g}", cause)
    cause = "the rate fits its speedup, and rate x seconds is not the work of the other rows"
    return of_row(NAME, IMPOSSIBLE, table, row, "seconds", value, f"{cause}: {misprints.guess(row.seconds, value)}")


def _each(table: ScalingTable, model: WorkModel) -> Finding:
    row = next(row for row in model.rows if row.devices > 1)
    cause = (
        "a worker's rate printed as if it were the total: rate x seconds does not grow with the devices, although the "
        "batch is a device's and the seconds do not fall"
    )
    value = rounding.of(row.rate) * row.devices
    return of_row(NAME, IMPOSSIBLE, table, row, "rate", value, cause, " and the rows below")


def _window(table: ScalingTable, model: WorkModel, known: float | None) -> Iterator[Finding | None]:
    """All rows agree on the items a sample: is it the known number, or one batch more or less of a round one?"""
    fitting = (row for row, fits in zip(model.rows, model.fits) if fits)
    row, batches = next((row, row.batches.value) for row in fitting if row.batches)
    if known is not None:
        if model.items.meets(rounding.point(known)):
            yield None
            return
        ratio = model.items / known
        shift = next((s for s in (-1, 1) if _shifted(ratio, batches, s)), 0)
        cause = f"rate x seconds is {ratio.middle:.5g} of the work that the settings imply"
        if shift:
            fraction = f"{batches:.0f}/{batches + shift:.0f} or its inverse"
            cause = f"items counted over another window than the seconds ({ratio.middle:.5g} = {fraction})"
        yield _items_finding(table, row, model, known, IMPOSSIBLE, cause)
        return
    if model.items.integers() or model.items.high - model.items.low > 0.02 or batches < 2:
        return
    for shift in (-1, 1):
        for factor in ((batches + shift) / batches, batches / (batches + shift)):
            whole = (model.items / factor).integers()
            if len(whole) == 1 and whole[0] % 10 == 0 and whole[0] > 0:
                cause = (
                    f"items counted over another window than the seconds: {model.items.middle:.6g} items a sample are "
                    f"{factor:.5g} of {whole[0]}, a batch more or less; confirm with --items_per_sample"
                )
                yield _items_finding(table, row, model, whole[0], UNLIKELY, cause)
                return


def _shifted(ratio: Bounds, batches: float, shift: int) -> bool:
    factor = (batches + shift) / batches
    return batches + shift > 0 and (ratio.meets(rounding.point(factor)) or ratio.meets(rounding.point(1 / factor)))


def _items_finding(table: ScalingTable, row: Timed, model: WorkModel, items: float, kind: str, cause: str) -> Finding:
    stands = f"{row.rate.text} x {row.seconds.text} s = {model.items.middle:.6g} items a sample"
    expected = expect(rounding.point(items))
    return of_row(NAME, kind, table, row, "rate", expected, cause, " and the rows that agree with it", stands)
