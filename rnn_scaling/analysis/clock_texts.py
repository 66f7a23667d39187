"""The words for GPUs that are unequal or slow, which runs print and reports repeat.

It is in `analysis`, not in `reports`, because a run prints the same words.
"""

from collections.abc import Sequence

from rnn_scaling.analysis.clocks import ClockCaution, ClockDifference, Throttling

_REMEDY = (
    "every step waits for the slowest GPU; `nvidia-smi -q -d CLOCK,POWER` "
    "shows the settings"
)
# Field -> title, unit and verb.
_QUANTITIES = {
    "sm_mhz": ("SM clock", "MHz", "ran at"),
    "memory_mhz": ("memory clock", "MHz", "ran at"),
    "max_sm_mhz": ("highest SM clock", "MHz", "with"),
    "max_memory_mhz": ("highest memory clock", "MHz", "with"),
    "power_limit_w": ("power limit", "W", "with"),
}


def format_caution(caution: ClockCaution) -> str:
    """Return a sentence about GPUs, without its full stop."""
    if isinstance(caution, Throttling):
        return _throttling_text(caution)
    return _difference_text(caution)


def _difference_text(difference: ClockDifference) -> str:
    title, unit, verb = _QUANTITIES[difference.field]
    (lowest, lowest_gpus), *higher = difference.levels
    texts = []
    for value, gpus in higher:
        excess = f"{value / lowest - 1:+.1%}"
        texts.append(f"{_gpus_text(gpus)} {verb} {value:g} {unit} ({excess})")
    return (
        f"{_gpus_text(lowest_gpus)} ({difference.name}) {verb} a {title} of {lowest:g}"
        f" {unit}, {', '.join(texts)}: {_REMEDY}"
    )


def _throttling_text(throttling: Throttling) -> str:
    shares = [share for _, share in throttling.shares]
    low = f"{100 * min(shares):.0f}"
    high = f"{100 * max(shares):.0f}"
    percent = high if low == high else f"{low} to {high}"
    gpus = _gpus_text([gpu for gpu, _ in throttling.shares])
    return (
        f"{gpus}: the driver reduced the clocks in {percent} % of the samples "
        f"under load: {throttling.reason}"
    )


def _gpus_text(gpus: Sequence[int]) -> str:
    noun = "GPU" if len(gpus) == 1 else "GPUs"
    return f"{noun} {', '.join(map(str, gpus))}"
