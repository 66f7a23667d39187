"""Python code in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from tests.support.paths import ROOT


def python(
    code: str, *words: object, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run code with arguments in the project's folder; return its output as text."""
    command = [sys.executable, "-c", code, *map(str, words)]
    given = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 60}
    return subprocess.run(command, **{**given, **options})
