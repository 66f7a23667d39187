"""The start and the end of every command, even without a reader of its output."""

import errno
import functools
import importlib
import json
import os
import signal
import subprocess
import sys

import pytest

import rnn_scaling
from rnn_scaling import __main__
from rnn_scaling.commands.table import COMMANDS, GROUPS, RENAMED, name_module
from rnn_scaling.system import entry
from rnn_scaling.system.processes.process import START
from tests.support.paths import ROOT
from tests.support.python import python

HEAVY = ("numpy", "scipy", "matplotlib", "jinja2", "tensorflow", "tensorboard", "absl")


def ends(main, *words, **options):
    """Run this code as the command of a process."""
    return python(
        f"import os, signal, sys; from rnn_scaling.system import entry\n{main}\nentry.leave(main)",
        *words,
        **options,
    )


def test_a_reader_that_has_gone_away_is_no_error():
    command = [sys.executable, "-m", "rnn_scaling", "report", "--help"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


# Calls many command lines; reports after each which of HEAVY have been loaded.
ASKING = f"""
import contextlib, io, json, sys
from rnn_scaling import __main__
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = __main__.main(words)
    loaded = [name for name in {HEAVY} if name in sys.modules]
    print(json.dumps([words[0], status, out.getvalue(), err.getvalue(), loaded]))
"""


def answers(name):
    """Return status, stdout, stderr and modules for --version, --help and mistakes."""
    return [answer for command, *answer in all_answers() if command == name]


@functools.cache
def all_answers():
    """Call every command in one process; mistakes come last, since they may load more."""
    words = [[name, flag] for flag in ("--version", "--help") for name in COMMANDS]
    mistakes = ["--no_such_thing=1", "--nor_this", "a", "b", "c", "--help_=x"]
    # TensorBoard reads its own flags.
    words += [[name, *mistakes] for name in COMMANDS if name != "tensorboard"]
    done = python(ASKING, json.dumps(words))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_teaches_and_loads_nothing_that_takes_time(name):
    version, (status, out, err, loaded), *_ = answers(name)
    assert version == [0, f"rnn_scaling {rnn_scaling.__version__}\n", "", []]
    assert (status, err, loaded) == (0, "", [])
    lines = out.splitlines()
    assert lines[0].startswith(f"./run.sh {name} ")
    for beginning in ("Exit status", f"    ./run.sh {name}", "  --"):
        assert any(line.startswith(beginning) for line in lines), beginning


@pytest.mark.parametrize(
    "name", [name for name in COMMANDS if name not in ("tensorboard", "history")]
)
def test_every_mistake_is_named_at_once_without_what_takes_time(name):
    status, _, err, loaded = answers(name)[2]
    lines = err.splitlines()
    assert (status, set(loaded) <= {"absl"}) == (2, True), err
    assert all(line.startswith("error: ") for line in lines), err
    for flag in ("no_such_thing", "nor_this", "help_"):
        assert err.count(f"error: --{flag} is not a flag; ") == 1


def test_an_unknown_command_is_refused_with_the_nearest_name():
    done = program("--version")
    version = f"rnn_scaling {rnn_scaling.__version__}\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, version, "")
    done = program("sweeep")
    assert done.returncode == 2
    assert done.stderr.startswith("error: sweeep ")
    assert done.stderr.endswith(" sweep?\n")
    done = program()
    assert done.returncode == 2
    assert done.stdout.startswith("rnn-scaling COMMAND ")


def test_a_terminal_without_a_letter_shows_a_question_mark():
    done = ends(
        "def main(): return print('1 \\xb1 2') or 0",
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 ? 2\n", "")


@pytest.mark.parametrize(
    "decorated, error, said",
    [
        ("", "RuntimeError('no such luck\\nat all')", "RuntimeError: no such luck"),
        (
            "@entry.command\n",
            "RecursionError('deep \\x1b[2J')",
            "RecursionError: deep \\x1b[2J",
        ),
    ],
)
def test_a_fault_of_the_program_is_70_in_one_line(decorated, error, said):
    name = "__main__" if decorated else "rnn_scaling"
    code = f"{decorated}def main(words=()): raise {error}"
    for debug in ("", "1"):
        done = ends(code, env={**os.environ, entry.DEBUG: debug})
        assert (done.returncode, done.stdout) == (70, "")
        assert done.stderr.startswith("Traceback") == bool(debug)
        line = done.stderr.splitlines()[-1]
        assert line.startswith(f"error: {name}: {said}; ") and entry.DEBUG in line
        assert debug or done.stderr == f"{line}\n"


@pytest.mark.parametrize(
    "module, package, words",
    [
        ("numpy", "numpy", ["report", "docs/results/default", "--output={out}"]),
        ("tensorflow", "tensorflow", ["train", "--num_batches=1"]),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(tmp_path, module, package, words):
    code = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "import runpy; runpy.run_module('rnn_scaling', run_name='__main__')"
    )
    words = [word.format(out=tmp_path) for word in words]
    done = python(code, *words, env={**os.environ, entry.DEBUG: ""})
    last = done.stderr.splitlines()[-1]
    is_run = words[0] == "train"
    assert done.returncode == (entry.EXIT_FAILED if is_run else entry.EXIT_USAGE)
    assert "Traceback" not in done.stderr
    assert last.startswith("error: ") and f"cannot import {package};" in last
    assert "requirements.txt" in last and "fault" not in done.stderr


@pytest.mark.parametrize("module, status", [("rnn_scaling.gone", 70), ("torch", 2)])
def test_a_missing_module_of_the_suite_is_a_fault(module, status, capsys):
    @entry.command
    def main(words):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    assert main([]) == status
    assert ("fault of the program" in capsys.readouterr().err) == (status == 70)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO, errno.ENAMETOOLONG])
def test_an_unusable_file_is_not_a_fault_of_the_program(number, capsys):
    @entry.command
    def main(words):
        raise OSError(number, os.strerror(number), "some/file")

    assert main([]) in (entry.EXIT_FAILED, entry.EXIT_USAGE)
    assert capsys.readouterr().err == f"error: some/file: {os.strerror(number)}\n"


CONTROLS = (
    "\x1b]0;x\x07 \x9b31m \u202e \u2066 \u2028 \x00 \ufeff \udcff \r \x7f \U000e0041"
)


def test_terminal_controls_are_shown_as_escapes():
    assert entry.make_plain(f"a {CONTROLS}\nb\tc ü±\U0001f642") == (
        r"a \x1b]0;x\x07 \x9b31m \u202e \u2066 \u2028 \x00 \ufeff \xff \r \x7f \U000e0041\nb\tc ü±"
        + "\U0001f642"
    )
    code = f"def main():\n    print({CONTROLS!r}); entry.warn({CONTROLS!r}); return entry.fail({CONTROLS!r})"
    done = ends(code)
    shown = entry.make_plain(CONTROLS)
    assert (done.stdout, done.stderr) == (
        f"{shown}\n",
        f"warning: {shown}\nerror: {shown}\n",
    )
    assert done.returncode == 1


def test_ctrl_c_and_sigterm_are_130_without_a_traceback():
    for number in (signal.SIGINT, signal.SIGTERM):
        done = ends(f"def main(): os.kill(os.getpid(), {int(number)}); signal.pause()")
        assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize("module", ["rnn_scaling", "rnn_scaling.train"])
def test_ctrl_c_while_modules_load_shows_no_traceback(module):
    code = (
        "import builtins, os, runpy, signal, sys\n"
        "load = builtins.__import__\n"
        "def interrupted(name, *arguments, **options):\n"
        "    if name.startswith('rnn_scaling.') and name != 'rnn_scaling.system':\n"
        "        builtins.__import__ = load\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return load(name, *arguments, **options)\n"
        "builtins.__import__ = interrupted\n"
        f"sys.argv = ['x', 'report', '.'][:{1 if module.endswith('train') else 3}]\n"
        f"runpy.run_module('{module}', run_name='__main__')"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.parametrize(
    "words, handler",
    [(["-m", "rnn_scaling.train"], "SIG_DFL"), (["a.py"], "default_int_handler")],
)
def test_importing_the_package_changes_ctrl_c_only_in_its_own_program(words, handler):
    code = f"import signal, sys; sys.argv, sys.orig_argv = {words[:1]}, ['python', *{words}]; import rnn_scaling; "
    code += f"print(signal.getsignal(signal.SIGINT) == signal.{handler})"
    assert python(code).stdout == "True\n"


def run_in_bash(line, code):
    """Run a line of bash, in which $0 is Python and $1 its code."""
    command = ["bash", "-c", line, sys.executable, code]
    return subprocess.run(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def test_output_to_closed_streams_is_lost(tmp_path):
    code = (
        "import os, sys; from rnn_scaling.system import entry\n"
        f"def main():\n    file = open({str(tmp_path / 'file')!r}, 'w'); print('out'); print('err', file=sys.stderr)\n"
        "    os.system('echo out; echo err >&2')\n"
        "    return sys.stdin.read() and 3 or 0\n"
        "entry.leave(main)"
    )
    done = run_in_bash('"$0" -c "$1" 0<&- >&- 2>&-', code)
    assert done.returncode == 0 and "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "", (
        "what is printed never lands in a file that was opened"
    )


def test_output_to_a_read_only_stream_is_lost():
    code = "def main(): print('out', flush=True); print('err', file=sys.stderr, flush=True); return 7"
    # If the caller of bash closed stderr, bash opens its script under this number.
    with open(__file__) as script:
        for streams in ({"stdout": script}, {"stderr": script}):
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
            program = f"import sys; from rnn_scaling.system import entry\n{code}\nentry.leave(main)"
            done = subprocess.run(
                [sys.executable, "-c", program], cwd=ROOT, text=True, **pipes
            )
            assert (done.returncode, done.stdout or "", done.stderr or "") == (
                7,
                "" if "stdout" in streams else "out\n",
                "" if "stderr" in streams else "err\n",
            )


def test_a_full_disk_behind_stdout_is_one_line():
    with open("/dev/full", "w") as full:
        code = "from rnn_scaling.system import entry; entry.leave(lambda: print('x' * 9999) or 0)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (done.returncode, done.stderr) == (
        1,
        f"error: output: {os.strerror(errno.ENOSPC)}\n",
    )


def test_a_reader_of_both_streams_that_has_gone_is_no_error():
    code = (
        "import sys; from rnn_scaling.system import entry\n"
        "def main():\n    while True: print('x', file=sys.stderr)\n"
        "entry.leave(main)"
    )
    line = '"$0" -c "$1" 2>&1 | head -c 3; exit ${PIPESTATUS[0]}'
    done = run_in_bash(line, code)
    assert (done.returncode, done.stdout, done.stderr) == (141, "x\nx", "")


def test_commands_to_paste_begin_like_the_command_of_the_user():
    code = "from rnn_scaling import __main__ as m; m.console()"
    for words, prefix in (
        (["-c", code], "rnn-scaling"),
        (["-m", "rnn_scaling"], "python -m rnn_scaling"),
        ([str(START), "../run.sh", "rnn_scaling"], "../run.sh"),
    ):
        done = subprocess.run(
            [sys.executable, *words, "ab", "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.stdout.startswith(f"{prefix} ab ")
        assert f"    {prefix} ab --a=" in done.stdout
    assert entry.get_program_name() == "./run.sh"


OF_RUN_SH = {  # names in its help that are not commands
    "(none)",
    "test",
    "lint",
    "docs",
    "setup",
    "setup-horovod",
    "setup-frameworks",
    "PYTHON",
    "VENV",
    "SETUP_TIMEOUT",
    "CC",
    "RNN_SCALING_OPERATORS",
}


def run_sh(*words):
    return subprocess.run(
        [ROOT / "run.sh", *words], capture_output=True, text=True, timeout=60
    )


def program(*words):
    return python("from rnn_scaling import __main__ as m; m.console()", *words)


def read_help_page(page):
    """Return {title: {name: text}} of a help page with indented lines below titles."""
    groups = {}
    title = ""
    for line in page.splitlines():
        if line and not line.startswith(" "):
            title = line
        elif line[2:3].strip():
            name, text = line.split(maxsplit=1)
            groups.setdefault(title, {})[name] = text.rstrip()
    return groups


@pytest.mark.parametrize("door", [program, run_sh])
def test_help_has_every_command_once_in_its_group(door):
    groups = read_help_page(door("--help").stdout)
    commands = {title: groups[title] for title in GROUPS}
    assert commands == GROUPS
    assert [title for title in groups if title in GROUPS] == list(GROUPS)
    names = [name for commands in groups.values() for name in commands]
    assert len(names) == len(set(names))
    assert set(names) - set(COMMANDS) <= OF_RUN_SH


def test_run_sh_refuses_a_command_that_does_not_exist():
    for name in ("sweep train", "-n", "*"):
        done = run_sh(name)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert done.stderr.startswith(f"error: {name} is not a command")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("door", [program, run_sh])
def test_an_old_name_prints_what_to_type_instead(door):
    endings = ([], ["--help"], ["--no_such_flag=1", "--", "--seed=1"])
    for (name, new_words), words in zip(RENAMED.items(), endings):
        command = new_words.split()[0]
        done = door(name, *words)
        assert (done.returncode, done.stdout) == (2, ""), name
        assert done.stderr.startswith(f"error: {name} is now part of {command}; ")
        assert done.stderr.endswith(f" {new_words}\n")


@pytest.mark.parametrize("name", RENAMED)
def test_what_replaces_an_old_name_exists(name, capsys):
    command, *flags_and_words = RENAMED[name].split()
    assert name not in COMMANDS and command in COMMANDS
    assert __main__.main([command, "--help=all"]) == 0
    help_text = capsys.readouterr().out
    for word in flags_and_words:
        if word.startswith("--"):
            assert f"  {word.partition('=')[0]}=" in help_text


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_into_80_columns(command, capsys):
    assert __main__.main([command, "--help=all"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


@pytest.mark.parametrize("command", ["report", "compare", "sweep"])
def test_an_error_with_a_very_long_value_is_shortened(command, capsys):
    name = "x" * 100_000
    module = importlib.import_module(name_module(command))
    words = {
        "compare": [name, "."],
        "report": [name],
        "sweep": [f"--out={name}", "--dry_run", "--num_devices=1"],
    }
    assert module.main(words[command]) == 2
    line, *more_lines = capsys.readouterr().err.splitlines()
    assert len(more_lines) == (command == "compare")  # one line per side
    assert line.startswith("error: xxx") and ": File name too long" in line
    assert len(line) < 5000
    assert module.main([f"--max_file_mb={name}"]) == 2
    assert "must be a whole number" in capsys.readouterr().err


CAUSE = "Collective ops is aborted by: failed to connect to 10.0.0.2:25001"
GRAPH_ERROR = f"""\
Graph execution error:

Detected at node sum/Reduce defined at (most recent call last):
  File "/a/threading.py", line 1002, in _bootstrap
    self._bootstrap_inner()

{CAUSE}
Restart your program.
\t [[{{{{node sum}}}}]]"""


@pytest.mark.parametrize(
    "error, line",
    [
        (OSError(), "OSError"),
        (ValueError(" \n"), "ValueError"),
        (ValueError("a\nb"), "a"),
        (RuntimeError("Graph execution error:"), "Graph execution error:"),
        (RuntimeError(GRAPH_ERROR), CAUSE),
    ],
)
def test_the_line_of_an_error_is_its_message_its_type_or_the_cause_in_a_graph(
    error, line
):
    assert entry.find_first_line(error) == line


def test_a_file_is_not_called_missing_where_a_folder_is_needed(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(entry.Refusal) as refusal:
        entry.require_folders([tmp_path, file, tmp_path / "no"])
    of_file, of_missing = refusal.value.lines
    assert of_file.startswith(f"{file} is not a folder")
    assert of_missing.startswith(f"{tmp_path / 'no'} does not exist")
