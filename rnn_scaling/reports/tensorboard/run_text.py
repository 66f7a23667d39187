"""A run as a page of Markdown for TensorBoard's tab Text."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.analysis.rows import with_baselines
from rnn_scaling.files.markdown import markdown_table
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import placement_table, sections, table
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import presets, scale
from rnn_scaling.settings.naming import network
from rnn_scaling.settings.spelling import command


def markdown(run: RunRecord) -> str:
    """The page: result, what differs from the defaults, and where the variables are."""
    config, workers = run.config, scale.num_workers(run.config)
    lines = [
        f"## {network(config)}, {config['variable_update']}, {scale.in_words(workers, config['num_devices'])}",
        "",
        *_result(run),
        "",
        f"Again: `{_code(command(config))}`",
        "",
        "### What differs from the defaults",
        "",
        *_differences(run),
        "",
        "### Where the variables are",
        "",
        *_placement(run),
    ]
    return "\n".join(lines) + "\n"


def differences(run: RunRecord) -> dict[str, tuple[object, object]]:
    """Option -> (its value, its default), of the options whose value is not the default of the run's preset."""
    config = run.config
    given: dict[str, object] = {name: config[name] for name in ("preset", "device", "model") if name in config}
    defaults = configs.resolve(given, num_gpus=0, num_cores=1).flat()
    defaults["model"] = presets.model_of(config.get("preset"))
    names = [name for name in config if name in defaults and configs.GROUP_OF[name] != "output"]
    return {name: (config[name], defaults[name]) for name in names if config[name] != defaults[name]}


def _result(run: RunRecord) -> list[str]:
    if not run.throughput:
        return ["No batch was measured."]
    rows = with_baselines([run])
    lines = sections.markdown([table.rates(rows)]).splitlines()
    return [*lines, "", f"Steady state: {run.steady_state.text}."] if run.steady_state else lines


def _differences(run: RunRecord) -> list[str]:
    changed = differences(run)
    lines = [[name, _spelled(value), _spelled(default)] for name, (value, default) in changed.items()]
    return _grid(["Option", "Value", "Default"], lines) if lines else ["Nothing."]


def _placement(run: RunRecord) -> list[str]:
    if run.graph:
        devices, copies = placement_table.devices_grid(run.graph), placement_table.copies_grid(run.graph)
        lines = _grid(devices.head, devices.lines)
        if copies.lines:  # without the names of the largest, which leave the other columns no room
            grid = _grid(copies.head[:-1], [line[:-1] for line in copies.lines])
            lines += ["", "What one device sends to another in a step:", "", *grid]
        return lines
    placement = run.resolved.variable_placement or {}
    rows = [[device, f"{size:,}", f"{size / 2**20:.1f}"] for device, size in sorted(placement.items())]
    return _grid(["Device", "Bytes", "MiB"], rows) if rows else ["The run ended before they were made."]


def _grid(head: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    rows = [[f"`{_code(line[0])}`", *map(_cell, line[1:])] for line in lines]
    return markdown_table(head, rows, padded=False).splitlines()


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None or value == "" else str(value)


def _code(text: str) -> str:
    """Text that does not end a code span."""
    return " ".join(text.replace("`", "'").split())


def _cell(text: str) -> str:
    return _code(text).replace("_", "\\_").replace("*", "\\*").replace("<", "&lt;").replace("[", "\\[")
