"""Stands for the module `pynvml` of a machine that a test describes."""

from __future__ import annotations

import types


class FakeNvml:
    """GPUs as dictionaries. What a GPU does not hold it does not tell; `down` counts the calls of nvmlShutdown.

    A GPU: name, uuid, bus, and any of sm, memory, max_sm, max_memory (MHz), reasons, old_reasons, power, limit (mW),
    temperature, utilisation, cpus (words), nodes (word), links {number: bus of the other GPU or "switch"}.
    pairs: {(a, b): nvmlGpuTopologyLevel_t}; peers: {(a, b): nvmlGpuP2PStatus_t}, of a < b.
    """

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU, NVML_FEATURE_ENABLED = 1, 2, 0, 1
    NVML_NVLINK_MAX_LINKS, NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 18, 0, 2

    def __init__(self, gpus, pairs=None, peers=None):
        self.gpus, self.pairs, self.peers, self.down = gpus, pairs or {}, peers or {}, 0

    def _get(self, gpu, field):
        value = gpu.get(field)
        if value is None:
            raise self.NVMLError(field)
        return value() if callable(value) else value

    def _of_pair(self, held, a, b):
        key = tuple(sorted((self.gpus.index(a), self.gpus.index(b))))
        if key not in held:
            raise self.NVMLError(key)
        return held[key]

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

    def nvmlDeviceGetPciInfo(self, gpu):
        return types.SimpleNamespace(busId=self._get(gpu, "bus"))

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

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu):
        return self._get(gpu, "limit")

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        return self._get(gpu, "temperature")

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return types.SimpleNamespace(gpu=self._get(gpu, "utilisation"), memory=0)

    def nvmlDeviceGetCpuAffinity(self, gpu, size):
        return self._get(gpu, "cpus")

    def nvmlDeviceGetMemoryAffinity(self, gpu, size, scope):
        return self._get(gpu, "nodes")

    def nvmlDeviceGetTopologyCommonAncestor(self, a, b):
        return self._of_pair(self.pairs, a, b)

    def nvmlDeviceGetP2PStatus(self, a, b, index):
        return self._of_pair(self.peers, a, b)

    def nvmlDeviceGetNvLinkState(self, gpu, link):
        return int(link in self._get(gpu, "links"))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu, link):
        return 2 if gpu["links"][link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, gpu, link):
        return types.SimpleNamespace(busId=gpu["links"][link])
