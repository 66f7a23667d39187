"""Measure what the suite's timed loop costs beside the bare step in a loop.

    python -m benchmarks.overhead [--rounds=12] [--batches=10] [trainer flags ...]

Both loops train in one process, interleaved. Prints the median ratio of words/s
(suite / bare) with its quartiles. A ratio of 1.00 is no cost.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import RunConfig, choose_pool_sizes
from rnn_scaling.system.machine.cores import bind_to_cores, list_available_cores
from rnn_scaling.system.machine.gpus import count_visible_gpus

NUM_STEPS_BEFORE = 5


def main() -> None:
    """Measure in rounds and print the ratio."""
    own, words = parse_arguments()
    config = configs.resolve(
        flags.parse(words, configs.OPTIONS),
        num_gpus=count_visible_gpus(),
        num_cores=len(list_available_cores()),
    )
    measure = dataclasses.replace(
        config.measure, num_warmup_batches=0, num_batches=own.batches
    )
    config = dataclasses.replace(config, measure=measure)
    bind_to_cores(config.devices.num_devices * config.devices.cpu_cores_per_device)
    measure_suite, measure_bare = build_loops(config)
    ratios = []
    for number in range(own.rounds):
        if number % 2:
            suite_s = measure_suite()
            bare_s = measure_bare()
        else:
            bare_s = measure_bare()
            suite_s = measure_suite()
        ratios.append(bare_s / suite_s)
        print(f"round {number + 1}/{own.rounds}: {ratios[-1]:.4f}", file=sys.stderr)
    low, median, high = statistics.quantiles(ratios, n=4)
    print(
        f"suite / bare words/s: median {median:.4f} "
        f"(quartiles {low:.4f} to {high:.4f}, {own.rounds} rounds)"
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
        help="number of rounds; each one measures both loops",
    )
    parser.add_argument(
        "--batches", type=int, default=10, help="number of batches per measurement"
    )
    return parser.parse_known_args()


def build_loops(
    config: RunConfig,
) -> tuple[Callable[[], float], Callable[[], float]]:
    """Return the suite's loop and the bare one, which return their seconds."""
    # TensorFlow takes its cores when it is imported.
    from rnn_scaling.training import benchmark
    from rnn_scaling.training.cluster import SingleProcess
    from rnn_scaling.training.engines import local
    from rnn_scaling.training.progress import ProgressLine
    from rnn_scaling.training.state import RunState

    engine = local.start(
        local.Request(
            config.devices.device,
            config.devices.num_devices,
            *choose_pool_sizes(config, len(list_available_cores())),
            config.model.xla,
        )
    )
    step = benchmark.build(config, engine)
    # The tf.function alone counts nothing, reads no clock and shows no progress.
    bare_step = step._function
    for _ in range(NUM_STEPS_BEFORE):
        step()

    def measure_suite() -> float:
        state = RunState(config)
        benchmark.run_batches(config, step, state, SingleProcess(), ProgressLine())
        return sum(state.timer.step_s[state.timer.warmup_steps :])

    def measure_bare() -> float:
        start = time.perf_counter()
        for _ in range(config.measure.num_batches):
            for tower in bare_step()[0]:
                tower.numpy()
        return time.perf_counter() - start

    return measure_suite, measure_bare


if __name__ == "__main__":
    main()
