"""Group rows into series and title each series.

Reports and predictions share these titles.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.rows import DECODER, Row, make_series_key
from rnn_scaling.config import naming, scale
from rnn_scaling.config.conditions import (
    FOREIGN_NOT_COMPARED,
    RESOLVED,
    find_unread_options,
)
from rnn_scaling.config.naming import (
    NAMED,
    TRAINER,
    disambiguate,
    name_network,
)
from rnn_scaling.config.registry import encoder_table
from rnn_scaling.records.options import DEFAULTS, UNKNOWN


def group_by_series(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the rows of each series, sorted by number of devices.

    The series are in the order of their first rows.
    """
    groups = group_by(rows, map(make_series_key, rows)).values()
    return [sorted(members, key=lambda row: row.num_devices) for members in groups]


def make_titles(series: Sequence[Sequence[Row]]) -> list[str]:
    """Return a title per series: network, mode, and other options that differ.

    On CPUs, another kernel may replace a GPU kernel. The title names it only if series
    of the same network ran different kernels.

    Args:
      series: The rows of each series. Options are read from its first row, because all
        rows of a series share them.
    """
    first_rows = [members[0] for members in series]
    names = _list_optional_title_options(first_rows)
    used_options = [_list_options_in_use(row, names) for row in first_rows]
    varied_options = naming.find_distinguishing(names, used_options)
    if len({row.batch_size for row in first_rows} - {None}) > 1:
        varied_options.append("batch_size")
    if len(set(map(_find_differing_decoder_kernel, first_rows))) > 1:
        varied_options.append(DECODER)
    options = list(map(_list_options_with_batch_size, first_rows, used_options))
    all_facts = list_distinguishing_facts(series)
    shown_kernels = _list_distinguishing_kernels(series)
    titles = []
    for members, kernel, row_options, facts in zip(
        series, shown_kernels, options, all_facts
    ):
        parts = _list_title_parts(members, kernel, row_options, varied_options)
        titles.append(", ".join([*parts, *separation.describe_facts(facts)]))
    titles = disambiguate(titles, [row.unit for row in first_rows])
    return _add_distinct_options(titles, options)


def _list_options_with_batch_size(row: Row, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a row with its batch size, if it has one."""
    if row.batch_size:
        return {**options, "batch_size": row.batch_size}
    return options


def _list_optional_title_options(rows: Sequence[Row]) -> list[str]:
    """Return the options that a title contains only if they differ between series.

    A title always has the network and the mode, and it never has the number of devices.
    Batch size and decoder are left out here, because they are read from rows, not from
    options.
    """
    left_out = FOREIGN_NOT_COMPARED | {
        *(name for name in NAMED if name != "encoder_type"),
        *scale.AXES,
        TRAINER,
        DECODER,
        "batch_size",
        "global_batch_size",
    }
    return [name for name in list_option_names(rows) if name not in left_out]


def _list_distinguishing_kernels(series: Sequence[Sequence[Row]]) -> list[str]:
    """Return the replacement kernel of each series; "" if its network has only one."""
    all_kernels = list(map(find_cpu_replacement_kernel, series))
    networks = [name_network(members[0].options) for members in series]
    kernels_of_network = group_by(all_kernels, networks)
    return [
        kernel if len(set(kernels_of_network[name])) > 1 else ""
        for kernel, name in zip(all_kernels, networks)
    ]


def _list_title_parts(
    members: Sequence[Row],
    kernel: str,
    options: Mapping[str, Any],
    varied_options: Sequence[str],
) -> list[str]:
    """Return the parts of a title.

    Args:
      members: The rows of the series.
      kernel: The kernel to name after the network, or "".
      options: The options of the series, with its batch size.
      varied_options: Options that differ between series.
    """
    first = members[0]
    config = first.options
    parts = [
        str(part) for part in (name_network(config), config["variable_update"]) if part
    ]
    if kernel:
        parts[0] += f" ({kernel})"
    if first.is_distributed and config["num_devices"] != 1:
        parts.append(f"num_devices={config['num_devices']}")
    values = dict(options)
    decoder = _find_differing_decoder_kernel(first)
    if decoder:
        values[DECODER] = decoder
    named_options = [
        name
        for name in naming.drop_network_options(varied_options, config)
        if name in values
    ]
    parts += [f"{name}={values[name]}" for name in named_options]
    global_batch_size = config["global_batch_size"]
    if global_batch_size:
        work = f"{global_batch_size} {first.samples} a step"
        parts.append(f"strong scaling, {work}")
    return parts


def list_distinguishing_facts(
    series: Sequence[Sequence[Row]],
) -> list[separation.Facts]:
    """Return the facts of each series that distinguish any of the series."""
    facts = itertools.chain.from_iterable(members[0].facts for members in series)
    names = dict.fromkeys(name for name, _ in facts)
    all_facts = []
    for members in series:
        all_facts.append(tuple(_find_series_fact(name, members) for name in names))
    return all_facts


def _find_series_fact(name: str, members: Sequence[Row]) -> tuple[str, str]:
    """Return a fact of a series from its first row, or from its records."""
    facts = dict(members[0].facts)
    if name in facts:
        return name, facts[name]
    return separation.list_values_of(name, (row.records[0] for row in members))


def _add_distinct_options(
    names: Sequence[str], options: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Add options to equal names: all that differ, or that only some runs record."""
    options_by_name = group_by(options, names)
    longer_names = []
    for name, title_options in zip(names, options):
        parts = [name]
        candidates = options_by_name[name]
        for option in dict.fromkeys(itertools.chain.from_iterable(candidates)):
            values = {candidate.get(option, UNKNOWN) for candidate in candidates}
            if len(values) > 1 and option in title_options:
                parts.append(f"{option}={title_options[option]}")
        longer_names.append(", ".join(parts))
    return longer_names


def list_option_names(rows: Sequence[Row]) -> list[str]:
    """Return all options of rows: this suite's options first, in their usual order."""
    options = itertools.chain(DEFAULTS, *(row.options for row in rows))
    return list(dict.fromkeys(options))


def find_cpu_replacement_kernel(rows: Sequence[Row]) -> str:
    """Return the CPU kernel that replaced a GPU kernel; "" if none did."""
    kernel = encoder_table.ENCODERS.get(name_network(rows[0].options))
    if kernel is None or kernel.cpu == kernel.gpu:
        return ""
    runs = itertools.chain.from_iterable(row.good_runs for row in rows)
    on_cpu = [run.resolved for run in runs if run.resolved.device_type == "CPU"]
    # "BlockLSTM + LSTMBlockCellGrad": only the first kernel replaces one for GPUs, the
    # second one computes its gradients.
    names = {(each.encoder_kernel or "").partition(" + ")[0] for each in on_cpu}
    return names.pop() if len(names) == 1 else ""


def _find_differing_decoder_kernel(row: Row) -> str:
    """Return the kernel of a row's decoder; "" if unknown, or the encoder has it too."""
    decoder = _list_options_in_use(row, [DECODER]).get(DECODER)
    if decoder in (None, row.options.known.get("encoder_type")):
        return ""
    return str(decoder)


def _list_options_in_use(row: Row, names: Sequence[str]) -> dict[str, Any]:
    """Return the known values of those options that the row's runs use.

    Options that the network's name already contains are left out.
    """
    ignored = set(find_unread_options(row.options))
    if row.is_ours:
        ignored.update(("encoder_type", *RESOLVED))
    known_options = row.options.known
    return {
        name: known_options[name]
        for name in names
        if name in known_options and name not in ignored
    }
