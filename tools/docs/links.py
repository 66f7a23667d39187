"""Checks the links of the documents without a network: files, headings, paths in code, documents that the code names.

python tools/docs/links.py      exit status 1 and one line for each broken link
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


def tracked(*patterns: str) -> list[Path]:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns]
    listed = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


def without_code(text: str) -> str:
    """The text with fenced blocks and inline code blanked; the number of lines stays."""
    text = re.sub(
        r"^```.*?^```",
        lambda match: "\n" * match[0].count("\n"),
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"`[^`\n]*`", "", text)


@cache
def anchors(path: Path) -> set[str]:
    """The anchors of a document's headings, as GitHub and Python-Markdown both make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {
        re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()).strip())
        for title in titles
    }


def fault(document: Path, link: str) -> str:
    """Why a link of a document leads nowhere, or an empty string."""
    if re.match(r"[a-z]+:", link):
        return ""  # another site: not checked, since lint needs no network
    place, _, anchor = link.partition("#")
    target = (document.parent / place).resolve() if place else document
    if not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in anchors(target):
        return f"{link}: {target.name} has no such heading"
    return ""


def missing_paths(line: str) -> list[str]:
    """Files of this repository that a line names and that do not exist. NAME stands for a file to be written."""
    places = [ROOT, ROOT / "rnn_scaling"]
    paths = [path for path in PATH.findall(line) if "NAME" not in path]
    paths = [
        path
        for path in paths
        if any((place / path.split("/")[0]).is_dir() for place in places)
    ]
    paths += [module.replace(".", "/") for module in MODULE.findall(line)]
    return [
        path
        for path in paths
        if not any((place / path).exists() or _module(place / path) for place in places)
    ]


def _module(path: Path) -> bool:
    return path.with_suffix(".py").exists()


def faults_of(document: Path) -> list[str]:
    text = document.read_text()
    found = []
    for number, (line, prose) in enumerate(
        zip(text.splitlines(), without_code(text).splitlines()), start=1
    ):
        reasons = [
            reason for link in LINK.findall(prose) if (reason := fault(document, link))
        ]
        reasons += [f"{path}: no such file" for path in missing_paths(line)]
        found += [
            f"{document.relative_to(ROOT)}:{number}: {reason}" for reason in reasons
        ]
    return found


def main() -> int:
    faults = [
        line
        for document in tracked("*.md")
        if not document.is_relative_to(ROOT / "tests")
        for line in faults_of(document)
    ]
    for source in tracked(
        "rnn_scaling/*.py", "models/*.py", "benchmarks/*.py", "run.sh"
    ):
        for number, line in enumerate(source.read_text().splitlines(), start=1):
            missing = [
                name
                for name in NAMED_BY_CODE.findall(line)
                if not (ROOT / name).exists()
            ]
            faults += [
                f"{source.relative_to(ROOT)}:{number}: {name}: no such file"
                for name in missing
            ]
    print(
        "\n".join(faults) or "every link of the documents leads somewhere",
        file=sys.stderr if faults else sys.stdout,
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
