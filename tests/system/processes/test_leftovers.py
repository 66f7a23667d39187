"""Processes that a run left behind, by a folder like /proc and by a real one."""

import os
import subprocess
from pathlib import Path

import pytest

from rnn_scaling.system.processes import alive
from tests.support.faults import wait_until


def test_it_is_those_that_have_the_variable_and_still_run(tmp_path, monkeypatch):
    monkeypatch.setattr(alive, "DYING_S", 0.0)
    for name, environ in (
        ("12", b"A=1\0FILE=x\0"),
        ("13", b"FILE=xy\0"),
        ("14", b""),
        (str(os.getpid()), b"FILE=x\0"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "environ").write_bytes(environ)
        (tmp_path / name / "cmdline").write_bytes(b"python\0a b.py\0")
    (tmp_path / "15").mkdir()
    assert alive.find_leftovers("FILE=x", tmp_path) == ["12 (python 'a b.py')"]


@pytest.mark.skipif(not os.path.exists("/proc/self/environ"), reason="not Linux")
def test_a_process_in_a_session_of_its_own_is_found():
    daemon = subprocess.Popen(
        ["sleep", "60"], env={"LEFT_BY": str(os.getpid())}, start_new_session=True
    )
    try:
        environ = Path(f"/proc/{daemon.pid}/environ")
        wait_until(
            environ.read_bytes, "the environment of the process"
        )  # Popen may return before the kernel sets it
        assert alive.find_leftovers(f"LEFT_BY={os.getpid()}") == [
            f"{daemon.pid} (sleep 60)"
        ]
    finally:
        daemon.kill()
        daemon.wait()
    assert alive.find_leftovers(f"LEFT_BY={os.getpid()}") == []
