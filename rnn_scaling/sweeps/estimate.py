"""Estimate how long runs will take, and choose their time limits.

Estimates come from finished runs of the same options, or else from a rough count of
operations. A trainer that hangs must not cost an hour, and a slow one must not be
killed.

Time limits and the remaining time of the display come from one `Estimator`.
"""

import dataclasses
import enum
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.config.registry import WORKLOADS
from rnn_scaling.config.run_config import from_flat
from rnn_scaling.records.record import RunRecord

# Measured on small models.
_START_S = 3.0  # TensorFlow loads
_TOWER_S = 1.0  # a tower is built and runs its first batch
_TRACED_S = 0.8  # the profile of one traced batch of one tower is read
# Orders of magnitude, which suffice until a run has ended.
_CPU_FLOP_PER_S = 150e9
_GPU_FLOP_PER_S = 5e12
# A time limit is this multiple of the expected duration.
LIMIT_FACTOR = 10.0
# A machine may be busy, and the first run of a day reads TensorFlow from a cold disk.
MIN_LIMIT_S = 300.0
# Limit of the time without output, for runs whose duration is unknown.
SILENT_S = 1800.0
_REMEDY = "--run_timeout=SECONDS sets another limit"
Identity = tuple[tuple[str, Any], ...]
RoughEstimate = Callable[[Mapping[str, Any]], float]


class Basis(enum.Enum):
    """The source of an estimate, in the words of a listing and of a time limit."""

    SAME = (
        "from finished runs of the same flags",
        "the duration of runs of the same flags",
    )
    SCALED = (
        "scaled from finished runs of other flags",
        "the duration that finished runs suggest",
    )
    ROUGH = (
        f"rough: {_CPU_FLOP_PER_S / 1e9:g} GFLOP/s per core, "
        f"{_GPU_FLOP_PER_S / 1e12:g} TFLOP/s per GPU",
        "a rough estimate, without a new batch",
    )
    UNKNOWN = ("unknown until the first run has finished", "")


class Estimator:
    """Seconds of runs, learned from finished runs."""

    def __init__(self, rough: RoughEstimate | None = None) -> None:
        """Make an estimator that has learned nothing.

        Args:
          rough: Returns the seconds of a run by its options. If None, all runs count as
            equally long, and their duration is unknown until one has ended.
        """
        self._rough = rough
        self._seconds: dict[Identity, list[float]] = {}
        # Measured / rough seconds by number of towers, and of all runs (None).
        self._ratios: dict[int | None, list[float]] = {}

    def learn(self, options: Identity, result: RunRecord) -> None:
        """Learn from the record of a run with these options, if it ended well."""
        if result.status == "ok" and result.phases.total > 0:
            self.add(options, result.phases.total)

    def add(self, options: Identity, seconds: float) -> None:
        """Learn that a run with these options took some seconds."""
        self._seconds.setdefault(options, []).append(seconds)
        for key in (_count_towers(dict(options)), None):
            self._ratios.setdefault(key, []).append(
                seconds / self._estimate_roughly_s(options)
            )

    def seconds(self, options: Identity) -> float:
        """Return the seconds that a run will take; NaN if unknown."""
        same_options_s = self._seconds.get(options)
        if same_options_s:
            return statistics.fmean(same_options_s)
        basis = self.basis([options])
        if basis == Basis.UNKNOWN:
            return math.nan
        ratios = self._ratios.get(_count_towers(dict(options))) or self._ratios.get(
            None
        )
        return self._estimate_roughly_s(options) * statistics.fmean(ratios or [1.0])

    def _estimate_roughly_s(self, options: Identity) -> float:
        return self._rough(dict(options)) if self._rough else 1.0

    def total_s(self, options: Sequence[Identity]) -> float:
        """Return the seconds of several runs in turn; NaN if unknown."""
        return math.fsum(map(self.seconds, options))

    def basis(self, options: Sequence[Identity]) -> Basis:
        """Return the weakest basis of the estimates of these runs."""
        if not self._seconds:
            return Basis.ROUGH if self._rough else Basis.UNKNOWN
        all_were_measured = all(option in self._seconds for option in options)
        return Basis.SAME if all_were_measured else Basis.SCALED

    def describe(self, options: Sequence[Identity]) -> str:
        """Return how long runs will take, and the source of the estimate."""
        basis = self.basis(options)
        source = basis.value[0]
        if basis == Basis.UNKNOWN:
            return f"duration {source}"
        return f"about {format_duration(self.total_s(options))} ({source})"


def estimate_rough_s(
    options: Mapping[str, Any], num_cores: int, workers_share: bool = True
) -> float:
    """Estimate the seconds of one run from its matrix products, towers and trace.

    Args:
      options: All options of the run.
      num_cores: Cores that the CPU devices of a run share.
      workers_share: Whether all workers share these cores; if not, each has as many.
    """
    if not workers_share:
        num_cores *= options["num_workers"]
    rate = _CPU_FLOP_PER_S * options["cpu_cores_per_device"]
    if options["device"] == "gpu":
        rate = _GPU_FLOP_PER_S
    batches = options["num_warmup_batches"] + options["num_batches"]
    batches *= options.get("gradient_accumulation_steps", 1)
    samples = batches * options["batch_size"]
    flop = samples * WORKLOADS[options["model"]].flops_per_sample(options)
    worker_towers = options["num_devices"]
    towers_per_core = compute_oversubscription(options, num_cores)
    start_s = _START_S * max(1.0, from_flat(options).num_processes / max(num_cores, 1))
    tower_s = _TOWER_S + _TRACED_S * options["trace_batches"]
    building_s = worker_towers * towers_per_core * tower_s
    # Towers that share a core also wait for each other, and with fewer threads than
    # towers they take turns.
    threads = options["inter_op_parallelism_threads"] or worker_towers
    slowdown = max(towers_per_core**2, worker_towers / threads)
    return start_s + building_s + flop / rate * slowdown


def compute_oversubscription(options: Mapping[str, Any], num_cores: int) -> float:
    """Return needed cores / existing cores of a run on CPUs, at least 1."""
    if options["device"] == "gpu":
        return 1.0
    needed = _count_towers(options) * options["cpu_cores_per_device"]
    return max(1.0, needed / max(num_cores, 1))


def _count_towers(options: Mapping[str, Any]) -> int:
    """Return the towers of all workers of a run."""
    return int(options["num_devices"] * options.get("num_workers", 1))


def format_duration(seconds: float) -> str:
    """Spell seconds as "40 s", "5 min" or "2 h 10 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60:02d} min"


@dataclasses.dataclass(frozen=True)
class Limit:
    """The time limit of a run."""

    seconds: float  # 0 if there is no limit
    words: str  # the message if the limit is reached
    # Whether the limit is only a guess, because no run has finished. Progress then
    # restarts it.
    is_rough: bool = False


def make_user_limit(seconds: float) -> Limit:
    """Return the limit that the user sets."""
    return Limit(seconds, f"killed after {seconds:g} s, the limit of --run_timeout")


def choose_limit(
    options: Identity, estimator: Estimator, timeout_s: float | None
) -> Limit:
    """Return the limit of a run.

    Args:
      options: The options of the run.
      estimator: Estimates its duration.
      timeout_s: The limit that the user sets, or None.
    """
    if timeout_s is not None:
        return make_user_limit(timeout_s)
    basis = estimator.basis([options])
    if basis == Basis.UNKNOWN:
        words = f"killed after {SILENT_S:g} s without output; {_REMEDY}"
        return Limit(SILENT_S, words, is_rough=True)
    expected = estimator.seconds(options)
    seconds = max(MIN_LIMIT_S, round(LIMIT_FACTOR * expected))
    times = f"{LIMIT_FACTOR:g} times"
    if seconds <= MIN_LIMIT_S:
        times = f"more than {times}"
    words = (
        f"killed after {seconds:g} s, {times} {basis.value[1]} "
        f"({format_duration(expected)}); {_REMEDY}"
    )
    return Limit(seconds, words, basis == Basis.ROUGH)
