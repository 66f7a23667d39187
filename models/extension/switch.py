"""Which of our own operators a user may ask for; without TensorFlow, since it is checked before that loads."""

from collections.abc import Collection

SWITCH = "RNN_SCALING_OPERATORS"
"""Environment variable: "off", or an instruction set of the operators (default: the best of the processor)."""
NEEDED = {  # instruction set -> what /proc/cpuinfo calls the instructions that its code has
    "avx2": ("avx2", "fma"),
    "avx512": ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq"),
    "avx512_bf16": ("avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16"),
}


def problem(value: str, present: Collection[str]) -> str | None:
    """Why a value of SWITCH cannot be used on a processor with the instructions `present`, or None."""
    if value in ("", "off"):
        return None
    rule = f"{SWITCH}={value} must be off, {', '.join(NEEDED)}, or unset"
    if value not in NEEDED:
        return rule
    missing = [name for name in NEEDED[value] if name not in present]
    remedy = f"leave {SWITCH} unset to use the best instruction set"
    return f"{SWITCH}={value} needs {', '.join(missing)}, which this processor lacks; {remedy}" if missing else None
