"""Seconds of a report of thousands of different configurations, stage by stage.

    python -m benchmarks.report [--records=10000] [--profile]

The records are made in a temporary folder from those of docs/results: two modes on one device and on two, with as many
layer sizes as necessary. Each run has its own batch times.
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

MADE_FROM = Path(__file__).parents[1] / "docs" / "results" / "default"
PROFILED = 45  # lines of the profile


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=10_000, help="number of records")
    parser.add_argument(
        "--profile",
        action="store_true",
        help="also print a profile of the slowest functions",
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        _make(Path(path), arguments.records)
        profile = cProfile.Profile()
        if arguments.profile:
            bind_to_cores(1)
        with profile if arguments.profile else contextlib.nullcontext():
            report(Path(path), Path(path) / "report")
        if arguments.profile:
            text = io.StringIO()
            pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(
                PROFILED
            )
            print(text.getvalue())


def report(source: Path, target: Path) -> None:
    """Reports a folder as the command does, and prints the seconds of each stage."""
    target.mkdir()
    began = time.perf_counter()
    with _timed("read"):
        records = folder.read(source)
    with _timed("summarise"):
        summary = summarise(records, str(source))
    with _timed("write"):
        for name, render in report_files.file_renderers(summary).items():
            (target / name).write_bytes(render())
    print(f"{'total':10}{time.perf_counter() - began:6.2f} s, {len(summary.rows)} rows")


@contextlib.contextmanager
def _timed(name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    print(f"{name:10}{time.perf_counter() - began:6.2f} s")


def _make(path: Path, count: int) -> None:
    """Records of as many configurations."""
    modes = ("independent", "replicated")
    templates = [_template(mode, devices) for mode in modes for devices in (1, 2)]
    noise = random.Random(0)
    for k in range(count):
        fields = dict(templates[k % len(templates)])
        fields["config"] = {**fields["config"], "num_units": 64 + k // len(templates)}
        seconds = [
            batch_s * noise.uniform(0.98, 1.02)
            for batch_s in fields["batches"]["seconds"]
        ]
        warmup, items = fields["batches"]["warmup"], fields["batches"]["items"]
        measured = sum(seconds[warmup:])
        counted = sum(items[warmup:])
        phases = {
            **fields["phases"],
            "first_batch": seconds[0],
            "warmup": sum(seconds[1:warmup]),
            "measured": measured,
        }
        fields["batches"] = {**fields["batches"], "seconds": seconds}
        fields["throughput"] = {
            "items": counted,
            "seconds": measured,
            "items_per_second": counted / measured,
        }
        fields["phases"] = {
            **phases,
            "total": sum(
                phase_s for name, phase_s in phases.items() if name != "total"
            ),
        }
        fields["environment"] = {
            **fields["environment"],
            "started": f"2026-01-01T00:00:00.{k:06d}+00:00",
        }
        (path / f"{k}.json").write_text(json.dumps(fields, indent=1))


def _template(mode: str, devices: int) -> dict[str, Any]:
    for file in sorted(MADE_FROM.glob("*.json")):
        fields: dict[str, Any] = json.loads(file.read_text())
        options = fields.get("config", {})
        if (options.get("variable_update"), options.get("num_devices")) == (
            mode,
            devices,
        ) and fields["status"] == "ok":
            return fields
    raise ValueError(f"expected a record of {mode} on {devices} devices in {MADE_FROM}")


if __name__ == "__main__":
    main()
