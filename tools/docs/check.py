"""Run the commands of the documents and compare their output with the output shown.

    python tools/docs/check.py [PAGE.md ...]   exit status 1 if anything differs
    python tools/docs/check.py --list          print the commands that are not run

Comments in a ```bash block control the check. On the first line they apply to the whole
block:

    # takes 3 minutes         not run; so is "# needs a GPU"
    # numbers vary            only the words and the layout are compared, not digits
    # exit status 1           the status that the command must have; errors are compared

A ```text block or a quotation that follows is the output of the block. Lines of "..."
stand for any output. If the sentence before another block ends with "`NAME`:", the
block is written to the file NAME. Each page is checked in a folder of its own, with a
copy of the folders of docs/results that its commands name.

Commands of the suite run in forks of one process (served.py). Pages that run the same
commands share one run.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"(?:^|\s)#\s(.*)$")
NOT_RUN = re.compile(r"\b(?:takes|needs) .*")
STATUS = re.compile(r"(?<=exit status )\d+")
FILE_NAME = re.compile(r"`([\w./-]+)`:\s*\Z")
RESULT_FOLDER = re.compile(r"docs/results/[\w-]+")
LEFT_OUT = "..."
LIMIT_S = 300  # for one block, on a busy machine
NUMBER = r"-?\d[\d,.]*(?:e[+-]\d+)?"
INTERVAL = re.compile(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]|{NUMBER} ± {NUMBER}|{NUMBER}")
SERVED = ROOT / "tools" / "docs" / "served.py"
LINKED = (".venv", "benchmarks", "models", "rnn_scaling", "tests", "tools")


@dataclasses.dataclass(frozen=True)
class Command:
    """One command of a ```bash block."""

    text: str
    reason: str  # why it is not run, or empty
    status: int  # the exit status that it must have


@dataclasses.dataclass(frozen=True)
class Step:
    """A block of a page: a file to write, or commands with the output shown."""

    line: int
    file_name: str = ""
    content: str = ""
    commands: tuple[Command, ...] = ()
    shown: str | None = None
    numbers_vary: bool = False

    @property
    def runs(self) -> bool:
        """Whether at least one command is run."""
        return any(not command.reason for command in self.commands)


def list_documents() -> list[Path]:
    """Return README.md and the pages of docs/, without generated results."""
    pages = sorted((ROOT / "docs").glob("**/*.md"))
    results = ROOT / "docs" / "results"
    pages = [page for page in pages if not page.is_relative_to(results)]
    return [ROOT / "README.md", *pages]


def list_comments(text: str) -> list[str]:
    """Return the comments of a command."""
    found = [COMMENT.search(line) for line in text.splitlines()]
    return [match[1] for match in found if match]


def find_first_match(pattern: re.Pattern[str], comments: list[str]) -> str:
    """Return what a pattern finds first in comments, or an empty string."""
    for comment in comments:
        match = pattern.search(comment)
        if match:
            return match[0]
    return ""


def split_commands(script: str) -> list[str]:
    """Split a script into commands, each with its continuation lines."""
    commands = []
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if line.endswith("\\") or not _is_complete(pending):
            continue
        if pending.strip():
            commands.append(pending.rstrip("\n"))
        pending = ""
    return commands


def _is_complete(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return True


def list_commands(script: str) -> tuple[Command, ...]:
    """Return the commands of a block, with the reasons in their comments."""
    texts = split_commands(script)
    first_line = ""
    if texts and texts[0].startswith("#"):
        first_line = texts.pop(0)
    commands = []
    for text in texts:
        comments = list_comments(first_line) + list_comments(text)
        status = find_first_match(STATUS, comments)
        commands.append(
            Command(text, find_first_match(NOT_RUN, comments), int(status or 0))
        )
    return tuple(commands)


def find_output_after(text: str) -> str | None:
    """Return the output that a document shows directly after a block, or None."""
    quotation = re.match(r"\s*((?:^>.*\n)+)", text, flags=re.MULTILINE)
    if quotation:
        return re.sub(r"^> ?", "", quotation[1], flags=re.MULTILINE)
    block = BLOCK.match(text.lstrip())
    return block[2] if block and block[1] == "text" else None


def list_steps(text: str) -> list[Step]:
    """Return the files and commands of a page, in order."""
    steps = []
    for block in BLOCK.finditer(text):
        language, content = block.groups()
        line = text.count("\n", 0, block.start()) + 1
        name = FILE_NAME.search(text[: block.start()])
        if language == "bash":
            steps.append(
                Step(
                    line,
                    commands=list_commands(content),
                    shown=find_output_after(text[block.end() :]),
                    numbers_vary="# numbers vary" in content,
                )
            )
        elif name:
            steps.append(Step(line, file_name=name[1], content=content))
    return steps


def normalize(text: str, numbers_vary: bool = False) -> str:
    """Return the words of an output, whatever its line breaks and column widths are."""
    text = re.sub(r"-{3,}", "---", text)
    if numbers_vary:
        # A busy machine marks rates, and explains the marks in lines below the table.
        text = re.sub(r"^- [†‡] .*\n", "", text, flags=re.MULTILINE)
        text = re.sub("[†‡]", "", text)
        text = INTERVAL.sub("N", text)
    return " ".join(text.split())


def compare_output(shown: str, printed: str, numbers_vary: bool = False) -> str:
    """Return the first shown part that was not printed, or an empty string."""
    chunks = re.split(rf"^{re.escape(LEFT_OUT)}$", shown, flags=re.MULTILINE)
    rest = normalize(printed, numbers_vary)
    for number, chunk in enumerate(chunks):
        wanted = normalize(chunk, numbers_vary)
        place = rest.find(wanted)
        if place < 0 or (number == 0 and place > 0):
            return wanted
        rest = rest[place + len(wanted) :]
    if not normalize(chunks[-1]):
        # The last line is "...".
        return ""
    return rest.strip()


@contextlib.contextmanager
def start_server() -> Iterator[Path]:
    """Run the process that serves the commands; yield its socket."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "socket"
        process = subprocess.Popen(
            [sys.executable, SERVED, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        with process:
            process.stdout.readline()
            yield path
            process.stdin.close()


def list_program_words(socket: Path | None) -> list[str]:
    """Return the words that run a command of the suite, in the server if it exists."""
    if socket:
        return [sys.executable, "-IS", str(SERVED), str(socket)]
    start = ROOT / "rnn_scaling" / "system" / "processes" / "start.py"
    return [sys.executable, str(start), "./run.sh", "rnn_scaling"]


def prepare(folder: Path, steps: list[Step], socket: Path | None = None) -> None:
    """Fill a folder with what the steps read, so that they leave the project alone."""
    for step in steps:
        for command in step.commands:
            for name in RESULT_FOLDER.findall(command.text):
                shutil.copytree(ROOT / name, folder / name, dirs_exist_ok=True)
    for name in LINKED:
        if (ROOT / name).exists():
            (folder / name).symlink_to(ROOT / name)
    program = folder / "run.sh"
    program.write_text(
        f'#!/bin/sh\nexec {shlex.join(list_program_words(socket))} "$@"\n'
    )
    program.chmod(0o755)


def make_script(step: Step) -> str:
    """Return a shell script that runs a block and checks each exit status."""
    lines = []
    for command in step.commands:
        if not command.reason:
            lines.append(command.text)
            lines.append(
                f"status=$?; [ $status = {command.status} ] || "
                '{ echo "exit status $status" >&2; exit 1; }'
            )
    return "\n".join(lines)


def run_script(step: Step, folder: Path) -> subprocess.CompletedProcess[str] | None:
    """Run a block; return how it ended, or None if it takes too long."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "80",
        "RNN_SCALING_NO_PROGRESS": "1",
    }
    try:
        return subprocess.run(
            ["bash", "-c", make_script(step)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        return None


def find_fault(step: Step, done: subprocess.CompletedProcess[str] | None) -> str:
    """Return what is wrong with a block that was run, or an empty string."""
    if done is None:
        return f"takes more than {LIMIT_S} s; say so: # takes 3 minutes"
    if done.returncode:
        return (done.stderr or done.stdout).strip()[-1000:]
    skips_some = any(command.reason for command in step.commands)
    if step.shown is None or skips_some:
        return ""
    printed = done.stdout
    if any(command.status for command in step.commands):
        printed += done.stderr
    missing = compare_output(step.shown, printed, step.numbers_vary)
    return f"not printed as shown: {missing[:300]}" if missing else ""


def run_steps(
    steps: list[Step], socket: Path | None = None
) -> list[subprocess.CompletedProcess[str] | None]:
    """Run the blocks of a page in a new folder; return how each of them ended."""
    ended = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder, steps, socket)
        for step in steps:
            if step.file_name:
                (folder / step.file_name).write_text(step.content)
            else:
                ended.append(run_script(step, folder))
    return ended


def group_pages(pages: list[Path]) -> list[list[tuple[Path, list[Step]]]]:
    """Group pages that write the same files and run the same commands, in order."""
    groups = {}
    for page in pages:
        steps = list_steps(page.read_text())
        steps = [step for step in steps if step.runs or step.file_name]
        if not any(step.runs for step in steps):
            continue
        key = tuple((step.file_name, step.content, step.commands) for step in steps)
        groups.setdefault(key, []).append((page, steps))
    return list(groups.values())


def run_group(
    group: list[tuple[Path, list[Step]]], socket: Path | None = None
) -> list[str]:
    """Run the commands of a group of pages once; return one text for each fault."""
    ended = run_steps(group[0][1], socket)
    faults = []
    for page, steps in group:
        blocks = [step for step in steps if not step.file_name]
        for step, done in zip(blocks, ended, strict=True):
            fault = find_fault(step, done)
            if fault:
                faults.append(f"{page.relative_to(ROOT)}:{step.line}: {fault}")
    return faults


def print_commands_not_run(pages: list[Path]) -> None:
    """Print each command that is not run, with its reason."""
    for page in pages:
        for step in list_steps(page.read_text()):
            for command in step.commands:
                if command.reason:
                    place = f"{page.relative_to(ROOT)}:{step.line}"
                    first_line = command.text.splitlines()[0]
                    print(f"{place}: {command.reason}: {first_line}")


def main() -> int:
    """Check the pages and return the exit status."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    pages = [page.resolve() for page in arguments.pages] or list_documents()
    if arguments.list:
        print_commands_not_run(pages)
        return 0
    start = time.monotonic()
    with start_server() as socket, ThreadPoolExecutor(os.cpu_count()) as pool:
        check = functools.partial(run_group, socket=socket)
        faults = []
        for found in pool.map(check, group_pages(pages)):
            faults += found
    duration_s = time.monotonic() - start
    print("\n".join(faults) or "the documents show what their commands print")
    print(f"{duration_s:.0f} s", file=sys.stderr)
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
