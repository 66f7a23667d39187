"""The user's command of --trainer as a Python, a script and its arguments.

Pure. `runner` starts the parts under the hooks. What is refused here must be started in
another way: the message says how.
"""

import dataclasses
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "mpiexec", "srun")
_LAUNCHER_MODULES = ("torch.distributed.run", "torch.distributed.launch")
NUM_DEVICES = "{num_devices}"
EXPECTED = "python3 SCRIPT or python3 -m MODULE, to run under the hooks"
# A version and "t", the free-threaded build, may follow; python-config is no Python.
PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_PYTHON_OPTIONS_WITH_VALUE = "cmWX"
_WORD_WITH_VALUE = re.compile(
    rf"-(?P<flags>\w*?)(?P<option>[{_PYTHON_OPTIONS_WITH_VALUE}])(?P<value>.*)"
)
_LONG_OPTION_WITH_VALUE = "--check-hash-based-pycs"


@dataclasses.dataclass(frozen=True)
class ScriptCommand:
    """A command that runs a Python script.

    Attributes:
      python: The program and its own options, such as ("python3", "-u").
      script: The script or "-m" and a module, and its arguments, with placeholders.
    """

    python: Sequence[str]
    script: Sequence[str]

    def script_words(self, num_ranks: int) -> list[str]:
        """Return the script and its arguments for a number of ranks."""
        return [word.replace(NUM_DEVICES, str(num_ranks)) for word in self.script]


def parse(text: str) -> ScriptCommand:
    """Return the parts of a command.

    Raises:
      ValueError: If it does not run a Python script; the message says what is expected.
    """
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise ValueError(f"a command: {e}") from None
    start = _num_environment_words(words)
    program = Path(words[start]).name if start < len(words) else ""
    if program in _LAUNCHERS:
        raise _launcher_error(program)
    if not PYTHON.fullmatch(program):
        raise ValueError(EXPECTED)
    options, script = _split_options(words[start + 1 :])
    if script[:1] == ["-m"]:
        if len(script) == 1:
            raise ValueError(EXPECTED)
        if script[1] in _LAUNCHER_MODULES:
            raise _launcher_error(script[1])
    if not script or script[0] == "-":
        raise ValueError(EXPECTED)
    return ScriptCommand([*words[: start + 1], *options], script)


def _num_environment_words(words: Sequence[str]) -> int:
    """Return the number of words of a leading `env NAME=VALUE`."""
    if not words or Path(words[0]).name != "env":
        return 0
    count = 1
    while count < len(words) and "=" in words[count]:
        count += 1
    return count


def _split_options(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the options of Python, and the script or "-m" with the words after it.

    Like Python, read `-um MODULE` and `-umMODULE` as `-u -m MODULE`.
    """
    options: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        found = _WORD_WITH_VALUE.fullmatch(word)
        option = found["option"] if found else ""
        if option == "c":
            raise ValueError(
                f"{EXPECTED}, and not code after -c; write the code to a file"
            )
        if found and option == "m":
            if found["flags"]:
                options.append(f"-{found['flags']}")
            module = [found["value"]] if found["value"] else []
            return options, ["-m", *module, *rest]
        options.append(word)
        value_follows = found is not None and not found["value"]
        if value_follows or word == _LONG_OPTION_WITH_VALUE:
            options += rest[:1]
            rest = rest[1:]
    return options, rest


def _launcher_error(launcher: str) -> ValueError:
    return ValueError(
        f"the command of one process without {launcher}, such as python3 my.py, "
        "because verify starts the processes itself"
    )
