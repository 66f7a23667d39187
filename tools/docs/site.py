"""Hooks of mkdocs: pages that are made when the site is built, and links that lead out of docs/.

README.md, BUILD_NOTES.md and CHANGELOG.md become pages. flags.md is written from the help of every command, and
statements.md from the templates of all sentences.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": "index.md",
    "BUILD_NOTES.md": "BUILD_NOTES.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
}
FLAGS = """# Flags

This page is written from the help of each command. `--help` prints the most important flags, `--help=GROUP` or
`--help=FLAG` a part, and `--help=all` everything. Groups of flags that several commands share are shown once.
"""


STATEMENTS = """# Statements

JSON outputs contain facts as `{"kind": ..., "subject": ..., "values": {...}}`. This page lists every kind with the
sentence that it becomes; braces are values.

| kind | sentence |
| --- | --- |
"""


def _python(*words: str) -> str:
    python = os.environ.get("RNN_SCALING_PYTHON", sys.executable)
    return subprocess.run(
        [python, *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def _program(*words: str) -> str:
    return _python("-m", "rnn_scaling", *words)


def _statements_page() -> str:
    code = "import json; from rnn_scaling.reports import wording; print(json.dumps(dict(wording.all_templates())))"
    templates = json.loads(_python("-c", code)).items()
    rows = [
        (kind, " ".join(text.replace("|", "/").split()))
        for kind, text in sorted(templates)
    ]
    return STATEMENTS + "".join(f"| `{kind}` | `{text}` |\n" for kind, text in rows)


def _group(text: str) -> str:
    """A paragraph of a help text as Markdown. A group of flags gets a heading, so that the search finds it."""
    first, _, rest = text.partition("\n")
    if not re.search(r"^ ", text, flags=re.MULTILINE):
        return re.sub(r"([\\`*_\[\]<>])", r"\\\1", text)
    if not rest.startswith("  --"):
        return f"```text\n{text}\n```"
    name = re.split(r"[:.(]", first)[0].strip()
    return f"### {name}\n\n{first}\n\n```text\n{rest}\n```"


def _flags_page() -> str:
    commands = re.findall(
        r"^  ([a-z_-]+) {2,}\S", _program("--help"), flags=re.MULTILINE
    )
    sections, shown = [FLAGS], set()
    for command in commands:
        paragraphs = _program(command, "--help=all").strip().split("\n\n")
        new = [
            text for text in paragraphs if text not in shown
        ]  # verify and others repeat the groups of train
        shown.update(new)
        sections.append(f"## {command}\n\n" + "\n\n".join(map(_group, new)) + "\n")
    return "\n".join(sections)


def _links_inside_docs(text: str) -> str:
    """Links of a page in the root of the repository, as seen from docs/."""
    text = text.replace("](docs/", "](").replace('src="docs/', 'src="')
    return text.replace("](README.md", "](index.md")


def on_files(files, config):
    from mkdocs.structure.files import File

    made = {
        page: _links_inside_docs((ROOT / name).read_text())
        for name, page in PAGES.items()
    }
    made["flags.md"] = _flags_page()
    made["statements.md"] = _statements_page()
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Keep generated results out of the search, and let links reach the pages of the site.

    Pages in docs/ link to ../BUILD_NOTES.md and the like, which are pages of the site,
    one folder nearer.
    """
    if page.file.src_uri.startswith("results/"):
        page.meta["search"] = {"exclude": True}
    markdown = re.sub(
        r"\]\(\.\./((?:\.\./)*(?:BUILD_NOTES|CHANGELOG)\.md)", r"](\1", markdown
    )
    return re.sub(r"\]\(\.\./((?:\.\./)*)README\.md", r"](\1index.md", markdown)
