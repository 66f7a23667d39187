"""Simulate how often comparisons are right: `compare`, `ab` and sweeps.

    python -m benchmarks.comparison_coverage [--parts=test,ab,sweep,sessions,turns]
        [--repetitions=4000] [--seed=1]

test: The tests without any load: false alarms, and how often a slow-down of the
  detectable size is found, by the order of the runs and by a steady drift.
ab: Pairs of runs, some of which other processes disturb.
sweep: The rates of three configurations with three repeats each, beside such processes.
sessions: Two sweeps at different times, on a machine that drifts.
turns: Four sweeps at different times in the order A B B A.

docs/methods/measurements.md has the tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.simulated import (
    compute_coverage,
    process_rates,
    simulate_autoregressive,
    simulate_batches,
)
from rnn_scaling.analysis import confidence, significance
from rnn_scaling.analysis.comparison import drift
from rnn_scaling.analysis.confidence import (
    Interval,
    compute_interval_over_runs,
    compute_shared_scatters,
    divide_rates,
)
from rnn_scaling.analysis.disturbance import select_quiet
from rnn_scaling.analysis.history import sessions as earlier_sessions
from rnn_scaling.analysis.significance import Verdict
from rnn_scaling.system.files.markdown import format_table

RUNS_APART = 0.02  # standard deviation of log rates between quiet runs
ALIKE = 0.3  # correlation of one run with the next
SLOWED = 0.3  # share of the rate that other processes take from a disturbed run
WARM_UP = 5  # slow batches at the start of a run
WARM_UP_FACTOR = 1.5  # seconds of such a batch, relative to others
SKIPPED = 10  # batches of a run that are not measured
MEASURED = 20
CHANGE = 1.05  # true ratio that `ab` shall find

# Order of the sides in the pairs of a design; True: the second side runs first.
ORDERS = {
    "A B A B": (False,),
    "A B B A": (False, True),
    "A B B A B A A B": (False, True, True, False),  # the order of `ab`
}
OWN_ORDER = "A B B A B A A B"


def list_places(k: int, order: str = OWN_ORDER) -> tuple[np.ndarray, np.ndarray]:
    """Return the places in time of the runs of both sides, in k pairs."""
    is_reversed = np.resize(ORDERS[order], k)
    first = 2 * np.arange(k)
    before = np.where(is_reversed, first + 1, first)
    after = np.where(is_reversed, first, first + 1)
    return before, after


def simulate_tests(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Yield the false alarms and the power of the test, by design."""
    designs = (
        (0.0, "A B A B"),
        (0.02, "A B A B"),
        (0.02, "A B B A"),
        (0.02, OWN_ORDER),
    )
    for slope, order in designs:
        for is_paired in (False, True):
            for k in (3, 4, 5, 6, 10):
                rng = np.random.default_rng([seed, k, is_paired, int(100 * slope)])
                place_before, place_after = list_places(k, order)
                before = process_rates(rng, repetitions, k)
                before *= np.exp(-slope * place_before)
                after = process_rates(rng, repetitions, k)
                after *= np.exp(-slope * place_after)
                spread = np.log(process_rates(rng, 20_000, 1)).std()
                degrees = k - 1 if is_paired else 2 * (k - 1)
                effect = significance.compute_detectable_effect(
                    spread * math.sqrt(2 / k), degrees
                )
                verdicts = compare_rows(before, after, is_paired)
                alarms = len(verdicts) - verdicts.count(Verdict.SAME)
                slower = after * math.exp(-effect)
                found = compare_rows(before, slower, is_paired).count(Verdict.SLOWER)
                yield [
                    f"{slope:.0%}",
                    order,
                    "pairs" if is_paired else "two groups",
                    str(k),
                    f"{alarms / repetitions:.1%}",
                    f"{-math.expm1(-effect):.1%}",
                    f"{found / repetitions:.1%}",
                ]


def compare_rows(
    before: np.ndarray, after: np.ndarray, is_paired: bool
) -> list[Verdict]:
    """Return the verdict of each repetition [repetitions, k]."""
    verdicts = []
    for rates_before, rates_after in zip(before, after):
        comparison = significance.compare(rates_before, rates_after, is_paired)
        verdicts.append(comparison.verdict)
    return verdicts


def run_rates(
    rng: np.random.Generator, num_runs: int, share: float, slowed: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rates of runs in the order of time, and which are disturbed.

    A run has MEASURED batches after SKIPPED ones, of which the first WARM_UP are slow.

    Args:
      rng: Source of random numbers.
      num_runs: Number of runs.
      share: Share of the runs beside which other processes run, as recorded.
      slowed: Share of the rate that these runs lose.
    """
    is_disturbed = rng.random(num_runs) < share
    seconds = simulate_batches(rng, (num_runs, SKIPPED + MEASURED), 0.5, sigma=0.01)
    seconds[:, :WARM_UP] *= WARM_UP_FACTOR
    rates = np.exp(RUNS_APART * simulate_autoregressive(rng, (num_runs,), ALIKE))
    rates /= seconds[:, SKIPPED:].mean(axis=1)
    return rates * np.where(is_disturbed, 1 - slowed, 1.0), is_disturbed


def simulate_disturbed_pairs(
    rng: np.random.Generator, k: int, share: float, slowed: float, change: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rates before and after of k pairs, and which pairs are disturbed.

    Args:
      rng: Source of random numbers.
      k: Number of pairs.
      share: As for `run_rates`.
      slowed: As for `run_rates`.
      change: True ratio of the rates after / before.
    """
    rates, is_disturbed = run_rates(rng, 2 * k, share, slowed)
    before, after = list_places(k)
    is_pair_disturbed = is_disturbed[before] | is_disturbed[after]
    return rates[before], change * rates[after], is_pair_disturbed


RULES = ("all pairs", "quiet pairs", "quiet pairs, repeated")


def select_used_pairs(is_disturbed: Sequence[bool], k: int, rule: str) -> list[int]:
    """Return the pairs that a rule uses.

    Args:
      is_disturbed: Whether each of k planned pairs and of the further pairs is
        disturbed.
      k: Number of planned pairs.
      rule: One of RULES.
    """
    if rule == "all pairs":
        return list(range(k))
    num_pairs = k
    num_disturbed = sum(is_disturbed[:k])
    if rule == "quiet pairs, repeated" and num_disturbed < k:
        num_pairs += min(num_disturbed, math.ceil(k / 2))
    return list(select_quiet(range(num_pairs), lambda i: bool(is_disturbed[i])))


def ab(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Yield what `ab` finds beside other processes, by the rule that selects pairs."""
    for share, slowed in ((0.0, SLOWED), (0.1, SLOWED), (0.3, SLOWED), (0.3, 0.02)):
        for k in (3, 6, 10):
            for rule in RULES:
                rng = np.random.default_rng([seed, k, int(100 * share)])
                intervals = []
                for _ in range(repetitions):
                    before, after, disturbed = simulate_disturbed_pairs(
                        rng, k + math.ceil(k / 2), share, slowed, 1.0
                    )
                    used = select_used_pairs(disturbed, k, rule)
                    intervals.append(
                        confidence.compute_paired_ratio(before[used], after[used])
                    )
                # A change multiplies all rates of one side, and so the interval.
                found = [CHANGE * interval.low > 1.0 for interval in intervals]
                coverage = compute_coverage(intervals, 1.0)
                half_width = np.median([interval.half_width for interval in intervals])
                yield [
                    f"{share:.0%}",
                    f"{slowed:.0%}",
                    str(k),
                    rule,
                    f"{1 - coverage:.1%}",
                    f"{half_width:.1%}",
                    f"{np.mean(found):.1%}",
                    f"{coverage:.1%}",
                ]


def sweep(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Yield the intervals of three configurations with three repeats each."""
    repeats = 3
    configurations = 3
    for share in (0.0, 0.1, 0.3):
        for rule in ("all runs", "quiet runs"):
            rng = np.random.default_rng([seed, int(100 * share)])
            intervals = []
            for _ in range(repetitions):
                rates, disturbed = run_rates(
                    rng, repeats * configurations, share, SLOWED
                )
                groups = []
                for number in range(configurations):
                    # A round has one run of each configuration.
                    members = list(range(number, len(rates), configurations))
                    if rule == "quiet runs":
                        members = list(
                            select_quiet(members, lambda i, busy=disturbed: busy[i])
                        )
                    groups.append(rates[members].tolist())
                for group, scatter in zip(groups, compute_shared_scatters(groups)):
                    intervals.append(compute_interval_over_runs(group, scatter))
            widths = [interval.half_width / interval.value for interval in intervals]
            yield [
                f"{share:.0%}",
                rule,
                f"{np.median(widths):.1%}",
                f"{np.percentile(widths, 90):.1%}",
                f"{compute_coverage(intervals, 1.0):.1%}",
            ]


# Name -> (correlation of one run with the next; standard deviation between sessions,
# relative to that between runs). Without sessions, the sides follow each other.
MACHINES = {
    "no drift": (0.0, 0.0),
    "runs alike by 0.6": (0.6, None),
    "runs alike by 0.8": (0.8, None),
    "runs alike by 0.95": (0.95, None),
    "sessions differ half as much as runs": (ALIKE, 0.5),
    "sessions differ as much as runs": (ALIKE, 1.0),
    "sessions differ 1.5 times as much": (ALIKE, 1.5),
}
HISTORY = 20  # earlier sessions


def simulate_session_rates(
    rng: np.random.Generator, num_sessions: int, k: int, machine: str
) -> list[list[float]]:
    """Return the rates of the runs of some sessions on one of MACHINES."""
    correlation, between = MACHINES[machine]
    if between is None:
        logs = simulate_autoregressive(rng, (num_sessions * k,), correlation)
        logs = logs.reshape(num_sessions, k)
    else:
        logs = simulate_autoregressive(rng, (num_sessions, k), correlation)
        logs += between * rng.normal(size=(num_sessions, 1))
    return np.exp(RUNS_APART * logs).tolist()


def change_between(
    before: Sequence[float], after: Sequence[float], between: drift.Drift | None
) -> Interval:
    """Return after / before of two sessions, like `compare`."""
    rates = [
        compute_interval_over_runs(side, confidence.compute_drifting_scatter(side))
        for side in (after, before)
    ]
    return divide_rates(*rates, between.scatter if between else None)


def change_cells(changes: Sequence[Interval]) -> list[str]:
    """Return false winners, half interval and found changes of equal sides."""
    false = 1 - compute_coverage(changes, 1.0)
    half_width = np.median([change.half_width for change in changes])
    found = np.mean([change.high < CHANGE for change in changes])
    return [f"{false:.1%}", f"{half_width:.1%}", f"{found:.0%}"]


def assume_drift(before: Sequence[float], after: Sequence[float]) -> drift.Drift | None:
    """Return the drift that `compare` assumes between two sides."""
    return drift.assume(compute_shared_scatters([side])[0] for side in (before, after))


def simulate_sessions(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Yield what `compare` finds between two sessions, by the included drift."""
    repetitions = max(1, repetitions // 4)
    for machine in MACHINES:
        for k in (3, 5, 8):
            cells = []
            for included in ("nothing", "assumed", "history"):
                rng = np.random.default_rng([seed, k])
                changes = []
                for _ in range(repetitions):
                    rates = simulate_session_rates(rng, HISTORY + 2, k, machine)
                    *earlier, before, after = rates
                    between = None
                    if included != "nothing":
                        between = assume_drift(before, after)
                    if included == "history":
                        between = earlier_sessions.add_session_drift(between, earlier)
                    changes.append(change_between(before, after, between))
                cells += change_cells(changes)
            yield [machine, str(k), *cells]


def simulate_turns(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Yield what `compare` finds between sides that were measured as A B B A."""
    repetitions = max(1, repetitions // 4)
    for machine in MACHINES:
        for k in (3, 5):
            cells = []
            for has_drift in (False, True):
                rng = np.random.default_rng([seed, k])
                changes = []
                for _ in range(repetitions):
                    four_sessions = simulate_session_rates(rng, 4, k, machine)
                    changes.append(compare_turns(four_sessions, has_drift))
                cells += change_cells(changes)
            yield [machine, str(k), *cells]


def compare_turns(
    four_sessions: Sequence[Sequence[float]], has_drift: bool
) -> Interval:
    """Return B / A of four sessions in the order A B B A.

    Args:
      four_sessions: Rates of the runs of each session.
      has_drift: Whether drift between the sessions is included.
    """
    a1, b1, b2, a2 = four_sessions
    before = [*a1, *a2]
    after = [*b1, *b2]
    scatter = None
    if has_drift:
        between = assume_drift(before, after)
        # The second side's sessions follow each other.
        share = drift.TwoSessions((), 0.0, (2, 1)).variance_share
        scatter = dataclasses.replace(between, variance_share=share).scatter
    return divide_rates(
        compute_interval_over_runs(after), compute_interval_over_runs(before), scatter
    )


PARTS = {
    "turns": (
        simulate_turns,
        (
            "machine",
            "runs per session",
            "as interleaved runs: false winners",
            "half interval",
            "5 % found",
            "as sessions: false winners",
            "half interval",
            "5 % found",
        ),
    ),
    "test": (
        simulate_tests,
        (
            "drift per run",
            "order",
            "design",
            "processes",
            "false alarms",
            "detectable",
            "found",
        ),
    ),
    "ab": (
        ab,
        (
            "runs disturbed",
            "slower by",
            "pairs",
            "used",
            "false winners",
            "half interval",
            "a true 5 % found",
            "coverage",
        ),
    ),
    "sweep": (
        sweep,
        ("runs disturbed", "used", "half interval", "90 % are below", "coverage"),
    ),
    "sessions": (
        simulate_sessions,
        (
            "machine",
            "runs per side",
            "no drift included: false winners",
            "half interval",
            "5 % found",
            "assumed drift: false winners",
            "half interval",
            "5 % found",
            f"drift of {HISTORY} sessions: false winners",
            "half interval",
            "5 % found",
        ),
    ),
}


def main() -> None:
    options = parse_options()
    error = math.sqrt(0.95 * 0.05 / options.repetitions)
    print(f"Monte-Carlo standard error of a share near 95 %: {error:.2%}")
    for name in options.parts.split(","):
        simulate, head = PARTS[name]
        rows = list(simulate(options.repetitions, options.seed))
        print(f"\n{name}\n")
        print(format_table(head, rows), flush=True)


def parse_options() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts",
        default=",".join(PARTS),
        help="parts to simulate, separated by commas",
    )
    parser.add_argument(
        "--repetitions",
        type=int,
        default=4000,
        help="number of repetitions of each row",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random numbers"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
