"""NVML, the driver's own library, through `nvidia-ml-py`: which GPUs there are, how they are connected, their clocks.

Every function takes the module `pynvml` as `api`, so that a test can give another; only `start` imports it. NVML counts
GPUs as nvidia-smi does, by PCI bus.

Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api) and nvidia-ml-py 13.615.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rnn_scaling.machine.gpus import chosen
from rnn_scaling.machine.topology_matrix import Topology

# nvmlGpuTopologyLevel_t in the words of `nvidia-smi topo -m`.
LEVEL_WORDS = {0: "PSB", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# nvmlGpuP2PStatus_t: may one GPU read the other's memory directly?
PEER_WORDS = {
    0: "OK",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "topology not supported",
    4: "disabled in the driver",
    5: "not supported",
    6: "unknown",
}
PEER_READ = 0  # pynvml's own NVML_P2P_CAPS_INDEX_READ is a tuple, by a stray comma
NODE_SCOPE = 0  # NVML_AFFINITY_SCOPE_NODE
MILLI = 1e-3


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU. `index`: nvidia-smi's; `handle`: what NVML's functions take."""

    index: int
    uuid: str
    name: str
    handle: Any


def start() -> Any | None:
    """The module `pynvml` with NVML initialised (`api.nvmlShutdown()` ends it); None: no package, driver or GPU."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def ask(api: Any, function: str, *arguments: Any) -> Any | None:
    """What NVML answers; None: this GPU or driver does not tell.

    Args:
      api: `start`'s.
    """
    try:
        return getattr(api, function)(*arguments)
    except (api.NVMLError, AttributeError):  # an older nvidia-ml-py lacks newer functions
        return None


def gpus(api: Any) -> list[Gpu]:
    """Every GPU of the machine."""
    present = []
    for index in range(ask(api, "nvmlDeviceGetCount") or 0):
        handle = ask(api, "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:  # else the GPU fell off the bus
            uuid, name = (str(ask(api, f"nvmlDeviceGet{what}", handle) or "") for what in ("UUID", "Name"))
            present.append(Gpu(index, uuid, name, handle))
    return present


def visible(api: Any, ids: Sequence[str]) -> list[Gpu]:
    """The GPUs with these names, in this order (see `gpus.gpu_ids`)."""
    return chosen(gpus(api), ids, lambda gpu: (str(gpu.index), gpu.uuid))


def limits(api: Any, gpu: Gpu) -> dict[str, Any]:
    """What a GPU is and may do: index, name, highest clocks in MHz, power limit in W; None where not told."""
    power = ask(api, "nvmlDeviceGetEnforcedPowerLimit", gpu.handle)
    return {
        "index": gpu.index,
        "name": gpu.name,
        "max_sm_mhz": ask(api, "nvmlDeviceGetMaxClockInfo", gpu.handle, api.NVML_CLOCK_SM),
        "max_memory_mhz": ask(api, "nvmlDeviceGetMaxClockInfo", gpu.handle, api.NVML_CLOCK_MEM),
        "power_limit_w": None if power is None else power * MILLI,
    }


def sample(api: Any, gpu: Gpu) -> dict[str, Any]:
    """How a GPU runs now; None where not told.

    Returns:
      sm_mhz, memory_mhz; reasons: the bit mask of throttling.REASONS; power_w, temperature_c; utilisation: percent of
      the time since NVML's last look (up to a second) in which a kernel ran.
    """
    handle = gpu.handle
    reasons = ask(api, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # a driver before 535
        reasons = ask(api, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    power = ask(api, "nvmlDeviceGetPowerUsage", handle)
    rates = ask(api, "nvmlDeviceGetUtilizationRates", handle)
    return {
        "sm_mhz": ask(api, "nvmlDeviceGetClockInfo", handle, api.NVML_CLOCK_SM),
        "memory_mhz": ask(api, "nvmlDeviceGetClockInfo", handle, api.NVML_CLOCK_MEM),
        "reasons": reasons,
        "power_w": None if power is None else round(power * MILLI, 3),
        "temperature_c": ask(api, "nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU),
        "utilisation": None if rates is None else rates.gpu,
    }


def topology(api: Any) -> Topology | None:
    """How all GPUs are connected; None: NVML shows none, or cannot reach one of them."""
    present = gpus(api)
    if not present or [gpu.index for gpu in present] != list(range(ask(api, "nvmlDeviceGetCount") or 0)):
        return None
    lanes = _nvlinks(api, present)
    words = -(-(os.cpu_count() or 1) // 64)
    return Topology(
        devices=tuple(gpu.index for gpu in present),
        links=_matrix(present, lambda a, b: _link(api, a, b, lanes[a.index][b.index]), "X"),
        peer=_matrix(present, lambda a, b: _peer(api, a, b), ""),
        cpu_affinity=tuple(_bits(ask(api, "nvmlDeviceGetCpuAffinity", gpu.handle, words)) for gpu in present),
        numa=tuple(_bits(ask(api, "nvmlDeviceGetMemoryAffinity", gpu.handle, 1, NODE_SCOPE)) for gpu in present),
        source="NVML",
    )


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers as "0-9,20"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _matrix(gpus_: Sequence[Gpu], cell: Callable[[Gpu, Gpu], str], diagonal: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(diagonal if a is b else cell(a, b) for b in gpus_) for a in gpus_)


def _link(api: Any, a: Gpu, b: Gpu, lanes: int) -> str:
    if lanes:
        return f"NV{lanes}"
    level = ask(api, "nvmlDeviceGetTopologyCommonAncestor", a.handle, b.handle)
    return "N/A" if level is None else LEVEL_WORDS.get(level, "N/A")


def _peer(api: Any, a: Gpu, b: Gpu) -> str:
    status = ask(api, "nvmlDeviceGetP2PStatus", a.handle, b.handle, PEER_READ)
    return "" if status is None else PEER_WORDS.get(status, "unknown")


def _nvlinks(api: Any, present: Sequence[Gpu]) -> list[list[int]]:
    """Active NVLinks between each two GPUs: direct ones, or those that both have to NVSwitches."""
    bus = {_bus(ask(api, "nvmlDeviceGetPciInfo", gpu.handle)): gpu.index for gpu in present}
    direct = [[0] * len(present) for _ in present]
    switched = [0] * len(present)
    for gpu in present:
        for link in range(api.NVML_NVLINK_MAX_LINKS):
            if ask(api, "nvmlDeviceGetNvLinkState", gpu.handle, link) != api.NVML_FEATURE_ENABLED:
                continue
            if ask(api, "nvmlDeviceGetNvLinkRemoteDeviceType", gpu.handle, link) == api.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switched[gpu.index] += 1
                continue
            other = bus.get(_bus(ask(api, "nvmlDeviceGetNvLinkRemotePciInfo", gpu.handle, link)))
            if other is not None:
                direct[gpu.index][other] += 1
    numbers = range(len(present))
    return [[direct[a][b] or min(switched[a], switched[b]) for b in numbers] for a in numbers]


def _bus(info: Any | None) -> str:
    """A PCI address; of a remote end the driver may write the domain with four digits instead of eight."""
    if info is None:
        return ""
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    domain, _, rest = text.lower().partition(":")
    return f"{domain.lstrip('0')}:{rest}"


def _bits(words: Iterable[int] | None) -> str:
    """Numbers of the bits that are set in 64-bit words, the lowest word first."""
    return ranges(64 * i + bit for i, word in enumerate(words or ()) for bit in range(64) if int(word) >> bit & 1)
