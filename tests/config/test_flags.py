"""The command line: strict, complete, and every mistake named at once."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.models.config import option
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files


@dataclasses.dataclass(frozen=True)
class Nothing:
    """A command without options."""


BOOLEAN = "must be true or false"


def parse(*words):
    return flags.parse(list(words), OPTIONS)


def errors(*words):
    with pytest.raises(flags.FlagErrors) as error:
        parse(*words)
    return error.value.lines


@pytest.mark.parametrize(
    "name", [n for n, f in OPTIONS.items() if flags.kind_of(f) == "bool"]
)
def test_booleans_are_strict(name):
    assert parse(f"--{name}=false") == {name: False}
    assert parse(f"--{name}=true") == {name: True}
    assert parse(f"--{name}") == {name: True}
    assert parse(f"--no{name}") == {name: False}
    assert errors(f"--{name}=maybe") == [f"--{name}=maybe {BOOLEAN}"]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_a_flag_and_is_explained(name):
    text = {"int": "3", "float": "0.5", "bool": "true", "str": "word"}[
        flags.kind_of(OPTIONS[name])
    ]
    assert list(parse(f"--{name}={text}")) == [name]
    page = flags.help_page("usage", configs.GROUPS, "train").text("all")
    assert f"--{name}=" in page
    assert len(OPTIONS[name].metadata["help"]) > 15


def test_num_gpus_is_num_devices():
    assert parse("--num_gpus=3") == {"num_devices": 3}
    (line,) = errors("--num_gpus=3", "--num_devices=2")
    assert line.startswith("--num_gpus=3 and --num_devices=2 ")


def test_every_mistake_is_named_at_once():
    lines = errors(
        "--num_devics=3", "--num_units=many", "--xla=2", "word", "--learning_rate=fast"
    )
    units, xla, rate, devices, stray = lines
    assert (
        units == "--num_units=many must be a whole number"
        and xla == f"--xla=2 {BOOLEAN}"
    )
    assert rate == "--learning_rate=fast must be a number"
    assert devices.startswith("--num_devics is not a flag; ") and devices.endswith(
        " --num_devices?"
    )
    assert stray.startswith("unexpected word 'word'; ")


def test_a_flag_without_its_value_is_an_error():
    units, xla = errors("--xla=2", "--num_units")
    assert (
        units.startswith("--num_units needs a value: ") and xla == f"--xla=2 {BOOLEAN}"
    )


def test_flagfile_is_read_and_later_flags_win(tmp_path):
    path = tmp_path / "flags.txt"
    path.write_text("# comment\n--num_units=12\n--xla=true\n")
    assert parse(f"--flagfile={path}", "--num_units=13") == {
        "num_units": 13,
        "xla": True,
    }
    (line,) = errors("--flagfile=missing.txt")
    assert line.startswith("--flagfile=missing.txt: No such")


def test_a_flagfile_may_name_another_but_not_itself_and_must_be_a_file(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("outer").write_bytes(
        b"\xef\xbb\xbf--num_units=1\r\n--flagfile=inner\n// --xla=x\n"
    )
    Path("inner").write_bytes(b"--src_file_name=\xff\n--num_units=2")
    assert parse("--flagfile", "outer", "--xla=true") == {
        "num_units": 2,
        "src_file_name": "\udcff",
        "xla": True,
    }
    Path("inner").write_text("--flagfile=./outer")
    (line,) = errors("--flagfile=outer")
    assert line.startswith("--flagfile=./outer names itself")
    os.mkfifo("pipe")
    (line,) = errors("--flagfile=pipe")
    assert line.startswith("--flagfile=pipe: a named pipe")
    assert (
        errors("--flagfile")
        == errors("--flagfile=")
        == ["--flagfile needs a value: --flagfile=..."]
    )
    (line,) = errors("--", "--flagfile=pipe")
    assert line.startswith("unexpected word '--flagfile=pipe'")


def test_how_large_files_may_be_is_told_to_the_door(tmp_path):
    Path(tmp_path, "x").write_bytes(b"x" * 1_000_001)
    flags.read(["--max_file_mb=1"], "usage", Nothing, "none")
    with pytest.raises(OSError, match="--max_file_mb=2 reads it"):
        input_files.read_bytes(tmp_path / "x")
    flags.read([], "usage", Nothing, "none")
    assert len(input_files.read_bytes(tmp_path / "x")) == 1_000_001


def test_lists_for_sweeps():
    lists = flags.parse(
        ["--num_units=1,2", "--xla=true,false", "--encoder_type=uni"],
        OPTIONS,
        lists=True,
    )
    assert lists == {"num_units": [1, 2], "xla": [True, False], "encoder_type": ["uni"]}
    with pytest.raises(flags.FlagErrors, match="--num_units=x must be a whole number"):
        flags.parse(["--num_units=1,x"], OPTIONS, lists=True)


def number_of_bits(text):
    if not text.endswith("b"):
        raise ValueError("a number of bits, as 8b")
    return int(text[:-1])


@dataclasses.dataclass(frozen=True)
class Copy:
    """Copy."""

    source: Path = flags.positional("what is copied", shown="FROM")
    target: Path = flags.positional("where it goes", shown="TO")
    from_: int = option(0, "first line", minimum=0, maximum=99)
    bits: int = option(8, "width", parse=number_of_bits, shown="BITS")
    only: str = option("", "names, or all", bare=True)
    mode: str = option("fast", "how", choices=("fast", "safe"))


@dataclasses.dataclass(frozen=True)
class Count:
    """Count."""

    files: tuple[Path, ...] = flags.positional(
        "what is counted", shown="FILE", several=True
    )


def refused(group, *words):
    with pytest.raises(flags.FlagErrors) as error:
        flags.read(words, "", group, "x")
    return error.value.lines


def test_plain_words_are_positionals_in_order():
    made = flags.read(
        ["a", "--from=3", "--bits", "16b", "b", "--only", "--mode=safe"],
        "",
        Copy,
        "copy",
    )
    assert made == Copy(Path("a"), Path("b"), 3, 16, "true", "safe")
    assert flags.read(["a", "--", "--from"], "", Copy, "copy") == Copy(
        Path("a"), Path("--from")
    )
    assert flags.read(["a", "b", "-"], "", Count, "count") == Count(
        (Path("a"), Path("b"), Path("-"))
    )


def test_missing_and_stray_words_are_named_with_everything_else():
    lines = refused(Copy, "a", "--form=1", "--from=100", "--bits=x", "--mode=slow")
    bits, form, words, number, mode = lines
    assert bits == "--bits=x must be a number of bits, as 8b"  # as its parser says
    assert (
        form.startswith("--form ")
        and form.endswith(" --from?")
        and words.startswith("expected FROM TO, got a; ")
    )
    assert (
        number == "--from=100 must be at most 99"
        and mode.startswith("--mode=slow ")
        and mode.endswith("fast, safe")
    )
    mode, words = refused(Copy, "a", "b", "c", "--mode")
    assert mode.startswith("--mode needs a value") and words.startswith(
        "expected FROM TO, got a b c"
    )
    assert [line.split(",")[0] for line in refused(Count)] == [
        "expected FILE [FILE ...]"
    ]


def test_the_help_page_is_made_of_the_declarations(monkeypatch):
    monkeypatch.setattr(entry, "_program", "rnn-scaling")
    usage = "Copies.\n\n    ./run.sh copy a b\n\nExit status: 0."
    with pytest.raises(entry.Answer) as answer:
        flags.read(["a", "--help"], usage, Copy, "copy")
    page = str(answer.value)
    assert page.startswith("rnn-scaling copy FROM TO [--name=value ...]\n\nCopies.\n")
    assert "\n    rnn-scaling copy a b\n" in page
    assert "\n  FROM\n      what is copied\n" in page
    assert "\n  --from=N\n      first line (default: 0)\n" in page
    assert "\n  --bits=BITS\n      width (default: 8)\n" in page
    assert "\n  --mode=fast|safe\n      how (default: fast)\n" in page
    assert "\n  --max_file_mb=N\n" in page


@pytest.mark.parametrize(
    "text, value", [("5%", 0.05), ("0.05", 0.05), (" 2.5 % ", 0.025), ("0", 0.0)]
)
def test_a_share_is_a_percentage_or_a_fraction(text, value):
    assert flags.share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["5", "-1%", "nan", "%", "100%", ""])
def test_what_is_no_share_is_refused(text):
    with pytest.raises(ValueError, match="a share from 0 to below 1"):
        flags.share(text)


def topic(name):
    return flags.help_page("Trains.", configs.GROUPS, "train").text(name)


def test_the_first_screen_of_help_fits_a_terminal():
    lines = topic("").splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert all(f"  {name} " in topic("") for name in configs.GROUPS)
    assert set(re.findall(r"^  --(\w+)", topic(""), re.MULTILINE)) <= OPTIONS.keys()
    assert max(map(len, topic("all").splitlines())) <= 80


def test_help_explains_a_group_or_a_flag():
    assert "--num_batches=" in topic("measure") and "--model=" not in topic("measure")
    assert topic("xla").startswith("  --xla=true|false\n") and topic("--xla") == topic(
        "xla"
    )
    with pytest.raises(entry.Refusal, match=r"encodr_type.* encoder_type"):
        topic("encodr_type")
