"""What the system's files and programs say; nothing where they are missing."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path


def cpuinfo_values(cpuinfo: str, field: str) -> list[str]:
    return re.findall(rf"^{field}\s*: *(.*?) *$", cpuinfo, re.MULTILINE)


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def read_first_line(path: str) -> str | None:
    return next(iter(read_text(path).splitlines()), None)


def run_command(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
