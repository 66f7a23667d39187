"""The documents: their commands, flags and links exist."""

from __future__ import annotations

import functools
import importlib
import re
import runpy
import shlex
import shutil
import subprocess
import sys

import pytest

from rnn_scaling.commands import report
from rnn_scaling.commands.table import COMMANDS
from tests.support.paths import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
DOCUMENTS = [
    path for path in DOCUMENTS if not path.is_relative_to(ROOT / "docs" / "results")
]
TAKES_TRAINER_FLAGS = {
    "sweep",
    "verify",
    "recommend",
    "inspect",
    "local-cluster",
    "ab",
}
NUMBER = r"\d[\d.,]*"
PASSED_ON = {"tensorboard"}  # its flags are TensorBoard's


@functools.cache
def flags_of(command: str) -> set[str]:
    words = [sys.executable, "-m", "rnn_scaling", command, "--help=all"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    flags = set(re.findall(r"--(\w+)", done.stdout)) | {"help", "flagfile", "version"}
    return flags | flags_of("train") if command in TAKES_TRAINER_FLAGS else flags


def commands_of(text: str) -> list[list[str]]:
    """The words of every `./run.sh COMMAND ...` in fenced blocks and in inline code."""
    blocks = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)).replace(
        "\\\n", " "
    )
    lines = [line for line in blocks.splitlines() if "sh -c" not in line] + re.findall(
        r"`(\./run\.sh [^`]*)`", text.replace("\n", " ")
    )
    found = [re.search(r"\./run\.sh ([a-z_-]+.*)", line) for line in lines]
    return [
        shlex.split(match[1].replace("...", ""), comments=True)
        for match in found
        if match
    ]


def tables(text: str) -> list[str]:
    return [
        re.sub(" +", " ", line) for line in text.splitlines() if line.startswith("|")
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_and_flag_exists(path):
    for command, *words in commands_of(path.read_text()):
        if command not in COMMANDS or command in PASSED_ON:
            assert (
                f" {command} " in (ROOT / "run.sh").read_text() or command in PASSED_ON
            ), command
            continue
        flags = {
            re.match(r"--(\w+)", word)[1] for word in words if re.match(r"--\w", word)
        }
        unknown = {
            flag
            for flag in flags - flags_of(command)
            if f"--axis:{flag}=" not in " ".join(words)
        }
        assert not unknown, f"{path.name}: {command} has no {sorted(unknown)}"


def test_the_readme_shows_what_its_command_prints(tmp_path, capsys):
    shutil.copytree(ROOT / "docs" / "results" / "default", tmp_path / "default")
    assert report.main([str(tmp_path / "default")]) == 0
    printed = re.sub(r" +", " ", capsys.readouterr().out)
    table = re.search(
        r"\n\n(\| .*?)\n\n", (ROOT / "README.md").read_text(), flags=re.DOTALL
    )[1].splitlines()
    assert len(table) == 8 and all(
        re.sub(r" +", " ", row) in printed for row in (table[0], *table[2:])
    )


@pytest.mark.parametrize(
    "heading", ["# Predict more", "## Which change", "## Simulate thousands"]
)
def test_the_first_example_shows_what_its_command_prints(
    heading, tmp_path, capsys, monkeypatch
):
    example = (ROOT / "docs" / "predict.md").read_text()
    shown = example[example.index(heading) :]
    (tmp_path / "RESULTS.md").write_text(
        re.search(r"```text\n(# .*?)```", example, flags=re.DOTALL)[1]
    )
    monkeypatch.chdir(tmp_path)
    command, *words = commands_of(shown)[0]
    assert importlib.import_module(f"rnn_scaling.commands.{command}").main(words) == 0
    output_block = re.search(r"```bash.*", shown, flags=re.DOTALL)[0].split("```")[3]
    before, printed = tables(output_block), tables(capsys.readouterr().out)
    assert len(before) > 4 and printed[:2] == before[:2]
    for row, kept in zip(printed[2:], before[2:], strict=True):
        assert re.sub(NUMBER, "", row) == re.sub(NUMBER, "", kept)
        numbers = [
            [float(x) for x in re.findall(NUMBER, text.replace(",", ""))]
            for text in (row, kept)
        ]
        assert numbers[0] == pytest.approx(numbers[1], rel=0.05)


LINKS = runpy.run_path(str(ROOT / "tools" / "docs" / "links.py"))


def test_every_link_leads_somewhere(capsys):
    assert LINKS["main"]() == 0, capsys.readouterr().err


def test_a_broken_link_or_path_is_a_fault():
    fault, missing = LINKS["fault"], LINKS["missing_paths"]
    readme = ROOT / "README.md"
    for link in ("docs/none.md", "#none", "docs/sweeps.md#none", "docs/none.png"):
        assert link in fault(readme, link)
    assert fault(readme, "docs/sweeps.md#files") == ""
    for name in (
        "`rnn_scaling/none.py`",
        "`analysis/none.py`",
        "python -m benchmarks.none",
    ):
        assert len(missing(name)) == 1
    present = (
        "`analysis/metrics.py`, `rnn_scaling/data/NAME.py`, python -m benchmarks.gate"
    )
    assert missing(present) == []
