"""CUPTI's numbers in words: kinds of copies and of memory; and what names of kernels and of API functions tell.

Source: CUPTI's cupti_activity.h (CUpti_ActivityMemcpyKind); https://docs.nvidia.com/cupti/api/.
"""

import functools
import re

COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD",
}  # fmt: skip
# Nsight Systems counts kinds of memory from 0, CUPTI from 1.
MEMORY_KINDS = {
    0: "pageable", 1: "pinned", 2: "device", 3: "array", 4: "managed", 5: "device static", 6: "managed static",
    7: "unknown",
}  # fmt: skip
_LAUNCH = re.compile(r"cu(da)?(Launch(?!HostFunc)|GraphLaunch)\w*")
_COMMUNICATION = re.compile(r"(?:void\s+)?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE)
PEER_TO_PEER = 10  # of COPY_KINDS
_VERSION = re.compile(r"(_pt[sd][sz])?(_v\d{4,5})?$")


def call_name(name: str) -> str:
    """An API function without the suffix of its version: cudaLaunchKernel of cudaLaunchKernel_ptsz_v7000."""
    return _VERSION.sub("", name)


@functools.lru_cache(20_000)
def is_communication(name: str) -> bool:
    """Whether a kernel carries data between devices: those of NCCL and RCCL, of MSCCL and of NVSHMEM."""
    return _COMMUNICATION.match(name) is not None


def is_launch(name: str) -> bool:
    """Whether an API function starts kernels: cudaLaunch*, cuLaunch*, cudaGraphLaunch, cuGraphLaunch."""
    return _LAUNCH.fullmatch(name) is not None
