"""action.yml: its syntax, its commands and flags, and its exit statuses."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from rnn_scaling.commands.table import COMMANDS
from tests.support.paths import ROOT
from tests.test_documents import flags_of

yaml = pytest.importorskip("yaml")
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
[STEP] = ACTION["runs"]["steps"]


def test_commands_and_flags_exist():
    lines = STEP["run"].replace("\\\n", " ").splitlines()
    called = [
        match for line in lines if (match := re.search(r'run\.sh"? (\w+) (.*)', line))
    ]
    assert len(called) >= 3
    for match in called:
        assert match[1] in COMMANDS
        assert set(re.findall(r"--(\w+)=", match[2])) <= flags_of(match[1])


def test_every_input_is_used():
    used = {
        text
        for value in STEP["env"].values()
        for text in re.findall(r"inputs\.(\w+)", value)
    }
    assert used == ACTION["inputs"].keys()
    assert set(re.findall(r"\$\{?(\w+)", STEP["run"])) >= STEP["env"].keys()


@pytest.mark.parametrize(
    ("check", "unsure", "results", "status"),
    [
        (0, "false", "", 0),
        (1, "false", "mine", 1),
        (2, "false", "", 0),
        (2, "true", "mine", 2),
    ],
)
def test_exit_status_of_the_action(check, unsure, results, status, tmp_path):
    suite = tmp_path / "run.sh"
    suite.write_text(
        f'#!/bin/bash\necho "$@" >> {tmp_path}/calls\n[ "$2" = check ] && echo "**said**" && exit {check}\nexit 0\n'
    )
    suite.chmod(0o755)
    named = {
        "SUITE": tmp_path,
        "FLAGS": "--num_devices=1 --repeats=2",
        "RESULTS": results,
        "HISTORY": "h",
    }
    named |= {"MAX_REGRESSION": "5%", "FAIL_IF_UNSURE": unsure, "RUNNER_TEMP": tmp_path}
    named |= {
        "GITHUB_STEP_SUMMARY": tmp_path / "summary",
        "GITHUB_OUTPUT": tmp_path / "output",
    }
    environment = {**os.environ, **{name: str(value) for name, value in named.items()}}
    done = subprocess.run(
        ["bash", "-c", STEP["run"]], env=environment, capture_output=True, text=True
    )
    assert done.returncode == status, done.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    assert (
        [call.split()[0] for call in calls] == ["history"] * 2
        if results
        else ["sweep", "history", "history"]
    )
    assert (tmp_path / "summary").read_text() == "**said**\n"
    assert (tmp_path / "output").read_text() == f"status={check}\n"
