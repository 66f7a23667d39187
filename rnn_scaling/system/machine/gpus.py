"""The NVIDIA GPUs that this process sees, found without loading CUDA or TensorFlow."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from rnn_scaling.system.machine import throttling
from rnn_scaling.system.machine.cores import available_cores
from rnn_scaling.system.machine.system import run_command

T = TypeVar("T")

GPU_QUERY = (
    f"index,name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,clocks.max.sm,{throttling.FIELD},"
    "pci.bus_id,clocks.max.mem,power.limit"
)
GPU_QUERY_OF_ANY_DRIVER = (
    "index,name,uuid,driver_version,memory.total,clocks.sm,clocks.mem,pci.bus_id"
)


class DeviceError(ValueError):
    """The machine's devices cannot do what was asked; the message is a line for a person."""


def visible_gpus() -> int:
    """NVIDIA GPUs that the driver shows and CUDA_VISIBLE_DEVICES leaves, counted without loading CUDA."""
    return len(gpu_ids())


def machine_size() -> dict[str, int]:
    """What this process may use: `num_gpus` and `num_cores`."""
    return {"num_gpus": visible_gpus(), "num_cores": len(available_cores())}


def gpu_ids() -> list[str]:
    """nvidia-smi's name of each visible GPU, in the order of TensorFlow's numbers: an index, or the start of a UUID.

    The indices are nvidia-smi's where CUDA counts as it does: see `prepare_cuda_order`.
    """
    present = len(
        [
            node
            for node in Path("/dev").glob("nvidia*")
            if re.fullmatch(r"nvidia\d+", node.name)
        ]
    )
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return [str(index) for index in range(present)]
    ids: list[str] = []
    for name in allowed.split(","):
        name = name.strip()
        is_index = name.isdigit() and int(name) < present
        if not (is_index or name.startswith(("GPU-", "MIG-"))):
            break  # CUDA stops at the first invalid entry
        ids.append(name)
    return ids[:present]


def chosen(
    present: Sequence[T], ids: Sequence[str], names_of: Callable[[T], tuple[str, str]]
) -> list[T]:
    """The GPUs that are meant by `gpu_ids`'s names, in their order."""
    named = [(gpu, *names_of(gpu)) for gpu in present]
    return [
        gpu
        for name in ids
        for gpu, index, uuid in named
        if index == name or uuid.startswith(name)
    ]


def prepare_cuda_order() -> None:
    """Lets CUDA count GPUs as nvidia-smi does, unless the user chose; to be called before TensorFlow loads.

    Otherwise CUDA counts the fastest first, and GPU 0 may be another for the two.
    """
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")


def free_gpu_memory_mib(gpu: int) -> float:
    """Free memory of the GPU that TensorFlow calls number `gpu`, in MiB."""
    rows = _visible_gpu_rows("index,uuid,memory.free") or []
    try:
        return float(rows[gpu]["memory.free"].removesuffix(" MiB"))
    except (IndexError, ValueError):
        raise DeviceError(
            f"expected nvidia-smi to tell the free memory of GPU {gpu}, got {rows}: several towers on a GPU divide it; "
            "install nvidia-smi, or give --num_devices no more than there are GPUs"
        ) from None


def uneven_towers(num_devices: int, num_gpus: int) -> str:
    """Why so many towers cannot share the GPUs evenly, with the remedy; empty when they can."""
    if num_devices <= num_gpus or num_devices % num_gpus == 0:
        return ""
    fewer = num_devices // num_gpus * num_gpus
    return (
        f"--num_devices={num_devices} must be at most the {num_gpus} GPUs or a multiple of them, so that each has as "
        f"much to do; use {fewer} or {fewer + num_gpus}"
    )


def query_gpus() -> list[dict[str, str]]:
    """Return the fields of each visible GPU, in the order of TensorFlow's numbers.

    The fields are driver, memory, clocks and the reasons why the clocks are held down
    (throttling.FIELD, whatever the driver calls it). `index` is nvidia-smi's number.
    """
    old = throttling.FIELD
    new = throttling.NEW_FIELD
    for query in (GPU_QUERY, GPU_QUERY.replace(old, new), GPU_QUERY_OF_ANY_DRIVER):
        rows = _visible_gpu_rows(query)
        if (
            rows is not None
        ):  # a driver that does not know a field refuses the whole query
            return [
                {old if field == new else field: cell for field, cell in row.items()}
                for row in rows
            ]
    return []


def gpu_topology() -> str | None:
    """What `nvidia-smi topo -m` says of all GPUs of the machine; None: none is visible, or it does not answer."""
    return run_command("nvidia-smi", "topo", "-m") if visible_gpus() else None


def _visible_gpu_rows(query: str) -> list[dict[str, str]] | None:
    """What nvidia-smi answers for each visible GPU, in the order of TensorFlow's numbers; None: it does not answer."""
    ids = gpu_ids()
    if not ids:
        return []
    text = run_command("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
    if text is None:
        return None
    lines = [
        [cell.strip() for cell in line.split(",")] for line in text.splitlines() if line
    ]
    rows = [dict(zip(query.split(","), line)) for line in lines]
    return chosen(rows, ids, lambda row: (row["index"], row.get("uuid", "")))
