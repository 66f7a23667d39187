"""Makes a small parallel corpus that a translation model can learn: the files of rnn_scaling/data/sample.

    python -m benchmarks.make_corpus --out=DIR --pairs=2000 --seed=1

Source words are drawn by Zipf's law (the word of rank r is chosen in proportion to 1/r), sentence lengths vary from 1
word to about 40. The target is a function of the source: neighbouring words change places (0 1 2 3 4: 1 0 3 2 4), each
word has one translation, and every fifth word of the lexicon is translated by two. The vocabularies, of each side and
of both, hold the words that the text has at least twice, most frequent first, so that some words are unknown. The same
arguments make the same bytes with every version of Python.
"""

import argparse
import bisect
import collections
import itertools
import os
import random
from collections.abc import Iterable, Sequence

from rnn_scaling.system.files.output_files import write_bytes

SPECIAL_WORDS = ("<unk>", "<s>", "</s>")
_SRC_SYLLABLES = (
    "ba",
    "do",
    "ke",
    "li",
    "mu",
    "na",
    "pe",
    "ri",
    "so",
    "tu",
    "va",
    "zo",
)
_TGT_SYLLABLES = (
    "ché",
    "del",
    "für",
    "gan",
    "hin",
    "jor",
    "lüm",
    "mên",
    "nal",
    "ost",
    "ter",
    "zañ",
)
_TWO_WORDS_EVERY = 5


def make(num_pairs: int, num_words: int, seed: int) -> dict[str, bytes]:
    """File name -> content."""
    rng = random.Random(seed)
    src_lexicon = [_spell(rank, _SRC_SYLLABLES) for rank in range(num_words)]
    translation = {word: _translate(rank) for rank, word in enumerate(src_lexicon)}
    cumulative = list(
        itertools.accumulate(1.0 / (rank + 1) for rank in range(num_words))
    )
    sources = [_sentence(rng, src_lexicon, cumulative) for _ in range(num_pairs)]
    targets = [
        [part for word in _swap_neighbours(words) for part in translation[word]]
        for words in sources
    ]
    return {
        "train.src": _text(" ".join(words) for words in sources),
        "train.tgt": _text(" ".join(words) for words in targets),
        "vocab.src": _text(_vocabulary(sources)),
        "vocab.tgt": _text(_vocabulary(targets)),
        "vocab.joint": _text(_vocabulary([*sources, *targets])),
    }


def _sentence(
    rng: random.Random, lexicon: Sequence[str], cumulative: Sequence[float]
) -> list[str]:
    # Only random() is the same in every version of Python. A product of two is often small, and sometimes not.
    length = 1 + int(36 * rng.random() * rng.random()) + int(4 * rng.random())
    return [
        lexicon[bisect.bisect(cumulative, rng.random() * cumulative[-1])]
        for _ in range(length)
    ]


def _swap_neighbours(words: Sequence[str]) -> list[str]:
    return [
        word
        for start in range(0, len(words), 2)
        for word in reversed(words[start : start + 2])
    ]


def _translate(rank: int) -> list[str]:
    words = [_spell(rank, _TGT_SYLLABLES)]
    if rank % _TWO_WORDS_EVERY == _TWO_WORDS_EVERY - 1:
        words.append("ak")
    return words


def _spell(rank: int, syllables: Sequence[str]) -> str:
    """A word for each rank; frequent words are short."""
    spelled = syllables[rank % len(syllables)]
    while rank := rank // len(syllables):
        spelled += syllables[(rank - 1) % len(syllables)]
        rank -= 1
    return spelled


def _vocabulary(sentences: Iterable[Sequence[str]]) -> list[str]:
    counts = collections.Counter(itertools.chain.from_iterable(sentences))
    frequent = [word for word, count in counts.items() if count >= 2]
    return [*SPECIAL_WORDS, *sorted(frequent, key=lambda word: (-counts[word], word))]


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def main(args: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.make_corpus", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "--out",
        required=True,
        help="folder of the files; it is created if it is missing",
    )
    parser.add_argument(
        "--pairs", type=int, default=2000, help="number of sentence pairs"
    )
    parser.add_argument(
        "--words", type=int, default=1500, help="number of words in the source language"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random words")
    options = parser.parse_args(args)
    if min(options.pairs, options.words) < 1 or options.seed < 0:
        parser.error("--pairs and --words must be at least 1, and --seed at least 0")
    for name, content in make(options.pairs, options.words, options.seed).items():
        write_bytes(content, os.path.join(options.out, name))


if __name__ == "__main__":
    main()
