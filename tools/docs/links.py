"""Check the links of the documents without a network.

    python tools/docs/links.py

Checked are links to files and headings, paths in inline code, and documents that the
code names. Prints one line for each broken link; the exit status is then 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^)\s]+)\)")
PATH = re.compile(r"`([a-z_]+/[\w/.-]*\.(?:py|md|yaml|txt))[`:]")
MODULE = re.compile(r"python -m ((?:rnn_scaling|benchmarks)\.[\w.]+)")
NAMED_BY_CODE = re.compile(
    r"\bdocs/[a-z_/-]+\.md\b|\b(?:README|BUILD_NOTES|CHANGELOG)\.md\b"
)


def list_tracked_files(*patterns: str) -> list[Path]:
    """Return the files of the project that match, without ignored files."""
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file()]


def blank_code(text: str) -> str:
    """Return the text without code; the number of lines stays."""
    text = re.sub(
        r"^```.*?^```",
        lambda match: "\n" * match[0].count("\n"),
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def list_heading_anchors(path: Path) -> set[str]:
    """Return the anchors that GitHub and Python-Markdown make of the headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    anchors = set()
    for title in re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", title.lower()).strip()
        anchors.add(re.sub(r"\s", "-", words))
    return anchors


def link_fault(document: Path, link: str) -> str:
    """Return why a link of a document is broken, or an empty string."""
    if re.match(r"[a-z]+:", link):
        # Links to other sites are not checked, because lint needs no network.
        return ""
    place, _, anchor = link.partition("#")
    target = (document.parent / place).resolve() if place else document
    if not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in list_heading_anchors(target):
        return f"{link}: {target.name} has no such heading"
    return ""


def list_missing_paths(line: str) -> list[str]:
    """Return the files of this repository that a line names and that do not exist.

    Paths with NAME are ignored; it stands for a file that the reader writes.
    """
    places = [ROOT, ROOT / "rnn_scaling"]
    paths = []
    for path in PATH.findall(line):
        first_folder = path.split("/")[0]
        is_ours = any((place / first_folder).is_dir() for place in places)
        if is_ours and "NAME" not in path:
            paths.append(path)
    paths += [module.replace(".", "/") for module in MODULE.findall(line)]
    missing = []
    for path in paths:
        if not any(is_file_or_module(place / path) for place in places):
            missing.append(path)
    return missing


def is_file_or_module(path: Path) -> bool:
    """Return whether the path, or the path with .py, exists."""
    return path.exists() or path.with_suffix(".py").exists()


def list_document_faults(document: Path) -> list[str]:
    """Return one line for each broken link or path of a document."""
    text = document.read_text()
    lines = zip(text.splitlines(), blank_code(text).splitlines())
    faults = []
    for number, (line, prose) in enumerate(lines, start=1):
        reasons = [link_fault(document, link) for link in LINK.findall(prose)]
        reasons += [f"{path}: no such file" for path in list_missing_paths(line)]
        for reason in reasons:
            if reason:
                faults.append(f"{document.relative_to(ROOT)}:{number}: {reason}")
    return faults


def list_source_faults(source: Path) -> list[str]:
    """Return one line for each missing document that a source file names."""
    faults = []
    for number, line in enumerate(source.read_text().splitlines(), start=1):
        for name in NAMED_BY_CODE.findall(line):
            if not (ROOT / name).exists():
                place = f"{source.relative_to(ROOT)}:{number}"
                faults.append(f"{place}: {name}: no such file")
    return faults


def main() -> int:
    """Check all files and return the exit status."""
    faults = []
    for document in list_tracked_files("*.md"):
        if not document.is_relative_to(ROOT / "tests"):
            faults += list_document_faults(document)
    for source in list_tracked_files(
        "rnn_scaling/*.py", "models/*.py", "benchmarks/*.py", "run.sh"
    ):
        faults += list_source_faults(source)
    if faults:
        print("\n".join(faults), file=sys.stderr)
    else:
        print("every link of the documents leads somewhere")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
