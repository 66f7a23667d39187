"""action.yml: its syntax, its commands and flags, and its exit statuses."""

import os
import re
import subprocess

import pytest

from rnn_scaling.commands.table import COMMANDS
from tests.support.paths import ROOT
from tests.test_documents import list_flags

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
        assert set(re.findall(r"--(\w+)=", match[2])) <= list_flags(match[1])


def test_every_input_is_used():
    used = {
        text
        for value in STEP["env"].values()
        for text in re.findall(r"inputs\.(\w+)", value)
    }
    assert used == ACTION["inputs"].keys()
    assert set(re.findall(r"\$\{?(\w+)", STEP["run"])) >= STEP["env"].keys()


def run_action(tmp_path, results="", unsure="false", gate="false", **statuses):
    """Run the step with a suite whose commands end with the given statuses.

    Returns:
      The exit status, the status output, and the called commands.
    """
    suite = tmp_path / "run.sh"
    lines = ["#!/bin/bash", f'echo "$@" >> {tmp_path}/calls', 'echo "**said**"']
    for command, status in statuses.items():
        lines.append(f'[[ "$1 $2" == {command.replace("_", "?")}* ]] && exit {status}')
    suite.write_text("\n".join([*lines, "exit 0", ""]))
    suite.chmod(0o755)
    variables = {
        "SUITE": tmp_path,
        "FLAGS": "--num_devices=1 --repeats=2",
        "RESULTS": results,
        "HISTORY": "h",
        "MAX_REGRESSION": "5%",
        "FAIL_IF_UNSURE": unsure,
        "AA_GATE": gate,
        "RUNNER_TEMP": tmp_path,
        "GITHUB_STEP_SUMMARY": tmp_path / "summary",
        "GITHUB_OUTPUT": tmp_path / "output",
    }
    texts = {name: str(value) for name, value in variables.items()}
    done = subprocess.run(
        ["bash", "-c", STEP["run"]],
        env={**os.environ, **texts},
        capture_output=True,
        text=True,
    )
    calls = [call.split()[0] for call in (tmp_path / "calls").read_text().splitlines()]
    return done.returncode, (tmp_path / "output").read_text(), calls


@pytest.mark.parametrize(
    "check, unsure, status",
    [(0, "false", 0), (1, "false", 1), (2, "false", 0), (2, "true", 2)],
)
@pytest.mark.parametrize("results", ["", "mine"])
def test_the_check_decides_the_status(check, unsure, status, results, tmp_path):
    done = run_action(tmp_path, results, unsure, history_check=check)
    calls = ["history", "history"] if results else ["sweep", "history", "history"]
    assert done == (status, f"status={check}\n", calls)
    assert (tmp_path / "summary").read_text() == "**said**\n"


@pytest.mark.parametrize("compared", [1, 2])
def test_a_noisy_machine_is_inconclusive(compared, tmp_path):
    done = run_action(tmp_path, gate="true", compare=compared)
    calls = ["sweep", "history", "sweep", "compare"]
    assert done == (3, "status=3\n", calls)


def test_two_equal_measurements_pass_the_gate(tmp_path):
    done = run_action(tmp_path, gate="true", history_check=1)
    assert done[0] == 1
    assert done[2] == ["sweep", "history", "sweep", "compare", "history"]


def test_results_of_the_user_are_not_measured_again(tmp_path):
    assert run_action(tmp_path, "mine", gate="true")[2] == ["history", "history"]


def test_a_sweep_that_measured_nothing_has_its_own_status(tmp_path):
    done = run_action(tmp_path, sweep=1, history_add=2)
    assert done == (4, "status=4\n", ["sweep", "history"])
