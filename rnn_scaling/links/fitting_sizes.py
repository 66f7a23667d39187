"""Which sizes fit into memory. No TensorFlow here."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.machine.gpus import free_gpu_memory_mib

# Of the largest size, beside the inputs: results, and pieces in flight. benchmarks: xring and rechd hold most.
WORKING_COPIES = 4
PROCESS_BYTES = 700 * 2**20  # TensorFlow itself
SHARE = 0.8  # of what is free now that may be used: others' need may grow


def needed_bytes(sizes: Sequence[int], num_devices: int) -> int:
    """Host memory that the all-reduces of these sizes take at most: inputs of all sizes, and what one works in."""
    return PROCESS_BYTES + num_devices * (sum(sizes) + WORKING_COPIES * max(sizes, default=0))


def fitting(sizes: Sequence[int], num_devices: int, free_bytes: int) -> list[int]:
    """The sizes from the smallest on whose all-reduces fit into SHARE of what is free.

    Args:
      sizes: bytes of each rank's tensor.
    """
    kept = sorted(sizes)
    while kept and needed_bytes(kept, num_devices) > SHARE * free_bytes:
        kept.pop()
    return kept


def free_gpu_bytes(num_gpus: int) -> int:
    """Free memory of the GPU that has least. Raises DeviceError if nvidia-smi does not tell."""
    return int(min(free_gpu_memory_mib(gpu) for gpu in range(num_gpus)) * 2**20)
