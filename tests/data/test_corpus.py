"""What the check refuses, and what it says."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys

import pytest

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data import corpus
from rnn_scaling.models.batch import Side

SRC = b"one two\nthree\n"
TGT = b"eins zwei\ndrei\n"
SRC_VOCAB = b"<unk>\n<s>\n</s>\none\ntwo\n"
TGT_VOCAB = b"<unk>\n<s>\n</s>\neins\n"


@pytest.fixture
def data(tmp_path, monkeypatch) -> DataOptions:
    """Options that name four good files in the current folder."""
    monkeypatch.chdir(tmp_path)
    for name, content in {
        "a.src": SRC,
        "a.tgt": TGT,
        "v.src": SRC_VOCAB,
        "v.tgt": TGT_VOCAB,
    }.items():
        (tmp_path / name).write_bytes(content)
    return DataOptions(
        data_source="text",
        src_file_name="a.src",
        tgt_file_name="a.tgt",
        src_vocab_file="v.src",
        tgt_vocab_file="v.tgt",
    )


def check(
    data: DataOptions, src_vocab_size: int = 100, tgt_vocab_size: int = 100
) -> corpus.Corpus:
    return corpus.check(
        data, (Side("src", src_vocab_size, False), Side("tgt", tgt_vocab_size, True))
    )


def error_of(data: DataOptions, **sizes: int) -> str:
    with pytest.raises(corpus.DataError) as caught:
        check(data, **sizes)
    message = str(caught.value)
    assert "\n" not in message and "; expected" in message
    return message


def put(name: str, content: bytes) -> None:
    with open(name, "wb") as file:
        file.write(content)


def test_a_good_corpus(data):
    checked = check(data)
    assert checked.num_pairs == 2
    assert checked.sides[0].words == (b"<unk>", b"<s>", b"</s>", b"one", b"two")
    assert [(side.bos_id, side.eos_id) for side in checked.sides] == [(None, 2), (1, 2)]


def test_pairs_with_an_empty_side_are_no_samples(data):
    put("a.src", b"one\n \ntwo\none\n")
    put("a.tgt", b"eins\neins\n\t\r\neins\n")
    assert check(data).num_pairs == 2


def test_only_the_first_words_of_a_vocabulary_count(data):
    put("v.src", SRC_VOCAB + b"\none\n\xff\n")  # bad lines, none of which is read
    assert check(data, src_vocab_size=5).sides[0].words[-1] == b"two"


def test_both_sides_may_have_one_vocabulary(data):
    sides = Side("src", 100, False, vocabulary="tgt"), Side("tgt", 100, True)
    checked = corpus.check(dataclasses.replace(data, src_vocab_file=""), sides)
    assert checked.sides[0].words == checked.sides[1].words
    put("v.tgt", TGT_VOCAB.replace(b"</s>\n", b""))
    with pytest.raises(corpus.DataError, match="--tgt_vocab_size"):
        corpus.check(data, sides)


def test_crlf_and_no_last_newline(data):
    for name, content in {
        "a.src": SRC,
        "a.tgt": TGT,
        "v.src": SRC_VOCAB,
        "v.tgt": TGT_VOCAB,
    }.items():
        put(name, content.replace(b"\n", b"\r\n")[:-2])
    assert check(data) == check(data)
    assert check(data).num_pairs == 2
    assert check(data).sides[1].words == (b"<unk>", b"<s>", b"</s>", b"eins")


@pytest.mark.parametrize(
    "field", ["src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file"]
)
def test_a_file_that_cannot_be_read(data, field, tmp_path):
    for path, found in (
        ("gone", "gone: cannot be read (No such"),
        (".", ".: cannot be read (a folder"),
        ("", "(no name): "),
    ):
        message = error_of(dataclasses.replace(data, **{field: path}))
        assert message.startswith(found)
        assert f"expected --{field} to name a file" in message


def test_a_loop_of_links_is_an_error_of_ours(data):
    os.symlink("loop", "loop")
    assert "cannot be read" in error_of(dataclasses.replace(data, src_file_name="loop"))


@pytest.mark.parametrize(
    "name,content,message",
    [
        ("a.src", b"", "a.src: an empty file; expected sentences, one a line"),
        ("v.tgt", b"", "v.tgt: an empty file; expected a vocabulary, a word a line"),
        (
            "a.src",
            SRC + b"four\n",
            "a.src: 3 lines, and a.tgt: 2 lines; expected equally many, line by line translations",
        ),
        (
            "a.src",
            b"one\n\xff\n",
            "a.src:2: bytes that are not UTF-8 (invalid start byte); expected UTF-8",
        ),
        (
            "a.tgt",
            b"\xed\xa0\x80\n\n",
            "a.tgt:1: bytes that are not UTF-8 (invalid continuation byte); expected UTF-8",
        ),
        (
            "a.src",
            b"\xef\xbb\xbf" + SRC,
            "a.src:1: a byte order mark; expected UTF-8 without one: tail -c +4 removes it",
        ),
        ("a.src", b" \t\nthree\n", "OK"),
        (
            "a.src",
            b" \n\t\r\n",
            "a.src: no line that has a word here and in a.tgt; expected at least one such pair",
        ),
        ("v.src", b"a\n\nb\n", "v.src:2: an empty line; expected one word a line"),
        (
            "v.src",
            b"a\nb c\n",
            "v.src:2: 'b c' has a blank in it; expected one word a line",
        ),
        (
            "v.src",
            b"a\rb\n",
            "v.src:1: 'a\\rb' has a blank in it; expected one word a line",
        ),
        (
            "v.src",
            b"a\nb\na\n",
            "v.src:3: the word 'a' again, which line 1 has; expected each word once",
        ),
        ("v.src", "</s>\na\u00a0b\nc\u2028d\n".encode(), "OK"),
    ],
)
def test_what_is_found_is_named(data, name, content, message):
    put(name, content)
    if message == "OK":
        check(data)
    else:
        assert error_of(data) == message


@pytest.mark.parametrize(
    "changes,sizes,start,remedy",
    [
        (
            {"bos": "<go>"},
            {},
            "v.tgt: no line '<go>' among the first 4;",
            "that --bos names",
        ),
        (
            {},
            {"src_vocab_size": 2},
            "v.src: no line '</s>' among the first 2;",
            "raise --src_vocab_size",
        ),
        (
            {"bos": "a\nb\udcff"},
            {},
            "v.tgt: no line 'a\\nb\\udcff' among the first 4;",
            "that --bos names",
        ),
        (
            {"unk_id": 100},
            {},
            "v.src: --unk_id=100 is no id of this vocabulary;",
            "expected 0 to 99",
        ),
        (
            {"unk_id": 7},
            {"tgt_vocab_size": 7},
            "v.tgt: --unk_id=7 is no id of this vocabulary;",
            "--tgt_vocab_size=7",
        ),
    ],
)
def test_special_words(data, changes, sizes, start, remedy):
    message = error_of(dataclasses.replace(data, **changes), **sizes)
    assert message.startswith(start) and remedy in message


def test_the_target_vocabulary_needs_eos_and_the_source_s_needs_no_bos(data):
    put("v.src", SRC_VOCAB.replace(b"<s>\n", b""))
    assert check(data).sides[0].eos_id == 1
    put("v.tgt", TGT_VOCAB.replace(b"</s>\n", b""))
    assert error_of(data).startswith("v.tgt: no line '</s>'")


def test_the_check_needs_no_tensorflow():
    code = "import sys, rnn_scaling.data.corpus; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_line_that_is_too_long_is_named(data, monkeypatch):
    monkeypatch.setattr(corpus, "MAX_LINE_BYTES", 6)
    draw = random.Random(1)
    for _ in range(200):
        lines = [
            b"x"
            * draw.choice((0, 1, 5, 6, 6, 7, 20) if draw.random() < 0.2 else (0, 3, 6))
            for _ in range(9)
        ]
        put("a.src", b"\n".join([b"word", *lines]) + draw.choice((b"\n", b"")))
        too_long = [
            number for number, line in enumerate(lines, start=2) if len(line) > 6
        ]
        if too_long:
            with pytest.raises(
                corpus.DataError,
                match=f"^a.src:{too_long[0]}: a line of more than 6 bytes; expected",
            ):
                corpus.count_lines("a.src", flag="src_file_name")
        else:
            corpus.count_lines("a.src", flag="src_file_name")


def test_a_vocabulary_of_one_endless_line_is_refused_before_it_is_read_whole(data):
    with open("v.src", "wb") as file:
        file.truncate(1 << 40)  # holes: takes no room, and would not fit the memory
    assert error_of(data).startswith("v.src:1: a line of more than 65,536")


def test_files_that_change_are_named(data):
    def append():
        with open("a.src", "a") as file:
            file.write("more\n")

    changes = (append, lambda: os.utime("a.src", (1, 1)), lambda: os.remove("a.src"))
    for change in changes:
        stamps = {path: corpus.stamp(path) for path in ("a.tgt", "a.src")}
        assert corpus.describe_changes(stamps) == ""
        change()
        assert corpus.describe_changes(stamps).startswith("a.src changed while ")
