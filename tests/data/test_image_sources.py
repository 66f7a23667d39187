"""All sources of images, and the files of CIFAR-10."""

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data import image_files, make_tfrecords
from rnn_scaling.data.corpus import DataError
from rnn_scaling.models.layout import ImageLayout
from tests.data import stepping
from tests.data.stepping import assert_equal, flat, list_ids, run_steps

pytestmark = pytest.mark.usefixtures("as_built")

SIZE, NUM_CLASSES, BATCH_SIZE = 32, 10, 3
NUM_IMAGES = 14  # in two files


@pytest.fixture(scope="module")
def cifar10_dir(tmp_path_factory):
    """Write two files; pixel k of image n is (n + k) % 251, its label n % 10."""
    folder = tmp_path_factory.mktemp("cifar10")
    for number, first, stop in ((1, 0, 9), (2, 9, NUM_IMAGES)):
        records = [
            bytes([n % 10, *((n + k) % 251 for k in range(image_files.IMAGE_BYTES))])
            for n in range(first, stop)
        ]
        (folder / f"data_batch_{number}.bin").write_bytes(b"".join(records))
    (folder / "test_batch.bin").write_bytes(b"not read")
    return str(folder)


@pytest.fixture(scope="module")
def data_dir(tf, cifar10_dir):
    """Add three TFRecord files with the same number of images."""
    make_tfrecords.write(str(cifar10_dir), NUM_IMAGES, 3, 10, 40, 1)
    return cifar10_dir


def build(name, data_dir, devices, data_format="NHWC", **options):
    if registry.DATA_SOURCES[name].files:
        options["data_dir"] = data_dir
    layout = ImageLayout(SIZE, NUM_CLASSES, data_format)
    return stepping.build(name, devices, layout, **options)


@pytest.mark.parametrize(
    "name, prefetch",
    [("device", False), ("host", True), ("cifar10", False), ("tfrecord", True)],
)
def test_both_formats_hold_the_same_images_and_the_seed_decides_them(
    tf, devices, data_dir, name, prefetch
):
    steps, first, other = (
        flat(run_steps(tf, build(name, data_dir, devices[:2], **options), 3))
        for options in (
            {"prefetch": prefetch},
            {"prefetch": prefetch, "data_format": "NCHW"},
            {"prefetch": prefetch, "seed": 2},
        )
    )
    for batch, transposed in zip(steps, first, strict=True):
        channels_first = batch.images.transpose(0, 3, 1, 2)
        assert_equal([[batch._replace(images=channels_first)]], [[transposed]])
        assert batch.images.shape == (BATCH_SIZE, SIZE, SIZE, 3)
        assert batch.images.dtype == np.float32
        assert batch.labels.dtype == np.int64
        assert -1 <= batch.images.min() < batch.images.max() <= 1
        assert 0 <= batch.labels.min() <= batch.labels.max() < NUM_CLASSES
    assert not set(list_ids(steps)) & set(list_ids(other))


# Pipelines prefetch only under strong scaling.
@pytest.mark.parametrize(
    "name, prefetch, batch_sizes",
    [
        ("device", False, (3, 2, 2)),
        ("constant", False, ()),
        ("host", False, ()),
        ("cifar10", True, (3, 2, 2)),
        ("tfrecord", False, ()),
        ("tfrecord", True, (3, 2, 2)),
    ],
    ids=str,
)
def test_two_workers_get_what_one_gets_each_batch_once(
    tf, devices, data_dir, name, prefetch, batch_sizes
):
    options = {"prefetch": prefetch, "batch_sizes": batch_sizes, "num_towers": 3}
    whole = run_steps(tf, build(name, data_dir, devices[:3], **options), 3)
    first = run_steps(tf, build(name, data_dir, devices[:1], **options), 3)
    second = run_steps(
        tf, build(name, data_dir, devices[:2], first_tower=1, **options), 3
    )
    assert_equal([[*left, *right] for left, right in zip(first, second)], whole)
    assert [len(batch.labels) for batch in whole[0]] == list(batch_sizes or (3, 3, 3))


def test_random_images_have_every_class_and_no_two_pixels_alike_by_format(tf):
    layout = ImageLayout(8, NUM_CLASSES, "NHWC")
    batch = layout.draw(300, (), lambda stream: tf.constant([stream, 7], tf.int64))
    assert set(batch.labels.numpy()) == set(range(NUM_CLASSES))
    assert abs(batch.images.numpy().mean()) < 0.02
    assert batch.images.numpy().std() == pytest.approx(3**-0.5, rel=0.02)


@pytest.mark.parametrize("shuffles", [False, True])
def test_each_image_of_the_files_comes_once_an_epoch(tf, devices, data_dir, shuffles):
    # 14 images in global batches of 7: an epoch has two steps.
    source = build(
        "cifar10",
        data_dir,
        devices[:2],
        batch_sizes=(5, 2),
        disable_shuffle=not shuffles,
    )
    epochs = []
    for step in zip(*[iter(run_steps(tf, source, 4))] * 2):
        batches = flat(list(step))
        pixels = np.concatenate([batch.images for batch in batches])
        numbers = np.rint((pixels[:, 0, 0, 0] + 1) * 127.5).astype(int)
        epochs.append(list(numbers))
        for image, number, label in zip(
            pixels, numbers, np.concatenate([batch.labels for batch in batches])
        ):
            planes = np.rint((image.transpose(2, 0, 1) + 1) * 127.5).astype(int).ravel()
            np.testing.assert_array_equal(
                planes, (number + np.arange(planes.size)) % 251
            )
            assert label == number % 10
    in_order = list(range(NUM_IMAGES))
    assert [sorted(epoch) for epoch in epochs] == [in_order] * 2
    assert (epochs == [in_order] * 2) is not shuffles
    assert (epochs[0] != epochs[1]) is shuffles


@pytest.mark.parametrize(
    "content, words",
    [
        (
            None,
            " contains no data_batch_*.bin; name the folder with the files of --data_source=cifar10",
        ),
        (b"", "data_batch_1.bin is empty"),
        (
            bytes(3074),
            "data_batch_1.bin must have a multiple of 3,073 bytes, the size of an image, got 3,074",
        ),
        (
            bytes(3073) + b"\x0a" + bytes(3072),
            "data_batch_1.bin: the label of image 1 must be from 0 to 9, got 10",
        ),
    ],
)
def test_files_that_are_not_cifar_10_are_refused_in_a_line(tmp_path, content, words):
    if content is not None:
        (tmp_path / "data_batch_1.bin").write_bytes(content)
    options = DataOptions(data_source="cifar10", data_dir=str(tmp_path))
    with pytest.raises(DataError) as caught:
        image_files.check_and_count(image_files.list_files(options))
    assert words in str(caught.value) and "\n" not in str(caught.value)
