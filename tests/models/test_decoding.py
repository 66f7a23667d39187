"""Translations against a search with lists that uses the network's training forward pass."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from rnn_scaling.models import decoding, workloads
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.decoding import Search
from rnn_scaling.models.layout import BOS_ID, EOS_ID
from rnn_scaling.models.workload import make_first_values
from tests.support.training import MODEL, TRANSFORMER

pytestmark = pytest.mark.usefixtures("as_built")

LENGTHS = (5, 1, 3, 4)  # words per source sentence
LONGEST = 6  # most words of a translation
ATTENTION = dataclasses.replace(MODEL, model="nmt_attention")
BAHDANAU = dataclasses.replace(
    ATTENTION, attention="bahdanau", normalize_attention=True
)
# The other models have several layers and directions.
ONE_CELL = {"num_encoder_layers": 1, "num_decoder_layers": 1, "direction": "uni"}
MODELS = {
    "nmt": MODEL,
    "nmt of GRUs, batch-major": dataclasses.replace(
        MODEL, **ONE_CELL, unit_type="gru", encoder_type="dynamic_rnn", time_major=False
    ),
    "luong": ATTENTION,
    "bahdanau": dataclasses.replace(
        BAHDANAU, **ONE_CELL, biases_per_gate=2, time_major=False
    ),
    "gnmt_v2": dataclasses.replace(
        BAHDANAU,
        attention_architecture="gnmt_v2",
        num_encoder_layers=3,
        num_decoder_layers=4,
        share_embedding=True,
        src_vocab_size=17,
    ),
    "transformer": TRANSFORMER,
}
_LAST_GAIN = "decoder/layer_1/feed_forward/norm/gain"
GREEDY = Search(1, 0.0, LONGEST)
SEARCHES = [GREEDY, Search(4, 1.5, LONGEST)]
WITHOUT_PENALTY = Search(3, 0.0, LONGEST)


class Network:
    """A network with large weights, so that its words differ.

    Its end-of-sentence word ends translations early.
    """

    def __init__(self, model, seed=2):
        self.workload = workloads.load(model.model).build(model, "CPU")
        self.is_time_major = self.workload.layout.time_major
        values = make_first_values(self.workload.variables, seed)
        random = np.random.default_rng(seed)
        self.sources = [random.integers(3, 17, length) for length in LENGTHS]
        scale = 1.0 if model.model == "transformer" else 6.0
        self.weights = {
            name: tf.constant(value * scale if value.ndim > 1 else value)
            for name, value in values.items()
        }
        if _LAST_GAIN in values:
            # The projection is the table of the last word, which would be repeated.
            self.weights[_LAST_GAIN] *= -1.0
        self._logits = tf.function(
            self._outputs, reduce_retracing=True, autograph=False
        )
        greedy = self.translations(GREEDY, end=-1).words.tolist()

        def num_ends(word):
            return len({words.index(word) for words in greedy if word in words})

        # The word of greedy search that is in the most different positions.
        self.end = max(range(17), key=num_ends)

    def make_batch(self, sources, targets):
        """Return a batch of lists of words; all targets have full length."""
        padded = np.full([len(sources), max(map(len, sources))], EOS_ID)
        for row, words in zip(padded, sources):
            row[: len(words)] = words
        ends = np.ones([len(targets), 1], np.int64)
        before = np.concatenate([BOS_ID * ends, targets], axis=1)
        after = np.concatenate([targets, EOS_ID * ends], axis=1)
        source, target_input, target_output = (
            tf.constant(ids.T if self.is_time_major else ids, tf.int64)
            for ids in (padded, before, after)
        )
        source_length = tf.constant([len(words) for words in sources], tf.int32)
        target_length = tf.fill([len(targets)], before.shape[1])
        return Batch(source, source_length, target_input, target_output, target_length)

    def look_up(self, name, ids):
        return tf.gather(self.weights[name], ids)

    def _outputs(self, batch):
        rows = {
            name: self.look_up(name, ids)
            for name, ids in self.workload.list_lookups(batch).items()
        }
        dense = {name: w for name, w in self.weights.items() if name not in rows}
        return self.workload.compute_outputs(
            dense, rows, batch, tf.constant([0, 0])
        ).logits

    def log_probabilities(self, source, prefixes):
        """Return [prefix, V] for the word after each prefix; all have equal lengths."""
        targets = np.full([4, LONGEST], EOS_ID)
        for row, words in zip(targets, prefixes):
            row[: len(words)] = words
        logits = self._logits(self.make_batch([source] * 4, targets)).numpy()
        if self.is_time_major:
            logits = logits.transpose(1, 0, 2)
        last = logits[: len(prefixes), len(prefixes[0])].astype(np.float64)
        return last - np.logaddexp.reduce(last, axis=1, keepdims=True)

    def translations(self, search, end=None):
        batch = self.make_batch(
            self.sources, np.zeros([len(self.sources), 2], np.int64)
        )

        @tf.function(autograph=False)
        def translate():
            start = self.workload.start(self.weights, self.look_up, batch, search)
            bos, eos = self.workload.layout.find_ends(batch)
            eos += (self.end if end is None else end) - EOS_ID
            return decoding.translate(start, len(LENGTHS), bos, eos, search)

        return decoding.Translation(*(tensor.numpy() for tensor in translate()))


def search_with_lists(network, source, search):
    """Return the best hypothesis and its score."""

    def rank(hypothesis):
        score, words = hypothesis
        return score / ((5 + len(words)) / 6) ** search.length_penalty

    beams = [(0.0, [])]
    for _ in range(search.max_words):
        ended = [beam for beam in beams if beam[1][-1:] == [network.end]]
        growing = [beam for beam in beams if beam not in ended]
        if not growing:
            break
        rows = network.log_probabilities(source, [words for _, words in growing])
        longer = []
        for (score, words), row in zip(growing, rows):
            for word, gain in enumerate(row):
                longer.append((score + float(gain), [*words, word]))
        beams = sorted([*ended, *longer], key=rank, reverse=True)[: search.num_beams]
    score, words = beams[0]
    return words, score


def assert_same(translation, sentence, words, score):
    length = len(words)
    assert translation.lengths[sentence] == length
    assert translation.words[sentence].tolist()[:length] == words
    np.testing.assert_allclose(
        translation.scores[sentence], score, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_search_agrees_with_a_search_with_lists(name):
    network = Network(MODELS[name])
    translations = set()
    searches = [*SEARCHES, WITHOUT_PENALTY] if name == "nmt" else SEARCHES
    for search in searches:
        translation = network.translations(search)
        for sentence, source in enumerate(network.sources):
            words, score = search_with_lists(network, source, search)
            assert_same(translation, sentence, words, score)
            assert (translation.words[sentence, len(words) :] == network.end).all()
            translations.add((sentence, *words))
    # Sentences end at different steps, and beams differ from greedy search.
    assert len({len(words) for words in translations}) > 2
    assert len(translations) > len(LENGTHS)


class Chain:
    """A network of 70 words whose next word depends only on the last one."""

    end = 0

    def __init__(self, seed):
        random = np.random.default_rng(seed)
        # [sentence, last word, next word]
        logits = random.normal(scale=2.0, size=[2, 70, 70])
        self.logits = logits.astype(np.float32)
        self.logits[:, :, self.end] += 3.0

    def log_probabilities(self, source, prefixes):
        rows = [words[-1] if words else 1 for words in prefixes]
        last = self.logits[source][rows].astype(np.float64)
        return last - np.logaddexp.reduce(last, axis=1, keepdims=True)


def test_length_penalties_rank_as_the_paper_says():
    @tf.function(autograph=False)
    def translate(tables, penalty):
        def step(words, sentence, position):
            return tf.gather_nd(tables, tf.stack([sentence, words], axis=1)), sentence

        bos, eos = (tf.constant(word, tf.int64) for word in (1, Chain.end))
        start = decoding.Start(tf.range(2, dtype=tf.int64), step)
        return decoding.translate(start, 2, bos, eos, Search(4, penalty, 8))

    totals = set()
    for penalty in (0.0, 0.6, 2.0):
        total = 0
        for chain in map(Chain, range(30)):  # the search of two sentences ends early
            translation = translate(tf.constant(chain.logits), penalty)
            arrays = decoding.Translation(*(tensor.numpy() for tensor in translation))
            for sentence in range(2):
                words, score = search_with_lists(chain, sentence, Search(4, penalty, 8))
                assert_same(arrays, sentence, words, score)
                total += len(words)
        totals.add(total)
    assert len(totals) == 3  # a penalty finds longer translations


@pytest.mark.parametrize("width", [5, 64, 65, 200])
@pytest.mark.parametrize("count", [1, 4])
def test_the_largest_numbers_agree_with_top_k(width, count):
    x = tf.constant(np.random.default_rng(0).normal(size=[9, width]), tf.float32)
    got = decoding._find_largest(x, count)
    for values, want in zip(got, tf.math.top_k(x, count), strict=True):
        np.testing.assert_array_equal(values, want)
