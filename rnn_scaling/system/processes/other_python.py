"""Find the Python of a framework, and check whether it can import the framework.

`conflicts` asks for problems before a run, and `frameworks.starting` for the program.
"""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 120.0
_PROGRAM = "import importlib, importlib.metadata, sys, numpy; print(importlib.metadata.version(sys.argv[1])); "
_PROGRAM += "importlib.import_module(sys.argv[1])"


def _name_variable(name: str) -> str:
    """Return the environment variable that names the Python of a framework."""
    return f"RNN_SCALING_{name.upper()}_PYTHON"


def find_python(name: str) -> str:
    """Return the Python of a framework.

    It is set by a variable; the default is an environment next to this one
    (.venv-torch).
    """
    prefix = Path(sys.prefix)
    environment = prefix.with_name(f"{prefix.name}-{name}")
    return os.environ.get(_name_variable(name)) or str(environment / "bin" / "python")


@functools.lru_cache
def find_problem(name: str, package: str, min_version: str) -> str:
    """Return why a framework cannot be used, with the remedy, or "" if it can.

    Starts its Python, once.

    Args:
      name: The framework.
      package: Its package.
      min_version: The oldest supported version, such as "2.6".
    """
    python = find_python(name)
    remedy = f"./run.sh setup-frameworks {name} installs it ({_name_variable(name)} names another Python)"
    try:
        done = subprocess.run(
            [python, "-I", "-c", _PROGRAM, package],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except OSError as e:
        return f"--framework={name} needs {package}: {python}: {e.strerror}; {remedy}"
    except subprocess.TimeoutExpired:
        return f"--framework={name}: {python} does not import {package} within {TIMEOUT_S:g} s; {remedy}"
    version, *_ = [*done.stdout.split(), ""]
    if version and _parse_numbers(version) < _parse_numbers(min_version):
        return f"--framework={name} needs {package} {min_version} or newer, but {python} has {version}; {remedy}"
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        reason = lines[-1] if lines else f"it ended with status {done.returncode}"
        return f"--framework={name}: {python} cannot import {package} ({reason[:200]}); {remedy}"
    return ""


def _parse_numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
