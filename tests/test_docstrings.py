"""Public functions of three parameters or more say each of them."""

from __future__ import annotations

import ast
import re

from tests.support.paths import ROOT

MANY = 3


def public_functions():
    """(file, name with its class, parameters, docstring) of every public function and method, also of contracts.

    What a class is made from may stand in the docstring of the class.
    """
    for folder in ("rnn_scaling", "models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for owner, node, text in definitions(ast.parse(path.read_text())):
                names = [arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
                names = [name for name in names if name not in ("self", "cls")]
                yield path.relative_to(ROOT), owner + node.name, names, text


def definitions(tree, owner="", of_class=""):
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            is_contract = any(getattr(base, "id", "") == "Protocol" for base in node.bases)
            CONTRACTS.update(
                {each.name for each in node.body if isinstance(each, ast.FunctionDef)} if is_contract else ()
            )
            yield from definitions(node, f"{node.name}.", ast.get_docstring(node) or "")
        elif isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
            text = ast.get_docstring(node) or ""
            yield owner, node, f"{of_class}\n{text}" if node.name == "__init__" else text


def listed(text):
    """The parameters below `Args:`; of a line `a, b: ...` both."""
    section = re.search(r"^\s*Args:\n(.*?)(?=^\s*(?:Returns|Raises|Yields|Source):|\Z)", text, re.MULTILINE | re.DOTALL)
    lines = re.findall(r"^\s*((?:\w+, )*\w+):", section[1], re.MULTILINE) if section else []
    return {name for line in lines for name in line.split(", ")}


CONTRACTS: set[str] = set()  # names of methods whose parameters stand where the contract does


def test_a_public_function_of_many_parameters_says_each():
    functions = list(public_functions())
    said = {f"{path.stem}.{name}": listed(text) for path, name, _, text in functions}
    asked, lacking = 0, []
    for path, name, names, text in functions:
        if len(names) < MANY or (not text and name.split(".")[-1] in CONTRACTS):
            continue
        elsewhere = re.findall(r"[Aa]rguments as in `([\w.]+)`", text)  # `function` of the same file, `file.function`
        known = listed(text).union(*(said.get(f"{path.stem}.{other}") or said.get(other, ()) for other in elsewhere))
        unsaid = [each for each in names if each not in known]
        asked += 1
        lacking += [f"{path}:{name}: Args: lacks {', '.join(unsaid)}"] if unsaid else []
    assert asked > 200 and not lacking, "\n".join(lacking)
