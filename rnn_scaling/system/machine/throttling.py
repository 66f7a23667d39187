"""The reasons why a GPU lowers its clocks: bits of its mask, with names of nvidia-smi.

Source: nvml.h, group nvmlClocksEventReasons ("throttle reasons" until driver 535).

`gpus` queries the mask, and reports and facts read it with `parse`.
"""

IDLE_BIT = 0x1  # set on an idle GPU; it is not a reason for slow steps
REASONS = {
    0x2: "applications clocks setting",
    0x4: "SW power cap",
    0x8: "HW slowdown",
    0x10: "sync boost",
    0x20: "SW thermal slowdown",
    0x40: "HW thermal slowdown",
    0x80: "HW power brake slowdown",
    0x100: "display clock setting",
    0x200: "board limit",
    0x400: "reliability",
}
# nvidia-smi's field, and its name since driver 535; records have the first.
FIELD = "clocks_throttle_reasons.active"
NEW_FIELD = "clocks_event_reasons.active"


def parse(cell: str) -> int | None:
    """Parse a mask of nvidia-smi ("0x0000000000000004"); None for "[N/A]"."""
    try:
        return int(cell, 16)
    except ValueError:
        return None
