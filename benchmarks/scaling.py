"""n independent towers of one process on n cores against one on one core, and n processes of one tower, interleaved.

    python -m benchmarks.scaling [--devices=2] [--rounds=5] [trainer flags ...]

Each measurement is a complete run of the trainer. The n processes run at the same time, one core each, and never wait
for each other. If they make less than n times the words of one, the machine is slower with all cores busy, and n towers
cannot make more either. Prints each round's speedups and their medians.
"""

from __future__ import annotations

import argparse
import functools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.records import record
from rnn_scaling.system.machine.cores import first_cores


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=2, help="number of devices n")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    own, flags = parser.parse_known_args()
    cores = first_cores(own.devices)
    kinds = {
        "one": (1, cores[:1]),
        "towers": (own.devices, [None]),
        "processes": (1, cores),
    }
    speedups: dict[str, list[float]] = {"towers": [], "processes": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(own.rounds):
            order = list(kinds) if number % 2 else [*reversed(kinds)]
            rates = {kind: _rate(*kinds[kind], flags, Path(folder)) for kind in order}
            for kind, values in speedups.items():
                values.append(rates[kind] / rates["one"])
            print(
                f"round {number + 1}: {', '.join(f'{kind} {rates[kind]:,.0f} words/s' for kind in kinds)}",
                flush=True,
            )
    for kind, values in speedups.items():
        ratios = ", ".join(f"{each:.3f}" for each in values)
        print(
            f"{own.devices} {kind} of one: {ratios}; median {statistics.median(values):.3f}"
        )


def _rate(
    num_devices: int, cores: Sequence[int | None], flags: Sequence[str], folder: Path
) -> float:
    """Total words/s of one trainer with `num_devices` per entry of `cores`, all at the same time; None binds itself."""
    started = []
    for core in cores:
        bind = (
            None if core is None else functools.partial(os.sched_setaffinity, 0, [core])
        )
        command = [
            sys.executable,
            "-m",
            "rnn_scaling.train",
            f"--num_devices={num_devices}",
        ]
        command += [
            "--progress=false",
            f"--result_file={folder / f'{core}.json'}",
            *flags,
        ]
        started.append(
            subprocess.Popen(
                command,
                preexec_fn=bind,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    statuses = [process.wait() for process in started]
    if any(statuses):
        raise SystemExit(
            "error: a run of the trainer failed; repeat it with ./run.sh train to "
            "see why"
        )
    return sum(
        record.read(folder / f"{core}.json").throughput.items_per_second
        for core in cores
    )


if __name__ == "__main__":
    main()
