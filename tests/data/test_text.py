"""The text pipeline against its rules in plain Python."""

import collections
import itertools
import os
import re

import numpy as np
import pytest

from rnn_scaling.models.batch import Batch, Side
from rnn_scaling.models.layout import TextLayout
from tests.data import stepping
from tests.data.stepping import assert_equal, flat, run_steps

pytestmark = pytest.mark.usefixtures("as_built")

SIDES = (Side("src", 30, False), Side("tgt", 30, True))
WORDS = [b"<unk>", b"<s>", b"</s>", *(b"w%d" % i for i in range(20))]
UNK, BOS, EOS = 0, 1, 2
NASTY = [
    "w1 w2  w3\tw4\vw5\fw6",  # every ASCII blank
    " w1 w2 ",
    "w1\u00a0w2 w3",  # a no-break space is part of a word
    "w1\u2028w2 w3\u0085w4 \u3000 w5",  # and so are Unicode's other blanks and line ends
    "w1\x1cw2 w3\x1dw4",
    "w1\rw2 w3\r",  # carriage returns are dropped
    "w1\0w2 w3 \0",
    "",
    " \t\v\f\r ",
    "\u00a0",  # a word, not an empty sentence
    "unknown w19 ünknown",
    "<s> </s> <unk> w1",
]


class Reference:
    """Documented rules 1 to 8 of text.py without shuffling, one pair at a time."""

    def __init__(
        self, pairs, words, *, src_max_len, tgt_max_len, num_buckets, batch_size
    ):
        self.pairs = pairs
        self.ids = {word: i for i, word in enumerate(words)}
        self.src_max_len, self.tgt_max_len = src_max_len, tgt_max_len
        self.width = (max(src_max_len, tgt_max_len) + num_buckets - 1) // num_buckets
        self.batch_size = batch_size

    def words_of(self, line):
        words = [
            word
            for word in re.split(rb"[ \t\v\f]", line.encode().replace(b"\r", b""))
            if word
        ]
        return [self.ids.get(word, UNK) for word in words]

    def examples(self):
        for source, target in itertools.cycle(self.pairs):
            source, target = self.words_of(source), self.words_of(target)
            if source and target:
                yield source[: self.src_max_len], target[: self.tgt_max_len - 1] + [EOS]

    def batches(self):
        buckets = collections.defaultdict(list)
        for source, target in self.examples():
            longest = max(len(source), len(target))
            [bucket] = [
                k
                for k in range(1000)
                if k * self.width < longest <= (k + 1) * self.width
            ]
            buckets[bucket].append((source, target))
            if len(buckets[bucket]) == self.batch_size:
                yield self.make_batch(buckets.pop(bucket))

    def make_batch(self, examples):
        sources, targets = zip(*examples)
        return Batch(
            pad(sources),
            np.array([len(words) for words in sources]),
            pad([[BOS, *words[:-1]] for words in targets]),
            pad(targets),
            np.array([len(words) for words in targets]),
        )


def pad(rows):
    longest = max(map(len, rows))
    return np.array([list(row) + [EOS] * (longest - len(row)) for row in rows])


def write(folder, pairs, words=WORDS):
    """Write the four files and return the options that name them."""
    contents = {
        "src_file_name": "".join(f"{source}\n" for source, _ in pairs).encode(),
        "tgt_file_name": "".join(f"{target}\n" for _, target in pairs).encode(),
        "src_vocab_file": b"".join(word + b"\n" for word in words),
        "tgt_vocab_file": b"".join(word + b"\n" for word in words),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: os.fspath(folder / name) for name in contents}


def build(files, devices, **options):
    layout = TextLayout(SIDES, Batch, False)
    lengths = {"src_max_len": 6, "tgt_max_len": 6}
    given = {**files, **lengths, "disable_shuffle": True, **options}
    return stepping.build("text", devices, layout, **given)


def make_numbered_pairs(count):
    """Return pairs of 1 to 9 words per side, with different lengths."""
    return [
        (
            " ".join(f"w{(i + k) % 20}" for k in range(1 + i * 7 % 9)),
            " ".join(f"w{i % 20}" for _ in range(1 + i * 5 % 9)),
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    "num_buckets, num_towers, prefetch",
    [(1, 1, False), (5, 1, False), (5, 2, True), (2, 3, False)],
)
def test_batches_follow_the_documented_rules(
    tf, devices, tmp_path, num_buckets, num_towers, prefetch
):
    # 31 pairs, some of them empty, and 150 taken: several epochs, and batches that hold the end of one and the next.
    pairs = make_numbered_pairs(19) + list(zip(NASTY, reversed(NASTY)))
    source = build(
        write(tmp_path, pairs),
        devices[:num_towers],
        batch_size=5,
        num_buckets=num_buckets,
        tgt_max_len=4,
        prefetch=prefetch,
    )
    reference = Reference(
        pairs,
        WORDS,
        src_max_len=6,
        tgt_max_len=4,
        num_buckets=num_buckets,
        batch_size=5,
    )
    expected = list(itertools.islice(reference.batches(), 30))
    got = flat(run_steps(tf, source, 30 // num_towers))
    assert_equal([got], [expected])


def epochs(tf, devices, tmp_path, count, **options):
    """Return each epoch's lines in their order."""
    words = [*WORDS[:3], *(b"line%d" % i for i in range(24))]
    files = write(tmp_path, [(f"line{i}", "x") for i in range(24)], words)
    batches = flat(
        run_steps(tf, build(files, devices[:1], batch_size=4, **options), 6 * count)
    )
    lines = np.concatenate([batch.source[:, 0] for batch in batches]) - 3
    return lines.reshape(count, 24).tolist()


def test_each_epoch_is_shuffled_anew_and_holds_every_pair_once(tf, devices, tmp_path):
    shuffled = epochs(tf, devices, tmp_path, 3, disable_shuffle=False)
    assert all(sorted(epoch) == list(range(24)) for epoch in shuffled)
    orders = {tuple(epoch) for epoch in [*shuffled, range(24)]}
    assert len(orders) == 4


def test_the_shuffle_buffer_is_as_large_as_asked(tf, devices, tmp_path):
    [epoch] = epochs(
        tf, devices, tmp_path, 1, disable_shuffle=False, output_buffer_size=3
    )
    # Line i can come out when lines 0 to i are in the buffer, and at most 3 are.
    assert all(line <= place + 2 for place, line in enumerate(epoch))
    assert epoch != list(range(24))


def test_a_broken_corpus_is_refused(tf, devices, tmp_path):
    from rnn_scaling.data import corpus

    files = write(tmp_path, [("w1", "w2")])
    with open(files["src_file_name"], "ab") as file:
        file.write(b"one more\n")
    with pytest.raises(corpus.DataError, match="2 lines, and .*: 1 lines"):
        build(files, devices[:1])
