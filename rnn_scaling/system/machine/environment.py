"""What this machine is: cores, GPUs, versions. Read without TensorFlow, since flags are checked before it loads."""

import datetime
import hashlib
import importlib.metadata
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling.system.machine.gpus import gpu_topology, query_gpus
from rnn_scaling.system.machine.system import (
    control_groups,
    cpuinfo_values,
    read_first_line,
    read_text,
    run_command,
)

# TF_CLI_, TF_VAR_ and their like belong to another program and may hold secrets.
RELEVANT_VARIABLES = re.compile(
    r"^(TF_(CPP|XLA|ENABLE|DISABLE|NUM|GPU|FORCE|CUDNN|CUDA|DETERMINISTIC|USE|ALLOW|AUTOTUNE|SYNC|STEP)|CUDA_|NCCL_|XLA_|OMP_|KMP_|MKL_|DNNL_|ONEDNN_|MALLOC_|LD_PRELOAD|GLIBC_TUNABLES|NVIDIA_TF32_OVERRIDE|RNN_SCALING_OPERATORS)"
)
PACKAGES = (
    *("tensorflow", "tensorflow-cpu", "numpy", "absl-py", "keras", "protobuf"),
    *("horovod", "torch", "jax", "jaxlib"),
)
CUDA_PARTS = {
    "runtime": "cuda-runtime",
    "cudnn": "cudnn",
    "cublas": "cublas",
    "nccl": "nccl",
}  # pip: nvidia-PART-cu12
# Vector units by which TensorFlow and its libraries choose kernels, as /proc/cpuinfo names them on x86 and ARM.
VECTOR_UNITS = (
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
SYSTEM_FILES = {  # what else of the system decides a rate, one line each
    "cpu_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "cpu_no_turbo": "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "cpu_boost": "/sys/devices/system/cpu/cpufreq/boost",
    "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
}


def read_environment(variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Versions, machine, devices and those of the variables that a number may depend on; JSON-ready."""
    cpuinfo = read_text("/proc/cpuinfo")
    return {
        "python": platform.python_version(),
        "packages": package_versions(),
        "cuda": _cuda_versions(),
        "platform": platform.platform(),
        "cpu": next(iter(cpuinfo_values(cpuinfo, "model name")), "")
        or platform.processor()
        or platform.machine(),
        "cpu_vector_units": cpu_vector_units(cpuinfo),
        "cpu_cores": os.cpu_count(),
        "cpu_topology": {**cpu_topology(cpuinfo), "numa_nodes": numa_nodes()},
        "cpu_mhz": [
            float(clock) for clock in cpuinfo_values(cpuinfo, "cpu MHz")
        ],  # of each core now
        "cpu_limit": cpu_limit(),
        **{name: read_first_line(path) for name, path in SYSTEM_FILES.items()},
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average": _load_average(),
        "gpus": query_gpus(),
        "topology": gpu_topology(),
        "variables": {
            k: v for k, v in sorted(variables.items()) if RELEVANT_VARIABLES.match(k)
        },
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(
            timespec="seconds"
        ),
        "commit": _commit(),
    }


def package_versions() -> dict[str, str]:
    """Versions of the packages that a run's numbers may depend on, where they are installed."""
    return {name: version for name in PACKAGES if (version := _version(name))}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cuda_versions() -> dict[str, str | None]:
    """Of the CUDA libraries that pip installed; None: not from pip. TensorFlow need not be loaded to be asked."""
    suffixes = ("-cu12", "-cu13", "")
    packages = {
        part: [f"nvidia-{name}{suffix}" for suffix in suffixes]
        for part, name in CUDA_PARTS.items()
    }
    return {
        part: next(filter(None, map(_version, given)), None)
        for part, given in packages.items()
    }


def cpu_vector_units(cpuinfo: str) -> list[str] | None:
    """Which of VECTOR_UNITS the processor has, from the text of /proc/cpuinfo; None: the system does not tell."""
    units = cpuinfo_values(cpuinfo, "(?:flags|Features)")
    return (
        [name for name in VECTOR_UNITS if name in units[0].split()] if units else None
    )


def cpu_topology(cpuinfo: str) -> dict[str, int | None]:
    """Sockets, physical cores and hardware threads from the text of /proc/cpuinfo; None: the system does not tell."""
    sockets = cpuinfo_values(cpuinfo, "physical id")
    cores = cpuinfo_values(cpuinfo, "core id")
    return {
        "sockets": len(set(sockets)) or None,
        "cores": len(set(zip(sockets, cores)))
        or None,  # a core's number is its own only within its socket
        "threads": len(cpuinfo_values(cpuinfo, "processor")) or None,
    }


def numa_nodes(root: str = "/sys/devices/system/node") -> list[str]:
    """The cores of each NUMA node as the kernel writes them ("0-15,32-47")."""
    nodes = sorted(Path(root).glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    return [read_first_line(str(node / "cpulist")) or "" for node in nodes]


def cpu_limit(root: str = "/") -> float | None:
    """Cores' worth of CPU time that control groups grant this process; None: no limit, or none that can be read.

    Source: kernel documentation, admin-guide/cgroup-v2.rst, "cpu.max"; version 1: scheduler/sched-bwc.rst.
    """
    limits = []
    for folder, is_second in control_groups(root, "cpu"):
        if is_second:
            words = (read_first_line(f"{folder}/cpu.max") or "").split()
        else:
            words = [
                read_first_line(f"{folder}/cpu.cfs_{part}_us") or ""
                for part in ("quota", "period")
            ]
        if len(words) == 2 and all(
            word.isdigit() for word in words
        ):  # "max" and -1: no limit
            limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


def _load_average() -> list[float] | None:
    try:
        return list(os.getloadavg())
    except OSError:
        return None


def _commit() -> dict[str, Any] | None:
    root = Path(__file__).resolve().parents[3]
    if not (
        root / ".git"
    ).exists():  # installed: what git would find further up is another project
        return None
    return commit_of(root)


def commit_of(folder: Path) -> dict[str, Any] | None:
    """Return the commit that a folder is checked out at, JSON-ready.

    Args:
      folder: The root of a git repository, or a folder inside one.

    Returns:
      `hash`, `modified`, and as `diff` a digest that tells two modified trees apart;
      None if the folder is in no repository, or git is missing.
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
