"""The committed sample, and the maker it comes from."""

from __future__ import annotations

import os

import rnn_scaling.data
from benchmarks import make_corpus
from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data import corpus
from rnn_scaling.models.batch import Side

SAMPLE = os.path.join(os.path.dirname(rnn_scaling.data.__file__), "sample")
FILES = ("train.src", "train.tgt", "vocab.src", "vocab.tgt", "vocab.joint")


def read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def test_the_maker_makes_the_committed_sample(tmp_path):
    out = os.fspath(tmp_path / "new" / "folder")
    make_corpus.main([f"--out={out}", "--pairs=2000", "--seed=1"])
    assert sorted(os.listdir(out)) == sorted(os.listdir(SAMPLE)) == sorted(FILES)
    for name in FILES:
        assert read(out, name) == read(SAMPLE, name)


def test_the_sample_is_small_and_passes_the_check():
    paths = [os.path.join(SAMPLE, name) for name in FILES]
    assert sum(map(os.path.getsize, paths)) <= 400_000
    fields = ("src_file_name", "tgt_file_name", "src_vocab_file", "tgt_vocab_file")
    checked = corpus.check(
        DataOptions(**dict(zip(fields, paths))),
        (Side("src", 2000, False), Side("tgt", 2000, True)),
    )
    assert checked.num_pairs == 2000
    assert 500 < len(checked.sides[0].words) < 2000
