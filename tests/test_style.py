"""Marks of dense or unclear code, counted by rule; a count may only fall.

ruff checks layout, names and complexity (pyproject.toml). This test counts what ruff
has no rule for: unrelated values assigned in one line, comprehensions with two loops or
inside one another, docstrings that are noun clauses, "a" in place of "per", and public
names that only their module uses.
"""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tests.support.paths import ROOT

PUBLIC = "public name that no other file mentions; begin it with an underscore"
# Lower a limit when a count has fallen; never raise one.
LIMITS = {
    "unrelated values in one assignment": 0,
    "comprehension with two loops or inside another": 0,
    "docstring that is a noun clause": 0,
    '"a" for "per"': 0,
    PUBLIC: 0,
}
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
NOUN_CLAUSE = re.compile(r"(What|That|Whose|By how|By what|Those|Others|As [a-z`]) ?")
A_FOR_PER = re.compile(
    r"\b(one|entry|tensors?|lines?|rows?|bytes|samples|seconds|kernels?) an? "
    r"(tower|step|device|line|worker|batch|process|rank|layer|series|run|machine)\b"
)


def list_sources():
    for folder in ("rnn_scaling", "models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not path.is_symlink() and "rnn_scaling/models" not in str(path):
                yield path, ast.parse(path.read_text(encoding="utf-8"))


def find_marks(tree):
    """Yield the name and the line of every mark in a module."""
    for node in ast.walk(tree):
        if is_unrelated_assignment(node):
            yield "unrelated values in one assignment", node.lineno
        if isinstance(node, COMPREHENSIONS) and is_deep(node):
            yield "comprehension with two loops or inside another", node.lineno
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            docstring = ast.get_docstring(node) or ""
            line = getattr(node, "lineno", 1)
            if NOUN_CLAUSE.match(docstring):
                yield "docstring that is a noun clause", line
            if A_FOR_PER.search(docstring):
                yield '"a" for "per"', line


def public_names(tree):
    """Yield the public functions and constants of a module, and their lines."""
    for node in tree.body:
        names = [node.name] if isinstance(node, ast.FunctionDef) else []
        if isinstance(node, ast.Assign):
            names = [ast.unparse(target) for target in node.targets]
            names = [name for name in names if name.isupper()]
        for name in names:
            if not name.startswith("_"):
                yield name, node.lineno


def count_mentions():
    """Return in how many files each word is."""
    mentions: Counter[str] = Counter()
    folders = ("rnn_scaling", "models", "tests", "benchmarks", "tools", "docs")
    for folder in folders:
        for path in (ROOT / folder).rglob("*.*"):
            is_link = path.is_symlink() or "rnn_scaling/models" in str(path)
            if path.suffix in (".py", ".md") and not is_link:
                mentions.update(set(re.findall(r"\w+", path.read_text("utf-8"))))
    return mentions


def is_unrelated_assignment(node):
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    [target] = node.targets[:1]
    return isinstance(target, ast.Tuple) and len(target.elts) > 1


def is_deep(node):
    if len(node.generators) > 1:
        return True
    inner = (child for child in ast.walk(node) if child is not node)
    return any(isinstance(child, COMPREHENSIONS) for child in inner)


@pytest.fixture(scope="module")
def marks():
    """Return the places of each mark."""
    places: dict[str, list[str]] = {mark: [] for mark in LIMITS}
    mentions = count_mentions()
    for path, tree in list_sources():
        for name, line in public_names(tree):
            if mentions[name] == 1:
                places[PUBLIC].append(f"{path.relative_to(ROOT)}:{line}: {name}")
        for mark, line in find_marks(tree):
            places[mark].append(f"{path.relative_to(ROOT)}:{line}")
    return places


@pytest.mark.parametrize("mark", LIMITS)
def test_no_mark_of_unclear_code_is_added(marks, mark):
    places = marks[mark]
    assert len(places) <= LIMITS[mark], "\n".join([f"{mark}:", *places])


@pytest.mark.parametrize(
    "source, mark",
    [
        ("a, b = 1, 2", "unrelated values in one assignment"),
        ("[x for y in z for x in y]", "comprehension with two loops or inside another"),
        (
            "[[x for x in y] for y in z]",
            "comprehension with two loops or inside another",
        ),
        ('def f():\n    """What it is."""', "docstring that is a noun clause"),
        ('"""One entry a tower."""', '"a" for "per"'),
    ],
)
def test_each_mark_is_found(source, mark):
    assert [name for name, _ in find_marks(ast.parse(source))] == [mark]


@pytest.mark.parametrize(
    "source", ["a, b = f()", "[x for x in y if x]", '"""Return x."""']
)
def test_plain_code_has_no_mark(source):
    assert not list(find_marks(ast.parse(source)))
