"""Rows -> series with their titles: what tells series apart, in words, and which may be ranked."""

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.comparison.differences import WORK_OPTIONS
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.rows import DECODER, Row, series_key
from rnn_scaling.config import naming, scale
from rnn_scaling.config.conditions import (
    NOT_COMPARED_THEIRS,
    RESOLVED,
    unread_options,
)
from rnn_scaling.config.naming import (
    HOW_RUN,
    NAMED,
    TRAINER,
    network,
    told_apart,
    told_work,
)
from rnn_scaling.config.registry import kernels
from rnn_scaling.records.options import DEFAULTS, UNKNOWN

SIZES = (
    "model",
    "batch_size",
    "global_batch_size",
    *scale.AXES,
)  # judged by themselves


def group_by_series(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of each series, by number of devices; series in the order of their first rows."""
    series = group_by(rows, map(series_key, rows))
    return [
        sorted(members, key=lambda row: row.num_devices) for members in series.values()
    ]


def titles(series: Sequence[Sequence[Row]]) -> list[str]:
    """A name for each series: encoder, update mode, strong scaling, and whatever else tells them apart."""
    firsts = [members[0] for members in series]
    left_out = NOT_COMPARED_THEIRS | {
        *NAMED,
        *scale.AXES,
        TRAINER,
        DECODER,
        "batch_size",
        "global_batch_size",
    }
    named = [
        name
        for name in option_names(firsts)
        if name not in left_out or name == "encoder_type"
    ]
    read = [_read_options(row, named) for row in firsts]
    varied = naming.distinguishing(named, read)
    if len({row.batch_size for row in firsts} - {None}) > 1:
        varied.append("batch_size")
    decoders = [_own_decoder(row) for row in firsts]
    if len(set(decoders)) > 1:
        varied.append(DECODER)
    names = []
    for members, options, decoder, facts in zip(
        series, read, decoders, series_facts(series)
    ):
        first = members[0]
        config = first.options
        words = [
            str(word) for word in (network(config), config["variable_update"]) if word
        ]
        if ran := kernel_on_cpus(members):
            words[0] += f" ({ran})"
        if first.is_distributed and config["num_devices"] != 1:
            words.append(f"num_devices={config['num_devices']}")
        shown = dict(options)
        if decoder:
            shown[DECODER] = decoder
        if first.batch_size:
            shown["batch_size"] = first.batch_size
        words += [
            f"{name}={shown[name]}"
            for name in naming.without_network(varied, config)
            if name in shown
        ]
        if config["global_batch_size"]:
            words.append(
                f"strong scaling, {config['global_batch_size']} {first.samples} a step"
            )
        names.append(", ".join([*words, *separation.in_words(facts)]))
    names = told_apart(names, [row.unit for row in firsts])
    sized = []
    for row, options in zip(firsts, read):
        size = {"batch_size": row.batch_size} if row.batch_size else {}
        sized.append({**options, **size})
    return _with_distinct_options(names, sized)


def series_facts(series: Sequence[Sequence[Row]]) -> list[separation.Facts]:
    """Of each series, what it says of the facts that tell any of them apart."""
    names = dict.fromkeys(what for members in series for what, _ in members[0].facts)
    return [tuple(_told_fact(what, members) for what in names) for members in series]


def _told_fact(what: str, members: Sequence[Row]) -> tuple[str, str]:
    facts = dict(members[0].facts)
    return (
        (what, facts[what])
        if what in facts
        else separation.values_of(what, (row.records[0] for row in members))
    )


def _with_distinct_options(
    names: Sequence[str], options: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The names. Equal names get the options that only some of their runs record, or that differ among them."""
    longer = []
    for name, known in zip(names, options):
        same_name = [other for title, other in zip(names, options) if title == name]
        words = [name]
        for option in dict.fromkeys(option for other in same_name for option in other):
            values = {other.get(option, UNKNOWN) for other in same_name}
            if len(values) > 1 and option in known:
                words.append(f"{option}={known[option]}")
        longer.append(", ".join(words))
    return longer


def option_names(rows: Sequence[Row]) -> list[str]:
    """Every option that a row may have: ours in their order, then those that other trainers recorded."""
    names = dict.fromkeys(DEFAULTS)
    for row in rows:
        names.update(dict.fromkeys(row.options))
    return list(names)


def kernel_on_cpus(rows: Sequence[Row]) -> str:
    """What ran instead of a kernel that is there for GPUs alone, as their records say; empty where it was that one."""
    kernel = kernels.KERNELS.get(network(rows[0].options))
    if kernel is None or kernel.cpu == kernel.gpu:
        return ""
    parts = [
        record.resolved
        for row in rows
        for record in row.good_runs
        if record.resolved.device_type == "CPU"
    ]
    ran = {(resolved.encoder_kernel or "").partition(" + ")[0] for resolved in parts}
    return ran.pop() if len(ran) == 1 else ""


def _own_decoder(row: Row) -> str:
    """The kernel of a row's decoder; "" if it is the encoder's, or unknown."""
    decoder = _read_options(row, [DECODER]).get(DECODER)
    is_own = decoder not in (None, row.options.known.get("encoder_type"))
    return str(decoder) if is_own else ""


def _read_options(row: Row, names: Sequence[str]) -> dict[str, Any]:
    """The known values of these options that the run reads, without the one in the name of the row."""
    ignored = set(unread_options(row.options))
    if row.is_ours:
        ignored.update(("encoder_type", *RESOLVED))
    known = row.options.known
    return {
        name: known[name] for name in names if name in known and name not in ignored
    }


def describe_work(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What tells the work of each row, in words: rows of several programs are ranked only if these words agree.

    Rows of one trainer are always ranked. Of several, the samples a step tell, and every option that all of these
    trainers record, not always alike, and that may change the work.
    """
    trainers = [row.options.get(TRAINER) for row in rows]
    if len(set(trainers)) < 2:
        return [()] * len(rows)
    known = [row.options.known for row in rows]
    works = [options for options in known if told_work(options)]
    # An option that every run of known work records.
    common = set.intersection(*map(set, works)) if works else set()
    shared = sorted(
        name
        for name in common
        if _may_change_work(name) and len({options[name] for options in works}) > 1
    )
    unknown = "{}, whose batch size is not known".format
    return [
        _words(options, shared) if told_work(options) else (unknown(trainer),)
        for options, trainer in zip(known, trainers)
    ]


def _words(options: Mapping[str, Any], shared: Sequence[str]) -> tuple[str, ...]:
    size = "global_batch_size" if options.get("global_batch_size") else "batch_size"
    return tuple(f"{name}={options[name]}" for name in (size, *shared))


def _may_change_work(name: str) -> bool:
    """Unknown for options of a user's program, unless they say how a run is started and read."""
    if name in SIZES or name == TRAINER or name in HOW_RUN:
        return False
    return name in WORK_OPTIONS or name not in DEFAULTS
