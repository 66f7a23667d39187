"""The command line is strict, and all its errors are reported at once."""

from __future__ import annotations

import dataclasses
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


def parse(*words):
    return flags.parse(list(words), OPTIONS)


def list_errors(*words):
    with pytest.raises(flags.FlagErrors) as error:
        parse(*words)
    return error.value.lines


def test_booleans_are_strict():
    for words, value in (("=false", False), ("=true", True), ("", True)):
        assert parse(f"--xla{words}") == {"xla": value}
    assert parse("--noxla") == {"xla": False}
    assert list_errors("--xla=maybe") == ["--xla=maybe must be true or false"]


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_a_flag_and_is_explained(name):
    texts = {"int": "3", "float": "0.5", "bool": "true", "str": "word"}
    text = texts[flags.find_kind(OPTIONS[name])]
    assert list(parse(f"--{name}={text}")) == [name]
    page = flags.make_help_page("usage", configs.GROUPS, "train").text("all")
    assert f"--{name}=" in page
    assert len(OPTIONS[name].metadata["help"]) > 15


def test_num_gpus_is_num_devices():
    assert parse("--num_gpus=3") == {"num_devices": 3}
    [line] = list_errors("--num_gpus=3", "--num_devices=2")
    assert line.startswith("--num_gpus=3 and --num_devices=2 ")


def test_all_errors_are_reported_at_once():
    lines = list_errors(
        "--num_devics=3", "--num_units=many", "word", "--learning_rate=fast", "--xla"
    )
    units, rate, devices, word = lines
    assert units == "--num_units=many must be a whole number"
    assert rate == "--learning_rate=fast must be a number"
    assert devices.startswith("--num_devics is not a flag; ")
    assert devices.endswith(" --num_devices?")
    assert word.startswith("unexpected word 'word'; ")


def test_a_flag_without_its_value_is_an_error():
    units, xla = list_errors("--xla=2", "--num_units")
    assert units.startswith("--num_units needs a value: ")
    assert xla.startswith("--xla=2 ")


def test_flagfile_is_read_and_later_flags_win(tmp_path):
    path = tmp_path / "flags.txt"
    path.write_text("# comment\n--num_units=12\n--xla=true\n")
    values = parse(f"--flagfile={path}", "--num_units=13")
    assert values == {"num_units": 13, "xla": True}
    [line] = list_errors("--flagfile=missing.txt")
    assert line.startswith("--flagfile=missing.txt: No such")


def test_a_flagfile_may_contain_another_file_but_not_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("outer").write_bytes(
        b"\xef\xbb\xbf--num_units=1\r\n--flagfile=inner\n// --xla=x\n"
    )
    Path("inner").write_bytes(b"--src_file_name=\xff\n--num_units=2")
    values = parse("--flagfile", "outer", "--xla=true")
    assert values == {"num_units": 2, "src_file_name": "\udcff", "xla": True}
    Path("inner").write_text("--flagfile=./outer")
    [line] = list_errors("--flagfile=outer")
    assert line.startswith("--flagfile=./outer contains itself")


def test_max_file_mb_limits_the_files_that_are_read(tmp_path):
    Path(tmp_path, "x").write_bytes(b"x" * 1_000_001)
    flags.read(["--max_file_mb=1"], "usage", Nothing, "none")
    with pytest.raises(OSError, match="--max_file_mb=2 raises it"):
        input_files.read_bytes(tmp_path / "x")
    flags.read([], "usage", Nothing, "none")
    assert len(input_files.read_bytes(tmp_path / "x")) == 1_000_001


def test_lists_for_sweeps():
    words = ["--num_units=1,2", "--xla=true,false", "--encoder_type=uni"]
    lists = flags.parse(words, OPTIONS, lists=True)
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

    source: Path = flags.declare_positional("what is copied", shown="FROM")
    target: Path = flags.declare_positional("where it goes", shown="TO")
    from_: int = option(0, "first line", minimum=0, maximum=99)
    bits: int = option(8, "width", parse=number_of_bits, shown="BITS")
    only: str = option("", "names, or all", bare=True)
    mode: str = option("fast", "how", choices=("fast", "safe"))


@dataclasses.dataclass(frozen=True)
class Count:
    """Count."""

    files: tuple[Path, ...] = flags.declare_positional(
        "what is counted", shown="FILE", is_list=True
    )


def list_refusals(group, *words):
    with pytest.raises(flags.FlagErrors) as error:
        flags.read(words, "", group, "x")
    return error.value.lines


def test_plain_words_are_positionals_in_order():
    words = ["a", "--from=3", "--bits", "16b", "b", "--only", "--mode=safe"]
    copy = flags.read(words, "", Copy, "copy")
    assert copy == Copy(Path("a"), Path("b"), 3, 16, "true", "safe")
    copy = flags.read(["a", "--", "--from"], "", Copy, "copy")
    assert copy == Copy(Path("a"), Path("--from"))
    count = flags.read(["a", "b", "-"], "", Count, "count")
    assert count == Count((Path("a"), Path("b"), Path("-")))


def test_missing_and_unexpected_words_are_errors():
    lines = list_refusals(
        Copy, "a", "--form=1", "--from=100", "--bits=x", "--mode=slow"
    )
    bits, form, words, number, mode = lines
    assert bits == "--bits=x must be a number of bits, as 8b"
    assert form.startswith("--form ") and form.endswith(" --from?")
    assert words.startswith("expected FROM TO, got a; ")
    assert number == "--from=100 must be at most 99"
    assert mode.startswith("--mode=slow ") and mode.endswith("fast, safe")
    mode, words = list_refusals(Copy, "a", "b", "c", "--mode")
    assert mode.startswith("--mode needs a value")
    assert words.startswith("expected FROM TO, got a b c")
    [line] = list_refusals(Count)
    assert line.startswith("expected FILE [FILE ...], got nothing; ")


def test_the_help_follows_from_the_declarations(monkeypatch):
    monkeypatch.setattr(entry, "_program", "rnn-scaling")
    usage = "Copies.\n\n    ./run.sh copy a b\n\nExit status: 0."
    with pytest.raises(entry.Answer) as answer:
        flags.read(["a", "--help"], usage, Copy, "copy")
    page = str(answer.value)
    assert page.startswith("rnn-scaling copy FROM TO [--name=value ...]\n\nCopies.\n")
    for lines in (
        "\n    rnn-scaling copy a b\n",
        "\n  FROM\n      what is copied\n",
        "\n  --from=N\n      first line (default: 0)\n",
        "\n  --bits=BITS\n      width (default: 8)\n",
        "\n  --mode=fast|safe\n      how (default: fast)\n",
        "\n  --max_file_mb=N\n",
    ):
        assert lines in page


@pytest.mark.parametrize(
    "text, value", [("5%", 0.05), ("0.05", 0.05), (" 2.5 % ", 0.025), ("0", 0.0)]
)
def test_a_share_is_a_percentage_or_a_fraction(text, value):
    assert flags.share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["5", "-1%", "nan", "%", "100%", ""])
def test_other_texts_are_not_shares(text):
    with pytest.raises(ValueError, match="a share from 0 to below 1"):
        flags.share(text)


def topic(name):
    return flags.make_help_page("Trains.", configs.GROUPS, "train").text(name)


def test_the_first_screen_of_help_fits_a_terminal():
    lines = topic("").splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert all(f"  {name} " in topic("") for name in configs.GROUPS)
    assert set(re.findall(r"^  --(\w+)", topic(""), re.MULTILINE)) <= OPTIONS.keys()
    assert max(map(len, topic("all").splitlines())) <= 80


def test_help_explains_a_group_or_a_flag():
    measure = topic("measure")
    assert "--num_batches=" in measure and "--model=" not in measure
    assert topic("xla").startswith("  --xla=true|false\n")
    assert topic("--xla") == topic("xla")
    with pytest.raises(entry.Refusal, match=r"encodr_type.* encoder_type"):
        topic("encodr_type")
