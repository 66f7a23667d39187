"""What is to be measured -> every task in a process of its own -> all series, and the files that hold them."""

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
from rnn_scaling.system.files.terminal import Board
from rnn_scaling.system.machine import peaks, topology

SCHEMA = "rnn_scaling.links/1"
LAYOUT = "{desc} |{bar}| {percentage:.0f} %, {elapsed} so far, {remaining} left"


def measure(wanted: Plan, worker: Sequence[str]) -> Measurements:
    """Runs every task; one that fails leaves its reason in its series. What has hung once is not tried again.

    Ctrl-C or SIGTERM ends the process that is measuring and all that would follow.
    """
    total = len(wanted.tasks)
    outcomes: list[tuple[LinkTask, WorkerOutcome]] = []
    hung: set[str] = set()
    board = Board(total, LAYOUT, enabled=wanted.options.progress, leave=False)

    def tell(done: int, rounds: int, what: str) -> None:
        board.move(len(outcomes) + done / max(rounds, 1), what)

    interrupted = ""
    try:
        for task in wanted.tasks:
            if task.series in hung:
                continue
            tell(0, 1, task.what)
            if not board.has_bar:
                board.line(f"{len(outcomes) + 1}/{total}: {task.what}")
            timeout_s = wanted.options.timeout
            try:
                outcome = processes.run(task.request, timeout_s, tell, worker)
            except OSError as e:
                # No room for its files: what was measured before is not lost.
                reason = f"{e.filename or 'its process'}: {e.strerror or e}"
                outcome = WorkerOutcome(error=reason)
            outcomes.append((task, outcome))
            if outcome.timed_out:
                hung.add(task.series)
            for line in _outcome_lines(outcome, task.what):
                board.line(f"  {line}")
    except KeyboardInterrupt:
        if not outcomes:
            raise
        interrupted = f"interrupted: {len(outcomes)} of {total} measurements were made"
    finally:
        board.close()
    return dataclasses.replace(collect(outcomes, wanted), interrupted=interrupted)


def _outcome_lines(outcome: WorkerOutcome, what: str) -> list[str]:
    """A line for each series and product of a measurement, and for its failure."""
    lines = [_line(measured) for measured in outcome.series if measured.points]
    for product in outcome.products:
        lines.append(
            f"{product.dtype}, {product.devices}: {product.best.median / table.GIGA:.3g} GFLOP/s at best"
        )
    if outcome.error:
        lines.append(f"{what}: failed: {outcome.error}")
    return lines


def _line(measured: Series) -> str:
    first = measured.points[0]
    last = measured.points[-1]
    unit = "GB/s busbw" if measured.kind == series.ALL_REDUCE else "GB/s"
    has_rate = measured.traffic and measured.name != NOTHING
    rate = (
        f"{measured.gb_per_s(last):.3g} {unit} at {series.size_text(last.num_bytes)}, "
        if has_rate
        else ""
    )
    return f"{measured.name}: {rate}{1e6 * first.median_s:.3g} us at {series.size_text(first.num_bytes)}"


def collect(
    outcomes: Sequence[tuple[LinkTask, WorkerOutcome]], wanted: Plan
) -> Measurements:
    """Return all series, the passes of an algorithm as one."""
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
            failed = Series(
                series.ALL_REDUCE if is_all_reduce else series.COPY,
                task.series,
                ranks=wanted.num_devices if is_all_reduce else 0,
                error=outcome.error,
            )
            parts.setdefault(task.series, []).append(failed)
    # The algorithms in the order of the flag, whatever the order of the passes.
    joined = {name: series.joined(part) for name, part in parts.items()}
    nothing = joined.pop(NOTHING, None)
    if nothing is not None and nothing.error:
        # Named as failed, and no algorithm for that.
        joined[NOTHING] = dataclasses.replace(nothing, points=())
    return Measurements(
        wanted.devices,
        tuple(joined.values()),
        nothing,
        wanted.left_out,
        tuple(gradient_bytes.items()),
        _topology(),
        products=tuple(products),
    )


def _topology() -> str:
    try:
        connections = topology.read()
    except topology.TopologyError as e:
        return f"`nvidia-smi topo -m` cannot be read: {e}\n"
    return "" if connections is None else topology.text(connections)


def write(
    out: Path, measured: Measurements, wanted: Plan, environment: dict[str, Any]
) -> bool:
    """Writes all files; returns whether every one was written. The others are named on stderr."""
    names = [f"{wanted.device.upper()}:{rank}" for rank in range(wanted.num_devices)]
    makers: dict[str, Callable[[], bytes]] = {
        "links.json": lambda: as_json(measured, wanted, environment).encode(),
        "links.md": table.render(measured, every_size=True).encode,
    }
    if any(all_reduce.points for all_reduce in measured.all_reduces):
        makers["all_reduce.txt"] = table.nccl_tests(
            measured.all_reduces, platform.node(), names
        ).encode
    if picture.has_any(measured):
        makers["links.png"] = lambda: picture.render(measured, "png")
        makers["links.svg"] = lambda: picture.render(measured, "svg")
    whole = True
    for name, make in makers.items():
        try:
            write_bytes(make(), out / name)
        except OSError as e:
            entry.fail(f"{out / name}: {e.strerror or e}; the file was not written")
            whole = False
    return whole


def as_json(measured: Measurements, wanted: Plan, environment: dict[str, Any]) -> str:
    """links.json: every raw time in seconds, with what explains it."""
    fields = {
        "schema": SCHEMA,
        "options": vars(wanted.options),
        "device": wanted.device,
        "num_devices": wanted.num_devices,
        "devices": wanted.devices,
        "threads": {
            name: wanted.tasks[-1].request[name]
            for name in ("inter_op_threads", "intra_op_threads")
            if wanted.tasks
        },
        "series": [series.to_json(timed_series) for timed_series in measured.series],
        "products": [gemm.to_json(product) for product in measured.products],
        "nothing_exchanged": None
        if measured.nothing is None
        else series.to_json(measured.nothing),
        "gradient_bytes": dict(measured.gradient_bytes),
        "left_out": measured.left_out,
        "interrupted": measured.interrupted,
        "topology": measured.topology,
        "environment": environment,
    }
    return input_files.json_text(fields)


def keep_peaks(products: Sequence[Gemm], environment: Mapping[str, Any]) -> None:
    """Keeps the best rates for runs on this machine, except those measured next to other load; may warn."""
    measured = []
    for product in (product for product in products if not product.disturbed):
        kind = "CPU" if product.cores_per_device else "GPU"
        where = peaks.place(
            environment, kind, product.onednn, product.cores_per_device, product.dtype
        )
        if where is not None:
            best = product.best
            measured.append(
                peaks.Peak(where, product.num_devices, best.median, best.low, best.high)
            )
    file = peaks.path()
    if not measured or file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(peaks.as_text(peaks.read(file), measured), file)
    except OSError as e:
        entry.warn(
            f"{file}: {e.strerror or e}; runs will not know the rate of matrix products"
        )
