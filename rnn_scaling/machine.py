"""What this machine is: cores, GPUs, versions. Read without TensorFlow, since flags are checked before it loads."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# TF_CLI_, TF_VAR_ and their like belong to another program and may hold secrets.
RELEVANT_VARIABLES = re.compile(
    r"^(TF_(CPP|XLA|ENABLE|DISABLE|NUM|GPU|FORCE|CUDNN|CUDA|DETERMINISTIC|USE|ALLOW|AUTOTUNE|SYNC|STEP)|CUDA_|NCCL_|XLA_|OMP_|KMP_|MKL_|DNNL_|ONEDNN_|MALLOC_|LD_PRELOAD|GLIBC_TUNABLES|NVIDIA_TF32_OVERRIDE)"
)
PACKAGES = ("tensorflow", "tensorflow-cpu", "numpy", "absl-py", "keras", "protobuf")
REASONS, NEW_REASONS = "clocks_throttle_reasons.active", "clocks_event_reasons.active"  # the same; new: driver 535
GPU_QUERY = (
    f"index,name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,{REASONS},"
    "pci.bus_id,clocks.max.mem,power.limit"
)
GPU_QUERY_OF_ANY_DRIVER = "index,name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,pci.bus_id"
CUDA_PARTS = {"runtime": "cuda-runtime", "cudnn": "cudnn", "cublas": "cublas", "nccl": "nccl"}  # pip: nvidia-PART-cu12
# Vector units by which TensorFlow and its libraries choose kernels, as /proc/cpuinfo names them on x86 and ARM.
VECTOR_UNITS = (
    *("avx", "avx2", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"),
)
SYSTEM_FILES = {  # what else of the system decides a rate, one line each
    "cpu_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "cpu_no_turbo": "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "cpu_boost": "/sys/devices/system/cpu/cpufreq/boost",
    "huge_pages": "/sys/kernel/mm/transparent_hugepage/enabled",
}


def available_cores() -> list[int]:
    """Indices of the CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class DeviceError(ValueError):
    """The machine's devices cannot do what was asked; the message is a line for a person."""


def bind_to_cores(count: int) -> list[int]:
    """Binds this process to `count` of its cores, or to all when it has fewer; returns them.

    Physical cores come first: two hyper-threads of one core are no two devices' cores.
    """
    cores = sorted(sorted(available_cores(), key=lambda core: (_rank_among_siblings(core), core))[:count])
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    return cores


def share_a_core(cores: Sequence[int]) -> bool:
    """True if two of the cores are hyper-threads of one physical core."""
    return any(set(_siblings(core)) & set(cores) - {core} for core in cores)


def _rank_among_siblings(core: int) -> int:
    siblings = _siblings(core)
    return siblings.index(core) if core in siblings else 0


def _siblings(core: int) -> list[int]:
    """The hyper-threads of a core's physical core, itself included; empty where the system does not tell."""
    text = _read_first_line(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list") or ""
    siblings: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        siblings += range(int(first), int(last or first) + 1)
    return siblings


def visible_gpus() -> int:
    """NVIDIA GPUs that the driver shows and CUDA_VISIBLE_DEVICES leaves, counted without loading CUDA."""
    return len(gpu_ids())


def gpu_ids() -> list[str]:
    """nvidia-smi's name of each visible GPU, in the order of TensorFlow's numbers: an index, or the start of a UUID.

    The indices are nvidia-smi's where CUDA counts as it does: see `prepare_cuda_order`.
    """
    present = len([node for node in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", node.name)])
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return [str(index) for index in range(present)]
    ids: list[str] = []
    for name in allowed.split(","):
        name = name.strip()
        if not name or name == "-1":
            break  # CUDA stops at the first invalid entry
        if name.isdigit() and int(name) >= present:
            break
        ids.append(name)
    return ids[:present]


def prepare_cuda_order() -> None:
    """Lets CUDA count GPUs as nvidia-smi does, unless the user chose; to be called before TensorFlow loads.

    Otherwise CUDA counts the fastest first, and GPU 0 may be another for the two.
    """
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def free_gpu_memory_mib(gpu: int) -> float:
    """Free memory of the GPU that TensorFlow calls number `gpu`, in MiB.

    Raises:
      DeviceError: if nvidia-smi does not tell.
    """
    rows = _visible_gpu_rows("index,uuid,memory.free") or []
    try:
        return float(rows[gpu]["memory.free"].removesuffix(" MiB"))
    except (IndexError, ValueError):
        raise DeviceError(
            f"expected nvidia-smi to tell the free memory of GPU {gpu}, got {rows}: several towers on a GPU divide it; "
            "install nvidia-smi, or give --num_devices no more than there are GPUs"
        ) from None


def uneven_towers(num_devices: int, num_gpus: int) -> str:
    """Why so many towers cannot share the GPUs evenly, with the remedy; empty when they can.

    A GPU with more towers than another would make all wait for it.
    """
    if num_devices <= num_gpus or num_devices % num_gpus == 0:
        return ""
    fewer = num_devices // num_gpus * num_gpus
    return (
        f"--num_devices={num_devices} must be at most the {num_gpus} GPUs or a multiple of them, so that each has as "
        f"much to do; use {fewer} or {fewer + num_gpus}"
    )


def environment() -> dict[str, Any]:
    """Versions, machine, devices and variables that a number may depend on; JSON-ready."""
    cpuinfo = _read("/proc/cpuinfo")
    return {
        "python": platform.python_version(),
        "packages": _package_versions(),
        "cuda": _cuda_versions(),
        "platform": platform.platform(),
        "cpu": cpu_model(cpuinfo) or platform.processor() or platform.machine(),
        "cpu_vector_units": cpu_vector_units(cpuinfo),
        "cpu_cores": os.cpu_count(),
        "cpu_topology": {**cpu_topology(cpuinfo), "numa_nodes": numa_nodes()},
        "cpu_mhz": cpu_mhz(cpuinfo),
        "cpu_limit": cpu_limit(),
        **{name: _read_first_line(path) for name, path in SYSTEM_FILES.items()},
        "memory_bytes": _memory_bytes(),
        "load_average": _load_average(),
        "gpus": gpus(),
        "topology": gpu_topology(),
        "variables": {k: v for k, v in sorted(os.environ.items()) if RELEVANT_VARIABLES.match(k)},
        "started": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
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


def _cuda_versions() -> dict[str, str | None]:
    """Of the CUDA libraries that pip installed; None: not from pip. TensorFlow need not be loaded to be asked."""
    versions: dict[str, str | None] = dict.fromkeys(CUDA_PARTS)
    for part, name in CUDA_PARTS.items():
        for suffix in ("-cu12", "-cu13", ""):
            try:
                versions[part] = importlib.metadata.version(f"nvidia-{name}{suffix}")
                break
            except importlib.metadata.PackageNotFoundError:
                continue
    return versions


def cpu_model(cpuinfo: str) -> str | None:
    """The processor's name from the text of /proc/cpuinfo."""
    return next(iter(_cpuinfo_values(cpuinfo, "model name")), None)


def cpu_vector_units(cpuinfo: str) -> list[str] | None:
    """Which of VECTOR_UNITS the processor has, from the text of /proc/cpuinfo; None: the system does not tell."""
    told = _cpuinfo_values(cpuinfo, "(?:flags|Features)")
    return [name for name in VECTOR_UNITS if name in told[0].split()] if told else None


def cpu_mhz(cpuinfo: str) -> list[float]:
    """Present clock of each core in MHz from the text of /proc/cpuinfo; empty where the system does not tell."""
    return [float(value) for value in _cpuinfo_values(cpuinfo, "cpu MHz")]


def cpu_topology(cpuinfo: str) -> dict[str, int | None]:
    """Sockets, physical cores and hardware threads from the text of /proc/cpuinfo; None: the system does not tell."""
    sockets, cores = _cpuinfo_values(cpuinfo, "physical id"), _cpuinfo_values(cpuinfo, "core id")
    return {
        "sockets": len(set(sockets)) or None,
        "cores": len(set(zip(sockets, cores))) or None,  # a core's number is its own only within its socket
        "threads": len(_cpuinfo_values(cpuinfo, "processor")) or None,
    }


def _cpuinfo_values(cpuinfo: str, field: str) -> list[str]:
    return re.findall(rf"^{field}\s*: *(.*?) *$", cpuinfo, re.MULTILINE)


def numa_nodes(root: str = "/sys/devices/system/node") -> list[str]:
    """The cores of each NUMA node as the kernel writes them ("0-15,32-47")."""
    nodes = sorted(Path(root).glob("node[0-9]*"), key=lambda node: int(node.name[4:]))
    return [_read_first_line(str(node / "cpulist")) or "" for node in nodes]


def cpu_limit(root: str = "/") -> float | None:
    """Cores' worth of CPU time that control groups grant this process; None: no limit, or none that can be read.

    Source: kernel documentation, admin-guide/cgroup-v2.rst, "cpu.max"; version 1: scheduler/sched-bwc.rst.
    """
    limits = []
    for line in _read(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # The groups above limit too. In a container the path may be the host's, and only the root is to be seen.
        for group in {path, *map(str, Path(path).parents)}:
            if controllers:
                folder = f"{root}/sys/fs/cgroup/cpu/{group}"
                words = [_read_first_line(f"{folder}/cpu.cfs_{part}_us") for part in ("quota", "period")]
            else:
                words = (_read_first_line(f"{root}/sys/fs/cgroup/{group}/cpu.max") or "").split()
            if len(words) == 2 and all(word and word.isdigit() for word in words):  # "max" and -1: no limit
                limits.append(int(words[0]) / int(words[1]))
    return min(limits, default=None)


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
    """Each visible GPU, in the order of TensorFlow's numbers, with its driver, memory, clocks and the reasons why its
    clocks are held down, now (REASONS, whatever the driver calls it); `index` is nvidia-smi's."""
    for query in (GPU_QUERY, GPU_QUERY.replace(REASONS, NEW_REASONS), GPU_QUERY_OF_ANY_DRIVER):
        rows = _visible_gpu_rows(query)
        if rows is not None:  # a driver that does not know a field refuses the whole query
            return [{REASONS if field == NEW_REASONS else field: cell for field, cell in row.items()} for row in rows]
    return []


def gpu_topology() -> str | None:
    """What `nvidia-smi topo -m` says of all GPUs of the machine; None: none is visible, or it does not answer."""
    return _command("nvidia-smi", "topo", "-m") if visible_gpus() else None


def _visible_gpu_rows(query: str) -> list[dict[str, str]] | None:
    """What nvidia-smi answers for each visible GPU, in the order of TensorFlow's numbers; None: it does not answer.

    Args:
      query: fields, among them index and uuid.
    """
    ids = gpu_ids()
    if not ids:
        return []
    text = _command("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
    if text is None:
        return None
    lines = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line]
    rows = [dict(zip(query.split(","), line)) for line in lines]
    return [row for name in ids for row in rows if row["index"] == name or row["uuid"].startswith(name)]


def _commit() -> dict[str, Any] | None:
    root = Path(__file__).resolve().parent.parent
    head = _command("git", "-C", str(root), "rev-parse", "HEAD")
    if head is None:
        return None
    changes = _command("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    if not (changes and changes.strip()):
        return {"hash": head.strip(), "modified": False, "diff": None}
    diff = _command("git", "-C", str(root), "diff", "--no-ext-diff", "HEAD")
    digest = hashlib.sha256(diff.encode()).hexdigest()[:12] if diff else None  # tells two modified trees apart
    return {"hash": head.strip(), "modified": True, "diff": digest}


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _read_first_line(path: str) -> str | None:
    return next(iter(_read(path).splitlines()), None)


def _command(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
