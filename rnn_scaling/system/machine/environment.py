"""Cores, GPUs and versions of this machine, read without TensorFlow.

Flags are checked before TensorFlow loads.

The keys of `read_environment` are fields of `records.environment.Environment`.
"""

import datetime
import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling.system.machine.gpus import query_gpus, read_gpu_topology
from rnn_scaling.system.machine.system import (
    find_control_groups,
    list_cpuinfo_values,
    read_first_line,
    read_text,
    run_command,
)

# TF_CLI_ and TF_VAR_ belong to another program and may contain secrets.
_RELEVANT_VARIABLES = re.compile(
    r"^(TF_(CPP|XLA|ENABLE|DISABLE|NUM|GPU|FORCE|CUDNN|CUDA|DETERMINISTIC|USE|ALLOW|AUTOTUNE|SYNC|STEP)|CUDA_|NCCL_|XLA_|OMP_|KMP_|MKL_|DNNL_|ONEDNN_|MALLOC_|LD_PRELOAD|GLIBC_TUNABLES|NVIDIA_TF32_OVERRIDE|RNN_SCALING_OPERATORS)"
)
PACKAGES = (
    *("tensorflow", "tensorflow-cpu", "numpy", "absl-py", "keras", "protobuf"),
    *("horovod", "torch", "jax", "jaxlib"),
)
# Libraries of CUDA and their names in pip packages such as nvidia-cudnn-cu12.
_CUDA_LIBRARIES = {
    "runtime": "cuda-runtime",
    "cudnn": "cudnn",
    "cublas": "cublas",
    "nccl": "nccl",
}
# TensorFlow and its libraries choose kernels by these vector units; names of
# /proc/cpuinfo on x86 and ARM.
_VECTOR_UNITS = (
    *(
        "avx",
        "avx2",
        "fma",
        "avx_vnni",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
    ),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"),
)
# Files of one line with further settings of the system that affect a rate.
_SYSTEM_FILES = {
    "cpu_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "cpu_no_turbo": "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "cpu_boost": "/sys/devices/system/cpu/cpufreq/boost",
    "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
}


def read_environment(variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return versions, machine, devices and relevant variables as JSON data."""
    cpuinfo = read_text("/proc/cpuinfo")
    model_names = list_cpuinfo_values(cpuinfo, "model name")
    model_name = model_names[0] if model_names else ""
    return {
        "python": platform.python_version(),
        "packages": list_package_versions(),
        "cuda": _read_cuda_versions(),
        "platform": platform.platform(),
        "cpu": model_name or platform.processor() or platform.machine(),
        "cpu_vector_units": list_cpu_vector_units(cpuinfo),
        "cpu_cores": os.cpu_count(),
        "cpu_topology": {**read_cpu_topology(cpuinfo), "numa_nodes": list_numa_nodes()},
        # The current clock of each core.
        "cpu_mhz": [float(clock) for clock in list_cpuinfo_values(cpuinfo, "cpu MHz")],
        "cpu_limit": read_cpu_limit(),
        **{name: read_first_line(path) for name, path in _SYSTEM_FILES.items()},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": _load_average(),
        "gpus": query_gpus(),
        "topology": read_gpu_topology(),
        "variables": {
            k: v for k, v in sorted(variables.items()) if _RELEVANT_VARIABLES.match(k)
        },
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="seconds"
        ),
        "commit": _read_commit_of(),
    }


def list_package_versions() -> dict[str, str]:
    """Return the versions of installed packages that affect the numbers of a run."""
    return {name: version for name in PACKAGES if (version := _read_version(name))}


def _read_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _read_cuda_versions() -> dict[str, str | None]:
    """Return the versions of CUDA libraries from pip, without loading TensorFlow.

    Returns:
      The version by library; None for a library that pip did not install.
    """
    versions: dict[str, str | None] = {}
    for library, name in _CUDA_LIBRARIES.items():
        packages = [f"nvidia-{name}{suffix}" for suffix in ("-cu12", "-cu13", "")]
        versions[library] = next(filter(None, map(_read_version, packages)), None)
    return versions


def list_cpu_vector_units(cpuinfo: str) -> list[str] | None:
    """Return the vector units in the text of /proc/cpuinfo; None if unknown."""
    lines = list_cpuinfo_values(cpuinfo, "(?:flags|Features)")
    if not lines:
        return None
    units = lines[0].split()
    return [name for name in _VECTOR_UNITS if name in units]


def read_cpu_topology(cpuinfo: str) -> dict[str, int | None]:
    """Count sockets, cores and threads in the text of /proc/cpuinfo; None if unknown."""
    sockets = list_cpuinfo_values(cpuinfo, "physical id")
    cores = list_cpuinfo_values(cpuinfo, "core id")
    return {
        "sockets": len(set(sockets)) or None,
        # Core numbers are unique only within a socket.
        "cores": len(set(zip(sockets, cores))) or None,
        "threads": len(list_cpuinfo_values(cpuinfo, "processor")) or None,
    }


def list_numa_nodes(root: str = "/sys/devices/system/node") -> list[str]:
    """Return the cores of each NUMA node in the format of the kernel ("0-15,32-47")."""
    nodes = sorted(Path(root).glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    return [read_first_line(str(node / "cpulist")) or "" for node in nodes]


def read_cpu_limit(root: str = "/") -> float | None:
    """Return the CPU time limit of control groups in cores; None without a limit.

    Source: kernel documentation, admin-guide/cgroup-v2.rst, "cpu.max"; version 1:
    scheduler/sched-bwc.rst.
    """
    limits = []
    for folder, is_second in find_control_groups(root, "cpu"):
        if is_second:
            words = (read_first_line(f"{folder}/cpu.max") or "").split()
        else:
            quota = read_first_line(f"{folder}/cpu.cfs_quota_us") or ""
            period = read_first_line(f"{folder}/cpu.cfs_period_us") or ""
            words = [quota, period]
        # "max" and -1 mean no limit.
        if len(words) == 2 and all(word.isdigit() for word in words):
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


def _load_average() -> list[float] | None:
    try:
        return list(os.getloadavg())
    except OSError:
        return None


def _read_commit_of() -> dict[str, Any] | None:
    root = Path(__file__).resolve().parents[3]
    # If the package is installed, git could find another project in a parent folder.
    return read_commit(root) if (root / ".git").exists() else None


def read_commit(folder: Path) -> dict[str, Any] | None:
    """Return the commit that a folder is checked out at, JSON-ready.

    Args:
      folder: The root of a git repository, or a folder inside one.

    Returns:
      `hash`, `modified`, and as `diff` a digest that differs between modified trees;
      None if the folder is not in a repository, or git is missing.
    """
    git = ("git", "-C", str(folder))
    head = run_command(*git, "rev-parse", "HEAD")
    if head is None:
        return None
    changes = run_command(*git, "status", "--porcelain", "--untracked-files=no")
    if not (changes and changes.strip()):
        return {"hash": head.strip(), "modified": False, "diff": None}
    diff = run_command(*git, "diff", "--no-ext-diff", "HEAD")
    digest = hashlib.sha256(diff.encode()).hexdigest()[:12] if diff else None
    return {"hash": head.strip(), "modified": True, "diff": digest}
