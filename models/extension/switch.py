"""The instruction sets of this project's CPU operators, and which of them a user may ask for.

Without TensorFlow, because RNN_SCALING_OPERATORS is checked before it loads.
"""

from collections.abc import Collection
from pathlib import Path

SWITCH = "RNN_SCALING_OPERATORS"
"""Environment variable: "off", or an instruction set (default: the processor's best)."""
_WIDE = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq")
# Instruction set -> the names in /proc/cpuinfo of the instructions in its code.
NEEDED = {
    "avx2": ("avx2", "fma"),
    "avx512": _WIDE,
    "avx512_bf16": (*_WIDE, "avx512_bf16"),
}


def find_problem(value: str, present: Collection[str]) -> str | None:
    """Return why a value of SWITCH cannot be used, or None if it can.

    Args:
      value: The value of the environment variable.
      present: The processor's instructions, as named in /proc/cpuinfo.
    """
    if value not in ("", "off", *NEEDED):
        return f"{SWITCH}={value} must be off, {', '.join(NEEDED)}, or unset"
    missing = [name for name in NEEDED.get(value, ()) if name not in present]
    if not missing:
        return None
    return (
        f"{SWITCH}={value} needs {', '.join(missing)}, which this processor lacks; "
        "leave it unset to use the best instruction set"
    )


def list_supported_sets(present: Collection[str]) -> list[str]:
    """Return the instruction sets that a processor can run, the best one last."""
    return [name for name, needed in NEEDED.items() if set(needed) <= set(present)]


def read_processor_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    """Return the instructions of this processor; empty if they cannot be read."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return []
    for line in text.splitlines():
        name, _, instructions = line.partition(":")
        if name.strip() == "flags":
            return instructions.split()
    return []
