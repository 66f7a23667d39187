"""Translations against a search with lists that computes every hypothesis anew with the network's training forward."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from rnn_scaling.models import decoding, workloads
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.decoding import Search
from rnn_scaling.models.layout import BOS_ID, EOS_ID
from rnn_scaling.models.workload import first_values
from tests.support.training import MODEL, TRANSFORMER

pytestmark = pytest.mark.usefixtures("as_built")

LENGTHS, LONGEST = (
    (5, 1, 3, 4),
    6,
)  # words of each source sentence, of a translation at most
ATTENTION = dataclasses.replace(MODEL, model="nmt_attention")
GNMT = dataclasses.replace(
    ATTENTION,
    attention_architecture="gnmt_v2",
    num_encoder_layers=3,
    num_decoder_layers=4,
)
MODELS = {
    "nmt": MODEL,
    "nmt of GRUs, batch-major": dataclasses.replace(
        MODEL, unit_type="gru", encoder_type="dynamic_rnn", time_major=False
    ),
    "luong": ATTENTION,
    "bahdanau": dataclasses.replace(
        ATTENTION,
        attention="bahdanau",
        normalize_attention=True,
        biases_per_gate=2,
        time_major=False,
    ),
    "gnmt_v2": dataclasses.replace(
        GNMT,
        attention="bahdanau",
        normalize_attention=True,
        share_embedding=True,
        src_vocab_size=17,
    ),
    "transformer": TRANSFORMER,
}
_LAST_GAIN = "decoder/layer_1/feed_forward/norm/gain"
SEARCHES = [Search(1, 0.0, LONGEST), Search(3, 0.0, LONGEST), Search(4, 1.5, LONGEST)]


class Network:
    """A network with weights so large that its words differ; its end-of-sentence word ends translations early."""

    def __init__(self, model, seed: int = 2) -> None:
        self.workload = workloads.load(model.model).build(model, "CPU")
        self.is_time_major = self.workload.layout.time_major
        values = first_values(self.workload.variables, seed)
        random = np.random.default_rng(seed)
        self.sources = [random.integers(3, 17, length) for length in LENGTHS]
        scale = 1.0 if model.model == "transformer" else 6.0
        self.weights = {
            name: tf.constant(value * scale if value.ndim > 1 else value)
            for name, value in values.items()
        }
        if (
            _LAST_GAIN in values
        ):  # the projection is the table that its last word comes from, which it would repeat
            self.weights[_LAST_GAIN] *= -1.0
        self._logits = tf.function(
            self._outputs, reduce_retracing=True, autograph=False
        )
        greedy = self.translations(SEARCHES[0], end=-1).words.tolist()
        # Of the words of greedy search the one that ends its sentences at the most different places.
        self.end = max(
            range(17),
            key=lambda word: len(
                {words.index(word) for words in greedy if word in words}
            ),
        )

    def batch(self, sources, targets) -> Batch:
        """Of lists of words; the target's are padded, its lengths are all of it."""
        padded = np.full([len(sources), max(map(len, sources))], EOS_ID)
        for row, words in zip(padded, sources):
            row[: len(words)] = words
        before = np.concatenate([np.full([len(targets), 1], BOS_ID), targets], 1)
        after = np.concatenate([targets, np.full([len(targets), 1], EOS_ID)], 1)
        ids = [
            each.T if self.is_time_major else each for each in (padded, before, after)
        ]
        lengths = [
            np.array([len(words) for words in sources]),
            np.full(len(targets), before.shape[1]),
        ]
        source, target_input, target_output = (
            tf.constant(each, tf.int64) for each in ids
        )
        source_length, target_length = (tf.constant(each, tf.int32) for each in lengths)
        return Batch(source, source_length, target_input, target_output, target_length)

    def look_up(self, name, ids):
        return tf.gather(self.weights[name], ids)

    def _outputs(self, batch: Batch) -> tf.Tensor:
        rows = {
            name: self.look_up(name, ids)
            for name, ids in self.workload.lookups(batch).items()
        }
        dense = {name: w for name, w in self.weights.items() if name not in rows}
        return self.workload.outputs(dense, rows, batch, tf.constant([0, 0])).logits

    def log_probabilities(self, source, prefixes) -> np.ndarray:
        """[prefix, V] of the word after each prefix, of equal lengths, by the training's forward pass."""
        targets = np.full([4, LONGEST], EOS_ID)
        for row, words in zip(targets, prefixes):
            row[: len(words)] = words
        logits = self._logits(self.batch([source] * 4, targets)).numpy()
        logits = (
            logits if not self.is_time_major else logits.transpose(1, 0, 2)
        ).astype(np.float64)
        last = logits[: len(prefixes), len(prefixes[0])]
        return last - np.logaddexp.reduce(last, axis=1, keepdims=True)

    def translations(
        self, search: Search, end: int | None = None
    ) -> decoding.Translation:
        batch = self.batch(self.sources, np.zeros([len(self.sources), 2], np.int64))

        @tf.function(autograph=False)
        def translate():
            start = self.workload.start(self.weights, self.look_up, batch, search)
            first, last = self.workload.layout.ends(batch)
            return decoding.translate(
                start,
                len(LENGTHS),
                first,
                last - EOS_ID + (self.end if end is None else end),
                search,
            )

        return decoding.Translation(*(part.numpy() for part in translate()))


def search_with_lists(
    network: Network, source, search: Search
) -> tuple[list[int], float]:
    """The best hypothesis and its score."""

    def rank(hypothesis) -> float:
        score, words = hypothesis
        return score / ((5 + len(words)) / 6) ** search.length_penalty

    beams = [(0.0, [])]
    for _ in range(search.max_words):
        ended = [
            (score, words) for score, words in beams if words[-1:] == [network.end]
        ]
        growing = [
            (score, words) for score, words in beams if words[-1:] != [network.end]
        ]
        if not growing:
            break
        rows = network.log_probabilities(source, [words for _, words in growing])
        longer = [
            (score + float(gain), [*words, word])
            for (score, words), row in zip(growing, rows)
            for word, gain in enumerate(row)
        ]
        beams = sorted([*ended, *longer], key=rank, reverse=True)[: search.num_beams]
    score, words = beams[0]
    return words, score


@pytest.mark.parametrize("name", MODELS)
def test_a_search_finds_what_a_search_with_lists_finds(name):
    network = Network(MODELS[name])
    lengths, found = [], []
    for search in SEARCHES:
        translation = network.translations(search)
        for sentence, source in enumerate(network.sources):
            words, score = search_with_lists(network, source, search)
            length = int(translation.lengths[sentence])
            assert translation.words[sentence, :length].tolist() == words, (
                search,
                sentence,
            )
            assert (translation.words[sentence, length:] == network.end).all()
            np.testing.assert_allclose(
                translation.scores[sentence], score, rtol=1e-4, atol=1e-4
            )
            lengths.append(length)
            found.append((sentence, words))
    assert len({*lengths}) > 2, "sentences end at different steps"
    assert len({str(each) for each in found}) > len(LENGTHS), (
        "beams find what greedy search does not"
    )


class Chain:
    """A network whose next word depends on the last one alone, of 70 words."""

    end = 0

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.logits = random.normal(scale=2.0, size=[2, 70, 70]).astype(
            np.float32
        )  # [sentence, last word, next word]
        self.logits[:, :, self.end] += 3.0

    def log_probabilities(self, source: int, prefixes) -> np.ndarray:
        last = self.logits[source][
            [words[-1] if words else 1 for words in prefixes]
        ].astype(np.float64)
        return last - np.logaddexp.reduce(last, axis=1, keepdims=True)


def test_length_penalties_rank_as_the_paper_says():
    @tf.function(autograph=False)
    def translate(tables, penalty):
        def step(words, sentence, position):
            return tf.gather_nd(tables, tf.stack([sentence, words], axis=1)), sentence

        ends = (tf.constant(word, tf.int64) for word in (1, Chain.end))
        return decoding.translate(
            decoding.Start(tf.range(2, dtype=tf.int64), step),
            2,
            *ends,
            Search(4, penalty, 8),
        )

    totals = set()
    for penalty in (0.0, 0.6, 2.0):
        total = 0
        for chain in map(Chain, range(30)):  # the search of two sentences ends early
            found = translate(tf.constant(chain.logits), penalty)
            for sentence, words in enumerate(found.words.numpy().tolist()):
                want, score = search_with_lists(chain, sentence, Search(4, penalty, 8))
                assert words[: len(want)] == want and found.lengths[
                    sentence
                ].numpy() == len(want), (penalty, sentence)
                np.testing.assert_allclose(found.scores[sentence], score, rtol=1e-4)
                total += len(want)
        totals.add(total)
    assert len(totals) == 3, "a penalty finds longer translations"


@pytest.mark.parametrize("width", [5, 64, 65, 200])
@pytest.mark.parametrize("count", [1, 4])
def test_the_largest_numbers_are_those_of_top_k(width, count):
    x = tf.constant(np.random.default_rng(0).normal(size=[9, width]), tf.float32)
    for found, want in zip(
        decoding._largest(x, count), tf.math.top_k(x, count), strict=True
    ):
        np.testing.assert_array_equal(found, want)
