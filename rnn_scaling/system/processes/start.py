"""python start.py PROGRAM MODULE WORDS...: runs a module of this package as `python -m MODULE` does.

It needs no environment variable, so that a user's own program gets the caller's environment as it is. Nothing in the
caller's folder is taken for a module of this package. PROGRAM is what commands to paste begin with.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.realpath(__file__))


def main(words: list[str]) -> None:
    program, module, *rest = words
    sys.argv = [
        "rnn-scaling",
        *rest,
    ]  # by which the package's __init__ recognises our program
    packages = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
    sys.path[:] = [packages, *(path for path in sys.path if path != FOLDER)]
    from rnn_scaling.system import entry

    del sys.path[
        0
    ]  # from here on the package knows where its modules are, and nothing else is in that folder
    entry.call_program(program)
    import runpy

    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
