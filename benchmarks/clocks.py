"""Measure the cost of sampling the clocks.

    python -m benchmarks.clocks [--rounds=12] [--batches=10] [--interval=0.5]
        [trainer flags ...]

One process trains the same steps with and without sampling, interleaved. Prints the
median ratio of words/s (with / without sampling) with its quartiles, and the sampler's
CPU time per sample. A ratio of 1.00 is no cost. A shorter interval makes a small cost
visible. CPU clocks are read even if they are constant, although a run would stop
reading them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import RunConfig, choose_pool_sizes
from rnn_scaling.system.machine import clock_sampler
from rnn_scaling.system.machine.clock_sampler import (
    ClockSampler,
    ClockSource,
    Sample,
)
from rnn_scaling.system.machine.cores import bind_to_cores, list_available_cores
from rnn_scaling.system.machine.gpus import count_visible_gpus, list_gpu_ids

NUM_STEPS_BEFORE = 5


class ChangingSource:
    """A source whose readings always change, so that sampling does not end."""

    def __init__(self, source: ClockSource) -> None:
        self.name = source.name
        self.devices = source.devices
        self._source = source
        self._polls = 0

    def poll(self) -> Sample | None:
        """Return the clocks, each one higher by the number of polls."""
        self._polls += 1
        sample = []
        for device in self._source.poll() or []:
            sample.append({"mhz": device["mhz"] + self._polls})
        return sample or None

    def close(self) -> None:
        """Close the real source."""
        self._source.close()


class SampledLoop:
    """Runs steps with and without a sampler, and adds up what sampling takes.

    Attributes:
      samples: Number of samples.
      cpu_s: CPU seconds of the sampler.
      source_name: Where the clocks were read.
    """

    def __init__(
        self,
        step: Callable[[], object],
        open_source: Callable[[], ClockSource | None],
        num_batches: int,
        interval_s: float,
    ) -> None:
        self.samples = 0
        self.cpu_s = 0.0
        self.source_name = ""
        self._step = step
        self._open_source = open_source
        self._num_batches = num_batches
        self._interval_s = interval_s

    def measure_with_sampling(self) -> float:
        """Return the seconds of the steps."""
        sampler = ClockSampler(self._open_source, self._interval_s)
        seconds = self.measure()
        sampler.stop()
        found = sampler.read()
        if found is None:
            sys.exit(
                "error: no clock can be read on this machine (tried NVML, nvidia-smi "
                "and the CPU)"
            )
        self.samples += found["taken"]
        self.cpu_s += found["cpu_s"]
        self.source_name = found["source"]
        return seconds

    def measure(self) -> float:
        """Return the seconds of the steps without sampling."""
        start = time.perf_counter()
        for _ in range(self._num_batches):
            self._step()
        return time.perf_counter() - start


def main() -> None:
    """Measure in rounds and print the ratio."""
    own, words = parse_arguments()
    config = configs.resolve(
        flags.parse(words, configs.OPTIONS),
        num_gpus=count_visible_gpus(),
        num_cores=len(list_available_cores()),
    )
    cores = bind_to_cores(
        config.devices.num_devices * config.devices.cpu_cores_per_device
    )
    loop = build_loop(config, cores, own.batches, own.interval)
    ratios = []
    for number in range(own.rounds):
        if number % 2:
            sampled_s = loop.measure_with_sampling()
            seconds = loop.measure()
        else:
            seconds = loop.measure()
            sampled_s = loop.measure_with_sampling()
        ratios.append(seconds / sampled_s)
        print(f"round {number + 1}/{own.rounds}: {ratios[-1]:.4f}", file=sys.stderr)
    low, median, high = statistics.quantiles(ratios, n=4)
    print(
        f"words/s with / without sampling, every {own.interval:g} s from "
        f"{loop.source_name}: median {median:.4f} (quartiles {low:.4f} to "
        f"{high:.4f}, {own.rounds} rounds); {1e6 * loop.cpu_s / loop.samples:.0f} us "
        f"of CPU time per sample ({loop.samples} samples)"
    )


def parse_arguments() -> tuple[argparse.Namespace, list[str]]:
    """Return the options of this benchmark, and the flags of the trainer."""
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
    return parser.parse_known_args()


def build_loop(
    config: RunConfig, cores: Sequence[int], num_batches: int, interval_s: float
) -> SampledLoop:
    """Return the loop of a trainer that has run its first steps.

    Args:
      config: The trainer's configuration.
      cores: Cores to which the process is bound.
      num_batches: Batches of a measurement.
      interval_s: Seconds between two samples.
    """
    # TensorFlow takes its cores when it is imported.
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.engines import local

    count = config.devices.num_devices
    threads = choose_pool_sizes(config, len(list_available_cores()))
    engine = local.start(
        local.Request(config.devices.device, count, *threads, config.model.xla)
    )
    step = benchmark.build(config, engine)
    for _ in range(NUM_STEPS_BEFORE):
        step()

    def open_source() -> ClockSource | None:
        if engine.device_type == "GPU":
            return clock_sampler.open_gpu_source(list_gpu_ids()[:count])
        source = clock_sampler.open_cpu_source(cores)
        return source and ChangingSource(source)

    return SampledLoop(step, open_source, num_batches, interval_s)


if __name__ == "__main__":
    main()
