"""The series of a folder of runs, or of a document's tables, as curves to predict from."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.prediction import from_rows
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import (
    Link,
)
from rnn_scaling.analysis.prediction.from_rows import MeasuredSeries
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.commands import prediction_tables
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.config import registry
from rnn_scaling.links.series import ALL_REDUCE
from rnn_scaling.records import folder as folders
from rnn_scaling.records.tables import documents
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

MOST_OF_TABLES = 24  # series of tables that are answered at once
LINKS_SCHEMA = "rnn_scaling.links/1"


def every_series(source: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    """All series of a folder's runs, or of a file's tables in the order of their lines. Raises Refusal without any."""
    try:
        return (
            _of_folder(source, options)
            if source.is_dir()
            else _of_tables(source, options)
        )
    except OSError as e:
        raise entry.Refusal(f"{source}: {e.strerror or e}") from None
    except documents.UnreadableError as e:
        raise entry.Refusal(str(e)) from None


def chosen(every: Sequence[MeasuredSeries], text: str) -> list[MeasuredSeries]:
    """Return the series whose names contain the text of --series.

    Of tables only the first ones are kept, with a warning: a page may have hundreds.

    Raises:
      Refusal: If no name contains it.
    """
    kept = [series for series in every if text.lower() in series.curve.name.lower()]
    if not kept:
        names = "; ".join(series.curve.name for series in every[:5])
        raise entry.Refusal(
            f"--series={text} matches no series; expected a part of one of: {names}"
        )
    is_of_table = not kept[0].rows
    if is_of_table and len(kept) > MOST_OF_TABLES:
        left_out = len(kept) - MOST_OF_TABLES
        entry.warn(
            f"{left_out} more series are left out; --series=TEXT chooses among them"
        )
        return kept[:MOST_OF_TABLES]
    return kept


def _of_folder(folder: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    stated = (
        options.stated_link
    )  # wrong flags are reported before thousands of files are read
    links = from_rows.Links(
        read_links(options.links) if options.links else {},
        stated,
        options.devices_per_machine,
    )
    content = folders.read(folder)
    entry.warn(*(f"{line}; left out" for line in content.not_used))
    machines, made = group_by_machine([file.record for file in content.runs]), []
    for machine, records in machines.items():
        for series in from_rows.series(build_rows(records), links):
            name = (
                f"{series.curve.name}, {machine}"
                if len(machines) > 1
                else series.curve.name
            )
            curve = dataclasses.replace(series.curve, name=name, source=str(folder))
            made.append(dataclasses.replace(series, curve=curve))
    if not made:
        reason = (
            "no run measured a rate"
            if content.runs
            else f"{content.nothing}{folders.elsewhere(folder)}"
        )
        raise entry.Refusal(f"{folder}: {reason}")
    return made


def _of_tables(path: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    if options.links or options.link_gbit is not None or options.latency_us is not None:
        raise entry.Refusal(
            "--links and --link_gbit need the bytes of a step, which a table does not have; omit them"
        )
    found, is_cut = prediction_tables.read(path, options.devices_per_machine)
    if not found:
        rule = "no table with a column of devices and one of rates, seconds or speedups on several numbers of them"
        raise entry.Refusal(f"{path}: {rule}; docs/audit.md lists the header words")
    if is_cut:
        entry.warn(f"{path}: only the first {len(found)} series are read")
    return found


def read_links(path: Path) -> dict[str, Link]:
    """The link behind each all-reduce that links.json has measured and fitted, by its name; "": the fastest one."""
    try:
        fields = input_files.parse_json(input_files.read_text(path))
        if fields["schema"] != LINKS_SCHEMA:
            raise ValueError
        series = [
            one
            for one in fields["series"]
            if one["kind"] == ALL_REDUCE and one["fit"] and not one["error"]
        ]
        found = {
            one["name"].partition("#")[0]: _link(one, fields["device"])
            for one in series
        }
        return {**found, "": max(found.values(), key=lambda link: link.bytes_per_s)}
    except OSError as e:
        raise entry.Refusal(f"--links={path}: {e.strerror or e}") from None
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        rule = f"expected {LINKS_SCHEMA} with a fitted all-reduce; ./run.sh links --measure=all_reduce makes one"
        raise entry.Refusal(f"--links={path}: {rule}") from None


def _link(series: dict[str, Any], device: str) -> Link:
    """The link with which the same algorithm over the same ranks takes alpha + bytes / beta, as the fit says."""
    ranks, fit = series["ranks"], series["fit"]
    all_reduce = registry.ALL_REDUCES.get(series["name"].partition("#")[0])
    algorithm = all_reduce.messages if all_reduce else "ring"
    messages = exchange_s(algorithm, ranks, 1.0, 0.0, [Link(1.0, math.inf)])
    sent = exchange_s(
        algorithm, ranks, 1.0, 0.0, [Link(0.0, 1.0)]
    )  # bytes one after the other, for each byte
    alpha_s, bytes_per_s = (
        1e-6 * fit["alpha_us"] / messages,
        1e9 * fit["beta_gb_per_s"] * sent,
    )
    return Link(max(0.0, alpha_s), bytes_per_s, ranks if device == "gpu" else None)
