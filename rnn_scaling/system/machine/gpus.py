"""Find the NVIDIA GPUs that this process sees, without loading CUDA or TensorFlow.

Everything that must know GPUs before TensorFlow loads asks here.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rnn_scaling.system.machine import throttling
from rnn_scaling.system.machine.cores import list_available_cores
from rnn_scaling.system.machine.system import run_command

T = TypeVar("T")

GPU_QUERY = (
    f"index,name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,{throttling.FIELD},"
    "pci.bus_id,clocks.max.mem,power.limit"
)
_GPU_QUERY_OF_ANY_DRIVER = (
    "index,name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,pci.bus_id"
)


class DeviceError(ValueError):
    """The devices of the machine do not suffice; the message is one line."""


def count_visible_gpus() -> int:
    """Count the NVIDIA GPUs in CUDA_VISIBLE_DEVICES without loading CUDA."""
    return len(list_gpu_ids())


def describe_machine_size() -> dict[str, int]:
    """Return the GPUs and cores of this process: `num_gpus` and `num_cores`."""
    return {"num_gpus": count_visible_gpus(), "num_cores": len(list_available_cores())}


def list_gpu_ids() -> list[str]:
    """Return the name of each visible GPU in nvidia-smi, in TensorFlow's order.

    A name is an index, or the start of a UUID. Indices are correct if CUDA uses the
    order of nvidia-smi: see `prepare_cuda_order`.
    """
    nodes = Path("/dev").glob("nvidia*")
    present = sum(bool(re.fullmatch(r"nvidia\d+", node.name)) for node in nodes)
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return [str(index) for index in range(present)]
    ids: list[str] = []
    for name in allowed.split(","):
        name = name.strip()
        is_index = name.isdigit() and int(name) < present
        if not (is_index or name.startswith(("GPU-", "MIG-"))):
            break  # CUDA ignores all entries after an invalid one.
        ids.append(name)
    return ids[:present]


def select(
    present: Sequence[T], ids: Sequence[str], names_of: Callable[[T], tuple[str, str]]
) -> list[T]:
    """Return the GPUs with the names of `list_gpu_ids`, in this order."""
    selected = []
    for name in ids:
        for gpu in present:
            index, uuid = names_of(gpu)
            if index == name or uuid.startswith(name):
                selected.append(gpu)
    return selected


def prepare_cuda_order() -> None:
    """Let CUDA number GPUs like nvidia-smi, unless the user chose an order.

    By default CUDA numbers the fastest GPU first. Call this before TensorFlow loads.
    """
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def read_free_gpu_memory_mib(gpu: int) -> float:
    """Return the free memory of a GPU (a number of TensorFlow) in MiB."""
    rows = _select_visible_gpu_rows("index,uuid,memory.free") or []
    try:
        return float(rows[gpu]["memory.free"].removesuffix(" MiB"))
    except (IndexError, ValueError):
        raise DeviceError(
            f"towers that share GPU {gpu} need its free memory, but nvidia-smi "
            f"reported {rows}; install nvidia-smi, or lower --num_devices to the "
            "number of GPUs"
        ) from None


def explain_uneven_towers(num_devices: int, num_gpus: int) -> str:
    """Return why towers cannot share the GPUs evenly, with the remedy, or ""."""
    if num_devices <= num_gpus or num_devices % num_gpus == 0:
        return ""
    fewer = num_devices // num_gpus * num_gpus
    return (
        f"--num_devices={num_devices} must be at most the number of GPUs ({num_gpus}) "
        f"or a multiple of it, so that all GPUs have the same load; use {fewer} or "
        f"{fewer + num_gpus}"
    )


def query_gpus() -> list[dict[str, str]]:
    """Return the fields of each visible GPU, in the order of TensorFlow's numbers.

    The fields are driver, memory, clocks and the reasons for lower clocks
    (throttling.FIELD for all drivers). `index` is the number in nvidia-smi.
    """
    new_query = GPU_QUERY.replace(throttling.FIELD, throttling.NEW_FIELD)
    for query in (GPU_QUERY, new_query, _GPU_QUERY_OF_ANY_DRIVER):
        rows = _select_visible_gpu_rows(query)
        # A driver without one of the fields refuses the query.
        if rows is not None:
            return rows
    return []


def read_gpu_topology() -> str | None:
    """Return the output of `nvidia-smi topo -m`; None without GPUs or nvidia-smi."""
    return run_command("nvidia-smi", "topo", "-m") if count_visible_gpus() else None


def _select_visible_gpu_rows(query: str) -> list[dict[str, str]] | None:
    """Query nvidia-smi for each visible GPU, in TensorFlow's order; None if it fails."""
    ids = list_gpu_ids()
    if not ids:
        return []
    text = run_command("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
    if text is None:
        return None
    fields = query.replace(throttling.NEW_FIELD, throttling.FIELD).split(",")
    rows = []
    for line in filter(None, text.splitlines()):
        cells = [cell.strip() for cell in line.split(",")]
        rows.append(dict(zip(fields, cells)))
    return select(rows, ids, lambda row: (row["index"], row.get("uuid", "")))
