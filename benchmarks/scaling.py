"""n independent towers on n cores against one on one core, as whole runs of the trainer, interleaved.

    python -m benchmarks.scaling [--devices=2] [--rounds=5] [trainer flags ...]

Prints each round's speedup and their median.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rnn_scaling.records import record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    own, flags = parser.parse_known_args()
    speedups = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(own.rounds):
            order = (1, own.devices) if number % 2 else (own.devices, 1)
            rates = {count: _rate(count, flags, Path(folder) / "run.json") for count in order}
            speedups.append(rates[own.devices] / rates[1])
            print(f"round {number + 1}: {rates[1]:,.0f} -> {rates[own.devices]:,.0f} words/s, {speedups[-1]:.3f}")
    print(f"speedup on {own.devices} devices: median {statistics.median(speedups):.3f} of {own.rounds} rounds")


def _rate(num_devices: int, flags: list[str], result_file: Path) -> float:
    command = [sys.executable, "-m", "rnn_scaling.train", f"--num_devices={num_devices}", "--progress=false"]
    done = [*command, f"--result_file={result_file}", *flags]
    subprocess.run(done, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return record.read(result_file).throughput.items_per_second


if __name__ == "__main__":
    main()
