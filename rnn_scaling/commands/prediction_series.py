"""Curves to predict from: the series of a folder of runs or of a document's tables.

The answers of `predict` start from these series, whatever their source.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.prediction import from_rows
from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import Link
from rnn_scaling.analysis.prediction.from_rows import MeasuredSeries
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.commands import prediction_tables
from rnn_scaling.commands.prediction_options import PredictionOptions
from rnn_scaling.config import registry
from rnn_scaling.links.series import ALL_REDUCE
from rnn_scaling.links.series import SCHEMA as LINKS_SCHEMA
from rnn_scaling.records import folder as folders
from rnn_scaling.records.tables import documents
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

_MAX_TABLE_SERIES = 24  # series of tables that are answered at once


def read_series(source: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    """Return all series of a folder's runs or of a file's tables, in their order.

    Raises:
      Refusal: If there is no series.
    """
    read = _read_folder if source.is_dir() else _read_tables
    try:
        return read(source, options)
    except OSError as e:
        raise entry.Refusal(f"{source}: {e.strerror or e}") from None
    except documents.UnreadableError as e:
        raise entry.Refusal(str(e)) from None


def choose(all_series: Sequence[MeasuredSeries], text: str) -> list[MeasuredSeries]:
    """Return the series whose names contain the text of --series.

    A page may have hundreds of tables, so only their first series are returned, with a
    warning.

    Raises:
      Refusal: If no name contains it.
    """
    chosen_series = []
    for series in all_series:
        if text.lower() in series.curve.name.lower():
            chosen_series.append(series)
    if not chosen_series:
        names = "; ".join(series.curve.name for series in all_series[:5])
        raise entry.Refusal(
            f"--series={text} matches no series; give a part of one of these names: "
            f"{names}"
        )
    is_from_table = not chosen_series[0].rows
    num_left_out = len(chosen_series) - _MAX_TABLE_SERIES
    if is_from_table and num_left_out > 0:
        entry.warn(
            f"left out {num_left_out} more series; --series=TEXT chooses among them"
        )
        return chosen_series[:_MAX_TABLE_SERIES]
    return chosen_series


def _read_folder(folder: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    """Return the series of a folder's runs, by machine."""
    # Wrong flags are reported before thousands of files are read.
    links = from_rows.Links(
        read_links(options.links) if options.links else {},
        options.stated_link,
        options.devices_per_machine,
    )
    content = folders.read(folder)
    entry.warn(*(f"{line}; left out" for line in content.not_used))
    machines = group_by_machine([file.record for file in content.runs])
    all_series = []
    for machine, records in machines.items():
        for series in from_rows.make_measured_series(build_rows(records), links):
            name = series.curve.name
            if len(machines) > 1:
                name += f", {machine}"
            curve = dataclasses.replace(series.curve, name=name, source=str(folder))
            all_series.append(dataclasses.replace(series, curve=curve))
    if not all_series:
        reason = "no run measured a rate"
        if not content.runs:
            reason = f"{content.empty_reason}{folders.suggest_subfolders(folder)}"
        raise entry.Refusal(f"{folder}: {reason}")
    return all_series


def _read_tables(path: Path, options: PredictionOptions) -> list[MeasuredSeries]:
    """Return the series of a file's tables; refuse flags that need runs."""
    if options.links or options.link_gbit is not None or options.latency_us is not None:
        raise entry.Refusal(
            "--links and --link_gbit need the bytes of a step, which a table does not "
            "have; omit them"
        )
    series_of_tables, omits_series = prediction_tables.read(
        path, options.devices_per_machine
    )
    if not series_of_tables:
        raise entry.Refusal(
            f"{path} contains no table with a column of devices and a column of rates, "
            "seconds or speedups, in several rows; docs/audit.md lists the header words"
        )
    if omits_series:
        entry.warn(f"{path}: only the first {len(series_of_tables)} series are read")
    return series_of_tables


def read_links(path: Path) -> dict[str, Link]:
    """Return the link behind each fitted all-reduce of links.json, by its name.

    The fastest link also has the empty name.

    Raises:
      Refusal: If the file has no fitted all-reduce.
    """
    try:
        fields = input_files.parse_json(input_files.read_text(path))
        if fields["schema"] != LINKS_SCHEMA:
            raise ValueError
        links = {}
        for series in fields["series"]:
            if series["kind"] == ALL_REDUCE and series["fit"] and not series["error"]:
                algorithm = series["name"].partition("#")[0]
                links[algorithm] = _make_fitted_link(series, fields["device"])
        return {**links, "": max(links.values(), key=lambda link: link.bytes_per_s)}
    except OSError as e:
        raise entry.Refusal(f"--links={path}: {e.strerror or e}") from None
    except (KeyError, TypeError, ValueError, AttributeError, ZeroDivisionError):
        raise entry.Refusal(
            f"--links={path}: expected {LINKS_SCHEMA} with a fitted all-reduce; "
            "./run.sh links --measure=all_reduce makes one"
        ) from None


def _make_fitted_link(series: dict[str, Any], device: str) -> Link:
    """Return the link with which an algorithm takes the fitted alpha + bytes / beta."""
    ranks = series["ranks"]
    fit = series["fit"]
    all_reduce = registry.ALL_REDUCES.get(series["name"].partition("#")[0])
    algorithm = all_reduce.messages if all_reduce else "ring"
    num_messages = exchange_s(
        algorithm,
        devices=ranks,
        summed_bytes=1.0,
        gathered_bytes=0.0,
        links=[Link(1.0, math.inf)],
    )
    # Bytes that are sent one after the other, per byte of the gradients.
    sent_bytes = exchange_s(
        algorithm,
        devices=ranks,
        summed_bytes=1.0,
        gathered_bytes=0.0,
        links=[Link(0.0, 1.0)],
    )
    alpha_s = 1e-6 * fit["alpha_us"] / num_messages
    bytes_per_s = 1e9 * fit["beta_gb_per_s"] * sent_bytes
    return Link(max(0.0, alpha_s), bytes_per_s, ranks if device == "gpu" else None)
