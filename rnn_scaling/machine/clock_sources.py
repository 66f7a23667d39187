"""Where clocks are read during a run: NVML, or the CPU's own numbers."""

import dataclasses
import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.machine import nvml

Sample = list[dict[str, Any]]  # one mapping a device
_CORE = re.compile(r"^processor\s*: *(\d+) *$.*?^cpu MHz\s*: *([\d.]+) *$", re.MULTILINE | re.DOTALL)


@dataclasses.dataclass(frozen=True)
class ClockSource:
    name: str
    devices: Sample  # what does not change, one mapping a device
    poll: Callable[[], Sample | None]  # what changes, in their order; None: nothing new
    close: Callable[[], object] = lambda: None


def of_gpus(ids: Sequence[str], start: Callable[[], Any | None] = nvml.start) -> ClockSource | None:
    """Clocks of the GPUs with `gpus.gpu_ids`'s names from NVML; None: it does not answer."""
    api = start()
    if api is None:
        return None
    gpus = nvml.visible(api, ids)
    if not gpus:
        api.nvmlShutdown()
        return None
    limits, end = [nvml.limits(api, gpu) for gpu in gpus], lambda: nvml.ask(api, "nvmlShutdown")
    return ClockSource("NVML", limits, lambda: [nvml.sample(api, gpu) for gpu in gpus], end)


def of_cpus(cores: Sequence[int], root: str = "/") -> ClockSource | None:
    """Clocks of these CPU cores; None: the system does not tell."""
    files = [Path(root, f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq") for core in cores]

    def cpufreq() -> list[float]:
        return [int(file.read_text()) / 1000 for file in files]  # kHz

    def cpuinfo() -> list[float]:
        clocks = dict(_CORE.findall(Path(root, "proc/cpuinfo").read_text(errors="replace")))
        return [float(clocks[str(core)]) for core in cores]

    def poll(read_mhz: Callable[[], list[float]]) -> Sample | None:
        try:
            return [{"mhz": mhz} for mhz in read_mhz()]
        except (OSError, ValueError, KeyError):
            return None

    for name, read_mhz in (("cpufreq", cpufreq), ("/proc/cpuinfo", cpuinfo)):
        if cores and poll(read_mhz) is not None:
            return ClockSource(name, [{"core": core} for core in cores], functools.partial(poll, read_mhz))
    return None
