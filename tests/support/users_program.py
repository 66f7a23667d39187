"""A folder with a user's own programs, and what their environment was."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# Saves the environment at the start of the process, before Python adds to it.
PROGRAM = """import helper, models
from pathlib import Path
Path(__file__).with_name("environment").write_bytes(Path("/proc/self/environ").read_bytes())
print("words/s:", helper.RATE)
"""
DOCUMENTED = {
    "PYTHONUNBUFFERED",
    "RNN_SCALING_PROGRESS",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
}
DOCUMENTED |= {
    f"RNN_SCALING_{name}" for name in ("RESULT_FILE", "NUM_DEVICES", "REPEAT")
}


class UsersFolder:
    """`folder` has my_package, train.py with a sibling helper.py, and a package models."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, text in {
            "train.py": PROGRAM,
            "helper.py": "RATE = 1000\n",
            "models/__init__.py": "",
            "my_package/__init__.py": "",
            "my_package/__main__.py": PROGRAM,
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def lookalike(self, *names: str) -> None:
        """Add modules that fail when they are imported."""
        for name in names:
            (self.folder / f"{name}.py").write_text(
                "raise RuntimeError('of the caller')\n"
            )

    def run(
        self,
        start: Sequence[object],
        command: str,
        program: str,
        words: Sequence[str] = (),
        **variables: str,
    ) -> dict[str, str]:
        """Run `program` with a command of the suite; return its changed variables.

        These are the environment variables that differ from the caller's environment.
        """
        # A locale for which Python adds LC_CTYPE, and names that a shell script may use for itself.
        given = {name: os.environ[name] for name in ("PATH", "HOME")} | {
            "PWD": str(self.folder),
            "SHLVL": "1",
        }
        given |= {
            "LANG": "C",
            "bin": "mine",
            "command": "mine",
            "PYTHON": sys.executable,
            # run.sh would test the operators of a new checkout for seconds.
            "RNN_SCALING_OPERATORS": "off",
            **variables,
        }
        line = [
            *start,
            command,
            f"--trainer={sys.executable} {program}",
            "--repeats=1",
            *words,
        ]
        pattern = r"--log_format=regex:words/s: (?P<rate>\d+)"
        done = subprocess.run(
            [*map(str, line), pattern, "--num_devices=1", "--device=cpu"],
            cwd=self.folder, env=given, capture_output=True, text=True, timeout=200,
        )  # fmt: skip
        assert "1,000" in done.stdout, done.stderr
        [dump] = self.folder.rglob("environment")
        got = dict(line.split("=", 1) for line in dump.read_text().split("\0") if line)
        assert DOCUMENTED - {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"} <= got.keys()
        return {
            name: f"{given.get(name)} -> {got.get(name)}"
            for name in {*given, *got} - DOCUMENTED - {"_"}
            if given.get(name) != got.get(name)
        }
