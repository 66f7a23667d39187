"""Make a small parallel corpus that a translation model can learn.

    python -m benchmarks.make_corpus --out=DIR --pairs=2000 --seed=1

It made the files of rnn_scaling/data/sample. Source words are drawn by Zipf's law (the
word of rank r is chosen in proportion to 1/r), and sentence lengths vary from 1 word to
about 40. The target is a function of the source: neighbouring words change places
(0 1 2 3 4: 1 0 3 2 4), each word has one translation, and every fifth word of the
lexicon is translated by two words. The vocabularies, of each side and of both, contain
the words that occur at least twice in the text, most frequent first, so that some words
are unknown. The same arguments make the same bytes with every version of Python.
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
_TWO_WORDS_EVERY = 5  # source words


def make(num_pairs: int, num_words: int, seed: int) -> dict[str, bytes]:
    """Return the content of each file by its name."""
    rng = random.Random(seed)
    src_lexicon = [_spell(rank, _SRC_SYLLABLES) for rank in range(num_words)]
    translation = {word: _translate(rank) for rank, word in enumerate(src_lexicon)}
    weights = [1.0 / (rank + 1) for rank in range(num_words)]
    cumulative = list(itertools.accumulate(weights))
    sources = [_draw_sentence(rng, src_lexicon, cumulative) for _ in range(num_pairs)]
    targets = []
    for words in sources:
        translated = [translation[word] for word in _swap_neighbours(words)]
        targets.append(list(itertools.chain.from_iterable(translated)))
    return {
        "train.src": _encode_lines(" ".join(words) for words in sources),
        "train.tgt": _encode_lines(" ".join(words) for words in targets),
        "vocab.src": _encode_lines(_list_vocabulary(sources)),
        "vocab.tgt": _encode_lines(_list_vocabulary(targets)),
        "vocab.joint": _encode_lines(_list_vocabulary([*sources, *targets])),
    }


def _draw_sentence(
    rng: random.Random, lexicon: Sequence[str], cumulative: Sequence[float]
) -> list[str]:
    """Return the words of a random sentence.

    Args:
      cumulative: Sum of the weights of the lexicon up to each word.
    """
    # Only random() is the same in every version of Python. A product of two random
    # numbers is often small, and sometimes not.
    length = 1 + int(36 * rng.random() * rng.random()) + int(4 * rng.random())
    words = []
    for _ in range(length):
        index = bisect.bisect(cumulative, rng.random() * cumulative[-1])
        words.append(lexicon[index])
    return words


def _swap_neighbours(words: Sequence[str]) -> list[str]:
    """Return the words with each pair reversed."""
    swapped = []
    for start in range(0, len(words), 2):
        swapped += reversed(words[start : start + 2])
    return swapped


def _translate(rank: int) -> list[str]:
    """Return the one or two target words of the source word of this rank."""
    words = [_spell(rank, _TGT_SYLLABLES)]
    if rank % _TWO_WORDS_EVERY == _TWO_WORDS_EVERY - 1:
        words.append("ak")
    return words


def _spell(rank: int, syllables: Sequence[str]) -> str:
    """Return the word of a rank; frequent words are short."""
    spelled = syllables[rank % len(syllables)]
    rest = rank // len(syllables)
    while rest:
        rest -= 1
        spelled += syllables[rest % len(syllables)]
        rest //= len(syllables)
    return spelled


def _list_vocabulary(sentences: Iterable[Sequence[str]]) -> list[str]:
    """Return the special words and those that occur twice, most frequent first."""
    counts = collections.Counter(itertools.chain.from_iterable(sentences))
    frequent = [word for word, count in counts.items() if count >= 2]
    return [*SPECIAL_WORDS, *sorted(frequent, key=lambda word: (-counts[word], word))]


def _encode_lines(lines: Iterable[str]) -> bytes:
    """Return lines as the content of a file."""
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
