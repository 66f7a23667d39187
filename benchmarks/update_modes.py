"""Compares update modes of one process on logical CPU devices, preset small; prints a Markdown table.

    python benchmarks/update_modes.py                    two devices, about a minute on two quiet cores

The modes take turns, two steps per round, so that other load affects all of them. Compare the ratios, and on a busy
machine only those of the CPU time.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import time
from collections.abc import Sequence

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from absl import app, flags

from rnn_scaling.config import run_config as configs
from rnn_scaling.training import benchmark
from rnn_scaling.training.engines import local

FLAGS = flags.FLAGS
flags.DEFINE_integer("devices", 2, "number of logical CPU devices", lower_bound=1)
flags.DEFINE_integer(
    "rounds", 10, "number of measured turns of each mode", lower_bound=1
)

STEPS = 2  # a turn
MODES = {
    "replicated": {},
    "parameter_server": {},
    "independent": {},
    "keras_slicing, host": {"variable_update": "keras_slicing", "slice_on": "host"},
    "keras_slicing, device": {"variable_update": "keras_slicing", "slice_on": "device"},
}


def _ratios(seconds: Sequence[float], baseline: Sequence[float]) -> str:
    """ "1.10 (1.08 to 1.12)": the median ratio of a round, and between which half of them lie."""
    low, middle, high = statistics.quantiles(
        [a / b for a, b in zip(seconds, baseline)], n=4
    )
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(argv: Sequence[str]) -> None:
    del argv
    engine = local.start(local.Request("cpu", FLAGS.devices, FLAGS.devices, 1))
    steps = {}
    for name, options in MODES.items():
        given = {
            "variable_update": name,
            "num_devices": FLAGS.devices,
            "device": "cpu",
            **options,
        }
        steps[name] = benchmark.build(
            configs.resolve(given, num_gpus=0, num_cores=FLAGS.devices), engine
        )
        for _ in range(3):
            steps[name]()
    wall, cpu = ({name: [] for name in MODES} for _ in range(2))
    for number in range(FLAGS.rounds):
        for name in list(MODES)[:: 1 if number % 2 else -1]:
            begun, spent = time.perf_counter(), time.process_time()
            for _ in range(STEPS):
                steps[name]()
            wall[name].append((time.perf_counter() - begun) / STEPS)
            cpu[name].append((time.process_time() - spent) / STEPS)
    print(
        "| mode | step (ms) | times replicated | CPU per step (ms) | times replicated |"
    )
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in MODES:
        cells = []
        for seconds in (wall, cpu):
            middle = 1e3 * statistics.median(seconds[name])
            cells += [f"{middle:.0f}", _ratios(seconds[name], seconds["replicated"])]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    app.run(main)
