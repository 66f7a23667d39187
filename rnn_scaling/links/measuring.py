"""Run each task of a plan in its own process, collect all series, write the files.

links.json has the keys of `options`, which are the field names of the command's
options; commands/prediction_series.py reads the file.
"""

import dataclasses
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.links import gemm, picture, plan, processes, series, table
from rnn_scaling.links.gemm import Gemm
from rnn_scaling.links.plan import NOTHING, LinkTask, Plan
from rnn_scaling.links.processes import WorkerOutcome
from rnn_scaling.links.series import Series
from rnn_scaling.links.table import Measurements
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_bytes, write_text
from rnn_scaling.system.files.terminal import Board, format_bytes
from rnn_scaling.system.machine import peaks, topology

LAYOUT = "{desc} |{bar}| {percentage:.0f} %, {elapsed} so far, {remaining} left"


def measure(link_plan: Plan, worker: Sequence[str]) -> Measurements:
    """Run all tasks.

    A failed task leaves its reason in its series. A series that has hung is not
    measured again. Ctrl-C or SIGTERM ends the measurement, and later tasks are not run.
    """
    total = len(link_plan.tasks)
    outcomes: list[tuple[LinkTask, WorkerOutcome]] = []
    hung: set[str] = set()
    board = Board(total, LAYOUT, enabled=link_plan.options.progress, leave=False)

    def show_progress(done: int, rounds: int, title: str) -> None:
        board.move(len(outcomes) + done / max(rounds, 1), title)

    interrupted = ""
    try:
        for task in link_plan.tasks:
            if task.series in hung:
                continue
            show_progress(0, 1, task.title)
            if not board.has_bar:
                board.print_line(f"{len(outcomes) + 1}/{total}: {task.title}")
            timeout_s = link_plan.options.timeout
            try:
                outcome = processes.run(task.request, timeout_s, show_progress, worker)
            except OSError as e:
                # The disk may be full. Earlier results must not be lost.
                reason = f"{e.filename or 'its process'}: {e.strerror or e}"
                outcome = WorkerOutcome(error=reason)
            outcomes.append((task, outcome))
            if outcome.timed_out:
                hung.add(task.series)
            for line in _format_outcome(outcome, task.title):
                board.print_line(f"  {line}")
    except KeyboardInterrupt:
        if not outcomes:
            raise
        interrupted = f"interrupted: {len(outcomes)} of {total} measurements were made"
    finally:
        board.close()
    return dataclasses.replace(collect(outcomes, link_plan), interrupted=interrupted)


def _format_outcome(outcome: WorkerOutcome, title: str) -> list[str]:
    """Return a line per series and product of a measurement, and for its failure."""
    lines = [_format_series(measured) for measured in outcome.series if measured.points]
    for product in outcome.products:
        gflops = product.best.median / table.GIGA
        lines.append(
            f"{product.dtype}, {product.devices}: {gflops:.3g} GFLOP/s at best"
        )
    if outcome.error:
        lines.append(f"{title}: failed: {outcome.error}")
    return lines


def _format_series(measured_series: Series) -> str:
    first = measured_series.points[0]
    last = measured_series.points[-1]
    unit = "GB/s busbw" if measured_series.kind == series.ALL_REDUCE else "GB/s"
    line = f"{measured_series.name}: "
    if measured_series.traffic and measured_series.name != NOTHING:
        rate = measured_series.gb_per_s(last)
        line += f"{rate:.3g} {unit} at {format_bytes(last.num_bytes)}, "
    us = 1e6 * first.median_s
    return f"{line}{us:.3g} us at {format_bytes(first.num_bytes)}"


def collect(
    outcomes: Sequence[tuple[LinkTask, WorkerOutcome]], link_plan: Plan
) -> Measurements:
    """Return all series; the passes of an algorithm become one series."""
    parts: dict[str, list[Series]] = {}
    gradient_bytes: dict[str, int] = {}
    products: list[Gemm] = []
    for task, outcome in outcomes:
        products += outcome.products
        gradient_bytes.update(outcome.gradient_bytes)
        is_all_reduce = task.request["what"] == plan.ALL_REDUCE
        for measured in outcome.series:
            if is_all_reduce and outcome.error:
                measured = dataclasses.replace(measured, error=outcome.error)
            parts.setdefault(measured.name, []).append(measured)
        if outcome.error and not (outcome.series and is_all_reduce):
            failed_series = Series(
                series.ALL_REDUCE if is_all_reduce else series.COPY,
                task.series,
                ranks=link_plan.num_devices if is_all_reduce else 0,
                error=outcome.error,
            )
            parts.setdefault(task.series, []).append(failed_series)
    # The first pass has the order of the flag.
    joined_series = {name: series.join_passes(passes) for name, passes in parts.items()}
    nothing = joined_series.pop(NOTHING, None)
    if nothing is not None and nothing.error:
        # It is listed as failed, and must not look like an algorithm.
        joined_series[NOTHING] = dataclasses.replace(nothing, points=())
    return Measurements(
        link_plan.devices,
        tuple(joined_series.values()),
        nothing,
        link_plan.left_out,
        tuple(gradient_bytes.items()),
        _format_topology(),
        products=tuple(products),
    )


def _format_topology() -> str:
    try:
        connections = topology.read()
    except topology.TopologyError as e:
        return f"`nvidia-smi topo -m` cannot be read: {e}\n"
    return "" if connections is None else topology.format_text(connections)


def write(
    out: Path, measurements: Measurements, link_plan: Plan, environment: dict[str, Any]
) -> bool:
    """Write all files; return whether all were written. stderr gets the failures."""
    names = [
        f"{link_plan.device.upper()}:{rank}" for rank in range(link_plan.num_devices)
    ]
    makers: dict[str, Callable[[], bytes]] = {
        "links.json": lambda: format_json(
            measurements, link_plan, environment
        ).encode(),
        "links.md": table.render(measurements, every_size=True).encode,
    }
    if any(all_reduce.points for all_reduce in measurements.all_reduces):
        makers["all_reduce.txt"] = table.format_nccl_tests(
            measurements.all_reduces, platform.node(), names
        ).encode
    if picture.has_any(measurements):
        makers["links.png"] = lambda: picture.render(measurements, "png")
        makers["links.svg"] = lambda: picture.render(measurements, "svg")
    is_complete = True
    for name, make in makers.items():
        try:
            write_bytes(make(), out / name)
        except OSError as e:
            entry.fail(f"{out / name}: {e.strerror or e}; the file was not written")
            is_complete = False
    return is_complete


def format_json(
    measurements: Measurements, link_plan: Plan, environment: dict[str, Any]
) -> str:
    """Return links.json: all raw times in seconds, options and environment."""
    threads = {}
    if link_plan.tasks:
        request = link_plan.tasks[-1].request
        for name in ("inter_op_threads", "intra_op_threads"):
            threads[name] = request[name]
    nothing = measurements.nothing
    fields = {
        "schema": series.SCHEMA,
        "options": vars(link_plan.options),
        "device": link_plan.device,
        "num_devices": link_plan.num_devices,
        "devices": link_plan.devices,
        "threads": threads,
        "series": [
            series.to_json(timed_series) for timed_series in measurements.series
        ],
        "products": [gemm.to_json(product) for product in measurements.products],
        "nothing_exchanged": None if nothing is None else series.to_json(nothing),
        "gradient_bytes": dict(measurements.gradient_bytes),
        "left_out": measurements.left_out,
        "interrupted": measurements.interrupted,
        "topology": measurements.topology,
        "environment": environment,
    }
    return input_files.format_json(fields)


def keep_peaks(products: Sequence[Gemm], environment: Mapping[str, Any]) -> None:
    """Keep the best rates for later runs, except rates that other load has disturbed.

    Warns if the file cannot be written.
    """
    measured_peaks = []
    for product in products:
        if product.disturbed:
            continue
        device_type = "CPU" if product.cores_per_device else "GPU"
        device_kind = peaks.find_device_kind(
            environment,
            device_type,
            product.onednn,
            product.cores_per_device,
            product.dtype,
        )
        if device_kind is not None:
            best = product.best
            measured_peaks.append(
                peaks.Peak(
                    device_kind,
                    num_devices=product.num_devices,
                    flops_per_second=best.median,
                    lower_quartile=best.low,
                    upper_quartile=best.high,
                )
            )
    file = peaks.find_path()
    if not measured_peaks or file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(peaks.format_peaks(peaks.read(file), measured_peaks), file)
    except OSError as e:
        entry.warn(
            f"{file}: {e.strerror or e}; later runs cannot report their share of the "
            "peak rate of matrix products"
        )
