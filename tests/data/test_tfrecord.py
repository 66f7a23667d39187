"""ImageNet's TFRecords: the images, and one line for each file or record with a fault."""

import os
import struct

import numpy as np
import pytest

from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data import make_tfrecords, tfrecord, tfrecord_frames
from rnn_scaling.data.corpus import DataError
from rnn_scaling.models.layout import ImageLayout
from tests.data import stepping
from tests.data.stepping import assert_equal, flat, run_steps

pytestmark = pytest.mark.usefixtures("as_built")

NUM_IMAGES, CLASSES, SIZE, BATCH = 12, 1000, 16, 2


@pytest.fixture(scope="module")
def data_dir(tf, tmp_path_factory):
    """Return a folder with three files of four images, each with another class."""
    folder = tmp_path_factory.mktemp("tfrecord")
    make_tfrecords.write(str(folder), NUM_IMAGES, 3, 12, 40, 1)
    return folder


def build(data_dir, devices, **options):
    layout = ImageLayout(SIZE, CLASSES, "NHWC")
    given = {"data_dir": str(data_dir), "batch_size": BATCH, **options}
    return stepping.build("tfrecord", devices, layout, **given)


def find_fault(data_dir, error):
    """Return the line that explains an error of a pipeline."""
    options = DataOptions(data_source="tfrecord", data_dir=str(data_dir))
    return tfrecord.find_fault(options, error)


@pytest.mark.parametrize("prefetch", [False, True])
def test_the_number_of_threads_changes_no_pixel(tf, devices, data_dir, prefetch):
    one, four = (
        build(data_dir, devices[:2], prefetch=prefetch, num_parallel_calls=n)
        for n in (1, 4)
    )
    assert_equal(run_steps(tf, one, 5), run_steps(tf, four, 5))


@pytest.mark.parametrize("batch_sizes", [(), (BATCH, BATCH)])
def test_a_resumed_run_gets_the_images_of_a_complete_one(
    tf, devices, data_dir, batch_sizes
):
    options = {"batch_sizes": batch_sizes}
    steps = run_steps(tf, build(data_dir, devices[:2], **options), 6)
    resumed = run_steps(tf, build(data_dir, devices[:2], first_step=4, **options), 2)
    assert_equal(steps[4:], resumed)


@pytest.mark.parametrize("shuffles", [False, True])
def test_each_image_comes_once_per_epoch_with_another_crop(
    tf, devices, data_dir, shuffles
):
    # 12 images in batches of 2 for two towers: an epoch has three steps.
    source = build(data_dir, devices[:2], disable_shuffle=not shuffles)
    batches = flat(run_steps(tf, source, 6))
    labels = np.concatenate([batch.labels for batch in batches])
    images = np.concatenate([batch.images for batch in batches])
    epochs = labels[:NUM_IMAGES], labels[NUM_IMAGES:]
    assert [sorted(epoch) for epoch in epochs] == [list(range(NUM_IMAGES))] * 2
    in_order = [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11]  # file by file
    assert ([list(epoch) for epoch in epochs] == [in_order] * 2) is not shuffles
    assert list(epochs[0]) != list(epochs[1]) or not shuffles
    for label in range(NUM_IMAGES):
        first, second = images[labels == label]
        assert not np.array_equal(first, second)


def test_images_are_cropped_resized_and_flipped(tf, devices, tmp_path):
    # Red rises from left to right and green from top to bottom, so that a crop shows its
    # position.
    size = 64
    ramp = np.linspace(0, 255, size)
    pixels = np.stack(
        [*np.broadcast_arrays(ramp[None, :], ramp[:, None]), np.full((size, size), 90)],
        2,
    )
    encoded = tf.io.encode_jpeg(pixels.round().astype(np.uint8), quality=100).numpy()
    write(tf, tmp_path / "train-00000-of-00001", [make_example(tf, encoded, 7)])
    batches = flat(run_steps(tf, build(tmp_path, devices[:1]), 20))
    images = np.concatenate([batch.images for batch in batches])
    red, green, blue = np.moveaxis(images, 3, 0)
    np.testing.assert_allclose(blue, 90 / 127.5 - 1, atol=0.1)
    slopes = red[:, SIZE // 2, -2] - red[:, SIZE // 2, 1]
    assert 5 < (slopes > 0).sum() < 35  # about half of the 40 images
    assert (green[:, -2, SIZE // 2] > green[:, 1, SIZE // 2]).all()  # never upside down
    share = np.abs(slopes) * (green[:, -2, SIZE // 2] - green[:, 1, SIZE // 2]) / 4
    assert 0.02 < share.min() < 0.3 < share.max() < 1


def write(tf, path, records):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)


def write_after_good(tf, folder, content, records):
    """Write a file of good records and one with this content; return its path."""
    write(tf, folder / "train-00000-of-00002", [records["good"]] * 3)
    write(tf, folder / "train-00001-of-00002", content)
    return folder / "train-00001-of-00002"


def make_example(tf, encoded, label, label_kind="int64_list", times=1):
    features = {
        tfrecord.ENCODED: tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[encoded])
        )
    }
    if label is not None:
        values = {
            "int64_list": tf.train.Int64List(value=[label] * times),
            "bytes_list": tf.train.BytesList(value=[b"%d" % label]),
        }
        features[tfrecord.LABEL] = tf.train.Feature(**{label_kind: values[label_kind]})
    return tf.train.Example(
        features=tf.train.Features(feature=features)
    ).SerializeToString()


@pytest.fixture(scope="module")
def records(tf, data_dir):
    """Return records with and without faults by name."""
    path = str(data_dir / "train-00000-of-00003")
    good = next(iter(tf.data.TFRecordDataset(path))).numpy()
    features = tf.train.Example.FromString(good).features.feature
    jpeg = features[tfrecord.ENCODED].bytes_list.value[0]
    return {
        "good": good,
        "no example": b"none",
        "empty": b"",
        "label as bytes": make_example(tf, jpeg, 1, label_kind="bytes_list"),
        "two labels": make_example(tf, jpeg, 1, times=2),
        "cut jpeg": make_example(tf, jpeg[: len(jpeg) // 2], 1),
        "label 1001": make_example(tf, jpeg, 1001),
        "without label": make_example(tf, jpeg, None),
    }


NO_EXAMPLE = "is not a tf.train.Example of an image"
NO_JPEG = "has an image/encoded that cannot be decoded as a JPEG"
FAULTS = {
    "no example": NO_EXAMPLE,
    "empty": "has 0 values of image/encoded",
    "label as bytes": NO_EXAMPLE,
    "two labels": "has the image/class/label 1, 1;",
    "cut jpeg": NO_JPEG,
    "label 1001": "has the image/class/label 1001;",
    "without label": "has the image/class/label none;",
}
# One fault per kind that the pipeline itself must notice.
FOUND_LATER = ("no example", "cut jpeg", "label 1001")


@pytest.mark.parametrize("name, words", FAULTS.items(), ids=FAULTS)
def test_a_first_record_with_a_fault_is_refused(
    tf, devices, tmp_path, records, name, words
):
    path = write_after_good(tf, tmp_path, [records[name], records["good"]], records)
    with pytest.raises(DataError) as refused:
        build(tmp_path, devices[:1])
    [line] = str(refused.value).splitlines()
    assert line.startswith(f"{path}: record 0 {words}")


@pytest.mark.parametrize("name", FOUND_LATER)
def test_a_later_record_with_a_fault_is_found(tf, devices, tmp_path, records, name):
    good = records["good"]
    path = write_after_good(tf, tmp_path, [good, good, records[name], good], records)
    with pytest.raises(tfrecord.PARSE_ERRORS) as caught:
        run_steps(tf, build(tmp_path, devices[:1], prefetch=True), 20)
    [line] = find_fault(tmp_path, caught.value).splitlines()
    assert line.startswith(f"{path}: record 2 {FAULTS[name]}")


def test_files_that_are_cut_short_or_overwritten(tf, devices, data_dir, tmp_path):
    content = (data_dir / "train-00000-of-00003").read_bytes()
    path = tmp_path / "train-00000-of-00001"
    damaged = "record 0 is truncated or corrupt"
    for broken, words in (
        (b"", "the file contains no record"),
        (content[:99], damaged),
        (b"text" * 99, damaged),
    ):
        path.write_bytes(broken)
        with pytest.raises(DataError, match=f"^{path}: {words}.*$"):
            build(tmp_path, devices[:1])
    flipped = bytearray(content)
    flipped[-99] ^= 1
    for broken in (content[:-99], bytes(flipped)):
        path.write_bytes(broken)
        with pytest.raises(tf.errors.DataLossError) as caught:
            run_steps(tf, build(tmp_path, devices[:1]), 20)
        found = find_fault(tmp_path, caught.value)
        assert found.startswith(f"{path}: record 3 is truncated or corrupt")
        assert "\n" not in found


def frame_record(data, length=None):
    """Return a record of a file with any length in its header and valid checksums."""
    header = struct.pack("<Q", len(data) if length is None else length)
    parts = []
    for part in (header, data):
        parts += [part, struct.pack("<I", tfrecord_frames.compute_masked_crc(part))]
    return b"".join(parts)


def test_frames_equal_those_of_tensorflow(data_dir, tmp_path):
    path = data_dir / "train-00000-of-00003"
    frames = tfrecord_frames.read_frames(str(path))
    records = [tfrecord_frames.read_data(str(path), frame) for frame in frames]
    assert len(records) == NUM_IMAGES // 3
    assert b"".join(map(frame_record, records)) == path.read_bytes()


@pytest.mark.parametrize(
    "position, broken",
    [
        (0, frame_record(b"data", 2**31)),
        (2, frame_record(b"data", 2**64 - 1)),
        (0, b"\x01"),
        (2, b"\0" * 64),
        (2, b"\x1f\x8b\x08" * 9),
    ],
    ids=["length", "length of a later record", "cut", "zeros", "gzip"],
)
def test_a_broken_frame_is_refused_or_found_for_any_error(
    tf, devices, tmp_path, records, position, broken
):
    """TensorFlow would end the process or fail with another error."""
    path = tmp_path / "train-00000-of-00001"
    good = frame_record(records["good"])
    path.write_bytes(good * position + broken + good * (len(broken) > 1))
    lines = []
    if position == 0 or b"data" in broken:
        with pytest.raises(DataError) as refused:
            build(tmp_path, devices[:1])
        lines.append(str(refused.value))
    for error in (ValueError(), tf.errors.DataLossError(None, None, "")):
        lines.append(find_fault(tmp_path, error))
    for line in lines:
        assert line.startswith(f"{path}: record {position} is truncated or corrupt")
        assert "\n" not in line


def test_a_length_beyond_the_file_of_a_large_set_ends_no_process(
    tf, devices, tmp_path, records, monkeypatch
):
    monkeypatch.setattr(tfrecord, "_MAX_CHECKED_BYTES", 0)
    path = tmp_path / "train-00000-of-00001"
    good = frame_record(records["good"])
    path.write_bytes(good * 2 + frame_record(records["good"], 2**40) + good)
    source = build(tmp_path, devices[:1])
    with pytest.raises(tf.errors.OpError, match="IteratorGetNext") as failed:
        run_steps(tf, source, 3)
    found = find_fault(tmp_path, failed.value)
    assert found.startswith(f"{path}: record 2 is truncated or corrupt")


def test_files_that_cannot_be_read_are_refused(devices, tmp_path):
    os.mkfifo(tmp_path / "train-00000-of-00001")
    with pytest.raises(DataError, match="train-00000-of-00001: cannot be read"):
        build(tmp_path, devices[:1])


def test_good_records_have_no_fault(tf, data_dir):
    for kind in (tf.errors.DataLossError, tf.errors.InvalidArgumentError):
        error = kind(None, None, "IteratorGetNext")
        assert find_fault(data_dir, error) == ""
