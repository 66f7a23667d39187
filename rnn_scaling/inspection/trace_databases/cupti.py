"""CUPTI's numbers in words: kinds of copies and of memory, and short names of C++ kernels.

Sources: CUPTI's cupti_activity.h (CUpti_ActivityMemcpyKind, CUpti_ActivityMemoryKind);
https://docs.nvidia.com/cupti/api/.
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
_COMMUNICATION = re.compile(r"(?:void\s+)?(?:\w+::)*(?:nccl|rccl|msccl|nvshmem)", re.IGNORECASE)
PEER_TO_PEER = 10  # of COPY_KINDS


@functools.lru_cache(20_000)
def is_communication(name: str) -> bool:
    """Whether a kernel carries data between devices: those of NCCL and RCCL, of MSCCL and of NVSHMEM."""
    return _COMMUNICATION.match(name) is not None


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
