"""Run a user's script in this process, as Python itself would.

All hooks call `run` to start the user's script.
"""

import os
import runpy
import sys
from collections.abc import Sequence


def run(words: Sequence[str]) -> None:
    """Run a script or a module as `__main__`, with its arguments and its folder.

    Args:
      words: The script, or "-m" and a module, and the arguments.
    """
    if words[0] == "-m":
        sys.argv = list(words[1:])
        sys.path.insert(0, os.getcwd())
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(words)
        sys.path.insert(0, os.path.dirname(os.path.abspath(words[0])))
        runpy.run_path(words[0], run_name="__main__")
