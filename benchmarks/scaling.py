"""Compare n independent towers on n cores with n processes of one tower each.

    python -m benchmarks.scaling [--devices=2] [--rounds=5] [trainer flags ...]

Both are compared with one tower on one core; the three take turns. Each measurement is
a complete run of the trainer. The n processes run at the same time, one core each, and
never wait for each other. If they process less than n times the words of one process,
the machine is slower with all cores busy, and n towers cannot be faster either. Prints
each round's speedups and their medians.
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
from typing import NamedTuple

from rnn_scaling.records import record
from rnn_scaling.system.machine.cores import list_first_cores


class Case(NamedTuple):
    """Processes of the trainer that run at the same time.

    Attributes:
      num_devices: Devices of each process.
      cores: The core of each process; None if the process chooses its cores itself.
    """

    num_devices: int
    cores: Sequence[int | None]


def main() -> None:
    options, trainer_flags = parse_options()
    cores = list_first_cores(options.devices)
    cases = {
        "one": Case(1, cores[:1]),
        "towers": Case(options.devices, [None]),
        "processes": Case(1, cores),
    }
    speedups: dict[str, list[float]] = {"towers": [], "processes": []}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            order = list(cases)
            if number % 2 == 0:
                order.reverse()
            words_per_s = {}
            for name in order:
                words_per_s[name] = run_case(cases[name], trainer_flags, Path(folder))
            for name, values in speedups.items():
                values.append(words_per_s[name] / words_per_s["one"])
            rates = [f"{name} {words_per_s[name]:,.0f} words/s" for name in cases]
            print(f"round {number + 1}: {', '.join(rates)}", flush=True)
    for name, values in speedups.items():
        ratios = ", ".join(f"{value:.3f}" for value in values)
        median = statistics.median(values)
        print(f"{options.devices} {name} of one: {ratios}; median {median:.3f}")


def parse_options() -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the benchmark, and the flags of the trainer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, default=2, help="number of devices n")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds")
    return parser.parse_known_args()


def run_case(case: Case, trainer_flags: Sequence[str], folder: Path) -> float:
    """Run the processes of a case, and return their total words/s."""
    processes = []
    for core in case.cores:
        command = [
            sys.executable,
            "-m",
            "rnn_scaling.train",
            f"--num_devices={case.num_devices}",
            "--progress=false",
            f"--result_file={folder / f'{core}.json'}",
            *trainer_flags,
        ]
        bind = None
        if core is not None:
            bind = functools.partial(os.sched_setaffinity, 0, [core])
        process = subprocess.Popen(
            command,
            preexec_fn=bind,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        processes.append(process)
    # Every process has to end before the first failure is reported.
    statuses = [process.wait() for process in processes]
    if any(statuses):
        raise SystemExit(
            "error: a run of the trainer failed; repeat it with ./run.sh train to "
            "see why"
        )
    words_per_s = 0.0
    for core in case.cores:
        run = record.read(folder / f"{core}.json")
        words_per_s += run.throughput.items_per_second
    return words_per_s


if __name__ == "__main__":
    main()
