"""The sizes of imported runs that the user states because the log does not name them.

`importing` adds the sizes after a log is read.
"""

import dataclasses
from typing import Any

from rnn_scaling.records.importers.reading import (
    ImportedRun,
    Problems,
    Reading,
    Terms,
)
from rnn_scaling.records.options import Options


def add_sizes(reading: Reading, terms: Terms) -> Reading:
    """Return a reading whose runs have the devices and batch size of the terms.

    A run whose log names another size is left out, with a problem.
    """
    if terms.num_devices is None and terms.batch_size is None:
        return reading
    problems = Problems()
    runs = []
    for run in reading.runs:
        contradiction = _find_contradiction(run, terms)
        if contradiction:
            problems.add(run.line, contradiction)
        else:
            runs.append(_add_sizes_to_run(run, terms))
    all_problems = (*reading.problems, *problems.all())
    return dataclasses.replace(reading, runs=tuple(runs), problems=all_problems)


def _find_contradiction(run: ImportedRun, terms: Terms) -> str:
    """Return how a log contradicts the stated sizes; empty if it does not."""
    logged = dict(run.options)
    global_batch_size = logged.get("global_batch_size")
    devices = logged.get("num_devices", terms.num_devices)
    if global_batch_size and devices:
        logged.setdefault("batch_size", global_batch_size / devices)
    for name in ("num_devices", "batch_size"):
        stated = getattr(terms, name)
        if stated is not None and logged.get(name, stated) != stated:
            return (
                f"the log has {name}={logged[name]:g}, but the command has "
                f"--{name}={stated}; leave out --{name} for this log"
            )
    return ""


def _add_sizes_to_run(run: ImportedRun, terms: Terms) -> ImportedRun:
    options: dict[str, Any] = dict(run.options)
    global_batch_size = options.get("global_batch_size")
    if "num_devices" not in options and terms.num_devices is not None:
        options["num_devices"] = terms.num_devices
        # The batch of each device, if it divides evenly.
        if global_batch_size and global_batch_size % terms.num_devices == 0:
            del options["global_batch_size"]
            options["batch_size"] = global_batch_size // terms.num_devices
    if terms.batch_size is not None and global_batch_size is None:
        options.setdefault("batch_size", terms.batch_size)
    record = dataclasses.replace(run.record, options=Options(options))
    return dataclasses.replace(run, record=record)
