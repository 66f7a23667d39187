"""The committed sample, and the maker it comes from."""

import os

import rnn_scaling.data
from benchmarks import make_corpus

SAMPLE = os.path.join(os.path.dirname(rnn_scaling.data.__file__), "sample")
FILES = ("train.src", "train.tgt", "vocab.src", "vocab.tgt", "vocab.joint")


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


def test_the_maker_makes_the_committed_sample(tmp_path):
    out = os.fspath(tmp_path / "new/folder")
    make_corpus.main([f"--out={out}", "--pairs=2000", "--seed=1"])
    assert sorted(os.listdir(out)) == sorted(os.listdir(SAMPLE)) == sorted(FILES)
    for name in FILES:
        assert read(out, name) == read(SAMPLE, name)
