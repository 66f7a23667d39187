"""CUPTI's numbers in words: kinds of copies and of memory, ids of API functions, and short names of C++ kernels.

Sources: CUPTI's cupti_activity.h (CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind), cupti_runtime_cbid.h and
cupti_driver_cbid.h; https://docs.nvidia.com/cupti/api/. Of the ids, those a training run calls; others stay numbers.
"""

import functools
import re

COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH",
    10: "PtoP", 11: "UVM HtoD", 12: "UVM DtoH", 13: "UVM DtoD",
}  # fmt: skip
MEMORY_KINDS = {
    0: "unknown", 1: "pageable", 2: "pinned", 3: "device", 4: "array", 5: "managed", 6: "device static",
    7: "managed static",
}  # fmt: skip
RUNTIME_CALLS = {
    13: "cudaLaunch", 20: "cudaMalloc", 22: "cudaFree", 27: "cudaHostAlloc", 31: "cudaMemcpy", 41: "cudaMemcpyAsync",
    49: "cudaMemset", 51: "cudaMemsetAsync", 126: "cudaThreadSynchronize", 131: "cudaStreamSynchronize",
    132: "cudaStreamQuery", 135: "cudaEventRecord", 137: "cudaEventSynchronize", 138: "cudaEventQuery",
    147: "cudaStreamWaitEvent", 160: "cudaMemcpyPeer", 161: "cudaMemcpyPeerAsync", 165: "cudaDeviceSynchronize",
    211: "cudaLaunchKernel", 213: "cudaLaunch", 214: "cudaLaunchKernel", 225: "cudaMemcpyAsync",
    235: "cudaMemsetAsync", 239: "cudaStreamSynchronize", 240: "cudaStreamQuery", 242: "cudaEventRecord",
    247: "cudaStreamWaitEvent", 269: "cudaLaunchCooperativeKernel", 270: "cudaLaunchCooperativeKernel",
    272: "cudaLaunchCooperativeKernelMultiDevice", 284: "cudaLaunchHostFunc", 310: "cudaGraphInstantiate",
    311: "cudaGraphLaunch", 312: "cudaGraphLaunch", 430: "cudaLaunchKernelExC", 431: "cudaLaunchKernelExC",
}  # fmt: skip
DRIVER_CALLS = {
    115: "cuLaunch", 116: "cuLaunchGrid", 117: "cuLaunchGridAsync", 119: "cuEventRecord", 120: "cuEventQuery",
    121: "cuEventSynchronize", 125: "cuStreamQuery", 126: "cuStreamSynchronize", 220: "cuMemsetD32Async",
    243: "cuMemAlloc", 245: "cuMemFree", 271: "cuMemHostAlloc", 276: "cuMemcpyHtoD", 277: "cuMemcpyHtoDAsync",
    278: "cuMemcpyDtoH", 279: "cuMemcpyDtoHAsync", 280: "cuMemcpyDtoD", 281: "cuMemcpyDtoDAsync",
    295: "cuStreamWaitEvent", 305: "cuMemcpy", 306: "cuMemcpyAsync", 307: "cuLaunchKernel", 318: "cuMemcpyPeer",
    319: "cuMemcpyPeerAsync", 442: "cuLaunchKernel", 477: "cuLaunchCooperativeKernel",
    478: "cuLaunchCooperativeKernel", 480: "cuLaunchCooperativeKernelMultiDevice", 514: "cuGraphLaunch",
    515: "cuGraphLaunch", 652: "cuLaunchKernelEx", 653: "cuLaunchKernelEx",
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


def short_name(name: str) -> str:
    """A mangled C++ name as its qualified identifier, without template and call arguments; other names as they are.

    Source: the Itanium C++ ABI's <nested-name> and <source-name>: _ZN5Eigen8internal3fooE is Eigen::internal::foo.
    """
    if not name.startswith("_Z"):
        return name
    rest, parts = name[2:].lstrip("LK"), []
    nested = rest.startswith("N")
    rest = rest[1:].lstrip("KV") if nested else rest
    while digits := re.match(r"[1-9]\d*", rest):
        end = digits.end() + int(digits.group())
        part = rest[digits.end() : end]
        parts.append("(anonymous)" if part.startswith("_GLOBAL__N") else part)
        rest = rest[end:]
        if not nested:
            break
    return "::".join(parts) or name
