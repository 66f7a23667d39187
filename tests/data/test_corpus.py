"""The check of text files: the faults that it finds, and their messages."""

import contextlib
import dataclasses
import os
import random

import pytest

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data import corpus
from rnn_scaling.models.batch import Side

SRC = b"one two\nthree\n"
TGT = b"eins zwei\ndrei\n"
SRC_VOCAB = b"<unk>\n<s>\n</s>\none\ntwo\n"
TGT_VOCAB = b"<unk>\n<s>\n</s>\neins\n"
FILES = {"a.src": SRC, "a.tgt": TGT, "v.src": SRC_VOCAB, "v.tgt": TGT_VOCAB}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """Write four good files to the current folder; return options with their names."""
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        put(name, content)
    return DataOptions(
        data_source="text",
        src_file_name="a.src",
        tgt_file_name="a.tgt",
        src_vocab_file="v.src",
        tgt_vocab_file="v.tgt",
    )


def check(data, src_vocab_size=100, tgt_vocab_size=100):
    return corpus.check(
        data, (Side("src", src_vocab_size, False), Side("tgt", tgt_vocab_size, True))
    )


def find_error(data, **sizes):
    with pytest.raises(corpus.DataError) as caught:
        check(data, **sizes)
    message = str(caught.value)
    assert "\n" not in message and "; " in message
    return message


def put(name, content):
    with open(name, "wb") as file:
        file.write(content)


def test_a_good_corpus(data):
    checked = check(data)
    assert checked.num_pairs == 2
    assert checked.sides[0].words == (b"<unk>", b"<s>", b"</s>", b"one", b"two")
    assert [(side.bos_id, side.eos_id) for side in checked.sides] == [(None, 2), (1, 2)]


def test_only_the_first_words_of_a_vocabulary_count(data):
    put("v.src", SRC_VOCAB + b"\none\n\xff\n")  # the faults are beyond the size
    assert check(data, src_vocab_size=5).sides[0].words[-1] == b"two"


def test_both_sides_may_have_one_vocabulary(data):
    sides = Side("src", 100, False, vocabulary="tgt"), Side("tgt", 100, True)
    checked = corpus.check(dataclasses.replace(data, src_vocab_file=""), sides)
    assert checked.sides[0].words == checked.sides[1].words
    put("v.tgt", TGT_VOCAB.replace(b"</s>\n", b""))
    with pytest.raises(corpus.DataError, match="--tgt_vocab_size"):
        corpus.check(data, sides)


def test_crlf_and_no_last_newline(data):
    expected = check(data)
    for name, content in FILES.items():
        put(name, content.replace(b"\n", b"\r\n")[:-2])
    assert check(data) == expected


@pytest.mark.parametrize(
    "field", ["src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file"]
)
def test_a_file_that_cannot_be_read(data, field, tmp_path):
    os.symlink("loop", "loop")
    for path in ("gone", ".", "", "loop"):
        message = find_error(dataclasses.replace(data, **{field: path}))
        assert message.startswith(f"--{field}={path} cannot be read")


@pytest.mark.parametrize(
    "name, content, start",
    [
        ("a.src", b"", "a.src: the file is empty;"),
        ("v.tgt", b"", "v.tgt: the file is empty;"),
        ("a.src", SRC + b"four\n", "a.src: 3 lines, and a.tgt: 2 lines;"),
        ("a.src", b"one\n\xff\n", "a.src:2: the line is not UTF-8"),
        ("a.tgt", b"\xed\xa0\x80\n\n", "a.tgt:1: the line is not UTF-8"),
        (
            "a.src",
            b"\xef\xbb\xbf" + SRC,
            "a.src:1: the file starts with a byte order mark;",
        ),
        ("a.src", b" \n\t\r\n", "a.src: no line has a word both here and in a.tgt;"),
        ("v.src", b"a\n\nb\n", "v.src:2: the line is empty;"),
        ("v.src", b"a\nb c\n", "v.src:2: 'b c' contains a blank"),
        ("v.src", b"a\rb\n", "v.src:1: 'a\\rb' contains a blank"),
        ("v.src", b"a\nb\na\n", "v.src:3: the word 'a' is already on line 1;"),
    ],
)
def test_a_fault_is_named_with_its_line(data, name, content, start):
    put(name, content)
    assert find_error(data).startswith(start)


def test_blanks_beyond_ascii_belong_to_words(data):
    put("v.src", "</s>\na\u00a0b\nc\u2028d\n".encode())
    assert len(check(data).sides[0].words) == 3


@pytest.mark.parametrize(
    "changes, sizes, start, remedy",
    [
        (
            {},
            {"src_vocab_size": 2},
            "v.src: '</s>' is not in the first 2 lines, but --eos names it;",
            "raise --src_vocab_size",
        ),
        (
            {"bos": "a\nb\udcff"},
            {},
            "v.tgt: 'a\\nb\\udcff' is not in the first 4 lines,",
            "--bos names it",
        ),
        (
            {"unk_id": 7},
            {"tgt_vocab_size": 7},
            "v.tgt: --unk_id=7 is not an id of this vocabulary;",
            "--tgt_vocab_size=7",
        ),
    ],
)
def test_special_words(data, changes, sizes, start, remedy):
    message = find_error(dataclasses.replace(data, **changes), **sizes)
    assert message.startswith(start) and remedy in message


def test_the_target_vocabulary_needs_eos_and_the_source_s_needs_no_bos(data):
    put("v.src", SRC_VOCAB.replace(b"<s>\n", b""))
    assert check(data).sides[0].eos_id == 1
    put("v.tgt", TGT_VOCAB.replace(b"</s>\n", b""))
    assert find_error(data).startswith("v.tgt: '</s>' is not in")


def test_a_line_that_is_too_long_is_named(data, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 6)
    draw = random.Random(1)
    for _ in range(200):
        lengths = [4, *draw.choices((0, 1, 5, 6, 6, 6, 6, 6, 6, 7, 20), k=9)]
        lines = [b"x" * length for length in lengths]
        put("a.src", b"\n".join(lines) + draw.choice((b"\n", b"")))
        too_long = [number for number, length in enumerate(lengths, 1) if length > 6]
        expectation = contextlib.nullcontext()
        if too_long:
            line = f"^a.src:{too_long[0]}: the line has more than 6 bytes; expected"
            expectation = pytest.raises(corpus.DataError, match=line)
        with expectation:
            corpus.count_lines("a.src", flag="src_file_name")


def test_a_vocabulary_of_one_endless_line_is_refused_at_its_start(data):
    with open("v.src", "wb") as file:
        file.truncate(1 << 40)  # holes: takes no room, and would not fit the memory
    assert find_error(data).startswith("v.src:1: the line has more than 65,536")


def test_files_that_change_are_named(data):
    def append():
        with open("a.src", "a") as file:
            file.write("more\n")

    changes = (append, lambda: os.utime("a.src", (1, 1)), lambda: os.remove("a.src"))
    for change in changes:
        stamps = {path: corpus.read_stamp(path) for path in ("a.tgt", "a.src")}
        assert corpus.describe_changes(stamps) == ""
        change()
        assert corpus.describe_changes(stamps).startswith("a.src changed during ")
