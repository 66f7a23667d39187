"""Pythons of other environments than this one: where the one of a framework is, and whether it can do what is asked."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

TIMEOUT_S = 120.0
_ASK = "import importlib, importlib.metadata, sys, numpy; print(importlib.metadata.version(sys.argv[1])); "
_ASK += "importlib.import_module(sys.argv[1])"


def variable(name: str) -> str:
    """The environment variable that names the Python of a framework."""
    return f"RNN_SCALING_{name.upper()}_PYTHON"


def path(name: str) -> str:
    """The Python of a framework: what its variable says, else that of the environment beside this (.venv-torch)."""
    prefix = Path(sys.prefix)
    return os.environ.get(variable(name)) or str(
        prefix.with_name(f"{prefix.name}-{name}") / "bin" / "python"
    )


@functools.lru_cache
def problem(name: str, package: str, least: str) -> str:
    """Why a framework cannot be used, in one line with the remedy; empty: it can. Starts its Python, once.

    `least`: the oldest version that will do, as "2.6".
    """
    python = path(name)
    remedy = f"./run.sh setup-frameworks {name} installs it ({variable(name)} names another Python)"
    try:
        asked = subprocess.run(
            [python, "-I", "-c", _ASK, package],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except OSError as e:
        return f"--framework={name} needs {package}: {python}: {e.strerror}; {remedy}"
    except subprocess.TimeoutExpired:
        return f"--framework={name}: {python} does not import {package} within {TIMEOUT_S:g} s; {remedy}"
    version, *_ = [*asked.stdout.split(), ""]
    if version and _numbers(version) < _numbers(least):
        return f"--framework={name} needs {package} {least} or newer, and {python} has {version}; {remedy}"
    if asked.returncode:
        reason = (
            asked.stderr.strip().splitlines()
            or [f"it ended with status {asked.returncode}"]
        )[-1]
        return f"--framework={name}: {python} cannot import {package} ({reason[:200]}); {remedy}"
    return ""


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]
