"""All data sources, and the random words that three of them share."""

import dataclasses
import functools
import os

import numpy as np
import pytest

import rnn_scaling.data
from rnn_scaling.config import registry
from rnn_scaling.models.batch import Batch, Side, TargetBatch
from rnn_scaling.models.layout import TextLayout
from tests.data import stepping
from tests.data.stepping import assert_equal, flat, list_ids, run_steps

pytestmark = pytest.mark.usefixtures("as_built")

SAMPLE = os.path.join(os.path.dirname(rnn_scaling.data.__file__), "sample")
SRC_VOCAB, TGT_VOCAB = 90, 40
TARGET = Side("tgt", TGT_VOCAB, True)
PAIRS = TextLayout((Side("src", SRC_VOCAB, False), TARGET), Batch, True)
TARGETS = TextLayout((TARGET,), TargetBatch, True)
BATCH_SIZE, STEPS = 3, 8
OPTIONS = {
    "src_max_len": 7,
    "tgt_max_len": 5,
    "src_file_name": f"{SAMPLE}/train.src",
    "tgt_file_name": f"{SAMPLE}/train.tgt",
    "src_vocab_file": f"{SAMPLE}/vocab.src",
    "tgt_vocab_file": f"{SAMPLE}/vocab.tgt",
    "output_buffer_size": 100,
}
SOURCES = [
    ("device", False),
    ("constant", False),
    ("host", False),
    ("host", True),
    ("text", False),
    ("text", True),
    ("copy", False),
    ("reverse", False),
]
every_source = pytest.mark.parametrize("name, prefetch", SOURCES)
# "reverse" differs from "copy" only in the order of the answer, and the pipeline of "text"
# without prefetching is that of "host".
CLASSES = [
    source for source in SOURCES if source not in (("reverse", False), ("text", False))
]
every_class = pytest.mark.parametrize("name, prefetch", CLASSES)
PIPELINES = ("host", "text")  # the sources with and without prefetching


def list_scalings(sources, batch_sizes):
    """Weak scaling of each source, and strong scaling with these batch sizes.

    Pipelines prefetch only under strong scaling.
    """
    cases = []
    for name, prefetch in sources:
        if name not in PIPELINES or not prefetch:
            cases.append((name, prefetch, ()))
        if name not in PIPELINES or prefetch:
            cases.append((name, prefetch, batch_sizes))
    return pytest.mark.parametrize("name, prefetch, batch_sizes", cases, ids=str)


def build(name, devices, prefetch=False, layout=PAIRS, **options):
    given = {**OPTIONS, "src_max_len": max_lengths(name)[0], **options}
    return stepping.build(name, devices, layout, prefetch=prefetch, **given)


@pytest.fixture(scope="module")
def batches_of(tf, devices):
    """Return the batches of a source's first STEPS steps for a number of towers."""

    @functools.cache
    def run(name, prefetch, num_towers):
        return run_steps(tf, build(name, devices[:num_towers], prefetch), STEPS)

    return run


def max_lengths(name):
    """Return the length of each side's longest sentence.

    Both are equal for sources with an answer.
    """
    src, tgt = OPTIONS["src_max_len"], OPTIONS["tgt_max_len"]
    return (tgt if name in registry.KNOWN_ANSWERS else src), tgt


@every_source
def test_batches_are_consistent(batches_of, name, prefetch):
    for batch in flat(batches_of(name, prefetch, 2)):
        # Lengths are int32, which GPUs keep in host memory; cuDNN needs them there.
        for field, array in zip(batch._fields, batch):
            dtype = np.int32 if field.endswith("length") else np.int64
            assert array.dtype == dtype, field
        src_time, tgt_time = batch.source_length.max(), batch.target_length.max()
        assert batch.source.shape == (src_time, BATCH_SIZE)
        assert (
            batch.target_input.shape
            == batch.target_output.shape
            == (tgt_time, BATCH_SIZE)
        )
        assert batch.source_length.shape == batch.target_length.shape == (BATCH_SIZE,)
        assert src_time <= OPTIONS["src_max_len"] and tgt_time <= OPTIONS["tgt_max_len"]
        assert min(batch.source_length.min(), batch.target_length.min()) >= 1
        assert batch.source.min() >= 0 and batch.source.max() < SRC_VOCAB
        assert batch.target_output.min() >= 0 and batch.target_output.max() < TGT_VOCAB
        assert (batch.target_input[0] == 1).all()  # <s>
        for column, length in enumerate(batch.target_length):
            assert batch.target_output[length - 1, column] == 2  # </s>
            np.testing.assert_array_equal(
                batch.target_input[1:length, column],
                batch.target_output[: length - 1, column],
            )


@pytest.mark.parametrize("name, prefetch", [("device", False), ("text", True)])
def test_batch_major_is_the_transpose(tf, devices, batches_of, name, prefetch):
    layout = dataclasses.replace(PAIRS, time_major=False)
    batch_major = run_steps(tf, build(name, devices[:2], prefetch, layout=layout), 3)
    assert_equal(
        batches_of(name, prefetch, 2)[:3],
        [[_transpose(batch) for batch in step] for step in batch_major],
    )


@list_scalings(CLASSES, (3, 2, 2))
def test_workers_with_one_and_two_towers_share_the_batches_of_one_worker(
    tf, devices, name, prefetch, batch_sizes
):
    options = {"prefetch": prefetch, "batch_sizes": batch_sizes, "num_towers": 3}
    all_batches = run_steps(tf, build(name, devices[:3], **options), 4)
    first = run_steps(tf, build(name, devices[:1], **options), 4)
    second = run_steps(tf, build(name, devices[:2], first_tower=1, **options), 4)
    assert_equal([[*left, *right] for left, right in zip(first, second)], all_batches)


def _transpose(batch):
    return Batch(*(array.T for array in batch))  # lengths have one axis and stay


@pytest.mark.parametrize("name", ["constant", "copy", "device", "text"])
def test_another_seed_gives_other_words(tf, devices, batches_of, name):
    first = batches_of(name, False, 2)[:3]
    other = run_steps(tf, build(name, devices[:2], seed=6), 3)
    assert not set(list_ids(flat(first))) & set(list_ids(flat(other)))


@pytest.mark.parametrize(
    "name, prefetch",
    [source for source in CLASSES if source[0] not in registry.KNOWN_ANSWERS],
)
def test_padding_to_one_length_adds_end_of_sentence_words_and_nothing_else(
    tf, devices, name, prefetch
):
    # Sources with and without prefetching have each order once.
    options = {
        "layout": dataclasses.replace(PAIRS, time_major=prefetch),
        "random_lengths": name != "text",
    }
    plain, padded = (
        run_steps(tf, build(name, devices[:2], prefetch, pad_to=pad_to, **options), 8)
        for pad_to in (0, 9)
    )
    for before, after in zip(flat(plain), flat(padded), strict=True):
        for field, left, right in zip(before._fields, before, after):
            if right.ndim == 2:
                if not prefetch:
                    left, right = left.T, right.T
                assert right.shape == (9, BATCH_SIZE)
                assert (right[len(left) :] == 2).all()
                right = right[: len(left)]
            np.testing.assert_array_equal(left, right, err_msg=field)


@pytest.mark.parametrize(
    "name, prefetch, time_major", [("device", False, True), ("host", True, False)]
)
def test_ragged_batches_end_with_their_longest_sentence(
    tf, devices, name, prefetch, time_major
):
    options = {
        "layout": dataclasses.replace(PAIRS, time_major=time_major),
        "random_lengths": True,
        "src_max_len": 7,
    }
    full = run_steps(tf, build(name, devices[:2], prefetch, **options), STEPS)
    ragged_source = build(name, devices[:2], prefetch, ragged_batches=True, **options)
    ragged = run_steps(tf, ragged_source, STEPS)

    def words_of(ids):
        return ids if time_major else ids.T

    for before, after in zip(flat(full), flat(ragged), strict=True):
        for ids, lengths in ((0, 1), (2, 4), (3, 4)):
            shape = (after[lengths].max(), BATCH_SIZE)
            assert words_of(after[ids]).shape == shape
        # Only the first sentence has another length.
        np.testing.assert_array_equal(before.source_length[1:], after.source_length[1:])
        cropped = words_of(after.source)
        whole = words_of(before.source)
        np.testing.assert_array_equal(whole[: len(cropped)], cropped)
    assert len({batch.source.shape for batch in flat(ragged)}) > 2
    assert any(len({batch.source.shape for batch in step}) > 1 for step in ragged)


@every_class
def test_each_tower_s_batch_is_on_its_device_and_its_shape_is_known(
    tf, devices, name, prefetch
):
    source = build(name, devices[:3], prefetch)
    src_time, tgt_time = (None, None) if name == "text" else max_lengths(name)
    source_shapes = [[src_time, BATCH_SIZE], [BATCH_SIZE]]
    target_shapes = [*[[tgt_time, BATCH_SIZE]] * 2, [BATCH_SIZE]]

    @tf.function(autograph=False)
    def step_function(step):
        batches = source.next_batches(step)
        for device, batch in zip(devices, batches):
            for tensor in batch:
                assert tensor.device.endswith(device), (tensor, device)
            shapes = [tensor.shape.as_list() for tensor in batch]
            assert shapes == [*source_shapes, *target_shapes]
        return len(batches)

    assert step_function(tf.constant(0, tf.int64)) == 3


@pytest.mark.parametrize("name, direction", [("copy", 1), ("reverse", -1)])
def test_the_answer_is_known(batches_of, name, direction):
    batches = flat(batches_of(name, False, 2))
    for batch in batches:
        words = batch.source[:-1]
        np.testing.assert_array_equal(batch.target_output[:-1], words[::direction])
        assert (batch.source[-1] == 2).all()
        assert words.min() >= 3 and words.max() < TGT_VOCAB


@list_scalings([source for source in CLASSES if source[0] in PIPELINES], (3, 2))
def test_a_pipeline_continues_where_a_run_was_resumed(
    tf, devices, name, prefetch, batch_sizes
):
    options = {"prefetch": prefetch, "batch_sizes": batch_sizes}
    steps = run_steps(tf, build(name, devices[:2], **options), 7)
    resumed = run_steps(tf, build(name, devices[:2], first_step=4, **options), 3)
    assert_equal(steps[4:], resumed)


@pytest.mark.parametrize("name", PIPELINES)
def test_neither_threads_nor_prefetching_change_a_word(tf, devices, name):
    serial = build(name, devices[:2], num_parallel_calls=1)
    parallel = build(
        name, devices[:2], True, num_parallel_calls=4, prefetch_buffer_size=3
    )
    assert_equal(run_steps(tf, serial, STEPS), run_steps(tf, parallel, STEPS))


@pytest.mark.parametrize("name", ["device", "text"])
def test_every_tower_and_step_gets_other_words(batches_of, name):
    batches = list_ids(flat(batches_of(name, False, 3)))
    assert len(set(batches)) == 3 * STEPS


def test_constant_words_stay_and_differ_between_towers(batches_of):
    steps = batches_of("constant", False, 3)
    assert_equal(steps, [steps[0]] * STEPS)
    assert len(set(list_ids(steps[0]))) == 3
    assert_equal(steps[:1], batches_of("device", False, 3)[:1])


def test_device_words_do_not_depend_on_how_many_towers_there_are_or_where_a_run_starts(
    tf, devices, batches_of
):
    three = batches_of("device", False, 3)
    one = run_steps(tf, build("device", devices[:1]), 2, first_step=2)
    assert_equal([step[:1] for step in three[2:4]], one)


@pytest.mark.parametrize("num_towers, prefetch", [(1, True), (3, False)])
def test_host_feeds_the_words_of_device_in_their_order(
    batches_of, num_towers, prefetch
):
    assert_equal(
        batches_of("host", prefetch, num_towers),
        batches_of("device", False, num_towers),
    )


@pytest.mark.parametrize(
    "name, prefetch, batch_sizes",
    [
        ("device", False, (3, 2)),
        ("constant", False, ()),
        ("host", False, ()),
        ("host", True, (3, 2)),
        ("copy", False, ()),
    ],
)
def test_full_lengths_of_random_sentences_are_constants_of_the_graph(
    tf, devices, name, prefetch, batch_sizes
):
    """So cuDNN makes the same call for device, constant and host."""
    source = build(name, devices[:2], prefetch, batch_sizes=batch_sizes)
    lengths = []

    @tf.function(autograph=False)
    def step_function(step):
        for batch in source.next_batches(step):
            for tensor in (batch.source_length, batch.target_length):
                lengths.append(tf.get_static_value(tensor).tolist())

    step_function.get_concrete_function(tf.TensorSpec([], tf.int64))
    src, tgt = max_lengths(name)
    expected = []
    for size in batch_sizes or (BATCH_SIZE, BATCH_SIZE):
        expected += [[src] * size, [tgt] * size]
    assert lengths == expected


@pytest.mark.parametrize(
    "name, options", [("text", {"num_towers": 3}), ("host", {"batch_sizes": (3, 2)})]
)
def test_autograph_converts_no_function_of_a_pipeline(
    devices, name, options, monkeypatch
):
    from tensorflow.python.autograph.impl import api

    monkeypatch.setattr(api, "_convert_actual", pytest.fail)
    build(name, devices[:2], **options)


def test_random_words_of_both_sides_are_independent_and_use_all_words(tf, devices):
    [[batch]] = run_steps(
        tf, build("device", devices[:1], src_max_len=300, tgt_max_len=301), 1
    )
    assert set(batch.source.ravel()) == set(range(SRC_VOCAB))
    assert set(batch.target_output.ravel()) == set(range(TGT_VOCAB))
    # 10 divides both vocabularies: the same random bits would give the same last digit.
    assert np.mean(batch.source % 10 == batch.target_output[:-1] % 10) < 0.2


def test_the_shortest_sentences(tf, devices):
    for name in ("device", "text"):
        batch = run_steps(
            tf, build(name, devices[:1], src_max_len=1, tgt_max_len=1), 1
        )[0][0]
        assert batch.source.shape == batch.target_input.shape == (1, BATCH_SIZE)
        assert (batch.target_input == 1).all() and (batch.target_output == 2).all()


@pytest.mark.parametrize("name", ["device", "constant"])
def test_constant_and_device_take_nothing_from_the_host(tf, devices, name):
    function = tf.function(build(name, devices[:2]).next_batches, autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec([], tf.int64)).graph
    for op in graph.get_operations():
        assert "Iterator" not in op.type and "PyFunc" not in op.type
        assert op.type == "Placeholder" or op.device in (*devices[:2], "")


@every_class
def test_strong_scaling_cuts_one_global_batch_and_drops_nothing(
    tf, devices, name, prefetch
):
    # Sources with and without prefetching have each order once.
    layout = dataclasses.replace(PAIRS, time_major=prefetch)
    options = {"prefetch": prefetch, "layout": layout, "disable_shuffle": True}
    one = run_steps(tf, build(name, devices[:1], batch_sizes=(7,), **options), 3)
    three = run_steps(tf, build(name, devices[:3], batch_sizes=(3, 2, 2), **options), 3)
    for (batch,), pieces in zip(one, three):
        assert [len(piece.source_length) for piece in pieces] == [3, 2, 2]
        if name in ("device", "constant"):  # each tower draws its words
            continue
        for array, *arrays in zip(batch, *pieces):
            axis = 1 if prefetch and array.ndim == 2 else 0
            np.testing.assert_array_equal(np.concatenate(arrays, axis), array)


@every_class
def test_a_network_of_the_target_side_gets_the_targets_of_the_pairs(
    tf, devices, name, prefetch
):
    options = {
        "prefetch": prefetch,
        "batch_sizes": () if prefetch else (3, 2),
        "disable_shuffle": True,
        "num_buckets": 1,
    }
    pairs = run_steps(tf, build(name, devices[:2], **options), 3)
    options |= {"layout": TARGETS, "src_file_name": "", "src_vocab_file": ""}
    targets = run_steps(tf, build(name, devices[:2], **options), 3)
    expected = [[TargetBatch(*batch[2:]) for batch in step] for step in pairs]
    assert_equal(targets, expected)
