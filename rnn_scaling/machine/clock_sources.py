"""Where clocks are read during a run: NVML, or the CPU's own numbers."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rnn_scaling.machine import nvml

Sample = list[dict[str, Any]]  # one mapping a device
_CORE = re.compile(r"^processor\s*: *(\d+) *$.*?^cpu MHz\s*: *([\d.]+) *$", re.MULTILINE | re.DOTALL)


class ClockSource(Protocol):
    """Something that tells clocks."""

    name: str
    devices: Sample  # what does not change, one mapping a device

    def poll(self) -> Sample | None:
        """What changes, in the order of `devices`; None: nothing new."""

    def close(self) -> None:
        """Ends it."""


def of_gpus(ids: Sequence[str], start: Callable[[], Any | None] = nvml.start) -> ClockSource | None:
    """Clocks of the GPUs with `gpus.gpu_ids`'s names from NVML; None: it does not answer."""
    api = start()
    if api is None:
        return None
    gpus = nvml.visible(api, ids)
    if gpus:
        return _Nvml(api, gpus)
    api.nvmlShutdown()
    return None


def of_cpus(cores: Sequence[int], root: str = "/") -> ClockSource | None:
    """Clocks of these CPU cores; None: the system does not tell."""
    files = [Path(root, f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq") for core in cores]

    def cpufreq() -> list[float]:
        return [int(file.read_text()) / 1000 for file in files]  # kHz

    def cpuinfo() -> list[float]:
        clocks = dict(_CORE.findall(Path(root, "proc/cpuinfo").read_text(errors="replace")))
        return [float(clocks[str(core)]) for core in cores]

    sources = (_Cpus("cpufreq", cores, cpufreq), _Cpus("/proc/cpuinfo", cores, cpuinfo))
    return next((source for source in sources if cores and source.poll() is not None), None)


class _Nvml:
    name = "NVML"

    def __init__(self, api: Any, gpus: Sequence[nvml.Gpu]) -> None:
        self._api, self._gpus = api, list(gpus)
        self.devices = [nvml.limits(api, gpu) for gpu in gpus]

    def poll(self) -> Sample | None:
        return [nvml.sample(self._api, gpu) for gpu in self._gpus]

    def close(self) -> None:
        nvml.ask(self._api, "nvmlShutdown")


class _Cpus:
    def __init__(self, name: str, cores: Sequence[int], read_mhz: Callable[[], list[float]]) -> None:
        self.name, self._read_mhz = name, read_mhz
        self.devices: Sample = [{"core": core} for core in cores]

    def poll(self) -> Sample | None:
        try:
            return [{"mhz": mhz} for mhz in self._read_mhz()]
        except (OSError, ValueError, KeyError):
            return None

    def close(self) -> None:
        pass
