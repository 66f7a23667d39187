"""python -m benchmarks.history [--histories=5000]: false alarms of the search for changes, and how soon it finds them.

Simulates histories and searches them with the code of `history show`. docs/history.md has the tables.
"""

from __future__ import annotations

import argparse

import numpy as np

from rnn_scaling.analysis.history.levels import find_levels
from rnn_scaling.system.files.markdown import format_table

ENTRIES = 100
STEP = np.log(0.95)


def simulated(
    generator: np.random.Generator,
    count: int,
    processes: int = 3,
    process: float = 1.5,
    entry: float = 0.5,
    **conditions: float,
) -> tuple[np.ndarray, float]:
    """(mean log rates of the entries, standard deviation of processes).

    Args:
      process, entry: standard deviations, in %.
      conditions: correlation of neighbouring entries, degrees of the entries' Student's t, share of outliers (bad).
    """
    days = (
        generator.standard_t(conditions["degrees"], count)
        if "degrees" in conditions
        else generator.normal(size=count)
    )
    for i in range(1, count) if "correlation" in conditions else ():
        days[i] = (
            conditions["correlation"] * days[i - 1]
            + np.sqrt(1 - conditions["correlation"] ** 2) * days[i]
        )
    noise = generator.normal(0, process / 100, (count, processes))
    bad = -0.1 * (generator.random(count) < conditions.get("bad", 0.0))  # 10 % slower
    deviation = float(np.sqrt(noise.var(1, ddof=1).mean())) if processes > 1 else 0.0
    return entry / 100 * days + noise.mean(1) + bad, deviation


def alarms(
    generator: np.random.Generator,
    histories: int,
    processes: int = 3,
    num_curves: int = 1,
    **conditions: float,
) -> float:
    """The share of histories of unchanged code in which any of 100 entries gives a change point."""
    found = 0
    for _ in range(histories):
        curves = [
            simulated(generator, ENTRIES, processes, **conditions)
            for _ in range(num_curves)
        ]
        found += any(
            find_levels(values, [processes] * ENTRIES, scatter, num_curves).cuts
            for values, scatter in curves
        )
    return found / histories


def power(
    generator: np.random.Generator,
    histories: int,
    before: int,
    step: float = STEP,
    after: int = 3,
    **conditions: float,
) -> float:
    """The share in which `after` more entries find a change after `before` entries, at its place or the next."""
    found, processes = 0, int(conditions.pop("processes", 3))
    for _ in range(histories):
        values, scatter = simulated(generator, before + after, processes, **conditions)
        values[before:] += step
        cuts = find_levels(
            values,
            [processes] * (before + after),
            scatter,
            int(conditions.get("num_curves", 1)),
        ).cuts
        found += any(abs(cut - before) <= 1 for cut in cuts)
    return found / histories


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--histories", type=int, default=5000, help="number of simulated histories"
    )
    histories, generator = parser.parse_args().histories, np.random.default_rng(24)
    few = histories // 10
    cases = {
        "3 processes, 1.5 %; entries 0.5 %": {},
        "5 processes, 1.5 %; entries 0.5 %": {"processes": 5},
        "1 process, 1.5 %; entries 0.5 %": {"processes": 1},
        "3 processes, 0.5 %; entries 1.5 %": {"process": 0.5, "entry": 1.5},
        "3 processes, 3 %; entries 1 %": {"process": 3.0, "entry": 1.0},
        "10 curves, each 3 processes, 1.5 %; entries 0.5 %": {"num_curves": 10},
    }
    worse = {
        "neighbouring entries correlated by 0.3": {"correlation": 0.3},
        "neighbouring entries correlated by 0.6": {"correlation": 0.6},
        "entries 1.5 %, correlated by 0.6": {"correlation": 0.6, "entry": 1.5},
        "entries from Student's t with 3 degrees": {"degrees": 3.0},
        "1 entry of 50 is 10 % slower": {"bad": 0.02},
    }
    lines = []
    for name, conditions in {**cases, **worse}.items():
        count = few if "num_curves" in conditions else histories
        line = [name, f"{100 * alarms(generator, count, **conditions):.2f} %"]
        print(line, flush=True)
        lines.append(
            line
            + [
                f"{100 * power(generator, few, before, **conditions):.0f} %"
                for before in (10, 16, 20, 50)
            ]
        )
    head = ["Scatter (standard deviation)", "False alarms in 100 entries"]
    print(
        format_table(
            [*head, *(f"-5 % found after {n}" for n in (10, 16, 20, 50))], lines
        )
    )
    steps = [
        [
            f"{step} %",
            *(
                f"{100 * power(generator, few, 20, np.log(1 - step / 100), after):.0f} %"
                for after in (2, 3, 5, 10, 20)
            ),
        ]
        for step in (2, 3, 4, 5, 7, 10)
    ]
    print(
        format_table(
            [
                "Change after 20 entries",
                *(f"found with {n} more" for n in (2, 3, 5, 10, 20)),
            ],
            steps,
        )
    )


if __name__ == "__main__":
    main()
