"""The GPUs and their clocks from NVML, the library of the driver (`nvidia-ml-py`).

Every function takes the module `pynvml` as `api`, so that tests can use another one;
only `start` imports it. NVML numbers GPUs by PCI bus, like nvidia-smi.

Source: NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api) and nvidia-ml-py
13.615.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling.system.machine.gpus import select

MILLI = 1e-3


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU.

    Attributes:
      index: The number that nvidia-smi shows.
      uuid: The identifier that no other GPU has; "" if unknown.
      name: The product name; "" if unknown.
      handle: The object that NVML's functions take.
    """

    index: int
    uuid: str
    name: str
    handle: Any


def start() -> Any | None:
    """Initialise NVML; the caller ends it with `nvmlShutdown`.

    Returns:
      The module `pynvml`; None without the package, a driver or a GPU.
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


def call(api: Any, function: str, *arguments: Any) -> Any | None:
    """Call a function of NVML and return its result.

    Returns:
      None if this GPU or driver does not support the function.
    """
    try:
        return getattr(api, function)(*arguments)
    except (api.NVMLError, AttributeError):  # An old nvidia-ml-py lacks new functions.
        return None


def list_visible_gpus(api: Any, ids: Sequence[str]) -> list[Gpu]:
    """Return the GPUs with these ids, in the same order; see `gpus.list_gpu_ids`."""
    present = []
    for index in range(call(api, "nvmlDeviceGetCount") or 0):
        handle = call(api, "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:  # A GPU that fell off the bus has no handle.
            uuid = str(call(api, "nvmlDeviceGetUUID", handle) or "")
            name = str(call(api, "nvmlDeviceGetName", handle) or "")
            present.append(Gpu(index, uuid, name, handle))
    return select(present, ids, lambda gpu: (str(gpu.index), gpu.uuid))


def read_limits(api: Any, gpu: Gpu) -> dict[str, Any]:
    """Return the index, name, highest clocks and power limit of a GPU.

    The keys contain the units; a value is None if it is unknown.
    """
    power = call(api, "nvmlDeviceGetEnforcedPowerLimit", gpu.handle)
    return {
        "index": gpu.index,
        "name": gpu.name,
        "max_sm_mhz": call(
            api, "nvmlDeviceGetMaxClockInfo", gpu.handle, api.NVML_CLOCK_SM
        ),
        "max_memory_mhz": call(
            api, "nvmlDeviceGetMaxClockInfo", gpu.handle, api.NVML_CLOCK_MEM
        ),
        "power_limit_w": None if power is None else power * MILLI,
    }


def sample(api: Any, gpu: Gpu) -> dict[str, Any]:
    """Return clocks, power and temperature of a GPU now; None if unknown.

    `reasons` are bits of throttling.REASONS. `utilisation` is the percentage of time in
    which a kernel ran, over at most the last second.
    """
    handle = gpu.handle
    reasons = call(api, "nvmlDeviceGetCurrentClocksEventReasons", handle)
    if reasons is None:  # The driver is older than 535.
        reasons = call(api, "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    power = call(api, "nvmlDeviceGetPowerUsage", handle)
    rates = call(api, "nvmlDeviceGetUtilizationRates", handle)
    return {
        "sm_mhz": call(api, "nvmlDeviceGetClockInfo", handle, api.NVML_CLOCK_SM),
        "memory_mhz": call(api, "nvmlDeviceGetClockInfo", handle, api.NVML_CLOCK_MEM),
        "reasons": reasons,
        "power_w": None if power is None else round(power * MILLI, 3),
        "temperature_c": call(
            api, "nvmlDeviceGetTemperature", handle, api.NVML_TEMPERATURE_GPU
        ),
        "utilisation": None if rates is None else rates.gpu,
    }
