"""Compare update modes of one process on logical CPU devices, preset small.

    python -m benchmarks.update_modes    two devices, about a minute on two quiet cores

The modes take turns, two steps per round, so that other load affects all of them.
Compare the ratios, and on a busy machine only those of the CPU time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, flags

from rnn_scaling.config import run_config as configs
from rnn_scaling.training import benchmark
from rnn_scaling.training.engines import local

FLAGS = flags.FLAGS
flags.DEFINE_integer("devices", 2, "number of logical CPU devices", lower_bound=1)
flags.DEFINE_integer(
    "rounds", 10, "number of measured turns of each mode", lower_bound=1
)

STEPS_PER_TURN = 2
STEPS_BEFORE = 3
BASE = "replicated"
# The options of each mode.
MODES = {
    BASE: {"variable_update": "replicated"},
    "parameter_server": {"variable_update": "parameter_server"},
    "independent": {"variable_update": "independent"},
    "keras_slicing, host": {"variable_update": "keras_slicing", "slice_on": "host"},
    "keras_slicing, device": {"variable_update": "keras_slicing", "slice_on": "device"},
}


def build_steps() -> dict[str, Callable[[], object]]:
    """Return a step of each mode that has run before."""
    engine = local.start(local.Request("cpu", FLAGS.devices, FLAGS.devices, 1))
    steps = {}
    for name, options in MODES.items():
        given = {"num_devices": FLAGS.devices, "device": "cpu", **options}
        config = configs.resolve(given, num_gpus=0, num_cores=FLAGS.devices)
        step = benchmark.build(config, engine)
        for _ in range(STEPS_BEFORE):
            step()
        steps[name] = step
    return steps


def format_ratio(seconds: Sequence[float], base: Sequence[float]) -> str:
    """Return the median ratio of the rounds, and the range of half of them."""
    ratios = [a / b for a, b in zip(seconds, base)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(argv: Sequence[str]) -> None:
    """Time the modes, and print a Markdown table."""
    del argv
    steps = build_steps()
    wall_s: dict[str, list[float]] = {name: [] for name in MODES}
    cpu_s: dict[str, list[float]] = {name: [] for name in MODES}
    for number in range(FLAGS.rounds):
        for name in list(MODES)[:: 1 if number % 2 else -1]:
            start_s = time.perf_counter()
            cpu_start_s = time.process_time()
            for _ in range(STEPS_PER_TURN):
                steps[name]()
            wall_s[name].append((time.perf_counter() - start_s) / STEPS_PER_TURN)
            cpu_s[name].append((time.process_time() - cpu_start_s) / STEPS_PER_TURN)
    print(
        "| mode | step (ms) | times replicated | CPU per step (ms) | times replicated |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in MODES:
        cells = []
        for seconds in (wall_s, cpu_s):
            cells.append(f"{1e3 * statistics.median(seconds[name]):.0f}")
            cells.append(format_ratio(seconds[name], seconds[BASE]))
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    app.run(main)
