"""One global batch cut in slices: bytes that are copied and devices of gradients."""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.records.step_parts import SlicedPart
from rnn_scaling.training import slicing
from tests.support import tiny_images
from tests.support.configs import resolve
from tests.support.gpu_graph import CPU, GPUS, trace
from tests.support.training import (
    MAX_LEN,
    SMALL,
    FixedSource,
    build_step,
    build_workload,
    concatenate,
    make_batches,
    make_local_engine,
)

BATCH_SIZES = {2: (4, 3), 3: (3, 2, 2)}  # they add up to SAMPLES
SAMPLES = 7
WORDS, LENGTH = MAX_LEN * 8, 4  # bytes of a sentence's ids, and of its length
IMAGE = tiny_images.SIZE * tiny_images.SIZE * 3 * 4
MODEL = dataclasses.replace(SMALL, model="lm")


def make_sentences():
    batches = [batch for [batch] in make_batches(3, 1, MODEL)]
    return build_workload(MODEL), type(batches[0])(
        *(part[..., :SAMPLES] for part in concatenate(batches))
    )


def make_images():
    random = np.random.default_rng(0)
    shape = (SAMPLES, tiny_images.SIZE, tiny_images.SIZE, 3)
    labels = random.integers(0, tiny_images.NUM_CLASSES, SAMPLES)
    return tiny_images.workload(), ImageBatch(random.random(shape, np.float32), labels)


def run_step(devices, workload, batch, slice_on):
    """Return the `graph` of the record and the counts of a step on the batch."""
    from rnn_scaling.inspection import observe

    given = {"variable_update": "keras_slicing", "trace_batches": 1}
    given |= {"global_batch_size": SAMPLES, "slice_on": slice_on}
    source = FixedSource([[batch]], devices[:1])
    step = build_step(devices, source, workload, **given)
    result = step()
    return observe.describe_graph(step), result


@pytest.mark.parametrize(
    "of_samples, slice_on, num_towers",
    [
        (make_sentences, "host", 2),
        (make_sentences, "device", 3),
        (make_images, "host", 3),
        (make_images, "device", 2),
    ],
)
def test_the_bytes_that_move_for_slices_are_those_predicted(
    tf, devices, of_samples, slice_on, num_towers
):
    # Ids are looked up on the host, so ids cut on a device return. Labels stay.
    workload, batch = of_samples()
    names = [
        f"/job:localhost/replica:0/task:0{device}" for device in devices[:num_towers]
    ]
    graph, result = run_step(names, workload, batch, slice_on)
    others = BATCH_SIZES[num_towers][1:]  # the first tower's device is the host
    read, looked_up = (
        (IMAGE, 0) if of_samples is make_images else (WORDS + LENGTH, WORDS)
    )  # bytes of a sample
    there = {
        "host": [n * read for n in others],
        "device": [SAMPLES * read for _ in others],
    }
    back = {"host": [0 for _ in others], "device": [n * looked_up for n in others]}
    moves = graph.slicing.moves
    assert [move.predicted for move in moves if move.source == names[0]] == there[
        slice_on
    ]
    assert [move.predicted for move in moves if move.target == names[0]] == back[
        slice_on
    ]
    assert [move.counted for move in moves] == [move.predicted for move in moves]

    samples = np.ones(SAMPLES) if of_samples is make_images else batch.target_length
    pieces = np.split(samples, np.cumsum(BATCH_SIZES[num_towers])[:-1])
    assert result.loss_items.tolist() == [
        piece.sum() for piece in pieces
    ]  # the remainder, too
    for variable in (
        graph.placement.variables
    ):  # one copy, on the host; each tower's gradient is where the tower is
        assert variable.tower is None
        assert variable.device == names[0]
        assert [gradient.device for gradient in variable.gradients] == names


@pytest.mark.parametrize("takes_first_slice", [False, True])
def test_a_certificate_fails_if_a_tower_trains_another_slice(
    tf, devices, takes_first_slice, monkeypatch
):
    from rnn_scaling.training import benchmark, sliced_step
    from rnn_scaling.verification.certifier import Certifier

    if takes_first_slice:
        slice_for_tower = sliced_step.Slices.slice_for_tower
        monkeypatch.setattr(
            sliced_step.Slices,
            "slice_for_tower",
            lambda self, _: slice_for_tower(self, 0),
        )
    given = {
        **vars(MODEL),
        "variable_update": "keras_slicing",
        "num_devices": 2,
        "global_batch_size": 4,
    }
    given |= {"optimizer": "sgd", "learning_rate": 0.5, "tgt_max_len": 4}
    config = resolve(given)
    engine = make_local_engine(devices[:2])
    step = benchmark.build(config, engine)
    watch = Certifier(config, engine, step)
    for _ in range(2):
        watch.check_batch(step())
    certificate = watch.make_certificate()
    verdict = "unequal loss" if takes_first_slice else "equal within 1e-5"
    assert certificate.verdict == verdict, certificate.statements
    assert certificate.holds == (not takes_first_slice)


def test_bytes_of_slices_in_closed_form():
    def part(name, num_bytes, read):
        return SlicedPart(name=name, bytes=num_bytes, read=read)

    images = [part("images", 1200, slicing.TOWER), part("labels", 48, slicing.LOSS)]
    text = [part("ids", 480, slicing.LOOKUP), part("length", 24, slicing.STATIC)]

    def bytes_of(on, parts):
        cut = slicing.Cut(on, tuple(parts), (3, 2, 1))
        return [slicing.predict_bytes(cut, tower) for tower in range(3)]

    assert bytes_of("host", images) == [
        (600, 0),
        (400, 0),
        (200, 0),
    ]  # each its own: 1 batch in all
    assert (
        bytes_of("device", images) == [(1200, 0)] * 3
    )  # each the whole: as many batches as devices
    assert bytes_of("host", text) == [(240, 0), (160, 0), (80, 0)]
    assert bytes_of("device", text) == [(480, 240), (480, 160), (480, 80)]
    assert (
        bytes_of("host", [part("ids", None, slicing.LOOKUP)]) == [None] * 3
    )  # if lengths vary
    assert bytes_of("host", [part("ids", 480, slicing.ELSEWHERE)]) == [None] * 3


@pytest.mark.parametrize("slice_on", ["host", "device"])
def test_on_gpus_the_host_has_the_batch_and_the_loss_and_each_gpu_its_tower(
    tf, slice_on
):
    operations, _ = trace(
        tf,
        variable_update="keras_slicing",
        slice_on=slice_on,
        param_server_device="cpu",
    )

    def devices_of(scope, *types):
        return {
            op.device
            for op in operations
            if op.name.startswith(scope) and op.type in types
        }

    assert devices_of("input/slice/", "SplitV") == {CPU}
    assert devices_of(
        "exchange/loss/", "ConcatV2", "SparseSoftmaxCrossEntropyWithLogits", "Sum"
    ) == {CPU}
    for tower, gpu in enumerate(GPUS):
        assert devices_of(f"tower_{tower}/input/slice/", "StridedSlice") == (
            {gpu} if slice_on == "device" else set()
        )
        assert devices_of(f"tower_{tower}/forward/", "MatMul", "CudnnRNNV3") == {gpu}
        assert devices_of(
            f"tower_{tower}/backward/", "MatMul", "CudnnRNNBackpropV3"
        ) == {gpu}
