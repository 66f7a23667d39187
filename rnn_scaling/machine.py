"""What this machine is: cores, GPUs, versions. Read without TensorFlow, since flags are checked before it loads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

# TF_CLI_, TF_VAR_ and their like belong to another program and may hold secrets.
RELEVANT_VARIABLES = re.compile(
    r"^(TF_(CPP|XLA|ENABLE|DISABLE|NUM|GPU|FORCE|CUDNN|CUDA|DETERMINISTIC|USE|ALLOW|AUTOTUNE|SYNC|STEP)|CUDA_|NCCL_|XLA_|OMP_|KMP_|MKL_|DNNL_|ONEDNN_|MALLOC_|LD_PRELOAD)"
)
PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy", "absl-py", "keras", "protobuf")
GPU_QUERY = "index,name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,clocks_throttle_reasons.active,pci.bus_id"


def available_cores() -> list[int]:
    """Indices of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def bind_to_cores(count: int) -> list[int]:
    """Binds this process to its first `count` cores, or to all when it has fewer; returns them."""
    cores = available_cores()[:count]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    return cores


def visible_gpus() -> int:
    """NVIDIA GPUs that the driver shows and CUDA_VISIBLE_DEVICES leaves, counted without loading CUDA."""
    present = len([node for node in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", node.name)])
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return present
    count = 0
    for name in allowed.split(","):
        name = name.strip()
        if not name or name == "-1":
            break  # CUDA stops at the first invalid entry
        if name.isdigit() and int(name) >= present:
            break
        count += 1
    return min(count, present)


def environment() -> dict[str, Any]:
    """Versions, machine, devices and variables that a number may depend on; JSON-ready."""
    return {
        "python": platform.python_version(),
        "packages": _package_versions(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cpu_cores": os.cpu_count(),
        "cpu_governor": _read_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": _memory_bytes(),
        "load_average": _load_average(),
        "gpus": gpus(),
        "topology": _command("nvidia-smi", "topo", "-m") if visible_gpus() else None,
        "variables": {k: v for k, v in sorted(os.environ.items()) if RELEVANT_VARIABLES.match(k)},
        "commit": _commit(),
    }


def _package_versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def _load_average() -> list[float] | None:
    try:
        return list(os.getloadavg())
    except OSError:
        return None


def gpus() -> list[dict[str, str]]:
    """Each visible GPU with its driver, memory, clocks and the reasons why its clocks are held down, now."""
    if not visible_gpus():
        return []
    text = _command("nvidia-smi", f"--query-gpu={GPU_QUERY}", "--format=csv,noheader")
    names = GPU_QUERY.split(",")
    return [dict(zip(names, (cell.strip() for cell in line.split(",")))) for line in (text or "").splitlines() if line]


def _commit() -> dict[str, Any] | None:
    root = Path(__file__).resolve().parent.parent
    head = _command("git", "-C", str(root), "rev-parse", "HEAD")
    if head is None:
        return None
    changes = _command("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return {"hash": head.strip(), "modified": bool(changes and changes.strip())}


def _read_first_line(path: str) -> str | None:
    try:
        return Path(path).read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


def _command(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
