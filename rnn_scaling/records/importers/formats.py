"""All formats of logs: the rows of formats.toml, and classes of other modules.

A log that prints settings and one rate per run is a `TotalsFormat`; a progress bar is a
`Bar`. Formats that need code of their own have a class in another module. Any other log
is read by a pattern of the user (`regex_log`).
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling.records.importers import tf_cnn
from rnn_scaling.records.importers.bars import NUMBER, Bar
from rnn_scaling.records.importers.horovod_timeline import HorovodTimeline
from rnn_scaling.records.importers.matrices import BandwidthTest, PeerToPeer
from rnn_scaling.records.importers.mlperf import Mlperf
from rnn_scaling.records.importers.mlperf_systems import MlperfSystem
from rnn_scaling.records.importers.nccl_tests import NcclJson, NcclText, RcclJson
from rnn_scaling.records.importers.reading import LogFormat, parse_positive
from rnn_scaling.records.importers.topology_matrix import TopologyMatrix
from rnn_scaling.records.importers.totals import (
    Description,
    Settings,
    TotalsFormat,
    average_steps,
    find_last_step,
)

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def _describe_horovod(
    header: Mapping[str, str], command: Mapping[str, str]
) -> Description:
    devices = header.get("num_devices", header.get("Number", "1"))
    size = header.get("Batch size", "")
    num_devices = int(parse_positive(devices, "a number of devices"))
    options = {
        "model": header.get("Model"),
        "num_devices": num_devices,
        "batch_size": int(size) if size.isdecimal() else None,
        "device": "cpu" if header.get("kind") == "CPU" else "gpu",
    }
    return Description(options, workers=num_devices)


def _describe_gnmt(
    header: Mapping[str, str], command: Mapping[str, str]
) -> Description:
    sizes = []
    for text in (
        command.get("train_batch_size", ""),
        command.get("train_global_batch_size") or header.get("global_batch_size", ""),
    ):
        sizes.append(int(text) if re.fullmatch(r"[1-9]\d{0,11}", text) else None)
    batch_size, global_batch_size = sizes
    devices = None
    if batch_size and global_batch_size and global_batch_size % batch_size == 0:
        devices = global_batch_size // batch_size
    options = {
        "math": command.get("math"),
        "num_devices": devices,
        "batch_size": batch_size,
        "global_batch_size": None if batch_size else global_batch_size,
    }
    return Description(options, workers=devices or 1)


_CLASSES: tuple[type[LogFormat], ...] = (
    HorovodTimeline,
    NcclText,
    NcclJson,
    RcclJson,
    Mlperf,
    MlperfSystem,
    BandwidthTest,
    PeerToPeer,
    TopologyMatrix,
)
# Functions that rows of formats.toml name.
_FUNCTIONS = {
    "tf_cnn.describe": tf_cnn.describe,
    "describe_horovod": _describe_horovod,
    "describe_gnmt": _describe_gnmt,
    "last_step": find_last_step,
    "mean_of_steps": average_steps,
}


def _read_formats() -> dict[str, LogFormat]:
    """Return the formats of formats.toml by name, in their order."""
    text = Path(__file__).with_name("formats.toml").read_text("utf-8")
    classes = {each.name: each for each in _CLASSES}
    formats: dict[str, LogFormat] = {}
    for row in tomllib.loads(text)["format"]:
        kind = row.pop("kind")
        name = row["name"]
        if kind == "module":
            formats[name] = classes[name]()
        elif kind == "totals":
            formats[name] = _make_totals_format(row)
        else:
            pattern = _join(row.pop("regex")).replace("{number}", NUMBER)
            row["distinction"] = _join(row.get("distinction", ""))
            if "foreign" in row:
                row["foreign"] = formats[row["foreign"]].detect
            formats[name] = Bar(regex=re.compile(pattern), **row)
    return formats


def _make_totals_format(row: dict[str, Any]) -> TotalsFormat:
    for name in ("total", "step", "detected", "loss"):
        row[name] = _join(row.get(name, ""))
    for name in ("describe", "cut_rate"):
        if name in row:
            row[name] = _FUNCTIONS[row[name]]
    if settings := row.get("settings"):
        pattern = _join(settings.pop("pattern"))
        header_end = tuple(settings.pop("header_end", ()))
        row["settings"] = Settings(pattern, header_end=header_end, **settings)
    return TotalsFormat(**row)


def _join(pattern: str | list[str]) -> str:
    """Return a pattern; a list has the parts of a long one."""
    return "".join(pattern)


FORMATS: Mapping[str, LogFormat] = _read_formats()
