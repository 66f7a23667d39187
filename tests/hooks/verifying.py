"""Verify a script of another framework as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rnn_scaling.system.processes import other_python
from tests.support.paths import ROOT


def verify(folder: Path, framework: str, text: str) -> subprocess.CompletedProcess[str]:
    """Verify a script for three steps; certificate.json has the verdict."""
    (folder / "my.py").write_text(text)
    command = [
        *(sys.executable, "-m", "rnn_scaling", "verify"),
        f"--trainer={other_python.find_python(framework)} my.py",
        f"--framework={framework}",
        "--num_steps=3",
        "--result_file=certificate.json",
    ]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
