"""The command of --trainer, and wrong ones."""

from __future__ import annotations

import pytest

from rnn_scaling.commands import verify
from rnn_scaling.verification.scripts import runner, script_command


def test_a_command_has_a_python_a_script_and_arguments():
    found = script_command.parse("env A=1 python3 -u -W ignore my.py --n={num_devices}")
    assert found.python == ["env", "A=1", "python3", "-u", "-W", "ignore"]
    assert found.script_words(4) == ["my.py", "--n=4"]
    assert script_command.parse("python -m package.main x").script_words(2) == [
        "-m",
        "package.main",
        "x",
    ]


@pytest.mark.parametrize(
    ("options", "python", "script"),
    [
        ("-um train x", ["-u"], ["-m", "train", "x"]),
        ("-mtrain", [], ["-m", "train"]),
        ("-uBmtrain x", ["-uB"], ["-m", "train", "x"]),
        ("-Wignore -uX dev my.py", ["-Wignore", "-uX", "dev"], ["my.py"]),
        (
            "--check-hash-based-pycs never my.py -c 1",
            ["--check-hash-based-pycs", "never"],
            ["my.py", "-c", "1"],
        ),
    ],
)
def test_options_of_python_are_read_as_python_reads_them(options, python, script):
    found = script_command.parse(f"pypy3.11 {options}")
    assert found.python == ["pypy3.11", *python]
    assert found.script == script


@pytest.mark.parametrize(
    "text",
    [
        "",
        "python3",
        "python3 -m",
        "python3 -um",
        "python3 -",
        "python3 -c 'import x'",
        "python3 -uc 'import x'",
        "python3 -cimport",
        "python-config my.py",
        "pythonw.sh my.py",
        "./program",
        "torchrun --nproc_per_node=2 my.py",
        "python3 -m torch.distributed.run my.py",
        "python3 -umtorch.distributed.run my.py",
        "accelerate launch my.py",
        'python3 "my.py',
    ],
)
def test_a_command_that_is_not_a_script_of_one_process_is_refused(text):
    with pytest.raises(ValueError):
        script_command.parse(text)


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--trainer=torchrun my.py"], "torchrun"),
        (["--trainer=python3 my.py", "--num_devices=1"], "--num_devices=1"),
        (["--trainer=python3 my.py", "--num_devices=2,4"], "--num_devices=2,4"),
        (["--trainer=python3 my.py", "--num_steps=0"], "--num_steps=0"),
        (["--trainer=python3 my.py", "--batch_size=3"], "--batch_size"),
        (["--reference=--accum=1"], "--trainer"),
        (["--check=nowhere.json"], "--check=nowhere.json"),
    ],
)
def test_wrong_flags_are_named(words, flag, capsys):
    assert verify.main(words) == 2
    assert flag in capsys.readouterr().err


def test_the_error_ends_the_log_even_if_hints_follow_it(tmp_path):
    log = tmp_path / "rank0.log"
    log.write_text("epoch 1\nValueError: no data\n" + "a hint\n" * 9)
    assert runner._last_lines(log)[-1] == "ValueError: no data"
    log.write_text("epoch 1\nno data\n")
    assert runner._last_lines(log)[-1] == "no data"
