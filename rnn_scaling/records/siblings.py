"""Failed runs of other trainers -> the same with what good runs of their configuration tell: one series in reports."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.naming import HOW_RUN, TRAINER

NOT_TOLD = "items"  # the unit of a run that did not get so far as to tell it
GROWING = "num_devices"  # in which the runs of a configuration may differ
Values = tuple[Any, ...]


def completed(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records in their order; failed runs of other trainers have the options and the unit that others tell.

    What such a run would have told of its batch size, or of what it counts, stands in the record or the log that it did
    not leave. It has what all good runs tell that agree with whatever it does tell, on as many devices where there are
    any, else on others.
    """
    good = [run for run in records if run.status == "ok" and TRAINER in run.config]
    # By the names of what a failed run tells: the good runs, by their values of these.
    by_names: dict[Values, dict[Values, list[RunRecord]]] = {}
    known = list(records)
    for index, run in enumerate(records):
        if run.status == "ok" or TRAINER not in run.config or not good:
            continue
        names = tuple(sorted(run.config.keys() - {GROWING, *HOW_RUN}))
        if names not in by_names:
            by_names[names] = {}
            for each in good:
                by_names[names].setdefault(_values(each.config, names), []).append(each)
        alike = by_names[names].get(_values(run.config, names), [])
        if siblings := [each for each in alike if each.config[GROWING] == run.config[GROWING]] or alike:
            known[index] = _like(run, siblings)
    return known


def _values(config: Mapping[str, Any], names: Values) -> Values:
    return tuple(repr(config.get(name)) for name in names)


def _like(run: RunRecord, siblings: Sequence[RunRecord]) -> RunRecord:
    first, *others = siblings
    told = {name: each for name, each in first.config.items() if all(o.config.get(name) == each for o in others)}
    units = {record.unit for record in siblings}
    unit = units.pop() if len(units) == 1 and run.unit == NOT_TOLD else run.unit
    return dataclasses.replace(run, config={**told, **run.config}, unit=unit)
