"""How long runs will take: from finished runs of the same options, else scaled by a rough count of operations.

And their limits: a trainer that hangs must not cost an hour, and one that is only slow must not be killed.
"""

import dataclasses
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rnn_scaling.config.registry import WORKLOADS
from rnn_scaling.config.run_config import from_flat
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.cores import available_cores

# Seconds, measured on small models: TensorFlow loads; a tower is built and runs its first batch; the profile of a
# traced batch of a tower is read.
START_S, TOWER_S, TRACED_S = 3.0, 1.0, 0.8
CPU_FLOP_PER_S, GPU_FLOP_PER_S = (
    150e9,
    5e12,
)  # of a core, of a GPU; orders of magnitude, good until a run has ended
TIMES = 10.0  # of the expected duration
LEAST_S = 300.0  # a machine may be busy, and the first run of a day reads TensorFlow from a cold disk
SILENT_S = 1800.0  # without output, for runs whose duration is unknown
EXPECTED = {  # by basis of the estimate
    "same": "the duration of runs of the same flags",
    "scaled": "the duration that finished runs suggest",
    "rough": "a rough estimate, without a new batch",
}
Identity = tuple[tuple[str, Any], ...]


class Estimator:
    def __init__(
        self,
        num_cores: int | None = None,
        workers_share: bool = True,
        is_reckoned: bool = True,
        starts_early: Callable[[Identity], bool] = lambda options: False,
    ) -> None:
        """num_cores: that the runs share; those of this process when not given.
        workers_share: all workers of a run share these cores; else each worker has its own.
        is_reckoned: `rough_s` compares runs; else all runs count as equally long, which is unknown at first.
        starts_early: whether a run with these options loads while the run before it goes on.
        """
        self._is_reckoned = is_reckoned
        self._num_cores = len(available_cores()) if num_cores is None else num_cores
        self._workers_share = workers_share
        self._starts_early, self._loading_s = starts_early, list[float]()
        self._seconds: dict[Identity, list[float]] = {}
        # (measured, rough) seconds by number of towers, None: all. The ratio corrects the estimate of like runs.
        self._sums: dict[int | None, tuple[float, float]] = {}

    def add(self, options: Identity, seconds: float) -> None:
        self._seconds.setdefault(options, []).append(seconds)
        rough = self._rough_s(options)
        for key in (_towers(dict(options)), None):
            measured_sum, rough_sum = self._sums.get(key, (0.0, 0.0))
            self._sums[key] = measured_sum + seconds, rough_sum + rough

    def learn(self, options: Identity, result: RunRecord) -> None:
        """Learns from the record of a run with these options, if it ended well."""
        if result.status == "ok" and result.phases.total > 0:
            self.add(options, result.phases.total)
            if self._starts_early(options):
                self._loading_s.append(result.phases.start)

    def seconds(self, options: Identity) -> float:
        """Seconds that a run with these options will take; NaN: unknown."""
        if same := self._seconds.get(options):
            return sum(same) / len(same)
        if not self._seconds and not self._is_reckoned:
            return math.nan
        sums = self._sums.get(_towers(dict(options))) or self._sums.get(None)
        return self._rough_s(options) * (sums[0] / sums[1] if sums else 1.0)

    def _rough_s(self, options: Identity) -> float:
        return (
            rough_s(dict(options), self._cores(dict(options)))
            if self._is_reckoned
            else 1.0
        )

    def _cores(self, options: Mapping[str, Any]) -> int:
        """Cores of all workers of a run together."""
        return self._num_cores * (1 if self._workers_share else options["num_workers"])

    def total_s(self, options: Iterable[Identity], follow: bool = False) -> float:
        """Seconds of runs in turn, without loading that the run before hides; follow: the first one has such a run."""
        options = list(options)
        total = sum(map(self.seconds, options))
        if not self._loading_s:
            return total
        hidden = sum(map(self._starts_early, options[0 if follow else 1 :]))
        return total - hidden * statistics.fmean(self._loading_s)

    def basis(self, options: Identity) -> str:
        """Basis of a run's estimate: finished runs, the "same" or "scaled", none ("rough"), or "unknown"."""
        if self._seconds:
            return "same" if options in self._seconds else "scaled"
        return "rough" if self._is_reckoned else "unknown"

    def in_words(self, options: Iterable[Identity]) -> str:
        """How long runs will take, and where the estimate comes from."""
        options = list(options)
        if math.isnan(total := self.total_s(options)):
            if len(options) == 1:
                return "duration unknown"
            return "duration unknown until the first run has finished"
        return f"about {duration(total)} ({self.source(options)})"

    def source(self, options: Iterable[Identity]) -> str:
        options = list(options)
        same = sum(option in self._seconds for option in options)
        if self._seconds and same == len(options):
            return "from finished runs of the same flags"
        if same:
            return f"{same} run{'s' if same > 1 else ''} from finished runs of the same flags, the others scaled"
        if self._seconds:
            return "scaled from finished runs of other flags"
        is_shared = any(
            sharing(dict(option), self._cores(dict(option))) > 1 for option in options
        )
        cores = f", on {self._num_cores} shared cores" if is_shared else ""
        return f"rough: {CPU_FLOP_PER_S / 1e9:g} GFLOP/s per core, {GPU_FLOP_PER_S / 1e12:g} TFLOP/s per GPU{cores}"


def rough_s(options: Mapping[str, Any], num_cores: int) -> float:
    """Seconds of one run from its matrix products (`flops_a_sample` of its workload), its towers and its trace.

    `num_cores`: that the CPU devices of all its workers share.
    """
    rate = (
        GPU_FLOP_PER_S
        if options["device"] == "gpu"
        else CPU_FLOP_PER_S * options["cpu_cores_per_device"]
    )
    batches = options["num_warmup_batches"] + options["num_batches"]
    batches *= options.get("gradient_accumulation_steps", 1)
    flop = (
        batches
        * options["batch_size"]
        * WORKLOADS[options["model"]].flops_a_sample(options)
    )
    towers, shared = options["num_devices"], sharing(options, num_cores)  # of a worker
    start_s = START_S * max(1.0, from_flat(options).num_processes / max(num_cores, 1))
    building = towers * shared * (TOWER_S + TRACED_S * options["trace_batches"])
    # Towers that share a core also wait for each other, and with fewer threads than towers they take turns.
    threads = options["inter_op_parallelism_threads"] or towers
    return start_s + building + flop / rate * max(shared**2, towers / threads)


def sharing(options: Mapping[str, Any], num_cores: int) -> float:
    """Ratio of the cores that the CPU devices of a run need to those that exist; 1 if they suffice, or on GPUs."""
    if options["device"] == "gpu":
        return 1.0
    return max(
        1.0, _towers(options) * options["cpu_cores_per_device"] / max(num_cores, 1)
    )


def _towers(options: Mapping[str, Any]) -> int:
    """Of all workers of a run."""
    return int(options["num_devices"] * options.get("num_workers", 1))


def duration(seconds: float) -> str:
    """Seconds -> "40 s", "5 min" or "2 h 10 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return (
        f"{minutes} min"
        if minutes < 90
        else f"{minutes // 60} h {minutes % 60:02d} min"
    )


@dataclasses.dataclass(frozen=True)
class Limit:
    seconds: float  # 0: none
    words: str  # the message when it is reached
    # The limit has no finished run as its basis, so that it starts anew with each sign of progress.
    is_rough: bool = False


def given_limit(seconds: float) -> Limit:
    return Limit(seconds, f"killed after {seconds:g} s, the limit of --run_timeout")


def limit_of(options: Identity, estimator: Estimator, timeout_s: float | None) -> Limit:
    """The limit of a run; `timeout_s`: that the user set; None: not set."""
    if timeout_s is not None:
        return given_limit(timeout_s)
    expected, basis = estimator.seconds(options), estimator.basis(options)
    remedy = "--run_timeout=SECONDS sets another limit"
    if basis == "unknown":
        return Limit(
            SILENT_S,
            f"killed after {SILENT_S:g} s without output; {remedy}",
            is_rough=True,
        )
    seconds = max(LEAST_S, round(TIMES * expected))
    times = f"{TIMES:g} times" if seconds > LEAST_S else f"more than {TIMES:g} times"
    words = f"killed after {seconds:g} s, {times} {EXPECTED[basis]} ({duration(expected)}); {remedy}"
    return Limit(seconds, words, basis == "rough")
