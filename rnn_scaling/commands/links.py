"""python -m rnn_scaling links: rates of memory, copies, matrix products and all-reduces of this machine."""

from __future__ import annotations

import dataclasses
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.links import gemm, nccl_text, picture, plan, processes, series, table
from rnn_scaling.links.display import Display
from rnn_scaling.links.gemm import Gemm
from rnn_scaling.links.plan import Plan
from rnn_scaling.links.processes import Outcome
from rnn_scaling.links.series import Series
from rnn_scaling.links.table import Found
from rnn_scaling.machine import peaks, process, topology
from rnn_scaling.machine.environment import read_environment
from rnn_scaling.machine.gpus import DeviceError
from rnn_scaling.records.files import write_bytes, write_text
from rnn_scaling.settings import flags

USAGE = """\
python -m rnn_scaling links [--out=DIR] [--name=value ...]    (or ./run.sh links)

Measures what the exchange of gradients rests on: the host's memory, copies between host and GPUs and between GPUs
(pinned and pageable, one way and both ways), and TensorFlow's all-reduce by every algorithm of --all_reduce_spec. Each
is fitted to time = alpha + bytes / beta; the sums of every all-reduce are compared with the exact ones. Matrix products
show what a step's arithmetic can reach; their rate is kept for the runs of this machine.

    python -m rnn_scaling links                                     everything, some minutes
    python -m rnn_scaling links --measure=memory                    some seconds, without TensorFlow
    python -m rnn_scaling links --measure=compute                   half a minute, on a machine that is idle otherwise
    python -m rnn_scaling links --measure=all_reduce --algorithms=pscpu,xring#2 --num_devices=4 --max_bytes=16M

Prints the tables. --out gets links.md (the same, and every size), links.json (all raw times), all_reduce.txt (columns
of nccl-tests, which python -m rnn_scaling import_log reads too), links.png and links.svg. Each all-reduce is a process
of its own: one that does not return within --timeout is ended and named, the others go on. docs/links.md says what
every number means.

Exit status: 0 everything was measured and right, 1 a measurement failed, a sum was wrong or a file was not written,
2 wrong use, 130 interrupted (Ctrl-C or SIGTERM; what was measured is written)."""

SCHEMA = "rnn_scaling.links/1"
EXIT_FAILED, EXIT_USAGE = 1, 2
NOTHING = "nothing"


def main(argv: Sequence[str] | None = None, worker: Sequence[str] = processes.WORKER) -> int:
    """Measures; returns the exit status.

    Args:
      argv: the command line; that of the process if None.
      worker: the command that measures one thing.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if flags.wants_help(words):
        print(flags.help_text(USAGE, {"links": plan.LinkOptions}))
        return 0
    try:
        wanted = plan.make(words)
    except flags.FlagErrors as e:
        for line in e.lines:
            print(f"error: {line}", file=sys.stderr)
        return EXIT_USAGE
    except (DeviceError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return EXIT_FAILED
    out = Path(wanted.options.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()  # what cannot be written is found out now and not after minutes
    except OSError as e:
        print(f"error: --out={out}: {e.strerror or e}; name another folder", file=sys.stderr)
        return EXIT_USAGE
    environment = read_environment()
    with process.termination_interrupts():
        found = measure(wanted, worker)
    keep_peaks(found.products, environment)
    written = _write(out, found, wanted, environment)  # first: whoever reads the tables may stop reading
    print(table.render(found), end="", flush=True)
    for error in found.errors:
        print(f"error: {error}", file=sys.stderr)
    if found.interrupted:
        print(found.interrupted, file=sys.stderr)
        return entry.EXIT_INTERRUPTED
    return 0 if written and not found.errors else EXIT_FAILED


def measure(wanted: Plan, worker: Sequence[str]) -> Found:
    """Runs every task; one that fails leaves its reason in its series. What has hung once is not tried again.

    Ctrl-C or SIGTERM ends the process that is measuring and all that would follow.

    Raises:
      KeyboardInterrupt: if it came before the first measurement had ended.
    """
    display = Display(wanted.options.progress, len(wanted.tasks))
    outcomes: list[tuple[str, Outcome]] = []
    interrupted = ""
    try:
        for task in wanted.tasks:
            if any(name == _name(task) and outcome.timed_out for name, outcome in outcomes):
                continue
            display.start(task.what)
            try:
                outcome = processes.run(task.request, wanted.options.timeout, display.rounds, worker)
            except OSError as e:  # no room for its files: what was measured before is not lost
                outcome = Outcome(error=f"{e.filename or 'its process'}: {e.strerror or e}")
            outcomes.append((_name(task), outcome))
    except KeyboardInterrupt:
        if not outcomes:
            raise
        interrupted = f"interrupted: {len(outcomes)} of {len(wanted.tasks)} measurements were made"
    finally:
        display.close()
    return dataclasses.replace(collect(outcomes, wanted), interrupted=interrupted)


def _name(task: plan.Task) -> str:
    return (task.request.get("algorithm") or NOTHING) if task.request["what"] == "all_reduce" else task.what


def collect(outcomes: Sequence[tuple[str, Outcome]], wanted: Plan) -> Found:
    """All series, the passes of an algorithm as one."""
    parts: dict[str, list[Series]] = {}
    gradient_bytes: dict[str, int] = {}
    for name, outcome in outcomes:
        gradient_bytes.update(outcome.facts.get("gradient_bytes", {}))
        is_all_reduce = name in {_name(t) for t in wanted.tasks if t.request["what"] == "all_reduce"}
        for each in outcome.series:
            parts.setdefault(each.name, []).append(_with_error(each, outcome.error if is_all_reduce else ""))
        if outcome.error and not (outcome.series and is_all_reduce):
            kind = series.ALL_REDUCE if is_all_reduce else series.COPY
            failed = Series(kind, name, ranks=wanted.num_devices if is_all_reduce else 0, error=outcome.error)
            parts.setdefault(name, []).append(failed)
    # The algorithms in the order of the flag, whatever the order of the passes.
    joined = {name: series.joined(each) for name, each in parts.items()}
    nothing = joined.pop(NOTHING, None)
    if nothing is not None and nothing.error:
        joined[NOTHING] = dataclasses.replace(nothing, points=())  # named as failed, and no algorithm for that
    products = tuple(gemm.from_json(fields) for _, outcome in outcomes for fields in outcome.facts.get("products", ()))
    return Found(
        wanted.devices,
        tuple(joined.values()),
        nothing,
        wanted.left_out,
        tuple(gradient_bytes.items()),
        _topology(),
        products=products,
    )


def _with_error(each: Series, error: str) -> Series:
    return dataclasses.replace(each, error=error) if error else each


def _topology() -> str:
    found = topology.read()
    return "" if found is None else topology.text(found)


def _write(out: Path, found: Found, wanted: Plan, environment: dict[str, Any]) -> bool:
    """Writes all files; says which could not be written and returns False then."""
    names = [f"{wanted.device.upper()}:{rank}" for rank in range(wanted.num_devices)]
    makers: dict[str, Callable[[], bytes]] = {
        "links.json": lambda: as_json(found, wanted, environment).encode(),
        "links.md": table.render(found, every_size=True).encode,
    }
    if any(each.points for each in found.all_reduces):
        makers["all_reduce.txt"] = nccl_text.render(found.all_reduces, platform.node(), names).encode
    if picture.has_any(found):
        makers["links.png"] = lambda: picture.render(found, "png")
        makers["links.svg"] = lambda: picture.render(found, "svg")
    whole = True
    for name, make in makers.items():
        try:
            write_bytes(make(), out / name)
        except OSError as e:
            print(f"error: {out / name}: {e.strerror or e}; the file was not written", file=sys.stderr)
            whole = False
    return whole


def keep_peaks(products: Sequence[Gemm], environment: Mapping[str, Any]) -> None:
    """Keeps the best rates for this machine's runs; says on stderr if it cannot, which fails nothing."""
    measured = []
    for each in products:
        kind = "CPU" if each.cores_per_device else "GPU"
        where = peaks.place(environment, kind, each.onednn, each.cores_per_device, each.dtype)
        if where is not None:
            best = each.best
            measured.append(peaks.Peak(where, each.num_devices, best.median, best.low, best.high))
    file = peaks.path()
    if not measured or file is None:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(peaks.as_text(peaks.read(file), measured), file)
    except OSError as e:
        print(f"warning: {file}: {e.strerror or e}; runs will not know the rate of matrix products", file=sys.stderr)


def as_json(found: Found, wanted: Plan, environment: dict[str, Any]) -> str:
    """links.json: every raw time with what explains it."""
    fields = {
        "schema": SCHEMA,
        "options": vars(wanted.options),
        "device": wanted.device,
        "num_devices": wanted.num_devices,
        "devices": wanted.devices,
        "threads": {
            name: wanted.tasks[-1].request[name] for name in ("inter_op_threads", "intra_op_threads") if wanted.tasks
        },
        "series": [series.to_json(each) for each in found.series],
        "products": [gemm.to_json(each) for each in found.products],
        "nothing_exchanged": None if found.nothing is None else series.to_json(found.nothing),
        "gradient_bytes": dict(found.gradient_bytes),
        "left_out": found.left_out,
        "interrupted": found.interrupted,
        "topology": found.topology,
        "environment": environment,
    }
    return json.dumps(fields, indent=1) + "\n"
