"""Check that docstrings list only parameters of their function below `Args:`."""

import ast
import re

from tests.support.paths import ROOT


def documented_functions():
    """Yield the place, the names below `Args:` and the parameters of each function.

    Functions without `Args:` are skipped.
    """
    for path in sorted(
        [*ROOT.glob("rnn_scaling/**/*.py"), *ROOT.glob("models/**/*.py")]
    ):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            section = re.search(
                r"^Args:\n((?:  .*\n?|\n)+)",
                ast.get_docstring(node) or "",
                re.MULTILINE,
            )
            if section:
                lines = re.findall(
                    r"^  (\*{0,2}\w+(?:, \*{0,2}\w+)*):", section[1], re.MULTILINE
                )
                arguments = node.args
                names = {
                    argument.arg
                    for argument in arguments.posonlyargs
                    + arguments.args
                    + arguments.kwonlyargs
                }
                names |= {
                    argument.arg
                    for argument in (arguments.vararg, arguments.kwarg)
                    if argument
                }
                yield (
                    f"{path.relative_to(ROOT)}:{node.name}",
                    set(re.findall(r"\w+", " ".join(lines))),
                    names,
                )


def test_listed_arguments_are_parameters():
    functions = list(documented_functions())
    assert len(functions) > 20
    assert [
        (place, listed - names) for place, listed, names in functions if listed - names
    ] == []
