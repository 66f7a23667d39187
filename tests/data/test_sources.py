"""What is true of every data source, and of the random words that three of them share."""

from __future__ import annotations

import dataclasses
import functools
import os

import numpy as np
import pytest

import rnn_scaling.data
from rnn_scaling.config import registry
from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data.source import Feed
from rnn_scaling.models.batch import Batch, Side, TargetBatch
from rnn_scaling.models.layout import Layout, TextLayout
from tests.data.stepping import assert_equal, flat, ids_of, run_steps
from tests.data.test_image_sources import SOURCES as IMAGE_SOURCES

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
every_source = pytest.mark.parametrize("name,prefetch", SOURCES)
CLASSES = [
    source for source in SOURCES if source[0] != "reverse"
]  # that of "copy", but for the order of the answer
every_class = pytest.mark.parametrize("name,prefetch", CLASSES)
PIPELINES = ("host", "text")  # the sources that come with and without prefetching


def of_every_scaling(sources, strong):
    """Weak and strong scaling (strong: batch sizes) of sources; pipelines prefetch under strong scaling alone."""
    cases = [(*source, sizes) for source in sources for sizes in (None, strong)]
    cases = [
        case for case in cases if case[0] not in PIPELINES or case[1] == bool(case[2])
    ]
    return pytest.mark.parametrize("name,prefetch,batch_sizes", cases, ids=str)


def build(
    name: str,
    devices: list[str],
    prefetch: bool = False,
    seed: int = 1,
    batch_sizes=None,
    layout: Layout = PAIRS,
    first_tower: int = 0,
    num_towers: int = 0,
    first_step: int = 0,
    **options,
):
    sides = {"src_max_len": lengths_of(name)[0]}
    data = DataOptions(
        data_source=name,
        prefetch_data_to_device=prefetch,
        **{**OPTIONS, **sides, **options},
    )
    sizes = tuple(batch_sizes or (BATCH_SIZE,) * (num_towers or len(devices)))
    feed = Feed(
        data,
        layout,
        sizes,
        batch_sizes is not None,
        seed,
        tuple(devices),
        first_tower,
        first_step,
    )
    return registry.load(registry.DATA_SOURCES, name).build(feed)


@pytest.fixture(scope="module")
def made(tf, devices):
    """(name, prefetch, number of towers) -> batches of the first STEPS steps of a source as `build` makes it."""

    @functools.cache
    def make(name, prefetch, num_towers):
        return run_steps(tf, build(name, devices[:num_towers], prefetch), STEPS)

    return make


def lengths_of(name: str) -> tuple[int, int]:
    """Words of the longest sentence of each side; those of a known answer are as long as each other."""
    src, tgt = OPTIONS["src_max_len"], OPTIONS["tgt_max_len"]
    return (tgt if name in registry.KNOWN_ANSWERS else src), tgt


def test_every_registered_source_is_tested():
    assert {name for name, _ in [*SOURCES, *IMAGE_SOURCES]} == set(
        registry.DATA_SOURCES
    )


@every_source
def test_batches_are_consistent(made, name, prefetch):
    for batch in flat(made(name, prefetch, 2)):
        for field, array in zip(
            batch._fields, batch
        ):  # GPUs work with int32 in host memory; cuDNN wants lengths there
            assert array.dtype == (
                np.int32 if field.endswith("length") else np.int64
            ), field
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


@every_class
def test_batch_major_is_the_transpose(tf, devices, made, name, prefetch):
    """Of the words that another source of the same seed gave."""
    layout = dataclasses.replace(PAIRS, time_major=False)
    batch_major = run_steps(tf, build(name, devices[:2], prefetch, layout=layout), 3)
    assert_equal(
        made(name, prefetch, 2)[:3],
        [[_transpose(batch) for batch in step] for step in batch_major],
    )


@of_every_scaling(CLASSES, (3, 2, 2))
def test_two_workers_get_what_one_gets_each_batch_once(
    tf, devices, made, name, prefetch, batch_sizes
):
    """One has a tower, the other two."""
    options = {"prefetch": prefetch, "batch_sizes": batch_sizes, "num_towers": 3}
    whole = (
        run_steps(tf, build(name, devices[:3], **options), 4)
        if batch_sizes
        else made(name, prefetch, 3)[:4]
    )
    first = run_steps(tf, build(name, devices[:1], **options), 4)
    second = run_steps(tf, build(name, devices[:2], first_tower=1, **options), 4)
    assert_equal([[*left, *right] for left, right in zip(first, second)], whole)


def _transpose(batch: Batch) -> Batch:
    return Batch(*(array.T for array in batch))  # lengths have one axis and stay


@pytest.mark.parametrize("name", sorted({name for name, _ in CLASSES}))
def test_another_seed_gives_other_words(tf, devices, made, name):
    first = made(name, False, 2)[:3]
    other = run_steps(tf, build(name, devices[:2], seed=6), 3)
    assert not set(ids_of(flat(first))) & set(ids_of(flat(other)))


@pytest.mark.parametrize(
    "name, prefetch",
    [source for source in SOURCES if source[0] not in registry.KNOWN_ANSWERS],
)
def test_padding_to_one_length_adds_end_of_sentence_words_and_nothing_else(
    tf, devices, name, prefetch
):
    time_major = prefetch  # of the sources that come with and without prefetching, each order once
    options = {
        "layout": dataclasses.replace(PAIRS, time_major=time_major),
        "random_lengths": name != "text",
    }
    plain, padded = (
        run_steps(
            tf, build(name, devices[:2], prefetch, pad_to=pad_to, **options), STEPS
        )
        for pad_to in (0, 9)
    )
    for before, after in zip(flat(plain), flat(padded), strict=True):
        for field, left, right in zip(before._fields, before, after):
            if right.ndim == 2:
                left, right = (part if time_major else part.T for part in (left, right))
                assert (
                    right.shape == (9, BATCH_SIZE) and (right[len(left) :] == 2).all()
                )
                right = right[: len(left)]
            np.testing.assert_array_equal(left, right, err_msg=field)


@every_class
def test_each_tower_s_batch_is_on_its_device_and_its_shape_is_known(
    tf, devices, name, prefetch
):
    source = build(name, devices[:3], prefetch)
    src_time, tgt_time = (None, None) if name == "text" else lengths_of(name)
    src_ids, tgt_ids, lengths = (
        [src_time, BATCH_SIZE],
        [tgt_time, BATCH_SIZE],
        [BATCH_SIZE],
    )

    @tf.function(autograph=False)
    def step_function(step):
        batches = source.next_batches(step)
        for device, batch in zip(devices, batches):
            for tensor in batch:
                assert tensor.device.endswith(device), (tensor, device)
            assert [tensor.shape.as_list() for tensor in batch] == [
                src_ids,
                lengths,
                tgt_ids,
                tgt_ids,
                lengths,
            ]
        return len(batches)

    assert step_function(tf.constant(0, tf.int64)) == 3


@pytest.mark.parametrize("name, direction", [("copy", 1), ("reverse", -1)])
def test_the_answer_is_known(made, name, direction):
    """The words of the source as they are or turned round, new ones each step, none that stands for something."""
    batches = flat(made(name, False, 2))
    for batch in batches:
        words = batch.source[:-1]
        np.testing.assert_array_equal(batch.target_output[:-1], words[::direction])
        assert (
            (batch.source[-1] == 2).all()
            and words.min() >= 3
            and words.max() < TGT_VOCAB
        )
    assert len(set(ids_of(batches))) == 2 * STEPS


@of_every_scaling([source for source in SOURCES if source[0] in PIPELINES], (3, 2))
def test_a_pipeline_goes_on_where_a_run_was_resumed(
    tf, devices, made, name, prefetch, batch_sizes
):
    options = {"prefetch": prefetch, "batch_sizes": batch_sizes}
    whole = (
        run_steps(tf, build(name, devices[:2], **options), 7)
        if batch_sizes
        else made(name, prefetch, 2)[:7]
    )
    rest = run_steps(tf, build(name, devices[:2], first_step=4, **options), 3)
    assert_equal(whole[4:], rest)


@pytest.mark.parametrize("name", PIPELINES)
def test_neither_threads_nor_prefetching_change_a_word(tf, devices, name):
    one, four = (
        run_steps(
            tf,
            build(
                name,
                devices[:2],
                prefetch,
                num_parallel_calls=threads,
                prefetch_buffer_size=buffer,
            ),
            8,
        )
        for prefetch, threads, buffer in ((False, 1, 1), (True, 4, 3))
    )
    assert_equal(one, four)


@pytest.mark.parametrize("name", ["device", "host", "text"])
def test_every_tower_and_step_gets_other_words(made, name):
    batches = ids_of(flat(made(name, False, 3)))
    assert len(set(batches)) == 3 * STEPS


def test_constant_words_stay_and_differ_between_towers(made):
    steps = made("constant", False, 3)
    assert_equal(steps, [steps[0]] * STEPS)
    assert len(set(ids_of(steps[0]))) == 3
    assert_equal(steps[:1], made("device", False, 3)[:1])


def test_device_words_do_not_depend_on_how_many_towers_there_are_or_where_a_run_starts(
    tf, devices, made
):
    three = made("device", False, 3)
    one = run_steps(tf, build("device", devices[:1]), 2, first_step=2)
    assert_equal([step[:1] for step in three[2:4]], one)


@pytest.mark.parametrize("num_towers", [1, 2, 3])
@pytest.mark.parametrize("prefetch", [False, True])
def test_host_feeds_the_words_of_device_in_their_order(made, prefetch, num_towers):
    assert_equal(made("host", prefetch, num_towers), made("device", False, num_towers))


@of_every_scaling([source for source in SOURCES if source[0] != "text"], (3, 2))
def test_random_sentences_are_known_to_be_full_when_tracing(
    tf, devices, name, prefetch, batch_sizes
):
    """The same for device, constant and host, so that cuDNN makes the same call for each."""
    source = build(name, devices[:2], prefetch, batch_sizes=batch_sizes)
    known = []

    @tf.function(autograph=False)
    def step_function(step):
        for batch in source.next_batches(step):
            known.extend(
                tf.get_static_value(lengths)
                for lengths in (batch.source_length, batch.target_length)
            )

    step_function.get_concrete_function(tf.TensorSpec([], tf.int64))
    lengths = lengths_of(name)
    want = [
        [length] * size
        for size in batch_sizes or (BATCH_SIZE, BATCH_SIZE)
        for length in lengths
    ]
    assert [list(values) for values in known] == want


@pytest.mark.parametrize(
    "name, options", [("text", {"num_towers": 3}), ("host", {"batch_sizes": (3, 2)})]
)
def test_no_function_of_a_pipeline_is_read_and_compiled_for_loops_over_tensors(
    devices, name, options, monkeypatch
):
    """0.2 to 0.4 s of a start."""
    from tensorflow.python.autograph.impl import api

    convert, converted = api._convert_actual, []
    monkeypatch.setattr(
        api,
        "_convert_actual",
        lambda function, *rest: converted.append(function) or convert(function, *rest),
    )
    build(name, devices[:2], **options)
    assert converted == []


def test_random_words_of_both_sides_are_drawn_apart_from_the_whole_vocabulary(
    tf, devices
):
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


def test_constant_and_device_take_nothing_from_the_host(tf, devices):
    for name in ("device", "constant"):
        source = build(name, devices[:2])
        graph = (
            tf.function(source.next_batches, autograph=False)
            .get_concrete_function(tf.TensorSpec([], tf.int64))
            .graph
        )
        assert not [
            op
            for op in graph.get_operations()
            if "Iterator" in op.type or "PyFunc" in op.type
        ]
        assert {
            op.device
            for op in graph.get_operations()
            if op.type not in ("Placeholder",)
        } <= {*devices[:2], ""}


@every_class
def test_strong_scaling_cuts_one_global_batch_and_drops_nothing(
    tf, devices, name, prefetch
):
    time_major = prefetch  # of the sources that come with and without prefetching, each order once
    axis = 1 if time_major else 0
    layout = dataclasses.replace(PAIRS, time_major=time_major)
    options = {"prefetch": prefetch, "layout": layout, "disable_shuffle": True}
    whole = run_steps(tf, build(name, devices[:1], batch_sizes=(7,), **options), 3)
    parts = run_steps(tf, build(name, devices[:3], batch_sizes=(3, 2, 2), **options), 3)
    for (one,), towers in zip(whole, parts):
        assert [len(batch.source_length) for batch in towers] == [3, 2, 2]
        if name in ("device", "constant"):  # each tower draws its own words
            continue
        for field in one._fields:
            joined = np.concatenate(
                [getattr(batch, field) for batch in towers],
                axis if "length" not in field else 0,
            )
            np.testing.assert_array_equal(joined, getattr(one, field))


@every_class
def test_the_target_side_alone_is_that_of_the_pairs(tf, devices, name, prefetch):
    batch_sizes = None if prefetch else (3, 2)  # weak scaling, or strong
    options = {
        "prefetch": prefetch,
        "batch_sizes": batch_sizes,
        "disable_shuffle": True,
        "num_buckets": 1,
    }
    alone = {"src_file_name": "", "src_vocab_file": ""}  # which nothing then reads
    pairs = run_steps(tf, build(name, devices[:2], **options), 3)
    targets = run_steps(
        tf, build(name, devices[:2], layout=TARGETS, **options, **alone), 3
    )
    assert_equal(
        targets, [[TargetBatch(*batch[2:]) for batch in step] for step in pairs]
    )
