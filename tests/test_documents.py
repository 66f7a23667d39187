"""The documents: their commands, flags and links exist."""

import contextlib
import functools
import io
import re
import runpy
import shlex
import subprocess

import pytest

from rnn_scaling import __main__
from rnn_scaling.commands.table import COMMANDS
from tests.support.paths import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]
DOCUMENTS = [
    path for path in DOCUMENTS if not path.is_relative_to(ROOT / "docs/results")
]
TAKES_TRAINER_FLAGS = {"sweep", "verify", "recommend", "inspect", "local-cluster", "ab"}
PASSED_ON = {"tensorboard"}  # commands whose flags are passed to another program


@functools.cache
def list_flags(command):
    page = io.StringIO()
    with contextlib.redirect_stdout(page):
        assert __main__.main([command, "--help=all"]) == 0
    flags = set(re.findall(r"--(\w+)", page.getvalue()))
    flags |= {"help", "flagfile", "version"}
    return flags | list_flags("train") if command in TAKES_TRAINER_FLAGS else flags


def list_run_commands(text):
    """Return the words of each `./run.sh COMMAND` in fenced blocks and inline code."""
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


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_every_command_and_flag_exists(path):
    for command, *words in list_run_commands(path.read_text()):
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
            for flag in flags - list_flags(command)
            if f"--axis:{flag}=" not in " ".join(words)
        }
        assert not unknown, f"{path.name}: {command} has no {sorted(unknown)}"


CHECK = runpy.run_path(str(ROOT / "tools/docs/check.py"))
GROUPS = CHECK["group_pages"](DOCUMENTS)


@pytest.fixture(scope="module")
def served():
    """Return the socket of a process that runs the suite's commands."""
    with CHECK["start_server"]() as socket:
        yield socket


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group[0][0].name)
def test_a_page_shows_what_its_commands_print(group, served):
    assert CHECK["run_group"](group, served) == []


def test_the_load_of_the_machine_does_not_change_what_a_page_shows():
    quiet = "| 21 | 3 |\n\nwords: all"
    loaded = "| 40† | 3 |\n\n- † corrected; measured: 20 words/s.\n\nwords: all"
    normalized = CHECK["normalize"]
    assert normalized(loaded, True) == normalized(quiet, True)
    assert normalized(loaded) != normalized(quiet)


def test_pages_share_a_run_only_if_all_their_commands_are_equal(tmp_path):
    block = "```bash\n{}\n```\n"
    texts = [block.format("a"), block.format("a") + "more", block.format("a") * 2]
    pages = []
    for number, text in enumerate(texts):
        page = tmp_path / f"{number}.md"
        page.write_text(text)
        pages.append(page)
    groups = CHECK["group_pages"](pages)
    assert [[page for page, _ in group] for group in groups] == [pages[:2], pages[2:]]


@pytest.mark.parametrize(
    "words, status, text",
    [(["report", "none"], 2, "none"), (["predict", "--help"], 0, "--num_devices")],
)
def test_a_served_command_has_the_folder_streams_and_status_of_its_client(
    served, tmp_path, words, status, text
):
    done = subprocess.run(
        [*CHECK["list_program_words"](served), *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == status
    assert text in (done.stderr if status else done.stdout)


def test_a_command_is_skipped_only_with_a_reason():
    block = "./run.sh links   # takes a minute\n./run.sh report a \\\n    --full\n"
    commands = CHECK["list_commands"](block)
    assert [command.reason for command in commands] == ["takes a minute", ""]
    whole = CHECK["list_commands"]("# needs a GPU\na\nb  # exit status 2\n")
    assert [command.reason for command in whole] == ["needs a GPU", "needs a GPU"]
    assert [command.status for command in whole] == [0, 2]


def test_a_wrong_output_is_a_fault():
    difference = CHECK["compare_output"]
    printed = "| a |\n|---|\n| 1 ± 2 |\n\nlong sentence\nlast\n"
    shown = "| a |\n|-------|\n| 1 ± 2 |\n...\nsentence last\n"
    assert difference(shown, printed) == ""
    assert difference("...\nlast", printed) == ""
    for wrong in ("| b |\n...\n", "...\n| 2 ± 2 |\n...\n", "| a |\n"):
        assert difference(wrong, printed)
    assert difference("...\n| 7 [6, 8.1] |\n...\n", printed, numbers_vary=True) == ""


def test_a_failing_command_and_a_wrong_output_are_faults(tmp_path):
    step_of = CHECK["list_steps"]
    block = "```bash\necho a; false{}\n```\n\n```text\n{}\n```\n"
    for comment, shown, is_right in [
        ("  # exit status 1", "a", True),
        ("  # exit status 1", "b", False),
        ("", "a", False),
    ]:
        [step] = step_of(block.format(comment, shown))
        done = CHECK["run_script"](step, tmp_path)
        assert (CHECK["find_fault"](step, done) == "") == is_right


LINKS = runpy.run_path(str(ROOT / "tools/docs/links.py"))


def test_every_link_leads_somewhere(capsys):
    assert LINKS["main"]() == 0, capsys.readouterr().err


def test_a_broken_link_or_path_is_a_fault():
    find_fault = LINKS["link_fault"]
    find_missing = LINKS["list_missing_paths"]
    readme = ROOT / "README.md"
    for link in ("docs/none.md", "#none", "docs/sweeps.md#none", "docs/none.png"):
        assert link in find_fault(readme, link)
    assert find_fault(readme, "docs/sweeps.md#files") == ""
    for name in (
        "`rnn_scaling/none.py`",
        "`analysis/none.py`",
        "python -m benchmarks.none",
    ):
        assert len(find_missing(name)) == 1
    present = (
        "`analysis/metrics.py`, `rnn_scaling/data/NAME.py`, python -m benchmarks.gate"
    )
    assert find_missing(present) == []


SOURCE_FOLDERS = ("rnn_scaling", "models", "tests", "tools", "benchmarks")


def read_sources(ending):
    """Return the texts of the source files whose path ends with some words."""
    texts = []
    for folder in SOURCE_FOLDERS:
        for path in (ROOT / folder).rglob(ending.rpartition("/")[2]):
            if path.as_posix().endswith(f"/{ending}"):
                texts.append(path.read_text())
    return texts


def test_every_name_that_a_document_places_in_a_file_is_there():
    placed = re.compile(r"`([A-Za-z_]\w*)`(?: in| of|,) `([\w/]+\.(?:py|h|c))`")
    pairs = set()
    for path in DOCUMENTS:
        pairs.update(placed.findall(path.read_text()))
    missing = []
    for name, file in sorted(pairs):
        is_name = re.compile(rf"\b{name}\b")
        if not any(map(is_name.search, read_sources(file))):
            missing.append(f"{name} in {file}")
    assert len(pairs) > 10
    assert not missing
