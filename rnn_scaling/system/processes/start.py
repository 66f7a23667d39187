"""python start.py PROGRAM MODULE WORDS...: run a module like `python -m MODULE`.

It needs no environment variable, so that a user's program gets the environment of the
caller. No file in the folder of the caller is imported as a module of this package.
PROGRAM is the beginning of commands to paste.
"""

import os
import sys

FOLDER = os.path.dirname(os.path.realpath(__file__))


def main(words: list[str]) -> None:
    program, module, *arguments = words
    # The package's __init__ recognises its program by this name.
    sys.argv = ["rnn-scaling", *arguments]
    packages = os.path.dirname(os.path.dirname(os.path.dirname(FOLDER)))
    sys.path[:] = [packages, *(path for path in sys.path if path != FOLDER)]
    from rnn_scaling.system import entry

    del sys.path[0]  # The package is imported; its folder has no other modules.
    entry.set_program_name(program)
    import runpy

    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
