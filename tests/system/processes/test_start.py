"""A user's own program finds its own modules and the caller's environment, however the suite is started."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.users_program import UsersFolder


@pytest.fixture
def users(tmp_path):
    return UsersFolder(tmp_path / "work")


@pytest.fixture
def run_sh(tmp_path):
    """Return the run.sh of a clone that shares the environment of the tests."""
    clone = tmp_path / "a clone"
    clone.mkdir()
    for path in ROOT.iterdir():
        if not path.name.startswith(".venv"):
            (clone / path.name).symlink_to(path)
    (clone / "run.sh").unlink()
    shutil.copy(ROOT / "run.sh", clone)
    venv = clone / ".venv"
    venv.mkdir()
    (venv / "bin").symlink_to(Path(sys.prefix, "bin"))
    for name in ("lib", "pyvenv.cfg"):
        (venv / name).symlink_to(Path(sys.prefix, name))
    files = [
        ROOT / name
        for name in (
            "requirements.txt",
            "requirements-dev.txt",
            "requirements-mlperf.txt",
            "constraints.txt",
        )
    ]
    version = subprocess.run(
        [sys.executable, "--version"], capture_output=True, text=True
    ).stdout
    (venv / ".installed").write_text(
        "".join(file.read_text() for file in files) + version.strip()
    )
    return clone / "run.sh"


def test_by_run_sh(users, run_sh):
    os.makedirs(users.folder / "here")
    users.lookalike("numpy", "types", "rnn_scaling", "profile")
    for name in ("train.py", "helper.py", "models"):
        (users.folder / name).rename(users.folder / "here" / name)
    assert (
        users.run([run_sh], "sweep", "here/train.py", PYTHONPATH="", PYTHONSAFEPATH="")
        == {}
    )


def test_by_the_name_of_the_package(users):
    users.lookalike("numpy", "profile")
    command = [sys.executable, "-m", "rnn_scaling"]
    assert users.run(command, "sweep", "-m my_package", PYTHONPATH=str(ROOT)) == {}
