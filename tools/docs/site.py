"""Hooks of mkdocs: generated pages, and links that lead out of docs/.

README.md, BUILD_NOTES.md, CHANGELOG.md and CONTRIBUTING.md become pages. flags.md is
written from the help of every command, and statements.md from the templates of all
sentences.
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

This page is written from the help of each command. `--help` prints the most important
flags, `--help=GROUP` or `--help=FLAG` a part, and `--help=all` everything. Groups of
flags that several commands share are shown once.
"""
STATEMENTS = """# Statements

JSON outputs contain facts as `{"kind": ..., "subject": ..., "values": {...}}`. This
page lists every kind with the sentence that it becomes; braces are values.

| kind | sentence |
| --- | --- |
"""
PRINT_TEMPLATES = """\
import json
from rnn_scaling.reports import wording
print(json.dumps(dict(wording.list_all_templates())))
"""


def _run_python(*words: str) -> str:
    """Return what the project's Python prints."""
    python = os.environ.get("RNN_SCALING_PYTHON", sys.executable)
    finished = subprocess.run(
        [python, *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return finished.stdout


def _run_program(*words: str) -> str:
    """Return what a command of the suite prints."""
    return _run_python("-m", "rnn_scaling", *words)


def _write_statements() -> str:
    """Return the page of all statements."""
    templates = json.loads(_run_python("-c", PRINT_TEMPLATES))
    page = STATEMENTS
    for kind, template in sorted(templates.items()):
        # A bar would end the cell.
        text = " ".join(template.replace("|", "/").split())
        page += f"| `{kind}` | `{text}` |\n"
    return page


def _format_paragraph(text: str) -> str:
    """Return a paragraph of a help text as Markdown.

    A group of flags gets a heading, so that the search finds it.
    """
    first, _, rest = text.partition("\n")
    if not re.search(r"^ ", text, flags=re.MULTILINE):
        return re.sub(r"([\\`*_\[\]<>])", r"\\\1", text)
    if not rest.startswith("  --"):
        return f"```text\n{text}\n```"
    name = re.split(r"[:.(]", first)[0].strip()
    return f"### {name}\n\n{first}\n\n```text\n{rest}\n```"


def _write_flags() -> str:
    """Return the page of all flags."""
    overview = _run_program("--help")
    commands = re.findall(r"^  ([a-z_-]+) {2,}\S", overview, flags=re.MULTILINE)
    sections = [FLAGS]
    shown = set()
    for command in commands:
        paragraphs = _run_program(command, "--help=all").strip().split("\n\n")
        # verify and other commands repeat the groups of train.
        new = [text for text in paragraphs if text not in shown]
        shown.update(new)
        formatted = "\n\n".join(map(_format_paragraph, new))
        sections.append(f"## {command}\n\n{formatted}\n")
    return "\n".join(sections)


def _shorten_links(text: str) -> str:
    """Return a page of the repository's root with links as seen from docs/."""
    text = text.replace("](docs/", "](").replace('src="docs/', 'src="')
    return text.replace("](README.md", "](index.md")


def on_files(files, config):
    """Add the generated pages."""
    from mkdocs.structure.files import File

    pages = {}
    for name, page in PAGES.items():
        pages[page] = _shorten_links((ROOT / name).read_text())
    pages["flags.md"] = _write_flags()
    pages["statements.md"] = _write_statements()
    for page, text in pages.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown, page, config, files):
    """Keep generated results out of the search, and adapt links to the site.

    Pages in docs/ link to ../BUILD_NOTES.md and the like, which are pages of the site,
    one folder nearer.
    """
    if page.file.src_uri.startswith("results/"):
        page.meta["search"] = {"exclude": True}
    markdown = re.sub(
        r"\]\(\.\./((?:\.\./)*(?:BUILD_NOTES|CHANGELOG)\.md)", r"](\1", markdown
    )
    return re.sub(r"\]\(\.\./((?:\.\./)*)README\.md", r"](\1index.md", markdown)
