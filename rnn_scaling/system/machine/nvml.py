"""NVML, the driver's own library, through `nvidia-ml-py`: which GPUs there are, and their clocks.

Every function takes the module `pynvml` as `api`, so that a test can give another; only `start` imports it. NVML counts
GPUs as nvidia-smi does, by PCI bus.

Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api) and nvidia-ml-py 13.615.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling.system.machine.gpus import chosen

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
    """What NVML answers; None: this GPU or driver does not tell."""
    try:
        return getattr(api, function)(*arguments)
    except (
        api.NVMLError,
        AttributeError,
    ):  # an older nvidia-ml-py lacks newer functions
        return None


def visible(api: Any, ids: Sequence[str]) -> list[Gpu]:
    """The GPUs with these names, in this order (see `gpus.gpu_ids`)."""
    present = []
    for index in range(ask(api, "nvmlDeviceGetCount") or 0):
        handle = ask(api, "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:  # else the GPU fell off the bus
            uuid, name = (
                str(ask(api, f"nvmlDeviceGet{what}", handle) or "")
                for what in ("UUID", "Name")
            )
            present.append(Gpu(index, uuid, name, handle))
    return chosen(present, ids, lambda gpu: (str(gpu.index), gpu.uuid))


def limits(api: Any, gpu: Gpu) -> dict[str, Any]:
    """What a GPU is and may do: index, name, highest clocks in MHz, power limit in W; None where not told."""
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
    """How a GPU runs now; None where not told.

    reasons: bits of throttling.REASONS; utilisation: percent of the last second or less in which a kernel ran.
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
        "temperature_c": ask(
            api, "nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU
        ),
        "utilisation": None if rates is None else rates.gpu,
    }
