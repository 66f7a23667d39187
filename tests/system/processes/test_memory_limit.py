"""A program is held to the memory that it uses, not to what it reserves."""

from __future__ import annotations

import subprocess
import sys

from rnn_scaling.system.processes import tether

LIMIT = 100 << 20
RESERVES = f"import mmap; held = mmap.mmap(-1, {2 * LIMIT}, flags=mmap.MAP_PRIVATE); print('done')"
USES = f"import time; held = b'x' * {2 * LIMIT}; time.sleep(60)"
ASKS_FOR_MUCH = f"held = b'x' * {10 * LIMIT}"


def run(program: str) -> subprocess.CompletedProcess[str]:
    limited = [sys.executable, "-I", tether.__file__, "0", f"{tether.BYTES}{LIMIT}"]
    return subprocess.run(
        [*limited, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_memory_in_use_counts_and_reserved_memory_does_not():
    reserves, uses = run(RESERVES), run(USES)
    assert (reserves.returncode, reserves.stdout) == (0, "done\n"), reserves.stderr
    assert uses.returncode == -9 and tether.KILLED in uses.stderr
    assert (
        "MemoryError" in run(ASKS_FOR_MUCH).stderr
    )  # before it has taken the machine's
