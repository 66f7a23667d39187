"""How long runs will take: from finished runs of the same options, else scaled by a rough count of operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from models.workloads import WORKLOADS

START_S = 8.0  # TensorFlow loads, the model is traced
CPU_FLOP_PER_S, GPU_FLOP_PER_S = 150e9, 5e12  # of a core, of a GPU; orders of magnitude, good until a run has ended
Identity = tuple[tuple[str, Any], ...]


class Estimator:
    """Learns from finished runs."""

    def __init__(self) -> None:
        self._seconds: dict[Identity, list[float]] = {}
        self._known_s = self._rough_s = 0.0

    def add(self, options: Identity, seconds: float) -> None:
        """Learns that a run with these options took this long."""
        self._seconds.setdefault(options, []).append(seconds)
        self._known_s += seconds
        self._rough_s += rough_s(dict(options))

    def seconds(self, options: Identity) -> float:
        """Seconds that a run with these options will take."""
        known = self._seconds.get(options)
        if known:
            return sum(known) / len(known)
        scale = self._known_s / self._rough_s if self._rough_s else 1.0
        return rough_s(dict(options)) * scale

    def total_s(self, options: Iterable[Identity]) -> float:
        """Seconds that these runs will take, one after the other."""
        return sum(map(self.seconds, options))

    def source(self, options: Iterable[Identity]) -> str:
        """Where the estimate comes from, in words."""
        options = list(options)
        same = sum(option in self._seconds for option in options)
        if not self._seconds:
            rate = f"{CPU_FLOP_PER_S / 1e9:g} GFLOP/s a core, {GPU_FLOP_PER_S / 1e12:g} TFLOP/s a GPU"
            return f"rough: no run has finished yet; it assumes {rate} and {START_S:g} s to start"
        if same == len(options):
            return "from finished runs of the same flags"
        if not same:
            return "scaled from finished runs of other flags"
        return f"{same} of them from finished runs of the same flags, the others scaled from runs of other flags"


def rough_s(options: Mapping[str, Any]) -> float:
    """Seconds of one run from its matrix products (`flops_a_sample` of its workload).

    Args:
      options: flat options of a run.
    """
    rate = GPU_FLOP_PER_S if options["device"] == "gpu" else CPU_FLOP_PER_S * options["cpu_cores_per_device"]
    batches = options["num_warmup_batches"] + options["num_batches"]
    flop = batches * options["batch_size"] * WORKLOADS[options["model"]].flops_a_sample(options)
    return START_S + flop / rate


def duration(seconds: float) -> str:
    """Seconds -> "40 s", "5 min" or "2 h 10 min"."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
