"""The command line: strict, complete, and every mistake named at once."""

from __future__ import annotations

import pytest

from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags
from rnn_scaling.settings.config import OPTIONS


def parse(*words):
    return flags.parse(list(words), OPTIONS)


def errors(*words):
    with pytest.raises(flags.FlagErrors) as error:
        parse(*words)
    return error.value.lines


@pytest.mark.parametrize("name", [n for n, f in OPTIONS.items() if flags.kind_of(f) == "bool"])
def test_booleans_are_strict(name):
    assert parse(f"--{name}=false") == {name: False}
    assert parse(f"--{name}=true") == {name: True}
    assert parse(f"--{name}") == {name: True}
    assert parse(f"--no{name}") == {name: False}
    assert errors(f"--{name}=maybe") == [f"--{name}=maybe must be true or false"]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_a_flag_and_is_explained(name):
    text = {"int": "3", "float": "0.5", "bool": "true", "str": "word"}[flags.kind_of(OPTIONS[name])]
    assert list(parse(f"--{name}={text}")) == [name]
    page = flags.help_text("usage", configs.GROUPS)
    assert f"--{name}=" in page
    assert len(OPTIONS[name].metadata["help"]) > 15


def test_num_gpus_is_num_devices():
    assert parse("--num_gpus=3") == {"num_devices": 3}
    assert errors("--num_gpus=3", "--num_devices=2") == [
        "--num_gpus=3 and --num_devices=2 name the same option; give one of them"
    ]


def test_every_mistake_is_named_at_once():
    assert errors("--num_devics=3", "--num_units=many", "--xla=2", "word", "--learning_rate=fast") == [
        "--num_units=many must be a whole number",
        "--xla=2 must be true or false",
        "--learning_rate=fast must be a number",
        "--num_devics is not a flag; did you mean --num_devices?",
        "unexpected word 'word'; options are written --name=value",
    ]


def test_a_flag_without_its_value_is_an_error():
    assert len(errors("--num_units")) == 1


def test_flagfile_is_read_and_later_flags_win(tmp_path):
    path = tmp_path / "flags.txt"
    path.write_text("# comment\n--num_units=12\n--xla=true\n")
    assert parse(f"--flagfile={path}", "--num_units=13") == {"num_units": 13, "xla": True}
    (line,) = errors("--flagfile=missing.txt")
    assert "missing.txt" in line


def test_lists_for_sweeps():
    lists = flags.parse(["--num_units=1,2", "--xla=true,false", "--encoder_type=uni"], OPTIONS, lists=True)
    assert lists == {"num_units": [1, 2], "xla": [True, False], "encoder_type": ["uni"]}
    with pytest.raises(flags.FlagErrors, match="--num_units=x must be a whole number"):
        flags.parse(["--num_units=1,x"], OPTIONS, lists=True)
