"""Measures the overhead of the suite: its timed loop against the bare step in a loop, interleaved in one process.

    python -m benchmarks.overhead [--rounds=12] [--batches=10] [trainer flags ...]

Prints the median ratio of words/s (suite / bare) with its quartiles. A ratio of 1.00 is no cost.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import pool_sizes
from rnn_scaling.system.machine.cores import available_cores, bind_to_cores
from rnn_scaling.system.machine.gpus import count_visible_gpus


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=12,
        help="number of rounds; each one measures both loops",
    )
    parser.add_argument(
        "--batches", type=int, default=10, help="number of batches per measurement"
    )
    own, words = parser.parse_known_args()
    given = flags.parse(words, configs.OPTIONS)
    config = configs.resolve(
        given, num_gpus=count_visible_gpus(), num_cores=len(available_cores())
    )
    bind_to_cores(config.devices.num_devices * config.devices.cpu_cores_per_device)

    from rnn_scaling.training import benchmark
    from rnn_scaling.training.cluster import SingleProcess
    from rnn_scaling.training.engines import local
    from rnn_scaling.training.progress import ProgressLine
    from rnn_scaling.training.state import RunState

    count, pools = (
        config.devices.num_devices,
        pool_sizes(config, len(available_cores())),
    )
    engine = local.start(
        local.Request(config.devices.device, count, *pools, config.model.xla)
    )
    step = benchmark.build(config, engine)
    measure = dataclasses.replace(
        config.measure, num_warmup_batches=0, num_batches=own.batches
    )
    config = dataclasses.replace(config, measure=measure)
    bare = step._function  # the tf.function alone: no counting, no clock, no progress
    for _ in range(5):
        step()

    def suite_s() -> float:
        state = RunState(config)
        benchmark.run_batches(config, step, state, SingleProcess(), ProgressLine())
        return sum(state.timer.step_s[state.timer.warmup_steps :])

    def bare_s() -> float:
        start = time.perf_counter()
        for _ in range(own.batches):
            for tower in bare()[0]:
                tower.numpy()
        return time.perf_counter() - start

    ratios = []
    for number in range(own.rounds):
        first, second = (suite_s, bare_s) if number % 2 else (bare_s, suite_s)
        seconds = {first: first(), second: second()}
        ratios.append(seconds[bare_s] / seconds[suite_s])
        print(f"round {number + 1}/{own.rounds}: {ratios[-1]:.4f}", file=sys.stderr)
    low, median, high = statistics.quantiles(ratios, n=4)
    print(
        f"suite / bare words/s: median {median:.4f} (quartiles {low:.4f} to {high:.4f}, {own.rounds} rounds)"
    )


if __name__ == "__main__":
    main()
