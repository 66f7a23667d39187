"""Time a report of thousands of different configurations, stage by stage.

    python -m benchmarks.report [--records=10000] [--profile]

The records are made in a temporary folder from those of docs/results: two modes on one
device and on two, with as many layer sizes as necessary. Each run has its own batch
times.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import json
import pstats
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rnn_scaling.records import folder
from rnn_scaling.reports import report_files
from rnn_scaling.reports.summary import summarise
from rnn_scaling.system.machine.cores import bind_to_cores

TEMPLATE_FOLDER = Path(__file__).parents[1] / "docs" / "results" / "default"
PROFILE_LINES = 45
MODES = ("independent", "replicated")
DEVICE_COUNTS = (1, 2)


def main() -> None:
    options = parse_options()
    with tempfile.TemporaryDirectory() as path:
        folder_of_records = Path(path)
        make_records(folder_of_records, options.records)
        if options.profile:
            print_profile(folder_of_records)
        else:
            report(folder_of_records, folder_of_records / "report")


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000, help="number of records")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also print a profile of the slowest functions",
    )
    return parser.parse_args()


def print_profile(source: Path) -> None:
    """Report a folder on one core, and print the slowest functions."""
    bind_to_cores(1)
    profile = cProfile.Profile()
    with profile:
        report(source, source / "report")
    text = io.StringIO()
    statistics = pstats.Stats(profile, stream=text).sort_stats("tottime")
    statistics.print_stats(PROFILE_LINES)
    print(text.getvalue())


def report(source: Path, target: Path) -> None:
    """Report a folder as the command does, and print the seconds of each stage."""
    target.mkdir()
    start = time.perf_counter()
    with print_seconds("read"):
        records = folder.read(source)
    with print_seconds("summarise"):
        summary = summarise(records, str(source))
    with print_seconds("write"):
        for name, render in report_files.list_file_renderers(summary).items():
            (target / name).write_bytes(render())
    total_s = time.perf_counter() - start
    print(f"{'total':10}{total_s:6.2f} s, {len(summary.rows)} rows")


@contextlib.contextmanager
def print_seconds(stage: str) -> Iterator[None]:
    """Print how long the context lasts."""
    start = time.perf_counter()
    yield
    print(f"{stage:10}{time.perf_counter() - start:6.2f} s")


def make_records(path: Path, count: int) -> None:
    """Write the records of `count` different configurations."""
    templates = []
    for mode in MODES:
        for num_devices in DEVICE_COUNTS:
            templates.append(read_template(mode, num_devices))
    noise = random.Random(0)
    for number in range(count):
        layer_size, kind = divmod(number, len(templates))
        fields = make_record(templates[kind], noise)
        fields["config"] = {**fields["config"], "num_units": 64 + layer_size}
        fields["environment"] = {
            **fields["environment"],
            "started": f"2026-01-01T00:00:00.{number:06d}+00:00",
        }
        (path / f"{number}.json").write_text(json.dumps(fields, indent=1))


def make_record(template: dict[str, Any], noise: random.Random) -> dict[str, Any]:
    """Return a copy of a record whose batch times differ by up to 2 %."""
    batches = dict(template["batches"])
    batches["seconds"] = [
        batch_s * noise.uniform(0.98, 1.02) for batch_s in batches["seconds"]
    ]
    seconds = batches["seconds"]
    num_warmup = batches["warmup"]
    measured_s = sum(seconds[num_warmup:])
    items = sum(batches["items"][num_warmup:])
    phases = {
        **template["phases"],
        "first_batch": seconds[0],
        "warmup": sum(seconds[1:num_warmup]),
        "measured": measured_s,
    }
    parts_s = [phase_s for name, phase_s in phases.items() if name != "total"]
    phases["total"] = sum(parts_s)
    throughput = {
        "items": items,
        "seconds": measured_s,
        "items_per_second": items / measured_s,
    }
    return {**template, "batches": batches, "phases": phases, "throughput": throughput}


def read_template(mode: str, num_devices: int) -> dict[str, Any]:
    """Return the first successful record of a mode and a number of devices."""
    for file in sorted(TEMPLATE_FOLDER.glob("*.json")):
        fields: dict[str, Any] = json.loads(file.read_text())
        config = fields.get("config", {})
        if (
            fields["status"] == "ok"
            and config.get("variable_update") == mode
            and config.get("num_devices") == num_devices
        ):
            return fields
    raise ValueError(
        f"expected a record of {mode} on {num_devices} devices in {TEMPLATE_FOLDER}"
    )


if __name__ == "__main__":
    main()
