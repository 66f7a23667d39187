"""A fake of the module `pynvml`, for a machine that a test describes."""

import types


class FakeNvml:
    """A fake of NVML whose GPUs are dictionaries.

    Each GPU has name and uuid, and any of sm, memory, max_sm, max_memory (MHz),
    reasons, old_reasons, power, limit (mW), temperature, utilisation, energy (mJ).
    Reading a missing key fails as it does for an unsupported query. `down` counts the
    calls of nvmlShutdown.
    """

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, gpus):
        self.gpus, self.down = gpus, 0

    def _get(self, gpu, field):
        value = gpu.get(field)
        if value is None:
            raise self.NVMLError(field)
        return value() if callable(value) else value

    def nvmlShutdown(self):
        self.down += 1

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self.gpus[index]

    def nvmlDeviceGetName(self, gpu):
        return gpu["name"]

    def nvmlDeviceGetUUID(self, gpu):
        return gpu["uuid"]

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        return self._get(gpu, {1: "sm", 2: "memory"}[kind])

    def nvmlDeviceGetMaxClockInfo(self, gpu, kind):
        return self._get(gpu, {1: "max_sm", 2: "max_memory"}[kind])

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu):
        return self._get(gpu, "reasons")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        return self._get(gpu, "old_reasons")

    def nvmlDeviceGetPowerUsage(self, gpu):
        return self._get(gpu, "power")

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        return self._get(gpu, "energy")

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu):
        return self._get(gpu, "limit")

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        return self._get(gpu, "temperature")

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return types.SimpleNamespace(gpu=self._get(gpu, "utilisation"), memory=0)
