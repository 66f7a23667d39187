"""Which of our own operators a user may ask for; without TensorFlow, since it is checked before that loads."""

from collections.abc import Collection

SWITCH = "RNN_SCALING_OPERATORS"
"""Environment variable: "off", or an instruction set of the operators (default: the best of the processor)."""
_WIDE = ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq")
NEEDED = {  # instruction set -> what /proc/cpuinfo calls the instructions that its code has
    "avx2": ("avx2", "fma"),
    "avx512": _WIDE,
    "avx512_bf16": (*_WIDE, "avx512_bf16"),
}


def problem(value: str, present: Collection[str]) -> str | None:
    """Why a value of SWITCH cannot be used on a processor with the instructions `present`, or None."""
    if value not in ("", "off", *NEEDED):
        return f"{SWITCH}={value} must be off, {', '.join(NEEDED)}, or unset"
    missing = ", ".join(name for name in NEEDED.get(value, ()) if name not in present)
    rule = f"{SWITCH}={value} needs {missing}, which this processor lacks"
    return (
        f"{rule}; leave it unset to use the best instruction set" if missing else None
    )
