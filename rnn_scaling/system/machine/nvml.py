"""The GPUs and their clocks from NVML, the library of the driver (`nvidia-ml-py`).

Every function takes the module `pynvml` as `api`, so that tests can use another one; only
`start` imports it. NVML numbers GPUs by PCI bus, like nvidia-smi.

Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api) and nvidia-ml-py 13.615.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling.system.machine.gpus import select

MILLI = 1e-3


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU: its index in nvidia-smi, and its handle for functions of NVML."""

    index: int
    uuid: str
    name: str
    handle: Any


def start() -> Any | None:
    """Return `pynvml` after its initialisation; `api.nvmlShutdown()` ends it.

    None without the package, a driver or a GPU.
    """
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
    """Call a function of NVML; None if this GPU or driver does not support it."""
    try:
        return getattr(api, function)(*arguments)
    except (api.NVMLError, AttributeError):  # An old nvidia-ml-py lacks new functions.
        return None


def list_visible_gpus(api: Any, ids: Sequence[str]) -> list[Gpu]:
    """Return the GPUs with these names (see `gpus.list_gpu_ids`), in this order."""
    present = []
    for index in range(ask(api, "nvmlDeviceGetCount") or 0):
        handle = ask(api, "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:  # A GPU that fell off the bus has no handle.
            uuid = str(ask(api, "nvmlDeviceGetUUID", handle) or "")
            name = str(ask(api, "nvmlDeviceGetName", handle) or "")
            present.append(Gpu(index, uuid, name, handle))
    return select(present, ids, lambda gpu: (str(gpu.index), gpu.uuid))


def read_limits(api: Any, gpu: Gpu) -> dict[str, Any]:
    """Return index, name, highest clocks in MHz and power limit in W; None if unknown."""
    power = ask(api, "nvmlDeviceGetEnforcedPowerLimit", gpu.handle)
    return {
        "index": gpu.index,
        "name": gpu.name,
        "max_sm_mhz": ask(
            api, "nvmlDeviceGetMaxClockInfo", gpu.handle, api.NVML_CLOCK_SM
        ),
        "max_memory_mhz": ask(
            api, "nvmlDeviceGetMaxClockInfo", gpu.handle, api.NVML_CLOCK_MEM
        ),
        "power_limit_w": None if power is None else power * MILLI,
    }


def sample(api: Any, gpu: Gpu) -> dict[str, Any]:
    """Return clocks, power and temperature of a GPU now; None if unknown.

    `reasons` are bits of throttling.REASONS. `utilisation` is the percentage of at most
    the last second in which a kernel ran.
    """
    handle = gpu.handle
    reasons = ask(api, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # The driver is older than 535.
        reasons = ask(api, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    power = ask(api, "nvmlDeviceGetPowerUsage", handle)
    rates = ask(api, "nvmlDeviceGetUtilizationRates", handle)
    return {
        "sm_mhz": ask(api, "nvmlDeviceGetClockInfo", handle, api.NVML_CLOCK_SM),
        "memory_mhz": ask(api, "nvmlDeviceGetClockInfo", handle, api.NVML_CLOCK_MEM),
        "reasons": reasons,
        "power_w": None if power is None else round(power * MILLI, 3),
        "temperature_c": ask(
            api, "nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU
        ),
        "utilisation": None if rates is None else rates.gpu,
    }
