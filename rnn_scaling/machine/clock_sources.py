"""Where clocks are read while a run goes on: NVML, nvidia-smi in a loop, or the CPU's own numbers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from rnn_scaling.machine import nvml, throttling
from rnn_scaling.machine.gpus import chosen, smi_names
from rnn_scaling.processes import tether

Sample = list[dict[str, Any]]  # one mapping a device
TETHER = tether.__file__
# nvidia-smi's fields, without the reasons, which have two names. ClockSource: `nvidia-smi --help-query-gpu`.
_STATIC = {"index": "index", "uuid": "uuid", "name": "name"}
_LIMITS = {"clocks.max.sm": "max_sm_mhz", "clocks.max.mem": "max_memory_mhz", "power.limit": "power_limit_w"}
_NOW = {
    "clocks.sm": "sm_mhz",
    "clocks.mem": "memory_mhz",
    "power.draw": "power_w",
    "temperature.gpu": "temperature_c",
    "utilization.gpu": "utilisation",
}
_CORE = re.compile(r"^processor\s*: *(\d+) *$.*?^cpu MHz\s*: *([\d.]+) *$", re.MULTILINE | re.DOTALL)
_ANSWER_S = 10  # nvidia-smi loads the driver first where no persistence daemon holds it
_PIECE = 1 << 16


class ClockSource(Protocol):
    """Something that tells clocks."""

    name: str
    devices: Sample  # what does not change, one mapping a device

    def poll(self) -> Sample | None:
        """What changes, in the order of `devices`; None: nothing new."""

    def close(self) -> None:
        """Ends it, with every process that it started."""


def of_gpus(ids: Sequence[str], interval_s: float, start: Callable[[], Any | None] = nvml.start) -> ClockSource | None:
    """Clocks of GPUs: from NVML, else from nvidia-smi; None: neither tells.

    Args:
      ids: the GPUs, as `gpus.gpu_ids` names them.
      interval_s: seconds between two lines of nvidia-smi.
      start: `nvml.start`.
    """
    api = start()
    if api is not None:
        gpus = nvml.visible(api, ids)
        if gpus:
            return _Nvml(api, gpus)
        api.nvmlShutdown()
    return _Smi.start(ids, interval_s)


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


class _Smi:
    """One nvidia-smi for the whole run. It dies with the thread that started it, whatever ends that."""

    name = "nvidia-smi"

    def __init__(self, child: subprocess.Popen[bytes], terminal: int, columns: list[str], devices: Sample) -> None:
        self._child, self._terminal, self._columns, self.devices = child, terminal, columns, devices
        self._rest = b""
        self._latest: dict[str, dict[str, str]] = {}  # by index

    @classmethod
    def start(cls, ids: Sequence[str], interval_s: float) -> _Smi | None:
        """Asks once for what does not change, and then starts the loop; None: nvidia-smi does not answer."""
        for reasons in (throttling.NEW_FIELD, throttling.FIELD):
            fields = [*_STATIC, *_LIMITS, *_NOW, reasons]
            command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
            try:
                done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_ANSWER_S)
            except (OSError, subprocess.TimeoutExpired):
                return None
            if done.returncode == 0:
                break
        else:
            return None
        rows = [dict(zip(fields, _cells(line))) for line in done.stdout.splitlines()]
        rows = chosen(rows, ids, smi_names)
        if not rows:
            return None
        devices = [
            {"index": int(row["index"]), "name": row["name"], **{key: _number(row[f]) for f, key in _LIMITS.items()}}
            for row in rows
        ]
        columns = ["index", *_NOW, reasons]
        command = [
            *("nvidia-smi", f"--query-gpu={','.join(columns)}", "--format=csv,noheader,nounits"),
            *(f"--id={','.join(row['index'] for row in rows)}", f"--loop-ms={round(interval_s * 1000)}"),
        ]
        return cls(*_spawn(command), columns, devices)

    def poll(self) -> Sample | None:
        *lines, self._rest = (self._rest + _drain(self._terminal)).split(b"\n")
        cells = [_cells(line.decode(errors="replace")) for line in lines]
        rows = [dict(zip(self._columns, row)) for row in cells if len(row) == len(self._columns)]
        self._latest.update((row["index"], row) for row in rows)
        latest = [self._latest.get(str(device["index"])) for device in self.devices]
        if not rows or None in latest:
            return None
        return [
            {**{key: _number(row[f]) for f, key in _NOW.items()}, "reasons": throttling.parse(row[self._columns[-1]])}
            for row in latest
            if row is not None
        ]

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        os.close(self._terminal)


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


def _spawn(command: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    """Starts a program whose output is a terminal, so that it writes each line at once and not 4 KiB at a time."""
    ours, theirs = os.openpty()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", str(TETHER), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the trainer, which then ends this
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    os.set_blocking(ours, False)
    return child, ours


def _drain(terminal: int) -> bytes:
    pieces = []
    try:
        while piece := os.read(terminal, _PIECE):
            pieces.append(piece)
    except OSError:  # nothing more now, or the program has ended
        pass
    return b"".join(pieces)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split(",")]


def _number(cell: str) -> float | None:
    """None for "[N/A]", "[Not Supported]" and their like."""
    try:
        return float(cell)
    except ValueError:
        return None
