"""Measures the cost of sampling the clocks: the same steps with and without it, interleaved in one process.

    python -m benchmarks.clocks [--rounds=12] [--batches=10] [--interval=0.5] [trainer flags ...]

Prints the median ratio of words/s (sampled / not) with its quartiles, and the sampler's CPU time per sample. A ratio of
1.00 is no cost. A shorter interval makes a small cost visible. CPU clocks are read even if they are constant, although
a run would stop reading them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import pool_sizes
from rnn_scaling.system.machine import clock_sampler
from rnn_scaling.system.machine.clock_sampler import ClockSource, Sample
from rnn_scaling.system.machine.cores import available_cores, bind_to_cores
from rnn_scaling.system.machine.gpus import count_visible_gpus, list_gpu_ids


class _Moving:
    """A source whose readings are never all the same, so that sampling does not end."""

    def __init__(self, source: ClockSource) -> None:
        self._source, self._polls = source, 0
        self.name, self.devices = source.name, source.devices

    def poll(self) -> Sample | None:
        self._polls += 1
        return [
            {"mhz": device["mhz"] + self._polls} for device in self._source.poll() or []
        ] or None

    def close(self) -> None:
        self._source.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=12,
        help="number of rounds; each one measures with and without sampling",
    )
    parser.add_argument(
        "--batches", type=int, default=10, help="number of batches per measurement"
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=clock_sampler.INTERVAL_S,
        help="seconds between two samples",
    )
    own, words = parser.parse_known_args()
    config = configs.resolve(
        flags.parse(words, configs.OPTIONS),
        num_gpus=count_visible_gpus(),
        num_cores=len(available_cores()),
    )
    count = config.devices.num_devices
    cores = bind_to_cores(count * config.devices.cpu_cores_per_device)

    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines import local

    threads = pool_sizes(config, len(available_cores()))
    engine = local.start(
        local.Request(config.devices.device, count, *threads, config.model.xla)
    )
    step = benchmark.build(config, engine)
    for _ in range(5):
        step()
    taken, cpu_s, source_name = 0, 0.0, ""

    def open_source() -> ClockSource | None:
        if engine.device_type == "GPU":
            return clock_sampler.open_gpu_source(list_gpu_ids()[:count])
        source = clock_sampler.open_cpu_source(cores)
        return source and _Moving(source)

    def batches_s(sampled: bool) -> float:
        nonlocal taken, cpu_s, source_name
        sampler = (
            clock_sampler.ClockSampler(open_source, own.interval) if sampled else None
        )
        start = time.perf_counter()
        for _ in range(own.batches):
            step()
        seconds = time.perf_counter() - start
        if sampler is not None:
            sampler.stop()
            found = sampler.read() or sys.exit(
                "error: no clock can be read on this machine (tried NVML, "
                "nvidia-smi and the CPU)"
            )
            taken, cpu_s, source_name = (
                taken + found["taken"],
                cpu_s + found["cpu_s"],
                found["source"],
            )
        return seconds

    ratios = []
    for number in range(own.rounds):
        order = (True, False) if number % 2 else (False, True)
        seconds = {sampled: batches_s(sampled) for sampled in order}
        ratios.append(seconds[False] / seconds[True])
        print(f"round {number + 1}/{own.rounds}: {ratios[-1]:.4f}", file=sys.stderr)
    low, median, high = statistics.quantiles(ratios, n=4)
    print(
        f"words/s with / without sampling, every {own.interval:g} s from "
        f"{source_name}: median {median:.4f} (quartiles {low:.4f} to "
        f"{high:.4f}, {own.rounds} rounds); {1000000.0 * cpu_s / taken:.0f} us "
        f"of CPU time per sample ({taken} samples)"
    )


if __name__ == "__main__":
    main()
