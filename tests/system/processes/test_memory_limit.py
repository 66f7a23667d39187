"""Memory limits apply to the memory that a program uses, not to reserved memory."""

import subprocess
import sys

from rnn_scaling.system.processes import parent_death_launcher

LIMIT = 100 << 20
RESERVES = f"import mmap; held = mmap.mmap(-1, {2 * LIMIT}, flags=mmap.MAP_PRIVATE); print('done')"
USES = f"import time; held = b'x' * {2 * LIMIT}; time.sleep(60)"
ASKS_FOR_MUCH = f"held = b'x' * {10 * LIMIT}"


def run(program):
    limited = [
        sys.executable,
        "-I",
        parent_death_launcher.__file__,
        "0",
        f"{parent_death_launcher.BYTES}{LIMIT}",
    ]
    return subprocess.run(
        [*limited, sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_memory_in_use_counts_and_reserved_memory_does_not():
    reserves, uses = run(RESERVES), run(USES)
    assert (reserves.returncode, reserves.stdout) == (0, "done\n"), reserves.stderr
    assert uses.returncode == -9 and parent_death_launcher.KILLED in uses.stderr
    # A huge allocation fails before it exhausts the machine's memory.
    assert "MemoryError" in run(ASKS_FOR_MUCH).stderr
